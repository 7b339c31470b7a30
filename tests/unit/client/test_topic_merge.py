"""TopicMerge and TopicFollower on virtual time, with a reader that answers pulls as a test says."""

import asyncio
import random
import re

import pytest
from simulation import virtual

import rocketc
from rocketc.client import topic_merge
from rocketc.client.pull_decisions import PullStatus
from rocketc.client.queue_range import QueueRange
from rocketc.client.routes import MessageQueue
from rocketc.client.topic_merge import BLOCK_BYTES, TopicFollower, TopicMerge, _limits
from rocketc.client.topic_reader import Place, Pulled
from rocketc.errors import AnswerError, NotSentError
from rocketc.read._pulled_records import record_places
from rocketc.read.record_stream import RecordStream
from rocketc.remoting.codes import Code


def queue(number, broker="a", topic="orders"):
    return MessageQueue(topic, broker, number)


class Reader:
    """Queues in memory. most: messages of an answer; odd: answers or errors that come first, by queue"""

    def __init__(self, most=3):
        self.names = []
        self.records, self.most, self.odd, self.routes, self.asked = {}, most, {}, {}, []

    def put(self, where, phy_offset, store_timestamp):
        of = self.records.setdefault(where, [])
        body = b"%s/%d@%d" % (where.broker_name.encode(), where.queue_id, len(of))
        of.append(
            rocketc.encode("orders", body, queue_id=where.queue_id, queue_offset=len(of),
                           phy_offset=phy_offset, store_timestamp=store_timestamp)
        )  # fmt: skip

    async def pull(self, where, offset, *, most, most_bytes, expression="*", expression_type="TAG", holds=False):
        self.asked.append((where, offset, expression, holds))
        await asyncio.sleep(0.01)
        if self.odd.get(where) and most > 1:
            one = self.odd[where].pop(0)
            if isinstance(one, Exception):
                raise one
            return one
        while not (found := self.records.get(where, [])[offset : offset + min(most, self.most)]):
            if not holds:
                return Pulled(PullStatus.NO_NEW_MSG, b"", (), offset)
            await asyncio.sleep(0.1)
        body = b"".join(found)
        return Pulled(PullStatus.FOUND, body, list(map(Place._make, record_places(body)[0])), offset + len(found))

    pull_surely = pull

    async def range_of(self, where):
        return QueueRange(0, len(self.records.get(where, [])))

    async def offset_at(self, where, timestamp):
        times = [rocketc.Message.of(one).store_timestamp for one in self.records.get(where, [])]
        return next((offset for offset, time in enumerate(times) if time >= timestamp), len(times))

    def address(self, where):
        return "10.0.0.1:10911"

    async def topics(self):
        for one in self.names:
            if isinstance(one, Exception):
                raise one
        return self.names

    async def matching(self, patterns):
        return [name for name in await self.topics() if any(one.fullmatch(name) for one in patterns)]

    async def find(self, topic):
        return self.routes.get(topic)

    def known_queues(self, topic):
        return self.routes[topic]


def bodies(block):
    return [m.body.decode() for m in RecordStream("a test", lambda idle: [block], errors="skip")]


def read(reader, ranges, **options):
    async def main():
        merge = TopicMerge(reader, ranges, **options)
        found = []
        while block := await merge.next():
            found += bodies(block)
        await merge.close()
        return found

    return virtual.run(main())


def whole(reader):
    return {where: QueueRange(0, len(records)) for where, records in reader.records.items()}


def test_the_order_of_one_broker_is_that_of_its_log():
    reader, chance = Reader(), random.Random(1)
    expected = []
    for i in range(60):
        where = queue(chance.randrange(4))
        expected.append(f"a/{where.queue_id}@{len(reader.records.get(where, []))}")
        reader.put(where, phy_offset=i, store_timestamp=1000 - i)  # its clock was set back
    assert read(reader, whole(reader)) == expected


@pytest.mark.parametrize("seed", range(8))
def test_runs_of_records_are_those_that_are_taken_one_by_one(monkeypatch, seed):
    def found():
        reader, chance = Reader(most=1 + seed), random.Random(seed)
        for i in range(chance.randrange(120)):
            reader.put(queue(chance.choice([0, 0, 0, 1, 2, 3])), phy_offset=i, store_timestamp=i)
        return read(reader, whole(reader))

    runs = found()
    monkeypatch.setattr(topic_merge, "_RUN_BYTES", -1)
    assert runs == found()


@pytest.mark.parametrize("blocks", range(6))
def test_what_is_left_can_be_read_by_another_one(monkeypatch, blocks):
    monkeypatch.setattr(topic_merge, "BLOCK_BYTES", 500)
    reader = Reader(most=4)
    for number in range(60):
        reader.put(queue(number % 3), number, 1000 + number)

    async def main():
        merge, found = TopicMerge(reader, whole(reader)), []
        for _ in range(blocks):
            found += bodies(await merge.next())
            await asyncio.sleep(0.005 * blocks)  # pulls under way
        left = merge.left()
        await merge.close()
        rest = TopicMerge(reader, left)
        while block := await rest.next():
            found += bodies(block)
        assert rest.left() == {}
        return found

    assert virtual.run(main()) == read(reader, whole(reader))


def test_the_order_of_several_brokers_is_that_of_time():
    reader = Reader(most=1)
    for i in range(5):
        reader.put(queue(0, "a"), phy_offset=i, store_timestamp=10 * i)
        reader.put(queue(0, "b"), phy_offset=i, store_timestamp=10 * i + 5)
    assert read(reader, whole(reader)) == [f"{name}/0@{i}" for i in range(5) for name in "ab"]


def test_only_the_ranges_are_read():
    reader = Reader()
    for i in range(10):
        reader.put(queue(0), phy_offset=i, store_timestamp=i)
    assert read(reader, {queue(0): QueueRange(4, 8)}) == [f"a/0@{i}" for i in range(4, 8)]
    assert read(reader, {queue(0): QueueRange(4, 4)}) == []
    assert read(reader, {}) == []


def test_a_queue_ends_at_the_time():
    reader = Reader()
    for i in range(10):
        reader.put(queue(0), phy_offset=i, store_timestamp=i)
    assert read(reader, whole(reader), until=4) == [f"a/0@{i}" for i in range(4)]
    assert max(offset for _, offset, _, _ in reader.asked) == 3


def test_messages_that_were_deleted_meanwhile_are_named(caplog):
    reader = Reader()
    for i in range(10):
        reader.put(queue(0), phy_offset=i, store_timestamp=i)
    reader.odd[queue(0)] = [Pulled(PullStatus.OFFSET_ILLEGAL, b"", (), 6)]
    assert read(reader, whole(reader)) == [f"a/0@{i}" for i in range(6, 10)]
    assert caplog.messages == [f"{queue(0)}: the messages before offset 6 were deleted before they were read"]


def test_a_queue_has_one_answer_that_waits_and_one_pull_under_way():
    reader = Reader(most=2)
    for i in range(100):
        reader.put(queue(0), phy_offset=i, store_timestamp=i)

    async def main():
        merge = TopicMerge(reader, whole(reader), expression="web")
        await merge.next()
        await asyncio.sleep(10)
        asked = len(reader.asked)
        await merge.close()
        return asked

    assert virtual.run(main()) == 2
    assert reader.asked[0] == (queue(0), 0, "web", False)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([Pulled(PullStatus.NO_MATCHED_MSG, b"", (), 3)], ["a/0@3", "a/0@4"]),
        ([Pulled(PullStatus.OFFSET_ILLEGAL, b"", (), 4)], ["a/0@4"]),  # deleted meanwhile
        ([Pulled(PullStatus.OFFSET_ILLEGAL, b"", (), 0)], []),
        ([Pulled(PullStatus.NO_NEW_MSG, b"", (), 0)], []),
        ([Pulled(PullStatus.NO_NEW_MSG, b"", (), 4)], ["a/0@4"]),
        ([Pulled(PullStatus.NO_MATCHED_MSG, b"", (), 0)] * 3, [f"a/0@{i}" for i in range(5)]),
        ([Pulled(PullStatus.FOUND, b"rest", (), 1)], [f"a/0@{i}" for i in range(1, 5)]),
    ],
)
def test_answers_without_messages(answers, expected):
    reader = Reader()
    for i in range(5):
        reader.put(queue(0), phy_offset=i, store_timestamp=i)
    reader.odd[queue(0)] = list(answers)
    assert read(reader, whole(reader)) == expected


@pytest.mark.parametrize("status", [PullStatus.OFFSET_ILLEGAL, PullStatus.NO_NEW_MSG])
def test_a_queue_that_ends_too_early_is_named(status, caplog):
    reader = Reader()
    for i in range(5):
        reader.put(queue(0), phy_offset=i, store_timestamp=i)
    reader.odd[queue(0)] = [Pulled(status, b"", (), 0)]
    assert read(reader, {queue(0): QueueRange(1, 5)}) == []
    assert "orders queue 0 on a: the messages from offset 1 to 5 are not there any more" in caplog.text


def followed_from(position, reader):
    reader.routes["orders"] = [queue(0)]

    async def main():
        follower = TopicFollower(reader, ["orders"], {queue(0): position})
        found = [body for _ in range(4) for body in bodies(await follower.next(0.3))]
        await follower.close()
        return found

    return virtual.run(main())


def test_a_follower_names_what_was_deleted(caplog):
    reader = Reader()
    for i in range(5):
        reader.put(queue(0), phy_offset=i, store_timestamp=i)
    reader.odd[queue(0)] = [Pulled(PullStatus.OFFSET_ILLEGAL, b"", (), 4)]
    assert followed_from(2, reader) == ["a/0@4"]
    said = "orders queue 0 on a: the messages before offset 4 were deleted before they were read"
    assert caplog.text.count(said) == 1


def test_a_follower_that_has_read_nothing_continues_at_the_end(caplog):
    reader = Reader()
    reader.put(queue(0), phy_offset=1, store_timestamp=1)
    reader.odd[queue(0)] = [Pulled(PullStatus.OFFSET_ILLEGAL, b"", (), 0)]  # as brokers of 4.x
    assert followed_from(5, reader) == []
    said = "orders queue 0 on a has other messages before offset 5: it was made again, or its broker lost messages; "
    assert caplog.text.count(said + "it is read from offset 1 on") == 1


def test_an_answer_of_a_slave_that_was_behind_changes_nothing(caplog):
    reader = Reader()
    for i in range(5):
        reader.put(queue(0), phy_offset=i, store_timestamp=i)
    reader.odd[queue(0)] = [Pulled(PullStatus.OFFSET_ILLEGAL, b"", (), 1)]
    assert followed_from(3, reader) == ["a/0@3", "a/0@4"]
    assert "made again" not in caplog.text


def test_answers_that_never_move_are_an_error():
    reader = Reader()
    reader.odd[queue(0)] = [Pulled(PullStatus.NO_MATCHED_MSG, b"", (), 0)] * 100
    with pytest.raises(AnswerError, match="pulls of orders queue 0 on a stay at offset 0"):
        read(reader, {queue(0): QueueRange(0, 5)})


def test_bytes_that_are_not_a_record_end_a_block():
    reader = Reader()
    for i in range(4):
        reader.put(queue(0), phy_offset=i, store_timestamp=i)
        reader.put(queue(1), phy_offset=10 + i, store_timestamp=i)
    first = reader.records[queue(0)][0]
    places = list(map(Place._make, record_places(first)[0]))
    reader.odd[queue(0)] = [Pulled(PullStatus.FOUND, first + b"rest", places, 1)]
    expected = [f"a/0@{i}" for i in range(4)] + [f"a/1@{i}" for i in range(4)]
    assert read(reader, whole(reader)) == expected


def test_a_message_that_is_deleted_before_it_is_pulled_again_is_named(monkeypatch, caplog):
    monkeypatch.setattr("rocketc.client.topic_merge.BUFFER_BYTES", 1)  # there is room for none
    reader = Reader(most=1)
    for i in range(3):
        reader.put(queue(0), phy_offset=i, store_timestamp=i)
    pull, asked = reader.pull, []

    async def deletes(where, offset, **how):
        asked.append(offset)
        if offset == 1 and asked.count(1) == 2:
            return Pulled(PullStatus.OFFSET_ILLEGAL, b"", (), 2)
        return await pull(where, offset, **how)

    reader.pull_surely = deletes
    assert read(reader, whole(reader)) == ["a/0@0", "a/0@2"]
    text = "orders queue 0 on a: the messages before offset 2 were deleted before they were read"
    assert caplog.text.count(text) == 1


def test_an_error_of_a_pull_ends_the_reading():
    reader = Reader()
    reader.odd[queue(0)] = [NotSentError("10.0.0.1:10911: no connection")]
    with pytest.raises(NotSentError):
        read(reader, {queue(0): QueueRange(0, 5), queue(1): QueueRange(0, 1)})


def test_many_queues_share_the_memory():
    assert _limits(1) == (256 << 10, 1024)
    assert _limits(1000) == (33554, 131)
    assert _limits(1 << 20)[0] == 16 << 10


def follow(reader, topics, positions, work, **options):
    async def main():
        follower = TopicFollower(reader, topics, positions, **options)
        try:
            return await work(follower)
        finally:
            await follower.close()

    return virtual.run(main())


async def found_in(follower, seconds):
    found = []
    for _ in range(int(seconds / 0.5)):
        found += bodies(await follower.next(0.5))
    return found


def test_new_messages_come_in_order():
    reader = Reader()

    async def work(follower):
        before = await found_in(follower, 2)
        for i in range(4):
            reader.put(queue(i % 2), phy_offset=i, store_timestamp=i)
        return before, await found_in(follower, 2)

    before, after = follow(reader, ["orders"], {queue(0): 0, queue(1): 0}, work, expression="web")
    assert before == []
    assert after == ["a/0@0", "a/1@0", "a/0@1", "a/1@1"]
    assert reader.asked[0] == (queue(0), 0, "web", True)


def test_a_call_returns_while_answers_come_without_a_break():
    """There is always another answer when the queues are many, or a broker answers all pulls."""
    queues = [queue(number) for number in range(64)]
    data = rocketc.encode("orders", b"x" * 60_000)

    class Endless(Reader):
        async def pull(self, where, offset, **how):
            await asyncio.sleep(0)
            if len(self.asked) > 5_000:
                raise AnswerError(self.address(where), "no call has returned")
            self.asked.append(where)
            return Pulled(PullStatus.FOUND, data, [Place(offset, 5, offset, 0, len(data))], offset + 1)

    async def work(follower):
        blocks = [len(await follower.next(1.0)) for _ in range(3)]
        assert all(BLOCK_BYTES <= size < BLOCK_BYTES + 2 * len(data) for size in blocks)

    follow(Endless(), ["orders"], dict.fromkeys(queues, 0), work)


def test_a_broker_that_is_not_reached_is_tried_again(caplog):
    reader = Reader()
    reader.put(queue(0), phy_offset=0, store_timestamp=0)
    reader.odd[queue(0)] = [NotSentError("10.0.0.1:10911: no connection"), AnswerError("a", "busy", Code.FLOW_CONTROL)]
    assert follow(reader, ["orders"], {queue(0): 0}, lambda one: found_in(one, 5)) == ["a/0@0"]
    assert [record.getMessage() for record in caplog.records] == [
        "orders queue 0 on a is not read now; it is tried again: 10.0.0.1:10911: no connection"
    ]


@pytest.mark.parametrize("offset", [0, -3])
def test_a_broker_that_does_not_hold_pulls_is_not_asked_all_the_time(offset):
    reader = Reader()
    reader.put(queue(0), phy_offset=0, store_timestamp=0)
    status = PullStatus.NO_NEW_MSG if offset == 0 else PullStatus.OFFSET_ILLEGAL
    turns = [0, offset] * 5_000
    reader.odd[queue(0)] = [Pulled(status, b"", (), turn) for turn in turns]
    assert follow(reader, ["orders"], {queue(0): 0}, lambda one: found_in(one, 5)) == []
    assert 20 < len(reader.asked) < 100


def test_a_busy_name_server_does_not_end_the_following():
    reader, answers = Reader(), [AnswerError("n", "busy", Code.SYSTEM_BUSY), NotSentError("n: no connection")]
    find = reader.find

    async def busy(topic):
        if answers:
            raise answers.pop(0)
        return await find(topic)

    async def work(follower):
        await found_in(follower, 70)
        reader.put(queue(0), phy_offset=0, store_timestamp=0)
        return await found_in(follower, 1)

    reader.find = busy
    assert follow(reader, ["orders"], {queue(0): 0}, work) == ["a/0@0"]
    assert answers == []
    answers.append(AnswerError("n", "no permission", Code.NO_PERMISSION))
    with pytest.raises(AnswerError, match="no permission"):
        follow(reader, ["orders"], {queue(0): 0}, lambda one: found_in(one, 70))


def test_a_refusal_ends_the_following():
    reader = Reader()
    reader.odd[queue(0)] = [AnswerError("a", "no permission", Code.NO_PERMISSION)]
    with pytest.raises(AnswerError, match="no permission"):
        follow(reader, ["orders"], {queue(0): 0}, lambda one: found_in(one, 5))


def test_new_queues_and_topics_are_found():
    reader = Reader()

    async def work(follower):
        await found_in(follower, 1)
        reader.put(queue(0), phy_offset=0, store_timestamp=0)
        reader.put(queue(1), phy_offset=1, store_timestamp=1)
        reader.routes["orders"] = [queue(0), queue(1)]
        first = await found_in(follower, 3)
        reader.put(queue(2), phy_offset=2, store_timestamp=2)
        reader.routes["orders"].append(queue(2))
        return first, await found_in(follower, 40)

    assert follow(reader, ["orders"], {}, work) == (["a/0@0", "a/1@0"], ["a/2@0"])


def test_topics_that_a_pattern_matches_are_found():
    reader = Reader()
    reader.names = ["bills"]

    async def work(follower):
        await found_in(follower, 1)
        for number, topic in enumerate(("orders-1", "%RETRY%orders", "other")):
            where = queue(0, topic=topic)
            reader.put(where, phy_offset=number, store_timestamp=number)
            reader.routes[topic] = [where]
            reader.names.append(topic)
        return await found_in(follower, 40)

    patterns = [re.compile("orders.*"), re.compile("%RETRY%.*")]
    sql = {"expression": "price > 5", "expression_type": "SQL92"}
    assert follow(reader, [], {}, work, patterns=patterns, **sql) == ["a/0@0", "a/0@0"]
    asked = {(where.topic, expression) for where, _, expression, _ in reader.asked}
    assert asked == {("orders-1", "price > 5"), ("%RETRY%orders", "*")}


def test_a_busy_name_server_is_asked_again_for_topics():
    reader = Reader()
    reader.names = [AnswerError("10.0.0.5:9876", "busy", Code.SYSTEM_BUSY)]

    async def work(follower):
        await found_in(follower, 40)
        where = queue(0)
        reader.put(where, phy_offset=0, store_timestamp=0)
        reader.routes["orders"], reader.names = [where], ["orders"]
        return await found_in(follower, 40)

    assert follow(reader, [], {}, work, patterns=[re.compile("orders")]) == ["a/0@0"]


def test_only_the_queues_that_are_asked_for_are_followed():
    reader = Reader()
    reader.routes["orders"] = [queue(0), queue(1)]
    reader.put(queue(0), phy_offset=0, store_timestamp=0)
    reader.put(queue(1), phy_offset=1, store_timestamp=1)
    found = follow(reader, ["orders"], {}, lambda one: found_in(one, 3), queue_ids=frozenset({1}))
    assert found == ["a/1@0"]


def test_bytes_that_are_not_a_record_come_last():
    reader = Reader()
    reader.odd[queue(0)] = [Pulled(PullStatus.FOUND, b"rest", (), 1)]

    async def work(follower):
        return [(await follower.next(0.5)).records for _ in range(3)]

    assert [block for block in follow(reader, ["orders"], {queue(0): 0}, work) if block] == [b"rest"]
