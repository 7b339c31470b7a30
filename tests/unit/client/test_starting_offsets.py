"""Where a consumer begins: each cell of RocketMQ's table."""

import asyncio

import pytest

from rocketc.client.offset_stores import FAILED, NOT_FOUND
from rocketc.client.routes import MessageQueue
from rocketc.client.starting_offsets import compute_pull_from_where, parse_consume_timestamp
from rocketc.errors import NoAnswerError
from rocketc.remoting.subscribing import ConsumeFromWhere

LAST = [
    ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST,
    ConsumeFromWhere.CONSUME_FROM_MIN_OFFSET,
    ConsumeFromWhere.CONSUME_FROM_MAX_OFFSET,
]
FIRST, TIMESTAMP = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
MAX, SEARCHED = 23456, 12345


class Broker:
    """A broker that answers, or fails."""

    def __init__(self, error=None):
        self.error, self.asked = error, []

    async def max_offset(self, queue):
        return self.answer("max", MAX)

    async def search_offset(self, queue, timestamp):
        return self.answer(timestamp, SEARCHED)

    def answer(self, asked, offset):
        self.asked.append(asked)
        if self.error:
            raise self.error
        return offset


def compute(stored, where, topic="orders", broker=None):
    async def read(queue):
        return stored

    broker = broker or Broker()
    return asyncio.run(compute_pull_from_where(MessageQueue(topic, "a", 0), where, 777, read, broker))


@pytest.mark.parametrize("where", ConsumeFromWhere)
@pytest.mark.parametrize("topic", ["orders", "%RETRY%audit"])
def test_stored_offsets_and_failures(where, topic):
    broker = Broker(AssertionError("asked"))
    assert compute(0, where, topic, broker) == 0
    assert compute(99, where, topic, broker) == 99
    for stored in (FAILED, -3):
        assert compute(stored, where, topic, broker) == FAILED


@pytest.mark.parametrize(
    ("where", "topic", "found"),
    [
        *((one, "orders", MAX) for one in LAST),
        *((one, "%RETRY%audit", 0) for one in LAST),
        (FIRST, "orders", 0),
        (FIRST, "%RETRY%audit", 0),
        (TIMESTAMP, "orders", SEARCHED),
        (TIMESTAMP, "%RETRY%audit", MAX),
    ],
)
def test_without_a_stored_offset(where, topic, found):
    broker = Broker()
    assert compute(NOT_FOUND, where, topic, broker) == found
    assert broker.asked == {MAX: ["max"], SEARCHED: [777], 0: []}[found]


@pytest.mark.parametrize("where", [LAST[0], TIMESTAMP])
def test_errors_of_the_broker(where):
    with pytest.raises(NoAnswerError):
        compute(NOT_FOUND, where, broker=Broker(NoAnswerError("late")))


def test_timestamps():
    assert parse_consume_timestamp("20260102030406") - parse_consume_timestamp("20260102030405") == 1000


@pytest.mark.parametrize(
    "text", ["", "2026", "20261302030405", "2026-01-02 03:0", "20260102030405 ", "2026010203040", "²" * 14, "x" * 99]
)
def test_wrong_timestamps(text):
    with pytest.raises(ValueError, match=r"consume_timestamp is '.*', which is not a time in the form yyyyMMddHHmmss"):
        parse_consume_timestamp(text)
