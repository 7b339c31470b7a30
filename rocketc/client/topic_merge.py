"""Reads queues at the same time, and puts their records in order: that of the log on one broker, by time on several."""

from __future__ import annotations

import asyncio
import heapq
import logging
import re
from collections import deque
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from rocketc._layout import RETRY_PREFIX, SCHEDULE_TOPIC
from rocketc.client.connections import UNREACHABLE
from rocketc.client.pull_decisions import PullStatus
from rocketc.client.queue_range import QueueRange
from rocketc.client.recreated import LastRead, first_after, is_other
from rocketc.client.routes import MessageQueue
from rocketc.client.topic_reader import Pulled, TopicReader
from rocketc.errors import AnswerError
from rocketc.read._pulled_records import cut_records, data_size
from rocketc.read.record_block import RecordBlock, block_of
from rocketc.remoting.codes import Code
from rocketc.remoting.subscribing import ALL, TAG, is_tag_type

T = TypeVar("T")

_BY_PHY_OFFSET = itemgetter(0)

_log = logging.getLogger("rocketc.client")

BLOCK_BYTES = 1 << 20  # that one call returns, about
BUFFER_BYTES = 64 << 20  # of records that wait, of all queues together. Others are forgotten, and pulled again
_RUN_BYTES = 4 << 20  # of records that wait: more are taken one by one, so that blocks stay small
_FOREVER = (1 << 63) - 1
_RECORD_COST = 200  # bytes of a record that waits, besides its own
_PULL_BYTES = (16 << 10, 256 << 10)  # of an answer, the least and the most
_PAUSE = 0.1  # seconds after an answer that moves nothing
_STUCK = 50  # such answers
_AGAIN = 1.0  # seconds between attempts to reach a broker that is followed
_ROUTES = 30.0  # seconds between two looks for new queues,
_MISSING = 1.0  # while a topic does not exist
_DELETED = "%s: the messages before offset %d were deleted before they were read"
_ENDS = "%s: the messages from offset %d to %d are not there any more: the broker lost them, or it is a slave behind"
_MADE_AGAIN = (
    "%s has other messages before offset %d: it was made again, or its broker lost messages; it is read from offset "
    "%d on"
)
_PASSING = (  # codes of a broker that is busy or starts, and of a topic that was just deleted
    Code.FLOW_CONTROL, Code.SYSTEM_BUSY, Code.SERVICE_NOT_AVAILABLE, Code.TOPIC_NOT_EXIST,
)  # fmt: skip


def _limits(queues: int) -> tuple[int, int]:
    """Return the most bytes and the most messages of a pull, so that the answers of all queues fit into the memory."""
    least, most = _PULL_BYTES
    size = min(most, max(least, BUFFER_BYTES // (2 * max(queues, 1))))
    return size, size >> 8


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class _Record(NamedTuple):
    """A record that waits for its turn.

    data     None: there was no room for it, and it is pulled again when its turn comes
    is_last  bytes that are not a record follow: the block ends here
    """

    phy_offset: int
    store_timestamp: int
    queue_offset: int
    data: bytes | None
    is_last: bool


def _records(pulled: Pulled, offset: int, end: int | None, until: int | None) -> tuple[list[_Record], bool]:
    """Return the records of an answer before an offset and a time, and whether there are none after them.

    offset  of the pull
    """
    end, until = _FOREVER if end is None else end, _FOREVER if until is None else min(until, _FOREVER)
    records, behind, is_cut = cut_records(pulled.body, pulled.places, end, until, _Record)
    if is_cut:
        return records, True
    if behind < len(pulled.body):
        rest = pulled.body[behind:]
        if records:
            last = records.pop()
            records.append(last._replace(data=(last.data or b"") + rest, is_last=True))
        else:
            records.append(_Record(0, 0, offset, rest, True))
    return records, False


def _size(records: Sequence[_Record]) -> int:
    return data_size(records, _RECORD_COST)


class _Room:
    """The memory for records that wait, of all queues.

    most    bytes
    queues  when half of it is taken, each queue gets its share of the other half

    >>> room = _Room(1000, queues=1)
    >>> records = [_Record(0, 0, offset, b"x" * 300, False) for offset in range(3)]
    >>> [record.queue_offset for record in room.take(records)], room.taken
    ([0, 1], 1000)
    >>> room.take(records[2:])[0].data is None
    True
    """

    def __init__(self, most: int, queues: int) -> None:
        self._most, self._share, self.taken = most, most // (2 * max(queues, 1)), 0

    @property
    def is_half_empty(self) -> bool:
        return 2 * self.taken <= self._most

    def take(self, records: Sequence[_Record]) -> list[_Record]:
        """Take the first records that there is room for; if there is none, return the first one without its data."""
        size = _size(records)
        if 2 * (self.taken + size) <= self._most:  # most answers
            self.taken += size
            return list(records)
        kept, size = list[_Record](), 0
        for record in records:
            one = _size([record])
            is_much = not self.is_half_empty and size + one > self._share
            if self.taken + one > self._most or (kept and is_much):
                break
            self.taken += one
            size += one
            kept.append(record)
        return kept or [record._replace(data=None, is_last=False) for record in records[:1]]

    def give_back(self, records: Sequence[_Record]) -> int:
        """Note that records do not wait any more; return their size."""
        size = _size(records)
        self.taken -= size
        return size


def _after(
    pulled: Pulled, offset: int, records: Sequence[_Record], kept: Sequence[_Record], queue: MessageQueue
) -> int:
    """Return the offset of the next pull: that of the first record that is not kept. Raises AnswerError."""
    if len(kept) == len(records):
        return pulled.next_offset
    found = records[len(kept)].queue_offset
    if not offset < found < pulled.next_offset:
        raise AnswerError(queue.broker_name, f"the answer to a pull at offset {offset} has a message at {found}")
    return found


class _Queue:
    """A queue that is read up to an offset, one pull after the other; the next one is under way if there is room.

    held  bytes of the records, those of the same answer that were returned included
    """

    def __init__(self, queue: MessageQueue, range: QueueRange, merge: TopicMerge) -> None:
        self.queue, self.position, self.end, self._merge = queue, range.begin, range.end, merge
        self.records: deque[_Record] = deque()
        self.held, self._pulled_from = 0, self.position
        self.pulling: asyncio.Task[list[_Record]] | None = None
        self.begin()

    @property
    def is_at_end(self) -> bool:
        return self.pulling is None and self.position >= self.end

    @property
    def is_awaited(self) -> bool:
        """Whether fill() has to wait."""
        return not (self.is_at_end if self.pulling is None else self.pulling.done())

    @property
    def left(self) -> QueueRange:
        """The part that was not returned yet."""
        if self.records:
            return QueueRange(self.records[0].queue_offset, self.end)
        return QueueRange(self.position if self.pulling is None else self._pulled_from, self.end)

    def begin(self) -> None:
        """Begin the next pull, unless the queue is at its end."""
        if self.pulling is None and self.position < self.end:
            self._pulled_from = self.position
            self.pulling = asyncio.ensure_future(self._pull())

    async def fill(self) -> None:
        """Wait for the records of the next pull; none come at the end."""
        self.begin()
        if self.pulling is not None:
            records = await self.pulling
            self.pulling = None
            self.records.extend(records)
            self.held = _size(records)
            if self._merge.room.is_half_empty:
                self.begin()

    async def _ask(self, offset: int, most: int) -> Pulled:
        merge = self._merge
        return await merge.reader.pull_surely(
            self.queue, offset, most=most, most_bytes=merge.most_bytes, expression=merge.expression,
            expression_type=merge.expression_type,
        )  # fmt: skip

    async def _pull(self) -> list[_Record]:
        """Pull until there are records, or the queue is at its end."""
        merge, stuck = self._merge, 0
        while self.position < self.end:
            pulled = await self._ask(self.position, merge.most)
            records, ends = _records(pulled, self.position, self.end, merge.until)
            kept = merge.room.take(records)
            moved = pulled.next_offset > self.position
            is_over = not moved and pulled.status not in (PullStatus.FOUND, PullStatus.NO_MATCHED_MSG)
            if is_over:  # also if the offsets say so
                _log.warning(_ENDS, self.queue, self.position, self.end)
            elif pulled.status is PullStatus.OFFSET_ILLEGAL:
                _log.warning(_DELETED, self.queue, pulled.next_offset)
            if len(kept) < len(records):  # the others are pulled again
                self.position = _after(pulled, self.position, records, kept, self.queue)
                return kept
            if ends or is_over:
                self.position = self.end
            elif moved:
                self.position, stuck = pulled.next_offset, 0
            else:
                stuck += 1
                if stuck == _STUCK:
                    text = f"pulls of {self.queue} stay at offset {self.position}"
                    raise AnswerError(merge.reader.address(self.queue), text)
                await asyncio.sleep(_PAUSE)
            if kept:
                return kept
        return []

    async def again(self, record: _Record) -> _Record:
        """Pull a record whose data was forgotten. It stays without data if the broker does not have it any more."""
        pulled = await self._ask(record.queue_offset, 1)
        records, _ = _records(pulled, record.queue_offset, record.queue_offset + 1, None)
        if not records:
            _log.warning(_DELETED, self.queue, record.queue_offset + 1)
        return records[0] if records else record


class TopicMerge:
    """The records of queues, from the begin to the end of their ranges, in order. Use it on one event loop.

    Records of one broker come in the order of its log, and those of several brokers by their store time.

    expression  tags that brokers select by
    expression_type  SQL92: the expression is a filter
    until       ms since 1970: a queue ends at its first message that was stored then or later; None: at its range
    """

    def __init__(
        self,
        reader: TopicReader,
        ranges: Mapping[MessageQueue, QueueRange],
        *,
        expression: str = ALL,
        expression_type: str = TAG,
        until: int | None = None,
    ) -> None:
        self.reader, self.expression, self.expression_type, self.until = reader, expression, expression_type, until
        self.most_bytes, self.most = _limits(len(ranges))
        self.room = _Room(BUFFER_BYTES, len(ranges))
        self._heaps: dict[str, list[tuple[int, int, _Queue]]] = {}  # by broker: its queues by their first record
        self._numbers = {queue: number for number, queue in enumerate(ranges)}
        self._empty = [_Queue(queue, range, self) for queue, range in ranges.items()]
        self._all = list(self._empty)

    async def next(self) -> RecordBlock:
        """Return the next records, about BLOCK_BYTES; nothing at the end."""
        parts = list[tuple[str, bytes]]()
        size = 0
        while size < BLOCK_BYTES:
            if self._empty:
                if parts and any(one.is_awaited for one in self._empty):
                    break  # return what is there, and wait later
                await self._fill()
            heap = self._first()
            if heap is None:
                break
            if len(self._heaps) == 1 and (run := self._take_run(heap)):
                parts.append(run)
                size += len(run[1])
                continue
            queue = heap[0][2]
            record = queue.records[0]
            if record.data is None:
                if parts:
                    break  # return what is there, and wait later
                record = await queue.again(record)
            self._take(heap)
            if record.data is not None:
                parts.append((queue.queue.broker_name, record.data))
                size += len(record.data)
            if record.is_last:
                break
        return block_of(parts)

    async def _fill(self) -> None:
        if len(self._empty) == 1:  # most often; gather() makes a task
            await self._empty[0].fill()
        else:
            await asyncio.gather(*[one.fill() for one in self._empty])
        for one in self._empty:
            if one.records:
                entry = (one.records[0].phy_offset, self._numbers[one.queue], one)
                heapq.heappush(self._heaps.setdefault(one.queue.broker_name, []), entry)
        self._empty = []

    def _first(self) -> list[tuple[int, int, _Queue]] | None:
        """The broker with the earliest record; None at the end."""
        heaps = [heap for heap in self._heaps.values() if heap]
        if len(heaps) < 2:
            return heaps[0] if heaps else None
        return min(heaps, key=lambda heap: heap[0][2].records[0].store_timestamp)

    def _take_run(self, heap: list[tuple[int, int, _Queue]]) -> tuple[str, bytes] | None:
        """Take the records of a broker up to the first end of an answer, in order: a sort is faster than a heap.

        Return its name and the records. Nothing is taken if they are many, or if one of them is pulled again or is the
        last one of its block.
        """
        ends = [one.records[-1] for _, _, one in heap]
        if self.room.taken > _RUN_BYTES or any(end.is_last or end.data is None for end in ends):
            return None
        broker = heap[0][2].queue.broker_name
        bound = min([end.phy_offset for end in ends])
        found, left = list[_Record](), list[tuple[int, int, _Queue]]()
        for _, number, one in heap:
            records = one.records
            if records[-1].phy_offset > bound:
                while records[0].phy_offset <= bound:
                    found.append(records.popleft())
                left.append((records[0].phy_offset, number, one))
            else:
                found += records
                records.clear()
                self._answer_taken(one)
        heapq.heapify(left)
        heap[:] = left
        found.sort(key=_BY_PHY_OFFSET)
        return broker, b"".join([record.data for record in found if record.data is not None])

    def _answer_taken(self, one: _Queue) -> None:
        """All records of an answer are taken."""
        self.room.taken -= one.held
        if not one.is_at_end:
            self._empty.append(one)

    def _take(self, heap: list[tuple[int, int, _Queue]]) -> None:
        """Take the first record of a broker."""
        _, number, one = heap[0]
        one.records.popleft()
        if one.records:
            heapq.heapreplace(heap, (one.records[0].phy_offset, number, one))
        else:
            heapq.heappop(heap)
            self._answer_taken(one)

    def left(self) -> dict[MessageQueue, QueueRange]:
        """Return the ranges whose records were not returned yet; nothing if there are none."""
        left = {one.queue: one.left for one in self._all}
        return left if any(range.begin < range.end for range in left.values()) else {}

    async def close(self) -> None:
        """End the pulls."""
        await _cancel([one.pulling for one in self._all if one.pulling is not None])


def may_select(topic: str, expression_type: str) -> bool:
    """Whether brokers may select the messages of a topic.

    The codes of delayed messages are not those of their tags. Settings of a broker decide how it filters retries.

    >>> may_select("%RETRY%billing", TAG), may_select("%RETRY%billing", "SQL92")
    (True, False)
    """
    return topic != SCHEDULE_TOPIC and (is_tag_type(expression_type) or not topic.startswith(RETRY_PREFIX))


@dataclass
class _Followed:
    """A queue that is followed.

    last        the last message that was read before the position; None: not known
    is_reached  the last pull was answered
    """

    queue: MessageQueue
    position: int
    last: LastRead | None = None
    is_reached: bool = True


class TopicFollower:
    """The records of topics from some offsets on, without end. Use it on one event loop.

    positions  queue offsets at which to begin; queues that are not among them begin at 0
    patterns   match the names of further topics
    A topic that is deleted and made again is read from its first new message: see rocketc.client.recreated.
    Queues that are added to the topics are found within half a minute, and topics that are made within a second. Those
    that a pattern matches are found within half a minute.
    Records that come at about the same time are in order as those of TopicMerge.
    """

    def __init__(
        self,
        reader: TopicReader,
        topics: list[str],
        positions: Mapping[MessageQueue, int],
        *,
        patterns: Sequence[re.Pattern[str]] = (),
        queue_ids: frozenset[int] | None = None,
        expression: str = ALL,
        expression_type: str = TAG,
    ) -> None:
        self._reader, self._topics, self._queue_ids = reader, list(topics), queue_ids
        self._patterns = patterns
        self._expression, self._expression_type = expression, expression_type
        self._positions = dict(positions)
        self._most_bytes, self._most = _limits(len(positions))
        self._answers: asyncio.Queue[tuple[str, list[_Record]]] = asyncio.Queue(1)
        self._room, self._has_room = _Room(BUFFER_BYTES, len(positions)), asyncio.Event()
        self._tasks = {queue: asyncio.ensure_future(self._follow(queue)) for queue in positions}
        self._watching = asyncio.ensure_future(self._watch())

    async def next(self, seconds: float) -> RecordBlock:
        """Return the next records, about BLOCK_BYTES; nothing if none come in this time.

        Raises AnswerError if a broker refuses.
        """
        getting = asyncio.ensure_future(self._answers.get())
        watched = {getting, self._watching, *self._tasks.values()}
        try:
            done, _ = await asyncio.wait(watched, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            getting.cancel()  # no effect on one that is done
        if getting not in done:
            for task in done:
                task.result()
            return RecordBlock()
        answers = [getting.result()]
        size = self._room.give_back(answers[0][1])
        while size < BLOCK_BYTES and not self._answers.empty():  # otherwise it may never end
            answers.append(self._answers.get_nowait())
            size += self._room.give_back(answers[-1][1])
            await asyncio.sleep(0)  # the next one who waits puts its answer
        self._has_room.set()
        found = [
            (record.store_timestamp, name, record.phy_offset, record.data or b"")
            for name, records in answers
            for record in records
            if not record.is_last
        ]
        rest = [(name, record.data or b"") for name, records in answers for record in records if record.is_last]
        return block_of([*((name, data) for _, name, _, data in sorted(found)), *rest])

    async def _follow(self, queue: MessageQueue) -> None:
        one, loop = _Followed(queue, self._positions[queue]), asyncio.get_running_loop()
        while True:
            began = loop.time()
            pulled = await self._pull(one)
            self._positions[queue] = position = one.position
            if pulled is None:
                continue
            records, _ = _records(pulled, position, None, None)
            kept = self._room.take(records)
            if records and kept[0].data is None:
                del pulled, records
                self._has_room.clear()
                await self._has_room.wait()
                continue  # pull them again
            if pulled.next_offset <= position and loop.time() < began + _PAUSE:  # the broker has not held the pull
                await asyncio.sleep(_PAUSE)
            if pulled.status is PullStatus.OFFSET_ILLEGAL and pulled.next_offset > position:
                _log.warning(_DELETED, queue, pulled.next_offset)
            one.position = _after(pulled, position, records, kept, queue)
            self._positions[queue] = one.position
            one.last = next((record._replace(data=None) for record in reversed(kept) if not record.is_last), one.last)
            if kept:
                del pulled, records  # while it waits
                await self._answers.put((queue.broker_name, kept))

    async def _pull(self, one: _Followed) -> Pulled | None:
        """Pull once; None after a pause, or if the queue is continued at another offset."""
        how = {"expression": self._expression, "expression_type": self._expression_type}
        if not may_select(one.queue.topic, self._expression_type):  # a pattern has found it
            how = {}
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            if one.position > 0 and one.last is None and one.is_reached:
                one.last = await self._before(one.queue, one.position)
            pulled = await self._reader.pull(
                one.queue, one.position, most=self._most, most_bytes=self._most_bytes, holds=True, **how
            )
            is_moved = pulled.status is PullStatus.OFFSET_ILLEGAL and pulled.next_offset < one.position
            # Meanwhile the queue may have been made again, and may be longer than it was.
            is_late = not one.is_reached or loop.time() >= began + _AGAIN
            if one.position > 0 and (is_moved or is_late):
                offset = await self._same_or_other(one)
                is_moved = is_moved or offset != one.position
                one.position = offset
            one.is_reached = True
            if not is_moved:
                return pulled
            await asyncio.sleep(_PAUSE)  # also if a slave was behind
        except (*UNREACHABLE, AnswerError) as error:
            if isinstance(error, AnswerError) and error.code not in _PASSING:
                raise
            level = logging.WARNING if one.is_reached else logging.DEBUG
            _log.log(level, "%s is not read now; it is tried again: %s", one.queue, error)
            one.is_reached = False
            await asyncio.sleep(_AGAIN)
        return None

    async def _before(self, queue: MessageQueue, position: int) -> LastRead | None:
        """Return the message before an offset; None if the broker does not have it."""
        pulled = await self._reader.pull(queue, position - 1, most=1, most_bytes=1)
        return next((place for place in pulled.places if place.queue_offset == position - 1), None)

    async def _same_or_other(self, one: _Followed) -> int:
        """Return where to continue: at the same offset, or at another one if the queue has other messages there."""
        range = await self._reader.range_of(one.queue)
        if one.last is None:
            offset = min(one.position, range.end)
        elif await is_other(self._reader, one.queue, range, one.position, one.last):
            first = await first_after(self._reader, one.queue, range, one.last.store_timestamp)
            offset = range.end if first is None else first
        else:
            return one.position
        if offset != one.position:
            _log.warning(_MADE_AGAIN, one.queue, one.position, offset)
        return offset

    async def _watch(self) -> None:
        """Look for new queues, and for other addresses of brokers."""
        while True:
            missing = {queue.topic for queue in self._tasks} != set(self._topics)
            await asyncio.sleep(_MISSING if missing else _ROUTES)
            if self._patterns and not missing:
                self._topics += await self._asked(self._matching(), "the topics") or ()
            for topic in self._topics:
                if await self._asked(self._reader.find(topic), f"the route of topic {topic}") is None:
                    continue
                for queue in self._reader.known_queues(topic):
                    if queue not in self._tasks and (self._queue_ids is None or queue.queue_id in self._queue_ids):
                        self._positions[queue] = 0
                        self._tasks[queue] = asyncio.ensure_future(self._follow(queue))

    async def _matching(self) -> list[str]:
        """Return the names of new topics that a pattern matches."""
        known = set(self._topics)
        return [name for name in await self._reader.matching(self._patterns) if name not in known]

    async def _asked(self, question: Awaitable[T], what: str) -> T | None:
        """Return the answer of the name server; None: there is none now."""
        try:
            return await question
        except (*UNREACHABLE, AnswerError) as error:
            if isinstance(error, AnswerError) and error.code not in _PASSING:
                raise
            _log.debug("%s is not known now: %s", what, error)
            return None

    async def close(self) -> None:
        """End the pulls."""
        await _cancel([self._watching, *self._tasks.values()])
