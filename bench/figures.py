"""Write the measured figures into the texts: python bench/figures.py [--check]

A comment after a figure names the row of docs/measured/results.jsonl that it comes from. The page does not show it:

    puts 72<!-- embedded: put, process / SQLite WAL --> times as fast

The comment is BENCH: CASE / AGAINST. `...` in a name means any text, and ` & ` joins names. If they are several rows,
the figure is the least and the greatest: 1.5-1.7. These forms exist:

    72<!-- ROWS -->                  the ratio, with two digits
    2.6<!-- ROWS = ours -->          our median; also theirs, goal, least and most (the range of our rounds)
    5.34, 10<!-- missed ROWS -->     ratio and goal of those of the rows that miss their goal

README, docs and this folder's README have such figures. `bench/report.py --publish` writes them too.
"""

import argparse
import math
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PUBLISHED = "docs/measured/results.jsonl"
EXPLAINED = "bench/README.md"

FIELDS: dict[str, Callable[[dict], float]] = {
    "ratio": lambda row: row["ratio"],
    "goal": lambda row: row["goal"],
    "ours": lambda row: row["ours"][1],
    "theirs": lambda row: row["theirs"][1],
    "least": lambda row: row["ours"][0],
    "most": lambda row: row["ours"][2],
}
_NUMBER = r"\d(?:[\d.,]*\d)?"
_FIGURE = rf"{_NUMBER}(?:-{_NUMBER})?"
MARK = re.compile(
    rf"(?:(?P<ratio>{_FIGURE}), )?(?P<figure>{_FIGURE})"
    r"<!-- (?P<missed>missed )?(?P<rows>\w+: [^<\n]*? / [^<\n]*?)(?: = (?P<field>\w+))? -->"
)
MEANT = re.compile(r"(?<=\d)<!--.*?-->|<!-- (?:missed )?\w+: [^<\n]* / [^<\n]*-->", re.S)  # each has to be a MARK
FENCED = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.S | re.M)
GENERATED = re.compile(r"<!-- bench/report.py: begin -->.*?<!-- bench/report.py: end -->", re.S)
RATIO = re.compile(  # how the texts say ratios; the same with a mark does not match
    rf"(?<![\w.,-]){_FIGURE}"
    r"(?=x\b| times (?:as|the|faster|slower|more|less|that|those|`|[A-Z])| of (?:memcpy|the speed|Java))"
    r"|(?<![\w.,-])0\.\d+\b(?! ?(?:s|ms|us|ns|[KMG]i?B|%)\b|<!--|[.]\d)"
)


class MarkError(ValueError):
    """A mark names no row, or rows that do not fit together."""


# ---------------------------------------------------------------- rows
def matching(name: str, rows: list[dict]) -> list[dict]:
    """Return the rows of `BENCH: CASE / AGAINST`; of rows with the same names, in two units, only one."""
    bench, _, rest = name.partition(": ")
    case, _, against = rest.rpartition(" / ")
    patterns = [".*".join(map(re.escape, part.split("..."))) for part in (case, against)]
    found: dict[tuple[str, str], dict] = {}
    for row in sorted(rows, key=lambda row: row["goal"] is None):  # of two units, that of the goal
        if row["bench"] == bench and all(
            re.fullmatch(pattern, row[key]) for pattern, key in zip(patterns, ("case", "against"), strict=True)
        ):
            found.setdefault((row["case"], row["against"]), row)
    return list(found.values())


def named(mark: re.Match[str], rows: list[dict]) -> list[dict]:
    """Return the rows of a mark, at least one."""
    found = []
    for name in mark["rows"].split(" & "):
        some = matching(name, rows)
        if mark["missed"]:
            some = [row for row in some if row["goal"] is not None and row["ratio"] < row["goal"]]
        if not some:
            missed = " that misses its goal" if mark["missed"] else ""
            raise MarkError(f"{PUBLISHED} does not have a row {name!r}{missed}; name another row, or remove the figure")
        found += some
    return found


# ---------------------------------------------------------------- figures
def two_digits(value: float) -> str:
    """Format a number with two digits: 72, 3.2, 0.69, 1,700."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    rounded = float(f"{value:.2g}")
    return f"{rounded:,.{max(0, 1 - math.floor(math.log10(abs(rounded))))}f}"


def three_digits(value: float) -> str:
    """Format a number with three digits, so that a missed goal does not look like a met one: 0.998."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.{max(0, 2 - math.floor(math.log10(abs(rounded))))}f}"


def from_to(values: list[float], form: Callable[[float], str]) -> str:
    low, high = form(min(values)), form(max(values))
    return low if low == high else f"{low}-{high}"


def figure(mark: re.Match[str], rows: list[dict]) -> str:
    """Return the text that should be before the comment of the mark."""
    field = mark["field"] or "ratio"
    if field not in FIELDS:
        raise MarkError(f"{field!r} is not one of {', '.join(FIELDS)}")
    found = named(mark, rows)
    if mark["missed"]:
        ratios = from_to([row["ratio"] for row in found], three_digits)
        return f"{ratios}, {from_to([row['goal'] for row in found], '{:g}'.format)}"
    if len(units := sorted({row["unit"] for row in found})) > 1:
        raise MarkError(f"the rows of {mark['rows']!r} have several units: {', '.join(units)}")
    if field == "goal" and any(row["goal"] is None for row in found):
        raise MarkError(f"a row of {mark['rows']!r} is without a goal")
    form = "{:g}".format if field == "goal" else two_digits
    new = from_to([FIELDS[field](row) for row in found], form)
    return f"{mark['ratio']}, {new}" if mark["ratio"] else new  # the number before it belongs to the text


# ---------------------------------------------------------------- texts
def paths(root: Path) -> list[Path]:
    """Return the texts that have figures."""
    docs = [path for path in sorted(root.glob("docs/**/*.md")) if path.parent.name != "measured"]
    return [path for path in (root / "README.md", root / EXPLAINED, *docs) if path.exists()]


def current(text: str, rows: list[dict], where: str) -> str:
    """Return the text with the figures of the rows; raise MarkError with the line of each mark that is wrong."""
    wrong: list[tuple[int, object]] = []

    def written(mark: re.Match[str]) -> str:
        try:
            return figure(mark, rows) + mark[0][mark[0].index("<!--") :]
        except MarkError as error:
            wrong.append((mark.start(), error))
            return mark[0]

    new = MARK.sub(written, text)
    ends = {mark.end() for mark in MARK.finditer(text)}
    for meant in MEANT.finditer(text):
        if meant.end() not in ends:
            wrong.append((meant.start(), f"{meant[0]} is not FIGURE<!-- BENCH: CASE / AGAINST -->, in one line"))
    if wrong:
        lines = ((text.count("\n", 0, at) + 1, error) for at, error in sorted(wrong, key=lambda one: one[0]))
        raise MarkError("\n".join(f"{where}:{line}: {error}" for line, error in lines))
    return new


def unmarked(text: str) -> Iterator[tuple[int, str]]:
    """(line, ratio) of the ratios without a mark, outside of code and of what report.py generates."""

    def blank(found: re.Match[str]) -> str:
        return "\n" * found[0].count("\n")

    for number, line in enumerate(GENERATED.sub(blank, FENCED.sub(blank, text)).split("\n"), 1):
        for found in RATIO.finditer(re.sub(r"`[^`]*`", "`", line)):
            yield number, found[0]


def unexplained(text: str, rows: list[dict]) -> list[str]:
    """Return the rows that miss their goal and that no `missed` mark of the text names."""
    explained = [id(row) for mark in MARK.finditer(text) if mark["missed"] for row in named(mark, rows)]
    return [
        f"{row['bench']}: {row['case']} / {row['against']}"
        for row in rows
        if row["goal"] is not None and row["ratio"] < row["goal"] and id(row) not in explained
    ]


def changed(root: Path, rows: list[dict]) -> dict[Path, str]:
    """Return the texts whose figures are not those of the rows, as they should be; nothing is written.

    SystemExit names all wrong marks of all texts: a new run may have renamed rows, or meet goals that were missed.
    """
    new: dict[Path, str] = {}
    wrong: list[str] = []
    for path in paths(root):
        text = path.read_text()
        try:
            figures = current(text, rows, str(path.relative_to(root)))
        except MarkError as error:
            wrong.append(str(error))
        else:
            if figures != text:
                new[path] = figures
    if wrong:
        raise SystemExit("\n".join(wrong))
    return new


def warn_unexplained(root: Path, rows: list[dict]) -> None:
    """Print the missed goals that bench/README.md should explain, and does not."""
    for row in unexplained((root / EXPLAINED).read_text(), rows):
        print(f"{EXPLAINED} does not explain this missed goal: {row}", file=sys.stderr)


def main() -> None:
    import report

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a figure differs")
    args = parser.parse_args()
    rows = report.Results.read((ROOT / PUBLISHED).read_text().splitlines()).rows
    texts = changed(ROOT, rows)
    for path, text in texts.items():
        print(f"{path.relative_to(ROOT)}: {'has other figures' if args.check else 'written'}")
        if not args.check:
            path.write_text(text)
    warn_unexplained(ROOT, rows)
    if args.check and texts:
        sys.exit(1)


if __name__ == "__main__":
    main()
