"""The selection of messages: the arguments and options that cat, stats, export and others share."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from rocketc.cli.arguments import JAVA_INT_MAX, Number, Regex
from rocketc.cli.completion import complete_topic
from rocketc.cli.output import note
from rocketc.cli.times import When
from rocketc.files.remote import shown
from rocketc.read._message import Message
from rocketc.read.regex import limited
from rocketc.read.scan import Scan, ScanReport, scan
from rocketc.report.text import deleted_text


@dataclass(frozen=True)
class Selection:
    """The messages that a command line selects.

    paths    as in rocketc.scan()
    options  keyword arguments of rocketc.scan()
    """

    paths: tuple[str, ...]
    options: dict[str, Any]

    def scan(self, **other: Any) -> Scan:
        """Return a scan of these messages. Options in `other` override those of the command line."""
        return scan(list(self.paths), **(self.options | other))

    def conclude(self, report: ScanReport, complete: bool = True) -> int:
        """Report damage, missing and deleted files on stderr, and return the exit code.

        complete  the scan was to read everything: report it if there was nothing to read
        """
        start, stop = self.options["start"] or 0, self.options["stop"]
        for first, behind in report.missing:
            if behind > start and (stop is None or first < stop):
                note(f"no file holds the physical offsets {first} to {behind}")
        for gap in report.deleted:
            note(deleted_text(*gap))
        if report.damage:
            lost = sum(damage.stop - damage.start for damage in report.damage)
            ranges = "1 range" if len(report.damage) == 1 else f"{len(report.damage)} ranges"
            note(f"damage: {ranges}, {lost} bytes lost")
            return 1
        if complete and report.bytes == 0 and not report.deleted:
            note(f"nothing to read: {' '.join(map(shown, self.paths))}")
            return 1
        return 0


def topics_option(begin: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option -t, which a command gets as `topic`; begin: the first words of its help."""
    return click.option(
        "-t", "--topic", multiple=True, type=Regex(slashes=True), metavar="NAME", shell_complete=complete_topic,
        help=f"{begin}; /REGEX/ must match the whole name. Repeatable.",
    )  # fmt: skip


paths_argument = click.argument("path", nargs=-1, required=True, type=click.Path())
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
        help="Only records that begin at or after this physical offset (a byte of the log).",
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
    click.option("--no-unwrap", is_flag=True, help="Return an inner batch as one message, not as its messages."),
    click.option("--no-decompress", is_flag=True, help="Do not decompress bodies."),
]


def selects(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add PATH... and the options that select messages to a command, which gets them as `selection`."""

    @functools.wraps(command)
    def with_selection(
        path: tuple[str, ...], topic: tuple[str | re.Pattern[str], ...], queue: tuple[int, ...], begin: int | None,
        end: int | None, tag: tuple[str, ...], key: tuple[str, ...], grep: re.Pattern[str] | None, start: int | None,
        stop: int | None, strict: bool, crc: str, no_unwrap: bool, no_decompress: bool, **own: Any,
    ) -> Any:  # fmt: skip
        options: dict[str, Any] = {
            "topics": topic or None,
            "queues": queue or None,
            "tags": tag or None,
            "keys": key or None,
            "begin": begin,
            "end": end,
            "where": None if grep is None else _finds(grep),
            "start": start,
            "stop": stop,
            "errors": "raise" if strict else "report",
            "crc": crc,
            "decompress": not no_decompress,
            "unwrap": not no_unwrap,
        }
        return command(selection=Selection(path, options), **own)

    for parameter in reversed([paths_argument, *_CHOICE, *_READING]):
        parameter(with_selection)
    return with_selection


def _finds(grep: re.Pattern[str]) -> Callable[[Message], bool]:
    search = grep.search
    return lambda m: limited(search, m.body.decode("utf-8", "replace")) is not None
