"""Make a page with plots of benchmark results: python bench/report.py build/bench/results.jsonl --into build/bench

The page is Markdown: first the rows that have a goal, then the others by script. Plots are SVG, drawn by matplotlib.
With --publish, write the page in docs and the figures of all texts from these results. With --add, published rows that
these results do not have stay. figures.py says how texts mark figures.
"""

import argparse
import json
import math
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import common
import figures

ROOT = Path(__file__).resolve().parents[1]


class Figure(NamedTuple):
    title: str
    x: str
    y: str  # "ratio": draw the ratios, with a line at 1; any other text: draw both sides in this unit
    log_x: bool = True
    log_y: bool = True


FIGURES = {
    "sizes, messages": Figure("Messages a second by size of body", "bytes of a body", "M/s"),
    "sizes, bytes": Figure("Bytes a second by size of body", "bytes of a body", "GB/s"),
    "threads, async": Figure("Puts that don't wait for the disk, by threads", "threads", "k/s", log_y=False),
    "threads, sync": Figure("Puts that wait for the disk, by threads", "threads", "k/s"),
    "threads, gain": Figure("Speed against one thread", "threads", "ratio", log_y=False),
    "latency": Figure("How long one call takes", "share of the calls that are done sooner", "us"),
    "growth, files": Figure("Speed in a log of many files, against one file", "files", "ratio", log_y=False),
    "growth, many queues": Figure("Speed of 1,000 queues in a store with many", "queues", "ratio", log_y=False),
    "growth, queues": Figure("Speed with many queues, against one queue", "queues", "ratio", log_y=False),
    "broker, depth": Figure("Sends a second on one connection, by frames in flight", "frames in flight", "k/s"),
}


HEADLINES = {  # the rows in the README: bench -> the beginnings of their cases; only rows that have a goal
    "broker": (
        "Java client: ",
        "sends, 16 connections, 1 in flight each",
        "sends, sync flush, 50 connections, 1 in flight each",
        "pulls of 32 x 128 B, one connection, 1 in flight, offsets committed",
        "sync replication, ",
        "scan of a topic over the wire into Arrow, ",
    ),
    "replica": ("broker as a slave, ",),
    "client": (
        "Python client: sync",
        "Python client: async",
        "Python client: batches",
        "Python client: push consumer",
    ),
    "scan": (
        "1 KiB -> Arrow: numbers, topic, body; CRC",
        "1 KiB -> Arrow: all columns and the map; CRC",
        "256 B -> Arrow: numbers, topic, body; CRC",
        "256 B -> Arrow: all columns and the map; CRC",
        "1 KiB, topic filter, 1 % kept, all columns; CRC",
        "256 B iterating Message; CRC",
    ),
    "wire": ("10,000,000 messages of ", "a stream beside 100,000 sends a second: read"),
    "spark": ("1 KiB: source, all columns", "1 KiB: 1 % by topic", "1 KiB: 1 % by time"),
    "export": ("1 KiB -> Parquet",),
    "append": ("put, 128 B, tags and keys", "put, 1 KiB, tags and keys", "put_many, 128 B, 1000 a call"),
    "dispatch": ("put, 128 B, tags and keys, 4 queues, until dispatched",),
    "flush": (
        "put, sync, 1 thread, 128 B",
        "put, sync, 64 threads, 128 B",
        "put_async, sync, 1000 in flight, 128 B",
        "put_many, sync, 1000 x 128 B a call",
    ),
    "queue": ("get 32, 128 B, as Message, body read", "get 32, 128 B, as one buffer"),
    "query": ("query by key",),
    "embedded": ("put, process", "get + ack, process", "put, power", "get + ack, power"),
    "recovery": ("open, 1024 MiB, 1 KiB bodies, closed in good order", "open, 1024 MiB, 1 KiB bodies, killed"),
    "verify": ("verify the log",),
}
BEGIN, END = "<!-- bench/report.py: begin -->\n", "<!-- bench/report.py: end -->\n"


class Results(NamedTuple):
    environment: dict[str, str]
    rows: list[dict]
    failed: list[dict]  # scripts that ended with an error

    @classmethod
    def read(cls, lines: Iterable[str], where: str = "report: ") -> "Results":
        """Parse the lines that run.py or a script with --json writes, one JSON object each."""
        found = cls({}, [], [])
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                item = dict(json.loads(line))
                if "environment" in item:
                    found.environment.update(item["environment"])
                else:
                    (found.failed if "failed" in item else found.rows).append(item)
            except (ValueError, TypeError) as error:
                raise SystemExit(f"{where}line {number} is not a benchmark result: {error}") from None
        return found


def added(published: Results, new: Results) -> Results:
    """Return the published results with the new rows: in the place of rows with the same names, or after their bench.

    The environment names the scripts whose rows are from another run.
    """

    def key(row: dict) -> tuple:
        return row["bench"], row["case"], row["against"], row["unit"]

    fresh = {key(row): row for row in new.rows}
    rows = [fresh.pop(key(row), row) for row in published.rows]
    for row in fresh.values():
        last = max((n for n, one in enumerate(rows) if one["bench"] == row["bench"]), default=len(rows) - 1)
        rows.insert(last + 1, row)
    names = ", ".join(dict.fromkeys(row["bench"] for row in new.rows))
    notes = published.environment.get("added", "").split("; ")
    repeated = f"{names}:" if not fresh else None  # otherwise other rows of these scripts are from then
    notes = [note for note in notes if note and (repeated is None or not note.startswith(repeated))]
    when = new.environment.get("when") or time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return Results({**published.environment, "added": "; ".join([*notes, f"{names}: {when}"])}, rows, published.failed)


# ---------------------------------------------------------------- the page
def number(value: float) -> str:
    """Format a number with three digits, and without an exponent below a million."""
    if not math.isfinite(value) or value == 0:
        return str(value)
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}" if digits else f"{float(f'{value:.3g}'):,.0f}"


def three(side: list[float]) -> str:
    low, middle, high = side
    return number(middle) if low == high else f"{number(middle)} ({number(low)} to {number(high)})"


def met(row: dict) -> bool:
    return row["ratio"] >= row["goal"]


def bold_if_missed(row: dict) -> str:
    return number(row["ratio"]) if met(row) else f"**{number(row['ratio'])}**"


def line(row: dict, *, with_goal: bool) -> str:
    goal = [number(row["goal"])] if with_goal else []
    ratio = bold_if_missed(row) if with_goal else number(row["ratio"])
    cells = [ratio, *goal, row["case"], row["against"], three(row["ours"]), three(row["theirs"]), row["unit"]]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def table(rows: list[dict], *, with_goal: bool) -> list[str]:
    head = ["ratio", *(["goal"] if with_goal else []), "work", "against", "rocketc", "theirs", "unit"]
    marks = ["--:"] * (1 + with_goal) + ["---"] * 2 + ["--:"] * 2 + ["---"]
    return [
        "| " + " | ".join(head) + " |",
        "|" + "|".join(marks) + "|",
        *(line(row, with_goal=with_goal) for row in rows),
        "",
    ]


LEVELS = "▁▂▃▄▅▆▇█"


def curve_line(row: dict) -> str:
    """Return the curve of a row as one line of text, a sign a second: its height is the share of their value."""
    top = max(row["theirs"][1], *row["curve"])
    signs = "".join(LEVELS[min(len(LEVELS) - 1, int(value / top * len(LEVELS)))] for value in row["curve"])
    low, high = number(min(row["curve"])), number(max(row["curve"]))
    return f"`{signs}` {low} to {high} {row['unit']}; a full block is {number(top)}"


def page(results: Results, plots: dict[str, str]) -> str:
    """Return the page; plots: figure -> the file of its plot, as a link of the page."""
    goals = [row for row in results.rows if row["goal"] is not None]
    missed = [row for row in goals if not met(row)]
    text = [
        "# Results",
        "",
        f"{len(results.rows)} rows; {len(goals)} have a goal: {len(goals) - len(missed)} met, {len(missed)} missed.",
        "`ratio` is our speed over theirs, both measured alternately in one run: 2 is twice as fast. For times and",
        "costs it is theirs over ours. Next to it are the median and, in brackets, the least and the greatest of the",
        "rounds. Missed goals are bold. bench/README.md explains how it is measured, and what limits the missed goals.",
        "",
        *(f"- {name}: {value.replace('; ', chr(10) + '  - ')}" for name, value in results.environment.items()),
        *(f"- **{one['bench']} ended with an error: {one['failed']}**" for one in results.failed),
        "",
    ]
    if goals:
        text += ["## Goals", "", *table(goals, with_goal=True)]
    if curves_of := [row for row in results.rows if row.get("curve")]:
        text += ["## By second", ""]
        for row in curves_of:
            text += [f"`{row['bench']}`: {row['case']}, each second of the round with the greatest value", ""]
            text += [curve_line(row), ""]
    if plots:
        text += ["## Plots", ""]
        for figure, file in plots.items():
            text += [f"![{FIGURES[figure].title}]({file})", ""]
    by_bench = defaultdict(list)
    for row in results.rows:
        by_bench[row["bench"]].append(row)
    for name, rows in by_bench.items():
        for with_goal in (True, False):
            some = [row for row in rows if (row["goal"] is not None) is with_goal]
            if some and not with_goal:
                text += [f"## {name}", "", *table(some, with_goal=False)]
    return "\n".join(text).rstrip() + "\n"


def headlines(results: Results) -> str:
    """Return the rows of HEADLINES as a table for the README."""
    by_case = defaultdict(list)
    for row in results.rows:
        is_headline = row["case"].startswith(HEADLINES.get(row["bench"], ()))
        if is_headline and row["goal"] is not None and ": CPU of " not in row["case"]:
            by_case[row["bench"], row["case"]].append(row)
    lines = ["| work | against | ratio | goal |", "|---|---|--:|--:|"]
    for bench, case in sorted(by_case, key=lambda names: list(HEADLINES).index(names[0])):
        rows = by_case[bench, case]
        peers = "; ".join(row["against"] for row in rows)
        ratios = "; ".join(bold_if_missed(row) for row in rows)
        goals = list(dict.fromkeys(f"{row['goal']:g}" for row in rows))
        goals = goals if len(goals) == 1 else [f"{row['goal']:g}" for row in rows]
        lines.append(f"| `{bench}`: {case} | {peers} | {ratios} | {'; '.join(goals)} |")
    return "\n".join(lines) + "\n"


def between_marks(text: str, block: str) -> str:
    """Return the text with `block` between its marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"report: the README does not contain {BEGIN.strip()} and {END.strip()}")
    return before + begin + block + end + after


# ---------------------------------------------------------------- plots
class Curve(NamedTuple):
    name: str
    ours: bool
    points: list[tuple[float, float, float, float]]  # x, least, median, greatest


def curves(figure: str, rows: list[dict]) -> list[Curve]:
    """Return our curves and those of the peers for one figure, each sorted by x."""
    found: dict[tuple[str, bool], dict[float, tuple]] = {}
    ratio = FIGURES[figure].y == "ratio"
    for row in rows:
        point = row.get("point")
        if not point or point["figure"] != figure:
            continue
        name, x = point["series"], point["x"]
        if ratio:
            low, high = min(row["ratios"]), max(row["ratios"])
            found.setdefault((name, True), {})[x] = (low, row["ratio"], high)
            continue
        found.setdefault((f"rocketc: {name}", True), {})[x] = tuple(row["ours"])
        found.setdefault((f"{name}: {row['against']}", False), {})[x] = tuple(row["theirs"])
    return [
        Curve(name, ours, [(x, *values) for x, values in sorted(points.items())])
        for (name, ours), points in found.items()
    ]


def draw(figure: str, lines: list[Curve], file: Path):
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter, NullFormatter

    about = FIGURES[figure]
    matplotlib.rcParams.update({"svg.hashsalt": "rocketc", "svg.fonttype": "none", "font.family": "sans-serif"})
    picture, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    latency = figure == "latency"
    for n, curve in enumerate(lines):
        xs = [1 / (1 - x) if latency else x for x, *_ in curve.points]
        low, middle, high = ([point[i] for point in curve.points] for i in (1, 2, 3))
        (drawn,) = axes.plot(
            xs, middle, "-" if curve.ours else "--", marker="o", markersize=4, color=f"C{n % 10}", label=curve.name
        )
        axes.fill_between(xs, low, high, color=drawn.get_color(), alpha=0.12, linewidth=0)
    if about.log_x:
        axes.set_xscale("log", base=10 if latency else 2)
    if about.log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    if latency:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{(1 - 1 / x) * 100:.6g} %"))
    else:
        ticks = sorted({x for curve in lines for x, *_ in curve.points})
        axes.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,g}"))
    if about.y == "ratio":
        axes.axhline(1, color="grey", linewidth=0.8)
    axes.set_title(about.title, loc="left")
    axes.set_xlabel(about.x)
    axes.set_ylabel("times as fast" if about.y == "ratio" else about.y)
    axes.grid(True, which="major", alpha=0.25)
    axes.legend(fontsize=8, frameon=False)
    picture.savefig(file, metadata={"Date": None})
    pyplot.close(picture)


def drawn(rows: list[dict], folder: Path) -> dict[str, str]:
    """Draw every figure that has points; return figure -> file name. Without matplotlib, report it and return {}."""
    plots = {}
    for figure in FIGURES:
        if lines := curves(figure, rows):
            name = f"{figure.replace(', ', '-').replace(' ', '-')}.svg"
            try:
                draw(figure, lines, folder / name)
            except ImportError:
                print("report: plots need matplotlib: pip install 'rocketc[plot]'", file=sys.stderr)
                return {}
            plots[figure] = name
    return plots


def write(results: Results, folder: Path) -> Path:
    """Write results.md and its plots; return the path of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "results.md"
    target.write_text(page(results, drawn(results.rows, folder)))
    return target


def publish(results: Results, root: Path) -> Path:
    """Write the page in docs, its rows as JSON lines, and the figures of all texts; return the path of the page.

    A figure whose row is missing ends this before anything is written.
    """
    texts = figures.changed(root, results.rows)
    readme = root / "README.md"
    texts[readme] = between_marks(texts.get(readme, readme.read_text()), headlines(results))
    folder = root / "docs/measured"
    page = write(results, folder)
    with open(folder / "results.jsonl", "w") as file:
        for item in ({"environment": results.environment}, *results.rows, *results.failed):
            print(json.dumps(item), file=file)
    for path, text in texts.items():
        path.write_text(text)
    return page


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, help="a file of JSON lines")
    parser.add_argument("--into", type=Path, default=common.DATA.parent / "bench", help="output folder (%(default)s)")
    parser.add_argument("--publish", action="store_true", help="write docs/measured and the figures in texts instead")
    parser.add_argument("--add", action="store_true", help="with --publish: keep all other published rows")
    args = parser.parse_args()
    try:
        results = Results.read(args.results.read_text().splitlines())
        if args.add:
            published = (ROOT / figures.PUBLISHED).read_text().splitlines()
            results = added(Results.read(published, f"report: {figures.PUBLISHED}, "), results)
    except OSError as error:
        raise SystemExit(f"report: {error}") from None
    print(publish(results, ROOT) if args.publish else write(results, args.into))
    if args.publish:
        figures.warn_unexplained(ROOT, results.rows)


if __name__ == "__main__":
    main()
