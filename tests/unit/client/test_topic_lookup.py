"""TopicLookup: the messages of one topic, also where the index of a broker takes another topic or key for it.

RocketMQ's index holds hashes of "topic#key", and a broker returns every message with the hash. "Aa" and "BB" have the
same hash in Java.
"""

import asyncio

import pytest

from rocketc.client.access import access_to
from rocketc.client.topic_lookup import TopicLookup

TOPIC, SAME_HASH = "lookup-Aa", "lookup-BB"


@pytest.fixture(scope="module")
def sent(broker, producer):
    """Results of the sends of one message to each topic, with the same key."""
    results = {topic: producer.send(topic, topic.encode(), keys="o-Aa") for topic in (TOPIC, SAME_HASH)}
    broker.store.wait_dispatched(60)
    return results


def with_key(broker, topic, key):
    async def ask():
        async with TopicLookup(access_to(broker.name_server)) as lookup:
            return [message.body for message in await lookup.with_key(topic, [key])]

    return asyncio.run(ask())


@pytest.mark.parametrize("topic", [TOPIC, SAME_HASH])
def test_a_key_is_found_in_its_topic_only(broker, sent, topic):
    assert with_key(broker, topic, "o-Aa") == [topic.encode()]


@pytest.mark.parametrize("topic", [TOPIC, SAME_HASH])
def test_a_unique_id_is_found_in_its_topic_only(broker, sent, topic):
    assert {other: with_key(broker, topic, result.msg_id) for other, result in sent.items()} == {
        TOPIC: [], SAME_HASH: [], topic: [topic.encode()],
    }  # fmt: skip


def test_another_key_with_the_same_hash_is_not_found(broker, sent):
    assert with_key(broker, TOPIC, "o-BB") == []
