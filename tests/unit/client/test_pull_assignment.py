"""Topics and queues of pull consumers: those of the group, chosen ones, and those that do not exist."""

import asyncio

import pytest
from unit.client.scripted import play
from unit.client.scripted_pull import OTHER, QUEUE, UNKNOWN, PullCluster, offsets

from rocketc.client.routes import MessageQueue
from rocketc.errors import AnswerError, AssignmentError, NotSentError, SubscriptionError, TopicNotFoundError
from rocketc.remoting.requests import CODES


def test_assigned_queues():
    async def main():
        stage = PullCluster("a", "b")
        stage.fill(5)
        stage.fill(5, OTHER)
        far = MessageQueue("orders", "b", 0)
        stage.fill(3, far)
        async with stage.puller(None) as one:
            assert one.assignment() == []
            with pytest.raises(AssignmentError, match=r"lacks topics or queues: call subscribe\(\) or assign\(\)"):
                await one.poll(100)
            queues = await one.fetch_message_queues("orders")
            assert queues == [MessageQueue("orders", name, i) for name in "ab" for i in range(2)]
            await one.assign([QUEUE, far])
            assert one.assignment() == [QUEUE, far]
            found = await one.poll(), await one.poll()
            assert sorted(len(each) for each in found) == [3, 5] and await one.poll(0) == []
            await one.assign([QUEUE, OTHER], "t || other")
            await one.seek(OTHER, 2)
            assert offsets(await one.poll()) == [2, 3, 4]
            assert await one.poll(100) == []  # QUEUE continues where it was
            assert await one.offset_for_timestamp(far, 1_764_000_000_000) == 2
            assert (await one.min_offset(far), await one.max_offset(far)) == (0, 3)
            with pytest.raises(AssignmentError, match="this consumer has assigned queues"):
                await one.subscribe("orders")
            with pytest.raises(AssignmentError, match="the topic does not have this queue now"):
                await one.assign([UNKNOWN])
            assert one.assignment() == [QUEUE, OTHER]
            await one.unsubscribe("orders")  # nothing happens
        assert (stage.offset(), stage.offset(OTHER), stage.offset(far)) == (5, 5, 3)
        assert all(each["consumerDataSet"] == [] for each in stage.heartbeats() + stage.heartbeats("b"))

    play(main())


def test_a_look_at_chosen_queues_writes_nothing():
    async def main():
        stage = PullCluster()
        stage.fill(5)
        stage.committed["a", "orders", 0] = 3
        async with stage.puller(None, auto_commit=False) as one:
            await one.assign([QUEUE])
            assert offsets(await one.poll()) == [3, 4]
            stage.committed["a", "orders", 0] = 4  # by the members of the group
            await asyncio.sleep(60)
        assert stage.history == [] and stage.offset() == 4

    play(main())


def test_topics_and_queues_exclude_each_other():
    async def main():
        stage = PullCluster()
        stage.fill(1)
        early = stage.puller()
        with pytest.raises(AssignmentError, match="this consumer has subscribed to topics"):
            await early.assign([QUEUE])
        late = stage.puller(None)
        await late.assign([QUEUE])
        with pytest.raises(AssignmentError, match="this consumer has assigned queues"):
            await late.subscribe("orders")
        async with late:
            assert offsets(await late.poll()) == [0]
        async with early:
            with pytest.raises(AssignmentError, match="this consumer has subscribed to topics"):
                await early.assign([QUEUE])

    play(main())


def test_topics_come_and_go():
    async def main():
        stage = PullCluster()
        stage.fill(3)
        stage.fill(4, MessageQueue("bills", "a", 0))
        early = stage.puller(None)
        await early.subscribe("orders")
        await early.subscribe("no")
        await early.unsubscribe("no")
        async with early as one:
            assert len(await one.poll()) == 3
            await one.subscribe("bills", "none || t")
            assert len(await one.poll()) == 4
            await one.unsubscribe("orders")
            assert {queue.topic for queue in one.assignment()} == {"bills"}
            stage.fill(3)
            assert await one.poll(1000) == []
            with pytest.raises(SubscriptionError, match="names no tag"):
                await one.subscribe("bills", "||")
        assert stage.offset() == 3

    play(main())


def test_a_queue_that_another_member_gets():
    async def main():
        stage = PullCluster()
        stage.fill(30)
        stage.fill(30, OTHER)
        async with stage.puller() as one:
            seen = await one.poll()
            seen += await one.poll()
            assert {message.queue_id for message in seen} == {0, 1}
            await asyncio.sleep(1)
            stage.rebalance("0-the-first-one")  # gets the first half of the queues
            await asyncio.sleep(2)
            assert one.assignment() == [OTHER]
            assert stage.offset() == 10  # what was finished when the last poll() began
            found = [message for _ in range(8) for message in await one.poll(0)]
            assert {message.queue_id for message in found} == {1}
            with pytest.raises(AssignmentError):
                await one.commit({QUEUE: 10})
            stage.rebalance()
            await asyncio.sleep(2)
            assert one.assignment() == [QUEUE, OTHER]
            assert offsets(await one.poll())[0] == 10
        assert stage.history == sorted(stage.history)

    play(main())


def test_a_broker_that_comes_later():
    async def main():
        stage = PullCluster()
        stage.fill(3)
        server = stage.servers.pop(stage.address("a"))
        async with stage.puller(None) as one:
            await one.assign([QUEUE, OTHER])
            assert one.assignment() == [QUEUE, OTHER] and await one.poll(2_000) == []
            one.pause([OTHER])
            stage.fill(2, OTHER)
            with pytest.raises(NotSentError, match=r"10\.0\.1\.0:10911"):
                await one.seek(QUEUE, 1)
            stage.servers[stage.address("a")] = server
            await one.seek(QUEUE, 1)
            assert offsets(await one.poll(10_000)) == [1, 2]
            assert await one.poll(5_000) == []
            one.resume([OTHER])
            assert offsets(await one.poll(5_000)) == [0, 1]

    play(main())


def test_what_does_not_exist():
    async def main():
        stage = PullCluster()
        stage.missing.add("none")
        async with stage.puller(["none"]) as one:
            assert await one.poll(2_000) == [] and one.assignment() == []
            for call in (one.fetch_message_queues("none"), one.max_offset(MessageQueue("none", "a", 0))):
                with pytest.raises(TopicNotFoundError, match="topic 'none': the name server does not know it"):
                    await call
            with pytest.raises(AnswerError, match="b: no address of this broker is known now"):
                await one.committed(MessageQueue("orders", "b", 0))
            stage.missing.clear()
            stage.fill(1, MessageQueue("none", "a", 0))
            assert len(await one.poll()) == 1
        async with stage.puller(None) as one:
            stage.missing.add("none")
            with pytest.raises(TopicNotFoundError):
                await one.assign([MessageQueue("none", "a", 0)])
        stage.servers.clear()
        for topics in (["orders"], None):
            one = stage.puller(topics)
            began = asyncio.get_running_loop().time()
            with pytest.raises(NotSentError, match=r"10.0.0.5:9876: no connection"):
                async with one:
                    await one.assign([QUEUE])
            assert asyncio.get_running_loop().time() - began < 8
        assert len(asyncio.all_tasks()) == 1

    play(main())


@pytest.mark.parametrize("ms", [1, 5, 12, 20, 50])
@pytest.mark.parametrize("what", ["subscribe", "assign", "seek"])
def test_no_pull_begins_after_the_end(what, ms):
    async def main():
        stage = PullCluster()
        stage.fill(5)
        answers = stage.brokers["a"].answers
        for code in answers.keys() - {CODES["PULL_MESSAGE"]}:
            answers[code] = slow(answers[code])
        answers[CODES["UNREGISTER_CLIENT"]] = lambda call: None  # so that the end takes a while
        one = stage.puller(topics=["bills"] if what == "subscribe" else None)
        await one.start()
        if what == "seek":
            await one.assign([QUEUE])
        work = {
            "subscribe": lambda: one.subscribe("orders"),
            "assign": lambda: one.assign([QUEUE]),
            "seek": lambda: one.seek_to_begin(QUEUE),
        }
        call = asyncio.ensure_future(work[what]())
        await asyncio.sleep(ms / 1000)
        await one.close()
        await asyncio.gather(call, return_exceptions=True)
        await asyncio.sleep(5)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    play(main())


def slow(answer):
    """An answer of a broker that comes 5 ms later."""

    def later(call):
        def give():
            call.later(answer(call) if callable(answer) else answer)

        asyncio.get_running_loop().call_later(0.005, give)

    return later
