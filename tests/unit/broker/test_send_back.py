"""Send-backs of consumers, and direct sends to retry topics: retries and dead letters."""

import asyncio
import itertools
import types

import pytest
from simulation import virtual
from simulation.brokers import EPOCH, scene
from simulation.tools import heartbeat

import rocketc
from rocketc.broker import send_back
from rocketc.format.ids import decode_offset_id
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command
from rocketc.tables.groups import SubscriptionGroupConfig

BACK = 36
LEVELS = "1s 2s 3s 4s"


@pytest.fixture
def play(tmp_path):
    """Run main(scene, client); the group `audit` exists."""

    def run(main, store=None, **how):
        async def whole():
            async with scene(tmp_path, store={"message_delay_level": LEVELS, **(store or {})}, **how) as stage:
                stage.broker.groups.find("audit")
                await main(stage, stage.client())

        virtual.run(whole())

    return run


async def back(client, offset, level=0, group="audit", **values):
    return await client.call(BACK, offset=offset, group=group, delayLevel=level, **values)


async def sent(client, **how):
    answer = await client.send(**how)
    assert answer.code == 0, answer.remark
    return decode_offset_id(answer.fields["msgId"]).phy_offset


async def stored(stage, topic, queue_id=0):
    await stage.settle()
    return stage.store.get(topic, queue_id, 0, 100, decompress=False).messages


# where the message goes


def test_a_message_comes_to_the_retry_topic_after_its_delay(play):
    async def main(stage, client):
        offset = await sent(
            client, body=b"body", properties="UNIQ_KEY\1K1\2TAGS\1web\2KEYS\1a b\2own\1x\2WAIT\1true\2", flag=7,
            bornTimestamp=EPOCH - 5,
        )  # fmt: skip
        answer = await back(client, offset)
        assert (answer.code, answer.remark, answer.fields) == (0, None, {})
        [waits] = await stored(stage, "SCHEDULE_TOPIC_XXXX", 2)  # the first retry has level 3
        assert await stored(stage, "%RETRY%audit") == []
        began = asyncio.get_running_loop().time()
        while not (found := await stored(stage, "%RETRY%audit")):
            await asyncio.sleep(0.01)
        assert asyncio.get_running_loop().time() - began < 4
        [message] = found
        assert 3000 <= message.store_timestamp - waits.store_timestamp < 3200
        original = stage.store.message(offset)
        for one in (waits, message):
            assert one.reconsume_times == 1 and one.body == b"body" and one.flag == 7
            assert one.born_timestamp == EPOCH - 5 and one.born_host == original.born_host
            assert one.store_host == "127.0.0.1:10911"
            assert one.properties == {
                **original.properties, "WAIT": "false", "RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": original.msg_id,
                "DELAY": "3", "REAL_TOPIC": "%RETRY%audit", "REAL_QID": "0",
            }  # fmt: skip
        topic = stage.broker.topics.get("%RETRY%audit")
        assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm, topic.topic_sys_flag) == (1, 1, 6, 0)

    play(main)


def test_a_consumer_of_the_group_gets_the_message_by_its_tag(play):
    """The tags code of the delivered unit is that of the tag again, not the time of delivery."""

    async def main(stage, client):
        offset = await sent(client, properties="UNIQ_KEY\1K1\2TAGS\1web\2")
        await back(client, offset, 1)
        pull = asyncio.ensure_future(client.pull(topic="%RETRY%audit", subscription="web", wait=20_000))
        answer = await pull
        assert answer.code == 0 and rocketc.Message.of(answer.body).reconsume_times == 1
        assert asyncio.get_running_loop().time() < 5
        other = await client.pull(topic="%RETRY%audit", subscription="other")
        assert other.code == Code.PULL_RETRY_IMMEDIATELY

    play(main)


def test_a_level_that_was_empty_for_long_is_not_late(play):
    async def main(stage, client):
        offset = await sent(client)
        await asyncio.sleep(5)
        await back(client, offset, 1)
        await asyncio.sleep(1.3)
        assert len(await stored(stage, "%RETRY%audit")) == 1

    play(main)


def test_what_a_second_retry_keeps(play):
    async def main(stage, client):
        offset = await sent(client)
        await back(client, offset, 1)
        await asyncio.sleep(3)
        [first] = await stored(stage, "%RETRY%audit")
        await back(client, first.phy_offset)
        [_, waits] = await stored(stage, "SCHEDULE_TOPIC_XXXX", 0) + await stored(stage, "SCHEDULE_TOPIC_XXXX", 3)
        assert waits.reconsume_times == 2
        assert waits.properties == {**first.properties, "DELAY": "4"}  # 3 + 1; the origin is set once

    play(main)


def test_the_level_of_the_request(play):
    async def main(stage, client):
        offset = await sent(client)
        for asked in (1, 2, 4, 5, 99, 2**31 - 1):
            assert (await back(client, offset, asked)).code == 0
        for level, count in ((1, 1), (2, 1), (3, 0), (4, 4)):
            waits = await stored(stage, "SCHEDULE_TOPIC_XXXX", level - 1)
            assert [one.properties["DELAY"] for one in waits] == [str(level)] * count

    play(main)


def test_a_compressed_body_stays_as_it_is_stored(play):
    async def main(stage, client):
        offset = await sent(client, body=b"\x78\x9c is not even valid", sysFlag=1 | 0x300)
        await back(client, offset, 1)
        await asyncio.sleep(3)
        [message] = await stored(stage, "%RETRY%audit")
        assert message.stored_body == b"\x78\x9c is not even valid" and message.sys_flag == 1 | 0x300
        assert message.body_crc == stage.store.message(offset, decompress=False).body_crc

    play(main)


def test_a_retry_topic_with_several_queues(play):
    async def main(stage, client):
        stage.broker.groups.table.create(SubscriptionGroupConfig("wide", retry_queue_nums=3))
        offset = await sent(client)
        for _ in range(40):
            assert (await back(client, offset, 1, group="wide", unitMode=True)).code == 0
        await asyncio.sleep(3)
        counts = [len(await stored(stage, "%RETRY%wide", n)) for n in range(3)]
        assert sum(counts) == 40 and min(counts) > 3
        topic = stage.broker.topics.get("%RETRY%wide")
        assert (topic.read_queue_nums, topic.topic_sys_flag) == (3, 2)

    play(main)


@pytest.mark.parametrize(
    ("group_queues", "read", "write", "used"),
    [(4, 1, 1, {0}), (4, 2, 4, {0, 1}), (4, 4, 2, {0, 1}), (2, 4, 4, {0, 1}), (1 << 31, 3, 3, {0, 1, 2})],
)
@pytest.mark.parametrize("fast", [True, False])
def test_retries_use_only_queues_that_the_topic_has(play, fast, group_queues, read, write, used):
    """retryQueueNums is changed after the topic of the retries was made: its other queues can't be read."""

    async def main(stage, client):
        group = SubscriptionGroupConfig("audit", retry_queue_nums=min(group_queues, (1 << 31) - 1))
        stage.broker.groups.table.create(group)
        stage.store.create_topic("%RETRY%audit", read_queue_nums=read, write_queue_nums=write)
        offset = await sent(client)
        if not fast:
            stage.broker.pulls.path.backs = None
        for _ in range(40):
            assert (await back(client, offset, 1)).code == 0
        waits = await stored(stage, "SCHEDULE_TOPIC_XXXX", 0)
        assert len(waits) == 40
        assert {int(one.properties["REAL_QID"]) for one in waits} == used

    play(main)


@pytest.mark.parametrize(("read", "write"), [(0, 1), (1, 0)])
def test_a_retry_topic_without_queues_refuses_the_message(play, read, write):
    """The consumer then keeps it."""

    async def main(stage, client):
        stage.store.create_topic("%RETRY%audit", read_queue_nums=read, write_queue_nums=write)
        offset = await sent(client)
        before = stage.store.max_phy_offset
        answer = await back(client, offset)
        assert answer.code == Code.SYSTEM_ERROR
        assert answer.remark == (
            f"the topic[%RETRY%audit] has {read} queues to read and {write} to write: no queue can hold retries; "
            "give it at least 1 of each"
        )
        assert stage.store.max_phy_offset == before
        assert (await back(client, offset, -1)).code == 0  # dead letters have a topic of their own

    play(main)


# dead letters


@pytest.mark.parametrize(
    ("times", "values", "version", "is_dead"),
    [
        (15, {}, 479, False),  # retryMaxTimes is 16
        (16, {}, 479, True),
        (2, {"maxReconsumeTimes": 3}, 479, False),
        (3, {"maxReconsumeTimes": 3}, 479, True),
        (0, {"maxReconsumeTimes": 0}, 479, True),
        (0, {"maxReconsumeTimes": -1}, 479, True),
        (3, {"maxReconsumeTimes": 3}, 121, True),
        (3, {"maxReconsumeTimes": 3}, 120, False),  # older clients do not know the field
        (16, {"maxReconsumeTimes": 99}, 120, True),
    ],
)
def test_the_limit_of_send_backs(play, times, values, version, is_dead):
    async def main(stage, client):
        offset = await sent(client, reconsumeTimes=times)
        fields = {"offset": str(offset), "group": "audit", "delayLevel": "1"}
        fields |= {name: str(value) for name, value in values.items()}
        client.transport.write(Command(BACK, fields, opaque=77, version=version).encode())
        await asyncio.sleep(0.5)
        dead, waits = await stored(stage, "%DLQ%audit"), await stored(stage, "SCHEDULE_TOPIC_XXXX", 0)
        assert (len(dead), len(waits)) == ((1, 0) if is_dead else (0, 1))
        for message in dead + waits:
            assert message.reconsume_times == times + 1

    play(main)


@pytest.mark.parametrize("level", [-1, -7])
def test_a_negative_level_is_a_dead_letter_at_once(play, level):
    async def main(stage, client):
        offset = await sent(client)
        assert (await back(client, offset, level)).code == 0
        [message] = await stored(stage, "%DLQ%audit")
        original = stage.store.message(offset)
        assert message.reconsume_times == 1
        assert message.properties == {
            **original.properties, "WAIT": "false", "RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": original.msg_id,
            "DELAY": "0",
        }  # fmt: skip
        topic = stage.broker.topics.get("%DLQ%audit")
        assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)

    play(main)


@pytest.mark.parametrize(("length", "kept"), [(122, False), (123, True), (248, True)])
@pytest.mark.parametrize("direct", [False, True])
def test_a_message_that_can_not_be_a_dead_letter_waits_at_the_last_level(play, direct, length, kept):
    """The name of the topic of dead letters would be too long."""
    name = "g" * length

    async def main(stage, client):
        offset = await sent(client, reconsumeTimes=16)
        if direct:  # the fallback of a client, and the way of an orderly one
            stage.store.create_topic("%RETRY%" + name, queues=1)
            answer = await client.send(topic="%RETRY%" + name, reconsumeTimes=17, maxReconsumeTimes=16)
        else:
            answer = await back(client, offset, group=name)
        assert answer.code == 0
        waits = await stored(stage, "SCHEDULE_TOPIC_XXXX", 3)
        assert [one.properties["REAL_TOPIC"] for one in waits] == ["%RETRY%" + name] * kept
        assert stage.broker.counts.kept_back == ({name: 1} if kept else {})
        assert ("%DLQ%" + name in stage.broker.topics.table) is not kept
        if kept:
            await asyncio.sleep(6)
            [again] = await stored(stage, "%RETRY%" + name)
            assert again.reconsume_times == 17

    play(main)


@pytest.mark.parametrize("level", [-1, 0])
def test_a_group_whose_name_is_too_long_for_retries_keeps_the_message(play, level):
    name = "g" * 249

    async def main(stage, client):
        offset = await sent(client)
        before = stage.store.max_phy_offset
        answer = await back(client, offset, level, group=name)
        assert answer.code == Code.SYSTEM_ERROR
        assert answer.remark == (
            "the group has a name of 249 characters, too long for a topic of retries; use at most 122"
        )
        assert stage.store.max_phy_offset == before

    play(main)


# what is refused


def test_an_unknown_group_is_created_or_refused(play):
    async def main(stage, client):
        offset = await sent(client)
        answer = await back(client, offset, group="new group")
        assert answer.code == Code.SUBSCRIPTION_GROUP_NOT_EXIST
        assert answer.remark == "subscription group not exist, new group "
        assert (await back(client, offset, group="new")).code == 0
        stage.broker.groups.is_auto_create = False
        assert (await back(client, offset, group="other")).code == Code.SUBSCRIPTION_GROUP_NOT_EXIST
        answer = await client.send(topic="%RETRY%other")
        assert answer.code == Code.SUBSCRIPTION_GROUP_NOT_EXIST

    play(main)


def test_a_group_without_retry_queues_loses_the_message(play):
    """As in RocketMQ: the answer is SUCCESS, and nothing is stored."""

    async def main(stage, client):
        stage.broker.groups.table.create(SubscriptionGroupConfig("once", retry_queue_nums=0))
        offset = await sent(client)
        before = stage.store.max_phy_offset
        assert (await back(client, offset, group="once")).code == 0
        assert stage.store.max_phy_offset == before and stage.broker.topics.get("%RETRY%once") is None

    play(main)


def test_a_broker_or_a_retry_topic_that_only_reads(play):
    async def main(stage, client):
        offset = await sent(client)
        stage.store.create_topic("%RETRY%audit", read_queue_nums=1, write_queue_nums=1, perm=4)
        answer = await back(client, offset)
        assert answer.code == Code.NO_PERMISSION and "%RETRY%audit" in answer.remark

    play(main)


def test_a_broker_without_the_permission_to_write(play):
    async def main(stage, client):
        offset = await sent(client)
        answer = await back(client, offset)
        assert answer.code == Code.NO_PERMISSION and "127.0.0.1:10911" in answer.remark

    play(main, broker_permission=4)


def test_offsets_without_a_message(play):
    async def main(stage, client):
        await sent(client)
        for offset in (-1, 1, 1 << 40, (1 << 63) - 1, -(1 << 63)):
            answer = await back(client, offset)
            assert (answer.code, answer.remark) == (Code.SYSTEM_ERROR, f"look message by offset failed, {offset}")
        assert (await back(client, 0)).code == 0

    play(main)


def test_missing_and_wrong_fields(play):
    async def main(stage, client):
        await sent(client)
        for name, value in itertools.product(("offset", "group", "delayLevel"), (None, "x", "", "9" * 30)):
            fields = {"offset": 0, "group": "audit", "delayLevel": 0, name: value}
            answer = await client.call(BACK, **{key: one for key, one in fields.items() if one is not None})
            expected = Code.SYSTEM_ERROR
            if name == "group" and value is not None:
                expected = Code.SUBSCRIPTION_GROUP_NOT_EXIST if value == "" else Code.SUCCESS
            assert (name, value, answer.code) == (name, value, expected)

    play(main)


def test_properties_that_become_too_long(play):
    async def main(stage, client):
        offset = await sent(client, properties="UNIQ_KEY\1K1\2big\1" + "x" * 32_600 + "\2")
        answer = await back(client, offset, 1)
        assert answer.code == Code.SYSTEM_ERROR and answer.remark == "PROPERTIES_SIZE_EXCEEDED"
        assert await stored(stage, "SCHEDULE_TOPIC_XXXX") == []

    play(main)


def test_a_store_that_does_not_accept_messages(play):
    async def main(stage, client):
        offset = await sent(client)
        await back(client, offset)
        stage.store._set_full(True)
        answer = await back(client, offset)
        assert answer.code == Code.SYSTEM_ERROR and "full" in answer.remark
        stage.store._set_full(False)

    play(main)


# durability


def test_with_sync_flush_the_answer_waits_for_the_flush(play):
    async def main(stage, client):
        offset = await sent(client)
        assert (await back(client, offset)).code == 0
        assert stage.store.flushed_phy_offset == stage.store.max_phy_offset
        for task in list(stage.broker._services._tasks):
            if task.get_name() == "store":
                task.cancel()
        answer = await back(client, offset)
        assert (answer.code, answer.remark) == (Code.SYSTEM_ERROR, "FLUSH_DISK_TIMEOUT")

    play(main, store={"flush": "sync"})


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_the_answer_waits_for_the_topic_of_dead_letters(play, flush):
    async def main(stage, client):
        offset = await sent(client)
        saved = []
        stage.broker.topics.when_written = saved.append
        stage.broker.topics.is_written = lambda name: name != "%DLQ%audit"
        asking = asyncio.ensure_future(back(client, offset, -1))
        while not saved:
            await asyncio.sleep(0.001)
            assert not asking.done()
        saved[0]()
        assert (await asking).code == 0

    play(main, store={"flush": flush})


def test_an_old_message_is_read_on_a_thread(play, monkeypatch):
    async def main(stage, client):
        first = await sent(client)
        processor = stage.broker.server._processors[BACK]
        calls = []

        class Store:
            background = True
            max_phy_offset = property(lambda self: stage.store.max_phy_offset)

            def message(self, offset, **how):
                return stage.store.message(offset, **how)

        processor._store = Store()
        monkeypatch.setattr(send_back, "RECENT_BYTES", 1)
        monkeypatch.setattr(
            processor, "_loop",
            type("Loop", (), {
                "run_in_executor": lambda self, pool, work, *what: calls.append((work, what)),
                "call_soon_threadsafe": lambda self, work, *what: work(*what),
            })(),
        )  # fmt: skip
        asking = [asyncio.ensure_future(back(client, offset, 1)) for offset in (first, 5)]
        while len(calls) < 2:
            await asyncio.sleep(0.01)
        assert await stored(stage, "SCHEDULE_TOPIC_XXXX") == []
        for work, what in calls:
            work(*what)
        assert [(await one).code for one in asking] == [0, 1]
        assert len(await stored(stage, "SCHEDULE_TOPIC_XXXX")) == 1

    play(main)


# direct sends to retry topics


def test_the_limit_of_direct_sends(play):
    async def main(stage, client):
        for times, most, is_dead in ((3, 3, 0), (4, 3, 1), (16, None, 0), (17, None, 1), (1, 0, 1)):
            before = len(await stored(stage, "%DLQ%audit")), len(await stored(stage, "SCHEDULE_TOPIC_XXXX", 1))
            values = {} if most is None else {"maxReconsumeTimes": most}
            answer = await client.send(
                topic="%RETRY%audit", properties="UNIQ_KEY\1K1\2DELAY\0012\2", reconsumeTimes=times, **values
            )
            assert answer.code == 0 and answer.fields["queueId"] == "0"
            dead, waits = await stored(stage, "%DLQ%audit"), await stored(stage, "SCHEDULE_TOPIC_XXXX", 1)
            assert (len(dead), len(waits)) == (before[0] + is_dead, before[1] + 1 - is_dead)
            last = dead[-1] if is_dead else waits[-1]
            assert (last.properties["DELAY"], last.reconsume_times) == ("-1" if is_dead else "2", times)

    play(main)


def test_an_orderly_group_sends_only_dead_letters(play):
    """It holds a lock: whatever its count, the message is a dead letter."""

    async def main(stage, client):
        lock = (
            b'{"consumerGroup":"audit","clientId":"c","mqSet":[{"topic":"orders","brokerName":"broker-a","queueId":0}]}'
        )
        assert (await client.call(41, lock)).code == 0
        await client.send(topic="%RETRY%audit", properties="UNIQ_KEY\1K1\2DELAY\0013\2")
        [dead] = await stored(stage, "%DLQ%audit")
        assert dead.properties["DELAY"] == "-1" and "REAL_TOPIC" not in dead.properties
        await asyncio.sleep(61)  # the lock is too old
        await client.send(topic="%RETRY%audit", properties="UNIQ_KEY\1K1\2DELAY\0013\2")
        assert len(await stored(stage, "%DLQ%audit")) == 1

    play(main)


def test_a_retry_of_a_transaction_is_a_plain_send(play):
    async def main(stage, client):
        text = "UNIQ_KEY\1K1\2TRAN_MSG\1true\2DELAY\0013\2"
        assert (await client.send(topic="%RETRY%audit", properties=text)).code == 0
        assert len(await stored(stage, "RMQ_SYS_TRANS_HALF_TOPIC")) == 1
        assert (await client.send(topic="%RETRY%audit", properties=text, reconsumeTimes=1)).code == 0
        assert (await client.send(topic="%RETRY%audit", properties=text, reconsumeTimes=17)).code == 0
        assert len(await stored(stage, "RMQ_SYS_TRANS_HALF_TOPIC")) == 1
        [dead] = await stored(stage, "%DLQ%audit")
        assert "TRAN_MSG" not in dead.properties

    play(main)


def test_the_answer_to_a_dead_letter_waits_for_its_topic(play):
    async def main(stage, client):
        assert (await client.send(topic="%RETRY%audit")).code == 0
        saved = []
        stage.broker.topics.when_written = saved.append
        asking = asyncio.ensure_future(client.send(topic="%RETRY%audit", reconsumeTimes=99))
        while not saved:
            await asyncio.sleep(0.001)
            assert not asking.done()
        saved[0]()
        assert (await asking).code == 0

    play(main)


def test_the_vip_port_takes_messages_back(play):
    async def main(stage, client):
        offset = await sent(client)
        assert (await back(stage.client(vip=True), offset)).code == 0

    play(main)


# topics that are being deleted


@pytest.mark.parametrize("was_there", [True, False])
def test_nothing_is_sent_back_while_its_topic_is_deleted(play, was_there):
    """The topic came back in the middle of its deletion, and the message was deleted with it."""

    async def main(stage, client):
        offset, topics = await sent(client), stage.broker.topics
        if was_there:
            topics.create_if_missing("%RETRY%audit", 1)
            topics.create_if_missing("%DLQ%audit", 1)
        before = set(topics.table)
        for topic, values in (("%RETRY%audit", {}), ("%DLQ%audit", {"level": -1})):
            topics.hide([topic])
            answer = await back(client, offset, **values)
            assert (answer.code, answer.remark) == (Code.SYSTEM_ERROR, f"topic[{topic}] not exist")
            topics.unhide([topic])
            assert set(topics.table) - before <= {"%RETRY%audit"} - ({topic} if topic == "%RETRY%audit" else set())
            assert (await back(client, offset, **values)).code == 0

    play(main)


def test_no_dead_letter_is_sent_while_its_topic_is_deleted(play):
    async def main(stage, client):
        topics = stage.broker.topics
        assert (await client.send(topic="%RETRY%audit")).code == 0
        topics.hide(["%DLQ%audit"])
        answer = await client.send(topic="%RETRY%audit", reconsumeTimes=99)
        assert (answer.code, answer.remark) == (Code.SYSTEM_ERROR, "topic[%DLQ%audit] not exist")
        assert "%DLQ%audit" not in topics.table
        topics.unhide(["%DLQ%audit"])
        topics.hide(["%RETRY%audit"])
        assert (await client.send(topic="%RETRY%audit")).code == Code.TOPIC_NOT_EXIST

    play(main)


def test_a_heartbeat_creates_no_retry_topic_that_is_being_deleted(play):
    async def main(stage, client):
        topics = stage.broker.topics
        topics.hide(["%RETRY%billing"])
        assert (await client.call(34, heartbeat(group="billing"))).code == 0
        assert "%RETRY%billing" not in topics.table
        topics.unhide(["%RETRY%billing"])
        assert (await client.call(34, heartbeat(group="billing"))).code == 0
        assert "%RETRY%billing" in topics.table

    play(main)


def test_the_retry_topic_is_deleted_during_a_cold_read(play, monkeypatch):
    async def main(stage, client):
        offset, topics, reads = await sent(client), stage.broker.topics, []
        store = types.SimpleNamespace(background=True, max_phy_offset=1 << 40, message=stage.store.message)
        processor = stage.broker.server._processors[BACK]
        processor._store = store
        monkeypatch.setattr(processor._loop, "run_in_executor", lambda pool, *work: reads.append(work))
        asking = asyncio.ensure_future(back(client, offset))
        while not reads:
            await asyncio.sleep(0.01)
        topics.hide(["%RETRY%audit"])
        topics.table.delete("%RETRY%audit")
        read, *what = reads.pop()
        read(*what)
        answer = await asking
        assert (answer.code, answer.remark) == (Code.SYSTEM_ERROR, "topic[%RETRY%audit] not exist")
        assert "%RETRY%audit" not in topics.table

    play(main)
