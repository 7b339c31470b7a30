"""`PYTHONPATH=tests python -m support.promise_table [--update]`: print a table of what the last test runs tried.

The numbers are those of `make test` and `make test-long` in build/counts, and of `make fuzz` in build/fuzz. --update
writes the table into docs/promises.md.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from support.promise_counts import NAMES, added_up

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/promises.md"
BEGIN, END = "<!-- counted -->\n", "<!-- /counted -->\n"
RUNS = {"make test": "test", "make test-long": "long"}


def titles() -> dict[int, str]:
    """The numbers and headings of the promises on the page."""
    headings = re.findall(r"^## (\d+)\. (.*)", PAGE.read_text(encoding="utf-8"), re.M)
    return {int(number): title for number, title in headings}


def fuzzed() -> int:
    """Inputs of the last `make fuzz` of each target."""
    logs = [path.read_text(errors="replace") for path in (ROOT / "build/fuzz").glob("*.log")]
    return sum(int(n) for log in logs for n in re.findall(r"^stat::number_of_executed_units: *(\d+)", log, re.M))


def table() -> str:
    """The table in Markdown. The column of a run that was not made, or was interrupted, is empty."""
    runs = {name: added_up(ROOT / "build/counts" / folder) for name, folder in RUNS.items()}
    if runs["make test-long"]:
        runs["make test-long"]["inputs"] += fuzzed()
    head = ["", *(f"`{name}`" for name in runs)]
    rows = [[f"{n}. {title}", *told(runs.values(), f"promise {n}")] for n, title in titles().items()]
    tried = [[text, *told(runs.values(), name)] for name, text in NAMES.items()]
    tried.append(["cases that failed", *told(runs.values(), "broken")])
    tables = [
        *lines([["Cases that hold promise", *head[1:]], *rows]),
        "",
        *lines([["Tried in them", *head[1:]], *tried]),
    ]
    return "\n".join([*tables, ""])


def told(runs: Iterable[Counter[str]], name: str) -> list[str]:
    return [f"{run[name]:,}" if run else "" for run in runs]


def lines(rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in [rows[0], ["---", *["---:"] * (len(rows[0]) - 1)], *rows[1:]]]


def main() -> None:
    text = table()
    print(text, end="")
    if sys.argv[1:] == ["--update"]:
        page = PAGE.read_text(encoding="utf-8")
        before, rest = page.split(BEGIN)
        PAGE.write_text(before + BEGIN + text + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
