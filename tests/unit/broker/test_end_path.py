"""The compiled way for ends of transactions: it does the same as the processor, and leaves the unusual to it."""

import asyncio
import shutil
import types
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulation import virtual
from simulation.brokers import EPOCH, scene
from unit.broker.test_pull_path import Peer

import rocketc
from rocketc.broker._transaction_counts import LATENCY_BOUNDS, TransactionCounters
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Form
from rocketc.status import PutStatus

HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
COMMIT, ROLLBACK = 8, 12
ONEWAY = 2
V4, V6 = bytes([10, 1, 2, 3, 0, 0, 7, 0]), bytes(range(16)) + bytes([0, 0, 7, 0])
PLAIN = [("UNIQ_KEY", "K1"), ("TRAN_MSG", "true"), ("PGROUP", "shop"), ("REAL_TOPIC", "orders"), ("REAL_QID", "1")]


class Stage:
    """A broker with a topic `orders`, a client, and the half messages that were stored."""

    def __init__(self, stage, is_fast=True):
        self.stage, self.broker, self.store = stage, stage.broker, stage.store
        self.path = stage.broker.pulls.path.ends
        if not is_fast:
            stage.broker.pulls.path.ends = None
        stage.store.create_topic("orders", queues=4)
        self.peer, self.places, self.sent = Peer(stage.broker.server), [], 0

    def _note(self, before):
        if self.store.max_phy_offset > before:
            self.places.append((before, len(self.places)))

    def send(self, extra="", queue=1, body=b"body", key=None):
        """Send a half message; the first key is K1."""
        self.sent += 1
        before = self.store.max_phy_offset
        fields = {
            "producerGroup": "shop", "topic": "orders", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
            "queueId": queue, "sysFlag": 0, "bornTimestamp": EPOCH, "flag": 3,
            "properties": f"UNIQ_KEY\1{key or f'K{self.sent}'}\2TRAN_MSG\1true\2PGROUP\1shop\2{extra}",
        }  # fmt: skip
        self.peer.request(10, {name: str(value) for name, value in fields.items()}, body)
        self._note(before)

    def put(self, pairs, topic=HALF, queue=0, **how):
        """Store a half message with properties in any order."""
        before = self.store.max_phy_offset
        text = how.get("text") or "".join(f"{name}\1{value}\2" for name, value in pairs)
        message = how.get("flag", 0), how.get("body", b"body"), text.encode("utf-8", "surrogateescape")
        status, _, _, _ = self.broker.path.append(
            topic.encode(), queue, [message], how.get("sys_flag", 0), EPOCH, how.get("host", V4), how.get("times", 0),
            False, 0, how.get("store_host"),
        )  # fmt: skip
        assert status is PutStatus.PUT_OK
        self._note(before)

    def end(self, which, kind=COMMIT, form=Form.JSON, flag=0, **changed):
        """End a half message by its number; return whether the compiled path did it."""
        place, offset = self.places[which % len(self.places)] if self.places else (0, 0)
        fields = {
            "topic": "orders", "producerGroup": "shop", "tranStateTableOffset": offset, "commitLogOffset": place,
            "commitOrRollback": kind, "fromTransactionCheck": "false", "msgId": "K1", "transactionId": "K1",
            "bname": "broker-a", **changed,
        }  # fmt: skip
        before = self.path.taken
        texts = {name: str(value) for name, value in fields.items() if value is not None}
        self.peer.request(37, texts, form=form, flag=flag)
        return self.path.taken > before

    async def stored(self, topic, queue=0):
        await self.stage.settle()
        return self.store.get(topic, queue, 0, 100, decompress=False).messages


@pytest.fixture
def play(tmp_path):
    def run(main, **how):
        async def whole():
            async with scene(tmp_path, delay=(0.0, 0.0), **how) as stage:
                await main(Stage(stage))

        virtual.run(whole())

    return run


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("flag", [0, ONEWAY])
def test_what_the_path_takes(play, form, flag):
    async def main(stage):
        stage.send("KEYS\1a b\2")
        stage.send(body=b"y" * 5000)
        await stage.stage.settle()
        stage.peer.answers()
        assert stage.end(0, COMMIT, form, flag) and stage.end(1, ROLLBACK, form, flag)
        answers = [(one.code, one.remark, one.fields) for one in stage.peer.answers()]
        assert answers == ([] if flag else [(0, None, {})] * 2)
        [before, _], [after] = await stage.stored(HALF), await stage.stored("orders", 1)
        assert after.properties == before.properties and after.prepared_transaction_offset == before.phy_offset
        assert (after.sys_flag, after.flag, after.body) == (8, 3, b"body")
        counts = stage.broker.path.times.read()[(37, 0, False)][0]
        assert sum(counts) == 2 and len(stage.broker.op_marks) == 2
        assert stage.broker.transaction_stats.open.items() == [("orders", 0)]

    play(main)


def test_sends_before_an_end_come_first(play):
    """Also if they arrive together."""

    async def main(stage):
        stage.send()
        await stage.stage.settle()
        before, stage.peer.data = stage.store.max_phy_offset, b""
        connection, frames = stage.peer.connection, []
        stage.peer.connection = types.SimpleNamespace(data_received=frames.append)
        stage.send(queue=2)
        stage.end(0)
        connection.data_received(b"".join(frames))
        assert stage.path.taken == 1
        assert [one.fields.get("queueId") for one in stage.peer.answers()] == ["2", None]
        first = stage.store.message(before)
        assert first.topic == HALF and stage.store.message(before + first.store_size).topic == "orders"

    play(main)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"kind": 0}, None),
        ({"kind": 4}, Code.SYSTEM_ERROR),
        ({"kind": COMMIT + (1 << 32)}, Code.SYSTEM_ERROR),
        ({"producerGroup": "other"}, Code.SYSTEM_ERROR),
        ({"producerGroup": None}, Code.SYSTEM_ERROR),
        ({"producerGroup": 'sh"op'}, Code.SYSTEM_ERROR),
        ({"tranStateTableOffset": 1}, Code.SYSTEM_ERROR),
        ({"tranStateTableOffset": None}, Code.SYSTEM_ERROR),
        ({"tranStateTableOffset": "x"}, Code.SYSTEM_ERROR),
        ({"commitLogOffset": 1}, Code.SYSTEM_ERROR),
        ({"commitLogOffset": -1}, Code.SYSTEM_ERROR),
        ({"commitLogOffset": 1 << 40}, Code.SYSTEM_ERROR),
        ({"commitOrRollback": None}, Code.SYSTEM_ERROR),
        ({"msgId": 'K"1'}, 0),
    ],
)
def test_what_the_processor_takes(play, changed, code):
    async def main(stage):
        stage.send()
        await stage.stage.settle()
        stage.peer.answers()
        assert not stage.end(0, **changed)
        assert [one.code for one in stage.peer.answers()] == ([] if code is None else [code])
        assert stage.end(0) == (code != 0)

    play(main)


@pytest.mark.parametrize(
    ("pairs", "how", "is_fast"),
    [
        (PLAIN, {"host": V6, "sys_flag": 1, "times": 3, "flag": 7, "store_host": V6}, True),
        (PLAIN, {"sys_flag": 4}, False),  # it is in no queue
        ([*PLAIN, ("own", "a\1b"), ("empty", "")], {}, True),
        ([*PLAIN, ("UNIQ_KEY", "K2")], {}, False),
        ([*PLAIN, ("KEYS", "K1")], {}, True),
        ([*PLAIN[1:], ("UNIQ_KEY", "")], {}, True),
        (PLAIN[1:], {}, True),
        ([*PLAIN, ("TRANSACTION_CHECK_TIMES", "1")], {}, False),
        (PLAIN, {"text": "TRAN_MSG\1true\2PGROUP\1shop\2REAL_TOPIC\1orders\2REAL_QID\x01001"}, True),
        (PLAIN, {"topic": "orders"}, False),
        ([*PLAIN, ("DELAY", "2")], {}, False),
        ([*PLAIN, ("DELAY", "")], {}, False),
        ([*PLAIN, ("CHECK_IMMUNITY_TIME_IN_SECONDS", "9")], {}, False),
        ([*PLAIN, ("__CRC32#", "1")], {}, False),
        ([*PLAIN, ("REAL_TOPIC", "orders")], {}, False),
        ([*PLAIN, ("REAL_QID", "2")], {}, False),
        ([*PLAIN, ("PGROUP", "shop")], {}, False),
        ([*PLAIN[:3], ("REAL_TOPIC", "orders"), ("REAL_QID", "+1")], {}, False),
        ([*PLAIN[:3], ("REAL_TOPIC", "orders"), ("REAL_QID", "")], {}, False),
        ([*PLAIN[:3], ("REAL_TOPIC", "orders"), ("REAL_QID", str(1 << 31))], {}, False),
        ([*PLAIN[:3], ("REAL_TOPIC", "orders"), ("REAL_QID", "9" * 11)], {}, False),
        ([*PLAIN[:3], ("REAL_TOPIC", "")], {}, False),
        ([*PLAIN[:3], ("REAL_TOPIC", "new"), ("REAL_QID", "1")], {}, False),
        ([*PLAIN[:3], ("REAL_TOPIC", "\udcff"), ("REAL_QID", "1")], {}, False),
        (PLAIN[:2], {}, False),
        (PLAIN, {"text": "".join(f"{name}\1{value}\2" for name, value in PLAIN) + "bare\2"}, False),
    ],
)  # fmt: skip
def test_half_messages_of_all_kinds(tmp_path, pairs, how, is_fast, crc=False):
    """Both ways give the same answer, log and counters."""
    results = []

    async def whole(fast):
        store = {"enabled_append_prop_crc": crc}
        async with scene(tmp_path / str(fast), delay=(0.0, 0.0), store=store) as one:
            stage = Stage(one, fast)
            stage.put(pairs, **how)
            await stage.stage.settle()
            assert stage.end(0, COMMIT) == (fast and is_fast)
            stage.end(0, ROLLBACK)
            await result(stage, results)

    for fast in (True, False):
        virtual.run(whole(fast))
    assert results[0] == results[1]


@pytest.mark.parametrize(("more", "is_fast"), [([], True), ([("DELAY", "2")], False)])
def test_half_messages_with_a_crc(tmp_path, more, is_fast):
    test_half_messages_of_all_kinds(tmp_path, [*PLAIN, *more], {}, is_fast, crc=True)


async def result(stage, results):
    """Note all that a broker answered, stored and counted."""
    waiting = dict(stage.broker.op_marks._waiting)
    await asyncio.sleep(3.1)
    await stage.stage.settle()
    stage.store.flush()
    log = b"".join(path.read_bytes() for path in sorted(Path(stage.store.path, "commitlog").iterdir()))
    stats = stage.broker.transaction_stats
    counts = [(one.topic, one.committed, one.rolled_back, one.latency(), one.seconds) for one in stats.all()]
    counts = sorted(one for one in counts if one[1] or one[2])
    opened = sorted(one for one in stats.open.items() if one[1])
    results.append([stage.peer.data, log, waiting, counts, opened, sorted(dict(stage.broker.topics.table))])


def test_a_half_message_that_is_not_in_its_queue_yet(play):
    async def main(stage):
        stage.send()
        assert not stage.end(0)  # the processor makes the store look
        stage.send()
        stage.store.max_offset(HALF, 0)
        assert stage.end(1)

    play(main)


@pytest.mark.parametrize(("queue_id", "queue_offset"), [(0, 0), (0, 1), (7, 0), (1 << 30, 5), (0, 1 << 60)])
def test_a_record_in_a_body_is_not_taken(play, queue_id, queue_offset):
    async def main(stage):
        stage.send()
        at = stage.places[0][0]
        for n in range(2):  # the first one shows where the body of the second one begins
            body = rocketc.encode(
                HALF, b"forged", queue_id=queue_id, queue_offset=queue_offset, phy_offset=at, properties=dict(PLAIN)
            )
            before = stage.store.max_phy_offset
            stage.put([], topic="orders", body=body)
            await stage.stage.settle()
            at = at if n else stage.store.max_phy_offset + 88
        assert stage.store.message(before + 88).body == b"forged"
        assert not stage.end(0, commitLogOffset=before + 88, tranStateTableOffset=queue_offset)
        assert stage.peer.answers()[-1].remark == "Find prepared transaction message failed"

    play(main)


def test_what_is_checked_each_time(play):
    async def main(stage):
        for _ in range(4):
            stage.send()
        await stage.stage.settle()
        assert stage.end(0)
        stage.broker.topics.hide(["orders"])
        assert not stage.end(1)
        stage.broker.topics.unhide(["orders"])
        assert stage.end(1)
        stage.broker.config.broker_id = 1
        assert not stage.end(2)
        stage.broker.config.broker_id = 0
        stage.store._set_full(True)
        assert not stage.end(2)
        stage.store._set_full(False)
        assert not stage.end(1)  # it is ended
        codes = [one.code for one in stage.peer.answers()[4:]]
        assert codes == [0, Code.TOPIC_NOT_EXIST, 0, Code.SLAVE_NOT_AVAILABLE, Code.SERVICE_NOT_AVAILABLE, 1]

    play(main)


def test_damage_is_left_to_the_processor(play, tmp_path):
    async def main(stage):
        stage.send(body=b"a long body")
        await stage.stage.settle()
        log = min((tmp_path / "commitlog").iterdir())
        at = log.read_bytes().index(b"a long body")
        with open(log, "r+b") as file:
            file.seek(at)
            file.write(b"A")
        assert not stage.end(0) and await stage.stored("orders", 1) == []
        assert stage.peer.answers()[-1].remark == "Find prepared transaction message failed"

    play(main)


NAMES = st.sampled_from(
    ["UNIQ_KEY", "TRAN_MSG", "PGROUP", "REAL_TOPIC", "REAL_QID", "DELAY", "own", "ü", "WAIT", "__CRC32#"]
)
PAIRS = st.lists(st.tuples(NAMES, st.sampled_from(["1", "true", "shop", "orders", "", "x" * 200])), max_size=4)
KINDS = st.sampled_from([COMMIT, COMMIT, COMMIT, ROLLBACK, 0, 5])
CHANGED = st.fixed_dictionaries(
    {},
    optional={
        "producerGroup": st.sampled_from(["shop", "other", "", None]),
        "tranStateTableOffset": st.sampled_from([0, 1, 5, -1, "x", None]),
        "commitLogOffset": st.sampled_from([0, 1, 200, -5, 1 << 62, "9" * 30]),
        "fromTransactionCheck": st.sampled_from(["true", "x", None]),
        "flag": st.sampled_from([0, ONEWAY]),
        "form": st.sampled_from(Form),
    },
)
STEPS = st.one_of(
    st.tuples(
        st.just("send"),
        st.sampled_from(["", "DELAY\0013\2", "KEYS\1k\2", "KEYS\1K1\2"]),
        st.integers(0, 3),
        st.just(b"body"),
        st.sampled_from([None, None, "K1", "K2"]),
    ),
    st.tuples(st.just("put"), PAIRS, st.permutations(PLAIN), st.sampled_from([V4, V6]), st.sampled_from([0, 1, 4])),
    st.tuples(st.just("end"), st.integers(0, 9), KINDS, st.just({})),
    st.tuples(st.just("end"), st.integers(0, 9), KINDS, st.just({})),
    st.tuples(st.just("end"), st.integers(0, 9), KINDS, CHANGED),
    st.tuples(st.just("hide"), st.booleans()),
    st.tuples(st.just("full"), st.booleans()),
    st.tuples(st.just("slave"), st.sampled_from([0, 0, 1])),
    st.just(("settle",)),
    st.just(("later",)),
)


async def run_steps(stage, steps):
    is_hidden = is_full = False
    for kind, *how in steps:
        if kind == "send":
            stage.send(*how)
        elif kind == "put":
            more, plain, host, flags = how
            if not is_full:
                stage.put([*more, *plain], host=host, sys_flag=flags)
        elif kind == "end":
            which, what, changed = how
            stage.end(which, what, **changed)
        elif kind == "hide":
            if how[0] != is_hidden:
                is_hidden = how[0]
                (stage.broker.topics.hide if is_hidden else stage.broker.topics.unhide)(["orders"])
        elif kind == "full":
            is_full = how[0]
            stage.store._set_full(is_full)
        elif kind == "slave":
            stage.broker.config.broker_id = how[0]
        elif kind == "settle":
            await stage.stage.settle()
        else:
            await asyncio.sleep(7)
    stage.store._set_full(False)
    stage.broker.config.broker_id = 0


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(STEPS, min_size=1, max_size=25))
def test_path_and_processor_do_the_same(tmp_path_factory, steps):
    results, root = [], tmp_path_factory.mktemp("both") / "store"  # errors name it

    async def whole(fast):
        async with scene(root, delay=(0.0, 0.0)) as one:
            stage = Stage(one, fast)
            await run_steps(stage, [("settle",), *steps])
            await result(stage, results)

    for fast in (True, False):
        virtual.run(whole(fast))
        shutil.rmtree(root)
    assert results[0] == results[1]


def test_counters():
    counters = TransactionCounters()
    one = counters.of("orders")
    assert counters.of("other") is not one and counters.of("orders") is one
    for seconds in (0.0, 5.0, 5.001, 60.0, 86_400.0, 86_401.0):
        one.commit(seconds)
    one.prepare()
    one.roll_back()
    one.give_up()
    assert one.latency() == [2, 2, 0, 0, 0, 1, 1] and one.seconds == 172_871.001 - 0.0
    assert (one.topic, one.committed, one.rolled_back) == ("orders", 6, 1)
    assert (one.take_opened(), one.take_opened()) == (-7, None)
    assert LATENCY_BOUNDS == (5, 60, 600, 3600, 43_200, 86_400)
    assert [each.topic for each in counters.all()] == ["orders", "other"]
