"""Results of benches as a page with plots: python bench/report.py build/bench/results.jsonl --into build/bench

The page is Markdown: the rows that have a goal first, then the others, script by script. Plots are SVG, by matplotlib.
"""

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import common


class Figure(NamedTuple):
    title: str
    x: str
    y: str  # "ratio": the rows' ratios are drawn, with a line at 1; else what both sides measured, in this unit
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
    "growth, queues": Figure("Speed with many queues, against one queue", "queues", "ratio", log_y=False),
}


class Results(NamedTuple):
    environment: dict[str, str]
    rows: list[dict]
    failed: list[dict]  # scripts that ended with an error

    @classmethod
    def read(cls, lines: Iterable[str]) -> "Results":
        """Of the lines that run.py writes: one JSON object each. Rows of a script without run.py are taken, too."""
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
                raise SystemExit(f"report: line {number} is no result of a bench: {error}") from None
        return found


# ---------------------------------------------------------------- the page
def number(value: float) -> str:
    """Three digits, no exponent below a million."""
    if not math.isfinite(value) or value == 0:
        return str(value)
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}" if digits else f"{float(f'{value:.3g}'):,.0f}"


def three(side: list[float]) -> str:
    low, middle, high = side
    return number(middle) if low == high else f"{number(middle)} ({number(low)} to {number(high)})"


def met(row: dict) -> bool:
    return row["ratio"] >= row["goal"]


def line(row: dict, *, with_goal: bool) -> str:
    ratio = number(row["ratio"])
    goal = [number(row["goal"])] if with_goal else []
    if with_goal and not met(row):
        ratio = f"**{ratio}**"
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


def page(results: Results, plots: dict[str, str]) -> str:
    """The whole page; plots: the files that were drawn, by figure, as the page links to them."""
    goals = [row for row in results.rows if row["goal"] is not None]
    missed = [row for row in goals if not met(row)]
    text = [
        "# Results",
        "",
        f"{len(results.rows)} rows; {len(goals)} have a goal: {len(goals) - len(missed)} met, {len(missed)} missed.",
        "`ratio` is our speed over theirs, both by turns in one run: 2 is twice as fast; of times and costs it is",
        "theirs over ours. Beside it: the median (the least to the greatest) of the rounds. What is missed is bold.",
        "",
        *(f"- {name}: {value}" for name, value in results.environment.items()),
        *(f"- **{one['bench']} ended with an error: {one['failed']}**" for one in results.failed),
        "",
    ]
    if goals:
        text += ["## Goals", "", *table(goals, with_goal=True)]
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


# ---------------------------------------------------------------- plots
class Curve(NamedTuple):
    name: str
    ours: bool
    points: list[tuple[float, float, float, float]]  # x, least, median, greatest


def curves(figure: str, rows: list[dict]) -> list[Curve]:
    """Ours and the peers' curves of one figure, each sorted by x."""
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
    """Draw every figure that has points; its file's name by figure. None, said on stderr, without matplotlib."""
    plots = {}
    for figure in FIGURES:
        if lines := curves(figure, rows):
            name = f"{figure.replace(', ', '-')}.svg"
            try:
                draw(figure, lines, folder / name)
            except ImportError:
                print("report: no plots: pip install 'rocketc[plot]'", file=sys.stderr)
                return {}
            plots[figure] = name
    return plots


def write(results: Results, folder: Path) -> Path:
    """results.md and its plots; returns the page."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "results.md"
    target.write_text(page(results, drawn(results.rows, folder)))
    return target


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, help="a file of JSON lines")
    parser.add_argument("--into", type=Path, default=common.DATA.parent / "bench", help="a folder (%(default)s)")
    args = parser.parse_args()
    try:
        results = Results.read(args.results.read_text().splitlines())
    except OSError as error:
        raise SystemExit(f"report: {error}") from None
    print(write(results, args.into))


if __name__ == "__main__":
    main()
