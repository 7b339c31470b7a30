"""AsyncProducer at brokers that fail in each way, on virtual time."""

import asyncio

import pytest
from unit.client.producing import five, refusing, run, work_once
from unit.client.scripted import Cluster, play, stored

from rocketc.client.async_producer import AsyncProducer
from rocketc.client.batching import NewMessage
from rocketc.client.push_consumer import PushConsumer
from rocketc.client.routes import MessageQueue
from rocketc.client.send_results import RETRY, SendStatus
from rocketc.errors import (
    AnswerError,
    ClosedError,
    ConnectionLostError,
    IllegalMessageError,
    NoAnswerError,
    NotSentError,
    PartlySentError,
)
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer


def test_sends_go_to_one_queue_after_the_other():
    sent = run(five, {"a": stored, "b": stored})
    assert len({one.queue for one in sent[:4]}) == 4 and sent[4].queue == sent[0].queue
    assert {one.status for one in sent} == {SendStatus.SEND_OK} and len({one.msg_id for one in sent}) == 5


def test_what_a_send_asks_for():
    async def work(producer, stage):
        await producer.send("orders", b"one", tags="web", keys=["k1", "k2"], properties={"own": "value"}, flag=7)
        await producer.send("orders", b"two", delay_level="10s", queue=MessageQueue("orders", "a", 1))
        return [call.values for call in stage.brokers["a"].asked if call.command.code == 310]

    first, second = run(work, {"a": stored})
    text = first.pop("properties")
    properties = dict(one.split("\x01") for one in text.split("\x02") if one)
    key = properties.pop("UNIQ_KEY")
    assert len(key) == 32 and key.startswith("0A000909")
    assert properties == {"own": "value", "TAGS": "web", "KEYS": "k1 k2", "WAIT": "true"}
    born = first.pop("bornTimestamp")
    assert 1_764_000_000_000 <= born < 1_764_000_001_000
    assert first.pop("queueId") in (0, 1)
    assert first == {
        "producerGroup": "shop",
        "topic": "orders",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "sysFlag": 0,
        "flag": 7,
        "reconsumeTimes": 0,
        "unitMode": False,
        "batch": False,
        "brokerName": "a",
    }
    assert "DELAY\x013\x02" in second["properties"] and second["queueId"] == 1


@pytest.mark.parametrize("code", sorted(RETRY - {Code.GO_AWAY}))
def test_another_broker_gets_what_one_refuses(code):
    sent = run(five, {"a": refusing(code), "b": stored})
    assert {one.queue.broker_name for one in sent} == {"b"}


@pytest.mark.parametrize("code", [Code.MESSAGE_ILLEGAL, Code.INVALID_PARAMETER, 99])
def test_some_refusals_are_final(code):
    async def work(producer, stage):
        with pytest.raises(AnswerError) as caught:
            for _ in range(4):
                await producer.send("orders", b"one")
        assert stage.brokers["a"].count(310) == 1
        return caught.value

    error = run(work, {"a": refusing(code), "b": stored})
    assert error.code == code and error.address == "10.0.1.0:10911"
    assert "topic 'orders' was not sent in 1 attempt (broker a): SEND_MESSAGE_V2 was answered with" in str(error)
    assert str(error).endswith(": no")


def test_all_attempts_fail():
    async def work(producer, stage):
        with pytest.raises(AnswerError, match=r"not sent in 3 attempts \(broker (a, b|b, a)\)"):
            await producer.send("orders", b"one")
        return stage.brokers["a"].count(310) + stage.brokers["b"].count(310)

    both = {"a": refusing(Code.SYSTEM_BUSY), "b": refusing(Code.SYSTEM_BUSY)}
    assert run(work, both) == 3
    assert run(work_once, both, retry_times_when_send_failed=0) == 1


@pytest.mark.parametrize("fixed", ["queue", "selector", "shard"])
def test_a_chosen_queue_is_not_left(fixed):
    async def work(producer, stage):
        queue = MessageQueue("orders", "a", 1)
        how = {"queue": queue, "selector": lambda queues: queues[0], "shard": "c-7"}
        with pytest.raises(AnswerError, match="in 1 attempt "):
            await producer.send("orders", b"one", **{fixed: how[fixed]})
        with pytest.raises(ValueError, match="is not a queue of topic 'orders'"):
            await producer.send("orders", b"one", queue=MessageQueue("orders", "x", 1))
        with pytest.raises(ValueError, match="the selector returned None, which is not a queue"):
            await producer.send("orders", b"one", selector=lambda queues: None)

    busy = refusing(Code.SYSTEM_BUSY)
    run(work, {"a": busy, "b": busy})


@pytest.mark.parametrize("code", [Code.SYSTEM_BUSY, Code.MESSAGE_ILLEGAL])
def test_a_refusal_after_an_attempt_without_an_answer_does_not_say_not_sent(code):
    """The first attempt may have stored the message."""

    async def work(producer, stage):
        asked = []

        def answer(call):
            asked.append(call)
            if len(asked) > 1:
                return refusing(code)
            stage.cut(stage.address("a"))
            stage.cut(stage.address("b"))
            return None

        for broker in stage.brokers.values():
            broker.answers[310] = answer
        with pytest.raises(ConnectionLostError, match=r"the message may be stored; .*before that, ") as caught:
            await producer.send("orders", b"one")
        assert len(asked) == (3 if code == Code.SYSTEM_BUSY else 2) and Code(code).name in str(caught.value)

    run(work, {"a": stored, "b": stored})


def test_a_broker_that_is_silent_ends_the_send_in_time():
    async def work(producer, stage):
        began = asyncio.get_running_loop().time()
        with pytest.raises(
            NoAnswerError, match=r"topic 'orders': the message may be stored; 1 attempt \(broker a\) did"
        ):
            await producer.send("orders", b"one", timeout=500)
        return asyncio.get_running_loop().time() - began

    assert 0.5 <= run(work, {"a": None}) < 0.7


def test_a_connection_that_ends():
    async def work(producer, stage):
        await producer.send("orders", b"one", queue=MessageQueue("orders", "a", 0))
        stage.brokers["a"].answers[310] = None
        waiting = asyncio.ensure_future(producer.send("orders", b"two", queue=MessageQueue("orders", "a", 0)))
        await asyncio.sleep(0.1)
        stage.cut(stage.address("a"))
        with pytest.raises(ConnectionLostError):
            await waiting
        stage.brokers["a"].answers[310] = stored
        sent = await producer.send("orders", b"three", queue=MessageQueue("orders", "a", 0))
        assert sent.status is SendStatus.SEND_OK

    run(work, {"a": stored})


def test_a_broker_that_is_gone():
    async def work(producer, stage):
        await producer.send("orders", b"one")
        for name in ("a", "b"):
            del stage.servers[stage.address(name)]
            stage.cut(stage.address(name))
            if name == "a":
                sent = [await producer.send("orders", b"one") for _ in range(4)]
                assert {one.queue.broker_name for one in sent} == {"b"}
        with pytest.raises(NotSentError, match=r"topic 'orders' was not sent .* no connection"):
            await producer.send("orders", b"one")

    run(work, {"a": stored, "b": stored})


def test_statuses_and_the_setting_to_try_another_broker():
    late = Answer(Code.FLUSH_DISK_TIMEOUT, values={"msgId": "7F", "queueId": 0, "queueOffset": 1})
    sent = run(five, {"a": late, "b": late})
    assert {one.status for one in sent} == {SendStatus.FLUSH_DISK_TIMEOUT}
    sent = run(five, {"a": late, "b": stored}, retry_another_broker_when_not_store_ok=True)
    assert {one.status for one in sent} == {SendStatus.SEND_OK}
    sent = run(five, {"a": late}, retry_another_broker_when_not_store_ok=True)
    assert {one.status for one in sent} == {SendStatus.FLUSH_DISK_TIMEOUT}


def test_slow_brokers_are_avoided_if_asked_for():
    def slow(call):
        asyncio.get_running_loop().call_later(0.6, call.later, stored(call))

    async def work(producer, stage):
        return [(await producer.send("orders", b"one")).queue.broker_name for _ in range(9)]

    assert run(work, {"a": slow, "b": stored}).count("a") >= 4
    assert run(work, {"a": slow, "b": stored}, send_latency_fault_enable=True).count("a") == 1


def ids(call):
    count = bytes(call.command.body).count(b"UNIQ_KEY")
    values = {"msgId": ",".join(f"{i:02X}" for i in range(count)), "queueId": call.values["queueId"]}
    return Answer(values={**values, "queueOffset": 5})


def test_batches():
    async def work(producer, stage):
        sent = await producer.send_many(
            "orders", [b"1" * 100, NewMessage(b"2" * 100, tags="web"), bytearray(b"3" * 100)]
        )
        asked = [call.values for call in stage.brokers["a"].asked if call.command.code == 320]
        return sent, asked

    sent, [asked] = run(work, {"a": ids})
    assert [(one.queue_offset, one.offset_msg_id) for one in sent] == [(5, "00"), (6, "01"), (7, "02")]
    assert asked["batch"] is True and asked["properties"] == "" and len({one.msg_id for one in sent}) == 3
    sent, asked = run(work, {"a": ids}, max_message_size=400)
    assert [one.queue_offset for one in sent] == [5, 6, 5] and len(asked) == 2
    assert run(lambda producer, stage: producer.send_many("orders", []), {"a": ids}) == []


def test_a_batch_that_fails_after_another():
    def some(call):
        return refusing(Code.MESSAGE_ILLEGAL) if b"bad" in bytes(call.command.body) else ids(call)

    async def work(producer, stage):
        with pytest.raises(PartlySentError, match=r"2 messages were stored, and then: .*MESSAGE_ILLEGAL") as caught:
            await producer.send_many("orders", [b"1" * 100, b"2" * 100, b"bad" * 100])
        return caught.value

    error = run(work, {"a": some}, max_message_size=400)
    assert [one.queue_offset for one in error.results] == [5, 6] and error.error.code == Code.MESSAGE_ILLEGAL


@pytest.mark.parametrize("is_known", [False, True])  # the compiled way takes a batch if the route is known
def test_a_first_batch_that_fails_raises_its_own_error(is_known):
    async def work(producer, stage):
        if is_known:
            await producer.send("orders", b"one")
        stage.brokers["a"].answers[320] = refusing(Code.MESSAGE_ILLEGAL)
        with pytest.raises(AnswerError, match=r"topic 'orders' was not sent in 1 attempt .*MESSAGE_ILLEGAL"):
            await producer.send_many("orders", [b"1", b"2"])
        stage.brokers["a"].answers[320] = lambda call: None
        with pytest.raises(NoAnswerError):
            await producer.send_many("orders", [b"1", b"2"], timeout=50)

    run(work, {"a": stored})


@pytest.mark.parametrize("wrong", [7, NewMessage(b"x", flag=1 << 31), IllegalMessageError("of the iterator")])
def test_the_results_are_not_lost_if_a_later_message_is_wrong(wrong):
    def messages():
        yield from [b"1" * 100, b"2" * 100, b"3" * 100]
        if isinstance(wrong, Exception):
            raise wrong
        yield wrong

    async def work(producer, stage):
        with pytest.raises(PartlySentError, match=r"^2 messages were stored, and then: ") as caught:
            await producer.send_many("orders", messages())
        assert caught.value.__cause__ is caught.value.error

    run(work, {"a": ids}, max_message_size=400)


def test_wrong_calls():
    async def work(producer, stage):
        for topic, body, options, kind, text in [
            ("", b"x", {}, IllegalMessageError, "a topic name must not be empty"),
            ("a b", b"x", {}, IllegalMessageError, "may only have letters"),
            ("t" * 128, b"x", {}, IllegalMessageError, "127 characters at most, not 128"),
            (7, b"x", {}, TypeError, "topic: expected str, got int"),
            ("orders", "text", {}, TypeError, r"body: expected bytes, got str; encode text with .encode\(\)"),
            ("orders", b"", {}, IllegalMessageError, "an empty body"),
            ("orders", b"x" * 1001, {}, IllegalMessageError, "a body of 1001 bytes; max_message_size allows 1000"),
            ("orders", b"x", {"tags": 7}, TypeError, "tags: expected str, got int"),
            ("orders", b"x", {"tags": "a\x01b"}, IllegalMessageError, r"tags: 'a\\x01b' is empty or contains"),
            ("orders", b"x", {"keys": []}, IllegalMessageError, "keys: '' is empty"),
            ("orders", b"x", {"keys": [7]}, TypeError, "keys: expected str, got int"),
            ("orders", b"x", {"shard": ""}, IllegalMessageError, "shard: '' is empty"),
            ("orders", b"x", {"delay_level": "11s"}, IllegalMessageError, "delay_level: '11s' is not one of 1s, 5s"),
            ("orders", b"x", {"delay_level": -1}, IllegalMessageError, "delay_level"),
            ("orders", b"x", {"properties": {"TAGS": "x"}}, IllegalMessageError, "RocketMQ uses this name"),
            ("orders", b"x", {"properties": {"own": 7}}, TypeError, "property 'own': expected str, got int"),
            ("orders", b"x", {"properties": {"own": "x" * 33000}}, IllegalMessageError, "more than 32767 bytes"),
            ("orders", b"x", {"flag": 1 << 31}, ValueError, "flag"),
        ]:
            with pytest.raises(kind, match=text):
                await producer.send(topic, body, **options)
        assert producer._in_flight.messages == 0 and stage.brokers["a"].count(310) == 0

    run(work, {"a": stored}, max_message_size=1000)


def test_wrong_settings():
    with pytest.raises(TypeError, match="unknown keyword send_timeout; did you mean send_msg_timeout"):
        AsyncProducer("shop", send_timeout=1)
    with pytest.raises(ValueError, match="send_msg_timeout is 0; allowed are 1 to"):
        AsyncProducer("shop", send_msg_timeout=0)
    with pytest.raises(ValueError, match="group 'my shop': a group name may only have letters"):
        AsyncProducer("my shop")
    with pytest.raises(ClosedError, match="the producer is not started"):
        asyncio.run(AsyncProducer("shop").send("orders", b"x"))


def test_an_answer_that_is_not_one():
    async def work(producer, stage):
        with pytest.raises(AnswerError, match="the answer to SEND_MESSAGE_V2 lacks the field msgId"):
            await producer.send("orders", b"one")

    run(work, {"a": Answer()})


def test_oneway():
    async def work(producer, stage):
        for _ in range(3):
            await producer.send_oneway("orders", b"one", tags="web")
        await asyncio.sleep(1)
        return [call.command.is_oneway for call in stage.brokers["a"].asked if call.command.code == 310]

    assert run(work, {"a": stored}) == [True] * 3


def test_requests_of_brokers_that_a_producer_does_not_know():
    async def work(producer, stage):
        await producer.send("orders", b"one")
        connection = next(one for (its, _), one in zip(stage.links, stage.connections, strict=True) if "10.0.1" in its)
        server = stage.servers[stage.address("a")]
        answer = await server.call(connection, 307, {"consumerGroup": "g", "clientId": "c"}, b"", 3.0)
        return answer.code, answer.remark

    assert run(work, {"a": stored}) == (3, " request type 307 not supported")


@pytest.mark.parametrize("second", [refusing(Code.MESSAGE_ILLEGAL), refusing(Code.SYSTEM_ERROR), None])
def test_a_message_that_is_stored_somehow_is_not_an_error(second):
    async def work(producer, stage):
        answers = iter([Code.FLUSH_DISK_TIMEOUT])

        def answer(call):
            code = next(answers, None)
            return second if code is None else Answer(code, values=stored(call).values)

        for broker in stage.brokers.values():
            broker.answers[310] = answer
        sent = await producer.send("orders", b"one")
        assert sent.status is SendStatus.FLUSH_DISK_TIMEOUT

    run(work, {"a": stored, "b": stored}, retry_another_broker_when_not_store_ok=True)


def test_a_refused_message_after_others_were_sent():
    def answer(call):
        return Answer(values=stored(call).values | {"msgId": "A,B"})

    async def work(producer, stage):
        with pytest.raises(IllegalMessageError):
            await producer.send_many("orders", [b"x" * 100, b"", b"y" * 100])
        with pytest.raises(PartlySentError) as caught:
            await producer.send_many("orders", [b"x" * 100, b"y" * 100, b"z" * 100, b""])
        assert len(caught.value.results) == 2 and isinstance(caught.value.error, IllegalMessageError)

    run(work, {"a": answer}, max_message_size=460)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((5,), "group: expected str, got int"),
        (("g", ["10.0.0.1:9876"]), "name_server: expected str, got list; separate addresses by `;`"),
        (("g", "a:1", {"credentials": "secret"}), "credentials: expected Credentials, got str"),
        (("g", "a:1", {"tls": "ca.pem"}), "tls: expected bool, Tls or ssl.SSLContext, got str"),
    ],
)
@pytest.mark.parametrize("kind", [AsyncProducer, PushConsumer])
def test_arguments_of_wrong_types(kind, arguments, text):
    *arguments, options = arguments if isinstance(arguments[-1], dict) else (*arguments, {})
    with pytest.raises(TypeError) as caught:
        kind(*arguments, **options)
    assert str(caught.value) == text


def test_sends_and_subscriptions_with_wrong_types():
    async def work(producer, stage):
        with pytest.raises(TypeError, match="properties: expected a mapping, got list"):
            await producer.send("orders", b"one", properties=[1])
        with pytest.raises(TypeError, match="queue: expected a MessageQueue, got tuple"):
            await producer.send("orders", b"one", queue=("orders", "a", 0))

    run(work, {"a": stored})
    consumer = PushConsumer("g")
    for options in ({"topic": 5}, {"topic": "orders", "tags": ["web"]}, {"topic": "orders", "sql": 5}):
        with pytest.raises(TypeError, match=r"(topic|tags|sql): expected str, got "):
            consumer.subscribe(**options)


def test_not_sent_means_that_no_attempt_was_sent():
    """The first attempt may be stored. That the later ones were not sent does not change it."""

    async def main():
        def answer(call):
            del stage.servers[stage.address("a")]
            stage.cut(stage.address("a"))

        stage = Cluster({"a": answer})
        async with stage.producer() as producer:
            with pytest.raises(ConnectionLostError, match=r"; 3 attempts .*; before that, .*the connection ended"):
                await producer.send("orders", b"one")
            with pytest.raises(NotSentError):
                await producer.send("orders", b"two")

    play(main())
