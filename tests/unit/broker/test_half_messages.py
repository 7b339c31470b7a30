"""Prepare: a send of a transaction becomes a half message."""

import asyncio

import pytest
from simulation import virtual
from simulation.brokers import EPOCH, scene

import rocketc
from rocketc.broker.half_messages import (
    HalfMessage,
    is_transaction,
    make_half,
    op_body,
    op_offsets,
    place_of,
)
from rocketc.errors import BadRequestError
from rocketc.format.ids import decode_offset_id
from rocketc.remoting.codes import Code

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
TOLD = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
SENT = "UNIQ_KEY\1K1\2TRAN_MSG\1true\2PGROUP\1shop\2TAGS\1web\2KEYS\1a b\2WAIT\1true\2"
STORED = {
    "UNIQ_KEY": "K1", "TRAN_MSG": "true", "PGROUP": "shop", "TAGS": "web", "KEYS": "a b", "WAIT": "true", **TOLD,
    "CLUSTER": "DefaultCluster", "__transactionId__": "K1", "REAL_TOPIC": "orders", "REAL_QID": "2",
}  # fmt: skip


@pytest.fixture(params=["path", "processor"])
def play(request, tmp_path):
    """Run main(scene, client), with the compiled path and without it."""

    def run(main, **how):
        async def whole():
            async with scene(tmp_path, **how) as stage:
                client = stage.client()
                await client.send(body=b"first", queueId=9999)  # creates the topic; the message is refused
                stage.broker.path.enabled = stage.is_path = request.param == "path"
                await main(stage, client)

        virtual.run(whole())

    return run


async def halves(stage):
    await stage.settle()
    return stage.store.get(HALF, 0, 0, 100, decompress=False).messages


@pytest.mark.parametrize("code", [10, 310])
def test_the_half_message_and_the_answer(play, code):
    async def main(stage, client):
        before = stage.broker.path.sent
        answer = await client.send(
            code=code, properties=SENT, queueId=2, flag=7, sysFlag=1, reconsumeTimes=2, bornTimestamp=EPOCH - 5
        )
        assert stage.broker.path.sent == before + stage.is_path
        [half] = await halves(stage)
        assert (answer.code, answer.remark) == (0, None)
        assert answer.fields == {
            **TOLD, "msgId": answer.fields["msgId"], "queueId": "2", "queueOffset": "0", "transactionId": "K1",
        }  # fmt: skip
        assert decode_offset_id(answer.fields["msgId"]).phy_offset == half.phy_offset
        assert half.properties == STORED
        assert (half.stored_body, half.flag, half.sys_flag, half.reconsume_times) == (b"body", 7, 1, 2)
        assert half.born_timestamp == EPOCH - 5 and half.prepared_transaction_offset == 0
        assert stage.store.max_offset("orders", 2) == 0
        again = await client.send(properties=SENT)
        assert again.fields["queueOffset"] == "1"

    play(main)


@pytest.mark.parametrize("kind", [4, 8, 12])
def test_the_type_of_the_send_is_not_stored(play, kind):
    """Java's client and ours set it."""

    async def main(stage, client):
        before = stage.broker.path.sent
        assert (await client.send(properties=SENT, sysFlag=kind | 1)).code == 0
        assert stage.broker.path.sent == before + stage.is_path
        assert [half.sys_flag for half in await halves(stage)] == [1]

    play(main)


@pytest.mark.parametrize("extra", ["DELAY\0013\2", "TIMER_DELAY_SEC\0013\2", "TIMER_DELIVER_MS\00199\2DELAY\0011\2"])
def test_a_transaction_comes_before_a_delay(play, extra):
    async def main(stage, client):
        assert (await client.send(properties=SENT + extra, queueId=2)).code == 0
        assert [half.properties for half in await halves(stage)] == [STORED]
        assert stage.store.queues() == [(HALF, 0)]

    play(main)


def test_the_broker_sets_what_belongs_to_it(play):
    """A client can't choose where a committed message goes, nor the id of the transaction."""

    async def main(stage, client):
        extra = "REAL_TOPIC\1evil\2REAL_QID\0019\2__transactionId__\1own\2"
        assert (await client.send(properties=SENT + extra, queueId=2)).code == 0
        assert [half.properties for half in await halves(stage)] == [STORED]

    play(main)


def test_a_missing_unique_key_is_made(play):
    async def main(stage, client):
        answer = await client.send(properties="TRAN_MSG\1TRUE\2PGROUP\1shop\2")
        [half] = await halves(stage)
        key = answer.fields["transactionId"]
        assert len(key) == 32 and half.properties["UNIQ_KEY"] == half.properties["__transactionId__"] == key

    play(main)


def test_a_negative_queue_is_chosen_by_the_broker(play):
    async def main(stage, client):
        answer = await client.send(properties=SENT, queueId=-1)
        [half] = await halves(stage)
        assert half.properties["REAL_QID"] == answer.fields["queueId"] and 0 <= int(answer.fields["queueId"]) < 4

    play(main)


def test_a_retry_with_a_delay_is_a_plain_send(play):
    async def main(stage, client):
        answer = await client.send(properties=SENT + "DELAY\0011\2", reconsumeTimes=1, queueId=2)
        assert answer.code == 0 and await halves(stage) == []
        [waits] = stage.store.get("SCHEDULE_TOPIC_XXXX", 0).messages
        assert waits.properties["REAL_TOPIC"] == "orders"

    play(main)


def test_the_messages_of_a_batch_are_plain(play):
    async def main(stage, client):
        batch = rocketc.encode_batch([(0, b"one", {"TRAN_MSG": "true"}), (0, b"two", None)])
        assert (await client.send(code=320, body=batch, properties=SENT)).code == 0
        assert await halves(stage) == [] and stage.store.max_offset("orders", 0) == 2

    play(main)


@pytest.mark.parametrize(("kind", "queued"), [(4, 0), (8, 1), (12, 0)])
def test_a_type_without_the_property(play, kind, queued):
    """As in RocketMQ: the message is stored unchanged; a prepared or a rolled-back one is in no queue."""

    async def main(stage, client):
        answer = await client.send(sysFlag=kind)
        await stage.settle()
        assert (answer.code, answer.fields["queueOffset"]) == (0, "0")
        message = stage.store.message(decode_offset_id(answer.fields["msgId"]).phy_offset)
        assert (message.sys_flag, message.topic, message.queue_offset) == (kind, "orders", 0)
        assert stage.store.max_offset("orders", 0) == queued

    play(main)


def test_a_prepared_message_without_the_property_is_not_delayed(play):
    async def main(stage, client):
        answer = await client.send(sysFlag=4, properties="UNIQ_KEY\1K1\2DELAY\0011\2")
        await stage.settle()
        message = stage.store.message(decode_offset_id(answer.fields["msgId"]).phy_offset)
        assert message.topic == "orders" and "REAL_TOPIC" not in message.properties

    play(main)


def test_transactions_can_be_refused(play):
    async def main(stage, client):
        answer = await client.send(properties=SENT)
        assert answer.code == Code.NO_PERMISSION and "sending transaction message is forbidden" in answer.remark
        assert (await client.send()).code == 0

    play(main, reject_transaction_message=True)


def test_a_setting_that_tools_change(play):
    async def main(stage, client):
        for is_refused in (True, False):
            stage.broker.config.reject_transaction_message = is_refused
            stage.broker._settings_changed(["reject_transaction_message"])
            answer = await client.send(properties=SENT)
            assert answer.code == (Code.NO_PERMISSION if is_refused else 0)

    play(main)


def test_many_half_messages_of_one_read_event(play):
    """They are stored together with plain messages, and counted."""

    async def main(stage, client):
        answers = await asyncio.gather(
            *(client.send(properties=SENT.replace("true", "false" if n % 3 == 0 else "true", 1), queueId=n % 4)
              for n in range(300))
        )  # fmt: skip
        assert [answer.fields["queueId"] for answer in answers] == [str(n % 4) for n in range(300)]
        found = await halves(stage)
        assert len(found) == 100 and {half.properties["REAL_QID"] for half in found} == {"0", "1", "2", "3"}
        assert stage.store.max_offset(HALF) == 200
        assert stage.broker.transaction_stats.open.items() == [("orders", 200)]

    play(main, delay=(0.0, 0.0))


def test_half_messages_of_clients_are_compiled(play):
    """Producers mark a half message as prepared, in its sysFlag."""

    async def main(stage, client):
        await client.send(properties=SENT)  # makes the topic
        sent = stage.broker.path.sent
        for flags in (0, 4, 5, 12):
            await client.send(properties=SENT, sysFlag=flags)
        assert stage.broker.path.sent == sent + (4 if stage.broker.path.enabled else 0)
        assert [half.sys_flag for half in await halves(stage)][1:] == [0, 0, 1, 0]

    play(main)


def test_a_prepared_message_outside_of_a_transaction_is_not_compiled(play):
    async def main(stage, client):
        await client.send()
        sent = stage.broker.path.sent
        await client.send(sysFlag=4)
        assert stage.broker.path.sent == sent

    play(main)


@pytest.mark.parametrize("topic", ["t", "o" * 127])
@pytest.mark.parametrize("key", ["K", "k" * 128, "k" * 129])
def test_topics_and_keys_of_any_length(play, topic, key):
    async def main(stage, client):
        await client.send(topic=topic, queueId=9999)
        await asyncio.sleep(1)
        answer = await client.send(topic=topic, properties=SENT.replace("K1", key), queueId=3)
        [half] = await halves(stage)
        assert answer.fields["transactionId"] == half.properties["__transactionId__"] == key
        assert (half.properties["REAL_TOPIC"], half.properties["REAL_QID"]) == (topic, "3")

    play(main)


def test_properties_that_become_too_long(play):
    async def main(stage, client):
        text = SENT + "own\1" + "x" * 32_500 + "\2"
        assert (await client.send(properties=text)).code == 0
        answer = await client.send(properties=SENT + "own\1" + "x" * 32_640 + "\2")
        assert answer.code == Code.MESSAGE_ILLEGAL
        assert len(await halves(stage)) == 1

    play(main)


def test_a_half_message_waits_for_its_flush(play):
    async def main(stage, client):
        answer = await client.send(properties=SENT)
        assert answer.code == 0 and stage.store.flushed_phy_offset == stage.store.max_phy_offset

    play(main, store={"flush": "sync"})


# the parts


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"", []), (b"0", [0]), (b"0,", [0]), (b"12,15,", [12, 15]), (b"12, 15", [12, 15]), (b",,3,", [3]),
        (b"-3,4", [4]), (b"1.5,2", [2]), (b"\xff,2", [2]), (b"9" * 18, [10**18 - 1]), (b"9" * 19, []),
    ],
)  # fmt: skip
def test_op_marks(body, found):
    assert op_offsets(body) == found
    assert op_offsets(op_body(found)) == found


@pytest.mark.parametrize("queue_id", [None, "", "x", "-1", str(2**31), "1" * 30])
def test_a_half_without_a_valid_place(queue_id):
    properties = {"REAL_TOPIC": "orders"} | ({} if queue_id is None else {"REAL_QID": queue_id})
    assert place_of(properties) is None
    assert place_of({"REAL_QID": "1"}) is place_of({"REAL_TOPIC": "", "REAL_QID": "1"}) is None


@pytest.mark.parametrize(("value", "found"), [("true", True), ("True", True), ("1", False), ("", False)])
def test_what_asks_for_a_transaction(value, found):
    assert is_transaction({"TRAN_MSG": value}) is found


def test_a_half_without_a_unique_key_keeps_its_transaction_id():
    properties = {"__transactionId__": "own"}
    make_half(properties, "orders", 0)
    assert properties == {"__transactionId__": "own", "REAL_TOPIC": "orders", "REAL_QID": "0"}


def test_the_copies_keep_the_first_offset(tmp_path):
    with rocketc.open(tmp_path, mapped_file_size_commit_log=1 << 20) as store:
        put = store.put(HALF, b"body", properties={"WAIT": "true"})
        first = HalfMessage(store.message(put.phy_offset)).immune(1)
        assert first == {"WAIT": "false", "TRANSACTION_CHECK_TIMES": "1", "TRAN_PREPARED_QUEUE_OFFSET": "0"}
        again = HalfMessage(store.message(store.put(HALF, b"body", properties=first).phy_offset)).immune(2)
    assert again == {**first, "TRANSACTION_CHECK_TIMES": "2"}


@pytest.mark.parametrize("born", ["127.0.0.1", "2001:db8::1"])
@pytest.mark.parametrize("store_host", [("127.0.0.1", 10911), ("2001:db8::2", 10911)])
@pytest.mark.parametrize("topic", ["t", "orders" * 20])
def test_the_body_of_a_check(tmp_path, born, store_host, topic):
    with rocketc.open(tmp_path, mapped_file_size_commit_log=1 << 20, store_host=store_host) as store:
        properties = {"REAL_TOPIC": topic, "REAL_QID": "3", "own": "x"}
        put = store.put(HALF, b"body" * 9, properties=properties, born_host=(born, 5), flag=7, sys_flag=1)
        half = store.message(put.phy_offset, decompress=False)
    body = HalfMessage(half).check_body(77, 5, b"a\1b\2")
    [found] = rocketc.decode(body, None, decompress=False)
    assert (found.topic, found.queue_id, found.queue_offset, found.phy_offset) == (topic, 3, 5, 77)
    assert found.properties == {"a": "b"} and found.stored_body == half.stored_body
    for name in ("flag", "sys_flag", "born_host", "store_host", "born_timestamp", "store_timestamp", "body_crc"):
        assert getattr(found, name) == getattr(half, name)


def test_a_topic_that_does_not_fit_into_the_body_of_a_check(tmp_path):
    with rocketc.open(tmp_path, mapped_file_size_commit_log=1 << 20) as store:
        for properties in ({"REAL_TOPIC": "x" * 256, "REAL_QID": "0"}, {"REAL_TOPIC": "x"}):
            half = HalfMessage(store.message(store.put(HALF, b"body", properties=properties).phy_offset))
            with pytest.raises(BadRequestError, match="does not fit into its check"):
                half.check_body(0, 0, b"")
