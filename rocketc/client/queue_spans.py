"""Parts of queues that tools read: their offsets now, how many messages a batch takes, and a reader of one part."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple, Protocol

from rocketc.client.connections import UNREACHABLE
from rocketc.client.pull_decisions import PullStatus
from rocketc.client.queue_range import QueueRange
from rocketc.client.routes import MessageQueue
from rocketc.client.topic_reader import Place, Pulled, TopicReader
from rocketc.client.topic_scan import Expression
from rocketc.errors import AnswerError, RocketcError
from rocketc.remoting.subscribing import ALL

_log = logging.getLogger("rocketc.client")

PULL_BYTES, PULL_MESSAGES = 1 << 20, 4096  # of a pull, the most
REACH_SECONDS = 30.0  # for which a reader tries to reach a broker, at least
_PAUSE = 0.5  # seconds before a broker is asked again for messages that it should have
_TRIES = 5
_MANY_QUEUES = 32  # one request for all queues of a topic is faster than two for each
_AT_ONCE = 64  # topics that are asked for at the same time
_SAMPLED = 3  # queues whose next messages are pulled for their size,
_SAMPLE, _SAMPLE_BYTES = 32, 64 << 10  # at most, of each
Ranges = dict[MessageQueue, QueueRange]


class Span(NamedTuple):
    """Queue offsets, [begin, end), of a queue that a task reads."""

    queue: MessageQueue
    begin: int
    end: int


class Losing(Protocol):
    """What happens if messages of a span are not there."""

    def lose(self, queue: MessageQueue, begin: int, end: int, why: str) -> None:
        """Take note of the loss of the queue offsets [begin, end), or raise."""


async def ranges_of(reader: TopicReader, queues: Iterable[MessageQueue]) -> Ranges:
    """Return the offsets of queues now: if they are many, with one request for a topic to each of its brokers.

    >>> import asyncio, rocketc
    >>> from rocketc.client.access import access_to
    >>> async def main(name_server):
    ...     async with TopicReader(access_to(name_server)) as reader:
    ...         return await ranges_of(reader, await reader.queues("TBW102"))
    >>> with rocketc.Broker() as broker:
    ...     set(asyncio.run(main(broker.name_server)).values())
    {QueueRange(begin=0, end=0)}
    """
    queues, found = list(queues), dict[MessageQueue, QueueRange]()
    wanted = set(queues)

    async def ask(topic: str) -> None:
        with suppress(AnswerError):  # an account that may read may not ask for that
            states = await reader.state(topic)
            for queue, (first, behind, *_) in states.items():
                if queue in wanted:
                    found[queue] = QueueRange(max(first, 0), max(first, behind, 0))

    topics = list(dict.fromkeys(queue.topic for queue in queues)) if len(queues) >= _MANY_QUEUES else []
    for at in range(0, len(topics), _AT_ONCE):
        await asyncio.gather(*map(ask, topics[at : at + _AT_ONCE]))
    found |= await reader.ranges([queue for queue in queues if queue not in found])
    return {queue: found[queue] for queue in queues}


async def mean_size(reader: TopicReader, spans: Mapping[MessageQueue, QueueRange]) -> float | None:
    """Return the mean size of some next messages of the longest spans, in bytes; None if none can be read.

    >>> import asyncio, rocketc
    >>> from rocketc.client.access import access_to
    >>> async def main(name_server):
    ...     async with TopicReader(access_to(name_server)) as reader:
    ...         return await mean_size(reader, await ranges_of(reader, await reader.queues("orders")))
    >>> with rocketc.Broker() as broker, rocketc.client.Producer("shop", broker.name_server) as producer:
    ...     _ = producer.send("orders", bytes(1000))
    ...     1000 < asyncio.run(main(broker.name_server)) < 1500
    True
    """
    most = sorted(spans, key=lambda queue: spans[queue].begin - spans[queue].end)[:_SAMPLED]
    sizes: list[int] = []
    for queue in most:
        if spans[queue].begin < spans[queue].end:
            try:
                pulled = await reader.pull(queue, spans[queue].begin, most=_SAMPLE, most_bytes=_SAMPLE_BYTES)
            except RocketcError:
                continue  # those who read the span report it
            sizes += [place.stop - place.start for place in pulled.places]
    return sum(sizes) / len(sizes) if sizes else None


def limited_ends(spans: Mapping[MessageQueue, QueueRange], most: int | None) -> dict[MessageQueue, int]:
    """Return the ends of a batch with a number of messages, which are shared out by the lengths of the queues.

    >>> queues = [MessageQueue("orders", "broker-a", number) for number in range(3)]
    >>> spans = {queues[0]: QueueRange(0, 600), queues[1]: QueueRange(5, 305), queues[2]: QueueRange(7, 8)}
    >>> list(limited_ends(spans, 31).values()), list(limited_ends(spans, None).values())
    ([20, 15, 8], [600, 305, 8])
    """
    sizes = {queue: span.end - span.begin for queue, span in spans.items()}
    total = sum(sizes.values())
    if most is None or total <= most:
        return {queue: span.end for queue, span in spans.items()}
    shares = {queue: size * most // total for queue, size in sizes.items()}
    rest = most - sum(shares.values())
    rising = [queue for queue, size in sizes.items() if shares[queue] < size]
    rising.sort(key=lambda queue: (shares[queue] > 0, -(sizes[queue] * most % total)))  # first those without a share
    for queue in rising[:rest]:
        shares[queue] += 1
    return {queue: span.begin + shares[queue] for queue, span in spans.items()}


class SpanReader:
    """Reads the queue offsets of a span, one pull after the other; the next one is under way. Use it on one event loop.

    expression  by which the broker selects
    losses      what happens if messages are not there
    reach       seconds for which it tries to reach a broker, at least
    may_end     a queue may end before the span: then the span ends there, and nothing is lost
    queue       of the span
    position    queue offset after the records that next() has returned, and after what is lost
    last        the last of these records
    A record with several messages belongs to the span that has its first one.
    """

    def __init__(
        self,
        reader: TopicReader,
        span: Span,
        expression: Expression,
        losses: Losing,
        reach: float = REACH_SECONDS,
        may_end: bool = False,
    ) -> None:
        self._reader, self._span, self._expression, self._losses = reader, span, expression, losses
        self._reach, self._may_end = reach, may_end
        self.queue, self.position = span.queue, span.begin
        self.last: Place | None = None
        self._pulling: asyncio.Task[Pulled] | None = None
        self._tries = 0

    async def begin(self) -> None:
        """Begin the first pull."""
        if not self._reader.is_known(self._span.queue.topic):
            await self._reader.find(self._span.queue.topic)
        self._pull()

    async def try_to_begin(self) -> None:
        """Begin the first pull, unless the name server is not reached: next() waits for it."""
        with suppress(*UNREACHABLE):
            await self.begin()

    async def next(self) -> bytes:
        """Return the next records; nothing at the end. Raises DataLossError and the errors of TopicReader."""
        while self.position < (end := self._span.end):
            pulled = await self._pulled()
            position = self.position
            if pulled.next_offset <= position or (pulled.status is PullStatus.OFFSET_ILLEGAL and not pulled.body):
                await self._stay(pulled)
                continue
            self._tries = 0
            places = [place for place in pulled.places if position <= place.queue_offset < end]
            behind = 1 + places[-1].queue_offset if places else 0  # a wrong next offset repeats no message
            moved = min(max(pulled.next_offset, behind), end)
            found = places[0].queue_offset if places else moved
            # Bytes that are not a record: the scan reports them. After records, the next answer begins with them.
            has_rest = bool(pulled.body) and not pulled.places and moved < end
            if found > position and (not places or self._expression.expression == ALL):
                is_empty = not (pulled.places or has_rest)
                await self._check(position, found, is_empty=is_empty)  # if it fails, nothing has moved
            self.position, self.last = moved, places[-1] if places else self.last
            if self.position < end:
                self._pull()  # while the caller decodes
            if pulled.places and pulled.places[-1].queue_offset >= end:
                self.position = end
            first = places[0].start if places else 0
            last = places[-1].stop if places else 0
            if has_rest:
                last = len(pulled.body)
            if last > first:
                return pulled.body[first:last]
        return b""

    def _pull(self) -> None:
        if self._pulling is None:
            most = min(self._span.end - self.position, PULL_MESSAGES)
            pull = self._reader.pull_surely(
                self._span.queue, self.position, most=most, most_bytes=PULL_BYTES, **self._expression._asdict()
            )
            self._pulling = asyncio.ensure_future(pull)

    async def _pulled(self) -> Pulled:
        """Return the next answer. A broker that is down is waited for: it may come back, or move."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._reach
        while True:
            try:
                await self.begin()
                pulling, self._pulling = self._pulling, None
                assert pulling is not None
                return await pulling
            except UNREACHABLE as error:
                if loop.time() >= deadline:
                    raise
                _log.warning("%s is not read now; it is tried again: %s", self._span.queue, error)
                await asyncio.sleep(_PAUSE)

    async def _stay(self, pulled: Pulled) -> None:
        """An answer that does not move the position: messages were deleted, or are not there yet."""
        queue, _, end = self._span
        first, behind = await self._reader.range_of(queue)
        if first > self.position:
            found = min(first, end)
            self._losses.lose(queue, self.position, found, f"the broker has deleted them: the queue begins at {first}")
            self.position = found
            return
        self._tries += 1
        if self._tries < _TRIES:
            await asyncio.sleep(_PAUSE)  # a slave that takes over may lack the last messages for a moment
            await self._reader.find(queue.topic)
        elif self._may_end and behind < end:
            self._span = self._span._replace(end=self.position)
        else:
            why = f"the queue ends at {behind}" if behind < end else f"the broker answers {pulled.status.name}"
            self._losses.lose(queue, self.position, end, why)
            self.position = end

    async def _check(self, begin: int, end: int, *, is_empty: bool) -> None:
        """Look for the reason of a gap. The broker selects, or keeps only the last message of each key.

        is_empty  the answer does not have messages
        """
        queue = self._span.queue
        first, _ = await self._reader.range_of(queue)
        if first > begin:
            why = f"the broker has deleted them: the queue begins at {first}"
            self._losses.lose(queue, begin, min(first, end), why)
        elif is_empty and self._expression.expression == ALL:
            self._losses.lose(queue, begin, end, "the broker does not have them any more")

    async def close(self) -> None:
        """End a pull that is under way."""
        if self._pulling is not None:
            self._pulling.cancel()
            await asyncio.gather(self._pulling, return_exceptions=True)
            self._pulling = None
