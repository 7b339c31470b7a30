"""A command with commands below it, in the order of its table of short helps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click


class CommandGroup(click.Group):
    """Loads a command when it runs, and proposes the nearest name for a wrong one.

    table  short help by name
    load   returns the command with a name
    """

    def __init__(
        self, *args: Any, table: Mapping[str, str], load: Callable[[str], click.Command], **settings: Any
    ) -> None:
        super().__init__(*args, **settings)
        self._table, self._load = table, load

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self._table:
            return None
        command = self._load(name)
        command.short_help = self._table[name]
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self._table.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self._table and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], self._table, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)
