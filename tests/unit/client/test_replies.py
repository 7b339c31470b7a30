"""Requests and replies: at scripted brokers on virtual time, and at a broker of this project."""

import asyncio
import gc
import threading
import zlib

import pytest
from unit.client.scripted import Cluster, play, stored

from rocketc.client import AsyncProducer, Producer, PushConsumer
from rocketc.client.replies import Replies, pushed_reply, reply_to
from rocketc.client.routes import MessageQueue
from rocketc.errors import (
    AnswerError,
    BadRequestError,
    ClosedError,
    ConnectionLostError,
    CorruptRecordError,
    IllegalMessageError,
    RequestTimeoutError,
    TopicNotFoundError,
)
from rocketc.format._encoding import encode
from rocketc.read._message import Message
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command
from rocketc.remoting.server import Answer


def properties_of(text):
    return dict(one.split("\x01") for one in text.split("\x02") if one)


def push(correlation, body=b"yes", more="", **values):
    """The fields of a reply that a broker brings."""
    text = f"CORRELATION_ID\x01{correlation}\x02MSG_TYPE\x01reply{more}"
    return {
        "producerGroup": "servants",
        "topic": "c_REPLY_TOPIC",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": 0,
        "sysFlag": 0,
        "bornTimestamp": 1_764_000_000_000,
        "flag": 7,
        "properties": text,
        "bornHost": "10.0.7.7:1234",
        "storeHost": "10.0.1.0:10911",
        "storeTimestamp": 1_764_000_000_001,
        **values,
    }


class Stage:
    """A cluster whose brokers bring replies, by the first broker, `after` seconds from the send."""

    def __init__(self, after=1.0, names=("a",), **options):
        self.after, self.answers = after, []
        self.cluster = Cluster(dict.fromkeys(names, self.answer), **options)
        self.pushed = lambda properties: [(push(properties["CORRELATION_ID"]), b"yes")]

    def answer(self, call):
        self.properties = properties_of(call.values["properties"])
        for values, body in self.pushed(self.properties):
            asyncio.get_running_loop().call_later(
                self.after, lambda values=values, body=body: asyncio.ensure_future(self.bring(values, body))
            )
        return stored(call)

    async def bring(self, values, body):
        address = self.cluster.address("a")
        pairs = zip(self.cluster.links, self.cluster.connections, strict=True)
        connection = next(one for (its, _), one in pairs if its == address)
        self.answers.append(await self.cluster.servers[address].call(connection, 326, values, body, 3.0))

    def play(self, work, **options):
        async def main():
            async with self.cluster.producer(**options) as producer:
                try:
                    return await work(producer)
                finally:
                    await asyncio.sleep(5)
                    assert not producer._replies._waiting

        return play(main())


def test_a_request_and_its_reply():
    stage = Stage()

    async def work(producer):
        began = asyncio.get_running_loop().time()
        reply = await producer.request("orders", b"how much?", tags="web", timeout=2_000, properties={"own": "x"})
        assert 1.0 <= asyncio.get_running_loop().time() - began < 1.2
        return reply, producer.client_id

    reply, client_id = stage.play(work)
    asked = stage.properties
    assert (asked["REPLY_TO_CLIENT"], asked["TTL"], asked["TAGS"], asked["own"]) == (client_id, "2000", "web", "x")
    assert len(asked["CORRELATION_ID"]) == 36
    assert (reply.body, reply.topic, reply.flag, reply.born_host) == (b"yes", "c_REPLY_TOPIC", 7, "10.0.7.7:1234")
    assert (reply.born_timestamp, reply.store_timestamp) == (1_764_000_000_000, 1_764_000_000_001)
    arrived = int(reply.properties["ARRIVE_TIME"])
    assert reply.properties["MSG_TYPE"] == "reply" and 1_764_000_001_000 <= arrived < 1_764_000_002_000
    assert [one.code for one in stage.answers] == [Code.SUCCESS]


def test_all_brokers_know_the_requester_before_it_sends():
    stage = Stage(names=("a", "b"))

    async def work(producer):
        await producer.request("orders", b"1", timeout=2_000)
        await producer.request("orders", b"2", timeout=2_000)

    stage.play(work)
    brokers = stage.cluster.brokers.values()
    assert [one.count(34) for one in brokers] == [1, 1] and sum(one.count(310) for one in brokers) == 2
    assert all(one.asked[0].command.code == 34 for one in brokers)
    asked = [call.values["topic"] for call in stage.cluster.name_server.asked if call.command.code == 105]
    assert sorted(asked) == ["c_REPLY_TOPIC", "orders"]


def test_a_request_for_a_topic_that_the_send_creates():
    stage = Stage(missing={"orders", "c_REPLY_TOPIC"})

    async def work(producer):
        return await producer.request("orders", b"1", timeout=2_000)

    assert stage.play(work).body == b"yes" and stage.cluster.brokers["a"].count(34) == 1
    stage = Stage(missing={"orders"}, creates=False)
    with pytest.raises(TopicNotFoundError):
        stage.play(work)


def test_a_reply_that_does_not_come_or_comes_late():
    stage = Stage(after=2.0)

    async def work(producer):
        began = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError, match="topic 'orders': no reply came in 500 ms; the request is stored, its"):
            await producer.request("orders", b"1", timeout=500)
        assert 0.5 <= asyncio.get_running_loop().time() - began < 0.6
        await asyncio.sleep(3)
        return producer._replies.late

    assert stage.play(work) == 1 and [one.code for one in stage.answers] == [Code.SUCCESS]


def test_the_default_timeout_is_that_of_a_send():
    stage = Stage()
    stage.pushed = lambda properties: []

    async def work(producer):
        with pytest.raises(RequestTimeoutError, match="in 700 ms"):
            await producer.request("orders", b"1")

    stage.play(work, send_msg_timeout=700)
    assert stage.properties["TTL"] == "700"


def test_two_replies_and_one_that_is_of_another_request():
    stage = Stage()
    stage.pushed = lambda properties: [
        (push("another"), b"no"),
        (push(properties["CORRELATION_ID"]), b"yes"),
        (push(properties["CORRELATION_ID"]), b"yes"),
    ]

    async def work(producer):
        reply = await producer.request("orders", b"1", timeout=2_000)
        await asyncio.sleep(1)
        return reply.body, producer._replies.late

    assert stage.play(work) == (b"yes", 2) and {one.code for one in stage.answers} == {Code.SUCCESS}


@pytest.mark.parametrize(
    ("values", "body"),
    [
        ({"sysFlag": 1 | 3 << 8}, b"not compressed"),
        ({"topic": "x" * 40_000}, b"yes"),
        ({"properties": "own\x01" + "x" * 40_000}, b"yes"),
    ],
)
def test_what_is_not_a_reply(values, body, caplog):
    stage = Stage()
    stage.pushed = lambda properties: [(push(properties["CORRELATION_ID"]) | values, body)]

    async def work(producer):
        with pytest.raises(RequestTimeoutError):
            await producer.request("orders", b"1", timeout=2_000)

    stage.play(work)
    assert [one.code for one in stage.answers] == [Code.SYSTEM_ERROR] and stage.answers[0].remark
    assert "request 326 of the broker failed" in caplog.text


def test_fields_of_a_reply():
    fields = {name: str(value) for name, value in push("7f").items()}
    for name in ("topic", "sysFlag", "bornHost", "storeTimestamp"):
        with pytest.raises(BadRequestError):
            pushed_reply(Command(326, {key: value for key, value in fields.items() if key != name}, b"yes"), 5)
    with pytest.raises(BadRequestError):
        pushed_reply(Command(326, fields | {"sysFlag": "x"}, b"yes"), 5)
    compressed = fields | {"sysFlag": str(1 | 3 << 8 | 48)}
    assert pushed_reply(Command(326, compressed, zlib.compress(b"y" * 5000)), 5).body == b"y" * 5000
    with pytest.raises(CorruptRecordError):
        pushed_reply(Command(326, compressed, b"y"), 5)
    named = pushed_reply(Command(326, fields | {"bornHost": "a-name:7", "storeHost": "[::1]:9", "properties": ""}), 5)
    assert (named.born_host, named.store_host, named.properties) == ("0.0.0.0:0", "[::1]:9", {"ARRIVE_TIME": "5"})


def test_errors_of_the_send_of_a_request():
    async def refused(producer):
        with pytest.raises(AnswerError, match="SYSTEM_BUSY"):
            await producer.request("orders", b"1", timeout=2_000)

    async def wrong(producer):
        with pytest.raises(IllegalMessageError):
            await producer.request("orders", b"", timeout=2_000)
        with pytest.raises(IllegalMessageError, match="RocketMQ uses this name"):
            await producer.request("orders", b"1", properties={"TTL": "5"})
        with pytest.raises(TypeError):
            await producer.request("orders", b"1", queue=("orders", "a", 0))

    for work in (refused, wrong):
        stage = Stage()
        stage.cluster.brokers["a"].answers[310] = Answer(Code.SYSTEM_BUSY)
        stage.play(work)


def test_a_canceled_request_and_the_end_of_the_producer():
    stage = Stage(after=60)

    async def work(producer):
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(producer.request("orders", b"1", timeout=20_000), 1)
        assert not producer._replies._waiting
        waiting = [asyncio.ensure_future(producer.request("orders", b"1", timeout=20_000)) for _ in range(3)]
        await asyncio.sleep(1)
        began = asyncio.get_running_loop().time()
        await producer.close()
        errors = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(error) for error in errors] == [ClosedError] * 3
        assert asyncio.get_running_loop().time() - began < 1
        with pytest.raises(ClosedError):
            await producer.request("orders", b"1")

    stage.play(work)


def test_nothing_waits_after_the_end():
    async def main():
        replies = Replies(lambda: 0)
        replies.close()
        with pytest.raises(ClosedError):
            replies.begin("7f")

    asyncio.run(main())


def message(**properties):
    return Message.of(encode("orders", b"how much?", properties=properties))


REQUEST = {"CLUSTER": "c", "CORRELATION_ID": "7f", "REPLY_TO_CLIENT": "10.0.0.1@2620#7", "TTL": "3000"}


def test_what_a_reply_asks_for():
    stage = Stage()
    stage.pushed = lambda properties: []

    async def work(producer):
        sent = await producer.reply(message(**REQUEST, own="y"), b"yes", tags="t", properties={"mood": "good"}, flag=3)
        await producer.reply(message(**REQUEST), b"x" * 5000)
        return sent

    sent = stage.play(work)
    first, second = [call.values for call in stage.cluster.brokers["a"].asked if call.command.code == 325]
    properties = properties_of(first["properties"])
    assert properties.pop("UNIQ_KEY") == sent.msg_id and sent.queue.topic == "c_REPLY_TOPIC"
    kept = {name: value for name, value in REQUEST.items() if name != "CLUSTER"}
    assert properties == {"MSG_TYPE": "reply", "TAGS": "t", "mood": "good", **kept}  # as Java's: without WAIT
    assert (first["topic"], first["flag"], second["sysFlag"]) == ("c_REPLY_TOPIC", 3, 769)


@pytest.mark.parametrize("missing", ["CLUSTER", "CORRELATION_ID", "REPLY_TO_CLIENT"])
def test_a_message_that_does_not_ask(missing):
    with pytest.raises(IllegalMessageError, match=f"is not a request: it lacks the property {missing}"):
        reply_to({**REQUEST, missing: ""})
    assert "TTL" not in reply_to({**REQUEST, "TTL": ""})[1]


def test_a_reply_that_brokers_cannot_bring():
    async def work(producer):
        with pytest.raises(AnswerError, match=r"not sent in 3 attempts .*SEND_REPLY_MESSAGE_V2.*gone"):
            await producer.reply(message(**REQUEST), b"yes")
        with pytest.raises(IllegalMessageError):
            await producer.reply(message(**REQUEST), b"yes", properties={"TTL": "5"})

    stage = Stage()
    stage.cluster.brokers["a"].answers[325] = Answer(Code.SYSTEM_ERROR, remark="gone")
    stage.play(work)


def test_a_broker_of_this_project(broker, producer):
    seen = []

    def on_message(one):
        seen.append(one.properties)
        producer.reply(one, one.body * 1000, properties={"mood": "good"})

    producer.send("asked", b"this creates the topic")
    with PushConsumer("servants", broker.name_server) as consumer:
        consumer.subscribe("asked", tags="question", listener=on_message)
        replies, options = [], {"tags": "question", "timeout": 10_000}
        with Producer("asker", broker.name_server) as asker:
            threads = [
                threading.Thread(target=lambda i=i: replies.append(asker.request("asked", b"%d-" % i, **options)))
                for i in range(3)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

            async def main():
                async with AsyncProducer("asker", broker.name_server) as other:
                    return (await other.request("asked", b"9-", **options)).body

            assert asyncio.run(main()) == b"9-" * 1000
        assert {one.body for one in replies} == {b"%d-" % i * 1000 for i in range(3)}
        assert {one.properties["mood"] for one in replies} == {"good"} and len(seen) == 4
    with pytest.raises(AnswerError, match=r"channel of <.*> not found"):
        producer.reply(message(CLUSTER="DefaultCluster", CORRELATION_ID="7f", REPLY_TO_CLIENT="gone"), b"yes")


def test_a_request_that_fails_at_the_end_leaves_no_warning():
    async def main():
        noise = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: noise.append(context))
        producer = Cluster({"a": lambda call: None}).producer()
        await producer.start()
        asking = asyncio.ensure_future(producer.request("orders", b"x", timeout=20_000))
        await asyncio.sleep(1)
        await producer.close()
        with pytest.raises(ConnectionLostError):
            await asking
        del asking
        gc.collect()
        return noise

    assert play(main()) == []


def test_a_broker_that_does_not_answer_stops_no_requests():
    stage = Stage(names=("a", "b"))
    stage.cluster.brokers["b"].answers[34] = lambda call: None

    async def work(producer):
        queue, loop, times = MessageQueue("orders", "a", 0), asyncio.get_running_loop(), []
        for _ in range(3):
            began = loop.time()
            assert (await producer.request("orders", b"?", queue=queue)).body == b"yes"
            times.append(loop.time() - began)
        return times

    first, *others = stage.play(work)
    assert 2.5 <= first < 3 and all(one < 1.1 for one in others)


def test_a_broker_whose_connection_ended_knows_the_requester_again():
    stage = Stage()

    async def work(producer):
        await producer.request("orders", b"?")
        broker = stage.cluster.brokers["a"]
        before, broker.answers[310] = broker.count(34), stored
        stage.cluster.cut(stage.cluster.address("a"))
        await producer.send("orders", b"a new connection")
        await asyncio.sleep(0.1)
        return broker.count(34) - before

    assert stage.play(work) == 1
