"""What an archive reads next from the queues of a cluster, and where it continues in each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rocketc.client.connections import UNREACHABLE
from rocketc.client.queue_range import QueueRange
from rocketc.client.queue_spans import Ranges, Span, limited_ends, mean_size, ranges_of
from rocketc.client.recreated import first_after, is_other
from rocketc.client.routes import MessageQueue
from rocketc.client.topic_reader import Place, TopicReader
from rocketc.client.topic_scan import existing_topics, find_topics
from rocketc.errors import AnswerError
from rocketc.read.topics import Topic
from rocketc.remoting.codes import Code

_log = logging.getLogger("rocketc.exports")

MISSING_MESSAGES = "missing_messages"  # the reason of queue offsets that a broker did not have any more
_MEAN = 1024  # bytes of a message, as long as nothing is known
_AT_ONCE = 64  # questions under way
_PASSING = (Code.FLOW_CONTROL, Code.SYSTEM_BUSY, Code.SERVICE_NOT_AVAILABLE, Code.TOPIC_NOT_EXIST)


def is_passing(error: BaseException) -> bool:
    """Whether an error says that a broker is down, busy or starting, or that a topic was just deleted.

    >>> is_passing(AnswerError("10.0.0.1:10911", "busy", Code.SYSTEM_BUSY)), is_passing(AnswerError("", "no", 16))
    (True, False)
    """
    return isinstance(error, UNREACHABLE) or (isinstance(error, AnswerError) and error.code in _PASSING)


class Reached(NamedTuple):
    """Where an archive continues in a queue, and which message it has read last there.

    next_offset  queue offset of the next message
    last_offset, phy_offset, stored  queue offset, physical offset and store time (ms) of the last message; -1: none
    """

    next_offset: int
    last_offset: int = -1
    phy_offset: int = -1
    stored: int = -1

    @property
    def last(self) -> Place:
        """The last message that was read; its bytes are not kept."""
        return Place(self.phy_offset, self.stored, self.last_offset, 0, 0)

    def moved(self, position: int, last: Place | None) -> Reached:
        """Return the state after reading up to a queue offset.

        last  the last record that was read; None: none was read
        """
        if last is None:
            return self._replace(next_offset=position)
        return Reached(position, last.queue_offset, last.phy_offset, last.store_timestamp)


States = dict[MessageQueue, Reached]
_NEW = Reached(0)


def nested(states: Mapping[MessageQueue, Reached]) -> dict[str, dict[str, dict[str, list[int]]]]:
    """Return states as JSON objects: topic -> broker -> queue id -> numbers.

    >>> nested({MessageQueue("orders", "broker-a", 0): Reached(7, 6, 900, 1700000000000)})
    {'orders': {'broker-a': {'0': [7, 6, 900, 1700000000000]}}}
    """
    out: dict[str, dict[str, dict[str, list[int]]]] = {}
    for (topic, broker, queue_id), reached in sorted(states.items()):
        out.setdefault(topic, {}).setdefault(broker, {})[str(queue_id)] = list(reached)
    return out


def flat(queues: Mapping[str, Mapping[str, Mapping[str, Iterable[int]]]]) -> States:
    """Return the states of nested().

    >>> flat({"orders": {"broker-a": {"0": [7, 6, 900, 1700000000000]}}})[MessageQueue("orders", "broker-a", 0)]
    Reached(next_offset=7, last_offset=6, phy_offset=900, stored=1700000000000)
    """
    return {
        MessageQueue(topic, broker, int(queue_id)): Reached(*map(int, reached))
        for topic, brokers in queues.items()
        for broker, ids in brokers.items()
        for queue_id, reached in ids.items()
    }


DAMAGE_COLUMNS = ("topic", "broker", "queueId", "start", "stop", "reason")


class QueueDamage(NamedTuple):
    """Messages of a queue that an archive does not have.

    start, stop  queue offsets, half open
    reason       missing_messages, or one of the names in docs/damage.md
    """

    topic: str
    broker: str
    queue_id: int
    start: int
    stop: int
    reason: str

    def __str__(self) -> str:
        """Return a line for users.

        >>> str(QueueDamage("orders", "broker-a", 0, 5, 9, MISSING_MESSAGES))
        'orders queue 0 on broker-a: queue offsets 5 to 9 are lost: missing_messages'
        """
        queue = MessageQueue(self.topic, self.broker, self.queue_id)
        return f"{queue}: queue offsets {self.start} to {self.stop} are lost: {self.reason}"

    def to_json(self) -> dict[str, str | int]:
        """Return the values for JSON, with the names of the columns of an archive's table of damage.

        >>> QueueDamage("orders", "broker-a", 0, 5, 9, MISSING_MESSAGES).to_json()["queueId"]
        0
        """
        return dict(zip(DAMAGE_COLUMNS, self, strict=True))


def log_damage(damage: QueueDamage) -> None:
    """Write a warning to the log of the library.

    >>> log_damage(QueueDamage("orders", "broker-a", 0, 5, 9, MISSING_MESSAGES))
    """
    queue = MessageQueue(damage.topic, damage.broker, damage.queue_id)
    _log.warning("%s: queue offsets %d to %d are lost: %s", queue, damage.start, damage.stop, damage.reason)


@dataclass
class Round:
    """What a commit reads.

    spans  of the queues that have new messages
    lost   messages that were deleted before they were read
    """

    spans: list[Span] = field(default_factory=list)
    lost: list[QueueDamage] = field(default_factory=list)


class QueuePlan:
    """Plans the commits of an archive. Its methods are coroutines of the loop of their TopicReader.

    topics  names, and patterns that match the whole name
    states  where the archive continues; the owner writes what it has read
    waits   topics may appear later, and brokers may be down. Otherwise a plan ends with the messages that are there in
            the first round
    is_same the archive was made from these name servers: a queue whose messages are others was made again. Otherwise it
            is one of another cluster, and refused
    """

    def __init__(self, topics: Iterable[Topic], states: States, *, waits: bool, is_same: bool = True) -> None:
        self._topics, self.states, self._waits, self.is_same = list(topics), states, waits, is_same
        self._was_new = not states
        self._queues: list[MessageQueue] = []
        self.was_asked = False  # the topics are known
        self._fault: str | None = None  # why no name server answers now; it is logged once
        self._upto: dict[MessageQueue, int] | None = None
        self.mean: float | None = None  # bytes of a message

    def begin_at(self, states: States, is_same: bool) -> None:
        """Set what the constructor was given, after find()."""
        self.states, self.is_same, self._was_new = states, is_same, not states

    async def find(self, reader: TopicReader) -> None:
        """Ask for the topics. Raises TopicNotFoundError, and the errors of TopicReader."""
        await self._known(reader)

    async def next(self, reader: TopicReader, most_bytes: int) -> Round:
        """Return what the next commit reads: about most_bytes of messages.

        Raises TopicNotFoundError, ValueError for another cluster, and the errors of TopicReader if no server is
        reached.
        """
        ranges = await self._ranges(reader)
        if not self._waits:
            if self._upto is None:
                self._upto = {queue: range.end for queue, range in ranges.items()}
            upto = self._upto
            ranges = {queue: QueueRange(*range) for queue, range in ranges.items() if queue in upto}
        round, spans = Round(), dict[MessageQueue, QueueRange]()
        begins = await self._each(reader, ranges)
        for queue, range in ranges.items():
            begin = begins[queue]
            if begin is None:
                continue
            reached = self.states.get(queue)
            if reached is None:
                if begin > 0 and not self._was_new:
                    _log.warning("%s is new to the archive, and begins at queue offset %d", queue, begin)
                self.states[queue] = Reached(begin)
            elif begin > reached.next_offset and begin == range.begin:
                round.lost.append(QueueDamage(*queue, reached.next_offset, begin, MISSING_MESSAGES))
            end = range.end if self._upto is None else min(range.end, self._upto[queue])
            if begin < end:
                spans[queue] = QueueRange(begin, end)
        if spans:
            self.mean = self.mean or await mean_size(reader, spans)
            ends = limited_ends(spans, max(int(most_bytes / (self.mean or _MEAN)), 1))
            round.spans = [Span(queue, span.begin, ends[queue]) for queue, span in spans.items()]
            round.spans = [span for span in round.spans if span.begin < span.end]
        return round

    async def behind(self, reader: TopicReader) -> int | None:
        """Return how many messages the queues have after `states`; None: a broker does not answer."""
        try:
            ranges = await ranges_of(reader, self._queues) if self._queues else {}
        except (*UNREACHABLE, AnswerError):
            return None
        begins = {queue: max(range.begin, self.states.get(queue, _NEW).next_offset) for queue, range in ranges.items()}
        return sum(max(range.end - begins[queue], 0) for queue, range in ranges.items()) if self.was_asked else None

    async def _each(self, reader: TopicReader, ranges: Ranges) -> dict[MessageQueue, int | None]:
        """Return where to begin in each queue; None: not now."""
        queues, found = list(ranges), dict[MessageQueue, int | None]()
        for at in range(0, len(queues), _AT_ONCE):
            part = queues[at : at + _AT_ONCE]
            begins = [self._begin(reader, queue, ranges[queue]) for queue in part]
            found |= zip(part, await asyncio.gather(*begins), strict=True)
        return found

    async def _begin(self, reader: TopicReader, queue: MessageQueue, range: QueueRange) -> int | None:
        reached = self.states.get(queue)
        if reached is None or range.end == reached.next_offset:
            return range.begin if reached is None else max(reached.next_offset, range.begin)
        try:
            if not await is_other(reader, queue, range, reached.next_offset, reached.last):
                return max(reached.next_offset, range.begin)
            if not self.is_same:
                raise ValueError(
                    f"{queue}: the last archived message is not the one at queue offset {reached.last_offset}, and the "
                    "archive was made from other name servers: archive another cluster to another folder"
                )
            first = await first_after(reader, queue, range, reached.stored)
        except (*UNREACHABLE, AnswerError) as error:
            if not self._waits or not is_passing(error):
                raise
            _log.warning("%s waits: %s", queue, error)
            return None
        if first is not None:
            _log.warning(
                "%s has other messages than the archived ones: it was made again, or its broker lost messages; it is "
                "read from queue offset %d on",
                queue,
                first,
            )
        elif reached.last_offset < range.end:  # not only a slave that is behind
            _log.warning(
                "%s has other messages than the archived ones, but none that was stored later: it is not read", queue
            )
        return first

    async def _ranges(self, reader: TopicReader) -> Ranges:
        """Return the offsets of the queues that can be reached now."""
        queues = await self._known(reader)
        if not queues:
            return {}
        try:
            return await ranges_of(reader, queues)
        except (*UNREACHABLE, AnswerError) as error:
            if not self._waits or not is_passing(error):
                raise
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in queues:  # each broker on its own
            by_broker.setdefault(queue.broker_name, []).append(queue)
        answers = await asyncio.gather(*map(reader.ranges, by_broker.values()), return_exceptions=True)
        found: Ranges = {}
        for name, answer in zip(by_broker, answers, strict=True):
            if not isinstance(answer, BaseException):
                found |= answer
            elif is_passing(answer):
                _log.warning("the queues on %s wait: %s", name, answer)
            else:
                raise answer
        return {queue: found[queue] for queue in queues if queue in found}

    async def _known(self, reader: TopicReader) -> list[MessageQueue]:
        try:
            if self.was_asked:
                names = await existing_topics(reader, self._topics)
            else:
                names = await find_topics(reader, self._topics, waits=self._waits)
        except (*UNREACHABLE, AnswerError) as error:
            if not self._waits or not is_passing(error):
                raise
            level = logging.DEBUG if str(error) == self._fault else logging.WARNING
            self._fault = str(error)
            if self.was_asked:
                _log.log(level, "the queues known before are read: %s", error)
            else:
                _log.log(level, "waiting for a name server: %s", error)
            return self._queues
        self.was_asked, self._fault = True, None
        self._queues = [queue for name in names if reader.is_known(name) for queue in reader.known_queues(name)]
        return self._queues


def topic_texts(topics: Iterable[Topic]) -> list[str]:
    """Return the topics of an archive as its commits keep them.

    >>> import re
    >>> topic_texts([re.compile("bill.*"), "orders"])
    ['/bill.*/', 'orders']
    """
    return sorted({topic if isinstance(topic, str) else f"/{topic.pattern}/" for topic in topics})
