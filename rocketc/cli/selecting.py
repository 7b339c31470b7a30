"""The options that select messages, for cat, stats and export: of a store, or of a topic of a cluster."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from contextlib import closing
from typing import Any

import click

from rocketc.cli.arguments import JAVA_INT_MAX, Number, Regex, Sql
from rocketc.cli.cluster_url import SCHEME, only_cluster
from rocketc.cli.security_options import SECURITY_NAMES, take_security
from rocketc.cli.selection import Selection, paths_argument, topics_option
from rocketc.cli.times import When
from rocketc.read._message import Message
from rocketc.read._sql_filter import SqlFilter
from rocketc.read.regex import limited

sql_option = click.option(
    "--sql",
    type=Sql(),
    metavar="FILTER",
    help="Only messages whose properties match this SQL92 filter of RocketMQ: \"price > 10 AND region = 'eu'\".",
)

_CHOICE = [
    topics_option("Only this topic"),
    click.option(
        "-q",
        "--queue",
        multiple=True,
        type=Number(0, JAVA_INT_MAX),
        metavar="ID",
        help="Only this queue id. Repeatable.",
    ),
    click.option(
        "--from",
        "begin",
        type=When(),
        metavar="TIME",
        help="Only messages stored at TIME or later: 2026-01-31, 2026-01-31T09:30 (UTC without a zone such as +08:00), "
        "epoch ms, -15m, -2h, -3d, now.",
    ),
    click.option("--to", "end", type=When(), metavar="TIME", help="Only messages stored before TIME."),
    click.option("--tag", multiple=True, metavar="TAG", help="Only this tag; 'A||B' is either. Repeatable."),
    click.option(
        "--key",
        multiple=True,
        metavar="KEY",
        help="Only messages with this key or unique id. Repeatable.",
    ),
    sql_option,
    click.option(
        "--grep",
        type=Regex(),
        metavar="REGEX",
        help="Only messages whose body contains REGEX. The body is decompressed and read as UTF-8.",
    ),
    click.option(
        "--start",
        type=Number(0),
        metavar="OFFSET",
        help="Only the record that this physical offset (a byte of the log) is in, and later ones.",
    ),
    click.option(
        "--stop", type=Number(0), metavar="OFFSET", help="Only records that begin before this physical offset."
    ),
]
_READING = [
    click.option("--strict", is_flag=True, help="Stop at the first damaged record."),
    click.option(
        "--crc",
        type=click.Choice(["none", "body", "full"]),
        default="body",
        help="CRCs to check: none; body (default); full: also that of the properties, if they have one.",
    ),
    click.option(
        "--partial",
        is_flag=True,
        help="PATH has only a part of a log: a file missing between two others is not damage.",
    ),
    click.option("--no-unwrap", is_flag=True, help="Return an inner batch as one message, not as its messages."),
    click.option("--no-decompress", is_flag=True, help="Do not decompress bodies."),
    click.option("--fail-if-empty", is_flag=True, help="The exit code is 1 if no message is selected."),
]


def selects(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add PATH... and the options that select messages to a command, which gets them as `selection`."""

    @functools.wraps(command)
    def with_selection(
        path: tuple[str, ...], topic: tuple[str | re.Pattern[str], ...], queue: tuple[int, ...], begin: int | None,
        end: int | None, tag: tuple[str, ...], key: tuple[str, ...], sql: SqlFilter | None,
        grep: re.Pattern[str] | None, start: int | None,
        stop: int | None, strict: bool, crc: str, partial: bool, no_unwrap: bool, no_decompress: bool,
        fail_if_empty: bool, group: str | None, all_topics: bool,
        **own: Any,
    ) -> Any:  # fmt: skip
        given = {name: own.pop(name) for name in SECURITY_NAMES}
        options: dict[str, Any] = {
            "topics": topic or None,
            "queues": queue or None,
            "tags": tag or None,
            "keys": key or None,
            "sql": sql,
            "begin": begin,
            "end": end,
            "where": None if grep is None else _finds(grep),
            "start": start,
            "stop": stop,
            "errors": "raise" if strict else "report",
            "crc": crc,
            "partial": partial,
            "unreadable": "skip",
            "decompress": not no_decompress,
            "unwrap": not no_unwrap,
        }
        url = only_cluster(path, patterns=True)
        if url is None:
            refuse_cluster_options(given | {"group": group, "all_topics": all_topics})
            return command(selection=Selection(path, options, fail_if_empty), **own)
        from rocketc.cli.cluster_selection import ClusterSelection, warnings_noted  # late: it needs the client

        selection = ClusterSelection.of(url, options, fail_if_empty, take_security(given), group, all_topics)
        with closing(selection), warnings_noted():
            return command(selection=selection, **own)

    for parameter in reversed([paths_argument, *_CHOICE, *_READING, group_option, all_topics_option]):
        parameter(with_selection)
    return with_selection


group_option = click.option(
    "--group", metavar="GROUP", help="Of a cluster: pull as this group, if the account may not use TOOLS_CONSUMER."
)

all_topics_option = click.option(
    "--all-topics",
    is_flag=True,
    help="Of a cluster: a * matches RocketMQ's own topics, too: retries, dead letters, delayed and half messages.",
)


def refuse_cluster_options(given: dict[str, Any]) -> None:
    """Raise click.UsageError if an option for clusters is given with a path."""
    if any(given.values()):
        raise click.UsageError(
            f"accounts, TLS, --group and --all-topics are for a cluster, as in {SCHEME}127.0.0.1:9876/orders"
        )


def _finds(grep: re.Pattern[str]) -> Callable[[Message], bool]:
    search = grep.search
    return lambda m: limited(search, m.body.decode("utf-8", "replace")) is not None
