"""Timed messages at brokers of each version, and what takes them back."""

import asyncio
import base64
import datetime

import pytest
from unit.client.scripted import Cluster, play, stored

from rocketc.client.routes import MessageQueue
from rocketc.client.timed import broker_of, check_timers, timer_property
from rocketc.errors import AnswerError, IllegalMessageError, NotSentError, UnsupportedError
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command, Flag
from rocketc.remoting.server import Answer

HANDLE = base64.urlsafe_b64encode(b"v1 orders a 1764000000000 0A").decode()


def of_version(version):
    """The answer to a heartbeat of a broker of a release."""

    def answer(call):
        frame = Command(0, {}, b"", call.command.opaque, Flag.ANSWER, version=version).encode()
        return Answer(frame=frame)

    return answer


def run(work, versions, answer=stored, **options):
    """Run work(producer, cluster) at brokers of these versions by name; None: without an answer to heartbeats."""

    async def main():
        stage = Cluster(dict.fromkeys(versions, answer))
        for name, version in versions.items():
            stage.brokers[name].answers[34] = None if version is None else of_version(version)
        async with stage.producer(**options) as producer:
            return await work(producer, stage)

    return play(main())


def sent_properties(stage, name="a"):
    texts = [call.values["properties"] for call in stage.brokers[name].asked if call.command.code == 310]
    return [dict(one.split("\x01") for one in text.split("\x02") if one) for text in texts]


@pytest.mark.parametrize("version", [413, 479, 600])
def test_what_a_timed_send_asks_for(version):
    async def work(producer, stage):
        zone = datetime.timezone(datetime.timedelta(hours=2))
        for how in ({"delay": 30}, {"delay": 0.25}, {"deliver_at": 1_764_000_060_000},
                    {"deliver_at": datetime.datetime(2026, 1, 1, 2, tzinfo=zone)}):  # fmt: skip
            await producer.send("orders", b"one", **how)
        await producer.send_oneway("orders", b"one", delay=5)
        await asyncio.sleep(1)
        timers = [{key: value for key, value in one.items() if "TIMER" in key} for one in sent_properties(stage)]
        assert timers == [
            {"TIMER_DELAY_SEC": "30"}, {"TIMER_DELAY_MS": "250"}, {"TIMER_DELIVER_MS": "1764000060000"},
            {"TIMER_DELIVER_MS": "1767225600000"}, {"TIMER_DELAY_SEC": "5"},
        ]  # fmt: skip
        assert stage.brokers["a"].count(34) <= 2  # it is asked once

    run(work, {"a": version})


@pytest.mark.parametrize("version", [0, 253, 407, 412])
def test_a_broker_that_would_deliver_at_once_gets_nothing(version):
    async def work(producer, stage):
        with pytest.raises(UnsupportedError, match="ignores delay and deliver_at: use delay_level") as caught:
            await producer.send("orders", b"one", delay=30)
        assert isinstance(caught.value, NotImplementedError) and "in 3 attempts (broker a)" in str(caught.value)
        with pytest.raises(UnsupportedError):
            await producer.send("orders", b"one", deliver_at=1_764_000_060_000, queue=MessageQueue("orders", "a", 0))
        with pytest.raises(UnsupportedError):
            await producer.send_oneway("orders", b"one", delay=30)
        await producer.send("orders", b"one", delay_level=3)
        await asyncio.sleep(1)
        assert ["DELAY" in one for one in sent_properties(stage)] == [True]

    run(work, {"a": version})


def test_another_broker_of_the_cluster_is_newer():
    async def work(producer, stage):
        sent = [await producer.send("orders", b"one", delay=30) for _ in range(4)]
        assert {one.queue.broker_name for one in sent} == {"b"} and not stage.brokers["a"].count(310)

    run(work, {"a": 407, "b": 479})


def test_a_broker_that_is_older_from_now_on():
    async def work(producer, stage):
        await producer.send("orders", b"one", delay=30)
        stage.brokers["a"].answers[34] = of_version(407)
        await asyncio.sleep(31)
        with pytest.raises(UnsupportedError):
            await producer.send("orders", b"one", delay=30)

    run(work, {"a": 479})


@pytest.mark.parametrize("answer", [None, Answer(Code.SYSTEM_ERROR)])
def test_a_broker_that_does_not_answer_heartbeats(answer):
    async def work(producer, stage):
        stage.brokers["a"].answers[34] = answer
        began = asyncio.get_running_loop().time()
        with pytest.raises(NotSentError, match="so it is not known if the broker has timed messages"):
            await producer.send("orders", b"one", delay=30, timeout=500)
        assert asyncio.get_running_loop().time() - began < 0.7 and not stage.brokers["a"].count(310)

    run(work, {"a": None})


def test_a_broker_that_has_timers_and_they_are_off():
    refused = Answer(Code.SYSTEM_ERROR, remark="this broker does not deliver timed messages")

    async def work(producer, stage):
        with pytest.raises(AnswerError, match="does not deliver timed messages"):
            await producer.send("orders", b"one", delay=30)

    run(work, {"a": 479}, refused)


def test_the_broker_of_this_project(broker, producer):
    sent = producer.send("timed", b"one", delay=30)
    assert broker_of(sent.recall_handle) == "broker-a"
    with pytest.raises(AnswerError, match=r"RECALL_MESSAGE was answered with 16 .*operation is forbidden"):
        producer.recall("timed", sent.recall_handle)


@pytest.mark.parametrize(
    ("how", "error", "text"),
    [
        ({"delay": -1}, IllegalMessageError, "delay: -1 is not a number of seconds from 0 to 4611686018427387"),
        ({"delay": 4611686018427388}, IllegalMessageError, "delay: 4611686018427388 is not"),
        ({"delay": ((1 << 63) - 1) // 1000}, IllegalMessageError, "delay: 9223372036854775 is not"),
        ({"delay": float("nan")}, IllegalMessageError, "delay: nan"),
        ({"delay": float("inf")}, IllegalMessageError, "delay: inf"),
        ({"delay": 1e30}, IllegalMessageError, "delay: 1e"),
        ({"delay": "30"}, TypeError, "delay: expected a number of seconds, got str"),
        ({"delay": True}, TypeError, "delay: expected a number of seconds, got bool"),
        ({"deliver_at": 0}, IllegalMessageError, "deliver_at: 0 is not a time in ms since 1970"),
        ({"deliver_at": 1 << 63}, IllegalMessageError, "is not a time in ms"),
        (
            {"deliver_at": datetime.datetime(1960, 1, 1, tzinfo=datetime.timezone.utc)},
            IllegalMessageError,
            "not a time",
        ),
        ({"deliver_at": 1.5}, TypeError, "deliver_at: expected ms since 1970 or a datetime, got float"),
        ({"deliver_at": "now"}, TypeError, "got str"),
        ({"delay": 1, "deliver_at": 5}, IllegalMessageError, "give delay or deliver_at, not both"),
        ({"delay": 1, "delay_level": 3}, IllegalMessageError, "give delay_level, or delay or deliver_at, not both"),
    ],
)
def test_times_that_are_impossible(how, error, text):
    async def work(producer, stage):
        with pytest.raises(error, match=text):
            await producer.send("orders", b"one", **how)

    run(work, {"a": 479})


def test_recalls():
    async def work(producer, stage):
        stage.brokers["a"].answers[370] = Answer(values={"msgId": "0A"})
        assert await producer.recall("orders", HANDLE) == "0A"
        [call] = [one for one in stage.brokers["a"].asked if one.command.code == 370]
        assert call.values == {"producerGroup": "shop", "topic": "orders", "recallHandle": HANDLE}
        stage.brokers["a"].answers[370] = Answer(Code.NO_PERMISSION, remark="recall failed, operation is forbidden")
        with pytest.raises(
            AnswerError, match=r"RECALL_MESSAGE was answered with 16 .*forbidden; .*recallMessageEnable=true"
        ):
            await producer.recall("orders", HANDLE)
        stage.brokers["a"].answers[370] = Answer(Code.REQUEST_CODE_NOT_SUPPORTED, remark="not supported")
        with pytest.raises(AnswerError, match="not supported; brokers take messages back since"):
            await producer.recall("orders", HANDLE)
        other = base64.urlsafe_b64encode(b"v1 orders x 1764000000000 0A").decode()
        with pytest.raises(NotSentError, match="x: no address of this broker is known now"):
            await producer.recall("orders", other)

    run(work, {"a": 479})


@pytest.mark.parametrize("handle", ["", "x", "\u00e9", "AAAA", base64.b64encode(b"v2 a b 1 c").decode()])
def test_texts_that_are_not_recall_handles(handle):
    with pytest.raises(IllegalMessageError, match="this is not the recall_handle of a SendResult"):
        broker_of(handle)
    with pytest.raises(TypeError, match="recall_handle: expected str, got NoneType"):
        broker_of(None)


def test_a_result_has_the_handle():
    async def work(producer, stage):
        stage.brokers["a"].answers[310] = lambda call: Answer(values={**stored(call).values, "recallHandle": HANDLE})
        return (await producer.send("orders", b"one", delay=30)).recall_handle

    assert run(work, {"a": 479}) == HANDLE


def test_numbers_of_releases():
    check_timers("10.0.0.1:10911", 413)
    with pytest.raises(UnsupportedError, match="a broker V5_0_0_SNAPSHOT ignores"):
        check_timers("10.0.0.1:10911", 412)
    assert timer_property(1 << 40, None) == {"TIMER_DELAY_SEC": str(1 << 40)}
