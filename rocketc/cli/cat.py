"""rocketc cat: messages of a store, one a line."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import click

from rocketc._message import Message
from rocketc.cli.arguments import Number, Regex, Start, StartAt
from rocketc.cli.formats import BODY_FORMS, TOKENS, Printer, compile_format, json_printer, line_printer
from rocketc.cli.output import DamageNotes, Out, ends_quietly, note
from rocketc.cli.times import When
from rocketc.paths import resolve
from rocketc.scan import Scan, ScanReport, scan


def _describe_format() -> str:
    """The tokens of -f for the help, in three columns of a paragraph that click does not wrap."""
    cells = [f"%{char} {what}" for char, (what, _) in TOKENS.items()]
    cells += ["%n newline", "%% percent sign", r"\n \t \r \0 \xHH \\"]
    rows = [cells[i : i + 3] for i in range(0, len(cells), 3)]
    return "\n".join("".join(f"{cell:24}" for cell in row).rstrip() for row in rows)


@click.command(
    short_help="Print messages; follow a store that grows.",
    epilog=f"""\b
FORMAT, as kcat's; a newline comes only where it says so:
{_describe_format()}

\b
Examples:
  rocketc cat /data/store -t orders --from -15m --grep 'timeout|refused'
  rocketc cat /data/store --key 10086 --json | jq -r .body""",
)
@click.argument("path", nargs=-1, required=True, type=click.Path())
@click.option(
    "-t",
    "--topic",
    multiple=True,
    type=Regex(slashes=True),
    metavar="NAME",
    help="Only this topic; /REGEX/ must match the whole name. Repeatable.",
)
@click.option(
    "-q", "--queue", multiple=True, type=Number(0, (1 << 31) - 1), metavar="ID", help="Only this queue id. Repeatable."
)
@click.option(
    "-o",
    "--offset",
    type=StartAt(),
    metavar="OFFSET",
    help="In each queue: from this queue offset on; -N: the last N that match; beginning; "
    "end: only new ones (with -F).",
)
@click.option("-c", "--count", type=Number(1), metavar="N", help="End after N messages.")
@click.option(
    "--from",
    "begin",
    type=When(),
    metavar="TIME",
    help="Stored at TIME or later: 2026-01-31T09:30 (UTC unless it says +08:00), epoch ms, -15m, -2h, -3d, now.",
)
@click.option("--to", "end", type=When(), metavar="TIME", help="Stored before TIME.")
@click.option("--tag", multiple=True, metavar="TAG", help="Only with this tag; 'A||B' is either. Repeatable.")
@click.option(
    "--key",
    multiple=True,
    metavar="KEY",
    help="Only with this key, or with this unique id that its client gave it. Repeatable.",
)
@click.option(
    "--grep",
    type=Regex(),
    metavar="REGEX",
    help="Only if REGEX is found anywhere in the body, decompressed and read as UTF-8; nothing else is searched.",
)
@click.option(
    "--start",
    type=Number(0),
    metavar="OFFSET",
    help="Only records that begin at this physical offset (a byte of the log) or behind it.",
)
@click.option("--stop", type=Number(0), metavar="OFFSET", help="Only records that begin before this physical offset.")
@click.option("-J", "--json", "as_json", is_flag=True, help="One JSON object a message.")
@click.option("-f", "--format", "spec", metavar="FORMAT", help="Print each message like this: see below.")
@click.option(
    "--body",
    type=click.Choice(["text", *BODY_FORMS]),
    default="text",
    help="How to show the body. In JSON: body (bodyBase64 if it is no UTF-8), bodyHex, bodyBase64, or left out.",
)
@click.option("-F", "--follow", is_flag=True, help="Wait for new messages, until Ctrl-C or -c.")
@click.option("--strict", is_flag=True, help="Stop at the first damage.")
@click.option(
    "--crc",
    type=click.Choice(["none", "body", "full"]),
    default="body",
    help="What is checked: nothing; the body (default); the properties too, where they have a CRC.",
)
@click.option("--no-unwrap", is_flag=True, help="Leave a batch that is stored as one record one message.")
@click.option("--no-decompress", is_flag=True, help="Leave bodies as they are stored.")
@ends_quietly
def cat(
    path: tuple[str, ...], topic: tuple[str | re.Pattern[str], ...], queue: tuple[int, ...], offset: Start | None,
    count: int | None, begin: int | None, end: int | None, tag: tuple[str, ...], key: tuple[str, ...],
    grep: re.Pattern[str] | None, start: int | None, stop: int | None, as_json: bool, spec: str | None, body: str,
    follow: bool, strict: bool, crc: str, no_unwrap: bool, no_decompress: bool,
) -> int:  # fmt: skip
    """Print the messages of a store, a commit log folder, or files, in the order of the log.

    A line is: time (UTC), topic/queue@offset, tags, keys, body. Damage is stepped over and told on stderr; the exit
    code is 1 then.
    """
    if as_json and spec is not None:
        raise click.UsageError("--json and --format exclude each other")
    if offset is not None and offset.kind == "end" and not follow:
        raise click.UsageError("-o end is behind the last message: add -F to wait for new ones")
    options: dict[str, Any] = {
        "topics": topic or None,
        "queues": queue or None,
        "tags": tag or None,
        "keys": key or None,
        "begin": begin,
        "end": end,
        "stop": stop,
        "errors": "raise" if strict else "report",
        "crc": crc,
        "decompress": not no_decompress,
        "unwrap": not no_unwrap,
    }
    with Out(live=follow) as out, DamageNotes(out):
        show = _printer(spec, as_json, body, out)
        run = _Run(list(path), start, options, offset, grep)
        for message in islice(run.follow() if follow else run.read(), count):
            out.write(show(message))
    return _sum_up(run.report, start or 0, stop, "" if follow else " ".join(path))


def _printer(spec: str | None, as_json: bool, body: str, out: Out) -> Printer:
    if as_json:
        return json_printer(body, out.is_terminal)
    if spec is None:
        return line_printer(body, out.has_colour)
    try:
        return compile_format(spec, body, out.is_terminal)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="-f") from None


class _Run:
    """The passes over a log that a command line needs: one, or one up to the end and one that follows from there."""

    def __init__(
        self,
        path: list[str],
        start: int | None,
        options: dict[str, Any],
        offset: Start | None,
        grep: re.Pattern[str] | None,
    ) -> None:
        self._path = path
        self._start = start
        self._options = options
        self._offset = offset
        self._grep = grep
        self._scans = [self._scan(start)]

    @property
    def report(self) -> ScanReport:
        """The books of all passes together."""
        out = ScanReport()
        for one in (each.report for each in self._scans):
            out.bytes += one.bytes
            out.damage += one.damage
            out.missing = out.missing or one.missing
        return out

    def read(self) -> Iterator[Message]:
        """The messages there are."""
        messages = self._wanted(self._scans[0])
        if self._offset is not None and self._offset.kind == "last":
            return iter(_last_of_each_queue(messages, self._offset.number))
        return messages

    def follow(self) -> Iterator[Message]:
        """The messages there are, as far as they are asked for, and all that come."""
        if self._offset is not None and self._offset.kind != "offset":
            if self._offset.kind == "last":
                yield from self.read()
                end = _end_of(self._scans[0].report)
            else:
                end = self._find_end()
            self._scans.append(self._scan(max((at for at in (self._start, end) if at is not None), default=None)))
        try:
            coming = self._scans[-1].follow()
        except ValueError:
            raise click.UsageError("-F follows one commit log, and these are several") from None
        yield from self._wanted(coming)

    def _scan(self, start: int | None, **other: Any) -> Scan:
        return scan(self._path, start=start, **(self._options | other))

    def _wanted(self, messages: Iterable[Message]) -> Iterator[Message]:
        """Those that -o OFFSET and --grep want; all else is the scan's business."""
        if self._offset is not None and self._offset.kind == "offset":
            first = self._offset.number
            messages = (m for m in messages if m.queue_offset >= first)
        if self._grep is not None:
            search = self._grep.search
            messages = (m for m in messages if search(m.body.decode("utf-8", "replace")))
        return iter(messages)

    def _find_end(self) -> int | None:
        """The physical offset where the log ends now; only the last file is walked."""
        last = [log.files[-1].base for log in resolve(self._path) if log.files]
        tail = self._scan(last[0] if len(last) == 1 else None, errors="skip", queues=())
        tail.count()
        return _end_of(tail.report)


def _end_of(report: ScanReport) -> int | None:
    """Where a log ends; a torn record at the end may be one that a broker is just writing, so it does not count."""
    if report.damage and report.damage[-1].stop == report.end:
        return report.damage[-1].start
    return report.end


def _last_of_each_queue(messages: Iterable[Message], number: int) -> list[Message]:
    """The last `number` messages of each queue, in the order of the log."""
    queues: dict[tuple[str, int], deque[tuple[int, Message]]] = {}
    for i, m in enumerate(messages):
        queue = queues.setdefault((m.topic, m.queue_id), deque(maxlen=number))
        queue.append((i, m))
    return [m for _, m in sorted(entry for queue in queues.values() for entry in queue)]


def _sum_up(report: ScanReport, start: int, stop: int | None, path: str) -> int:
    """Tell on stderr what was amiss, and return the exit code.

    path  what was read to its end; empty if it was not
    """
    for first, behind in report.missing:
        if behind > start and (stop is None or first < stop):
            note(f"no file holds the physical offsets {first} to {behind}")
    if report.damage:
        lost = sum(damage.stop - damage.start for damage in report.damage)
        ranges = "1 range" if len(report.damage) == 1 else f"{len(report.damage)} ranges"
        note(f"damage: {ranges}, {lost} bytes lost")
        return 1
    if path and report.bytes == 0:
        note(f"nothing to read: {path}")
        return 1
    return 0
