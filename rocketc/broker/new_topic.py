"""How a client creates a topic on a broker that runs elsewhere, without a message."""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Callable

from rocketc.errors import NoAnswerError
from rocketc.remoting.addresses import split_address
from rocketc.remoting.channel import Channel
from rocketc.remoting.codes import Code
from rocketc.tables.topics import DEFAULT_TOPIC, TopicConfig

SEND_MESSAGE, GET_ROUTEINFO_BY_TOPIC = 10, 105
_ROUTE_SECONDS = 5.0
_RETRY_SECONDS = 0.005
_NO_QUEUE = (1 << 31) - 1


async def create_topic(
    address: str, name_server: str, name: str, queue_nums: int, find: Callable[[], TopicConfig | None]
) -> TopicConfig:
    """Create a topic, and return it when the name server knows it.

    The broker refuses a send to a queue that does not exist, but before that it creates the topic.
    find  looks for the topic in the broker's table on the disk, which is written a moment later
    Raises ValueError if the broker does not create it, NoAnswerError if that takes too long.

    >>> import rocketc
    >>> with rocketc.Broker() as broker:
    ...     find = lambda: broker.topics.get("orders")
    ...     asyncio.run(create_topic(broker.address, broker.name_server, "orders", 2, find)).write_queue_nums
    2
    """
    loop = asyncio.get_running_loop()
    chance = random.Random()
    broker, names = (
        Channel(functools.partial(loop.create_connection, host=host, port=port), chance)
        for host, port in map(split_address, (address, name_server))
    )
    values = {
        "producerGroup": "rocketc",
        "topic": name,
        "defaultTopic": DEFAULT_TOPIC,
        "defaultTopicQueueNums": queue_nums,
        "queueId": _NO_QUEUE,
        "sysFlag": 0,
        "bornTimestamp": 0,
        "flag": 0,
    }
    deadline = loop.time() + _ROUTE_SECONDS
    try:
        answer = await broker.call(SEND_MESSAGE, values, deadline)
        if answer.code != Code.INVALID_PARAMETER:
            raise ValueError(f"{name}: the broker did not create the topic: {answer.remark}")
        while (await names.call(GET_ROUTEINFO_BY_TOPIC, {"topic": name}, deadline)).code != Code.SUCCESS:
            await asyncio.sleep(_RETRY_SECONDS)
        while (topic := find()) is None:
            if loop.time() > deadline:
                raise NoAnswerError("no answer in time; the request may have been carried out")
            await asyncio.sleep(_RETRY_SECONDS)
        return topic
    finally:
        broker.close()
        names.close()
