"""Sends: by the compiled path and by the processor, which must do the same."""

import asyncio
import contextlib
import random
import threading
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulation import virtual
from simulation.brokers import EPOCH, HOST, SMALL, Client, scene
from unit.broker.sends import TOLD, counts, play_on, stored

import rocketc
from rocketc.broker.config import BrokerConfig
from rocketc.broker.controller import BrokerController
from rocketc.broker.send import decode_properties
from rocketc.format.ids import decode_offset_id
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command, Form


@pytest.fixture(params=["path", "processor"])
def play(request, tmp_path):
    """Run main(scene, client), with the compiled path and without it; see play_on()."""
    return lambda main, **how: virtual.run(play_on(tmp_path, main, by_path=request.param == "path", **how))


def test_a_send_is_stored_and_answered(play):
    async def main(stage, client):
        answer = await client.send(
            properties="UNIQ_KEY\1K1\2TAGS\1web\2KEYS\1a b\2WAIT\1true\2own\1x\1y\2", queueId=3, flag=7, sysFlag=1,
            reconsumeTimes=2, bornTimestamp=EPOCH - 5,
        )  # fmt: skip
        assert (answer.code, answer.remark, answer.version) == (0, None, 479)
        assert answer.fields == {
            **TOLD, "msgId": answer.fields["msgId"], "queueId": "3", "queueOffset": "0", "transactionId": "K1",
        }  # fmt: skip
        place = decode_offset_id(answer.fields["msgId"])
        assert (place.host, place.port, place.phy_offset) == ("127.0.0.1", 10911, 0)
        [message] = stored(stage, queue_id=3)
        assert message.body == b"body" and message.flag == 7 and message.sys_flag == 1
        assert message.reconsume_times == 2 and message.born_timestamp == EPOCH - 5
        assert message.properties == {
            "UNIQ_KEY": "K1", "TAGS": "web", "KEYS": "a b", "WAIT": "true", "own": "x\1y", **TOLD,
            "CLUSTER": "DefaultCluster",
        }  # fmt: skip
        assert message.store_host == "127.0.0.1:10911" and message.born_host.startswith("127.0.0.1")

    play(main)


def test_the_long_names_of_send_message_do_the_same(play):
    async def main(stage, client):
        answer = await client.send(code=10, queueId=1)
        assert answer.code == 0 and answer.fields["queueId"] == "1"
        assert stored(stage, queue_id=1)[0].body == b"body"

    play(main)


@pytest.mark.parametrize("form", Form)
def test_sends_of_one_read_event_are_answered_in_order(play, form):
    async def main(stage, client):
        await client.send()
        fields = {
            "a": "shop", "b": "orders", "c": "TBW102", "d": "4", "e": "2", "f": "0", "g": "1", "h": "0",
            "i": "UNIQ_KEY\1K\2",
        }  # fmt: skip
        frames = [Command(310, fields, b"%d" % n, n).encode(form) for n in range(1000, 1600)]
        answers = {}
        client.channel.received = lambda link, command: answers.setdefault(command.opaque, command)
        client.transport.write(b"".join(frames))
        await asyncio.sleep(5)
        assert [(a.opaque, a.code) for a in answers.values()] == [(n, 0) for n in range(1000, 1600)]
        assert [int(a.fields["queueOffset"]) for a in answers.values()] == list(range(600))
        assert [m.body for m in stored(stage, queue_id=2)] == [b"%d" % n for n in range(1000, 1100)]

    play(main, delay=(0.0, 0.0))


def test_a_oneway_send_is_stored_and_not_answered(play):
    async def main(stage, client):
        await client.channel.send(
            310,
            {"producerGroup": "shop", "topic": "orders", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
             "queueId": 0, "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "properties": "UNIQ_KEY\1K\2"},
            asyncio.get_running_loop().time() + 3, b"oneway",
        )  # fmt: skip
        await asyncio.sleep(1)
        assert [m.body for m in stored(stage)] == [b"oneway"] and client.channel.late_answers == 0

    play(main)


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_all_sends_are_counted(play, flush):
    async def main(stage, client):
        before = counts(stage)
        for n in range(3):
            await client.send(code=10 if n == 2 else 310)
        values = {"producerGroup": "shop", "topic": "orders", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4}
        values |= {"queueId": 0, "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "properties": "UNIQ_KEY\1K\2"}
        await client.channel.send(310, values, asyncio.get_running_loop().time() + 3, b"oneway")
        await asyncio.gather(*(client.send() for _ in range(20)))
        await asyncio.sleep(1)
        assert counts(stage) - before == {(310, 0): 23, (10, 0): 1}

    play(main, store={"flush": flush}, delay=(0.0, 0.0))


def test_the_time_of_a_compiled_send_that_waits_for_a_flush(tmp_path):
    async def main():
        async with scene(tmp_path, store={"flush": "sync"}) as stage:
            client = stage.client()
            await client.send()  # creates the topic
            for task in list(stage.broker._services._tasks):
                if task.get_name() == "store":
                    task.cancel()  # it would flush
            assert (await client.send()).code == Code.FLUSH_DISK_TIMEOUT
            [(key, (buckets, seconds))] = stage.broker.path.times.read().items()
            assert key == (310, Code.FLUSH_DISK_TIMEOUT, False)
            assert sum(buckets) == 1 and seconds == pytest.approx(stage.store.config.sync_flush_timeout / 1000)

    virtual.run(main())


def test_a_missing_unique_key_is_made(play):
    async def main(stage, client):
        one, two = await client.send(properties=""), await client.send(properties="TAGS\1A\2")
        keys = {one.fields["transactionId"], two.fields["transactionId"]}
        assert len(keys) == 2 and all(len(key) == 32 for key in keys)
        assert {m.properties["UNIQ_KEY"] for m in stored(stage)} == keys

    play(main)


def test_properties_of_the_broker_replace_those_of_the_client(play):
    async def main(stage, client):
        await client.send(properties="UNIQ_KEY\1K\2MSG_REGION\1mine\2CLUSTER\1mine\2POP_CK\1x\2TRACE_ON\1false\2")
        [message] = stored(stage)
        assert message.properties == {"UNIQ_KEY": "K", **TOLD, "CLUSTER": "DefaultCluster"}

    play(main)


def test_properties_without_a_name_or_a_value_are_left_out(play):
    """As a 5.3.3 broker."""

    async def main(stage, client):
        texts = ["A\1\2B\1x\2", "\1b\2B\1x\2", "TAGS\1\2KEYS\1\2B\1x\2", "A\2B\1x\2", "B\1x\2A\1"]
        for number, text in enumerate(texts):
            assert (await client.send(properties=f"UNIQ_KEY\1K{number}\2{text}", queueId=0)).code == 0
        for number, message in enumerate(stored(stage, queue_id=0)):
            assert message.properties == {"UNIQ_KEY": f"K{number}", "B": "x", **TOLD, "CLUSTER": "DefaultCluster"}
        assert (await client.send(properties="UNIQ_KEY\1\2B\1x\2", queueId=1)).code == 0
        [message] = stored(stage, queue_id=1)
        assert len(message.properties["UNIQ_KEY"]) == 32

    play(main)


def test_properties_that_are_not_utf_8_are_stored_as_valid_text(play):
    """As Java reads them."""

    async def main(stage, client):
        fields = {
            "a": "shop", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0",
            "i": "UNIQ_KEY\1K1\2KEYS\1???\2",
        }  # fmt: skip
        client.transport.write(Command(310, fields, b"body", 99).encode().replace(b"???", b"a\xffb"))
        await asyncio.sleep(1)
        [message] = stored(stage)
        assert message.properties["KEYS"] == "a\ufffdb"
        assert "a\ufffdb".encode() in stage.store.read_raw(message.phy_offset, 1)

    play(main)


def test_a_negative_queue_id_is_chosen_by_the_broker(play):
    async def main(stage, client):
        chosen = {(await client.send(queueId=-1)).fields["queueId"] for _ in range(50)}
        assert chosen == {"0", "1", "2", "3"}

    play(main)


@pytest.mark.parametrize(
    ("values", "code", "remark"),
    [
        ({"topic": ""}, Code.INVALID_PARAMETER, "blank"),
        ({"topic": "a b"}, Code.INVALID_PARAMETER, "illegal characters"),
        ({"topic": "x" * 128}, Code.INVALID_PARAMETER, "longer"),
        ({"topic": "%RETRY%" + "x" * 249}, Code.INVALID_PARAMETER, "longer"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, Code.NO_PERMISSION, "forbidden"),
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, Code.NO_PERMISSION, "forbidden"),
        ({"topic": "SELF_TEST_TOPIC"}, Code.NO_PERMISSION, "forbidden"),
        ({"topic": "new", "defaultTopic": "none"}, Code.TOPIC_NOT_EXIST, "topic[new] not exist"),
        ({"topic": "new", "defaultTopic": "SELF_TEST_TOPIC"}, Code.TOPIC_NOT_EXIST, "topic[new] not exist"),
        ({"queueId": 4}, Code.INVALID_PARAMETER, "queueId[4] is illegal"),
        ({"queueId": 2**31 - 1}, Code.INVALID_PARAMETER, "is illegal"),
        ({"body": b""}, Code.SYSTEM_ERROR, "body"),
        ({"body": b"x" * (4 << 20) + b"y"}, Code.MESSAGE_ILLEGAL, "msg body length limit 4194304B"),
        ({"properties": "a\1" + "x" * 32760 + "\2"}, Code.MESSAGE_ILLEGAL, "properties length limit 32KB"),
        ({"topic": "%RETRY%"}, Code.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group not exist"),
    ],
)
def test_what_is_refused(play, values, code, remark):
    async def main(stage, client):
        before = stage.store.max_phy_offset
        answer = await client.send(**values)
        assert answer.code == code and remark in answer.remark
        assert answer.fields == ({} if values.get("body") == b"" else TOLD)
        assert stage.store.max_phy_offset == before

    play(main)


def test_unknown_topics_are_created(play):
    async def main(stage, client):
        for wanted, made in ((1, 1), (4, 4), (16, 8), (0, 0), (-3, 0)):
            name = f"new{wanted}"
            answer = await client.send(topic=name, defaultTopicQueueNums=wanted, queueId=0)
            assert answer.code == (Code.SUCCESS if made else Code.INVALID_PARAMETER)
            topic = stage.broker.topics.get(name)
            assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (made, made, 6)
        assert stage.broker.topics.get("%RETRY%nobody") is None

    play(main)


def test_topics_are_not_created_if_it_is_off(play):
    async def main(stage, client):
        answer = await client.send(topic="new")
        assert answer.code == Code.TOPIC_NOT_EXIST and stage.broker.topics.get("TBW102") is None

    play(main, store={"auto_create_topic_enable": False})


def test_sends_before_a_time_are_refused(play):
    async def main(stage, client):
        stage.broker.path.enabled = False
        assert (await client.send()).code == Code.SYSTEM_ERROR
        await asyncio.sleep(10)
        assert (await client.send(topic="new")).code == Code.SUCCESS

    play(main, start_accept_send_request_time_stamp=EPOCH + 5_000)


def test_an_order_topic_of_a_broker_that_only_reads(play):
    async def main(stage, client):
        assert (await client.send(topic="plain")).code == Code.SUCCESS  # as RocketMQ: only order topics are refused
        stage.store.create_topic("strict", order=True)
        stage.broker._topic_changed(stage.broker.topics.get("strict"))
        assert (await client.send(topic="strict")).code == Code.NO_PERMISSION

    play(main, broker_permission=4)


# sync flush


def test_with_sync_flush_answers_wait_for_the_flush(play):
    async def main(stage, client):
        durable = []
        for n in range(5):
            answer = await client.send(properties=f"UNIQ_KEY\1K{n}\2")
            place = decode_offset_id(answer.fields["msgId"])
            durable.append(stage.store.flushed_phy_offset > place.phy_offset)
            assert answer.code == 0
        assert all(durable) and len(stage.broker.waits) == 0
        waiting = [asyncio.ensure_future(client.send()) for _ in range(100)]
        assert {answer.code for answer in await asyncio.gather(*waiting)} == {0}
        assert (await client.send(properties="UNIQ_KEY\1K\2WAIT\1false\2")).code == 0

    play(main, store={"flush": "sync"})


def test_a_flush_that_takes_too_long_is_answered(play):
    async def main(stage, client):
        # the store is stepped by a service: stop it, so that nothing is flushed
        for task in list(stage.broker._services._tasks):
            if task.get_name() == "store":
                task.cancel()
        answer = await client.send()
        assert answer.code == Code.FLUSH_DISK_TIMEOUT
        assert answer.fields["queueOffset"] == "0" and answer.fields["transactionId"] == "K1"
        assert len(stage.broker.waits) == 0

    play(main, store={"flush": "sync"})


def test_answers_that_wait_are_sent_when_the_broker_ends(tmp_path):
    async def whole():
        async with scene(tmp_path, store={"flush": "sync"}) as stage:
            client = stage.client()
            await client.send()
            for task in list(stage.broker._services._tasks):
                if task.get_name() == "store":
                    task.cancel()
            waiting = [asyncio.ensure_future(client.send()) for _ in range(10)]
            await asyncio.sleep(0.1)
            assert len(stage.broker.waits) > 0 and not any(one.done() for one in waiting)
        assert {answer.code for answer in await asyncio.gather(*waiting)} == {0}

    virtual.run(whole())


@contextlib.asynccontextmanager
async def broker_on_threads(root, flush):
    """Run a broker whose store has its threads, in real time; yield it and a client."""
    with rocketc.open(root, flush=flush, store_host=HOST, **SMALL) as store:
        broker = BrokerController(store, BrokerConfig(), HOST, chance=random.Random(1))
        await broker.start()
        client = Client(SimpleNamespace(broker=broker, chance=random.Random(1), delay=(0.0, 0.0)))
        try:
            yield broker, client
        finally:
            client.channel.close()
            await broker.close()


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_no_answer_shows_a_topic_before_it_is_on_the_disk(tmp_path, flush):
    """Neither to the send that creates it, nor to others that come while the table is written."""

    async def main():
        async with broker_on_threads(tmp_path, flush) as (broker, client):
            table, may_write, writing = broker.topics.table, threading.Event(), threading.Event()
            write = table.persist

            def slow():
                with table._lock:
                    table._changed = False  # as persist() does before it writes the file
                writing.set()
                assert may_write.wait(5)
                table._changed = True
                return write()

            table.persist = slow
            sends = [asyncio.ensure_future(client.send(topic="new"))]
            while not writing.is_set():
                await asyncio.sleep(0.001)
            sends += [asyncio.ensure_future(client.send(topic="new", queueId=n)) for n in range(4)]
            await asyncio.sleep(0.1)
            done = [send.done() for send in sends]
            may_write.set()
            assert not any(done)
            assert {answer.code for answer in await asyncio.gather(*sends)} == {0}
            before = broker.path.sent
            assert (await client.send(topic="new")).code == 0 and broker.path.sent == before + 1

    asyncio.run(main())


# the store refuses


def test_a_full_disk_is_an_answer(play):
    async def main(stage, client):
        stage.store._set_full(True)
        answer = await client.send()
        assert answer.code == Code.SERVICE_NOT_AVAILABLE and "full" in answer.remark
        stage.store._set_full(False)
        assert (await client.send()).code == 0
        assert counts(stage)[310, Code.SERVICE_NOT_AVAILABLE] == 1

    play(main)


# both ways do the same


NAMES = st.sampled_from(
    [
        "UNIQ_KEY",
        "WAIT",
        "TAGS",
        "KEYS",
        "MSG_REGION",
        "TRAN_MSG",
        "DELAY",
        "POP_CK",
        "own",
        "é",
        "CLUSTER",
        "",
        "INNER_NUM",
    ]
)
VALUES = st.sampled_from(
    ["", "true", "false", "0", "1", "K1", 'say "hi"', "back\\slash", "größe", "x" * 200, "\n", "😀", "a\1b"]
)
PROPERTIES = st.lists(st.tuples(NAMES, VALUES), max_size=5).map(lambda pairs: "".join(f"{n}\1{v}\2" for n, v in pairs))
ODD = st.sampled_from(["", "UNIQ_KEY", "UNIQ_KEY\1K", "\2", "\1\2", "UNIQ_KEY\1K\2\2", "a\2UNIQ_KEY\1K\2"])
BODIES = st.lists(
    st.tuples(st.integers(-5, 5), st.binary(max_size=9), st.sampled_from([None, {"UNIQ_KEY": "K2"}, {"é": "😀"}])),
    min_size=1,
    max_size=4,
).map(rocketc.encode_batch)
FIELDS = st.fixed_dictionaries(
    {"properties": PROPERTIES | ODD | st.just("UNIQ_KEY\1K1\2WAIT\1true\2TAGS\1A\2")},
    optional={
        "topic": st.sampled_from(["orders", "two", "%RETRY%TOOLS_CONSUMER", "%DLQ%x", "bad topic", "TBW102"]),
        "queueId": st.sampled_from([0, 1, 3, 4, 99]),
        "sysFlag": st.sampled_from([0, 1, 2, 8, 16, 0x701]),
        "bornTimestamp": st.sampled_from([0, 1, EPOCH, -1, 2**62]),
        "flag": st.sampled_from([0, 1, -1, 2**31 - 1, -(2**31)]),
        "reconsumeTimes": st.sampled_from([0, 3, -1]),
        "unitMode": st.booleans(),
        "batch": st.booleans(),
        "maxReconsumeTimes": st.sampled_from([0, 16]),
        "brokerName": st.just("broker-a"),
        "code": st.sampled_from([10, 310, 320]),
        "body": st.binary(min_size=1, max_size=20) | BODIES,
    },
)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(FIELDS, min_size=1, max_size=8))
def test_path_and_processor_do_the_same(tmp_path_factory, sends):
    results = []

    async def whole(enabled):
        async with scene(tmp_path_factory.mktemp("store"), delay=(0.0, 0.0)) as stage:
            client = stage.client()
            for topic in ("orders", "two"):
                await client.send(topic=topic, queueId=9999)
            stage.broker.path.enabled = enabled
            answers = [await client.send(**fields) for fields in sends]
            told = []
            for answer in answers:
                fields = dict(answer.fields)
                if len(fields.get("transactionId", "")) == 32:
                    fields["transactionId"] = "made"
                told.append((answer.code, answer.remark, {k: v for k, v in fields.items() if k != "msgId"}))
            kept = [
                (m.topic, m.queue_id, m.queue_offset, m.body, m.flag, m.sys_flag, m.born_timestamp, m.reconsume_times,
                 {k: "made" if k == "UNIQ_KEY" and len(v) == 32 else v for k, v in m.properties.items()})
                for topic in stage.broker.topics.table for q in range(5) for m in stored(stage, topic, q)
            ]  # fmt: skip
            results.append((told, kept))

    virtual.run(whole(True))
    virtual.run(whole(False))
    assert results[0] == results[1]


def test_properties_are_decoded_leniently():
    assert decode_properties("a\1b\2\2c\2\1d\2e\1f") == {"a": "b", "e": "f"}


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_no_send_to_a_new_topic_is_answered_before_the_topic_is_on_the_disk(tmp_path, monkeypatch, flush):
    """The first send created the topic, and the second was answered while its table was still being written."""

    async def whole():
        async with scene(tmp_path, store={"flush": flush}) as stage:
            client, held = stage.client(), []
            monkeypatch.setattr(stage.broker.tables, "save", lambda table, done=None: held.append(done))
            sends = [asyncio.ensure_future(client.send("new", properties=f"UNIQ_KEY\1K{n}\2")) for n in range(3)]
            await asyncio.sleep(1)
            sends.append(asyncio.ensure_future(client.send("new")))
            await asyncio.sleep(1)
            assert not any(send.done() for send in sends) and not stage.broker.topics.is_written("new")
            stage.store.keep_topics().persist()
            for done in [done for done in held if done is not None]:
                done(None)
            await asyncio.sleep(1)
            assert [send.result().code for send in sends] == [0] * 4
            sent = stage.broker.path.sent
            assert (await client.send("new")).code == 0 and stage.broker.path.sent == sent + 1  # now it is a fast one

    virtual.run(whole())
