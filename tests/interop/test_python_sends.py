"""Requests and replies, timed messages and traces of Python and Java, at RocketMQ's own brokers."""

import asyncio
import datetime
import queue
import threading
import time

import pytest
from interop import scenarios
from interop.peer import RELEASES

from rocketc.client import Admin, AsyncConsumer, NewMessage, Producer, PushConsumer, RetryLater
from rocketc.errors import AnswerError, UnsupportedError
from rocketc.format.traces import decode_traces
from rocketc.tables.topics import TopicConfig

pytestmark = pytest.mark.long

HANDLE = "djEgdGltZWQgYnJva2VyLWEgMTc5NTY4MTM3MTAwMSA3RjAwMDAwMTAwMDE="  # of a broker-a
FIRST = {"consume_from_where": "CONSUME_FROM_FIRST_OFFSET"}


@pytest.fixture(scope="module", params=RELEASES)
def place(request, tmp_path_factory):
    """A Java cluster, Java clients of its release, and the release."""
    folder = tmp_path_factory.mktemp("python-sends")
    settings = {"messageDelayLevel": scenarios.DELAY_LEVELS, "broker.recallMessageEnable": "true"}
    cluster = scenarios.JavaCluster(request.param, folder / "cluster", **settings)
    clients = scenarios.Clients(request.param, folder / "clients")
    try:
        yield cluster, clients, request.param
        cluster.end()
    finally:
        clients.close()
        cluster.close()


def create(cluster, topic):
    async def main():
        async with Admin(cluster.name_server) as admin:
            await admin.create_topic(TopicConfig(topic, 1, 1))

    asyncio.run(main())


def test_java_replies_to_python(place):
    cluster, clients, _ = place
    create(cluster, "topython")
    served = []
    step = threading.Thread(
        target=lambda: served.extend(clients.step(cluster, "topython", "serve", group="java-servants", count=2))
    )
    step.start()
    with Producer("askers", cluster.name_server) as producer:
        replies = [producer.request("topython", body, timeout=20_000) for body in (b"one", b"z" * 5000)]
    step.join()
    assert [one.body for one in replies] == [b"re: one", b"re: " + b"z" * 5000]
    assert {one.topic for one in replies} == {"DefaultCluster_REPLY_TOPIC"}
    assert {one.properties["mood"] for one in replies} == {"good"}
    assert [status for status, _ in served] == ["SEND_OK"] * 2 and served[0][1]["TTL"] == "20000"


def test_python_replies_to_java(place):
    cluster, clients, _ = place
    create(cluster, "tojava")
    with (
        Producer("servants", cluster.name_server) as producer,
        PushConsumer("python-servants", cluster.name_server, **FIRST) as consumer,
    ):

        @consumer.subscribe("tojava")
        def on_message(message):
            producer.reply(message, b"re: " + message.body, properties={"mood": "good"})

        replies = clients.step(cluster, "tojava", "ask", bodies=["one", "z" * 5000])
    assert [body for body, _ in replies] == ["re: one", "re: " + "z" * 5000]
    names = {
        "MSG_TYPE",
        "CORRELATION_ID",
        "REPLY_TO_CLIENT",
        "TTL",
        "UNIQ_KEY",
        "PUSH_REPLY_TIME",
        "ARRIVE_TIME",
        "mood",
    }
    assert replies[0][1].keys() - {"MSG_REGION", "TRACE_ON"} == names


def test_timed_messages(place):
    """Brokers of 4.x ignore the times, so nothing is sent to them."""
    cluster, clients, release = place
    create(cluster, "timed")
    with Producer("shop", cluster.name_server) as producer:
        producer.send("timed", b"now")
        if release < "5":
            for how in ({"delay": 2}, {"deliver_at": int(time.time() * 1000) + 2_000}):
                with pytest.raises(UnsupportedError, match=r"V4_9_7 ignores delay and deliver_at: use delay_level"):
                    producer.send("timed", b"never", **how)
            assert clients.step(cluster, "timed", "consume", group="g", count=1, millis=500) == ["now"]
            with pytest.raises(AnswerError, match="request type 370 not supported"):
                producer.recall("timed", HANDLE)
            return
        recalled = producer.send("timed", b"recalled", delay=3)
        producer.send("timed", b"two", delay=2.5)
        began = time.monotonic()
        producer.send("timed", b"one", deliver_at=datetime.datetime.now() + datetime.timedelta(seconds=1.5))
        assert producer.recall("timed", recalled.recall_handle) == recalled.msg_id
        with pytest.raises(AnswerError, match="TOPIC_NOT_EXIST"):
            producer.recall("tojava-none", recalled.recall_handle)
        with pytest.raises(AnswerError, match="the delay time should not be bigger"):
            producer.send("timed", b"never", delay=4 * 86_400)
        assert clients.step(cluster, "timed", "consume", group="g", count=3, millis=3_000) == ["now", "one", "two"]
        assert time.monotonic() - began > 2


def traces(cluster, topic):
    """All records of a topic, without what differs from run to run."""

    async def main():
        async with AsyncConsumer(f"reader-{topic}", cluster.name_server, topics=[topic], **FIRST) as consumer:
            records, end = [], time.monotonic() + 30
            while len(records) < 3 + 6 + 6 and time.monotonic() < end:
                for message in await consumer.getmany(timeout=1_000):
                    records += decode_traces(message.body)
            return records

    records = asyncio.run(main())
    varies = {"timestamp", "costTime", "msgId", "requestId", "storeHost", "offsetMsgId", "group", "topic", "bodyLength"}
    shown = []
    for record in records:
        same = {name: value for name, value in record.items() if name not in varies}
        shown.append((same, sorted(record), record["msgId"].count(","), len(record["msgId"])))
    return sorted(shown, key=str)


def test_traces_are_those_of_java(place):
    cluster, clients, _ = place
    for topic in ("jtraced", "ptraced", "jtraces", "ptraces"):
        create(cluster, topic)
    clients.step(cluster, "jtraced", "traced", group="jtracing", traces="jtraces")
    found = queue.Queue()
    options = {"enable_msg_trace": True, "custom_trace_topic": "ptraces", "client_ip": "fd00::1"}
    with Producer("ptracing", cluster.name_server, **options) as producer:
        producer.send("ptraced", b"bad", tags="web", keys="o-1 c-7")
        producer.send("ptraced", b"later", tags="web", delay_level=1)
        batch = [NewMessage(b"1", tags="web", keys="k1"), NewMessage(b"22", tags="app", keys="k2")]
        producer.send_many("ptraced", batch)
        producer.send_oneway("ptraced", b"oneway")
        with PushConsumer("ptracing", cluster.name_server, **options, **FIRST) as consumer:

            @consumer.subscribe("ptraced")
            def on_message(message):
                found.put(message.body)
                if message.body == b"bad" and message.reconsume_times == 0:
                    raise RetryLater("10s")

            bodies = sorted(found.get(timeout=30) for _ in range(6))
    assert (bodies, producer.dropped_traces) == ([b"1", b"22", b"bad", b"bad", b"later", b"oneway"], 0)
    assert traces(cluster, "ptraces") == traces(cluster, "jtraces")
