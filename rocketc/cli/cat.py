"""rocketc cat: print the messages of a store, one per line."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import click

from rocketc.cli.arguments import Start, StartAt, choose_printer, named_files, prints_messages, takes_kind
from rocketc.cli.output import DamageNotes, Out, command
from rocketc.cli.security_options import with_security
from rocketc.cli.selecting import selects
from rocketc.cli.selection import Selection
from rocketc.files.paths import resolve
from rocketc.files.remote import refuse_urls
from rocketc.jobs.lookup import find_in_queue
from rocketc.read._message import Message
from rocketc.read.scan_report import ScanReport, torn_tail
from rocketc.report.messages import TOKENS, line_printer, uses_body

if TYPE_CHECKING:
    from rocketc.client.topic_scan import TopicStart


def _describe_format() -> str:
    """Return the tokens of -f for the help text, in three columns that click does not wrap."""
    cells = [f"%{char} {what}" for char, (what, _) in TOKENS.items()]
    cells += ["%n newline", "%% percent sign", r"\n \t \r \0 \xHH \\"]
    rows = [cells[i : i + 3] for i in range(0, len(cells), 3)]
    return "\n".join("".join(f"{cell:24}" for cell in row).rstrip() for row in rows)


@command(
    "rocketc cat /data/store -t orders --from -15m --grep 'timeout|refused'",
    "rocketc cat /data/store -t orders -F -o end --json | jq -r .body",
    "rocketc cat rocketmq://127.0.0.1:9876/orders --tag web -F",
    above=f"\b\nFORMAT has the tokens of kcat. A newline is printed only where FORMAT has one:\n{_describe_format()}",
)
@selects
@click.option(
    "-o",
    "--offset",
    type=StartAt(),
    metavar="OFFSET",
    help="Where to begin in each queue: a queue offset; -N, the last N messages that match; beginning (default); "
    "end, with -F: only new messages.",
)
@prints_messages(
    "see below",
    "Form of the body, or none. In JSON: body (bodyBase64 if it is not UTF-8), bodyHex, bodyBase64. trace: the records "
    "of message trace; without --json, this is the default for RMQ_SYS_TRACE_TOPIC.",
)
@click.option("-F", "--follow", is_flag=True, help="Wait for new messages and print them, until Ctrl-C or -c.")
@takes_kind
@with_security
def cat(
    selection: Selection,
    offset: Start | None,
    count: int | None,
    as_json: bool,
    spec: str | None,
    body: str,
    follow: bool,
    kind: str | None,
    index_slots: int | None,
) -> int:
    """Print the messages of a store, a commit log folder, or log files, in the order of the log.

    Each line has the store time (UTC), topic/queue@offset, tags, keys and body. Damaged bytes are skipped and reported
    on stderr; the exit code is then 1. A message must match all options; if an option is repeated, any of its values.

    With one topic, one queue and -o OFFSET, the consume queue of the store tells where to begin. Damage before that
    position is not reported.

    PATH can also be a topic of a running cluster, rocketmq://HOST:PORT/TOPIC with the address of a name server. The
    messages that are there are printed in the order of the broker's log, those of several brokers by store time. The
    command joins no group, and nothing of it stays in the cluster.

    PATH can also name other files of a store. Of consumequeue, batchconsumequeue, consumequeue_ext and index files it
    prints the units; of checkpoint and config/*.json it prints the content. Options for these are -c and --json, and -o
    for queues.
    """
    of_cluster = type(selection) is not Selection
    if of_cluster and (kind is not None or index_slots is not None):
        raise click.UsageError(f"{'--as' if kind is not None else '--index-slots'} is for files, not for a cluster")
    if not of_cluster and (files := named_files(selection.paths, kind, index_slots)) is not None:
        from rocketc.cli.cat_files import cat_files

        return cat_files(files, offset, count, as_json, index_slots)
    if offset is not None and offset.kind == "end" and not follow:
        raise click.UsageError("-o end begins after the last message: add -F to wait for new ones")
    if selection.options["where"] is None and not uses_body(spec, body):
        selection = replace(selection, options=selection.options | {"decompress": False})
    with Out(live=follow) as out, DamageNotes(out):
        show = choose_printer(spec, as_json, body, out, line_printer)
        run = _ClusterRun(selection, offset) if of_cluster else _Run(selection, offset)
        if follow:
            selection.note_missing_topics(0, ahead=True)
        shown = 0
        for message in islice(run.follow(out.check_reader) if follow else run.read(), count):
            out.write(show(message))
            shown += 1
    return selection.conclude(run.report, shown, complete=not follow and shown != count)


def _placed(selection: Selection, offset: Start | None) -> Selection:
    """Return the selection with a start offset from the consume queue, if it is one queue from one queue offset."""
    topics, queues = selection.options["topics"], selection.options["queues"]
    if offset is None or offset.kind != "offset" or len(topics or ()) != 1 or len(queues or ()) != 1:
        return selection
    if not isinstance(topics[0], str) or offset.number == 0:  # prepared messages are in no queue and have offset 0
        return selection
    at = find_in_queue(selection.paths, topics[0], queues[0], offset.number)
    if at is None:
        return selection
    return replace(selection, options=selection.options | {"start": max(at, selection.options["start"] or 0)})


class _ClusterRun:
    """The scans of a cluster that a command line needs: one, or one for the last messages and one that follows."""

    def __init__(self, selection: Selection, offset: Start | None) -> None:
        self._selection, self._offset = selection, offset
        start_at = {} if offset is None else {"start_at": _start_at(offset)}
        self._scans = [selection.scan(**start_at)]

    @property
    def report(self) -> ScanReport:
        """The reports of all scans, added up."""
        return ScanReport.total(scan.report for scan in self._scans)

    def read(self) -> Iterator[Message]:
        """Yield the messages that the topics have now."""
        messages = iter(self._scans[0])
        if self._offset is None or self._offset.kind == "end":
            return messages
        if self._offset.kind == "last":
            return iter(_last_of_each_queue(messages, self._offset.number, lambda m: m.store_host))
        first = self._offset.number
        return (m for m in messages if m.queue_offset >= first)

    def follow(self, idle: Callable[[], None]) -> Iterator[Message]:
        """Yield the messages that the topics have now, from the -o position, and then each new message."""
        if self._offset is not None and self._offset.kind == "last":
            yield from self.read()
            self._scans.append(self._selection.scan(positions=self._scans[0].ends))  # type: ignore[attr-defined]
        first = self._offset.number if self._offset is not None and self._offset.kind == "offset" else 0
        yield from (m for m in self._scans[-1].follow(idle=idle) if m.queue_offset >= first)


def _start_at(offset: Start) -> TopicStart:
    from rocketc.client.topic_scan import TopicStart  # late: commands on stores do not need the client

    return TopicStart(offset.kind, offset.number)


class _Run:
    """The scans of a log that a command line needs: one, or one up to the end and one that follows from there."""

    def __init__(self, selection: Selection, offset: Start | None) -> None:
        self._selection = _placed(selection, offset)
        self._offset = offset
        self._scans = [self._selection.scan()]

    @property
    def report(self) -> ScanReport:
        """The reports of all scans, added up."""
        first, *more = (each.report for each in self._scans)
        for one in more:
            one.missing = []
        return ScanReport.total([first, *more])

    def read(self) -> Iterator[Message]:
        """Yield the messages that the log has now."""
        messages = self._wanted(self._scans[0])
        if self._offset is not None and self._offset.kind == "last":
            return iter(_last_of_each_queue(messages, self._offset.number))
        return messages

    def follow(self, idle: Callable[[], None]) -> Iterator[Message]:
        """Yield the messages that the log has now, from the -o position, and then each new message."""
        if self._offset is not None and self._offset.kind != "offset":
            if self._offset.kind == "last":
                yield from self.read()
                end = _end_of(self._scans[0].report)
            else:
                end = self._find_end()
            given = self._selection.options["start"]
            start = max((at for at in (given, end) if at is not None), default=None)
            self._scans.append(self._selection.scan(start=start))
        refuse_urls(self._selection.paths, "-F")
        try:
            coming = self._scans[-1].follow(idle=idle)
        except ValueError:
            raise click.UsageError("-F follows one commit log; the paths name several") from None
        yield from self._wanted(coming)

    def _wanted(self, messages: Iterable[Message]) -> Iterator[Message]:
        """The messages from -o OFFSET; the scan applies the other options."""
        if self._offset is not None and self._offset.kind == "offset":
            first = self._offset.number
            messages = (m for m in messages if m.queue_offset >= first)
        return iter(messages)

    def _find_end(self) -> int | None:
        """Return the physical offset where the log ends now; scans only the last file."""
        last = [log.files[-1].base for log in resolve(self._selection.paths) if log.files]
        tail = self._selection.scan(start=last[0] if len(last) == 1 else None, errors="skip", queues=())
        tail.count()
        return _end_of(tail.report)


def _end_of(report: ScanReport) -> int | None:
    """Return where a log ends. A torn record at the end does not count: a broker may be writing it."""
    torn = torn_tail(report.damage, report.end)
    return torn.start if torn else report.end


def _last_of_each_queue(
    messages: Iterable[Message], number: int, broker_of: Callable[[Message], str] = lambda m: ""
) -> list[Message]:
    """Return the last `number` messages of each queue, in the order of the log.

    broker_of  of a message, if there are several: each has queues of its own
    """
    queues: dict[tuple[str, str, int], deque[tuple[int, Message]]] = {}
    for i, m in enumerate(messages):
        queue = queues.setdefault((broker_of(m), m.topic, m.queue_id), deque(maxlen=number))
        queue.append((i, m))
    return [m for _, m in sorted(entry for queue in queues.values() for entry in queue)]
