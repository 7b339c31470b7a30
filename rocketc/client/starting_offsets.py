"""Where a consumer begins to read a queue.

Source: RocketMQ RebalancePushImpl.computePullFromWhereWithException.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Protocol

from rocketc._layout import RETRY_PREFIX
from rocketc.client.offset_stores import FAILED, NOT_FOUND
from rocketc.client.routes import MessageQueue
from rocketc.remoting.subscribing import ConsumeFromWhere

_HALF_AN_HOUR = 30 * 60_000
_TIMESTAMP = "%Y%m%d%H%M%S"


class OffsetQueries(Protocol):
    """Asks the broker of a queue. Both raise AnswerError, or an error of the connection."""

    async def max_offset(self, queue: MessageQueue) -> int: ...

    async def search_offset(self, queue: MessageQueue, timestamp: int) -> int: ...


async def compute_pull_from_where(
    queue: MessageQueue,
    where: ConsumeFromWhere,
    timestamp: int,
    read: Callable[[MessageQueue], Awaitable[int]],
    broker: OffsetQueries,
) -> int:
    """Return the offset of the first pull. A negative one is an error: do not add the queue, and try again later.

    where      for a group without an offset in this queue
    timestamp  ms since 1970, for CONSUME_FROM_TIMESTAMP
    read       reads the offset from the store, not from memory: it returns an offset, NOT_FOUND or FAILED
    Raises the errors of `broker`.

    >>> import asyncio
    >>> async def read(queue): return -1
    >>> queue, where = MessageQueue("orders", "broker-a", 0), ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    >>> asyncio.run(compute_pull_from_where(queue, where, 0, read, None))
    0
    """
    stored = await read(queue)
    if stored >= 0:
        return stored
    if stored != NOT_FOUND:
        return FAILED
    is_retry = queue.topic.startswith(RETRY_PREFIX)
    if where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
        return 0  # if the queue begins later, the broker corrects it
    if where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
        return await (broker.max_offset(queue) if is_retry else broker.search_offset(queue, timestamp))
    return 0 if is_retry else await broker.max_offset(queue)


def beginning(consume_timestamp: str | None, now: int) -> int:
    """Return where CONSUME_FROM_TIMESTAMP begins, as ms since 1970.

    consume_timestamp  as for parse_consume_timestamp(); None: half an hour ago

    >>> beginning(None, 1_800_000)
    0
    """
    return now - _HALF_AN_HOUR if consume_timestamp is None else parse_consume_timestamp(consume_timestamp)


def parse_consume_timestamp(text: str) -> int:
    """Return the time of RocketMQ's consumeTimestamp, yyyyMMddHHmmss in local time, as ms since 1970.

    Raises ValueError.

    >>> parse_consume_timestamp("20260102030405") == int(datetime(2026, 1, 2, 3, 4, 5).timestamp()) * 1000
    True
    """
    try:
        if len(text) != 14 or not (text.isascii() and text.isdecimal()):
            raise ValueError(text)
        return int(datetime.strptime(text, _TIMESTAMP).timestamp()) * 1000
    except (ValueError, OverflowError):
        raise ValueError(
            f"consume_timestamp is {text[:40]!r}, which is not a time in the form yyyyMMddHHmmss"
        ) from None
