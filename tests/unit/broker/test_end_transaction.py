"""END_TRANSACTION and RESUME_CHECK_HALF_MESSAGE: every rule, and the records that they make."""

import asyncio
import types

import pytest
from simulation import virtual
from simulation.brokers import EPOCH, HOST, scene

import rocketc
from rocketc.broker import end_transaction
from rocketc.format.ids import OffsetId, decode_offset_id
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command

HALF, OP, GIVEN_UP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
SENT = "TRAN_MSG\1true\2PGROUP\1shop\2TAGS\1web\2WAIT\1true\2"
COMMIT, ROLLBACK = 8, 12


@pytest.fixture(params=["compiled", "processor"])
def play(tmp_path, request):
    """Run main(scene, client), with both ways to end transactions; the topic `orders` has four queues."""

    def run(main, **how):
        async def whole():
            async with scene(tmp_path, **how) as stage:
                if request.param == "processor":
                    stage.broker.pulls.path.ends = None
                client = stage.client()
                await client.send(body=b"first", queueId=9999)  # creates the topic; the message is refused
                await main(stage, client)

        virtual.run(whole())

    return run


async def prepared(client, extra="", key=None, group="shop", **how):
    """Send a half message; return the fields of its end. The first key is K1."""
    client.halves = getattr(client, "halves", 0) + 1
    key = key or f"K{client.halves}"
    properties = f"UNIQ_KEY\1{key}\2{SENT.replace('shop', group)}{extra}"
    answer = await client.send(properties=properties, **{"queueId": 2, **how})
    assert answer.code == 0, answer.remark
    return {
        "producerGroup": group, "tranStateTableOffset": int(answer.fields["queueOffset"]), "msgId": key,
        "commitLogOffset": decode_offset_id(answer.fields["msgId"]).phy_offset,
    }  # fmt: skip


async def end(client, half, kind, **changed):
    return await client.call(37, **{**half, "commitOrRollback": kind, **changed})


async def stored(stage, topic, queue_id=0):
    await stage.settle()
    return stage.store.get(topic, queue_id, 0, 100, decompress=False).messages


async def marks(stage):
    """The half messages that are marked as ended, in the order of their marks."""
    await asyncio.sleep(3.1)
    return [int(one) for op in await stored(stage, OP) for one in op.body.decode().split(",") if one]


# commit and rollback


def test_the_committed_record(play):
    async def main(stage, client):
        half = await prepared(
            client, "KEYS\1a b\2own\1x\2", flag=7, sysFlag=1, reconsumeTimes=2, bornTimestamp=EPOCH - 5
        )
        answer = await end(client, half, COMMIT)
        assert (answer.code, answer.remark, answer.fields) == (0, None, {})
        [before], [after] = await stored(stage, HALF), await stored(stage, "orders", 2)
        assert after.properties == before.properties and after.properties["TRAN_MSG"] == "true"
        assert after.properties["REAL_TOPIC"] == "orders" and after.properties["REAL_QID"] == "2"
        assert (after.sys_flag, after.prepared_transaction_offset) == (1 | 8, before.phy_offset)
        for name in ("stored_body", "flag", "born_timestamp", "born_host", "store_host", "reconsume_times", "body_crc"):
            assert getattr(after, name) == getattr(before, name)
        assert await marks(stage) == [0]
        [op] = await stored(stage, OP)
        assert op.properties == {"WAIT": "true", "TAGS": "d"} and op.body == b"0,"
        assert op.born_host == op.store_host == "127.0.0.1:10911" and (op.flag, op.sys_flag) == (0, 0)

    play(main)


@pytest.mark.parametrize("crc", [False, True])
@pytest.mark.parametrize("topic", ["orders", "o" * 127])
def test_the_property_string_is_that_of_the_half_message(play, topic, crc):
    async def main(stage, client):
        half = await prepared(client, "own\1\2other\1a\1b\2empty\1\2", topic=topic)
        await end(client, half, COMMIT)
        [before], [after] = await stored(stage, HALF), await stored(stage, topic, 2)
        texts = [one.record[one.record.index(b"UNIQ_KEY\1") :].partition(b"__CRC32#")[0] for one in (before, after)]
        assert texts[0] == texts[1] and after.record.count(b"__CRC32#") == crc

    play(main, store={"enabled_append_prop_crc": crc})


def test_the_committed_record_keeps_the_hosts(play):
    """Also if another broker has stored the half message."""

    async def main(stage, client):
        properties = {"REAL_TOPIC": "orders", "REAL_QID": "1", "PGROUP": "shop", "TRAN_MSG": "true"}
        hosts = {"born_host": ("10.0.0.8", 4), "store_host": ("2001:db8::9", 5)}
        put = stage.store.put(HALF, b"body", properties=properties, **hosts)
        half = {"producerGroup": "shop", "tranStateTableOffset": 0, "commitLogOffset": put.phy_offset}
        assert (await end(client, half, COMMIT)).code == 0
        [message] = await stored(stage, "orders", 1)
        assert (message.born_host, message.store_host) == ("10.0.0.8:4", "[2001:db8::9]:5")
        assert message.sys_flag == 8 | 32

    play(main)


@pytest.mark.parametrize(("queue_id", "queue_offset"), [(0, 0), (0, 1), (7, 0), (1 << 30, 5), (0, 1 << 60)])
def test_a_record_in_the_body_of_a_message_is_not_a_half_message(play, queue_id, queue_offset):
    async def main(stage, client):
        half = await prepared(client)
        at = half["commitLogOffset"]
        for n in range(2):  # the first one shows where the body of the second one begins
            body = rocketc.encode(
                HALF, b"forged", queue_id=queue_id, queue_offset=queue_offset, phy_offset=at, born_timestamp=EPOCH,
                properties={"PGROUP": "shop", "REAL_TOPIC": OP, "REAL_QID": "5"},
            )  # fmt: skip
            answer = await client.send(body=body)
            begin = decode_offset_id(answer.fields["msgId"]).phy_offset + 88
            await stage.settle()
            [message] = stage.store.get("orders", 0, n, 1).messages
            at = at if n else begin + len(message.record)
        assert stage.store.message(at).body == b"forged"
        answer = await end(client, half | {"commitLogOffset": at, "tranStateTableOffset": queue_offset}, COMMIT)
        assert (answer.code, answer.remark) == (1, "Find prepared transaction message failed")
        assert await marks(stage) == [] and await stored(stage, OP, 5) == []

    play(main)


def test_a_consumer_gets_the_committed_message(play):
    async def main(stage, client):
        half = await prepared(client)
        pull = asyncio.ensure_future(client.pull(queue_id=2, subscription="web", wait=20_000))
        await asyncio.sleep(1)
        assert not pull.done()
        await end(client, half, COMMIT)
        answer = await pull
        assert answer.code == 0 and rocketc.Message.of(answer.body).properties["__transactionId__"] == "K1"

    play(main)


def test_rollback_only_marks(play):
    async def main(stage, client):
        half = await prepared(client)
        answer = await end(client, half, ROLLBACK)
        assert (answer.code, answer.fields) == (0, {})
        assert await stored(stage, "orders", 2) == [] and await marks(stage) == [0]

    play(main)


DECIDED = "transaction K1 of group shop is ended already: the first decision holds, and this one is ignored"


@pytest.mark.parametrize("first", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("is_checked", [False, True])
def test_the_first_decision_holds(play, first, is_checked):
    async def main(stage, client):
        half = await prepared(client)
        assert (await end(client, half, first)).code == 0
        for _ in range(2):  # the mark waits; it is stored
            for kind in (COMMIT, ROLLBACK):
                answer = await end(client, half, kind, fromTransactionCheck=is_checked)
                assert (answer.code, answer.remark) == (Code.SYSTEM_ERROR, DECIDED)
            assert await marks(stage) == [0]
        assert len(await stored(stage, "orders", 2)) == (first == COMMIT)
        [counts] = [one for one in stage.broker.transaction_stats.all() if one.topic == "orders"]
        assert counts.committed + counts.rolled_back == 1
        assert stage.broker.transaction_stats.open.get("orders") == 0

    play(main)


@pytest.mark.parametrize("first", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("which", [0, 1])
def test_a_send_that_is_tried_again_is_one_transaction(play, first, which):
    async def main(stage, client):
        halves = [await prepared(client, key="K1") for _ in range(2)]
        other = await prepared(client, key="K1", group="other")
        assert (await end(client, halves[which], first)).code == 0
        for half in halves:
            answer = await end(client, half, COMMIT)
            assert (answer.code, answer.remark) == (Code.SYSTEM_ERROR, DECIDED)
        assert len(await stored(stage, "orders", 2)) == (first == COMMIT) and sorted(await marks(stage)) == [0, 1]
        assert stage.broker.transaction_stats.open.get("orders") == 1
        assert (await end(client, other, COMMIT)).code == 0  # a transaction of another group
        assert stage.broker.transaction_stats.open.get("orders") == 0

    play(main)


@pytest.mark.parametrize("which", [0, 1])
def test_halves_that_come_after_the_decision_are_of_the_same_transaction(play, which):
    async def main(stage, client):
        first = await prepared(client, key="K1")
        assert (await end(client, first, ROLLBACK)).code == 0
        await asyncio.sleep(30.0 * which)
        assert (await end(client, await prepared(client, key="K1"), COMMIT)).code == 1
        assert await stored(stage, "orders", 2) == []

    play(main)


def test_half_messages_without_a_key_are_transactions_of_their_own(play):
    async def main(stage, client):
        for _ in range(2):
            answer = await client.send(properties=SENT, queueId=2)
            half = {
                "producerGroup": "shop", "tranStateTableOffset": int(answer.fields["queueOffset"]), "msgId": "",
                "commitLogOffset": decode_offset_id(answer.fields["msgId"]).phy_offset,
            }  # fmt: skip
            assert [(await end(client, half, COMMIT)).code for _ in range(2)] == [0, 1]
        assert len(await stored(stage, "orders", 2)) == 2

    play(main)


@pytest.mark.parametrize("first", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("is_marked", [True, False])
@pytest.mark.parametrize("is_again", [True, False])
def test_the_first_decision_holds_after_a_restart(tmp_path, monkeypatch, first, is_marked, is_again):
    """A kill loses marks. Then a commit is known by its message, and a rollback is not known."""
    halves, notes = [], []

    async def decide():
        async with scene(tmp_path) as stage:
            client = stage.client()
            await client.send(body=b"first", queueId=9999)
            for _ in range(1 + is_again):
                halves.append(await prepared(client, key="K1"))
            assert (await end(client, halves[0], first)).code == 0
            if not is_marked:
                monkeypatch.setattr(stage.broker.op_marks, "_put", lambda queue_id, offsets: notes.append(offsets))

    async def decide_again():
        async with scene(tmp_path) as stage:
            client = stage.client()
            answers = [await end(client, half, COMMIT) for half in reversed(halves)]
            is_known = is_marked or first == COMMIT
            assert [answer.code for answer in answers] == [int(is_known)] + [1] * is_again
            assert answers[-1].remark == DECIDED or not (is_known or is_again)
            assert len(await stored(stage, "orders", 2)) == (first == COMMIT or not is_known)
            if not is_marked:
                assert sorted(await marks(stage)) == list(range(1 + is_again))

    virtual.run(decide())
    virtual.run(decide_again())


def test_marks_of_long_ago_are_found(tmp_path, monkeypatch):
    """The op queue is read from the half message on, once."""
    monkeypatch.setattr("rocketc.broker.decisions.OPS_OF_A_READ", 3)
    halves, reads = [], []

    async def decide():
        async with scene(tmp_path, transaction_op_msg_max_size=1) as stage:
            client = stage.client()
            await client.send(body=b"first", queueId=9999)
            for n in range(20):
                halves.append(await prepared(client))
                await end(client, halves[-1], ROLLBACK if n % 5 else COMMIT)

    async def decide_again():
        async with scene(tmp_path) as stage:
            client, read = stage.client(), stage.broker.decisions._read
            monkeypatch.setattr(stage.broker.decisions, "_read", lambda *which: reads.append(which[1]) or read(*which))
            for n in (18, 3, 3, 10, 0):
                assert (await end(client, halves[n], COMMIT)).code == 1
            assert len(await stored(stage, "orders", 2)) == 4 and sorted(reads) == sorted(set(reads))

    virtual.run(decide())
    virtual.run(decide_again())


def test_an_index_that_can_not_be_read(play, monkeypatch, caplog):
    """Each half message is known by its own mark then."""

    async def main(stage, client):
        stage.broker.pulls.path.ends = None
        halves = [await prepared(client, key="K1") for _ in range(2)]

        def fail(*arguments, **named):
            raise OSError(5, "Input/output error")

        processor = stage.broker.decisions
        processor._store = types.SimpleNamespace(max_offset=stage.store.max_offset, query=fail)
        codes = [(await end(client, half, ROLLBACK)).code for half in (*halves, *halves)]
        assert codes == [0, 0, 1, 1]
        warnings = [one for one in caplog.records if "the index can't be read" in one.getMessage()]
        assert [one.levelname for one in warnings] == ["WARNING"] + ["DEBUG"] * (len(warnings) - 1)

    play(main)


def test_an_end_is_mostly_oneway(play):
    async def main(stage, client):
        half = await prepared(client)
        values = {**half, "commitOrRollback": COMMIT}
        await client.channel.send(37, values, asyncio.get_running_loop().time() + 3, b"")
        assert len(await stored(stage, "orders", 2)) == 1 and client.channel.late_answers == 0

    play(main)


def test_it_works_on_the_vip_port(play):
    async def main(stage, client):
        half = await prepared(client)
        assert (await end(stage.client(vip=True), half, COMMIT)).code == 0

    play(main)


# what is refused


@pytest.mark.parametrize("kind", [COMMIT, ROLLBACK])
@pytest.mark.parametrize(
    ("changed", "remark"),
    [
        ({"producerGroup": "other"}, "The producer group wrong"),
        ({"producerGroup": ""}, "The producer group wrong"),
        ({"tranStateTableOffset": 1}, "The transaction state table offset wrong"),
        ({"tranStateTableOffset": -1}, "The transaction state table offset wrong"),
        ({"commitLogOffset": 1}, "Find prepared transaction message failed"),
        ({"commitLogOffset": -1}, "Find prepared transaction message failed"),
        ({"commitLogOffset": 2**63 - 1}, "Find prepared transaction message failed"),
        ({"commitLogOffset": -(2**63)}, "Find prepared transaction message failed"),
        ({"producerGroup": "other", "tranStateTableOffset": 1}, "The producer group wrong"),
    ],
)
def test_what_is_refused(play, kind, changed, remark):
    async def main(stage, client):
        half = await prepared(client)
        size = stage.store.max_phy_offset
        answer = await end(client, half, kind, **changed)
        assert (answer.code, answer.remark, answer.fields) == (Code.SYSTEM_ERROR, remark, {})
        await asyncio.sleep(3.1)
        assert stage.store.max_phy_offset == size

    play(main)


@pytest.mark.parametrize("kind", [1, 4, 7, 16, -1, 2**31 - 1])
def test_a_wrong_type(play, kind):
    async def main(stage, client):
        answer = await end(client, await prepared(client), kind)
        assert (answer.code, answer.remark) == (Code.SYSTEM_ERROR, "commitOrRollback field wrong")
        assert await marks(stage) == []

    play(main)


@pytest.mark.parametrize("checked", [False, True])
def test_an_unknown_state_is_not_answered(play, checked):
    async def main(stage, client):
        half = await prepared(client)
        with pytest.raises(rocketc.RocketcError):
            await client.call(37, **half, commitOrRollback=0, fromTransactionCheck=checked, timeout=3.0)
        assert await marks(stage) == []
        [connection] = stage.broker.server.connections
        assert connection.in_flight == 0

    play(main)


@pytest.mark.parametrize("missing", ["producerGroup", "tranStateTableOffset", "commitLogOffset", "commitOrRollback"])
def test_a_missing_field(play, missing):
    async def main(stage, client):
        fields = {**await prepared(client), "commitOrRollback": COMMIT}
        del fields[missing]
        answer = await client.call(37, **fields)
        assert answer.code == Code.SYSTEM_ERROR and missing in answer.remark

    play(main)


@pytest.mark.parametrize("field", ["tranStateTableOffset", "commitLogOffset", "commitOrRollback"])
@pytest.mark.parametrize("text", ["x", "", "9" * 30, "1.5", "\u0661"])
def test_a_field_that_is_not_a_number(play, field, text):
    async def main(stage, client):
        half = {**await prepared(client), "commitOrRollback": COMMIT}
        frame = Command(37, {**{name: str(value) for name, value in half.items()}, field: text}, b"", 99).encode()
        answers = []
        client.channel.received = lambda link, command: answers.append(command)
        client.transport.write(frame)
        await asyncio.sleep(1)
        assert [answer.code for answer in answers] == [Code.SYSTEM_ERROR]
        assert await marks(stage) == []

    play(main)


def test_other_records_can_not_be_committed(play):
    """A plain message, a committed one and an op mark, with the right fields for each."""

    async def main(stage, client):
        half = await prepared(client)
        await end(client, half, COMMIT)
        plain = decode_offset_id((await client.send(properties=SENT.replace("true", "false", 1))).fields["msgId"])
        [committed] = await stored(stage, "orders", 2)
        await asyncio.sleep(3.1)
        [op] = await stored(stage, OP)
        for phy_offset in (plain.phy_offset, committed.phy_offset, op.phy_offset):
            answer = await end(client, half, COMMIT, commitLogOffset=phy_offset, tranStateTableOffset=0)
            assert answer.remark == "Find prepared transaction message failed"
        assert len(await stored(stage, "orders", 2)) == 1

    play(main)


@pytest.mark.parametrize(
    "properties", [{}, {"PGROUP": "shop"}, {"PGROUP": "shop", "REAL_TOPIC": "orders", "REAL_QID": "x"}]
)
def test_a_half_message_without_a_place(play, properties):
    async def main(stage, client):
        put = stage.store.put(HALF, b"body", properties=properties)
        half = {"producerGroup": "shop", "tranStateTableOffset": 0, "commitLogOffset": put.phy_offset}
        assert (await end(client, half, COMMIT)).code == Code.SYSTEM_ERROR

    play(main)


def test_a_half_message_without_a_group(play):
    async def main(stage, client):
        put = stage.store.put(HALF, b"body", properties={"REAL_TOPIC": "orders", "REAL_QID": "0"})
        half = {"producerGroup": "shop", "tranStateTableOffset": 0, "commitLogOffset": put.phy_offset}
        assert (await end(client, half, COMMIT)).remark == "The producer group wrong"

    play(main)


def test_a_damaged_half_message(play, tmp_path):
    async def main(stage, client):
        half = await prepared(client, body=b"x" * 50)
        stage.store.flush()
        log = next((tmp_path / "commitlog").iterdir())
        data = bytearray(log.read_bytes())
        data[data.index(b"x" * 50)] = 0
        log.write_bytes(data)
        answer = await end(client, half, COMMIT)
        assert answer.remark == "Find prepared transaction message failed"

    play(main)


@pytest.mark.parametrize(
    ("text", "age", "is_late"),
    [
        ("5", 5900, False), ("5", 6100, True), ("7", 6900, False), ("7", 7100, True), ("x", 6100, True),
        ("", 6100, False),
        ("-1", 6100, True), ("100.5", 6100, True), ("1", 5900, False), ("60", 59_000, False), ("60", 60_100, True),
        ("60", 65_000, True), ("60", -5000, False),
    ],
)  # fmt: skip
def test_the_time_of_the_producer(play, text, age, is_late):
    async def main(stage, client):
        for kind in (COMMIT, ROLLBACK):
            extra = f"CHECK_IMMUNITY_TIME_IN_SECONDS\1{text}\2"
            half = await prepared(client, extra, bornTimestamp=stage.now() - age)
            assert (await end(client, half, kind)).code == (Code.ILLEGAL_OPERATION if is_late else 0)
            assert (await end(client, half, kind, fromTransactionCheck=True)).code == (0 if is_late else 1)
        assert len(await stored(stage, "orders", 2)) == 1

    play(main, delay=(0.0, 0.0))


def test_a_late_end_of_an_ordinary_half(play):
    async def main(stage, client):
        half = await prepared(client, bornTimestamp=EPOCH - 10**9)
        assert (await end(client, half, COMMIT)).code == 0

    play(main)


@pytest.mark.parametrize("kind", [0, COMMIT, ROLLBACK, 5])
def test_a_slave_does_not_end_transactions(play, kind):
    async def main(stage, client):
        half = await prepared(client)
        answer = await end(client, half, kind)
        assert answer.code == Code.SLAVE_NOT_AVAILABLE and "slave" in answer.remark
        assert await marks(stage) == []

    play(main, broker_id=1)


# what the store says


def test_a_topic_that_is_being_deleted(play):
    async def main(stage, client):
        half = await prepared(client)
        stage.broker.topics.hide(["orders"])
        assert (await end(client, half, COMMIT)).code == Code.TOPIC_NOT_EXIST
        assert (await end(client, await prepared(client), ROLLBACK)).code == 0
        stage.broker.topics.unhide(["orders"])
        assert (await end(client, half, COMMIT)).code == 0

    play(main)


@pytest.mark.parametrize("is_created", [True, False])
def test_a_topic_that_no_longer_exists(play, is_created):
    async def main(stage, client):
        put = stage.store.put(HALF, b"body", properties={"REAL_TOPIC": "gone", "REAL_QID": "1", "PGROUP": "shop"})
        half = {"producerGroup": "shop", "tranStateTableOffset": 0, "commitLogOffset": put.phy_offset}
        answer = await end(client, half, COMMIT)
        assert answer.code == (0 if is_created else Code.TOPIC_NOT_EXIST)
        assert await marks(stage) == [0] * is_created and stage.store.max_offset("gone", 1) == is_created
        assert ("gone" in stage.broker.topics.table) is is_created

    play(main, store={"auto_create_topic_enable": is_created})


def test_a_commit_that_the_store_refuses(play, monkeypatch):
    async def main(stage, client):
        half = await prepared(client)
        stage.store._set_full(True)
        answer = await end(client, half, COMMIT)
        assert answer.code == Code.SERVICE_NOT_AVAILABLE and await marks(stage) == []
        stage.store._set_full(False)
        assert (await end(client, half, COMMIT)).code == 0 and await marks(stage) == [0]

    play(main)


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_an_end_does_not_wait_for_a_flush(play, flush):
    async def main(stage, client):
        half = await prepared(client)
        assert (await end(client, half, COMMIT)).code == 0 and len(await stored(stage, "orders", 2)) == 1

    play(main, store={"flush": flush})


def test_a_half_message_with_a_delay(play):
    """Only another broker writes one: the committed message waits for its level, then comes without TRAN_MSG."""

    async def main(stage, client):
        properties = {"REAL_TOPIC": "orders", "REAL_QID": "1", "PGROUP": "shop", "TRAN_MSG": "true", "DELAY": "1"}
        put = stage.store.put(HALF, b"body", properties=properties)
        half = {"producerGroup": "shop", "tranStateTableOffset": 0, "commitLogOffset": put.phy_offset}
        assert (await end(client, half, COMMIT)).code == 0
        [waits] = await stored(stage, "SCHEDULE_TOPIC_XXXX", 0)
        del properties["TRAN_MSG"]
        assert waits.properties == properties and waits.sys_flag == 8
        assert waits.prepared_transaction_offset == put.phy_offset
        await asyncio.sleep(3)
        [message] = await stored(stage, "orders", 1)
        assert message.properties == properties and message.sys_flag == 8

    play(main)


def test_an_old_half_is_read_by_a_thread(play, monkeypatch):
    monkeypatch.setattr(end_transaction, "RECENT_BYTES", -1)

    async def main(stage, client):
        stage.broker.pulls.path.ends = None
        half = await prepared(client)
        loop = asyncio.get_running_loop()
        reading, waited = [], []
        processor = stage.broker.server._processors[37]
        processor._store = types.SimpleNamespace(
            background=True, max_phy_offset=stage.store.max_phy_offset, message=stage.store.message,
            max_offset=stage.store.max_offset, get_raw=stage.store.get_raw, wait_dispatched=waited.append,
        )  # fmt: skip
        monkeypatch.setattr(loop, "run_in_executor", lambda pool, work, *given: reading.append((work, given)))
        for kind, code in ((COMMIT, 0), (ROLLBACK, 1)):
            ending = asyncio.ensure_future(end(client, half, kind))
            await asyncio.sleep(1)
            assert not ending.done()
            work, given = reading.pop()
            work(*given)
            assert (await ending).code == code
        monkeypatch.setattr(processor, "_end", lambda call, message: 1 / 0)
        ending = asyncio.ensure_future(end(client, half, COMMIT))
        await asyncio.sleep(1)
        work, given = reading.pop()
        work(*given)
        assert (await ending).code == Code.SYSTEM_ERROR and waited == [end_transaction.DISPATCH_SECONDS] * 3
        assert len(await stored(stage, "orders", 2)) == 1

    play(main)


# op marks


def test_marks_are_stored_in_batches(play):
    async def main(stage, client):
        for n in range(5):
            await end(client, await prepared(client), (COMMIT, ROLLBACK)[n % 2])
        assert await stored(stage, OP) == []
        await asyncio.sleep(3)
        assert [op.body for op in await stored(stage, OP)] == [b"0,1,2,3,4,"]

    play(main)


def test_a_batch_has_a_size(play):
    async def main(stage, client):
        for _ in range(12):
            await end(client, await prepared(client), ROLLBACK)
        assert [op.body for op in await stored(stage, OP)] == [b"0,1,2,3,4,", b"5,6,7,8,9,"]
        assert await marks(stage) == list(range(12))

    play(main, transaction_op_msg_max_size=10, transaction_op_batch_interval=3000)


def test_the_end_of_the_broker_stores_the_marks(play, tmp_path):
    async def main(stage, client):
        await end(client, await prepared(client), ROLLBACK)

    play(main)
    with rocketc.open(tmp_path, read_only=True) as store:
        assert [op.body for op in store.get(OP, 0, 0).messages] == [b"0,"]


def test_marks_that_the_store_refuses_are_tried_again(play, caplog):
    async def main(stage, client):
        one, two = await prepared(client), await prepared(client)
        await end(client, one, ROLLBACK)
        stage.store._set_full(True)
        await asyncio.sleep(10)
        assert [r.getMessage()[:50] for r in caplog.records if r.levelname == "WARNING"] == [
            "the end of 1 transactions is not marked: [Errno 28"
        ]
        await end(client, two, ROLLBACK)
        assert len(stage.broker.op_marks) == 2 and stage.broker.op_marks.is_waiting(0, 1)
        stage.store._set_full(False)
        assert await marks(stage) == [0, 1] and len(stage.broker.op_marks) == 0

    play(main)


def test_a_mark_without_room_is_stored_at_once(play, monkeypatch):
    monkeypatch.setattr("rocketc.broker.op_marks.WAITING_MOST", 2)

    async def main(stage, client):
        for _ in range(3):
            await end(client, await prepared(client), ROLLBACK)
        assert [op.body for op in await stored(stage, OP)] == [b"2,"]
        stage.store._set_full(True)
        assert not stage.broker.op_marks.add(0, 9)
        stage.store._set_full(False)
        assert await marks(stage) == [2, 0, 1]

    play(main)


# a message that was given up


@pytest.mark.parametrize("topic", [HALF, GIVEN_UP])
def test_the_check_of_a_message_is_resumed(play, topic):
    async def main(stage, client):
        properties = {"REAL_TOPIC": "orders", "REAL_QID": "1", "PGROUP": "shop", "TRANSACTION_CHECK_TIMES": "15"}
        put = stage.store.put(topic, b"body", properties=properties, flag=7, born_timestamp=5)
        answer = await client.call(323, topic="any", msgId=OffsetId(*HOST, put.phy_offset).encode())
        assert (answer.code, answer.fields) == (0, {})
        half = (await stored(stage, HALF))[-1]
        assert half.properties == {**properties, "TRANSACTION_CHECK_TIMES": "0"} and half.phy_offset != put.phy_offset
        assert (half.flag, half.born_timestamp, half.body) == (7, 5, b"body")

    play(main)


def test_what_can_not_be_resumed(play):
    async def main(stage, client):
        plain = (await client.send()).fields["msgId"]
        without = stage.store.put(HALF, b"body").phy_offset
        for msg_id in ("", "x", "00", "0" * 32, "F" * 32, plain, OffsetId(*HOST, without).encode()):
            answer = await client.call(323, msgId=msg_id)
            assert answer.code == Code.SYSTEM_ERROR
            assert answer.remark == f"Exception was thrown when putting message back to {HALF}."
        assert (await client.call(323)).code == Code.SYSTEM_ERROR
        assert len(await stored(stage, HALF)) == 1

    play(main)


def test_a_resumed_message_that_the_store_refuses(play):
    async def main(stage, client):
        put = stage.store.put(HALF, b"body", properties={"REAL_TOPIC": "orders", "REAL_QID": "1"})
        stage.store._set_full(True)
        answer = await client.call(323, msgId=OffsetId(*HOST, put.phy_offset).encode())
        assert answer.code == Code.SYSTEM_ERROR and f"Put message back to {HALF} failed" in answer.remark

    play(main)
