"""What clients count, and the status of topics that a consumer reports."""

import asyncio
import json

import pytest
from unit.client.scripted import Cluster, play, stored
from unit.client.scripted_push import GROUP, PushCluster

from rocketc.client import AsyncConsumer, RetryLater, counts
from rocketc.client.counts import OTHERS, ConsumeCounts, Times, TimesByTopic, Window
from rocketc.client.orderly_service import OrderlyService
from rocketc.client.subscriptions import subscribe
from rocketc.errors import AnswerError, ClosedError, TopicNotFoundError
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command
from rocketc.remoting.server import Answer


def test_times():
    times = Times((1, 5, 10))
    for ms in (0, 1, 1.1, 5, 10, 11, 1e9):
        times.add(ms)
    times.add(3, 4)
    assert times.below() == [(1, 2), (5, 8), (10, 9)] and times.count == 11
    assert times.total == 0 + 1 + 1.1 + 5 + 10 + 11 + 1e9 + 12


def test_the_steps_are_those_of_rocketmqs_documentation():
    """Observability, Metrics: le_1_ms to le_500_ms of rocketmq_send_cost_time, le_60000_ms of rocketmq_process_time."""
    assert counts.SEND_BOUNDS == (1, 5, 10, 20, 50, 200, 500)
    assert counts.PROCESS_BOUNDS == (1, 5, 10, 100, 10_000, 60_000)


def test_topics_beyond_the_limit_are_counted_together(monkeypatch):
    monkeypatch.setattr(counts, "_TOPICS_MOST", 3)
    times = TimesByTopic((1,))
    for topic in "abcdea":
        times.add(topic, True, 2)
    assert {topic: one.count for (topic, _), one in times.items()} == {"a": 2, "b": 1, "c": 1, OTHERS: 2}


def test_a_window():
    window = Window(10, 6)
    assert window.sum(0.0) == 0 and window.mean(0.0) == 0.0
    for second in range(0, 200):
        window.add(float(second), 2, ms=3.0)
    assert 120 <= window.sum(199.0) <= 140 and window.mean(199.0) == 1.5
    assert window.rate(199.0) == pytest.approx(2, rel=0.2)
    assert window.sum(230.0) < 80 and window.sum(270.0) == 0
    assert len(window._kept) <= 7


def test_the_status_of_a_topic():
    found = ConsumeCounts()
    for i in range(60):
        found.pulled("orders", 4, ms=10.5, now=float(i))
        found.consumed("orders", i % 3 > 0, 2, ms=0.4, now=float(i))
    status = found.status(["%RETRY%g", "orders"], 59.0)
    assert status["orders"] == {
        "consumeFailedMsgs": 40,
        "consumeFailedTPS": pytest.approx(40 / 60),
        "consumeOKTPS": pytest.approx(80 / 60),
        "consumeRT": pytest.approx(0.4),
        "pullRT": pytest.approx(10.5),
        "pullTPS": pytest.approx(4.0),
    }
    assert list(status["orders"]) == sorted(status["orders"]) and not any(status["%RETRY%g"].values())
    later = found.status(["orders"], 200.0)["orders"]
    assert later["consumeFailedMsgs"] == 40 and later["consumeOKTPS"] == 0.0


def test_sends_are_counted_by_topic_and_result():
    answers = iter([Answer(Code.SYSTEM_BUSY)])

    async def main():
        cluster = Cluster({"a": lambda call: next(answers, stored(call))})
        async with cluster.producer() as producer:
            for _ in range(3):
                await producer.send("orders", b"one")
            await producer.send("invoices", b"one")
            cluster.brokers["a"].answers[310] = Answer(Code.MESSAGE_ILLEGAL)
            with pytest.raises(AnswerError):
                await producer.send("orders", b"one")
            cluster.missing, cluster.creates = {"none"}, False
            with pytest.raises(TopicNotFoundError):
                await producer.send("none", b"one")
            return producer.counts(), producer.client_id

    found, client_id = play(main())
    assert {key: times.count for key, times in found.sends} == {
        ("orders", True): 3,
        ("invoices", True): 1,
        ("orders", False): 1,
        ("none", False): 1,
    }
    assert all(times.total > 0 for _, times in found.sends)
    assert (found.retries, found.messages, found.bytes) == (1, 0, 0)
    assert (found.client_id, found.group) == (client_id, "shop")


def test_messages_in_flight_are_counted():
    async def main():
        cluster = Cluster({"a": lambda call: None})
        async with cluster.producer(send_msg_timeout=1000) as producer:
            sending = [asyncio.ensure_future(producer.send("orders", b"one")) for _ in range(3)]
            await asyncio.sleep(0.1)
            found = producer.counts()
            await asyncio.gather(*sending, return_exceptions=True)
        return found

    found = play(main())
    assert (found.messages, found.bytes) == (3, 9)


def test_pulls_and_listeners_are_counted():
    async def listener(message):
        await asyncio.sleep(0.003)
        if message.body == b"1":
            raise ValueError("no")

    async def main():
        cluster = PushCluster("a")
        cluster.put(5)
        core = cluster.consumer()
        await core.subscribe(subscribe("orders"), listener)
        await core.start()
        await asyncio.sleep(0.5)
        found = core.counts()
        request = Command(307, {"consumerGroup": GROUP, "clientId": core.client_id, "jstackEnable": "false"})
        body = core._asked._running_info(request).body.decode()
        status = json.loads(body.partition('"statusTable":')[2].partition(',"subscriptionSet"')[0])["orders"]
        await core.close()
        return found, status

    found, status = play(main())
    processed = dict(found.processed)
    assert processed["orders", True].count == 4 and processed["orders", False].count == 1
    assert processed["orders", True].total == pytest.approx(12, abs=4)
    assert found.pulled == {"orders": 5} and dict(found.pulls)["orders", True].count == 1
    assert (found.returned, found.group, found.cached["orders"]) == (1, GROUP, (0, 0))
    assert found.queues == 4  # two of the topic, two for retries
    assert status["consumeFailedMsgs"] == 1 and status["consumeOKTPS"] > 0 and status["pullTPS"] > 0


def test_a_part_of_a_batch_that_failed():
    async def main():
        stage = PushCluster("a")
        stage.put(4)
        core = stage.consumer(consume_message_batch_max_size=4)

        async def listener(messages):
            raise RetryLater(messages=messages[1:2])

        await core.subscribe(subscribe("orders"), listener)
        await core.start()
        await asyncio.sleep(2)
        counts = core.counts()
        await core.close()
        return {key: times.count for key, times in counts.processed}, counts.returned

    assert play(main()) == ({("orders", True): 3, ("orders", False): 1}, 1)


def test_messages_that_are_rolled_back_are_not_consumed():
    async def main():
        stage, decisions = PushCluster("a"), ["commit", "rollback", "commit"]
        stage.put(2)
        core = stage.consumer(OrderlyService)

        async def listener(message, context):
            getattr(context, decisions.pop(0))()

        await core.subscribe(subscribe("orders"), listener, auto_commit=False)
        await core.start()
        await asyncio.sleep(5)
        counts = core.counts()
        await core.close()
        return {key: times.count for key, times in counts.processed}

    assert play(main()) == {("orders", True): 2, ("orders", False): 1}


def test_a_consumer_that_is_closed_does_not_count(broker):
    async def main():
        async with AsyncConsumer("counts", broker.name_server, topics=["orders"]) as consumer:
            assert consumer.counts().group == "counts"
        with pytest.raises(ClosedError, match="the consumer is closed"):
            consumer.counts()

    asyncio.run(main())
