"""Which messages a command reads: the options that cat, stats, export and others share."""

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


@dataclass(frozen=True)
class Selection:
    """What a command line wants to read.

    paths    as in rocketc.scan()
    options  of rocketc.scan()
    """

    paths: tuple[str, ...]
    options: dict[str, Any]

    def scan(self, **other: Any) -> Scan:
        """A scan of these messages; other options of rocketc.scan() come before ours."""
        return scan(list(self.paths), **(self.options | other))

    def conclude(self, report: ScanReport, complete: bool = True) -> int:
        """Tell on stderr what was amiss, and return the exit code.

        complete  all was to be read: it is worth a word if there was nothing
        """
        start, stop = self.options["start"] or 0, self.options["stop"]
        for first, behind in report.missing:
            if behind > start and (stop is None or first < stop):
                note(f"no file holds the physical offsets {first} to {behind}")
        if report.damage:
            lost = sum(damage.stop - damage.start for damage in report.damage)
            ranges = "1 range" if len(report.damage) == 1 else f"{len(report.damage)} ranges"
            note(f"damage: {ranges}, {lost} bytes lost")
            return 1
        if complete and report.bytes == 0:
            note(f"nothing to read: {' '.join(map(shown, self.paths))}")
            return 1
        return 0


def topics_option(begin: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """-t, which a command gets as `topic`; begin: of its help."""
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
        help="Stored at TIME or later: 2026-01-31T09:30 (UTC unless it says +08:00), epoch ms, -15m, -2h, -3d, now.",
    ),
    click.option("--to", "end", type=When(), metavar="TIME", help="Stored before TIME."),
    click.option("--tag", multiple=True, metavar="TAG", help="Only with this tag; 'A||B' is either. Repeatable."),
    click.option(
        "--key",
        multiple=True,
        metavar="KEY",
        help="Only with this key, or with this unique id that its client gave it. Repeatable.",
    ),
    click.option(
        "--grep",
        type=Regex(),
        metavar="REGEX",
        help="Only if REGEX is found anywhere in the body, decompressed and read as UTF-8; nothing else is searched.",
    ),
    click.option(
        "--start",
        type=Number(0),
        metavar="OFFSET",
        help="Only records that begin at this physical offset (a byte of the log) or behind it.",
    ),
    click.option(
        "--stop", type=Number(0), metavar="OFFSET", help="Only records that begin before this physical offset."
    ),
]
_READING = [
    click.option("--strict", is_flag=True, help="Stop at the first damage."),
    click.option(
        "--crc",
        type=click.Choice(["none", "body", "full"]),
        default="body",
        help="What is checked: nothing; the body (default); the properties too, where they have a CRC.",
    ),
    click.option("--no-unwrap", is_flag=True, help="Leave a batch that is stored as one record one message."),
    click.option("--no-decompress", is_flag=True, help="Leave bodies as they are stored."),
]


def selects(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the PATH.. and the options that choose messages; it gets them as its argument `selection`."""

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
