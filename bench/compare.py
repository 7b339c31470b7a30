"""Compare two runs of benchmarks: faster, slower, or noise?

    python bench/compare.py before.jsonl after.jsonl [before2.jsonl after2.jsonl ...]
    python bench/compare.py --base ../other-checkout [--times 8] bench/bench_record.py [--quick --only decode ...]

The second form runs a script alternately in another checkout (with its own .venv and built extensions) and in this one:
A B B A A B ..., so that slow changes of the machine affect both. Each pair gives one change per row: that of the ratio
to the peer. A machine that is slower as a whole does not change this ratio. With the printed confidence, the median
change of n pairs is between the k-th least and the k-th greatest (order statistics, without assumptions about the
noise). A row is faster or slower only if this range excludes 0. Fewer than six pairs do not give 95 % confidence.
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
    """Return rows by bench, case and peer; ignore lines that are not rows (the environment, a failure)."""
    rows = Results.read(lines, f"compare: {where}, ").rows
    return {(row["bench"], row["case"], row["against"]): row for row in rows if "ratio" in row}


def read(path: str) -> dict[Key, dict]:
    try:
        return rows_of(sys.stdin if path == "-" else Path(path).read_text().splitlines(), path)
    except OSError as error:
        raise SystemExit(f"compare: {error}") from None


# ---------------------------------------------------------------- the significance of a change
class Range(NamedTuple):
    low: float
    high: float
    confidence: float


def median_range(values: list[float]) -> Range:
    """Return the range of the median: the narrowest pair of order statistics with a confidence of ENOUGH."""
    ordered, n = sorted(values), len(values)
    outside, best = 0.0, 0
    confidence = 1 - 2 * 0.5**n  # of the range of all values
    for k in range(n // 2):
        outside += math.comb(n, k) * 0.5**n  # probability that at most k values are below the median
        if 1 - 2 * outside < ENOUGH:
            break
        best, confidence = k, 1 - 2 * outside
    return Range(ordered[best], ordered[n - 1 - best], max(0.0, confidence))


def verdict(changes: list[float]) -> str:
    """Return the text about a row; changes: logarithms of ratios, one per pair of runs."""
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
    """Print each row; return whether a row has become slower."""
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


# ---------------------------------------------------------------- two checkouts alternately
def run_in(root: Path, script: Path, options: list[str]) -> dict[Key, dict]:
    command = [root / ".venv/bin/python", root / script, "--json", *options]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=root)
    except OSError as error:
        raise SystemExit(f"compare: {error}; run `make setup` in each checkout") from None
    if done.returncode:
        raise SystemExit(f"compare: {root / script} ended with exit code {done.returncode}")
    return rows_of(done.stdout.splitlines(), str(script))


def by_turns(base: Path, script: Path, times: int, options: list[str]):
    """Yield pairs of runs; the base runs first in every second pair."""
    here = HERE.parent
    script = script.resolve().relative_to(here)
    for n in range(times):
        order = (base, here) if n % 2 == 0 else (here, base)
        print(f"compare: pair {n + 1} of {times}", file=sys.stderr)
        found = {root: run_in(root, script, options) for root in order}
        yield found[base], found[here]


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare two runs of benchmarks: faster, slower, or noise?")
    parser.add_argument("--base", metavar="DIR", type=Path, help="another checkout, to run the script alternately")
    parser.add_argument("--times", metavar="N", type=int, default=8, help="number of pairs (%(default)s)")
    parser.add_argument("files", nargs="+", help="result files, alternately before and after; with --base: one script")
    args, options = parser.parse_known_args()
    if args.base:
        if len(args.files) != 1 or not Path(args.files[0]).is_file():
            parser.error("--base needs one script, such as bench/bench_record.py, and its options")
        base = args.base.resolve()
        if base == HERE.parent:
            parser.error("--base must be another checkout than this one")
        pairs = list(by_turns(base, Path(args.files[0]), args.times, options))
    elif options or len(args.files) % 2:
        parser.error("give result files in pairs: before after [before2 after2 ...]")
    else:
        found = [read(path) for path in args.files]
        pairs = list(zip(found[::2], found[1::2], strict=True))
    return 1 if tell(pairs) else 0


if __name__ == "__main__":
    sys.exit(main())
