"""Spans of sends and listeners, and the context that messages carry from one to the other."""

import asyncio
import queue
import subprocess
import sys

import pytest
from support.threads import wait_until

import rocketc
from rocketc.client import (
    AsyncConsumer,
    AsyncProducer,
    MessageQueue,
    NewMessage,
    OrderlyContext,
    Producer,
    PushConsumer,
)
from rocketc.errors import ClosedError, IllegalMessageError, RequestTimeoutError

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import messaging_attributes

from rocketc.client.telemetry import Telemetry

FIRST = {"consume_from_where": "CONSUME_FROM_FIRST_OFFSET"}
KNOWN = {getattr(messaging_attributes, name) for name in dir(messaging_attributes) if name.startswith("MESSAGING_")}


@pytest.fixture(scope="module")
def broker():
    with rocketc.Broker() as one:
        yield one


class Traces:
    def __init__(self):
        self.spans = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.spans))
        self.telemetry = Telemetry(self.provider)

    def finished(self):
        found = self.spans.get_finished_spans()
        for span in found:
            assert {name for name in span.attributes if name.startswith("messaging.")} <= KNOWN
        return found


@pytest.fixture
def traces():
    return Traces()


def test_a_message_carries_the_trace_from_the_send_to_the_listener(broker, traces):
    found = queue.Queue()
    with (
        traces.telemetry.producer(Producer("shop", broker.name_server)) as producer,
        traces.provider.get_tracer("app").start_as_current_span("request"),
    ):
        token = context.attach(baggage.set_baggage("tenant", "t1"))
        sent = producer.send("carried", b"one", tags="web", keys=["k1", "k2"], shard="s", properties={"own": "x"})
        context.detach(token)

    def listener(message):
        found.put((message, trace.get_current_span().get_span_context(), baggage.get_baggage("tenant")))

    async def coroutine(message):
        await asyncio.sleep(0)
        listener(message)

    for i, function in enumerate((listener, coroutine)):
        with PushConsumer(f"carried-{i}", broker.name_server, **FIRST) as consumer:
            consumer.subscribe("carried", listener=traces.telemetry.listener(function, group=f"carried-{i}"))
            message, current, tenant = found.get(timeout=15)
        assert tenant == "t1"
        send, request, *processes = traces.finished()
        process = processes[i]
        assert message.properties["own"] == "x" and message.properties["baggage"] == "tenant=t1"
        assert (send.name, send.kind, request.name) == ("send carried", trace.SpanKind.PRODUCER, "request")
        assert send.parent.span_id == request.context.span_id
        assert (process.name, process.kind) == ("process carried", trace.SpanKind.CONSUMER)
        assert process.context.trace_id == send.context.trace_id == request.context.trace_id
        assert process.parent.span_id == send.context.span_id and current == process.context
        assert [link.context.span_id for link in process.links] == [send.context.span_id]
        assert process.status.is_ok or process.status.status_code is trace.StatusCode.UNSET
        assert process.attributes["messaging.message.id"] == send.attributes["messaging.message.id"] == sent.msg_id
        assert process.attributes["messaging.consumer.group.name"] == f"carried-{i}"
    assert dict(send.attributes) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "carried",
        "messaging.destination.partition.id": str(sent.queue.queue_id),
        "messaging.rocketmq.client_group": "shop",
        "messaging.message.body.size": 3,
        "messaging.message.id": sent.msg_id,
        "messaging.rocketmq.message.tag": "web",
        "messaging.rocketmq.message.keys": ("k1", "k2"),
        "messaging.rocketmq.message.group": "s",
    }


def test_all_ways_to_send(broker, traces):
    with traces.telemetry.producer(Producer("shop", broker.name_server)) as producer:
        producer.send_async("ways", b"one", keys=iter(["k"])).result()
        producer.send_oneway("ways", b"two", keys="k")
        producer.send_many("ways", [b"three", NewMessage(b"four", tags="web", properties={"own": "x"})])

    async def main():
        async with traces.telemetry.producer(AsyncProducer("shop", broker.name_server)) as producer:
            await producer.send("ways", b"five")
            await producer.send_oneway("ways", b"six")
            await producer.send_many("ways", iter([b"seven"]))

    asyncio.run(main())
    assert [span.name for span in traces.finished()] == ["send ways"] * 6
    by_id = {f"{span.context.span_id:016x}": span for span in traces.finished()}

    async def read():
        async with AsyncConsumer("ways", broker.name_server, topics=["ways"], **FIRST) as consumer:
            found = []
            while len(found) < 7:
                found += await consumer.getmany()
            return found

    found = asyncio.run(asyncio.wait_for(read(), 20))
    carried = {message.body: message.properties["traceparent"].split("-")[2] for message in found}
    assert set(carried.values()) == set(by_id) and carried[b"three"] == carried[b"four"]
    assert by_id[carried[b"three"]].attributes["messaging.batch.message_count"] == 2
    [four] = [message for message in found if message.body == b"four"]
    assert four.tags == "web" and four.properties["own"] == "x"


def test_several_messages_have_links(broker, traces):
    with traces.telemetry.producer(Producer("shop", broker.name_server)) as producer:
        for _ in range(2):
            producer.send("linked", b"one", shard="s")
        plain = Producer("shop", broker.name_server)
        with plain:
            plain.send("linked", b"without a context", shard="s")

    async def read():
        async with AsyncConsumer("linked", broker.name_server, topics=["linked"], **FIRST) as consumer:
            found = []
            while len(found) < 3:
                found += await consumer.getmany()
            with traces.telemetry.process(found, "linked") as span:
                assert trace.get_current_span() is span
            with traces.telemetry.process(found[2], "linked"):
                pass

    asyncio.run(asyncio.wait_for(read(), 20))
    first, second, several, single = traces.finished()
    assert [one.context.span_id for one in several.links] == [first.context.span_id, second.context.span_id]
    assert several.parent is None and several.attributes["messaging.batch.message_count"] == 3
    assert single.parent is None and not single.links


def test_errors_end_the_span(broker, traces):
    telemetry, producer = traces.telemetry, Producer("shop", broker.name_server)
    telemetry.producer(producer)
    with pytest.raises(ClosedError):
        producer.send("failing", b"one")
    with pytest.raises(ClosedError):
        producer.send_async("failing", b"one")
    with producer:
        with pytest.raises(IllegalMessageError):
            producer.send("failing", b"")
        with pytest.raises(IllegalMessageError):
            producer.send_async("failing", b"").result()
        for wrong in ({"keys": 7}, {"properties": [1]}, {"tags": 7}):
            with pytest.raises(TypeError):
                producer.send("failing", b"one", **wrong)
        with pytest.raises(TypeError):
            producer.send_many("failing", 7)
        sent = producer.send("failing", b"one")
        assert sent.status.name == "SEND_OK"

    def wrong(message):
        raise ValueError("no amount")

    message = broker.store.get("failing", sent.queue.queue_id, sent.queue_offset).messages[0]
    with pytest.raises(ValueError, match="no amount"):
        telemetry.listener(wrong, group="g")(message)
    *failed, good, process = traces.finished()
    assert [span.attributes["error.type"] for span in failed] == [
        *["ClosedError"] * 2, *["IllegalMessageError"] * 2, *["TypeError"] * 4,
    ]  # fmt: skip
    assert all(span.status.status_code is trace.StatusCode.ERROR for span in [*failed, process])
    assert "error.type" not in good.attributes and process.attributes["error.type"] == "ValueError"
    assert [event.name for event in process.events] == ["exception"]


def test_other_producers_are_unchanged(broker, traces):
    with traces.telemetry.producer(Producer("shop", broker.name_server)), Producer("b", broker.name_server) as other:
        sent = other.send("unchanged", b"one")
    message = broker.store.get("unchanged", sent.queue.queue_id, sent.queue_offset).messages[0]
    assert "traceparent" not in message.properties and not traces.finished()


def test_a_client_does_not_import_opentelemetry():
    text = "import rocketc.client, sys; print([name for name in sys.modules if name.startswith('opentelemetry')])"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_listeners_that_commit_manually(broker, traces):
    found = queue.Queue()

    def listener(message, context):
        context.commit()
        found.put(message)

    async def coroutine(message, context):
        context.commit()

    with Producer("shop", broker.name_server) as producer:
        producer.send("manual", b"one")
    with PushConsumer("manual", broker.name_server, orderly=True, **FIRST) as consumer:
        consumer.subscribe("manual", listener=traces.telemetry.listener(listener, "manual"), auto_commit=False)
        message = found.get(timeout=10)
    chosen = OrderlyContext(MessageQueue("manual", "a", 0))
    asyncio.run(traces.telemetry.listener(coroutine, "manual")(message, chosen))
    assert chosen.status.name == "COMMIT"
    assert [(one.name, one.status.status_code.name) for one in traces.finished()] == [("process manual", "UNSET")] * 2


def test_a_request_is_a_send(broker, traces):
    with traces.telemetry.producer(Producer("shop", broker.name_server)) as producer:
        producer.send("asked", b"the topic")
        with pytest.raises(RequestTimeoutError):
            producer.request("asked", b"one", timeout=200, tags="t")

    async def main():
        async with traces.telemetry.producer(AsyncProducer("shop", broker.name_server)) as producer:
            with pytest.raises(RequestTimeoutError):
                await producer.request("asked", b"two", timeout=200)

    asyncio.run(main())
    spans = traces.finished()
    assert [(one.name, one.attributes.get("error.type")) for one in spans] == [
        ("send asked", None),
        ("send asked", "RequestTimeoutError"),
        ("send asked", "RequestTimeoutError"),
    ]


def test_a_reply_is_a_send(broker, traces):
    with traces.telemetry.producer(Producer("shop", broker.name_server)) as producer:
        producer.send("replied", b"the topic")
        with PushConsumer("replied", broker.name_server) as consumer:

            @consumer.subscribe("replied", tags="question")
            def on_message(message):
                producer.reply(message, b"yes")

            assert producer.request("replied", b"?", tags="question", timeout=10_000).body == b"yes"
            with pytest.raises(IllegalMessageError, match="the message is not a request"):
                producer.reply(producer.request("replied", b"?", tags="question", timeout=10_000), b"again")

    def replies():  # a span may end after the answer to its reply, and after the next span
        return sorted(span.name for span in traces.finished() if "REPLY_TOPIC" in span.name)

    wait_until(lambda: len(replies()) >= 3)
    assert replies() == ["send DefaultCluster_REPLY_TOPIC"] * 2 + ["send _REPLY_TOPIC"]
