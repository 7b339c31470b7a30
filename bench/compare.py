"""Is it faster than before, or is that noise?

    python bench/compare.py before.jsonl after.jsonl [before2.jsonl after2.jsonl ...]
    python bench/compare.py --base ../other-checkout [--times 8] bench/bench_record.py [--quick --only decode ...]

The second form runs a script in another checkout (its own .venv and extensions, built) and in this one, by turns:
A B B A A B ..., so that what changes with time hits both. Each pair gives one change for each row, that of the ratio
to the peer, which has cancelled what slows the whole machine down. Of n pairs the median change lies, with the
confidence that is told, between the k-th least and the k-th greatest (order statistics: nothing is assumed about the
noise). Only if that range leaves out 0 is a row called faster or slower. Fewer than six pairs can't tell with 95 %.
"""

import argparse
import math
import statistics
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from report import Results

HERE = Path(__file__).resolve().parent
ENOUGH = 0.95
Key = tuple[str, str, str]


# ---------------------------------------------------------------- rows
def rows_of(lines, where: str) -> dict[Key, dict]:
    """By bench, case and peer; lines that are no rows (the environment, a failure) are left out."""
    rows = Results.read(lines, f"compare: {where}, ").rows
    return {(row["bench"], row["case"], row["against"]): row for row in rows if "ratio" in row}


def read(path: str) -> dict[Key, dict]:
    try:
        return rows_of(sys.stdin if path == "-" else Path(path).read_text().splitlines(), path)
    except OSError as error:
        raise SystemExit(f"compare: {error}") from None


# ---------------------------------------------------------------- what a change is worth
class Range(NamedTuple):
    low: float
    high: float
    confidence: float


def median_range(values: list[float]) -> Range:
    """Where the median of all such values lies: the narrowest pair of order statistics that holds it with ENOUGH."""
    ordered, n = sorted(values), len(values)
    outside, best = 0.0, 0
    confidence = 1 - 2 * 0.5**n  # of the whole range
    for k in range(n // 2):
        outside += math.comb(n, k) * 0.5**n  # that at most k of them lie below the median
        if 1 - 2 * outside < ENOUGH:
            break
        best, confidence = k, 1 - 2 * outside
    return Range(ordered[best], ordered[n - 1 - best], max(0.0, confidence))


def verdict(changes: list[float]) -> str:
    """changes: logarithms of ratios, one of each pair of runs."""
    low, high, confidence = median_range(changes)
    if confidence < ENOUGH:
        return f"{len(changes)} pair{'s' * (len(changes) > 1)}: too few to tell from noise"
    span = f"{percent(low)} to {percent(high)}, {confidence:.1%} sure"
    if low > 0:
        return f"FASTER: {span}"
    return f"SLOWER: {span}" if high < 0 else f"no difference seen: {span}"


def percent(change: float) -> str:
    return f"{math.expm1(change) * 100:+.1f} %"


# ---------------------------------------------------------------- the table
def tell(pairs: list[tuple[dict[Key, dict], dict[Key, dict]]]) -> bool:
    """Print each row; whether one has become slower."""
    slower = False
    keys = dict.fromkeys(key for pair in pairs for side in pair for key in side)
    for key in keys:
        print("{}: {}, against {}".format(*key))
        both = [(before[key], after[key]) for before, after in pairs if key in before and key in after]
        if not both:
            there = next(row for pair in pairs for row in (pair[0].get(key), pair[1].get(key)) if row)
            only = "before" if any(key in before for before, _ in pairs) else "after"
            print(f"    only {only}: {there['ratio']:.3g}x")
            continue
        changes = [math.log(new["ratio"] / old["ratio"]) for old, new in both if old["ratio"] > 0 and new["ratio"] > 0]
        old, new = (statistics.median(row["ratio"] for row in side) for side in zip(*both, strict=True))
        goal = both[0][1]["goal"]
        met = "" if goal is None else f", goal {goal:g} {'met' if new >= goal else 'MISSED'}"
        change = percent(statistics.median(changes)) if changes else "?"
        judged = verdict(changes) if changes else "a ratio of 0"
        print(f"    ratio {old:.3g} -> {new:.3g} ({change}){met}; {judged}")
        for side in ("ours", "theirs"):
            was, now = ([row[side][1] for row in rows] for rows in zip(*both, strict=True))
            print(f"    {side:6} {spread(was)} -> {spread(now)} {both[0][1]['unit']}")
        slower = slower or judged.startswith("SLOWER")
    return slower


def spread(values: list[float]) -> str:
    middle = f"{statistics.median(values):.4g}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.4g} to {max(values):.4g})"


# ---------------------------------------------------------------- two checkouts by turns
def run_in(root: Path, script: Path, options: list[str]) -> dict[Key, dict]:
    command = [root / ".venv/bin/python", root / script, "--json", *options]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=root)
    except OSError as error:
        raise SystemExit(f"compare: {error}; each checkout needs its own: make setup") from None
    if done.returncode:
        raise SystemExit(f"compare: {root / script} ended with exit code {done.returncode}")
    return rows_of(done.stdout.splitlines(), str(script))


def by_turns(base: Path, script: Path, times: int, options: list[str]):
    """Pairs of runs, as they come: the base first in every second pair."""
    here = HERE.parent
    script = script.resolve().relative_to(here)
    for n in range(times):
        order = (base, here) if n % 2 == 0 else (here, base)
        print(f"compare: pair {n + 1} of {times}", file=sys.stderr)
        found = {root: run_in(root, script, options) for root in order}
        yield found[base], found[here]


def main() -> int:
    parser = argparse.ArgumentParser(description="Is it faster than before, or is that noise?")
    parser.add_argument("--base", metavar="DIR", type=Path, help="another checkout, to run the script in by turns")
    parser.add_argument("--times", metavar="N", type=int, default=8, help="pairs of runs (%(default)s)")
    parser.add_argument("files", nargs="+", help="results, before and after by turns; with --base: one script")
    args, options = parser.parse_known_args()
    if args.base:
        if len(args.files) != 1 or not Path(args.files[0]).is_file():
            parser.error("--base takes one script, such as bench/bench_record.py, and its options")
        base = args.base.resolve()
        if base == HERE.parent:
            parser.error("--base must be another checkout than this one")
        pairs = list(by_turns(base, Path(args.files[0]), args.times, options))
    elif options or len(args.files) % 2:
        parser.error("name result files by twos: before after [before2 after2 ...]")
    else:
        found = [read(path) for path in args.files]
        pairs = list(zip(found[::2], found[1::2], strict=True))
    return 1 if tell(pairs) else 0


if __name__ == "__main__":
    sys.exit(main())
