"""Offsets of pull consumers: commits, seeks, and what brokers and operators change."""

import asyncio

import pytest
from unit.client.scripted import play
from unit.client.scripted_pull import OTHER, QUEUE, UNKNOWN, PullCluster, offsets
from unit.client.scripted_push import GROUP

from rocketc.client.offset_stores import encode_offsets
from rocketc.client.routes import MessageQueue
from rocketc.errors import AnswerError, AssignmentError, NoAnswerError, QueueOffsetError
from rocketc.remoting.codes import Code
from rocketc.remoting.requests import CODES
from rocketc.remoting.server import Answer
from rocketc.tables.fastjson import to_bytes


def test_messages_that_were_not_finished_come_again():
    async def main():
        stage = PullCluster()
        stage.fill(25)
        with pytest.raises(ValueError, match="no"):
            async with stage.puller() as one:
                await one.poll()
                await one.poll()
                raise ValueError("no")
        assert stage.offset() == 10
        async with stage.puller() as one:
            await asyncio.sleep(1)
            assert offsets(await one.poll(max_records=100)) == list(range(10, 25))
        assert stage.offset() == 25

    play(main())


def test_commits_of_the_program():
    async def main():
        stage = PullCluster()
        stage.fill(25)
        stage.fill(5, tag="other")
        async with stage.puller({"orders": "t"}, auto_commit=False) as one:
            found = []
            while len(found) < 25:
                found += await one.poll()
            await asyncio.sleep(60)
            assert stage.history == []  # neither time nor filtered messages commit anything
            await one.commit({QUEUE: 7})
            assert stage.offset() == 7 and await one.committed(QUEUE) == 7
            assert await one.committed(OTHER) is None
            with pytest.raises(
                QueueOffsetError, match=r"the offset 31 cannot be committed: the next one of poll\(\) is 30"
            ):
                await one.commit({QUEUE: 31})
            with pytest.raises(QueueOffsetError, match="the offset -1 cannot be committed"):
                await one.commit({QUEUE: -1})
            with pytest.raises(AssignmentError, match="the consumer does not have this queue now"):
                await one.commit({UNKNOWN: 0})
            await one.commit()
            assert stage.offset() == 30  # those that were filtered included
            await one.commit({QUEUE: 3})
            await one.poll(0)
        assert stage.offset() == 3

    play(main())


def test_a_seek_forgets_what_was_pulled():
    async def main():
        stage = PullCluster()
        stage.fill(100)
        async with stage.puller() as one:
            assert offsets(await one.poll()) == list(range(10))
            await asyncio.sleep(1)
            await one.seek(QUEUE, 50)
            assert offsets(await one.poll(max_records=3)) == [50, 51, 52]
            for delay in range(40):  # also while the answer to a pull is on its way
                await one.seek(QUEUE, 20)
                await asyncio.sleep(delay / 1000)
                await one.seek(QUEUE, 70)
                assert offsets(await one.poll(max_records=2)) == [70, 71]
            await one.seek_to_begin(QUEUE)
            assert offsets(await one.poll(max_records=2)) == [0, 1]
            await one.seek_to_end(QUEUE)
            assert await one.poll(500) == []
            stage.fill(1)
            assert offsets(await one.poll()) == [100]
            for wrong in (-1, 102):
                with pytest.raises(QueueOffsetError, match=f"the offset {wrong} is outside of the queue: 0 to 101"):
                    await one.seek(QUEUE, wrong)
            for move in (one.seek_to_begin, one.seek_to_end, lambda queue: one.seek(queue, 0)):
                with pytest.raises(AssignmentError, match="does not have this queue now; see assignment"):
                    await move(UNKNOWN)
        assert stage.offset() == 101

    play(main())


def test_the_group_begins_once():
    async def main():
        stage = PullCluster()
        stage.fill(8)
        async with stage.puller(consume_from_where="CONSUME_FROM_LAST_OFFSET", auto_commit=False):
            pass
        stage.fill(2)
        async with stage.puller(consume_from_where="CONSUME_FROM_LAST_OFFSET") as one:
            assert offsets(await one.poll()) == [8, 9]
        async with stage.puller(consume_from_where="CONSUME_FROM_TIMESTAMP", topics=["bills"]) as one:
            assert one._core.member.queues.position(MessageQueue("bills", "a", 0)) == 2

    play(main())


def test_an_offset_that_the_broker_moves():
    async def main():
        stage, was = PullCluster(), []
        stage.fill(30)

        def pull(call):
            if call.values["queueId"] == 0 and call.values["queueOffset"] == 20 and not was:
                was.append(1)
                told = {"suggestWhichBrokerId": 0, "nextBeginOffset": 5, "minOffset": 0, "maxOffset": 30}
                return Answer(Code.PULL_OFFSET_MOVED, values=told)
            return stage.pull("a", call)

        stage.brokers["a"].answers[CODES["PULL_MESSAGE"]] = pull
        async with stage.puller() as one:
            await asyncio.sleep(5)
            assert offsets(await one.poll(max_records=100)) == list(range(5, 30))

    play(main())


def test_a_reset_by_an_operator():
    async def main():
        stage = PullCluster()
        stage.fill(30)
        async with stage.puller() as one:
            await one.poll(max_records=20)
            body = to_bytes(encode_offsets({QUEUE: 4}))
            stage.tell(220, {"topic": "orders", "group": GROUP, "timestamp": 0, "isForce": True}, body)
            await asyncio.sleep(3)
            assert offsets(await one.poll(max_records=3)) == [4, 5, 6]

    play(main())


def test_a_commit_that_fails():
    async def main():
        stage = PullCluster()
        stage.fill(30)
        refused = Answer(Code.SYSTEM_ERROR, remark="no disk")
        broker, code = stage.brokers["a"], CODES["UPDATE_CONSUMER_OFFSET"]
        works = broker.answers[code]
        async with stage.puller(auto_commit=False) as one:
            await one.poll()
            broker.answers[code] = refused
            with pytest.raises(AnswerError, match="no disk"):
                await one.commit()
            broker.answers[code] = works
            await asyncio.sleep(6)  # it is repeated
            assert stage.offset() == 10
            await one.poll()
            broker.answers[code] = lambda call: None
            began = asyncio.get_running_loop().time()
            with pytest.raises(TimeoutError, match=r"10\.0\.1\.0:10911"):
                await one.commit()
            assert asyncio.get_running_loop().time() - began < 7
            broker.answers[code] = works
        assert stage.offset() == 20

    play(main())


def test_what_the_program_committed_is_not_taken_back():
    async def main():
        stage = PullCluster()
        stage.fill(25)
        with pytest.raises(ValueError, match="no"):
            async with stage.puller() as one:
                await one.poll()
                await one.commit()
                raise ValueError("no")
        assert stage.offset() == 10
        stage = PullCluster()
        stage.fill(25)
        async with stage.puller() as one:
            assert len(await one.poll(max_records=15)) == 10
            assert len(await one.poll(max_records=5)) == 5
            await one.commit()
            stage.rebalance("10.0.0.0@1")  # it sorts before this consumer, and gets the first queue
            await asyncio.sleep(10)
            assert QUEUE not in one.assignment() and stage.offset() == 15
        stage.others = []
        async with stage.puller() as one:
            assert offsets(await one.poll(max_records=5)) == [15, 16, 17, 18, 19]
            await one.commit({QUEUE: 17})
            assert stage.offset() == 17
            await asyncio.sleep(6)
            await one.poll(0, 1)  # it says that the others are finished, too
            await asyncio.sleep(1)
            assert stage.offset() == 20

    play(main())


# ---------------------------------------------------------------- the first offset of a group in a topic


class Racing:
    """A broker whose threads each make the map of a new group, as RocketMQ's: the one that ends last wins.

    refusals  codes with which the next offsets are refused
    """

    def __init__(self, cluster, seconds=0.05):
        self.maps, self.seconds, self.refusals, self.asked = {}, seconds, [], []
        self.cluster, self._tasks = cluster, set()
        cluster.brokers["a"].answers[CODES["UPDATE_CONSUMER_OFFSET"]] = self._update

    def _update(self, call):
        self.asked.append((call.values["queueId"], call.command.is_oneway))
        task = asyncio.get_running_loop().create_task(self._commit(call))
        self._tasks.add(task)

    def close(self):
        for task in self._tasks:
            task.cancel()

    async def _commit(self, call):
        if self.refusals:
            call.later(Answer(self.refusals.pop()))
            return
        key = call.values["consumerGroup"], call.values["topic"]
        table = self.maps.get(key)
        if table is None:
            table = {}
            await asyncio.sleep(self.seconds)
            self.maps[key] = table
        table[call.values["queueId"]] = call.values["commitOffset"]
        call.later(Answer())


def test_no_first_offset_of_a_new_group_is_lost():
    async def main():
        cluster = PullCluster()
        for queue in (QUEUE, OTHER):
            cluster.fill(3, queue)
        broker = Racing(cluster)
        async with cluster.puller(auto_commit=False) as consumer:
            while len(await consumer.poll(100)) > 0:
                pass
            await consumer.commit()
            assert broker.maps == {(GROUP, "orders"): {0: 3, 1: 3}}
            await consumer.commit({QUEUE: 1, OTHER: 2})
            assert broker.maps == {(GROUP, "orders"): {0: 1, 1: 2}}

    play(main())


def test_a_broker_that_is_not_reached_is_asked_once_for_the_first_offsets():
    async def main():
        cluster = PullCluster()
        for queue in (QUEUE, OTHER):
            cluster.fill(3, queue)
        broker = Racing(cluster)
        async with cluster.puller(auto_commit=False, mq_client_api_timeout=2000) as consumer:
            while len(await consumer.poll(100)) > 0:
                pass
            broker.seconds, began = 60, asyncio.get_running_loop().time()
            with pytest.raises(NoAnswerError):
                await consumer.commit()
            assert asyncio.get_running_loop().time() - began < 3 and len(broker.asked) == 1
            broker.seconds, broker.refusals = 0.05, [26]
            with pytest.raises(AnswerError):
                await consumer.commit()
            await consumer.commit()
            assert broker.maps[GROUP, "orders"].keys() == {0, 1}
        broker.close()

    play(main())
