"""Message trace: what is written, in which batches, and what its faults do to the sends: nothing."""

import asyncio
import queue
import zlib

import pytest
from unit.client.scripted import Cluster, play, stored
from unit.client.scripted_pull import OTHER, PullCluster
from unit.client.scripted_push import PushCluster

from rocketc.client import NewMessage, Producer, PullConsumer, PushConsumer, RetryLater, tracing
from rocketc.client.settings import ProducerSettings
from rocketc.client.subscriptions import subscribe
from rocketc.errors import AnswerError
from rocketc.format.traces import TRACE_TOPIC, decode_traces, encode_trace
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer


def traces_of(cluster, topic=TRACE_TOPIC):
    """The records that brokers got, and the keys of each message."""
    calls = [call for broker in cluster.brokers.values() for call in broker.asked if call.command.code == 310]
    found = [call for call in calls if call.values["topic"] == topic]
    records = [one for call in found for one in decode_traces(_body(call))]
    keys = [dict(one.split("\x01") for one in call.values["properties"].split("\x02") if one)["KEYS"] for call in found]
    return records, keys


def _body(call):
    return zlib.decompress(call.command.body) if call.values["sysFlag"] & 1 else call.command.body


def run(work, answer=stored, **options):
    """Run work(producer, cluster) with trace; return what it returns and the cluster after the end."""

    async def main():
        stage = Cluster({"a": answer})
        producer = stage.producer(enable_msg_trace=True, **options)
        async with producer:
            result = await work(producer, stage)
        return result, stage, producer

    return play(main())


def test_what_a_send_writes():
    async def work(producer, stage):
        sent = await producer.send("orders", b"one", tags="web", keys="k1 k2")
        later = await producer.send("orders", b"later", delay_level=1)
        await producer.send_oneway("orders", b"untraced")
        return sent, later

    def answer(call):
        return Answer(values=stored(call).values, fields={"MSG_REGION": "here", "TRACE_ON": "true"})

    (sent, later), stage, producer = run(work, answer)
    records, keys = traces_of(stage)
    first, second = records
    assert 1_764_000_000_000 <= first.pop("timestamp") < 1_764_000_001_000 and 0 <= first.pop("costTime") < 100
    assert first == {
        "type": "Pub", "regionId": "here", "group": "shop", "topic": "orders", "msgId": sent.msg_id, "tags": "web",
        "keys": "k1 k2", "storeHost": stage.address("a"), "bodyLength": 3, "msgType": "Normal_Msg",
        "offsetMsgId": sent.offset_msg_id, "success": True,
    }  # fmt: skip
    assert (second["tags"], second["keys"], second["msgType"]) == ("null", "null", "Delay_Msg")
    assert [set(one.split()) for one in keys] == [{sent.msg_id, later.msg_id, "k1", "k2"}]
    assert producer.dropped_traces == 0


def test_batches_failures_and_statuses():
    async def work(producer, stage):
        await producer.send_many("orders", [b"1", NewMessage(b"2", tags="web", keys="k")])
        stage.brokers["a"].answers[310] = lambda call: (
            stored(call) if call.values["topic"] == TRACE_TOPIC else Answer(Code.MESSAGE_ILLEGAL)
        )
        with pytest.raises(AnswerError):
            await producer.send("orders", b"refused")
        stage.brokers["a"].answers[310] = lambda call: Answer(
            0 if call.values["topic"] == TRACE_TOPIC else Code.FLUSH_DISK_TIMEOUT, stored(call).values
        )
        await producer.send("orders", b"not flushed")

    def answer(call):
        return Answer(values=stored(call).values | {"msgId": "A,B"})

    _, stage, _ = run(work, answer)
    batch, slow = traces_of(stage)[0]
    assert batch["msgId"].count(",") == 1 and (batch["tags"], batch["offsetMsgId"]) == ("null", "A,B")
    assert batch["success"] is True and slow["success"] is False


def test_a_broker_that_does_not_want_traces():
    async def work(producer, stage):
        await producer.send("orders", b"one")
        await producer.send(TRACE_TOPIC, b"of the program")

    _, stage, _ = run(work, lambda call: Answer(values=stored(call).values, fields={"TRACE_ON": "false"}))
    assert sum(call.command.code == 310 for call in stage.brokers["a"].asked) == 2
    _, stage, _ = run(lambda producer, stage: producer.send(TRACE_TOPIC, b"of the program"))
    assert stage.brokers["a"].count(310) == 1


def test_traces_leave_in_the_background_and_in_batches():
    async def work(producer, stage):
        began = asyncio.get_running_loop().time()
        await asyncio.gather(*[producer.send("orders", b"one") for _ in range(250)])
        assert asyncio.get_running_loop().time() - began < 0.2 and not traces_of(stage)[0]
        await asyncio.sleep(1)
        counts = [len(one.split()) for one in traces_of(stage)[1]]
        assert counts == [100, 100, 50]
        await producer.send("orders", b"last")

    _, stage, _ = run(work)
    assert len(traces_of(stage)[0]) == 251


def test_a_batch_has_a_limit_of_bytes():
    async def work(producer, stage):
        for _ in range(7):
            await producer.send("orders", b"one", keys="k" * 30_000)

    _, stage, producer = run(work)
    records, keys = traces_of(stage)
    assert len(records) == 7 and len(keys) == 2 and max(len(one) for one in keys) <= 32_000
    assert producer.dropped_traces == 0


def test_another_topic():
    async def work(producer, stage):
        await producer.send("orders", b"one")

    _, stage, _ = run(work, custom_trace_topic="mytraces")
    assert len(traces_of(stage, "mytraces")[0]) == 1 and not traces_of(stage)[0]
    with pytest.raises(ValueError, match="custom_trace_topic is 'my traces': a topic name may only have"):
        ProducerSettings(custom_trace_topic="my traces")


def only_orders(fault):
    """A broker that answers `fault` to traces."""
    return lambda call: fault if call.values["topic"] == TRACE_TOPIC else stored(call)


@pytest.mark.parametrize("fault", [None, Answer(Code.SYSTEM_BUSY), Answer(Code.NO_PERMISSION)])
def test_traces_that_cannot_be_written(fault, caplog):
    async def work(producer, stage):
        for _ in range(3):
            await producer.send("orders", b"one")
            await asyncio.sleep(5)
        return asyncio.get_running_loop().time()

    async def ended(producer, stage):
        await work(producer, stage)

    _, _, producer = run(ended, only_orders(fault))
    assert producer.dropped_traces == 3 and caplog.text.count("traces are not written (later ones are") == 1


def test_a_topic_that_does_not_exist():
    async def main():
        stage = Cluster({"a": stored}, missing={TRACE_TOPIC}, creates=False)
        producer = stage.producer(enable_msg_trace=True)
        async with producer:
            await producer.send("orders", b"one")
            await asyncio.sleep(1)
        assert producer.dropped_traces == 1

    play(main())


def test_the_end_is_bounded():
    async def work(producer, stage):
        await asyncio.gather(*[producer.send("orders", b"one") for _ in range(250)])
        return asyncio.get_running_loop().time()

    async def main():
        stage = Cluster({"a": only_orders(None)})
        producer = stage.producer(enable_msg_trace=True)
        async with producer:
            began = await work(producer, stage)
        assert asyncio.get_running_loop().time() - began < 4.5 and producer.dropped_traces == 250

    play(main())


def test_too_many_records(monkeypatch, caplog):
    monkeypatch.setattr(tracing, "RECORDS_MOST", 5)

    async def work(producer, stage):
        await asyncio.gather(*[producer.send("orders", b"one") for _ in range(12)])

    _, stage, producer = run(work)
    assert len(traces_of(stage)[0]) == 5 and producer.dropped_traces == 7 and "too many wait" in caplog.text


# consumers


def consumed(listener, count=1, **options):
    """The records that a push consumer writes."""

    async def main():
        cluster = PushCluster("a")
        cluster.put(count)
        await cluster.consume(listener, 10, enable_msg_trace=True, **options)
        return traces_of(cluster)

    return play(main())


async def good(message):
    pass


def test_what_a_listener_writes():
    (before, after), keys = consumed(good)
    assert before["type"] == "SubBefore" and after["type"] == "SubAfter"
    assert before["requestId"] == after["requestId"] and len(before["requestId"]) == 32
    assert before["msgId"] == after["msgId"] in keys[0].split()
    assert (before["group"], before["regionId"], before["retryTimes"], before["keys"]) == ("billing", "null", 0, "null")
    assert (after["success"], after["contextCode"], after["group"]) == (True, "SUCCESS", "billing")


def test_listeners_that_fail():
    async def failing(message):
        raise ValueError("no")

    async def later(message):
        raise RetryLater("10s")

    async def slow(message):
        await asyncio.sleep(61)

    for listener, code in ((failing, "EXCEPTION"), (later, "FAILED")):
        after = consumed(listener)[0][1]
        assert (after["success"], after["contextCode"]) == (False, code)

    async def main():
        cluster = PushCluster("a")
        cluster.put(1)
        await cluster.consume(slow, 100, enable_msg_trace=True, consume_timeout=1)
        return traces_of(cluster)[0]

    after = next(one for one in play(main()) if one["type"] == "SubAfter")
    assert after["contextCode"] == "TIME_OUT" and after["costTime"] >= 60_000


def test_a_batch_of_messages():
    records, _ = consumed(good, 3, consume_message_batch_max_size=3)
    assert [one["type"] for one in records] == ["SubBefore"] * 3 + ["SubAfter"] * 3
    assert len({one["requestId"] for one in records}) == 1 and len({one["msgId"] for one in records}) == 3


def test_without_trace_nothing_is_written():
    async def main():
        cluster = PushCluster("a")
        cluster.put(1)
        core = cluster.consumer()
        await core.subscribe(subscribe("orders"), good)
        assert core._listeners["orders"] is good and core.tracer is None
        await core.start()
        await asyncio.sleep(5)
        await core.close()
        return traces_of(cluster)[0]

    assert play(main()) == []


def test_messages_that_are_read_and_committed():
    async def main():
        cluster = PushCluster("a")
        cluster.put(3)
        async with cluster.reader(enable_msg_trace=True) as consumer:
            for _ in range(2):
                await consumer.getone()
            await asyncio.sleep(2)
            assert [one["type"] for one in traces_of(cluster)[0]] == ["SubBefore"] * 2
            await consumer.commit()
            await consumer.getone()  # not committed
        assert consumer.dropped_traces == 0
        return traces_of(cluster)[0]

    records = play(main())
    assert [one["type"] for one in records] == ["SubBefore", "SubBefore", "SubAfter", "SubAfter", "SubBefore"]
    for before, after in zip(records[:2], records[2:4], strict=True):
        assert (before["requestId"], before["msgId"]) == (after["requestId"], after["msgId"])
        assert after["success"] is True and after["contextCode"] == "SUCCESS" and 2_000 <= after["costTime"] < 3_000


def test_messages_that_are_polled():
    """As DefaultLitePullConsumer of 5.3.3: one request id for each queue, and no time."""

    async def main():
        cluster = PullCluster("a")
        cluster.fill(2)
        cluster.fill(1, OTHER)
        async with cluster.puller(enable_msg_trace=True, pull_batch_size=32) as consumer:
            await asyncio.sleep(3)
            assert traces_of(cluster)[0] == []
            assert len(await consumer.poll()) == 3
        assert consumer.dropped_traces == 0
        return traces_of(cluster)[0]

    records = play(main())
    types = [one["type"] for one in records]
    two, one = ["SubBefore", "SubBefore", "SubAfter", "SubAfter"], ["SubBefore", "SubAfter"]
    assert types in (two + one, one + two) and len({one["requestId"] for one in records}) == 2
    for record in records:
        if record["type"] == "SubAfter":
            assert (record["success"], record["contextCode"], record["costTime"]) == (True, "SUCCESS", 0)


def test_traces_that_a_pull_consumer_loses():
    async def main():
        cluster = PullCluster("a")
        cluster.fill(1)
        cluster.brokers["a"].answers[310] = Answer(Code.NO_PERMISSION)
        async with cluster.puller(enable_msg_trace=True) as consumer:
            await consumer.poll()
        return consumer.dropped_traces

    assert play(main()) == 2


def test_at_a_broker(broker):
    found = queue.Queue()
    options = {"enable_msg_trace": True, "custom_trace_topic": "traces"}
    with Producer("shop", broker.name_server, **options) as producer:
        sent = producer.send("traced", b"one", tags="web", keys="k1")
        begin = {"consume_from_where": "CONSUME_FROM_FIRST_OFFSET"}
        with PushConsumer("traced", broker.name_server, **options, **begin) as consumer:
            consumer.subscribe("traced", listener=found.put)
            found.get(timeout=20)
            assert consumer.dropped_traces == 0
    assert producer.dropped_traces == 0
    messages = [one for queue_id in range(4) for one in broker.store.get("traces", queue_id, 0, max_count=9).messages]
    records = {one["type"]: one for message in messages for one in decode_traces(message.body)}
    assert records.keys() == {"Pub", "SubBefore", "SubAfter"}
    assert {one["msgId"] for one in records.values()} == {sent.msg_id}
    assert records["Pub"]["regionId"] == records["SubBefore"]["regionId"] == "DefaultRegion"


def test_records_are_those_of_java():
    """What TraceDataEncoder of 5.3.3 wrote."""
    text = "Pub|1700000000000|REGION|GROUP|TOPIC|MSGID|TAGS|KEYS|STOREHOST|66|77|3|OFFID|true#"
    fields = {
        "type": "Pub", "timestamp": 1700000000000, "regionId": "REGION", "group": "GROUP", "topic": "TOPIC",
        "msgId": "MSGID", "tags": "TAGS", "keys": "KEYS", "storeHost": "STOREHOST", "bodyLength": 66, "costTime": 77,
        "msgType": 3, "offsetMsgId": "OFFID", "success": True,
    }  # fmt: skip
    assert encode_trace(fields) == text.replace("|", "\x01").replace("#", "\x02").encode()


def test_the_end_waits_for_the_batch_that_is_on_its_way():
    def answer(call):
        if call.values["topic"] == "orders":
            return stored(call)
        asyncio.get_running_loop().call_later(0.3, lambda: call.later(stored(call)))
        return None

    async def work(producer, stage):
        await producer.send("orders", b"one")
        await asyncio.sleep(0.55)

    _, stage, producer = run(work, answer)
    assert producer.dropped_traces == 0 and len(traces_of(stage)[0]) == 1


def test_traces_that_a_consumer_loses_are_counted_after_its_end(broker):
    with PushConsumer("g", broker.name_server, enable_msg_trace=True) as consumer:
        consumer._core.tracer.dropped = 3
    assert consumer.dropped_traces == 3


def test_a_pull_consumer_at_a_broker(broker):
    options = {"enable_msg_trace": True, "custom_trace_topic": "polltraces"}
    with Producer("shop", broker.name_server) as producer:
        sent = producer.send("polltraced", b"one")
    begin = {"consume_from_where": "CONSUME_FROM_FIRST_OFFSET"}
    with PullConsumer("polltraced", broker.name_server, topics=["polltraced"], **options, **begin) as consumer:
        assert len(consumer.poll(20_000)) == 1
    assert consumer.dropped_traces == 0
    messages = [one for at in range(4) for one in broker.store.get("polltraces", at, 0, max_count=9).messages]
    records = [one for message in messages for one in decode_traces(message.body)]
    assert [(one["type"], one["msgId"]) for one in records] == [("SubBefore", sent.msg_id), ("SubAfter", sent.msg_id)]
