"""Orderly listeners that commit manually, parts of batches that failed, and retries without a subscription."""

import asyncio
import logging
import random

import pytest
from unit.client.scripted import play
from unit.client.scripted_push import GROUP, PushCluster

import rocketc
from rocketc.client import MessageQueue, OrderlyContext, PushConsumer, RetryLater
from rocketc.client.consume_results import ConsumeOrderlyStatus
from rocketc.client.orderly_context import bound
from rocketc.client.orderly_service import OrderlyService
from rocketc.client.subscriptions import subscribe
from rocketc.errors import IllegalMessageError
from rocketc.format._encoding import encode
from rocketc.remoting.command import Command
from rocketc.remoting.requests import CODES
from rocketc.remoting.server import Answer
from rocketc.tables.fastjson import parse

ORDERS = MessageQueue("orders", "a", 0)


async def consume(stage, listener, seconds=30, **options):
    core = stage.consumer(kind=OrderlyService, **options)
    await core.subscribe(subscribe("orders"), listener, auto_commit=False)
    await core.start()
    await asyncio.sleep(seconds)
    await core.close()


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("seed", range(6))
def test_any_decisions(seed, batch):
    """What a listener gets, and what is committed, is what a model of one queue says; also after a restart."""

    async def main():
        chance, stage, model = random.Random(seed), PushCluster("a"), {"next": 0, "committed": 0}
        stage.put(20)

        async def listener(messages, context):
            offsets = [one.queue_offset for one in (messages if batch > 1 else [messages])]
            first, end = model["next"], model["next"] + len(offsets)
            assert offsets == list(range(first, end)) and context.queue == ORDERS
            decision = chance.choice(["", "", "commit", "commit", "rollback", "suspend", "raise", "revoked"])
            if decision == "rollback":
                context.rollback(pause_ms=chance.choice([None, 10, 3_000]))
                model["next"] = model["committed"]
            elif decision == "suspend":
                context.suspend(pause_ms=500)
            elif decision in ("raise", "revoked"):
                if decision == "revoked":
                    context.commit()
                raise ValueError("no amount")
            else:
                model["next"] = end
                if decision == "commit":
                    context.rollback()
                    context.commit()  # the last one counts
                    model["committed"] = end

        for seconds in (5, 30, 60):
            await consume(stage, listener, seconds, consume_message_batch_max_size=batch)
            assert stage.committed.get(("a", "orders", 0), 0) == model["committed"]
            model["next"] = model["committed"]
        assert stage.returned == [] and model["committed"] > 10

    play(main())


@pytest.mark.parametrize("kind", ["coroutine", "function"])
def test_a_transfer_of_three_messages(kind, broker, producer):
    """At a broker of this project: three messages are one transfer, and its first attempt fails."""
    group = f"transfers-{kind}"
    for i in range(3):
        producer.send(group, b"%d" % i, shard="one")
    seen = []

    def decide(message, context):
        seen.append(message.body)
        if message.body == b"2":
            if len(seen) == 3:
                context.rollback(pause_ms=10)
            else:
                context.commit()
                consumer._end.set()

    async def coroutine(message, context):
        decide(message, context)

    consumer = PushConsumer(group, broker.name_server, orderly=True, consume_from_where="CONSUME_FROM_FIRST_OFFSET")
    with consumer:
        consumer.subscribe(group, auto_commit=False)(coroutine if kind == "coroutine" else decide)
        assert consumer.wait(10)
    assert seen == [b"0", b"1", b"2"] * 2
    with PushConsumer(group, broker.name_server, orderly=True) as again:
        again.subscribe(group, listener=seen.append)
        assert not again.wait(0.3)
    assert len(seen) == 6


def test_pulls_wait_for_a_commit():
    async def main():
        stage, got = PushCluster("a"), []
        stage.put(40)

        async def listener(message, context):
            got.append(message.queue_offset)
            if len(got) == 100:
                context.commit()

        await consume(stage, listener, 10, pull_threshold_for_queue=10, pull_batch_size=4)
        assert got == list(range(12)) and ("a", "orders", 0) not in stage.committed

    play(main())


def test_a_message_that_fails_too_often_waits_for_the_commit():
    """It becomes a dead letter, and its offset is committed with the next message."""

    async def main():
        stage, got = PushCluster("a"), []
        stage.put(3)

        async def listener(message, context):
            got.append(message.queue_offset)
            if message.queue_offset == 1:
                context.suspend(pause_ms=10)
            elif message.queue_offset == 2:
                assert ("a", "orders", 0) not in stage.committed
                context.commit()

        await consume(stage, listener, 10, max_reconsume_times=1)
        assert got == [0, 1, 1, 2] and stage.committed["a", "orders", 0] == 3
        assert stage.brokers["a"].count(310) == 1

    play(main())


def test_a_listener_that_raises_chooses_no_pause():
    async def main():
        stage, got = PushCluster("a"), []
        stage.put(1)

        async def listener(message, context):
            got.append(message.queue_offset)
            context.rollback(pause_ms=30_000)
            raise ValueError("no amount")

        await consume(stage, listener, 5)
        assert len(got) == 5  # a second apart

    play(main())


def test_a_status_that_is_returned_counts():
    async def main():
        stage = PushCluster("a")
        stage.put(1)

        async def listener(message, context):
            return ConsumeOrderlyStatus.COMMIT

        await consume(stage, listener, 10)
        assert stage.committed["a", "orders", 0] == 1

    play(main())


def test_an_operator_tests_a_listener():
    """CONSUME_MESSAGE_DIRECTLY answers with the decision; nothing is committed."""

    async def main():
        stage = PushCluster("a")
        core = stage.consumer(kind=OrderlyService)

        async def listener(message, context):
            assert context.queue.topic == "orders"
            context.rollback()

        await core.subscribe(subscribe("orders"), listener, auto_commit=False)
        request = Command(CODES["CONSUME_MESSAGE_DIRECTLY"], body=encode("orders", b"x"))
        answer = await core._asked._consume_directly(request)
        told = parse(answer.body)
        assert (told["consumeResult"], told["autoCommit"], told["order"]) == ("CR_ROLLBACK", False, True)
        await core.close()

    play(main())


def test_a_context_is_checked():
    context = OrderlyContext(ORDERS)
    with pytest.raises(ValueError, match="pause_ms is 9; allowed are 10 to 30000"):
        context.rollback(pause_ms=9)
    with pytest.raises(TypeError, match="pause_ms: expected int, got str"):
        context.suspend(pause_ms="10")
    with pytest.raises(TypeError, match="pause_ms: expected int, got bool"):
        context.suspend(pause_ms=True)
    assert context.status is ConsumeOrderlyStatus.SUCCESS
    assert bound(lambda message, given: (message, given), context)(7) == (7, context)


def test_only_orderly_consumers_commit_manually():
    with pytest.raises(ValueError, match="auto_commit=False needs a consumer with orderly=True"):
        PushConsumer("g").subscribe("orders", auto_commit=False)


# a part of a batch


def batch_of(count):
    return [rocketc.Message.of(encode("orders", b"", queue_offset=i)) for i in range(count)]


def test_messages_that_failed():
    messages, other = batch_of(3), batch_of(1)
    assert RetryLater().failed_of(messages) == messages
    assert RetryLater("10s", messages=messages[1:]).failed_of(messages) == messages[1:]
    assert RetryLater(messages=[messages[2], messages[0]]).failed_of(messages) == [messages[0], messages[2]]
    assert RetryLater(messages=messages[1:] + other).failed_of(messages) == messages  # one of another call
    assert (RetryLater().level, RetryLater(-1).level, RetryLater("10s").level) == (0, -1, 3)
    for level in (-2, False, "7s"):
        with pytest.raises(IllegalMessageError):
            RetryLater(level)
    with pytest.raises(ValueError, match="messages: expected at least one message"):
        RetryLater(messages=[])


def test_a_part_of_a_batch_is_sent_back():
    async def main():
        stage, got = PushCluster("a"), []
        stage.put(8)

        async def listener(messages):
            got.extend(one.queue_offset for one in messages)
            failed = [one for one in messages if one.queue_offset in (2, 5)]
            if failed:
                raise RetryLater("10s", messages=failed)

        await stage.consume(listener, 10, consume_message_batch_max_size=4)
        assert got == list(range(8)) and stage.committed["a", "orders", 0] == 8
        assert [(one["offset"], one["delayLevel"]) for one in stage.returned] == [(2000, 3), (5000, 3)]

    play(main())


def test_a_part_of_a_batch_that_cannot_be_sent_back_comes_again():
    async def main():
        stage, got = PushCluster("a"), []
        stage.put(4)
        stage.brokers["a"].answers[36] = stage.brokers["a"].answers[310] = Answer(13)

        async def listener(messages):
            got.append([one.queue_offset for one in messages])
            if len(got) == 1:
                raise RetryLater(messages=messages[2:3])

        await stage.consume(listener, 20, consume_message_batch_max_size=4)
        assert got == [[0, 1, 2, 3], [2]] and stage.committed["a", "orders", 0] == 4

    play(main())


# retries of a topic that was unsubscribed


def test_retries_come_after_unsubscribe(broker, producer, caplog):
    """As in RocketMQ, whose consumers have one listener for all topics."""
    caplog.set_level(logging.WARNING, "rocketc.client")
    seen = []

    def listener(message):
        seen.append((message.topic, message.reconsume_times))
        if message.reconsume_times < 1:
            raise RetryLater(1)
        consumer._end.set()

    producer.send("left", b"one")
    first = {"consume_from_where": "CONSUME_FROM_FIRST_OFFSET"}
    with PushConsumer("leaving", broker.name_server, **first) as consumer:
        consumer.subscribe("left", listener=listener)
        while not seen:
            consumer.wait(0.01)
        consumer.unsubscribe("left")
        assert consumer.wait(15)
    assert seen == [("left", 0), ("left", 1)]
    assert GROUP not in caplog.text and "there is no listener" not in caplog.text
