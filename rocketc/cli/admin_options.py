"""What all commands of `rocketc admin` share: their options, the connection, and how an answer is shown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

import click
from rich.cells import cell_len

from rocketc.cli.arguments import Seconds
from rocketc.cli.output import command
from rocketc.client.admin import Admin
from rocketc.client.name_servers import name_server_addresses
from rocketc.remoting.loops import run_on_loop
from rocketc.report.text import show_time, visible
from rocketc.tables.topics import PERM_INHERIT, PERM_READ, PERM_WRITE

T = TypeVar("T")
PERMISSIONS = {"rw": PERM_READ | PERM_WRITE, "r": PERM_READ, "w": PERM_WRITE, "none": 0}


def admin_command(
    *examples: str, name: str | None = None, below: str = ""
) -> Callable[[Callable[..., int]], click.Command]:
    """Decorate a function, as output.command(). It gets `asks`, a function that runs work with an Admin."""

    def decorate(run: Callable[..., int]) -> click.Command:
        def with_cluster(name_server: str | None, timeout: float, **options: Any) -> int:
            try:
                name_server_addresses(name_server)
            except ValueError as error:
                raise click.UsageError(str(error)) from None

            def asks(work: Callable[[Admin], Awaitable[T]]) -> T:
                return run_on_loop(_asked(name_server, timeout, work))

            return run(asks=asks, **options)

        with_cluster.__doc__ = run.__doc__
        with_cluster.__click_params__ = [*_options(), *getattr(run, "__click_params__", [])]  # type: ignore[attr-defined]
        return command(*examples, name=name or run.__name__, below=below)(with_cluster)

    return decorate


def _options() -> list[click.Parameter]:
    """The options of all commands. click lists them from the last to the first."""
    return [
        click.Option(
            ["--timeout"],
            type=Seconds(0.001),
            default=5.0,
            metavar="SECONDS",
            help="How long to wait for an answer. Default: 5.",
        ),
        click.Option(
            ["-n", "--name-server"],
            metavar="ADDRESSES",
            help="The name servers, separated by `;`. Default: NAMESRV_ADDR, or 127.0.0.1:9876.",
        ),
    ]


async def _asked(name_server: str | None, timeout: float, work: Callable[[Admin], Awaitable[T]]) -> T:
    async with Admin(name_server, timeout=timeout) as admin:
        return await work(admin)


def draw_table(names: Sequence[str], rows: Iterable[Sequence[object]], color: bool) -> str:
    """Return a table as text, a line a row, empty without rows. No cell is cut: other programs read the lines, too.

    names  of the columns; one that starts with ">" has numbers
    rows   cells are shown with str(), and made safe for a terminal

    >>> print(draw_table(("topic", ">queues"), [("orders", 8)], False), end="")
    topic   queues
    orders       8
    """
    lines = [[visible(str(cell)) for cell in row] for row in rows]
    if not lines:
        return ""
    heads = [name.removeprefix(">") for name in names]
    widths = [max(map(cell_len, column)) for column in zip(heads, *lines, strict=True)]
    rights = [name.startswith(">") for name in names]
    head, *rest = (_line(cells, widths, rights) for cells in (heads, *lines))
    return "\n".join([f"\x1b[1m{head}\x1b[0m" if color else head, *rest, ""])


def _line(cells: Sequence[str], widths: Sequence[int], rights: Sequence[bool]) -> str:
    padded = []
    for cell, width, right in zip(cells, widths, rights, strict=True):
        blanks = " " * (width - cell_len(cell))
        padded.append(blanks + cell if right else cell + blanks)
    return "  ".join(padded).rstrip()


def show_perm(perm: int) -> str:
    """Return a permission as letters.

    >>> show_perm(6), show_perm(4), show_perm(0)
    ('rw', 'r', 'none')
    """
    text = ("r" if perm & PERM_READ else "") + ("w" if perm & PERM_WRITE else "")
    return text + ("x" if perm & PERM_INHERIT else "") or "none"


def show_when(ms: int) -> str:
    """Return a time, or "-" for none.

    >>> show_when(0)
    '-'
    """
    return show_time(ms) if ms > 0 else "-"
