"""What all commands of `rocketc admin` share: their options, the connection, and how an answer is shown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from rocketc.cli.arguments import Seconds
from rocketc.cli.exit_codes import COULD_NOT
from rocketc.cli.output import command, note
from rocketc.cli.security_options import security_options, take_security
from rocketc.client.admin import Admin
from rocketc.client.name_servers import name_server_addresses
from rocketc.errors import RocketcError
from rocketc.remoting.loops import run_on_loop
from rocketc.report.text import show_time
from rocketc.tables.topics import PERM_INHERIT, PERM_READ, PERM_WRITE

T = TypeVar("T")
PERMISSIONS = {"rw": PERM_READ | PERM_WRITE, "r": PERM_READ, "w": PERM_WRITE, "none": 0}


def admin_command(
    *examples: str, name: str | None = None, partial: bool = False
) -> Callable[[Callable[..., int]], click.Command]:
    """Decorate a function, as output.command(). It gets `asks`, a function that runs work with an Admin.

    partial  brokers that are not reached are left out, named on stderr, and the exit code is 3
    """

    def decorate(run: Callable[..., int]) -> click.Command:
        def with_cluster(name_server: str | None, timeout: float, **options: Any) -> int:
            try:
                name_server_addresses(name_server)
            except ValueError as error:
                raise click.UsageError(str(error)) from None

            security = take_security(options)
            faults: dict[str, RocketcError] = {}

            async def asked(work: Callable[[Admin], Awaitable[T]]) -> T:
                account, tls = security.credentials, security.tls
                async with Admin(name_server, timeout=timeout, credentials=account, tls=tls, partial=partial) as admin:
                    try:
                        return await work(admin)
                    finally:
                        faults.update(admin.faults)

            code = run(asks=lambda work: run_on_loop(asked(work)), **options)
            for fault in faults.values():
                note(f"left out, not reached: {str(fault).partition(';')[0]}")
            return COULD_NOT if faults else code

        with_cluster.__doc__ = run.__doc__
        with_cluster.__click_params__ = [*security_options(), *_options(), *getattr(run, "__click_params__", [])]  # type: ignore[attr-defined]
        return command(*examples, name=name or run.__name__)(with_cluster)

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
