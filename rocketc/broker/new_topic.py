"""How a client creates a topic on a broker that runs elsewhere, without a message."""

from __future__ import annotations

import asyncio
import functools
import random

from rocketc.broker.name_servers import split_address
from rocketc.remoting.channel import Channel
from rocketc.remoting.codes import Code
from rocketc.tables.topics import DEFAULT_TOPIC

SEND_MESSAGE, GET_ROUTEINFO_BY_TOPIC = 10, 105
_ROUTE_SECONDS = 5.0
_RETRY_SECONDS = 0.005
_NO_QUEUE = (1 << 31) - 1


async def create_topic(address: str, name_server: str, name: str, queue_nums: int) -> str | None:
    """Create a topic without a message, and return when the name server knows it.

    The send to a queue that does not exist is refused after its topic was created.
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
            return answer.remark
        while (await names.call(GET_ROUTEINFO_BY_TOPIC, {"topic": name}, deadline)).code != Code.SUCCESS:
            await asyncio.sleep(_RETRY_SECONDS)
        return answer.remark
    finally:
        broker.close()
        names.close()
