"""Which queues and offsets of a cluster a query reads, and how they are divided among tasks. It runs on the driver."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rocketc.client.queue_range import QueueRange
from rocketc.client.queue_spans import Ranges, Span, ranges_of
from rocketc.client.routes import MessageQueue
from rocketc.client.topic_reader import TopicReader
from rocketc.client.topic_scan import existing_topics
from rocketc.read.parallel import processors
from rocketc.read.topics import missing_text
from rocketc.spark.cluster_offsets import NO_BOUNDS, Bounds, QueueName
from rocketc.spark.growing_log import DataLossError
from rocketc.spark.offset_options import EARLIEST, LATEST, is_asked

LEAST_MESSAGES = 20_000  # of a task, unless minPartitions asks for smaller ones
MOST_MESSAGES = 1_000_000
_MOST_TASKS = 100_000  # with more messages: a broker whose offsets are wrong must not take the memory of the driver


@dataclass(frozen=True)
class Losses:
    """What happens if messages that a query has to read are not there.

    fails  DataLossError is raised; otherwise a line on stderr reports the loss, and the query continues
    """

    fails: bool = True

    def lose(self, queue: MessageQueue, begin: int, end: int, why: str) -> None:
        """Report the loss of the queue offsets [begin, end). Raises DataLossError.

        >>> Losses().lose(MessageQueue("orders", "broker-a", 0), 5, 9, "the broker has deleted them")
        Traceback (most recent call last):
            ...
        rocketc.spark.growing_log.DataLossError: rocketmq: orders queue 0 on broker-a: queue offsets 5 to 9 are lost: \
the broker has deleted them; use option failOnDataLoss=false to continue with the remaining data
        """
        what = f"{queue}: queue offsets {begin} to {end} are lost: {why}"
        if self.fails:
            raise DataLossError(
                f"rocketmq: {what}; use option failOnDataLoss=false to continue with the remaining data"
            )
        print(f"rocketc: {what}", file=sys.stderr)


STRICT = Losses()


class Topics:
    """The queues that the options select, as the cluster has them now.

    topics      names, and compiled patterns that match the whole name
    bounds      of the options
    must_exist  a name that does not exist is an error
    """

    def __init__(self, topics: Iterable[Any], bounds: Bounds, must_exist: bool = True) -> None:
        self._topics, self._bounds, self._must_exist = list(topics), bounds, must_exist

    async def queues(self, reader: TopicReader) -> list[MessageQueue]:
        """Ask for the queues. Raises ValueError for a topic that does not exist, and the errors of TopicReader."""
        found = await existing_topics(reader, self._topics)
        missing = [topic for topic in self._topics if isinstance(topic, str) and topic not in set(found)]
        if missing and self._must_exist:
            text = missing_text(missing, set(await reader.topics()), "this cluster")
            option = "subscribe" if self._bounds.assigned is None else "assign"
            text = text if text.endswith("?") else f"{text};"
            raise ValueError(f"rocketmq: option {option}: {text} set failOnMissingTopic=false to read what is there")
        return [
            queue
            for name in found
            for queue in reader.known_queues(name)
            if self._bounds.selects(name, queue.broker_name, queue.queue_id)
        ]


def named_offsets(
    option: str, offsets: Mapping[str, Mapping[QueueName, int]], queues: Collection[MessageQueue]
) -> dict[MessageQueue, int]:
    """Return the offsets of an option by queue.

    option  its name, for errors
    Raises ValueError for a queue that does not exist, and for a queue id that several brokers have.

    >>> queues = [MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-b", 0)]
    >>> named_offsets("startingOffsets", {"orders": {QueueName("broker-b", 0): 7}}, queues)
    {MessageQueue(topic='orders', broker_name='broker-b', queue_id=0): 7}
    >>> named_offsets("startingOffsets", {"orders": {QueueName(None, 0): 7}}, queues)
    Traceback (most recent call last):
        ...
    ValueError: rocketmq: option startingOffsets: 'orders' has several queues 0; write broker-a:0 or broker-b:0
    """
    out: dict[MessageQueue, int] = {}
    for topic, given in offsets.items():
        own = [queue for queue in queues if queue.topic == topic]
        for name, offset in given.items():
            matching = [one for one in own if one.queue_id == name.queue_id and name.broker in (None, one.broker_name)]
            if not own:
                continue  # a topic that does not exist is reported, unless failOnMissingTopic=false
            if not matching:
                known = ", ".join(f"{one.broker_name}:{one.queue_id}" for one in own[:8])
                more = ", ..." if len(own) > 8 else ""
                raise ValueError(f"rocketmq: option {option}: {topic!r} does not have queue {name}, but {known}{more}")
            if len(matching) > 1:
                words = " or ".join(f"{one.broker_name}:{one.queue_id}" for one in matching[:4])
                raise ValueError(f"rocketmq: option {option}: {topic!r} has several queues {name}; write {words}")
            out[matching[0]] = offset
    return out


async def begins_at(reader: TopicReader, ranges: Ranges, time: int) -> dict[MessageQueue, int]:
    """Return the offset of each queue from which on all messages stored at a time or later are, ms since 1970."""
    return await reader.each(ranges, lambda queue: reader.offset_at(queue, time))


async def ends_at(reader: TopicReader, ranges: Ranges, time: int) -> dict[MessageQueue, int]:
    """Return an offset of each queue before which all messages stored before a time are.

    A broker may answer with the nearest message, and with any one of several of the same ms. So the end of the queue is
    returned unless the message at the offset was certainly stored at the time or later.
    """

    async def end_of(queue: MessageQueue) -> int:
        begin, end = ranges[queue]
        offset = await reader.offset_at(queue, time + 1)
        if not begin <= offset < end:
            return end
        places = (await reader.pull_surely(queue, offset, most=1)).places
        return offset if places and places[0].store_timestamp >= time and places[0].queue_offset == offset else end

    return await reader.each(ranges, end_of)


async def check_reading(reader: TopicReader, spans: Iterable[Span]) -> None:
    """Pull a message of each topic from each of its brokers: one that refuses does it here, and not in all tasks."""
    first: dict[tuple[str, str], Span] = {}
    for span in spans:
        if span.begin < span.end:
            first.setdefault(span.queue[:2], span)
    await reader.each(
        [span.queue for span in first.values()],
        lambda queue: reader.pull_surely(queue, first[queue[:2]].begin, most=1, most_bytes=1),
    )


@dataclass(frozen=True)
class BatchPlan:
    """The plan of a batch query.

    topics       of the options
    bounds       of the options
    must_exist   a topic that does not exist is an error
    losses       what happens if a starting offset of the options was deleted, or an ending one is not there yet
    begin, end   store times, ms since 1970
    min_tasks    least number of tasks, if there are enough messages; None: one for each core
    narrowed     names and patterns of topics that filters of the query leave; None: all
    queue_ids    queue ids that filters of the query leave; None: all
    """

    topics: tuple[Any, ...]
    bounds: Bounds = NO_BOUNDS
    must_exist: bool = True
    losses: Losses = STRICT
    begin: int | None = None
    end: int | None = None
    min_tasks: int | None = None
    narrowed: tuple[Any, ...] | None = None
    queue_ids: frozenset[int] | None = None

    async def tasks(self, reader: TopicReader) -> list[tuple[Span, ...]]:
        """Return what each task reads. Raises ValueError, DataLossError and the errors of TopicReader."""
        every = await Topics(self.topics, self.bounds, self.must_exist).queues(reader)
        starting = named_offsets("startingOffsets", self.bounds.starting, every)
        ending = named_offsets("endingOffsets", self.bounds.ending, every)
        queues = [queue for queue in every if self._is_left(queue)]
        ranges = await ranges_of(reader, queues)
        spans = {queue: self._bounded(queue, range, starting, ending) for queue, range in ranges.items()}
        spans = {queue: range for queue, range in spans.items() if range.begin < range.end}
        if self.begin is not None:
            first = await begins_at(reader, spans, self.begin)
            spans = {queue: range.begun_at(first[queue]) for queue, range in spans.items()}
        if self.end is not None:
            last = await ends_at(reader, spans, self.end)
            spans = {queue: QueueRange(range.begin, min(range.end, last[queue])) for queue, range in spans.items()}
        found = [Span(queue, *range) for queue, range in spans.items()]
        await check_reading(reader, found)
        return divide(found, self.min_tasks)

    def _is_left(self, queue: MessageQueue) -> bool:
        """Whether the filters of the query leave a queue."""
        return is_asked(queue.topic, self.narrowed) and (self.queue_ids is None or queue.queue_id in self.queue_ids)

    def _bounded(
        self,
        queue: MessageQueue,
        range: QueueRange,
        starting: Mapping[MessageQueue, int],
        ending: Mapping[MessageQueue, int],
    ) -> QueueRange:
        begin, end = starting.get(queue, EARLIEST), ending.get(queue, LATEST)
        begin = {EARLIEST: range.begin, LATEST: range.end}.get(begin, begin)
        end = range.end if end == LATEST else end
        if begin < min(range.begin, end):
            self.losses.lose(queue, begin, min(range.begin, end), f"the queue begins at {range.begin}")
        if max(begin, range.end) < end:
            self.losses.lose(queue, max(begin, range.end), end, f"the queue ends at {range.end}")
        return QueueRange(max(begin, range.begin), min(end, range.end))


def divide(spans: Iterable[Span], min_tasks: int | None = None) -> list[tuple[Span, ...]]:
    """Divide the offsets of queues among tasks: long ranges are cut into equal parts, short ones are read together.

    min_tasks  least number of tasks, if there are enough messages; None: one for each core that this process may use,
               with at least LEAST_MESSAGES. A task has at most MOST_MESSAGES, unless that are too many tasks

    >>> queues = [MessageQueue("orders", "broker-a", number) for number in range(3)]
    >>> spans = [Span(queues[0], 0, 60), Span(queues[1], 5, 15), Span(queues[2], 7, 17), Span(queues[2], 3, 3)]
    >>> [[(one.queue.queue_id, one.begin, one.end) for one in task] for task in divide(spans, 4)]
    [[(0, 0, 20)], [(0, 20, 40)], [(0, 40, 60)], [(1, 5, 15), (2, 7, 17)]]
    """
    spans = [span for span in spans if span.begin < span.end]
    total = sum(span.end - span.begin for span in spans)
    even = total // max(min_tasks or processors(), 1)  # rounded down, so that there are enough tasks
    limit = min(max(even, 1 if min_tasks else LEAST_MESSAGES), max(MOST_MESSAGES, total // _MOST_TASKS))
    tasks: list[list[Span]] = []
    room = 0
    for span in spans:
        size = span.end - span.begin
        parts = -(-size // limit)
        cuts = [span.begin + size * number // parts for number in range(parts + 1)]
        for begin, end in itertools.pairwise(cuts):
            if not tasks or room < end - begin:
                tasks.append([])
                room = limit
            tasks[-1].append(Span(span.queue, begin, end))
            room -= end - begin
    return [tuple(task) for task in tasks]
