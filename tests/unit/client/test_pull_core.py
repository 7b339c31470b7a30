"""Pull consumers at brokers that answer as a test says, on virtual time: polls, wrong calls, and the end."""

import asyncio

import pytest
from unit.client.scripted import play
from unit.client.scripted_pull import OTHER, QUEUE, UNKNOWN, PullCluster, offsets
from unit.client.scripted_push import GROUP

from rocketc.client.async_pull_consumer import AsyncPullConsumer
from rocketc.client.pull_core import Poll
from rocketc.errors import AssignmentError, ClosedError, IllegalMessageError


def test_messages_come_in_order_and_a_later_poll_commits_them():
    async def main():
        stage = PullCluster()
        stage.fill(25)
        async with stage.puller() as one:
            assert offsets(await one.poll()) == list(range(10))
            await asyncio.sleep(60)
            assert stage.offset() is None  # the program may still work on them
            assert offsets(await one.poll(max_records=4)) == [10, 11, 12, 13]
            await asyncio.sleep(1)
            assert stage.offset() == 10
            await asyncio.sleep(6)
            found = await one.poll(0, 100)
            assert offsets(found) == list(range(14, 25)) and found[0].body == b"14"
            assert await one.poll(2_000) == []
            await asyncio.sleep(1)
            assert stage.offset() == 14
        assert stage.offset() == 25 and stage.history == sorted(stage.history)
        assert {call["sysFlag"] for call in stage.pulls()} == {22}
        assert {(call["subscription"], call["commitOffset"], call["maxMsgNums"]) for call in stage.pulls()} == {
            ("*", 0, 10)
        }
        data = stage.heartbeats()[0]["consumerDataSet"][0]
        assert (data["consumeType"], data["groupName"]) == ("CONSUME_ACTIVELY", GROUP)
        assert [each["topic"] for each in data["subscriptionDataSet"]] == ["orders"]

    play(main())


def test_a_pause():
    async def main():
        stage = PullCluster()
        stage.fill(30)
        stage.fill(30, OTHER)
        async with stage.puller() as one:
            await one.poll()
            await asyncio.sleep(1)
            one.pause([QUEUE])
            found = [message for _ in range(9) for message in await one.poll(0)]
            assert {message.queue_id for message in found} == {1}
            count = len(stage.pulls())
            await asyncio.sleep(30)
            assert {call["queueId"] for call in stage.pulls()[count + 1 :]} == {1}
            waiting = asyncio.ensure_future(one.poll())
            await asyncio.sleep(0.1)
            one.resume([QUEUE])
            assert {message.queue_id for message in await waiting} == {0}
            for call in (one.pause, one.resume):
                with pytest.raises(AssignmentError, match="does not have this queue"):
                    call([UNKNOWN])

    play(main())


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        ({"pull_threshold_for_queue": 50}, 50),
        ({"pull_threshold_for_all": 70}, 70),
        ({"consume_max_span": 30}, 31),
        ({"pull_threshold_size_for_queue": 1}, 20),
    ],
)
def test_pulls_wait_for_poll(limits, most):
    async def main():
        stage = PullCluster()
        stage.fill(300, body=b"x" * (100_000 if "pull_threshold_size_for_queue" in limits else 1))
        async with stage.puller(pull_batch_size=5, **limits) as one:
            await asyncio.sleep(30)
            held = one._core.member.queues.count
            assert most - 1 <= held <= most + 5
            found = []
            while len(found) < 300:
                found += await one.poll()
                assert one._core.member.queues.count <= most + 5
            assert offsets(found) == list(range(300))

    play(main())


def test_what_brokers_ask():
    async def main():
        stage = PullCluster()
        stage.fill(3)
        async with stage.puller() as one:
            await one.poll()
            info = await stage.ask(307, {"consumerGroup": GROUP, "clientId": "c"})
            assert b'"PROP_CONSUME_TYPE":"CONSUME_ACTIVELY"' in info.body and b'"pullBatchSize":"10"' in info.body
            await one.commit()
            answer = await stage.ask(221, {"topic": "orders", "group": GROUP})
            assert b":3" in answer.body

    play(main())


def test_a_canceled_poll_loses_nothing():
    async def main():
        stage = PullCluster()
        async with stage.puller() as one:
            seen = []
            for i in range(200):
                polls = [asyncio.ensure_future(one.poll(max_records=1)) for _ in range(2)]
                await asyncio.sleep(i % 7 / 1000)
                stage.fill(1)
                stage.fill(1, OTHER)
                await asyncio.sleep(i % 11 / 10)
                polls[i % 2].cancel()
                for each in await asyncio.gather(*polls, return_exceptions=True):
                    seen += [] if isinstance(each, BaseException) else each
            while found := await one.poll(2_000):
                seen += found
            assert sorted((each.queue_id, each.queue_offset) for each in seen) == [
                (q, i) for q in (0, 1) for i in range(200)
            ]
            assert not one._core._waiting

    play(main())


@pytest.mark.parametrize("what", ["commit", "seek", "subscribe", "assign", "start", "close"])
def test_calls_that_are_canceled_at_each_moment(what):
    async def main():
        for moment in range(12):
            stage = PullCluster()
            stage.fill(20)
            topics = None if what == "assign" else ["orders"]
            one = stage.puller(topics, auto_commit=False)
            calls = {
                "commit": one.commit,
                "seek": lambda one=one: one.seek(QUEUE, 5),
                "subscribe": lambda one=one: one.subscribe("bills"),
                "assign": lambda one=one: one.assign([QUEUE]),
                "start": one.start,
                "close": one.close,
            }
            if what != "start":
                await one.start()
                if topics:
                    await one.poll(1000)
            call = asyncio.ensure_future(calls[what]())
            await asyncio.sleep(moment * 0.003)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            if what in ("commit", "seek", "subscribe", "assign"):
                await calls[what]()
                found = await one.poll(5_000)
                assert offsets(found)[0] == {"seek": 5, "assign": 0}.get(what, 10)
            await one.close()
            await asyncio.sleep(40)  # a close() that was canceled ends its connections, too
            assert len(asyncio.all_tasks()) == 1
            assert what != "commit" or stage.offset() == 10

    play(main())


def test_messages_that_do_not_reach_a_thread_come_again():
    async def main():
        stage = PullCluster()
        stage.fill(20)
        async with stage.puller() as one:
            poll = Poll()
            assert offsets(await one._poll(None, 5, poll)) == [0, 1, 2, 3, 4]
            one._give_back(poll)
            assert offsets(await one.poll(max_records=7)) == [0, 1, 2, 3, 4, 5, 6]
            one._give_back(poll)  # once
            assert offsets(await one.poll(max_records=2)) == [7, 8]
            late = Poll()
            one._give_back(late)  # Ctrl-C came before the event loop began with this poll()
            assert await one._poll(None, 5, late) == []
            assert offsets(await one.poll(max_records=1)) == [9]

    play(main())


def test_an_iterator_that_ends():
    async def main():
        stage = PullCluster()
        stage.fill(12)
        async with stage.puller() as one:
            seen = []

            async def read():
                async for message in one:
                    seen.append(message.queue_offset)

            reading = asyncio.ensure_future(read())
            polling = asyncio.ensure_future(one.poll(60_000))
            await asyncio.sleep(3)
            await one.close()
            await reading
            assert len(seen) >= 2
            await asyncio.gather(polling, return_exceptions=True)
        assert stage.offset() == 12
        with pytest.raises(ClosedError, match="the consumer is closed"):
            await one.poll()
        with pytest.raises(ClosedError, match="cannot be started twice"):
            await one.start()

    play(main())


def test_wrong_arguments():
    with pytest.raises(TypeError, match=r"topics: expected names, got the text 'orders'"):
        AsyncPullConsumer("g", topics="orders")
    with pytest.raises(IllegalMessageError, match="may only have letters"):
        AsyncPullConsumer("g", topics=["my orders"])
    with pytest.raises(ValueError, match="a group name may only have letters"):
        AsyncPullConsumer("my group")
    with pytest.raises(TypeError, match="unknown keyword pull_batch; did you mean pull_batch_size"):
        AsyncPullConsumer("g", pull_batch=1)

    async def main():
        stage = PullCluster()
        one = stage.puller()
        for call in (one.poll, one.commit, lambda: one.seek(QUEUE, 0), lambda: one.fetch_message_queues("orders")):
            with pytest.raises(ClosedError, match="the consumer is not started"):
                await call()
        async with one:
            for call, error, text in [
                (lambda: one.poll("1"), TypeError, "timeout: expected int, got str"),
                (lambda: one.poll(-1), ValueError, "timeout is -1; it must be at least 0"),
                (lambda: one.poll(1, 0), ValueError, "max_records is 0; it must be at least 1"),
                (lambda: one.poll(1, True), TypeError, "max_records: expected int, got bool"),
                (lambda: one.seek("orders", 0), TypeError, "queue: expected MessageQueue, got str"),
                (lambda: one.seek(QUEUE, 1.5), TypeError, "offset: expected int, got float"),
                (lambda: one.commit([QUEUE]), TypeError, "offsets: expected a mapping, got list"),
                (lambda: one.commit({QUEUE: None}), TypeError, "offset: expected int, got NoneType"),
                (lambda: one.commit({"orders": 1}), TypeError, "queue: expected MessageQueue, got str"),
                (
                    lambda: one.offset_for_timestamp(QUEUE, "now"),
                    TypeError,
                    "timestamp: expected ms since 1970 or a datetime, got str",
                ),
                (lambda: one.committed(0), TypeError, "queue: expected MessageQueue, got int"),
                (lambda: one.assign([]), ValueError, "queues: at least one queue is needed"),
                (lambda: one.assign(QUEUE), TypeError, "queues: expected a list of MessageQueue, got MessageQueue"),
                (lambda: one.assign(None), TypeError, "queues: expected a list of MessageQueue, got NoneType"),
                (lambda: one.assign(["a"]), TypeError, "queue: expected MessageQueue, got str"),
                (lambda: one.subscribe(1), TypeError, "topic: expected str, got int"),
                (lambda: one.subscribe("orders", 1), TypeError, "tags: expected str, got int"),
                (lambda: one.fetch_message_queues("my orders"), IllegalMessageError, "may only have letters"),
            ]:
                with pytest.raises(error, match=text):
                    await call()
            with pytest.raises(TypeError, match="queues: expected a list"):
                one.pause(QUEUE)

    play(main())
