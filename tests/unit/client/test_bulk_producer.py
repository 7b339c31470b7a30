"""BulkProducer: batches, order, retries and refused messages, at scripted brokers on virtual time."""

import asyncio

import pytest
from unit.client.producing import refusing
from unit.client.scripted import Cluster, play, stored

from rocketc.client.batching import BulkMessage, NewMessage
from rocketc.client.bulk_producer import AT_ONCE, BulkCounts, BulkError, BulkProducer
from rocketc.errors import (
    AnswerError,
    ClosedError,
    IllegalMessageError,
    NoAnswerError,
    NotSentError,
    TopicNotFoundError,
)
from rocketc.format._encoding import decode_batch
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer

BATCH, ONE = 320, 310


def batch_stored(call):
    """What a broker answers to a batch."""
    answer = stored(call)
    entries = decode_batch(call.command.body)
    answer.values["msgId"] = ",".join([answer.values["msgId"]] * len(entries))
    return answer


def taking(call):
    return batch_stored(call) if call.command.code == BATCH else stored(call)


def run(work, brokers=None, cluster=None, **options):
    async def main():
        stage = Cluster({"a": taking, "b": taking} if brokers is None else brokers, **(cluster or {}))
        async with stage.producer(kind=BulkProducer, **options) as producer:
            return await work(producer, stage)

    return play(main())


def entries_of(stage):
    """(queue id, broker, [(flag, body, properties)]) of all requests in order of their brokers."""
    found = []
    for name, broker in stage.brokers.items():
        for call in broker.asked:
            if call.command.code == BATCH:
                found.append((name, call.values["queueId"], decode_batch(call.command.body)))
            elif call.command.code == ONE:
                found.append((name, call.values["queueId"], [(0, call.command.body, call.values["properties"])]))
    return found


def properties_of(text):
    text = text.decode() if isinstance(text, bytes) else text
    return dict(one.split("\x01") for one in text.split("\x02") if one)


def bodies(stage):
    return [bytes(body) for _, _, entries in entries_of(stage) for _, body, _ in entries]


def test_messages_go_in_batches_of_some_bytes_to_all_queues():
    async def work(producer, stage):
        producer.batch_bytes = 1000
        await producer.add("orders", [b"%04d" % i * 5 for i in range(100)], range(100))
        await producer.add("bills", [NewMessage(b"x", tags="web", keys="k")], [100])
        assert await producer.finish() == BulkCounts(101, {})
        assert sorted(bodies(stage)) == sorted([b"%04d" % i * 5 for i in range(100)] + [b"x"])
        batches = [one for one in entries_of(stage) if len(one[2]) > 1]
        assert 8 < len(batches) < 20 and len({one[:2] for one in batches}) == 4
        [(_, _, [(_, _, text)])] = [one for one in entries_of(stage) if one[2][0][1] == b"x"]
        assert properties_of(text).items() >= {("TAGS", "web"), ("KEYS", "k")}

    run(work)


def test_a_key_becomes_the_unique_id():
    async def work(producer, stage):
        await producer.add("orders", [BulkMessage(b"1", key="o-1"), BulkMessage(b"2"), b"3"], range(3))
        await producer.add("orders", [BulkMessage(b"4", key="o-4", delay_level="10s")], [3])
        await producer.add("%RETRY%g", [BulkMessage(b"5", key="o-5"), b"6"], [4, 5])
        assert (await producer.finish()).messages == 6
        ids = {body: properties_of(text)["UNIQ_KEY"] for _, _, one in entries_of(stage) for _, body, text in one}
        assert (ids[b"1"], ids[b"4"], ids[b"5"]) == ("o-1", "o-4", "o-5")
        assert all(len(ids[body]) == 32 for body in (b"2", b"3", b"6"))
        asked = [call for one in stage.brokers.values() for call in one.asked]
        retries = [call for call in asked if call.values.get("topic") == "%RETRY%g"]
        assert [call.command.code for call in retries] == [ONE, ONE]  # brokers refuse batches for it

    run(work)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (BulkMessage(b"x", key=""), "the unique id: '' is empty"),
        (BulkMessage(b"x", key="a\x02b"), "the unique id: "),
        (BulkMessage(b"", key="x"), "an empty body"),
        (b"x" * (5 << 20), "a body of 5242880 bytes"),
        (BulkMessage(b"x", queue_id=7), "has the queues 0 to 1, not 7"),
        (BulkMessage(b"x", delay_level=3, delay=1.0), "not both"),
        (BulkMessage(b"x", shard="\x01"), "shard"),
        (NewMessage(b"x", properties={"KEYS": "x"}), "RocketMQ uses this name"),
    ],
)
def test_a_wrong_message_is_named(message, text):
    async def work(producer, stage):
        with pytest.raises(BulkError) as caught:
            await producer.add("orders", [b"1", b"2", message, b"3"], range(10, 14))
            await producer.finish()
        assert list(caught.value.rows) == [12]
        assert isinstance(caught.value.error, IllegalMessageError) and text in str(caught.value.error)
        with pytest.raises(BulkError):
            await producer.add("orders", [b"4"], [20])
        with pytest.raises(BulkError):
            await producer.finish()

    run(work)


def test_the_message_that_a_broker_refuses_is_named():
    def picky(call):
        return refusing(Code.MESSAGE_ILLEGAL) if b"bad" in call.command.body else taking(call)

    async def work(producer, stage):
        with pytest.raises(BulkError) as caught:
            await producer.add("orders", [b"1", b"2", b"bad", b"3"], range(4))
            await producer.finish()
        assert list(caught.value.rows) == [2] and caught.value.error.code == Code.MESSAGE_ILLEGAL
        found = [bytes(entries[0][1]) for _, _, entries in entries_of(stage) if len(entries) == 1]
        assert found == [b"1", b"2", b"bad"]
        ids = {}
        for _, _, entries in entries_of(stage):
            for _, body, text in entries:
                ids.setdefault(bytes(body), set()).add(properties_of(text)["UNIQ_KEY"])
        assert all(len(one) == 1 for one in ids.values())  # the same ids in the batch and alone

    run(work, {"a": picky})


def test_a_refused_account_is_not_tried_again():
    async def work(producer, stage):
        with pytest.raises(BulkError) as caught:
            await producer.add("orders", [b"1", b"2"], range(2))
            await producer.finish()
        assert list(caught.value.rows) == [0, 1] and isinstance(caught.value.error, AnswerError)
        return stage.brokers["a"].count(BATCH), stage.brokers["a"].count(ONE)

    remark = "org.apache.rocketmq.acl.common.AclException: No default permission for orders"
    assert run(work, {"a": Answer(Code.SYSTEM_ERROR, remark=remark)}) == (3, 0)
    assert run(work, {"a": Answer(Code.NO_PERMISSION, remark="no")}) == (3, 0)


def test_a_busy_broker_gets_the_batch_again_with_the_same_ids():
    times = 0

    def busy(call):
        nonlocal times
        times += call.command.code == BATCH
        return refusing(Code.SYSTEM_BUSY) if times < 12 else taking(call)

    async def work(producer, stage):
        await producer.add("orders", [b"1", b"2"], range(2))
        assert (await producer.finish()).messages == 2
        sent = [[properties_of(text)["UNIQ_KEY"] for _, _, text in one] for _, _, one in entries_of(stage)]
        assert len(sent) == 12 and all(one == sent[0] for one in sent)

    run(work, {"a": busy})


@pytest.mark.parametrize(
    ("broker", "is_error"),
    [(None, lambda error: isinstance(error, NoAnswerError)),
     (refusing(Code.SYSTEM_BUSY), lambda error: error.code == Code.SYSTEM_BUSY)],
    ids=["away", "busy"],
)  # fmt: skip
def test_brokers_that_take_nothing_for_too_long(broker, is_error):
    """None is asked for each message of the batch."""

    async def work(producer, stage):
        began = asyncio.get_running_loop().time()
        with pytest.raises(BulkError) as caught:
            await producer.add("orders", [b"1", b"2"], range(2))
            await producer.finish()
        assert is_error(caught.value.error) and list(caught.value.rows) == [0, 1]
        return asyncio.get_running_loop().time() - began, stage.brokers["a"].count(ONE)

    took, alone = run(work, {"a": broker})
    assert 25 < took < 40 and alone == 0


def test_other_statuses_are_counted():
    def unsure(call):
        answer = taking(call)
        return Answer(Code.FLUSH_DISK_TIMEOUT, values=answer.values) if call.command.code == BATCH else answer

    async def work(producer, stage):
        await producer.add("orders", [b"1", b"2", BulkMessage(b"3", delay_level=1)], range(3))
        return await producer.finish()

    assert run(work, {"a": unsure}) == BulkCounts(3, {"FLUSH_DISK_TIMEOUT": 2})


@pytest.mark.parametrize("how", [{"shard": "c-7"}, {"queue_id": 1}])
def test_messages_of_a_queue_are_sent_one_batch_after_the_other(how):
    async def work(producer, stage):
        producer.batch_bytes = 600
        for first in range(0, 90, 30):
            messages = [BulkMessage(b"%d" % i, **how) for i in range(first, first + 30)]
            await producer.add("orders", messages, range(first, first + 30))
        await producer.finish()
        used = {one[:2] for one in entries_of(stage)}
        assert len(used) == 1 and bodies(stage) == [b"%d" % i for i in range(90)]
        if "shard" in how:
            text = entries_of(stage)[0][2][0][2]
            assert properties_of(text)["__SHARDINGKEY"] == "c-7"

    run(work)


def test_a_queue_waits_for_the_answer_of_its_batch():
    async def work(producer, stage):
        producer.batch_bytes = 100
        await producer.add("orders", [BulkMessage(b"x" * 50, queue_id=1)] * 5, range(5))
        await asyncio.sleep(1)
        assert len(bodies(stage)) == 1
        await producer.add("orders", [BulkMessage(b"y" * 50, queue_id=0)], [5])
        await asyncio.sleep(1)
        assert sorted(bodies(stage)) == [b"x" * 50, b"y" * 50]

    run(work, {"a": None}, send_msg_timeout=60_000)


def test_no_more_than_some_batches_wait():
    async def work(producer, stage):
        producer.batch_bytes = 100
        adding = asyncio.ensure_future(producer.add("orders", [b"x" * 50] * 100, range(100)))
        await asyncio.sleep(1)
        assert not adding.done() and len(bodies(stage)) == AT_ONCE
        for broker in stage.brokers.values():
            broker.answers |= {ONE: taking, BATCH: taking}
        await adding
        await producer.finish()

    run(work, {"a": None, "b": None}, send_msg_timeout=5_000)


def test_close_ends_what_is_under_way():
    async def work(producer, stage):
        await producer.add("orders", [b"x"] * 3, range(3))

    run(work, {"a": None})

    async def closed(producer, stage):
        await producer.close()
        with pytest.raises(ClosedError):
            await producer.add("orders", [b"x"], [0])

    run(closed)


class TestCheck:
    def test_all_is_well(self):
        async def work(producer, stage):
            await producer.check("orders")
            [probe] = [call for call in stage.brokers["a"].asked if call.command.code == ONE]
            assert probe.values["queueId"] == 2**31 - 1 and probe.command.body == b""

        run(work, {"a": Answer(Code.INVALID_PARAMETER, remark="request queueId[2147483647] is illegal")})

    def test_a_topic_that_the_broker_creates(self):
        async def work(producer, stage):
            await producer.check("orders")
            assert not stage.brokers["a"].count(ONE)

        run(work, {"a": taking}, {"missing": ["orders"]})

    def test_a_topic_that_no_broker_creates(self):
        async def work(producer, stage):
            with pytest.raises(TopicNotFoundError, match="no broker has it"):
                await producer.check("orders")
            with pytest.raises(IllegalMessageError, match="a topic name may only"):
                await producer.check("my orders")

        run(work, {"a": taking}, {"missing": ["orders"], "creates": False})

    @pytest.mark.parametrize("code", [Code.NO_PERMISSION, Code.SYSTEM_ERROR])
    def test_a_refused_account(self, code):
        async def work(producer, stage):
            with pytest.raises(AnswerError, match="AclException"):
                await producer.check("orders")

        run(work, {"a": Answer(code, remark="AclException: no permission for orders"), "b": taking})

    def test_brokers_that_are_away(self):
        async def work(producer, stage):
            del stage.servers[stage.address("b")]
            await producer.check("orders")
            del stage.servers[stage.address("a")]
            stage.cut(stage.address("a"))
            with pytest.raises(NotSentError):
                await producer.check("orders")

        run(work)
