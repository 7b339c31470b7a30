"""The memory of TopicMerge and TopicFollower: brokers that answer with more than was asked for."""

import asyncio

import pytest
from simulation import virtual
from unit.client.scripted_pull import PullCluster
from unit.client.test_topic_merge import Reader, bodies, queue

import rocketc
from rocketc.client import topic_merge
from rocketc.client.access import Access
from rocketc.client.pull_decisions import PullStatus
from rocketc.client.queue_range import QueueRange
from rocketc.client.topic_merge import TopicFollower, TopicMerge
from rocketc.client.topic_reader import Place, Pulled, TopicReader
from rocketc.errors import AnswerError
from rocketc.read._pulled_records import record_places

MOST = 64 << 10


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(topic_merge, "BUFFER_BYTES", MOST)


def waiting(merge):
    """The bytes of the records that wait, of all queues."""
    found = [record for one in merge._all for record in one.records]
    for one in merge._all:
        if one.pulling is not None and one.pulling.done():
            found += one.pulling.result()
    return sum(len(record.data) for record in found if record.data is not None)


async def merged(merge, found):
    """Read to the end; return the most bytes that have waited."""
    most = 0
    while block := await merge.next():
        found += bodies(block)
        for _ in range(3):
            most = max(most, waiting(merge))
            await asyncio.sleep(0.01)
    assert merge.room.taken == 0
    return most


def filled(queues, count, size, most=1024):
    """A reader whose broker answers with up to `most` messages of `size` bytes, and what a merge returns."""
    reader, expected = Reader(most=most), []
    for i in range(count):
        for number in range(queues):
            body = b"%d@%d" % (number, i)
            data = rocketc.encode("orders", body + b" " * size, queue_id=number, queue_offset=i,
                                  phy_offset=1000 * i + number, store_timestamp=i)  # fmt: skip
            reader.records.setdefault(queue(number), []).append(data)
            expected.append(body.decode())
    return reader, expected


@pytest.mark.parametrize(
    ("queues", "count", "size"),
    [(3, 40, 1_000), (30, 10, 1_000), (30, 4, 10_000), (12, 3, 50_000), (90, 3, 400), (300, 2, 10)],
)
def test_answers_of_many_queues_stay_within_the_memory(queues, count, size):
    reader, expected = filled(queues, count, size)

    async def main():
        found = []
        merge = TopicMerge(reader, {where: QueueRange(0, count) for where in reader.records})
        return await merged(merge, found), [one.strip() for one in found]

    most, found = virtual.run(main())
    assert found == expected and most <= MOST


def test_a_queue_within_the_memory_is_pulled_once():
    reader, expected = filled(8, 10, 100)
    found = []
    virtual.run(read_all(reader, 10, found))
    assert len(found) == len(expected) and len(reader.asked) == 8


async def read_all(reader, count, found):
    await merged(TopicMerge(reader, {where: QueueRange(0, count) for where in reader.records}), found)


def test_a_broker_that_ignores_the_limits_of_a_pull():
    """Real frames: the broker answers each of 20 pulls with all messages of a queue."""

    async def main():
        cluster = PullCluster("a")
        for number in range(20):
            cluster.fill(5, queue(number), body=b"x" * 3_000)
        access = Access(("10.0.0.5:9876",), connector=cluster.connector)
        async with TopicReader(access) as reader:
            await reader.find("orders")
            merge = TopicMerge(reader, {queue(number): QueueRange(0, 5) for number in range(20)})
            found = []
            return await merged(merge, found), found

    most, found = virtual.run(main())
    assert found == ["x" * 3_000] * 100 and 0 < most <= MOST


def test_a_message_that_is_gone_when_its_turn_comes():
    reader, _ = filled(4, 1, 40_000)
    real = reader.pull_surely

    async def pull(where, offset, **how):
        if where == queue(2) and len(reader.asked) >= 4:
            reader.asked.append((where, offset))
            return Pulled(PullStatus.OFFSET_ILLEGAL, b"", (), 1)
        return await real(where, offset, **how)

    reader.pull_surely = pull
    found = []
    virtual.run(read_all(reader, 1, found))
    assert [one.strip() for one in found] == ["0@0", "1@0", "3@0"] and reader.asked[-2:].count((queue(2), 0)) == 1


def test_bytes_that_are_not_a_record_are_pulled_again():
    reader, rest = Reader(), b"?" * 40_000

    async def pull(where, offset, **how):
        reader.asked.append(where)
        return Pulled(PullStatus.FOUND, rest, (), 1)

    reader.pull_surely = pull

    async def main():
        merge = TopicMerge(reader, {queue(number): QueueRange(0, 1) for number in range(3)})
        blocks = [block.records async for block in blocks_of(merge)]
        assert blocks == [rest] * 3 and len(reader.asked) == 5 and merge.room.taken == 0

    virtual.run(main())


async def blocks_of(merge):
    while block := await merge.next():
        assert waiting(merge) <= MOST
        yield block


@pytest.mark.parametrize("offset", [0, 5, 700, -1])
def test_offsets_of_an_answer_that_cannot_be(offset):
    """They would make the reader pull the same messages for ever."""
    first, other = (rocketc.encode("orders", b"x" * 60_000, queue_offset=one) for one in (0, offset))
    places = list(map(Place._make, record_places(first + other)[0]))
    reader = Reader()
    reader.odd[queue(0)] = [Pulled(PullStatus.FOUND, first + other, places, 5)]
    fault = f"the answer to a pull at offset 0 has a message at {offset}"
    with pytest.raises(AnswerError, match=fault):
        virtual.run(first_block(reader))
    reader.odd[queue(0)] = [Pulled(PullStatus.FOUND, first + other, places, 5)]
    with pytest.raises(AnswerError, match=fault):
        virtual.run(followed(reader, [queue(0)], 10))


async def first_block(reader):
    merge = TopicMerge(reader, {queue(0): QueueRange(0, 1_000)})
    try:
        await merge.next()
    finally:
        await merge.close()


async def followed(reader, queues, seconds):
    """What a follower returns, and the most bytes that have waited in it."""
    follower = TopicFollower(reader, ["orders"], dict.fromkeys(queues, 0))
    found, most = [], 0
    try:
        for _ in range(seconds):
            await asyncio.sleep(0.5)
            most = max(most, follower._room.taken)
            found += bodies(await follower.next(0.5))
    finally:
        await follower.close()
    return found, most


@pytest.mark.parametrize(("queues", "count", "size"), [(20, 10, 1_000), (20, 3, 30_000), (3, 2, 60_000)])
def test_a_follower_stays_within_the_memory(queues, count, size):
    reader, expected = filled(queues, count, size)
    found, most = virtual.run(followed(reader, list(reader.records), 60))
    assert sorted(one.strip() for one in found) == sorted(expected) and 0 < most <= MOST
    for number in range(queues):
        of_queue = [one.strip() for one in found if one.startswith(f"{number}@")]
        assert of_queue == [one for one in expected if one.startswith(f"{number}@")]
