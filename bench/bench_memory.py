"""How much memory (RssAnon) does reading 4 GiB take? The mapped page cache is not counted: it belongs to the system."""

import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from common import MIB, Bench, memory_of, same, write_log

LIMIT = 200  # MiB
BODY = 1024
EVERY = 0.01  # seconds between two readings of RssAnon and RssFile
PSS_EVERY = 20  # readings per reading of Pss, for which the kernel scans all pages
WAYS = {
    "iterating": "for _ in rocketc.scan(path): n += 1",
    "batches": "for batch in rocketc.scan(path).batches(): n += batch.num_rows",
    "count": "n = rocketc.scan(path).count()",
}
CHILD = """
import json, sys
import rocketc
path, n = sys.argv[1], 0
{way}
print(json.dumps(n))
"""


def watch(way: str, path: str) -> tuple[int, dict[str, list[float]]]:
    """Read the log in a child process; return the number of records, and its memory at each reading, in MiB."""
    command = [sys.executable, "-c", CHILD.format(way=WAYS[way]), path]
    seen = {"RssAnon": [], "RssFile": [], "Pss": []}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        proc = Path(f"/proc/{child.pid}")
        look = 0
        while child.poll() is None:
            for name in ("RssAnon", "RssFile"):
                seen[name].append(memory_of(proc / "status", name))
            if look % PSS_EVERY == 0:
                seen["Pss"].append(memory_of(proc / "smaps_rollup", "Pss"))
            look += 1
            time.sleep(EVERY)
        answer = child.stdout.read()
    if child.returncode:
        raise SystemExit(f"memory: {way} failed with code {child.returncode}")
    return json.loads(answer), {name: [x for x in values if x is not None] for name, values in seen.items()}


def main():
    bench = Bench("memory", __doc__)
    if not Path("/proc/self/smaps_rollup").exists():
        raise SystemExit("memory: needs Linux's /proc")
    size, file_size = (1024 * MIB, 256 * MIB) if bench.quick else (4096 * MIB, 1024 * MIB)
    root = Path(bench.args.data, "memory-log")
    shutil.rmtree(root, ignore_errors=True)
    try:
        log = write_log(root, body=BODY, size=size, file_size=file_size)
        for way in WAYS:
            if bench.args.only.lower() not in way:
                continue
            records, seen = watch(way, log.path)
            same(records, log.sum.records, f"rocketc, {way}")
            peak = {name: max(values, default=0) for name, values in seen.items()}
            bench.show(
                f"{way}, {size >> 30} GiB in files of {file_size >> 20} MiB",
                f"{LIMIT} MiB",
                LIMIT / peak["RssAnon"],
                1.0,
                [min(seen["RssAnon"]), statistics.median(seen["RssAnon"]), peak["RssAnon"]],
                [LIMIT] * 3,
                "MiB",
            )
            others = ", ".join(f"{name} {peak[name]:.0f} MiB" for name in ("RssFile", "Pss"))
            print(f"memory: {way}: at most {others} (the map, which is page cache, is in both)", file=sys.stderr)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
