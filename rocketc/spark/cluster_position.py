"""Where a stream is in the queues of a cluster, and how far its next batch goes. It runs on the driver."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rocketc.client.connections import UNREACHABLE
from rocketc.client.queue_range import QueueRange
from rocketc.client.queue_spans import Ranges, Span, limited_ends, mean_size, ranges_of
from rocketc.client.routes import MessageQueue
from rocketc.client.topic_reader import TopicReader
from rocketc.errors import AnswerError
from rocketc.spark.cluster_offsets import Bounds
from rocketc.spark.cluster_plan import Losses, Topics, begins_at, check_reading, named_offsets
from rocketc.spark.offset_options import EARLIEST, LATEST

VERSION = 1
_MEAN = 1024  # bytes of a message, as long as nothing is known
Offsets = dict[MessageQueue, int]


@dataclass(frozen=True)
class ClusterPosition:
    """The position of a stream: its offset in Spark's checkpoint.

    offsets   queue offsets from which the stream reads next
    begins    where the batch that ends here begins, for queues whose place the position before it does not have. These
              are new queues, queues with lost messages, and in the first batch all
    is_first  the query begins here: no batch ends here
    firsts    the first offsets of all queues, where the batch begins in those that the position before it does not have

    >>> queue = MessageQueue("orders", "broker-a", 0)
    >>> ClusterPosition({queue: 7}, {queue: 5}).to_json()
    {'version': 1, 'offsets': {'orders': {'broker-a': {'0': 7}}}, 'begins': {'orders': {'broker-a': {'0': 5}}}}
    >>> ClusterPosition.from_json({"version": 1, "offsets": {}, "isFirst": True})
    ClusterPosition(offsets={}, begins={}, is_first=True, firsts={})
    """

    offsets: Offsets = field(default_factory=dict)
    begins: Offsets = field(default_factory=dict)
    is_first: bool = False
    firsts: Offsets = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"version": VERSION, "offsets": _nested(self.offsets)}
        if self.begins:
            out["begins"] = _nested(self.begins)
        if self.firsts:
            out["firsts"] = _nested(self.firsts)
        return out | ({"isFirst": True} if self.is_first else {})

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ClusterPosition:
        """Return the position of a checkpoint. Raises ValueError for one of another source or a newer release."""
        if values.get("version") != VERSION or not isinstance(values.get("offsets"), dict):
            raise ValueError(
                "rocketmq: the checkpoint is not one of a stream from a cluster that this version of rocketc can "
                "continue; use another checkpointLocation"
            )
        offsets, begins, firsts = (_flat(values.get(name, {})) for name in ("offsets", "begins", "firsts"))
        return cls(offsets, begins, bool(values.get("isFirst")), firsts)

    def spans(self, start: ClusterPosition) -> list[Span]:
        """Return what the batch reads that begins at `start` and ends here.

        >>> one, other = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-b", 0)
        >>> ClusterPosition({one: 7, other: 4}, {other: 3}).spans(ClusterPosition({one: 5}))[1]
        Span(queue=MessageQueue(topic='orders', broker_name='broker-b', queue_id=0), begin=3, end=4)
        """
        begins = self.firsts | start.offsets | self.begins
        spans = [Span(queue, begins.get(queue, end), end) for queue, end in sorted(self.offsets.items())]
        return [span for span in spans if span.begin < span.end]


def _nested(offsets: Offsets) -> dict[str, dict[str, dict[str, int]]]:
    out: dict[str, dict[str, dict[str, int]]] = {}
    for (topic, broker, queue_id), offset in sorted(offsets.items()):
        out.setdefault(topic, {}).setdefault(broker, {})[str(queue_id)] = offset
    return out


def _flat(nested: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Offsets:
    return {
        MessageQueue(topic, broker, int(queue_id)): int(offset)
        for topic, brokers in nested.items()
        for broker, queues in brokers.items()
        for queue_id, offset in queues.items()
    }


class ClusterStream:
    """The queues of a stream as they grow. Its methods are questions for ask().

    topics   names, and compiled patterns
    bounds   queues and starting offsets of the options
    losses   what happens if messages were deleted before the stream has read them
    """

    def __init__(self, topics: Iterable[Any], bounds: Bounds, must_exist: bool, losses: Losses) -> None:
        self._bounds, self._losses = bounds, losses
        self._first = Topics(topics, bounds, must_exist)
        self._later = Topics(topics, bounds, must_exist=False)
        self._queues: list[MessageQueue] = []
        self._mean = float(_MEAN)
        self._was_reached = False  # a stream that runs waits for its brokers
        self._reported: set[str] = set()
        self._checked: set[tuple[str, str]] = set()  # topics and brokers that can be read

    async def begin(self, reader: TopicReader, word: str, time: int | None) -> ClusterPosition:
        """Return where a query without a checkpoint begins.

        word  earliest or latest
        time  ms since 1970, instead of the word
        Raises ValueError, DataLossError and the errors of TopicReader.
        """
        self._queues = await self._first.queues(reader)
        starting = named_offsets("startingOffsets", self._bounds.starting, self._queues)
        ranges = await ranges_of(reader, self._queues)
        times = {} if time is None else await begins_at(reader, ranges, time)
        whole, found = {"earliest": EARLIEST, "latest": LATEST}[word], {}
        for queue, range in ranges.items():
            offset = times.get(queue, starting.get(queue, whole))
            offset = {EARLIEST: range.begin, LATEST: range.end}.get(offset, offset)
            if queue in starting and offset < range.begin:
                self._losses.lose(queue, offset, range.begin, f"the queue begins at {range.begin}")
            found[queue] = range.begun_at(offset).begin
        return ClusterPosition(found, is_first=True)

    async def ends(self, reader: TopicReader) -> ClusterPosition:
        """Return the end of all queues now."""
        return ClusterPosition({queue: range.end for queue, range in (await self._ranges(reader)).items()})

    async def whole(self, reader: TopicReader) -> ClusterPosition:
        """Return the end of a batch with all there is, whose begin is not known. All brokers must be reached."""
        self._queues = await self._later.queues(reader)
        ranges = await ranges_of(reader, self._queues)
        ends, firsts = ({queue: range[number] for queue, range in ranges.items()} for number in (1, 0))
        return ClusterPosition(ends, firsts=firsts)

    async def next(
        self,
        reader: TopicReader,
        start: ClusterPosition,
        upto: ClusterPosition | None = None,
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
    ) -> ClusterPosition:
        """Return the end of a batch that begins at `start`; `start` if nothing is new.

        upto         offsets that are not in the batch; queues that it does not have are not read
        max_records  messages in the batch
        max_bytes    of the batch, about: the size of some next messages tells how many messages that are
        A batch has at least one message, whatever the limits are. If messages were lost and nothing is new, it is
        empty, and the stream continues after the loss: so a loss is reported once.
        Raises DataLossError and the errors of TopicReader.
        """
        ranges, begins, spans = await self._ranges(reader), dict[MessageQueue, int](), dict[MessageQueue, QueueRange]()
        for queue, range in ranges.items():
            begin = self._begin(queue, range, start)
            if queue not in start.offsets or begin != start.offsets[queue] or start.is_first:
                begins[queue] = begin
            end = range.end if upto is None else min(range.end, upto.offsets.get(queue, begin))
            spans[queue] = QueueRange(begin, max(begin, end))
        if max_bytes is not None:
            most = max(int(max_bytes / await self._mean_size(reader, spans)), 1)
            max_records = most if max_records is None else min(max_records, most)
        ends = limited_ends(spans, max_records)
        new = [Span(queue, *span) for queue, span in spans.items() if queue[:2] not in self._checked]
        await check_reading(reader, new)
        self._checked |= {span.queue[:2] for span in new if span.begin < span.end}
        is_lost = any(begin != start.offsets.get(queue, begin) for queue, begin in begins.items())
        if not is_lost and all(ends[queue] == span.begin for queue, span in spans.items()):
            return start
        if start.is_first:  # also those that cannot be reached now
            begins = start.offsets | begins
        return ClusterPosition(start.offsets | ends, begins)

    def _begin(self, queue: MessageQueue, range: QueueRange, start: ClusterPosition) -> int:
        at = start.offsets.get(queue)
        if at is None:
            return range.begin
        if at < range.begin:
            why = f"the broker has deleted them: the queue begins at {range.begin}"
            self._losses.lose(queue, at, range.begin, why)
            return range.begin
        if at > range.end:
            why = f"the queue ends at {range.end}; the stream has read up to {at}, so it is not the same queue"
            self._losses.lose(queue, range.end, at, why)
            return range.end
        return at

    async def _ranges(self, reader: TopicReader) -> Ranges:
        """Return the offsets of the queues that can be reached now. Others are reported once."""
        try:
            self._queues = await self._later.queues(reader)
        except (*UNREACHABLE, AnswerError) as error:
            if not self._queues:
                raise
            self._report(f"the queues known before are read: {error}")
        if not self._queues:
            return {}
        try:
            found = await ranges_of(reader, self._queues)
            self._was_reached = True
            return found
        except UNREACHABLE:
            pass  # each broker on its own
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in self._queues:
            by_broker.setdefault(queue.broker_name, []).append(queue)
        answers = await asyncio.gather(*map(reader.ranges, by_broker.values()), return_exceptions=True)
        found = {}
        for name, answer in zip(by_broker, answers, strict=True):
            if isinstance(answer, UNREACHABLE):
                self._report(f"{name}: its queues wait: {answer}")
                last = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found |= answer
        if not found and not self._was_reached:
            raise last
        return {queue: found[queue] for queue in self._queues if queue in found}

    async def _mean_size(self, reader: TopicReader, spans: Ranges) -> float:
        """Return the mean size of the next messages, in bytes; that of the messages before them if none can be read."""
        self._mean = await mean_size(reader, spans) or self._mean
        return self._mean

    def _report(self, what: str) -> None:
        """Write a line to stderr, once per text; Spark adds it to the log of the driver."""
        if what not in self._reported:
            self._reported.add(what)
            print(f"rocketc: {what}", file=sys.stderr)
