"""Draw groups with plotext, as bars or stacked over time, for the width of the terminal, or for 80 columns."""

from __future__ import annotations

import datetime
import math
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from rocketc.report.text import EPOCH

Value = str | int | None

SERIES = 6  # in a chart over time; smaller series are drawn together
GLYPHS = "█▒░▓#+"  # of the series, without color
COLORS = (33, 208, 35, 170, 220, 44)  # of 256: blue, orange, green, magenta, yellow, cyan
OTHER_GLYPH, OTHER_COLOR = "·", 245
WIDTH_MIN = 20  # columns of a chart in a terminal that is narrower
BAR_MIN = 10  # columns of the longest bar, unless its text needs them
BAR_MAX = 8  # columns of a bar over time
AXIS_MAX = 11  # columns of the y axis
WITHIN = 1 + 1e-9  # factor by which an axis is longer than its largest value, so that the value is inside
LINE = 0.001  # width of a bar for plotext: one line or column of characters

_SECOND = 1000
_MINUTE = 60_000
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
SPANS = {"second": _SECOND, "minute": _MINUTE, "hour": _HOUR, "day": _DAY}
_STEPS = (
    *(n * _SECOND for n in (1, 2, 5, 10, 15, 30)),
    *(n * _MINUTE for n in (1, 2, 5, 10, 15, 30)),
    *(n * _HOUR for n in (1, 2, 3, 6, 12)),
    *(n * _DAY for n in (1, 2, 7, 14, 28)),
)


def import_plotext() -> ModuleType:
    """Return the module plotext, or raise ImportError with the command to install it."""
    try:
        import plotext
    except ImportError:
        raise ImportError("--plot needs plotext: pip install 'rocketc[plot]'") from None
    if not callable(getattr(getattr(plotext, "figure", None), "signal", None)):
        raise ImportError("--plot needs plotext 6 or newer: pip install --upgrade 'rocketc[plot]'")
    module: ModuleType = plotext
    return module


def draw_bars(title: str, bars: Sequence[tuple[str, int, str]], is_size: bool, color: bool) -> str:
    """Draw a line for each bar: its name, its value, and a text after it. At least one value must not be 0.

    If the terminal is narrow, the text ends before its first two blanks.
    """
    plotext = import_plotext()
    longest = max(2, _width() // 3)
    names = [_cut(name, longest) for name, _, _ in bars]
    texts = [text for _, _, text in bars]
    most = max(value for _, value, _ in bars)
    room = _width() - max(map(len, names)) - 1
    if room - max(map(len, texts)) - 1 < BAR_MIN:
        texts = [text.partition("  ")[0] for text in texts]  # without the share
    columns = max(room - max(map(len, texts)) - 1, 2)  # of the longest bar
    lines = list(range(len(bars), 0, -1))
    # plotext rounds bars and texts in different ways, so x is in cells, from 0.
    ends = [max(round(value / most * columns), 1) - 1 for _, value, _ in bars]

    figure = _figure(plotext, _width(), len(bars) + 2)
    shown = [(line, end + LINE) for line, end, (_, value, _) in zip(lines, ends, bars, strict=True) if value > 0]
    marker = plotext.marker("█", COLORS[0] if color else None)
    figure.draw(figure.bar(*zip(*shown, strict=True), marker=marker, orientation="horizontal", width=LINE))
    for line, end, text in zip(lines, ends, texts, strict=True):
        figure.draw(figure.text(end + 2, line, text))
    figure.ruler("y").lim(0.5, len(bars) + 0.5)
    figure.ruler("y").ticks(lines, names)
    figure.ruler("x").lim(0, room - 1)
    ticks = nice_ticks(most, is_size, columns // 14)
    figure.ruler("x").ticks([value / most * columns for value, _ in ticks], [name for _, name in ticks])
    return _cut(title, _width()) + "\n\n" + _text(figure, color)


def draw_over_time(what: str, name: str, groups: Iterable[tuple[int, str, int]], is_size: bool, color: bool) -> str:
    """Draw stacked bars over time, for the largest series and for all others together.

    what    the quantity: "bytes"
    name    the dimension of time: second, minute, hour, day
    groups  time (ms), series, value; at least one, and at least one value is not 0
    """
    plotext = import_plotext()
    given = list(groups)
    series = _largest((label, value) for _, label, value in given)
    first, last = min(when for when, _, _ in given), max(when for when, _, _ in given)
    step = fitting_step(first, last, SPANS[name], _width() - AXIS_MAX)
    first, last = first // step * step, last // step * step
    bins = _bins(given, series, first, last, step)
    most = max(map(sum, bins))
    ticks = nice_ticks(most, is_size, 4)
    columns = min((_width() - AXIS_MAX) // len(bins), BAR_MAX)  # of one bar and the gap after it
    legend = _legend(series, color) if len(series) > 1 else []

    lines = min(max(shutil.get_terminal_size((80, 24)).lines, 16), 40) - 4 - len(legend)
    axis = max(len(text) for _, text in ticks) + 1
    figure = _figure(plotext, axis + columns * len(bins), lines)
    fine = 2 if len(series) == 1 else 1  # with one series, a cell can be split
    for n in reversed(range(len(series))):  # each from 0 to its upper edge, on top of the larger one
        glyph = "hd" if len(series) == 1 else "█" if color else series[n].glyph
        marker = plotext.marker(glyph, series[n].color if color else None)
        tops = [sum(values[: n + 1]) for values in bins]
        figure.draw(figure.bar(*_columns(tops, columns, fine), marker=marker, width=LINE))
    figure.ruler("y").lim(0, most * WITHIN)
    figure.ruler("y").ticks([value for value, _ in ticks], [text for _, text in ticks])
    figure.ruler("x").lim(0, columns * len(bins))
    marks = time_ticks(first, last, step, columns)
    places = [(when - first) // step * columns + 0.5 for when, _ in marks]
    figure.ruler("x").ticks(places, [text for _, text in marks])
    title = f"{what} per {show_step(step)}, {_when(first, step)} to {_when(last + step, step)} UTC"
    return "\n".join([_cut(title, _width()), *legend, "", _text(figure, color)])


def _columns(tops: list[int], columns: int, fine: int) -> tuple[list[float], list[int], list[int]]:
    """Return where bars are drawn: for each top except 0, one in the middle of each of its columns or parts of columns.

    The result is columns, lower ends and upper ends.
    """
    xs: list[float] = []
    ys: list[int] = []
    for i, top in enumerate(tops):
        if top > 0:
            shown = columns - 1 if columns > 2 else columns
            xs += [i * columns + (part + 0.5) / fine for part in range(shown * fine)]
            ys += [top] * (shown * fine)
    return xs, [0] * len(xs), ys


# ---- series and bins


@dataclass(frozen=True)
class _Series:
    """A part of each stacked bar."""

    name: str
    glyph: str
    color: int


def _largest(values: Iterable[tuple[str, int]]) -> list[_Series]:
    """Return the largest series first; if there are too many, the last one is the sum of all others."""
    sums: dict[str, int] = {}
    for name, value in values:
        sums[name] = sums.get(name, 0) + value
    names = sorted(sums, key=lambda name: (-sums[name], name))
    shown = len(names) if len(names) <= SERIES else SERIES - 1
    out = [_Series(*look) for look in zip(names[:shown], GLYPHS, COLORS, strict=False)]
    if shown < len(names):
        out.append(_Series(f"({len(names) - shown} others)", OTHER_GLYPH, OTHER_COLOR))
    return out


def _bins(
    given: Iterable[tuple[int, str, int]], series: list[_Series], first: int, last: int, step: int
) -> list[list[int]]:
    """Return the values of all series for each time step; the last series is the sum of all others."""
    place = {each.name: n for n, each in enumerate(series)}
    bins = [[0] * len(series) for _ in range((last - first) // step + 1)]
    for when, name, value in given:
        bins[(when - first) // step][place.get(name, len(series) - 1)] += value
    return bins


def fitting_step(first: int, last: int, least: int, most: int) -> int:
    """Return the smallest common step, a multiple of `least`, so that at most `most` steps cover first to last.

    >>> fitting_step(0, 59 * 60_000, 60_000, 70) // 60_000, fitting_step(0, 86_400_000, 60_000, 70) // 60_000
    (1, 30)
    """
    steps = [step for step in _STEPS if step >= least]
    while True:
        for step in steps:
            if last // step - first // step < most:
                return step
        steps = [2 * steps[-1]]


# ---- ticks and texts


def nice_ticks(most: int, is_size: bool, number: int) -> list[tuple[float, str]]:
    """Return about `number` round values from 0 to `most`, with their texts.

    >>> nice_ticks(2300, False, 4)
    [(0, '0'), (500, '500'), (1000, '1000'), (1500, '1500'), (2000, '2000')]
    >>> nice_ticks(5 << 20, True, 3)
    [(0, '0'), (2097152, '2 MiB'), (4194304, '4 MiB')]
    """
    unit, name = 1, ""
    if is_size:
        power = min(int(math.log2(max(most, 1))) // 10, 4)
        unit, name = 1024**power, " " + ("B", "KiB", "MiB", "GiB", "TiB")[power]
    rough = most / unit / max(number, 1)
    ten = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    step = next(n * ten for n in (1, 2, 5, 10) if n * ten >= 0.7 * rough)
    if unit == 1:
        step = max(round(step), 1)
    values = [n * step for n in range(int(most / unit / step) + 1)]
    return [(round(value * unit) if value else 0, f"{value:.6g}{name}" if value else "0") for value in values]


def time_ticks(first: int, last: int, step: int, columns: int) -> list[tuple[int, str]]:
    """Return step starts at round times, with their texts; as many as fit if a step has `columns` columns.

    >>> time_ticks(0, 50 * 60_000, 60_000, 1)
    [(0, '00:00'), (600000, '00:10'), (1200000, '00:20'), (1800000, '00:30'), (2400000, '00:40')]
    """
    if step >= _DAY:
        form = "%Y-%m-%d" if last - first > 300 * _DAY else "%m-%d"
    elif last // _DAY > first // _DAY:
        form = "%m-%d %H:%M"
    else:
        form = "%H:%M" if step >= _MINUTE else "%H:%M:%S"
    need = len(_format(first, form)) + 2
    each = step
    while each // step * columns < need:
        each = next((wider for wider in _STEPS if wider > each and wider % step == 0), 2 * each)
    room = ((last - first) // step + 1) * columns
    marks = range(-(-first // each) * each, last + 1, each)
    fit = [when for when in marks if (when - first) // step * columns + need // 2 <= room]
    return [(when, _format(when, form)) for when in fit or [first]]


def _format(ms: int, form: str) -> str:
    try:
        return (EPOCH + datetime.timedelta(milliseconds=ms)).strftime(form)
    except (OverflowError, ValueError):
        return f"{ms}ms"


def _when(ms: int, step: int) -> str:
    return _format(ms, "%Y-%m-%d" if step >= _DAY else "%Y-%m-%d %H:%M" if step >= _MINUTE else "%Y-%m-%d %H:%M:%S")


def show_step(step: int) -> str:
    """Return the name of a time step.

    >>> show_step(60_000), show_step(900_000), show_step(7 * 86_400_000)
    ('minute', '15 minutes', '7 days')
    """
    for span, name in ((_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute"), (_SECOND, "second")):
        if step % span == 0:
            return name if step == span else f"{step // span} {name}s"
    return f"{step} ms"


def _width() -> int:
    """Return the width of the terminal. plotext draws no wider chart, so this is not that of a table (60 or more)."""
    return max(shutil.get_terminal_size((80, 24)).columns, WIDTH_MIN)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


# ---- plotext


def _figure(plotext: ModuleType, columns: int, lines: int) -> Any:
    """Return an empty figure of this size, with an axis at the left and at the bottom, without colors."""
    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")
    figure.plot_size(columns, lines)
    figure.axes(False, axis="x", side="upper")
    figure.axes(False, axis="y", side="right")
    for axis in "xy":
        figure.ruler(axis).alignment(lim="edge")
    return figure


def _legend(series: list[_Series], color: bool) -> list[str]:
    """Return lines that explain the glyph or color of each series."""
    lines, used = [""], 0
    for each in series:
        name = _cut(each.name, _width() // 2 - 4)
        if used and used + len(name) + 4 > _width():
            lines.append("")
            used = 0
        mark = f"\x1b[38;5;{each.color}m█\x1b[0m" if color else each.glyph
        lines[-1] += f"{'  ' if used else ''}{mark} {name}"
        used += len(name) + 4
    return lines


def _text(figure: Any, color: bool) -> str:
    text = figure.build().string(colorless=not color)
    figure.clear()
    return "".join(line.rstrip() + "\n" for line in text.splitlines())
