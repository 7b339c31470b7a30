"""Tables as text, formatted by rich for the width of the terminal, or for 80 columns without a terminal."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from rocketc.report.text import visible

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

T = TypeVar("T")

FEW = 24  # number of rows shown without --all


def width() -> int:
    """Return the width of the terminal in columns, at least 60."""
    return max(shutil.get_terminal_size((80, 24)).columns, 60)


def render(parts: Iterable[RenderableType], color: bool) -> str:
    """Return these tables and lines as text, one below the other, without blanks at the ends of lines."""
    from rich.console import Console

    console = Console(
        file=io.StringIO(), width=width(), force_terminal=color, color_system="standard" if color else None,
        no_color=not color, markup=False, highlight=False, emoji=False, legacy_windows=False,
    )  # fmt: skip
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return "".join(line.rstrip() + "\n" for line in captured.get().splitlines())


def render_report(lines: Iterable[tuple[str, str, str]], table: Table, color: bool) -> str:
    """Return these facts as text, and the table below them if it has rows."""
    return render([facts(lines), "", table] if table.row_count else [facts(lines)], color)


def facts(lines: Iterable[tuple[str, str, str]]) -> Table:
    """Return a table of facts from (name, text, style)."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text, style in lines:
        grid.add_row(name, Text(visible(text), style))
    return grid


def section(name: str, texts: Iterable[str], none: str = "", style: str = "red") -> Iterator[tuple[str, str, str]]:
    """Yield a line for facts() per text; without texts one line with `none` in green."""
    for i, text in enumerate(texts):
        yield "" if i else name, text, style
        none = ""
    if none:
        yield name, none, "green"


def columns(*names: str) -> Table:
    """Return an empty table. A name that starts with ">" is a column of numbers; the last column is wrapped."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in names[:-1]:
        table.add_column(name.removeprefix(">"), justify="right" if name.startswith(">") else "left", no_wrap=True)
    last = names[-1]
    table.add_column(last.removeprefix(">"), justify="right" if last.startswith(">") else "left", overflow="fold")
    return table


def add_rows(table: Table, items: Sequence[T], every: bool, cells: Callable[[T], Iterable[RenderableType]]) -> Table:
    """Add a row of cells for each item, or for some of many items; return the table."""
    from rich.text import Text

    for item in few(items, every):
        if isinstance(item, str):
            table.add_row(*[""] * (len(table.columns) - 1), Text(item, "dim"))
        else:
            table.add_row(*cells(item))
    return table


def some(items: Sequence[T], every: bool, show: Callable[[T], str]) -> Iterator[str]:
    """Return the texts of all items, or of some of many items."""
    return (item if isinstance(item, str) else show(item) for item in few(items, every))


def few(items: Sequence[T], every: bool) -> Iterator[T | str]:
    """Yield all items; of many the first and the last ones, and between them a text with the number left out."""
    if every or len(items) <= FEW:
        yield from items
        return
    yield from items[: FEW // 2]
    yield f"... {len(items) - FEW} more, --all shows them"
    yield from items[-FEW // 2 :]
