"""Run the benchmarks one by one: python bench/run.py [--quick] [--goals] [--seconds N] [--into DIR] [SCRIPT...]

It writes to DIR (build/bench): results.jsonl, one line per row after its measurement; results.md, the page; and a
plot per figure, as SVG. The results include the environment. After Ctrl-C, the rows so far are kept and drawn.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

import common
import report

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PEERS = ("lmdb", "rocksdict", "persist-queue", "litequeue", "diskcache", "pyarrow", "pyspark")


# ---------------------------------------------------------------- scripts and environment
def first_line(*command: str) -> str:
    """Return the first line that a command prints on stdout or stderr; '' if the command does not exist."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0] if lines and not done.returncode else ""


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def disk(folder: Path) -> str:
    """Return the type of the file system of a folder, and its free space."""
    while not folder.exists():
        folder = folder.parent
    kind = first_line("stat", "--file-system", "--format=%T", str(folder)) or "?"
    return f"{kind}, {shutil.disk_usage(folder).free >> 30} GiB free"


def chosen(args: argparse.Namespace) -> list[str]:
    """Return the options that are passed on to each script."""
    words = [f"--{word}" for word in ("quick", "goals") if getattr(args, word)]
    only = ["--only", args.only] if args.only else []
    return [*words, *only, *(["--seconds", f"{args.seconds:g}"] if args.seconds else [])]


def environment(args: argparse.Namespace) -> dict[str, str]:
    """Return the properties of the environment by name; without the names of persons, paths or hosts."""
    commit = first_line("git", "describe", "--always", "--dirty", "--abbrev=12")
    return {
        "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "run": " ".join(["bench/run.py", *chosen(args)]),
        "rocketc": version("rocketc") + (f", {commit}" if commit else ""),
        "machine": common.machine(),
        "load before": f"{os.getloadavg()[0]:.1f}",
        "disk": disk(Path(args.data)),
        "C compiler": first_line(os.environ.get("CC", "cc"), "--version"),
        "libc": " ".join(platform.libc_ver()),
        "Java": first_line("java", "-version") or "missing: its rows are left out",
        "SQLite": __import__("sqlite3").sqlite_version,
        **{peer: version(peer) for peer in PEERS},
    }


# ---------------------------------------------------------------- running
def run(script: Path, options: list[str], results, kept: report.Results):
    """Run one script. Write and print each of its rows as soon as the script prints it."""
    command = [sys.executable, script, "--json", *options]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    name = script.stem.removeprefix("bench_")
    try:
        for line in child.stdout:
            row = json.loads(line)
            kept.rows.append(row)
            print(line, end="", file=results, flush=True)
            print(common.table_line(row), flush=True)
        if child.wait():
            failure = {"bench": name, "failed": f"exit code {child.returncode}"}
            kept.failed.append(failure)
            print(json.dumps(failure), file=results, flush=True)
            print(f"run: {script.name} ended with exit code {child.returncode}; running the others", file=sys.stderr)
    finally:
        if child.poll() is None:
            child.terminate()  # Ctrl-C also reaches the child; it removes its folders before it ends
            child.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "scripts", nargs="*", type=Path, metavar="SCRIPT", help="default: all; with --quick, all except instructions.py"
    )
    parser.add_argument("--quick", action="store_true", help="small logs, few rounds")
    parser.add_argument("--goals", action="store_true", help="only the rows that have a goal")
    parser.add_argument("--only", metavar="WORD", default="", help="only the rows whose case or peer contains WORD")
    parser.add_argument("--seconds", metavar="N", type=float, help=common.SECONDS)
    parser.add_argument("--data", metavar="DIR", default=common.DATA, help="folder of the generated logs (%(default)s)")
    parser.add_argument("--into", metavar="DIR", type=Path, default=ROOT / "build/bench", help="results (%(default)s)")
    args = parser.parse_args()
    counts = [] if args.quick else [HERE / "instructions.py"]  # takes minutes, and does not need a quiet machine
    scripts = args.scripts or [*sorted(HERE.glob("bench_*.py")), *counts]
    if missing := [str(script) for script in scripts if not script.is_file()]:
        parser.error(f"no such file: {', '.join(missing)}")
    options = chosen(args)
    args.into.mkdir(parents=True, exist_ok=True)
    kept, began, interrupted = report.Results(environment(args), [], []), time.monotonic(), False
    spent: list[str] = []
    with open(args.into / "results.jsonl", "w") as results:
        print(json.dumps({"environment": kept.environment}), file=results, flush=True)
        for script in scripts:
            started = time.monotonic()
            data = [] if script.name == "instructions.py" else ["--data", str(args.data)]
            try:
                run(script, [*options, *data], results, kept)
            except KeyboardInterrupt:
                interrupted = True
                break
            finally:
                spent.append(f"{script.stem.removeprefix('bench_')} {time.monotonic() - started:.0f}")
    page = report.write(kept, args.into)
    goals = [row for row in kept.rows if row["goal"] is not None]
    missed = sum(not report.met(row) for row in goals)
    minutes = (time.monotonic() - began) / 60
    print(f"seconds: {', '.join(spent)}")
    print(f"{len(kept.rows)} rows in {minutes:.1f} minutes; {len(goals)} goals, {missed} missed: {page}")
    if interrupted:
        print("run: interrupted; the rows so far are kept", file=sys.stderr)
        return 130
    return 1 if kept.failed else 0


if __name__ == "__main__":
    sys.exit(main())
