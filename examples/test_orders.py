"""Tests of a small producer against a real broker: pytest examples/test_orders.py

The fixtures come from rocketc's pytest plugin. docs/howto/testing.md explains them.
"""

import asyncio
import functools
import random

import rocketc
from rocketc.remoting.channel import Channel

SEND_MESSAGE = 10


async def send_order(broker: str, topic: str, body: bytes) -> int:
    """The program under test: it sends a message, and returns the code of the answer; 0 is success."""
    loop = asyncio.get_running_loop()
    host, _, port = broker.rpartition(":")
    channel = Channel(functools.partial(loop.create_connection, host=host, port=int(port)), random.Random())
    message = {
        "producerGroup": "shop",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": 0,
        "sysFlag": 0,
        "bornTimestamp": 0,
        "flag": 0,
    }
    try:
        answer = await channel.call(SEND_MESSAGE, message, loop.time() + 3, body)
        return answer.code
    finally:
        channel.close()


def test_an_order_is_stored(rocketmq_broker, rocketmq_topic):
    code = asyncio.run(send_order(rocketmq_broker.address, rocketmq_topic, b"order 1"))
    assert code == 0
    [message] = rocketc.scan(rocketmq_broker.path, topics=rocketmq_topic)
    assert (message.body, message.queue_id) == (b"order 1", 0)


def test_an_order_that_is_too_long_is_refused(rocketmq_broker, rocketmq_topic):
    code = asyncio.run(send_order(rocketmq_broker.address, rocketmq_topic, bytes(5 << 20)))
    assert code == 13  # MESSAGE_ILLEGAL: it is longer than 4 MiB
    assert list(rocketc.scan(rocketmq_broker.path, topics=rocketmq_topic)) == []
