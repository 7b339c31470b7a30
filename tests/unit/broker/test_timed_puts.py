"""Timed messages at the put: times, rounding and refusals of RocketMQ 5.3.3; recalls; a broker on virtual time."""

import asyncio
import base64
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation import virtual
from simulation.brokers import EPOCH, scene

import rocketc
from rocketc.broker import names
from rocketc.broker.config import BrokerConfig
from rocketc.broker.timed_puts import (
    Refused,
    TimedPuts,
    decode_handle,
    deliver_time,
    is_timed,
    recall_handle,
    rounded,
)
from rocketc.remoting.codes import Code
from rocketc.status import PutStatus

NOW = 1_795_692_821_363
MAX = (1 << 63) - 1
TOO_LATE = "timer message illegal, the delay time should not be bigger than the max delay 259200000ms"


def rules(count=0, **config):
    return TimedPuts(BrokerConfig(**config), lambda time: count, random.Random(1))


def change(now=NOW, count=0, **properties):
    properties = {name: str(value) for name, value in properties.items()}
    return rules(count).change(properties, "orders", 2, now), properties


# Times as a broker 5.3.3 with a precision of 1000 ms stores them: what is sent, and TIMER_OUT_MS or None.
OBSERVED = [
    ({"TIMER_DELAY_SEC": 3}, 1795692821363, 1795692824000),
    ({"TIMER_DELAY_MS": 2500}, 1795692821438, 1795692823000),
    ({"TIMER_DELIVER_MS": 1795692824444}, 1795692821444, 1795692824000),
    ({"TIMER_DELIVER_MS": 1795692824000}, 1795692821448, 1795692823000),
    ({"TIMER_DELIVER_MS": 1795692823999}, 1795692821457, 1795692823000),
    ({"TIMER_DELIVER_MS": 1795692824001}, 1795692821465, 1795692824000),
    ({"TIMER_DELAY_MS": 5}, 1795692821491, 1795692821000),
    ({"TIMER_DELAY_MS": 999}, 1795692821495, 1795692822000),
    ({"TIMER_DELAY_SEC": "+1"}, 1795692821586, 1795692822000),
    ({"TIMER_DELAY_SEC": 259200}, 1795692821600, 1795952021000),
    ({"TIMER_DELAY_MS": 259200000}, 1795692821602, 1795952021000),
    ({"TIMER_DELAY_SEC": 3, "TIMER_DELAY_MS": 100000, "TIMER_DELIVER_MS": 1795693021613}, 1795692821613, 1795692824000),
    ({"TIMER_DELAY_MS": 3000, "TIMER_DELIVER_MS": 1795693021614}, 1795692821614, 1795692824000),
    ({"TIMER_DELAY_SEC": "", "TIMER_DELAY_MS": 3000}, 1795692821616, 1795692824000),
    ({"TIMER_DELAY_SEC": 0}, NOW, None),
    ({"TIMER_DELAY_SEC": -5}, NOW, None),
    ({"TIMER_DELAY_MS": 0}, NOW, None),
    ({"TIMER_DELIVER_MS": NOW - 5000}, NOW, None),
    ({"TIMER_DELIVER_MS": 5}, NOW, None),
    ({"TIMER_DELIVER_MS": 0}, NOW, None),
    ({"TIMER_DELIVER_MS": -1}, NOW, None),
]


@pytest.mark.parametrize(("sent", "now", "out"), OBSERVED)
def test_times_as_in_rocketmq(sent, now, out):
    to, properties = change(now, **sent)
    sent = {name: str(value) for name, value in sent.items()}
    if out is None:
        assert to == ("orders", 2) and properties == sent
    else:
        assert to == (names.TIMER_TOPIC, 0)
        assert properties == sent | {"TIMER_OUT_MS": str(out), "REAL_TOPIC": "orders", "REAL_QID": "2"}


@pytest.mark.parametrize(
    "sent",
    [
        {"TIMER_DELAY_SEC": 259201}, {"TIMER_DELAY_MS": 259200001}, {"TIMER_DELIVER_MS": NOW + 259200001},
        {"TIMER_DELIVER_MS": MAX}, {"TIMER_DELAY_SEC": "x"}, {"TIMER_DELAY_SEC": "1.5"}, {"TIMER_DELAY_SEC": " 1"},
        {"TIMER_DELAY_SEC": MAX}, {"TIMER_DELAY_MS": MAX},  # in Java, the sums wrap around: due at once
        {"TIMER_DELAY_SEC": MAX // 1000}, {"TIMER_DELAY_SEC": (1 << 64) // 1000 + 1},
        {"TIMER_DELAY_SEC": "9" * 20}, {"TIMER_DELAY_SEC": "9" * 5000}, {"TIMER_DELAY_SEC": "\u0661"},
        {"TIMER_DELAY_SEC": "x", "TIMER_DELAY_MS": 3000}, {"TIMER_DELIVER_MS": NOW - 500, "TIMER_DEL_UNIQKEY": "k"},
    ],
)  # fmt: skip
def test_illegal_times(sent):
    to, properties = change(**sent)
    assert isinstance(to, Refused) and to.status is PutStatus.WHEEL_TIMER_MSG_ILLEGAL
    assert to.remark.startswith(TOO_LATE) and "TIMER_OUT_MS" not in properties


def test_messages_that_ask_for_no_time():
    assert not is_timed({}) and not is_timed({"TIMER_DELAY_SEC": ""}) and not is_timed({"TIMER_OUT_MS": "5"})
    with pytest.raises(ValueError, match="does not ask for a time"):
        deliver_time({}, NOW)


@given(st.integers(1, 1 << 50), st.integers(1, 10_000))
def test_rounding(time, precision):
    assert time - precision <= rounded(time, precision) < time and rounded(time, precision) % precision == 0


def test_a_broker_without_the_wheel():
    for text in ("3", "x", "0"):
        refused = rules(timer_wheel_enable=False).change({"TIMER_DELAY_SEC": text}, "orders", 0, NOW)
        assert refused.status is PutStatus.WHEEL_TIMER_NOT_ENABLE
        assert refused.remark == "accurate timer message is not enabled, timerWheelEnable is false"


def test_congestion():
    """As observed on 5.3.3 with a limit of 5: all up to 5 waiting messages, few at 6, none from 10 on."""
    taken = {}
    for count in range(12):
        puts = rules(count, timer_congest_num_each_slot=5)
        answers = [puts.change({"TIMER_DELAY_SEC": "3"}, "orders", 0, NOW) for _ in range(300)]
        refused = [one for one in answers if isinstance(one, Refused)]
        taken[count] = 1 - len(refused) / 300
        assert all(one.status is PutStatus.WHEEL_TIMER_FLOW_CONTROL for one in refused)
    assert [taken[n] for n in range(6)] == [1.0] * 6 and taken[10] == taken[11] == 0
    assert 0.1 < taken[6] < 0.3 and 0.7 < taken[9] < 0.9
    assert refused[0].remark == (
        "timer message is under flow control, max num limit is 10 or the current value is greater than 5 "
        "and less than 10, trigger random flow control"
    )


# handles


def test_the_handle_of_rocketmq():
    text = "djEgVCBicm9rZXItYSAxNzk1NjkyODMxMDAxIDdGMDAwMDAxQUFBQQ=="
    properties = {"TIMER_OUT_MS": "1795692831000", "REAL_TOPIC": "T", "UNIQ_KEY": "7F000001AAAA"}
    assert recall_handle(properties, "broker-a") == text
    assert decode_handle(text) == decode_handle(text.rstrip("=")) == ("T", "broker-a", "1795692831001", "7F000001AAAA")
    for missing in ({}, {"TIMER_OUT_MS": "x", "REAL_TOPIC": "T"}, {"TIMER_OUT_MS": "5"}, {"REAL_TOPIC": "T"}):
        assert recall_handle(missing, "broker-a") is None


def handle(text):
    return base64.urlsafe_b64encode(text.encode("latin-1")).decode()


BAD = ["!!", "abc", "", "\xe9", "a" * 70_000, *map(handle, ("", "v2 T b 1 K", "v1 T b 1", "v1 T b 1 ", "\xff\xff"))]
BAD += map(handle, ("v1 T b 1 K\2TIMER_DEL_UNIQKEY\1other+K2", "v1 T\1 b 1 K", "v1 T b 1 K\0"))  # further properties


@pytest.mark.parametrize("text", BAD)
def test_bad_handles(text):
    with pytest.raises(ValueError, match="recall handle is invalid"):
        decode_handle(text)


@given(st.text())
def test_any_text_as_a_handle(text):
    try:
        decode_handle(text)
    except ValueError as error:
        assert str(error) == "recall handle is invalid"


# a broker


@pytest.fixture
def play(tmp_path):
    """Run main(scene, client). The topic `orders` has four queues."""

    def run(main, **how):
        async def whole():
            settings = {"recall_message_enable": True, "delay": (0.0, 0.0), **how}
            async with scene(tmp_path, **settings) as stage:
                client = stage.client()
                await client.send(queueId=9999)  # creates the topic; the message is refused
                await main(stage, client)

        virtual.run(whole())

    return run


def stored(stage, topic="orders", queue_id=0):
    while stage.store.step():
        pass
    return stage.store.get(topic, queue_id, 0, 1000, decompress=False).messages


async def send(client, more, key="K1", **how):
    answer = await client.send(properties=f"UNIQ_KEY\1{key}\2{more}", **how)
    assert answer.code == 0, answer.remark
    return answer


def test_a_timed_message_of_a_client(play, tmp_path):
    async def main(stage, client):
        await asyncio.sleep(0.5)
        answer = await send(client, "TIMER_DELAY_SEC\x013\2TAGS\1web\2", queueId=3, flag=7)
        assert (answer.fields["queueId"], answer.fields["queueOffset"]) == ("3", "0")
        assert decode_handle(answer.fields["recallHandle"])[0] == "orders"
        pulled = await client.pull(queue_id=3, wait=20_000)
        assert pulled.code == 0
        [message] = stored(stage, queue_id=3)
        out = int(message.properties["TIMER_OUT_MS"])
        assert out == EPOCH + 3000 and out + 1000 <= message.store_timestamp < out + 1100
        assert message.flag == 7 and message.properties["TIMER_DELAY_SEC"] == "3"
        with stage.store.get_raw("orders", 3, 0, 1, tags="web") as found:
            assert found.message_count == 1
        await asyncio.sleep(1)
        table = json.loads((await client.call(28)).body)["table"]
        assert {name: table[name] for name in ("timerReadBehind", "timerOffsetBehind", "timerCongestNum")} == {
            "timerReadBehind": "0", "timerOffsetBehind": "0", "timerCongestNum": "0",
        }  # fmt: skip
        assert float(table["timerEnqueueTps"]) >= 0

    play(main)
    assert (tmp_path / "config" / "timercheck").stat().st_size == 4096
    assert b"\n" not in (tmp_path / "config" / "timermetrics").read_bytes().strip()


def test_numbers_of_waiting_messages(play):
    async def main(stage, client):
        for key in "abc":
            await send(client, "TIMER_DELAY_SEC\x01100\2", key)
        await asyncio.sleep(15)
        table = json.loads((await client.call(28)).body)["table"]
        assert table["timerCongestNum"] == "3" and float(table["timerDequeueTps"]) == 0.0

    play(main)


def test_a_put_comes_into_the_wheel_soon(play):
    """Also while other messages wait: it can be taken back in its last second."""

    async def main(stage, client):
        await send(client, "TIMER_DELAY_SEC\x01100\2")
        await asyncio.sleep(3.2)
        answer = await send(client, "TIMER_DELAY_MS\x011500\2", "A1")
        await asyncio.sleep(0.2)
        assert stage.broker.timers.offset_behind == 0 and stage.broker.timers.pending == 2
        assert (await client.call(370, topic="orders", recallHandle=answer.fields["recallHandle"])).code == 0
        await asyncio.sleep(3)
        assert stored(stage) == []

    play(main)


def test_past_times_are_delivered_at_once(play):
    async def main(stage, client):
        answer = await send(client, "TIMER_DELAY_SEC\x010\2")
        assert "recallHandle" not in answer.fields
        [message] = stored(stage)
        assert "TIMER_OUT_MS" not in message.properties

    play(main)


@pytest.mark.parametrize(
    ("config", "more", "code", "remark"),
    [
        ({}, "TIMER_DELAY_SEC\x01259201\2", Code.MESSAGE_ILLEGAL, TOO_LATE),
        ({}, "TIMER_DELAY_SEC\x01x\2", Code.MESSAGE_ILLEGAL, TOO_LATE),
        ({"timer_wheel_enable": False}, "TIMER_DELAY_SEC\x013\2", Code.SYSTEM_ERROR, "timerWheelEnable is false"),
    ],
)
def test_refused_sends(play, config, more, code, remark):
    async def main(stage, client):
        before = stage.store.max_phy_offset
        answer = await client.send(properties="UNIQ_KEY\1K\2" + more)
        assert answer.code == code and remark in answer.remark and stage.store.max_phy_offset == before

    play(main, **config)


def test_flow_control(play):
    async def main(stage, client):
        await asyncio.sleep(1.5)
        codes = []
        for n in range(12):
            answer = await client.send(properties=f"UNIQ_KEY\1K{n}\2TIMER_DELIVER_MS\1{EPOCH + 60_001}\2")
            codes.append(answer.code)
            await asyncio.sleep(0.3)
        assert codes[:3] == [0, 0, 0] and Code.SYSTEM_ERROR in codes and "flow control" in answer.remark

    play(main, timer_congest_num_each_slot=2)


def test_a_batch_waits_as_a_whole(play):
    """The properties of the batch count; those of its messages are kept, and ask for nothing."""

    async def main(stage, client):
        batch = rocketc.encode_batch([(0, b"one", None), (0, b"two", {"TIMER_DELAY_SEC": "9"})])
        answer = await client.send(code=320, body=batch, properties="TIMER_DELAY_SEC\x012\2", batch=True)
        assert answer.code == 0 and "recallHandle" not in answer.fields
        answer = await client.send(code=320, body=batch, properties="", batch=True)
        assert [one.body for one in stored(stage)] == [b"one", b"two"]
        await asyncio.sleep(4)
        assert [one.body for one in stored(stage)] == [b"one", b"two"] * 2

    play(main)


def test_a_sync_flush_waits(play):
    async def main(stage, client):
        answer = await send(client, "TIMER_DELAY_SEC\x012\2")
        recalled = await client.call(370, topic="orders", recallHandle=answer.fields["recallHandle"])
        assert recalled.code == 0 and recalled.fields["msgId"] == "K1"
        await asyncio.sleep(4)
        assert stored(stage) == []

    play(main, store={"flush_disk_type": "SYNC_FLUSH"})


def test_sends_to_the_timer_topic(play):
    """As in RocketMQ, they are stored as they are. What lacks a time is left out when the timer reads it."""

    async def main(stage, client):
        out = EPOCH + 3000
        sends = ("", "TIMER_DELAY_SEC\x013\2", f"TIMER_OUT_MS\x01{out}\2REAL_TOPIC\1orders\2REAL_QID\x010\2")
        await send(client, "TIMER_DELAY_SEC\x013\2", "first")  # it makes the topic
        for n, more in enumerate(sends):
            assert (await send(client, more, f"K{n}", topic=names.TIMER_TOPIC)).code == 0
        await send(client, "TIMER_DELAY_SEC\x013\2", "last")
        waiting = stored(stage, names.TIMER_TOPIC)
        assert [names.TIMER_OUT_MS in one.properties for one in waiting] == [True, False, False, True, True]
        assert waiting[2].properties["TIMER_DELAY_SEC"] == "3"
        await asyncio.sleep(6)
        assert sorted(one.properties["UNIQ_KEY"] for one in stored(stage)) == ["K2", "first", "last"]

    play(main)


def test_a_recall(play):
    async def main(stage, client):
        answer = await send(client, "TIMER_DELAY_SEC\x015\2", "A1", queueId=2)
        await send(client, "TIMER_DELAY_SEC\x015\2", "A2", queueId=2)
        await asyncio.sleep(1)
        for _ in range(2):  # again: nothing more happens
            recalled = await client.call(
                370, topic="orders", recallHandle=answer.fields["recallHandle"], producerGroup="shop"
            )
            assert recalled.code == 0 and recalled.fields == {"msgId": "A1", "MSG_REGION": "DefaultRegion"}
        record = stored(stage, names.TIMER_TOPIC)[2]
        assert record.body == b"0" and record.properties == {
            "TIMER_DEL_UNIQKEY": "orders+A1", "REAL_TOPIC": "orders", "REAL_QID": "0", "UNIQ_KEY": "A1",
            "BORN_TIMESTAMP": str(record.born_timestamp), "TAGS": "_RECALL_TAG_", "PGROUP": "shop",
            "TIMER_DELIVER_MS": decode_handle(answer.fields["recallHandle"]).deliver_ms,
            "TIMER_OUT_MS": stored(stage, names.TIMER_TOPIC)[0].properties["TIMER_OUT_MS"],
        }  # fmt: skip
        await asyncio.sleep(7)
        assert [one.properties["UNIQ_KEY"] for one in stored(stage, queue_id=2)] == ["A2"]
        late = await client.call(370, topic="orders", recallHandle=answer.fields["recallHandle"])
        assert (late.code, late.remark) == (Code.ILLEGAL_OPERATION, "recall failed, timestamp invalid")

    play(main)


@pytest.mark.parametrize("after", [0.0, 0.5, 2.0, 4.5, 4.9, 5.4, 5.9, 6.2])
def test_recall_races(play, after):
    """A recall that is accepted in time takes the message back; there is no message twice, and no error."""

    async def main(stage, client):
        answer = await send(client, "TIMER_DELAY_SEC\x015\2", "A1")
        await asyncio.sleep(after)
        recalled = await client.call(370, topic="orders", recallHandle=answer.fields["recallHandle"])
        await asyncio.sleep(8)
        count = len(stored(stage))
        if recalled.code == 0:
            assert count == 0 or after > 4.0
        else:
            assert recalled.code in (Code.ILLEGAL_OPERATION, Code.MESSAGE_ILLEGAL) and count == 1

    play(main)


def test_refused_recalls(play):
    now = EPOCH + 1000

    async def main(stage, client):
        await client.send("other")
        before = stage.store.max_phy_offset
        for topic, text, code, remark in [
            ("orders", "!!", 604, "recall handle is invalid"),
            (
                "nothing",
                handle(f"v1 nothing broker-a {now + 9000} X"),
                17,
                "recall failed, the topic[nothing] not exist",
            ),
            ("other", handle(f"v1 orders broker-a {now + 9000} X"), 604, "recall failed, topic not match"),
            (
                "orders",
                handle(f"v1 orders broker-b {now + 9000} X"),
                604,
                "recall failed, broker service not available",
            ),
            ("orders", handle(f"v1 orders broker-a {now - 9000} X"), 604, "recall failed, timestamp invalid"),
            ("orders", handle(f"v1 orders broker-a {now + 259_300_000} X"), 604, "recall failed, timestamp invalid"),
            ("orders", handle("v1 orders broker-a abc X"), 604, "recall failed, timestamp invalid"),
            ("orders", handle("v1 orders broker-a " + "9" * 4000 + " X"), 604, "recall failed, timestamp invalid"),
        ]:
            answer = await client.call(370, topic=topic, recallHandle=text)
            assert (answer.code, answer.remark) == (code, remark)
        answer = await client.call(
            370, topic="orders", recallHandle=handle(f"v1 orders broker-a {now + 5000} " + "x" * 33_000)
        )
        assert answer.code == Code.MESSAGE_ILLEGAL
        assert stage.store.max_phy_offset == before

    play(main)


def test_recalls_that_are_forbidden(play):
    async def main(stage, client):
        answer = await client.call(370, topic="orders", recallHandle="x")
        assert (answer.code, answer.remark) == (Code.NO_PERMISSION, "recall failed, operation is forbidden")

    play(main, recall_message_enable=False)


def test_recalls_without_the_wheel(play):
    async def main(stage, client):
        text = handle(f"v1 orders broker-a {EPOCH + 60_000} X")
        answer = await client.call(370, topic="orders", recallHandle=text)
        assert answer.code == Code.SYSTEM_ERROR and "timerWheelEnable is false" in answer.remark

    play(main, timer_wheel_enable=False)
