"""Two result files of --json side by side: python bench/compare.py BEFORE AFTER

The ratio to the peer is what counts: both sides of it come from the same minutes. Rates of different runs
differ by 10-30 % on a shared machine without any cause in the code.
"""

import argparse
import json
import sys
from pathlib import Path


def rows(path: str) -> dict[tuple, dict]:
    lines = sys.stdin if path == "-" else Path(path).read_text().splitlines()
    found = [json.loads(line) for line in lines if line.strip()]
    return {(row["bench"], row["case"], row["against"]): row for row in found}


def change(before: float, after: float) -> str:
    return f"{(after / before - 1) * 100:+.0f} %" if before else "?"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before")
    parser.add_argument("after", help="- for standard input")
    args = parser.parse_args()
    before, after = rows(args.before), rows(args.after)
    for key in [*before, *(key for key in after if key not in before)]:
        bench, case, against = key
        print(f"{bench}: {case}, against {against}")
        old, new = before.get(key), after.get(key)
        if old is None or new is None:
            print(f"    only in {args.after if old is None else args.before}: {(old or new)['ratio']:.3g}x")
            continue
        goal = new["goal"]
        verdict = "" if goal is None else f", goal {goal:g} {'met' if new['ratio'] >= goal else 'MISSED'}"
        print(f"    ratio {old['ratio']:.3g} -> {new['ratio']:.3g} ({change(old['ratio'], new['ratio'])}){verdict}")
        for side in ("ours", "theirs"):
            (low, was, high), (new_low, now, new_high) = old[side], new[side]
            ranges = f"{low:g}-{high:g}, now {new_low:g}-{new_high:g}"
            print(f"    {side:6} {was:g} -> {now:g} {new['unit']} ({change(was, now)}; {ranges})")


if __name__ == "__main__":
    main()
