"""Write spans of queues to staged files of an archive: in the process of the archive, or in Spark's tasks."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rocketc.client.connections import UNREACHABLE
from rocketc.client.queue_spans import REACH_SECONDS, Span, SpanReader
from rocketc.client.routes import MessageQueue
from rocketc.client.topic_reader import Place, TopicReader
from rocketc.client.topic_scan import Expression
from rocketc.errors import AnswerError, MissingCodecError
from rocketc.exports.archive_files import write_files
from rocketc.exports.archive_queues import MISSING_MESSAGES, QueueDamage, Reached, is_passing, log_damage
from rocketc.read._pulled_records import record_places
from rocketc.read.arrow_interop import import_pyarrow
from rocketc.read.record_block import RecordBlock
from rocketc.read.record_stream import RecordStream

if TYPE_CHECKING:
    import pyarrow

T = TypeVar("T")

_log = logging.getLogger("rocketc.exports")

QUEUES = 4  # that are read at the same time, with at most two answers of each in the memory
_NEEDED = ("topic", "storeTimestamp", "physicalOffset", "storeSize")
_MISSING_CODEC = "missing_codec"


class Runs(Protocol):
    """What runs coroutines of the reader: LoopThread."""

    def run(self, work: Coroutine[Any, Any, T]) -> T: ...


@dataclass(frozen=True)
class SpansJob:
    """The settings of what writes the spans of a commit.

    staging      folder of the commit; each call of write_spans() has its own folder in it
    stem         begin of the names of the files, which no other commit or task has
    columns      columns of the messages; `topic` is in the names of folders
    options      keyword arguments of RecordStream: crc, decompress
    compression  of the Parquet files
    most_bytes   of messages, after which reading ends, about; None: no limit
    waits        a broker that is down is waited for, and is an error after REACH_SECONDS. Otherwise its span ends
    """

    staging: str
    stem: str
    columns: tuple[str, ...]
    options: Mapping[str, Any]
    compression: str | None = None
    most_bytes: int | None = None
    waits: bool = False


@dataclass
class Written:
    """What write_spans() has written.

    files       [path below staging, bytes, messages] of each file
    statistics  [topic, days since 1970, messages, bytes, first and last store time in us] of each group
    damage      messages that are not in the files
    reached     where reading has ended in the queue of each span that was begun, and the last record there
    size        bytes of the messages
    """

    files: list[list[Any]] = field(default_factory=list)
    statistics: list[list[Any]] = field(default_factory=list)
    damage: list[QueueDamage] = field(default_factory=list)
    reached: list[tuple[Span, int, Place | None]] = field(default_factory=list)
    size: int = 0

    @property
    def messages(self) -> int:
        """Number of messages.

        >>> Written(statistics=[["orders", 20000, 3, 300, 5, 12], ["orders", 20001, 1, 100, 13, 13]]).messages
        4
        """
        return sum(row[2] for row in self.statistics)


def write_spans(thread: Runs, reader: TopicReader, spans: Iterable[Span], job: SpansJob) -> Written:
    """Write the messages of spans to Parquet files by topic and day, make the files durable, and return a report.

    thread  runs what the reader does
    Raises MissingCodecError, StoreIOError and the errors of TopicReader; then no files are left.
    """
    reading = _Reading(thread, reader, spans, job)
    files = write_files(reading.batches(), job.columns, job.staging, job.stem, job.compression, ordered=False)
    written = reading.written()
    written.files = files
    return written


class _Reading:
    """The messages of some spans, and the sums of what was read."""

    def __init__(self, thread: Runs, reader: TopicReader, spans: Iterable[Span], job: SpansJob) -> None:
        self._thread, self._reader, self._spans, self._job = thread, reader, list(spans), job
        self._begun: list[tuple[Span, SpanReader]] = []
        self._out = Written()
        self._sums: dict[tuple[Any, ...], list[int]] = {}
        self._last_offset: int | None = None
        self._judged = 0
        self._down: set[str] = set()  # brokers that are not reached: each attempt takes seconds
        columns = list(dict.fromkeys([*job.columns, *_NEEDED]))
        self._stream = RecordStream("an archive", self._blocks, columns=columns, errors="skip", **job.options)

    def lose(self, queue: MessageQueue, begin: int, end: int, why: str) -> None:
        """Take note of messages that the broker does not have any more."""
        self._lose(QueueDamage(*queue, begin, end, MISSING_MESSAGES))

    def _lose(self, damage: QueueDamage) -> None:
        log_damage(damage)
        self._out.damage.append(damage)

    def batches(self) -> Iterator[pyarrow.RecordBatch]:
        """Yield the messages."""
        for batch in self._stream.batches():
            self._count(batch)
            yield batch

    def written(self) -> Written:
        """Return the report, without files."""
        out = self._out
        out.statistics = [[*key, *sums] for key, sums in self._sums.items()]
        out.reached = [(span, reading.position, reading.last) for span, reading in self._begun]
        return out

    def _blocks(self, idle: object) -> Iterator[RecordBlock]:
        """Yield the records of the spans: those of some queues at the same time, each in order."""
        waiting, active = deque(self._spans), deque[SpanReader]()
        reach, most = REACH_SECONDS if self._job.waits else 0.0, self._job.most_bytes
        try:
            while waiting or active:
                while waiting and len(active) < QUEUES:
                    span = waiting.popleft()
                    if span.queue.broker_name in self._down:
                        continue
                    active.append(SpanReader(self._reader, span, Expression(), self, reach, may_end=True))
                    self._begun.append((span, active[-1]))
                    self._thread.run(active[-1].try_to_begin())
                if not active:
                    return  # the other spans are on brokers that are down
                begin = active[0].position
                if block := self._next(active[0]):
                    self._out.size += len(block)
                    yield RecordBlock(block, (active[0].queue.broker_name,))
                    self._judge(active[0], begin, block)
                    if most is not None and self._out.size >= most:
                        return
                    active.rotate(-1)
                else:
                    self._thread.run(active.popleft().close())
        finally:
            for reading in active:
                self._thread.run(reading.close())

    def _next(self, reading: SpanReader) -> bytes:
        """Return the next records of a span; nothing at its end, or if its broker is down: the next commit reads on."""
        broker = reading.queue.broker_name
        if broker in self._down:
            return b""
        try:
            return self._thread.run(reading.next())
        except (*UNREACHABLE, AnswerError) as error:
            if self._job.waits or not is_passing(error):
                raise
            if isinstance(error, UNREACHABLE):
                self._down.add(broker)
                _log.warning("the queues on %s wait: %s", broker, error)
            else:
                _log.warning("%s waits: %s", reading.queue, error)
            return b""

    def _judge(self, reading: SpanReader, begin: int, block: bytes) -> None:
        """Take note of the records of a block that could not be read.

        begin  queue offset where the block begins
        """
        new = self._stream.report.damage[self._judged :]
        self._judged += len(new)
        if not new:
            return
        places, _ = record_places(block, Place)
        offsets = {place.phy_offset: place.queue_offset for place in places}
        for one in new:
            if one.reason == _MISSING_CODEC:  # an archive must not lose these messages
                raise MissingCodecError(
                    f"{reading.queue}: the library for a compressed body is not installed: "
                    "pip install 'rocketc[compression]'"
                )
            at = offsets.get(one.start)
            behind = places[-1].queue_offset + 1 if places else begin
            start, stop = (at, at + 1) if at is not None else (behind, max(reading.position, behind + 1))
            self._lose(QueueDamage(*reading.queue, start, stop, one.reason))

    def _count(self, batch: pyarrow.RecordBatch) -> None:
        if not batch.num_rows:
            return
        pa = import_pyarrow()
        import pyarrow.compute as pc

        offsets, times = batch.column("physicalOffset"), batch.column("storeTimestamp")
        earlier = pa.concat_arrays([pa.array([self._last_offset], pa.int64()), offsets.slice(0, batch.num_rows - 1)])
        again = pc.fill_null(pc.equal(offsets, earlier), False)  # an inner batch is one record: its size counts once
        self._last_offset = offsets[batch.num_rows - 1].as_py()
        table = pa.table(
            {
                "topic": batch.column("topic"),
                "day": times.cast(pa.date32()).cast(pa.int32()),
                "size": pc.if_else(again, 0, batch.column("storeSize")),
                "time": times.cast(pa.int64()),
            }
        )
        sums = [("time", "count"), ("size", "sum"), ("time", "min"), ("time", "max")]
        found = table.group_by(["topic", "day"], use_threads=False).aggregate(sums)
        for row in found.select(["topic", "day", *(f"{column}_{sum}" for column, sum in sums)]).to_pylist():
            topic, day, *new = row.values()
            add_up(self._sums, (topic, day), new)


def add_up(sums: dict[tuple[Any, ...], list[int]], key: tuple[Any, ...], new: Sequence[int]) -> None:
    """Add a row of the statistics to the sums of its key.

    new  messages, bytes, first and last time

    >>> sums = {}
    >>> add_up(sums, ("orders", 20000), [2, 200, 5, 9]), add_up(sums, ("orders", 20000), [1, 100, 7, 12]), sums
    (None, None, {('orders', 20000): [3, 300, 5, 12]})
    """
    old = sums.setdefault(key, [0, 0, new[2], new[3]])
    sums[key] = [old[0] + new[0], old[1] + new[1], min(old[2], new[2]), max(old[3], new[3])]


def as_json(written: Written) -> dict[str, Any]:
    """Return a report of a task as values of JSON.

    >>> as_json(Written(size=7))
    {'files': [], 'statistics': [], 'damage': [], 'reached': [], 'size': 7}
    """
    return vars(written) | {"damage": list(map(list, written.damage)), "reached": list(map(list, written.reached))}


def from_json(values: Mapping[str, Any]) -> Written:
    """Return the report of values of JSON.

    >>> from_json(as_json(Written(size=7)))
    Written(files=[], statistics=[], damage=[], reached=[], size=7)
    """
    damage = [QueueDamage(*row) for row in values["damage"]]
    reached = [
        (Span(MessageQueue(*queue), begin, end), position, None if last is None else Place(*last))
        for (queue, begin, end), position, last in values["reached"]
    ]
    return Written(values["files"], values["statistics"], damage, reached, values["size"])


def moved(states: Mapping[MessageQueue, Reached], written: Iterable[Written]) -> dict[MessageQueue, Reached]:
    """Return the states of queues after what was written. The spans of a queue must follow one another.

    Raises ValueError if a span ends before the next one begins.

    >>> queue = MessageQueue("orders", "broker-a", 0)
    >>> parts = [Written(reached=[(Span(queue, 5, 7), 7, Place(900, 12, 6, 0, 100))])]
    >>> moved({queue: Reached(5)}, parts)[queue]
    Reached(next_offset=7, last_offset=6, phy_offset=900, stored=12)
    """
    out = dict(states)
    spans = sorted((one for part in written for one in part.reached), key=lambda one: one[0])
    ends: dict[MessageQueue, tuple[int, int]] = {}
    for span, position, last in spans:
        end, at = ends.get(span.queue, (span.begin, span.begin))
        if end != at:
            raise ValueError(f"{span.queue}: it ended at queue offset {at} while it was read: run again")
        out[span.queue] = out[span.queue].moved(position, last)
        ends[span.queue] = span.end, position
    return out
