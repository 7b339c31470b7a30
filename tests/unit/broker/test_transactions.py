"""The check service in a broker, on virtual time: what producers are asked, what is stored, and where it continues."""

import asyncio
import contextlib
import json

import pytest
from simulation import virtual
from simulation.brokers import scene

import rocketc
from rocketc.broker import transactions
from rocketc.broker.half_messages import HalfMessage
from rocketc.format.ids import decode_offset_id
from rocketc.tables.fastjson import parse

HALF, OP, GIVEN_UP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
GROUP, TIMES = "CID_RMQ_SYS_TRANS", "TRANSACTION_CHECK_TIMES"
COMMIT, ROLLBACK = 8, 12
FAST = {"transaction_check_interval": 1000, "transaction_check_max": 3}


@pytest.fixture
def play(tmp_path):
    """Run main(scene, client); the topic `orders` has four queues."""

    def run(main, **how):
        async def whole():
            async with scene(tmp_path, **{**FAST, **how}) as stage:
                client = stage.client()
                await client.send(body=b"first", queueId=9999)  # creates the topic; the message is refused
                await main(stage, client)

        virtual.run(whole())

    return run


async def producer(stage, name="c1", group="shop"):
    """A client that is in a producer group."""
    client = stage.client()
    beat = {"clientID": name, "producerDataSet": [{"groupName": group}], "consumerDataSet": []}
    assert (await client.call(34, json.dumps(beat).encode())).code == 0
    return client


async def prepared(client, key="K1", extra="", group="shop", **how):
    text = f"UNIQ_KEY\1{key}\2TRAN_MSG\1true\2PGROUP\1{group}\2TAGS\1web\2{extra}"
    answer = await client.send(properties=text, **{"queueId": 2, "bornTimestamp": client._scene.now(), **how})
    assert answer.code == 0, answer.remark
    return answer


async def answered(client, check, kind):
    """End a transaction as the answer to a check."""
    fields = {name: check.fields[name] for name in ("tranStateTableOffset", "commitLogOffset", "msgId")}
    answer = await client.call(
        37, producerGroup="shop", commitOrRollback=kind, fromTransactionCheck=True,
        **{name: value if name == "msgId" else int(value) for name, value in fields.items()},
    )  # fmt: skip
    assert answer.code == 0, answer.remark


async def stored(stage, topic, queue_id=0):
    await stage.settle()
    return stage.store.get(topic, queue_id, 0, 200, decompress=False).messages


def keys(client):
    return [check.fields["msgId"] for check in client.pushed]


def offsets(stage, queue_id=0):
    return [stage.broker.offsets.query(GROUP, topic, queue_id) for topic in (HALF, OP)]


# asking


def test_the_check_request(play):
    async def main(stage, client):
        asked = await producer(stage)
        sent = await prepared(client, flag=7, sysFlag=1)
        await asyncio.sleep(5.9)
        assert asked.pushed == []
        await asyncio.sleep(3)
        [check] = asked.pushed
        first, copy = await stored(stage, HALF)
        assert (check.code, check.is_oneway, check.fields) == (39, True, {
            "topic": HALF, "tranStateTableOffset": "1", "commitLogOffset": str(copy.phy_offset), "msgId": "K1",
            "transactionId": "K1", "offsetMsgId": copy.msg_id, "bname": "broker-a",
        })  # fmt: skip
        [body] = rocketc.decode(check.body, None, decompress=False)
        assert (body.topic, body.queue_id, body.queue_offset, body.phy_offset) == ("orders", 2, 1, copy.phy_offset)
        assert body.properties == {**first.properties, TIMES: "1", "WAIT": "false"}
        assert copy.properties == {**first.properties, TIMES: "1"}
        for name in ("stored_body", "flag", "sys_flag", "born_timestamp", "born_host", "reconsume_times"):
            assert getattr(body, name) == getattr(copy, name) == getattr(first, name)
        assert first.phy_offset == decode_offset_id(sent.fields["msgId"]).phy_offset
        assert await stored(stage, "orders", 2) == []

    play(main, delay=(0.0, 0.0), transaction_check_interval=6500)


@pytest.mark.parametrize(("kind", "count"), [(COMMIT, 1), (ROLLBACK, 0)])
def test_unknown_then_an_answer(play, kind, count):
    async def main(stage, client):
        asked = await producer(stage)
        await prepared(client)
        await asyncio.sleep(8)
        await answered(asked, asked.pushed[-1], kind)
        await asyncio.sleep(60)
        found = await stored(stage, "orders", 2)
        assert len(asked.pushed) <= 2 and len(found) == count
        assert [message.properties[TIMES] for message in found] == [str(len(asked.pushed))] * count
        assert await stored(stage, GIVEN_UP) == []
        assert offsets(stage) == [stage.store.max_offset(topic) for topic in (HALF, OP)]

    play(main)


def test_an_ended_transaction_is_never_asked_for(play):
    async def main(stage, client):
        asked = await producer(stage)
        for n in range(50):
            answer = await prepared(client, f"K{n}")
            place = decode_offset_id(answer.fields["msgId"]).phy_offset
            half = {"producerGroup": "shop", "tranStateTableOffset": int(answer.fields["queueOffset"])}
            await client.call(37, **half, commitLogOffset=place, commitOrRollback=(COMMIT, ROLLBACK)[n % 2])
            await asyncio.sleep(0.3)
        await asyncio.sleep(60)
        assert asked.pushed == [] and len(await stored(stage, "orders", 2)) == 25
        assert offsets(stage) == [50, stage.store.max_offset(OP)]

    play(main)


def test_unknown_for_ever(play):
    async def main(stage, client):
        asked = await producer(stage)
        await prepared(client, flag=7)
        await asyncio.sleep(30)
        assert keys(asked) == ["K1"] * 3
        [message] = await stored(stage, GIVEN_UP)
        assert message.properties[TIMES] == "3" and message.properties["REAL_TOPIC"] == "orders"
        assert message.flag == 7 and message.body == b"body"
        topic = stage.broker.topics.get(GIVEN_UP)
        assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)
        assert [half.properties.get(TIMES) for half in await stored(stage, HALF)] == [None, "1", "2", "3"]
        assert offsets(stage) == [4, 0] and stage.broker.transactions.given_up == 1
        await answered(asked, asked.pushed[-1], COMMIT)  # also later
        assert len(await stored(stage, "orders", 2)) == 1

    play(main)


def test_a_resumed_message_is_asked_for_again(play):
    async def main(stage, client):
        asked = await producer(stage)
        await prepared(client)
        await asyncio.sleep(30)
        [message] = await stored(stage, GIVEN_UP)
        assert (await client.call(323, topic=GIVEN_UP, msgId=message.msg_id)).code == 0
        await asyncio.sleep(3)
        assert len(asked.pushed) >= 4
        await answered(asked, asked.pushed[-1], COMMIT)
        assert len(await stored(stage, "orders", 2)) == 1

    play(main)


def test_without_a_producer_no_client_is_asked(play):
    async def main(stage, client):
        other = await producer(stage, group="other")
        await prepared(client)
        await asyncio.sleep(8)
        assert stage.broker.transactions.unasked >= 1 and other.pushed == []
        late = await producer(stage, "c2")
        await asyncio.sleep(2)
        assert keys(late)[:1] == ["K1"]

    play(main, transaction_check_max=100)


def test_a_dead_producer_and_another_one_of_its_group(play):
    async def main(stage, client):
        one, two = await producer(stage), await producer(stage, "c2")
        await prepared(one)
        one.transport.abort()
        await asyncio.sleep(8)
        assert one.pushed == [] and keys(two)[:1] == ["K1"]
        await answered(two, two.pushed[-1], COMMIT)
        assert len(await stored(stage, "orders", 2)) == 1

    play(main)


def test_the_producers_of_a_group_take_turns(play):
    async def main(stage, client):
        both = [await producer(stage), await producer(stage, "c2")]
        for n in range(10):
            await prepared(client, f"K{n}")
        await asyncio.sleep(7.5)
        assert [len(one.pushed) for one in both] == [5, 5]

    play(main, transaction_check_interval=7000)


def test_a_producer_that_does_not_read_is_not_asked(play, monkeypatch):
    async def main(stage, client):
        asked = await producer(stage)
        monkeypatch.setattr(stage.broker.transactions, "_may_send", lambda connection: False)
        await prepared(client)
        await asyncio.sleep(9)
        assert asked.pushed == [] and stage.broker.transactions.unasked > 0
        [connection] = [one for one in stage.broker.server.connections if stage.broker.producers.groups_of(one)]
        assert connection.is_read
        connection.pause_writing()
        assert not connection.is_read
        connection.resume_writing()
        assert connection.is_read

    play(main)


def test_a_half_message_without_a_place_is_not_asked_for(play):
    async def main(stage, client):
        asked = await producer(stage)
        stage.store.put(HALF, b"poison", properties={"PGROUP": "shop"})
        stage.store.put(HALF, b"poison")
        await prepared(client)
        await asyncio.sleep(30)
        assert keys(asked) == ["K1"] * 3 and len(await stored(stage, GIVEN_UP)) == 3

    play(main)


# where it continues


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_a_restart(tmp_path, flush):
    async def first():
        async with scene(tmp_path, store={"flush": flush}, **FAST) as stage:
            client = stage.client()
            asked = await producer(stage)
            await prepared(client)
            await prepared(client, "K2")
            await asyncio.sleep(8)
            await answered(asked, [check for check in asked.pushed if check.fields["msgId"] == "K1"][-1], COMMIT)
            await asyncio.sleep(1)

    async def second():
        async with scene(tmp_path, store={"flush": flush}, transaction_check_interval=1000) as stage:
            asked = await producer(stage)
            await asyncio.sleep(20)  # the time begins at EPOCH again
            assert set(keys(asked)) == {"K2"}
            await answered(asked, asked.pushed[-1], ROLLBACK)
            assert len(await stored(stage, "orders", 2)) == 1

    virtual.run(first())
    table = parse((tmp_path / "config" / "consumerOffset.json").read_bytes())["offsetTable"]
    assert table[f"{HALF}@{GROUP}"][0] >= 2
    virtual.run(second())


def test_marks_of_4x_are_read(play):
    async def main(stage, client):
        asked = await producer(stage)
        for n in range(4):
            await prepared(client, f"K{n}")
        for body in (b"0", b"1,3,"):
            stage.store.put(OP, body, tags="d")
        await asyncio.sleep(9)
        assert set(keys(asked)) == {"K2"}

    play(main)


def test_the_offsets_of_another_broker(play):
    """The first two half messages are done there, and so is the first op message."""

    async def main(stage, client):
        asked = await producer(stage)
        for n in range(4):
            await prepared(client, f"K{n}")
        stage.store.put(OP, b"3,", tags="d")
        stage.broker.offsets.commit(GROUP, HALF, 0, 2)
        stage.broker.offsets.commit(GROUP, OP, 0, 0)
        await asyncio.sleep(9)
        assert set(keys(asked)) == {"K2"}

    play(main)


@pytest.mark.parametrize(("half", "op"), [(-5, 0), (99, 0), (0, 99), (99, 99)])
def test_wrong_offsets(play, half, op):
    async def main(stage, client):
        asked = await producer(stage)
        stage.broker.offsets.commit(GROUP, HALF, 0, half)
        stage.broker.offsets.commit(GROUP, OP, 0, op)
        await asyncio.sleep(3)
        await prepared(client)
        await asyncio.sleep(10)
        assert keys(asked)[:1] == ["K1"]

    play(main)


def test_all_half_queues_are_checked(play):
    async def main(stage, client):
        asked = await producer(stage)
        properties = {"REAL_TOPIC": "orders", "REAL_QID": "1", "PGROUP": "shop", "UNIQ_KEY": "other queue"}
        stage.broker.topics.table.add(stage.broker.topics.table[HALF].__class__(HALF, 2, 2))
        stage.store.put(HALF, b"body", queue_id=1, properties=properties)
        await asyncio.sleep(9)
        assert set(keys(asked)) == {"other queue"}
        await answered(asked, asked.pushed[-1], COMMIT)
        await asyncio.sleep(9)
        assert [op.queue_id for op in await stored(stage, OP, 1)] == [1] and offsets(stage, 1)[1] == 1
        assert len(await stored(stage, "orders", 1)) == 1

    play(main)


# trouble


def test_a_damaged_half_message_is_skipped(play, tmp_path):
    async def main(stage, client):
        asked = await producer(stage)
        await prepared(client, body=b"x" * 50)
        await prepared(client, "K2")
        stage.store.flush()
        log = next((tmp_path / "commitlog").iterdir())
        data = bytearray(log.read_bytes())
        at = data.index(b"x" * 50) - 84
        data[at : at + 4] = b"\0\0\0\1"  # its size
        log.write_bytes(data)
        await asyncio.sleep(9)
        assert set(keys(asked)) == {"K2"}

    play(main)


def test_half_messages_whose_properties_leave_no_room(play):
    """The check counts in a property: a half message without room for that must not stop the check of others."""

    async def main(stage, client):
        asked = await producer(stage)
        await prepared(client, "K0", "pad\1" + "x" * 32_500 + "\2")
        [half] = await stored(stage, HALF)
        more = 32_767 - len(HalfMessage(half).property_string)
        for n in (0, 1, 30):
            await prepared(client, f"L{n}", "pad\1" + "x" * (32_500 + more - n) + "\2")
            await prepared(client, f"M{n}", f"CHECK_IMMUNITY_TIME_IN_SECONDS\0019\2pad\1{'x' * (32_463 + more - n)}\2")
        await prepared(client, "last")
        await asyncio.sleep(40)
        assert {key: keys(asked).count(key) for key in keys(asked)} == dict.fromkeys(
            ("K0", "L0", "L1", "L30", "last"), 3
        )
        given_up = {message.properties["UNIQ_KEY"]: message for message in await stored(stage, GIVEN_UP)}
        assert set(given_up) == {"M0", "M1", "M30", *keys(asked)}
        assert {one.properties[TIMES] for one in given_up.values()} == {"3"}
        assert {len(one.properties.get("pad", "")) > 32_000 for key, one in given_up.items() if key != "last"} == {True}

    play(main)


def test_marks_of_half_messages_that_do_not_exist(play):
    """They would take 50 MB of pages, and keep the check at the op message that has them."""

    async def main(stage, client):
        asked = await producer(stage)
        body = b"".join(b"%d," % (n << 13) for n in range(1, 50_000)) + b"999999999999999999,"
        stage.store.put(OP, body, queue_id=0, properties={"TAGS": "d"})
        await prepared(client)
        await stage.settle()
        read = await stage.broker.transactions._read_ops(0, 0)
        assert [op.halves for op in read.found] == [[]]
        await asyncio.sleep(15)
        assert "K1" in keys(asked) and offsets(stage)[1] == 1

    play(main)


def test_a_damaged_op_message_does_not_hide_others(play, tmp_path):
    async def main(stage, client):
        asked = await producer(stage)
        for n in range(3):
            answer = await prepared(client, f"K{n}")
            place = decode_offset_id(answer.fields["msgId"]).phy_offset
            half = {"producerGroup": "shop", "tranStateTableOffset": int(answer.fields["queueOffset"])}
            await client.call(37, **half, commitLogOffset=place, commitOrRollback=COMMIT)
            stage.broker.op_marks.flush()
        stage.store.flush()
        await stage.settle()
        log = next((tmp_path / "commitlog").iterdir())
        data = bytearray(log.read_bytes())
        at = data.index(b"1," + bytes([len(OP)]) + OP.encode())
        data[at + 2] = 1  # the size of its topic
        log.write_bytes(data)
        stage.broker.op_marks.ended.forget(0, 8192)  # as a restart does
        await asyncio.sleep(20)
        assert set(keys(asked)) == {"K1"}

    play(main)


def test_damaged_half_messages_that_were_read_ahead(play, tmp_path):
    async def main(stage, client):
        asked = await producer(stage)
        for n in range(9):
            await prepared(client, f"K{n}", body=b"body%d" % n * 20)
        stage.store.flush()
        log = next((tmp_path / "commitlog").iterdir())
        data = bytearray(log.read_bytes())
        for n in (4, 5, 7):
            at = data.index(b"body%d" % n * 20)
            data[at] = ord("x")
        log.write_bytes(data)
        await asyncio.sleep(11.5)
        assert set(keys(asked)) == {f"K{n}" for n in (0, 1, 2, 3, 6, 8)}

    play(main)


def test_a_full_disk(play):
    async def main(stage, client):
        asked = await producer(stage)
        await prepared(client)
        stage.store._set_full(True)
        await asyncio.sleep(70)
        assert asked.pushed == [] and len(await stored(stage, HALF)) == 1
        stage.store._set_full(False)
        await asyncio.sleep(10)
        assert "K1" in keys(asked)

    play(main)


def test_an_error_is_logged_once(play, monkeypatch, caplog):
    async def main(stage, client):
        monkeypatch.setattr(stage.broker.transactions, "_offset", lambda *given: 1 / 0)
        await asyncio.sleep(10)
        found = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert found == ["the check of transactions failed: division by zero; it is tried again"]

    play(main)


def test_the_topic_of_given_up_messages_is_being_deleted(play):
    async def main(stage, client):
        await prepared(client, extra=f"{TIMES}\0013\2")
        stage.broker.topics.hide([GIVEN_UP])
        await asyncio.sleep(10)
        assert await stored(stage, GIVEN_UP) == [] and stage.broker.transactions.given_up == 0
        stage.broker.topics.unhide([GIVEN_UP])
        await asyncio.sleep(10)
        assert len(await stored(stage, GIVEN_UP)) == 1

    play(main)


def test_only_the_first_message_that_is_given_up_is_a_warning(play, caplog):
    async def main(stage, client):
        for n in range(5):
            await prepared(client, f"K{n}", extra=f"{TIMES}\0013\2")
        await asyncio.sleep(3)
        assert len(await stored(stage, GIVEN_UP)) == 5
        found = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert found == [f"transaction K0 of group shop: it is given up after 3 checks; the message is in {GIVEN_UP}"]

    play(main)


def test_a_slave_does_not_ask(play):
    async def main(stage, client):
        asked = await producer(stage)
        await prepared(client)
        await asyncio.sleep(20)
        assert asked.pushed == []

    play(main, broker_id=1)


def test_settings_change_while_it_runs(play):
    async def main(stage, client):
        asked = await producer(stage)
        await prepared(client)
        await asyncio.sleep(1.5)
        stage.broker.config.transaction_time_out = 100
        await asyncio.sleep(1.0)
        assert "K1" in keys(asked)

    play(main)


def test_transactions_are_counted(play, tmp_path):
    async def main(stage, client):
        asked = await producer(stage)
        for key in ("K1", "K2", "K3", "K4"):
            await prepared(client, key)
        assert stage.broker.transaction_stats.open.items() == [("orders", 4)]
        await asyncio.sleep(8)
        latest = {check.fields["msgId"]: check for check in asked.pushed}
        await answered(asked, latest["K1"], COMMIT)
        await answered(asked, latest["K2"], ROLLBACK)
        assert stage.broker.transaction_stats.open.get("orders") == 2
        await asyncio.sleep(60)  # the others are given up
        assert stage.broker.transaction_stats.open.get("orders") == 0
        table = parse((tmp_path / "config" / "transactionMetrics").read_bytes())
        assert table["transactionCount"]["orders"]["count"] == 0

    play(main)


# many half messages


def test_many_pending_halves_do_not_stop_the_broker(play, monkeypatch):
    """They are read together; between two slices of a pass, other requests are answered."""
    monkeypatch.setattr(transactions, "COPIES", 100)

    async def main(stage, client):
        properties = {"REAL_TOPIC": "orders", "REAL_QID": "1", "PGROUP": "shop", "TRAN_MSG": "true"}
        stage.store.put_many(HALF, [b"body"] * 1000, properties=properties)
        await stage.settle()
        reads, get_raw = [], stage.store.get_raw
        service = stage.broker.transactions

        class Counting:
            def __getattr__(self, name):
                return getattr(stage.store, name)

            def get_raw(self, topic, *given, **how):
                reads.append(topic)
                return get_raw(topic, *given, **how)

        service._store = Counting()
        await asyncio.sleep(6)
        turns = 0
        checking = asyncio.ensure_future(service.check())
        while not checking.done():
            turns += 1
            await asyncio.sleep(0)
        assert stage.store.max_offset(HALF) >= 2000 or (await stored(stage, HALF)) is not None
        assert offsets(stage)[0] == 1000 and service.unasked == 1000
        assert reads.count(HALF) < 50 and turns >= 60

    play(main, transaction_check_interval=1_000_000)


def test_the_end_of_the_broker_in_the_middle_of_a_pass(tmp_path):
    async def main():
        async with scene(tmp_path, transaction_check_interval=1_000_000) as stage:
            properties = {"REAL_TOPIC": "orders", "REAL_QID": "1", "PGROUP": "shop", "TRAN_MSG": "true"}
            stage.store.put_many(HALF, [b"body"] * 200, properties=properties)
            await stage.settle()
            await asyncio.sleep(7)
            checking = asyncio.ensure_future(stage.broker.transactions.check())
            for _ in range(5):
                await asyncio.sleep(0)
            checking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await checking
            half = offsets(stage)[0]
            await stage.settle()
            assert 0 < half < 200 and stage.store.max_offset(HALF) == 200 + half
            assert stage.store.flushed_phy_offset == stage.store.max_phy_offset

    virtual.run(main())


def test_a_canceled_check_ends_also_if_the_flush_fails(tmp_path, monkeypatch):
    """The end of the broker waits for it: an error in its last write must not take the place of the cancellation."""

    async def main():
        async with scene(tmp_path, **FAST) as stage:
            client = stage.client()
            await producer(stage)
            for number in range(200):
                await prepared(client, f"K{number}")
            await asyncio.sleep(7)
            checking = asyncio.ensure_future(stage.broker.transactions.check())
            for _ in range(5):
                await asyncio.sleep(0)
            with monkeypatch.context() as patch:
                patch.setattr(stage.broker.transactions, "_in_thread", failing)
                checking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await checking

    async def failing(work):
        raise rocketc.ClosedError("the store is closed")

    virtual.run(main())


@pytest.mark.parametrize("refuses", [True, False])
@pytest.mark.parametrize("registers", [True, False])
def test_producers_are_noted_unless_transactions_are_refused(play, registers, refuses):
    """As in RocketMQ, enableRegisterProducer counts only with rejectTransactionMessage."""

    async def main(stage, client):
        await producer(stage)
        assert stage.broker.producers.groups() == ([] if refuses and not registers else ["shop"])
        stage.broker.config.reject_transaction_message = False
        await producer(stage)
        assert stage.broker.producers.groups() == ["shop"]

    play(main, enable_register_producer=registers, reject_transaction_message=refuses)
