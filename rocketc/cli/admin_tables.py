"""Tables of `rocketc admin`: whole in pipes and files, fitted to the width of a terminal."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from rich.cells import cell_len, set_cell_size

from rocketc.cli.output import Out, note
from rocketc.report.text import visible

_GAP = "  "
_DOTS = ".."
_SHORTEST = 12  # names are not cut below this width; columns are left out before


class Table(NamedTuple):
    """Rows under names of columns.

    names  of the columns, the important ones first. ">x" has numbers, and "~x" has names that may be cut
    rows   cells are shown with str(), and made safe for a terminal
    """

    names: Sequence[str]
    rows: Iterable[Sequence[object]]


class Drawn(NamedTuple):
    """A table as text, the columns whose names are cut, and those that are left out."""

    text: str
    cut: list[str]
    left_out: list[str]


def print_tables(as_json: bool, value: Callable[[], Any], *tables: Table) -> None:
    """Print a report on stdout: value() as one line of JSON, or the tables that have rows.

    On a terminal that is too narrow, names are cut in the middle, and then the last columns are left out; stderr says
    so. Other programs get whole lines.
    """
    with Out() as out:
        if as_json:
            out.json(value())
            return
        width = shutil.get_terminal_size().columns if out.is_terminal else None
        drawn = [draw_table(*table, out.has_color, width) for table in tables]
        out.write_text("\n".join(one.text for one in drawn if one.text))
    for what, names in (
        ("names are cut", [name for one in drawn for name in one.cut]),
        ("columns are left out", [name for one in drawn for name in one.left_out]),
    ):
        if names:
            note(f"the terminal is narrow, {what}: {', '.join(names)}; --json or a pipe shows everything")


def draw_table(
    names: Sequence[str], rows: Iterable[Sequence[object]], color: bool = False, width: int | None = None
) -> Drawn:
    """Return a table as text, a line a row, empty without rows.

    names, rows  see Table
    width        columns of the terminal; None: as wide as needed

    >>> rows = [("orders-of-the-european-shop", 8, "2026-11-26")]
    >>> print(draw_table(("~topic", ">queues", "last message"), rows).text, end="")
    topic                        queues  last message
    orders-of-the-european-shop       8  2026-11-26
    >>> drawn = draw_table(("~topic", ">queues", "last message"), rows, width=30)
    >>> print(drawn.text, drawn.cut, drawn.left_out)
    topic                   queues
    orders-of-..opean-shop       8
     ['topic'] ['last message']
    """
    lines = [[visible(str(cell)) for cell in row] for row in rows]
    if not lines:
        return Drawn("", [], [])
    heads = [name.lstrip(">~") for name in names]
    wanted = [max(map(cell_len, column)) for column in zip(heads, *lines, strict=True)]
    widths = wanted if width is None else _fitted(names, wanted, width)
    cut = [heads[i] for i, width in enumerate(widths) if width < wanted[i]]
    rights = [name.startswith(">") for name in names]
    head, *rest = (_line(cells, widths, rights) for cells in (heads, *lines))
    text = "\n".join([f"\x1b[1m{head}\x1b[0m" if color else head, *rest, ""])
    return Drawn(text, cut, heads[len(widths) :])


def _fitted(names: Sequence[str], wanted: Sequence[int], width: int) -> list[int]:
    """Return the widths of the first columns that fit."""
    for count in range(len(names), 1, -1):
        widths = list(wanted[:count])
        names_at = [i for i in range(count) if names[i].startswith("~")]
        room = width - len(_GAP) * (count - 1)
        while sum(widths) > room:
            widest = max(names_at, key=widths.__getitem__, default=None)
            if widest is None or widths[widest] <= _SHORTEST:
                break
            widths[widest] -= 1
        else:
            return widths
    return [min(wanted[0], max(width, _SHORTEST)) if names[0].startswith("~") else wanted[0]]


def _line(cells: Sequence[str], widths: Sequence[int], rights: Sequence[bool]) -> str:
    padded = []
    for cell, width, right in zip(cells, widths, rights, strict=False):
        text = _cut(cell, width)
        blanks = " " * (width - cell_len(text))
        padded.append(blanks + text if right else text + blanks)
    return _GAP.join(padded).rstrip()


def _cut(text: str, width: int) -> str:
    """Cut the middle out of a text."""
    if cell_len(text) <= width:
        return text
    end = (width - len(_DOTS)) // 2
    head, tail = set_cell_size(text, width - len(_DOTS) - end), set_cell_size(text[::-1], end)[::-1]
    return head + _DOTS + tail
