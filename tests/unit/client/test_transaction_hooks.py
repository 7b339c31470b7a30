"""What hooks, message trace and OpenTelemetry see of transactions, on virtual time."""

import asyncio
import dataclasses

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from unit.client.scripted import play
from unit.client.scripted_transactions import TransactionCluster, properties_of
from unit.client.test_tracing import traces_of
from unit.client.test_transaction_producer import opened, stage

from rocketc.client import LocalTransactionState
from rocketc.client.telemetry import Telemetry
from rocketc.errors import NotSentError
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer

assert stage


async def commit(message):
    return "COMMIT_MESSAGE"


def hooked(work, hook, **options):
    async def main():
        stage = TransactionCluster()
        producer = stage.transaction_producer(commit, **options)
        producer.add_end_transaction_hook(hook)
        async with producer:
            result = await work(producer, stage)
        return result, stage

    return play(main())


def test_a_hook_sees_the_ends():
    async def work(producer, stage):
        result = await producer.send_in_transaction("orders", b"one", lambda message: "ROLLBACK_MESSAGE", keys="o-1")
        stage.ask()
        await asyncio.sleep(0.1)
        return result

    seen = []
    result, stage = hooked(work, seen.append)
    direct, checked = seen
    assert direct.message.body == checked.message.body == b"one" and direct.message.keys == "o-1"
    rest = {"message": None, "ended": None, "group": "shop", "address": stage.address("a"), "error": None}
    found = [{**dataclasses.asdict(dataclasses.replace(one, message=None)), "ended": None} for one in seen]
    assert found[0] == rest | {
        "msg_id": result.msg_id, "transaction_id": result.msg_id, "is_from_check": False,
        "state": LocalTransactionState.ROLLBACK_MESSAGE,
    }  # fmt: skip
    assert found[1] == rest | {
        "msg_id": "K1", "transaction_id": "T1", "is_from_check": True, "state": LocalTransactionState.COMMIT_MESSAGE,
    }  # fmt: skip
    assert 1_764_000_000_000 <= direct.ended <= checked.ended < 1_764_000_001_000


def test_a_hook_that_fails_and_an_end_that_is_not_written(caplog):
    def hook(context):
        seen.append(context)
        raise ValueError("of the hook")

    async def work(producer, stage):
        def dies(message):
            del stage.servers[stage.address("a")]
            stage.cut(stage.address("a"))
            return "COMMIT_MESSAGE"

        return await producer.send_in_transaction("orders", b"one", dies)

    seen = []
    result, _ = hooked(work, hook)
    assert isinstance(seen[0].error, NotSentError) and result.end_error is seen[0].error
    assert "a transaction hook failed: of the hook" in caplog.text


def test_a_hook_that_is_not_a_function():
    producer = TransactionCluster().transaction_producer
    for wrong in (7, commit):
        with pytest.raises(TypeError, match="expected a plain function"):
            play(_add(producer, wrong))


async def _add(producer, wrong):
    producer().add_end_transaction_hook(wrong)


def test_a_send_hook_sees_the_half_message():
    async def main():
        stage, seen = TransactionCluster(), []
        producer = stage.transaction_producer()
        producer.add_send_hook(lambda context: context.properties.update(mark="7"), seen.append)
        async with producer, producer.transaction("orders", b"one") as transaction:
            pass
        assert seen[0].result == transaction.sent and "TRAN_MSG\x01true" in seen[0].message.properties
        assert properties_of(stage.halves()[0])["mark"] == "7"

    play(main())


# blocks and functions that are given up: a generator or a coroutine that its owner closes


def test_a_generator_that_is_closed_in_a_block():
    async def main():
        stage = TransactionCluster()
        async with stage.transaction_producer() as producer:

            async def orders():
                async with producer.transaction("orders", b"one") as transaction:
                    yield transaction

            generator = orders()
            transaction = await anext(generator)
            await generator.aclose()
            assert transaction.state is LocalTransactionState.UNKNOW and not producer._open
        assert stage.ends == [], "the broker asks"

    play(main())


def test_a_coroutine_that_is_closed_in_a_local_transaction():
    async def main():
        stage, begun = TransactionCluster(), []

        async def local(message):
            begun.append(message)
            await asyncio.sleep(100)

        async with stage.transaction_producer() as producer:
            work = producer.send_in_transaction("orders", b"one", local)
            while not begun:
                waiting = work.send(None)
                if waiting is not None:
                    waiting._asyncio_future_blocking = False
                    await asyncio.wait({waiting})
            work.close()
            assert not producer._open
        assert stage.ends == [], "the broker asks"

    play(main())


# message trace


def test_what_trace_writes():
    async def main():
        stage = TransactionCluster()
        stage.brokers["a"].answers[310] = lambda call: Answer(
            values=stage._store(call).values, fields={"MSG_REGION": "here", "TRACE_ON": "true"}
        )
        async with stage.transaction_producer(commit, enable_msg_trace=True) as producer:
            async with producer.transaction("orders", b"one", tags="web", keys="k1 k2") as transaction:
                await asyncio.sleep(0.01)
            stage.ask()
            await asyncio.sleep(0.1)
        return transaction, stage, traces_of(stage)

    transaction, stage, (records, keys) = play(main())
    half, end, check = records
    assert (half["type"], half["msgType"], half["msgId"]) == ("Pub", "Trans_Msg_Half", transaction.msg_id)
    assert 1_764_000_000_000 <= end.pop("timestamp") < 1_764_000_001_000
    assert end == {
        "type": "EndTransaction", "regionId": "DefaultRegion", "group": "shop", "topic": "orders",
        "msgId": transaction.msg_id,
        "tags": "web", "keys": "k1 k2", "storeHost": stage.address("a"), "msgType": "Trans_msg_Commit",
        "transactionId": transaction.msg_id, "transactionState": "COMMIT_MESSAGE", "fromTransactionCheck": False,
    }  # fmt: skip
    assert (check["msgId"], check["fromTransactionCheck"], check["keys"]) == ("K1", True, "o-1")
    assert set(keys[0].split()) == {transaction.msg_id, "k1", "k2", "K1", "o-1"}


def test_trace_leaves_out_an_end_that_is_not_written_and_what_brokers_do_not_want():
    async def main():
        stage = TransactionCluster()
        async with stage.transaction_producer(commit, enable_msg_trace=True) as producer:
            half = await producer._send_half("orders", b"one")
            half.address = ""
            producer._instance.routes.publish_info = lambda topic: None
            assert await producer._end(half, LocalTransactionState.COMMIT_MESSAGE, None) is not None
            del producer._instance.routes.publish_info
            stage.ask(properties={"TRACE_ON": "false"})
            await asyncio.sleep(0.1)
        return traces_of(stage)[0]

    assert [one["type"] for one in play(main())] == ["Pub"]


# OpenTelemetry


@pytest.fixture
def spans():
    provider, found = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(found))
    found.telemetry, found.provider = Telemetry(provider), provider
    return found


def test_spans_of_coroutines(spans):
    async def main():
        stage = TransactionCluster()
        producer = spans.telemetry.producer(stage.transaction_producer(commit))
        tracer = spans.provider.get_tracer("test")
        async with producer:
            with tracer.start_as_current_span("parent"):
                async with producer.transaction("orders", b"one", keys="o-1", tags="web") as transaction:
                    await asyncio.sleep(0.1)
                await producer.send_in_transaction("orders", b"two", lambda message: "COMMIT_MESSAGE")
            stage.status = Code.MESSAGE_ILLEGAL
            with pytest.raises(Exception, match="MESSAGE_ILLEGAL"):
                await producer.send_in_transaction("orders", b"three", lambda message: "COMMIT_MESSAGE")
        return transaction, stage

    transaction, stage = play(main())
    first, second, parent, failed = spans.get_finished_spans()
    assert [one.name for one in (first, second, failed)] == ["send orders"] * 3
    assert first.parent.span_id == second.parent.span_id == parent.context.span_id
    assert first.attributes["messaging.message.id"] == transaction.msg_id
    assert first.attributes["messaging.rocketmq.message.type"] == "transaction"
    assert first.attributes["messaging.rocketmq.message.keys"] == ("o-1",)
    assert f"{first.context.trace_id:032x}" in properties_of(stage.halves()[0])["traceparent"]
    assert not failed.status.is_ok and failed.attributes["error.type"] == "AnswerError"


def test_spans_of_threads(spans, stage):
    producer = spans.telemetry.producer(opened(stage))
    tracer = spans.provider.get_tracer("test")
    with producer, tracer.start_as_current_span("parent"):
        with producer.transaction("orders", b"one") as transaction:
            pass
        producer.send("orders", b"two")
    half, plain, parent = spans.get_finished_spans()
    assert half.parent.span_id == plain.parent.span_id == parent.context.span_id
    assert half.attributes["messaging.message.id"] == transaction.msg_id
    assert half.attributes["messaging.rocketmq.message.type"] == "transaction"
    assert "messaging.rocketmq.message.type" not in plain.attributes


def test_the_local_transaction_gets_the_properties_that_hooks_add():
    """As with Java's client, where hook and local transaction have the same message."""

    async def main():
        stage = TransactionCluster()
        producer = stage.transaction_producer(commit)
        producer.add_send_hook(lambda context: context.properties.update(traceparent="00-1"), None)
        found = []
        async with producer:
            await producer.send_in_transaction("orders", b"one", lambda message: found.append(message) or "UNKNOW")
        [message], [half] = found, stage.halves()
        assert message.properties["traceparent"] == properties_of(half)["traceparent"] == "00-1"
        assert message.properties["TRAN_MSG"] == "true"

    play(main())
