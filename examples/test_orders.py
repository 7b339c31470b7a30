"""Tests of a small shop against a real broker: pytest examples/test_orders.py

The fixtures come from rocketc's pytest plugin. docs/howto/testing.md explains them.
"""

import pytest

import rocketc
from rocketc.client import Producer, PullConsumer


def place_order(name_server: str, topic: str, order: bytes) -> str:
    """The program under test: it sends a message, and returns its id."""
    with Producer("shop", name_server) as producer:
        return producer.send(topic, order, tags="web", keys="o-1").msg_id


def test_an_order_is_stored(rocketmq_broker, rocketmq_topic):
    sent = place_order(rocketmq_broker.name_server, rocketmq_topic, b"one bicycle")
    [message] = rocketc.scan(rocketmq_broker.path, topics=rocketmq_topic)
    assert (message.body, message.tags, message.keys) == (b"one bicycle", "web", "o-1")
    assert message.properties["UNIQ_KEY"] == sent


def test_a_consumer_gets_the_order(rocketmq_broker, rocketmq_topic):
    place_order(rocketmq_broker.name_server, rocketmq_topic, b"one bicycle")
    with PullConsumer(
        rocketmq_topic, rocketmq_broker.name_server, consume_from_where="CONSUME_FROM_FIRST_OFFSET"
    ) as consumer:
        consumer.subscribe(rocketmq_topic)
        [message] = consumer.poll(timeout=10_000)
    assert message.body == b"one bicycle"


def test_an_order_that_is_too_long_is_refused(rocketmq_broker, rocketmq_topic):
    with pytest.raises(rocketc.IllegalMessageError, match="max_message_size allows 4194304"):
        place_order(rocketmq_broker.name_server, rocketmq_topic, bytes(5 << 20))
    assert list(rocketc.scan(rocketmq_broker.path, topics=rocketmq_topic)) == []
