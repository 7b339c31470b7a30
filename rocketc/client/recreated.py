"""Where a reader continues in a queue that is another one: its topic was deleted and made again, and begins at 0.

The messages of the queue up to the reader's offset are others than those that it had. It continues with the first
message that was stored after the last one that it had. So it reads a new queue from its beginning, and a queue whose
broker lost its last messages from there. The clocks of brokers must not go back.
"""

from __future__ import annotations

import contextlib
from typing import Protocol

from rocketc.client.pull_decisions import PullStatus
from rocketc.client.queue_range import QueueRange
from rocketc.client.routes import MessageQueue
from rocketc.client.starting_offsets import OffsetQueries
from rocketc.client.topic_reader import TopicReader
from rocketc.errors import AnswerError


class LastRead(Protocol):
    """The last message that a reader had of a queue."""

    @property
    def queue_offset(self) -> int: ...

    @property
    def phy_offset(self) -> int: ...

    @property
    def store_timestamp(self) -> int: ...


async def is_other(
    reader: TopicReader, queue: MessageQueue, range: QueueRange, next_offset: int, last: LastRead
) -> bool:
    """Whether the last message is not in the queue, although one at its place or before it is.

    range  of the queue now

    >>> import asyncio, rocketc
    >>> from rocketc.client.access import access_to
    >>> from rocketc.client.topic_reader import Place
    >>> async def main(name_server, last):
    ...     async with TopicReader(access_to(name_server)) as reader:
    ...         queue = (await reader.queues("orders"))[0]
    ...         return await is_other(reader, queue, await reader.range_of(queue), 1, last)
    >>> with rocketc.Broker() as broker, rocketc.client.Producer("shop", broker.name_server) as producer:
    ...     _ = [producer.send("orders", b"one") for _ in range(4)]
    ...     asyncio.run(main(broker.name_server, Place(7, 1700000000000, 0, 0, 0)))
    True
    """
    if range.begin <= last.queue_offset < range.end:
        pulled = await reader.pull_surely(queue, last.queue_offset, most=1, most_bytes=1)
        place = pulled.places[0] if pulled.places else None
        if place is None or place.queue_offset != last.queue_offset:
            return False
        return (place.phy_offset, place.store_timestamp) != (last.phy_offset, last.store_timestamp)
    return range.end < next_offset


async def first_after(reader: TopicReader, queue: MessageQueue, range: QueueRange, stored: int) -> int | None:
    """Return the queue offset of the first message that was stored after a time, in ms; None if there is none.

    >>> import asyncio, rocketc
    >>> from rocketc.client.access import access_to
    >>> async def main(name_server):
    ...     async with TopicReader(access_to(name_server)) as reader:
    ...         queue = (await reader.queues("orders"))[0]
    ...         return await first_after(reader, queue, await reader.range_of(queue), 1700000000000)
    >>> with rocketc.Broker() as broker, rocketc.client.Producer("shop", broker.name_server) as producer:
    ...     _ = [producer.send("orders", b"one") for _ in range(4)]
    ...     asyncio.run(main(broker.name_server))
    0
    """
    offset = max(range.begin, min(await reader.offset_at(queue, stored + 1), range.end))
    while offset < range.end:
        pulled = await reader.pull_surely(queue, offset, most=1024, most_bytes=256 << 10)
        for place in pulled.places:
            if place.queue_offset >= offset and place.store_timestamp > stored:
                return place.queue_offset
        if pulled.next_offset <= offset:
            return None
        offset = pulled.next_offset
    return None


async def continued_at(
    queue: MessageQueue, offset: int, end: int, stored: int | None, consumed: int, broker: OffsetQueries
) -> int:
    """Return where a consumer continues in a queue that may be another one: at its offset, or at a smaller one.

    offset    of the next pull
    end       of the queue now
    stored    when the last message was stored that the consumer has pulled, ms since 1970; None: it has pulled none
    consumed  the consumer's progress: messages that it has pulled, and not consumed, come again
    If it is not known what the queue is, the consumer continues at the end. Brokers of 4.x may return an earlier
    message than the first later one. Raises an error of the connection.

    >>> import asyncio
    >>> class Broker:
    ...     async def search_offset(self, queue, timestamp): return 0  # all its messages are later
    >>> asyncio.run(continued_at(MessageQueue("orders", "broker-a", 0), 100, 7, 1700000000000, 100, Broker()))
    0
    """
    found = end
    if stored is not None:
        with contextlib.suppress(AnswerError):  # the consumer may not ask for that
            found = min(await broker.search_offset(queue, stored + 1), end)
    if found >= offset:
        return offset
    return max(0, min(found, consumed)) if consumed >= 0 else max(0, found)


def is_beyond_end(status: PullStatus, offset: int, max_offset: int) -> bool:
    """Whether a broker has answered to a pull that the queue ends before its offset.

    >>> is_beyond_end(PullStatus.OFFSET_ILLEGAL, 100, 7), is_beyond_end(PullStatus.OFFSET_ILLEGAL, 3, 7)
    (True, False)
    """
    return status is PullStatus.OFFSET_ILLEGAL and offset > max_offset
