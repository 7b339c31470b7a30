"""Transactions: RocketMQ's producers at our broker and at RocketMQ's, and stores that move in the middle of one."""

import re
import time
from collections import Counter

import pytest
from interop import scenarios
from interop.asking import Asking
from interop.our_broker import OurBroker
from interop.peer import RELEASES
from interop.test_moved_broker import Home

import rocketc
from rocketc.tables.fastjson import parse

pytestmark = pytest.mark.long

HALF, OP, GIVEN_UP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
GROUP = "CID_RMQ_SYS_TRANS"
COMMIT, ROLLBACK = 8, 12
# Marks are stored soon: RocketMQ's broker asks again for a transaction whose mark it has not stored yet.
SETTINGS = {
    "transactionCheckInterval": 1000, "transactionCheckMax": 3, "transactionTimeOut": 4000,
    "transactionOpBatchInterval": 100,
}  # fmt: skip
OURS = {re.sub("[A-Z]", lambda found: "_" + found[0].lower(), name): value for name, value in SETTINGS.items()}
THEIRS = {f"broker.{name}": value for name, value in SETTINGS.items()}

# The states of the local transaction and of each check, by body.
PLAN = [
    ["commit", "commit"],
    ["rollback", "rollback"],
    ["later", "unknown", "unknown", "commit"],
    ["back later", "unknown", "rollback"],
    ["for ever", "unknown"],
    ["throws", "throw", "throw", "commit"],
    ["null", "null", "null", "rollback"],
]
VARYING = {"UNIQ_KEY", "__transactionId__", "REAL_QID", "CLUSTER"}


def of_store(root):
    """What a store has of transactions: the records of the half topic, of those given up, of the real one, the marks.

    Half messages are named by their body and the number of their copy, because their order depends on the time.
    """
    found, copies, names = {}, Counter(), {}
    with rocketc.open(root, read_only=True) as store:
        for topic, queue_id in sorted(store.queues()):
            if topic not in (HALF, GIVEN_UP, "Deals"):
                continue
            for message in store.get(topic, queue_id, 0, 1000).messages:
                body = message.body.decode()
                name = topic, body, copies[topic, body]
                copies[topic, body] += 1
                if topic == HALF:
                    names[message.phy_offset] = names[message.queue_offset, "queue"] = name[1:]
                properties = {key: value for key, value in message.properties.items() if key not in VARYING}
                same = message.properties.get("__transactionId__") == message.properties["UNIQ_KEY"]
                half = names.get(message.prepared_transaction_offset, message.prepared_transaction_offset)
                found[name] = properties, same, message.flag, message.sys_flag, message.reconsume_times, half
        marks = set()
        for op in store.get(OP, 0, 0, 1000).messages:
            assert op.properties == {"WAIT": "true", "TAGS": "d"} and op.born_host == op.store_host
            marks |= {names[int(one), "queue"] for one in op.body.decode().split(",") if one}
    return found, marks


def offsets_of(root):
    table = parse((root / "config" / "consumerOffset.json").read_bytes())["offsetTable"]
    return [table.get(f"{topic}@{GROUP}", {}).get(0) for topic in (HALF, OP)]


def histories(clients, broker, root):
    """Play PLAN; the history of the producer, what is in the store, and what a consumer gets."""
    told = clients.step(broker, "Deals", "transact", group="shop", plan=PLAN, checks=10, millis=4000)
    came = clients.step(broker, "Deals", "consume", group="readers", count=3, millis=500)
    broker.end()
    return told, of_store(root), sorted(came), offsets_of(root)


@pytest.mark.parametrize("release", RELEASES)
def test_a_producer_sees_the_same_at_both_brokers(begin, tmp_path, release):
    clients = begin(scenarios.Clients, release, tmp_path / "clients")
    theirs = begin(scenarios.JavaCluster, "5.3.3", tmp_path / "java", **THEIRS)
    expected = histories(clients, theirs, tmp_path / "java" / "store")
    ours = begin(OurBroker, tmp_path / "ours", **OURS)
    ours.end = lambda: end_with_warnings(ours)
    found = histories(clients, ours, tmp_path / "ours")
    lines = scenarios.difference(expected[0], found[0])
    assert not lines, f"clients {release}:\n{lines}"
    for name, record in expected[1][0].items():
        assert found[1][0].get(name) == record, name
    assert found[1] == expected[1]
    assert found[2] == expected[2] == ["commit", "later", "throws"]
    assert [count is not None for count in found[3]] == [True, True] and found[3][0] == expected[3][0]
    assert {body: len(history) - 3 for body, history in found[0].items()} == {
        "commit": 0, "rollback": 0, "later": 2, "back later": 1, "for ever": 3, "throws": 2, "null": 2,
    }  # fmt: skip


def end_with_warnings(broker):
    """End our broker; it reported that it gave up one message, and nothing else."""
    broker._process.terminate()
    _, errors = broker._process.communicate(timeout=20)
    lines = [line.partition(b"rocketc.broker: ")[2] for line in errors.splitlines()]
    assert broker._process.returncode == 0 and all(b"it is given up after 3 checks" in line for line in lines), errors


@pytest.mark.parametrize("release", RELEASES)
def test_another_producer_of_the_group_answers(begin, tmp_path, release):
    """The first one dies before it knows; the second one, of the other release, is asked."""
    other = RELEASES[release == RELEASES[0]]
    ours = begin(OurBroker, tmp_path / "ours", **{**OURS, "transaction_check_max": 15})
    dying = begin(scenarios.Clients, release, tmp_path / "dying")
    told = dying.step(ours, "Deals", "transact", group="shop", plan=[["a", "unknown"], ["b", "unknown"]], millis=0)
    assert [history[:2] for history in told.values()] == [["SEND_OK", "UNKNOW"]] * 2
    dying.close()
    living = begin(scenarios.Clients, other, tmp_path / "living")
    told = living.step(ours, "Deals", "transact", group="shop", plan=[["c", "commit"]], checks=2, millis=500)
    assert {body: len(history) > 0 for body, history in told.items()} == {"a": True, "b": True, "c": True}
    plan = [["d", "rollback"], ["a"], ["b"]]
    told = living.step(ours, "Deals", "transact", group="shop", plan=plan, checks=2, millis=500)
    assert told["a"] and told["b"]
    came = living.step(ours, "Deals", "consume", group="readers", count=1, millis=500)
    assert came == ["c"]


# ---------------------------------------------------------------- stores that move


class Producer(Asking):
    """A producer of the group `shop` without a client; `checks` has the checks that it got."""

    def __init__(self, address):
        super().__init__(address)
        self.checks = []
        beat = {"clientID": "by hand", "producerDataSet": [{"groupName": "shop"}], "consumerDataSet": []}
        assert self.ask("HEART_BEAT", beat)[0] == 0

    def _read(self):
        command = super()._read()
        if not command.is_answer:
            self.checks.append(command)
        return command

    def prepare(self, name):
        """Send a half message; return the fields of its end."""
        properties = f"UNIQ_KEY\1{name}\2TRAN_MSG\1true\2PGROUP\1shop\2"
        sent = {"a": "shop", "b": "Deals", "c": "TBW102", "d": 4, "e": 1, "f": 0, "g": int(time.time() * 1000), "h": 0}
        code, fields, _ = self.ask("SEND_MESSAGE_V2", name.encode(), i=properties, m=False, **sent)
        assert code == 0
        return {"tranStateTableOffset": fields["queueOffset"], "commitLogOffset": int(fields["msgId"][-16:], 16)}

    def end(self, half, kind, **more):
        code, fields, _ = self.ask(37, producerGroup="shop", msgId="any", commitOrRollback=kind, **{**half, **more})
        assert code == 0, fields

    def asked(self, names):
        """Wait until these messages are asked for; return the latest check of each message."""
        end = time.monotonic() + 60
        while time.monotonic() < end and not names <= {check.fields["msgId"] for check in self.checks}:
            self._look()
        return self._latest()

    def watch(self):
        """The messages that are asked for in the next seconds."""
        self.checks.clear()
        for _ in range(70):
            self._look()
        return set(self._latest())

    def _latest(self):
        return {check.fields["msgId"]: check for check in self.checks}

    def _look(self):
        self.ask("GET_MAX_OFFSET", topic="Deals", queueId=0)
        time.sleep(0.1)

    def answer(self, check, kind):
        half = {name: check.fields[name] for name in ("tranStateTableOffset", "commitLogOffset")}
        self.end(half, kind, fromTransactionCheck=True)


@pytest.fixture
def home(tmp_path, begin):
    (tmp_path / "home").mkdir()
    found = Home(tmp_path / "home", begin)
    settings = {
        "transactionCheckInterval": 3000, "transactionCheckMax": 1000, "transactionTimeOut": 20_000,
        "transactionOpBatchInterval": 100,
    }  # fmt: skip
    with (found.folder / "broker.conf").open("a") as file:
        file.writelines(f"{name}={value}\n" for name, value in settings.items())
    found.settings = {f"broker.{name}": value for name, value in settings.items()}
    return found


def bodies(root):
    with rocketc.open(root, read_only=True) as store:
        return Counter(m.body.decode() for q in range(4) for m in store.get("Deals", q, 0, 1000).messages)


@pytest.mark.parametrize("is_killed", [False, True], ids=["ended", "killed"])
@pytest.mark.parametrize(
    "turns",
    [
        ["ours", "5.3.3", "ours", "5.3.3"],
        ["5.3.3", "ours", "5.3.3", "ours"],
        ["4.9.7", "ours", "ours", "ours"],  # 4.x does not read the marks of 5.x, and so not ours
    ],
    ids="-".join,
)
def test_a_store_moves_in_the_middle_of_transactions(home, turns, is_killed):
    """Each half message is written by one broker, and ended by it or the next one; the marks of both are read.

    A kill may lose marks of the last seconds. Then producers are asked again, and here they do not answer.
    """

    def serve(kind):
        broker = home.ours() if kind == "ours" else home.theirs(kind, **home.settings)
        return broker, Producer(broker.address)

    def leave(broker, producer):
        producer.close()
        if not is_killed:
            broker.end()
        elif isinstance(broker, OurBroker):
            broker.kill()
        else:
            broker.close()

    broker, producer = serve(turns[0])
    halves = {name: producer.prepare(name) for name in ("one", "undone", "two", "gone", "three", "back", "four")}
    producer.end(halves["one"], COMMIT)
    producer.end(halves["undone"], ROLLBACK)
    time.sleep(4.0)  # the marks are written
    leave(broker, producer)
    ended = {"one", "undone"}

    broker, producer = serve(turns[1])
    producer.end(halves["two"], COMMIT)
    producer.end(halves["gone"], ROLLBACK)
    ended |= {"two", "gone"}
    asked = producer.asked({"three", "back", "four"})
    assert is_killed or not asked.keys() & ended
    producer.answer(asked["three"], COMMIT)
    producer.answer(asked["back"], ROLLBACK)
    ended |= {"three", "back"}
    for name in ("new", "new back"):
        producer.prepare(name)
    found = producer.watch()
    assert "four" in found and (is_killed or not found & ended)
    leave(broker, producer)

    broker, producer = serve(turns[2])
    asked = producer.asked({"four", "new", "new back"})
    assert is_killed or not asked.keys() & ended
    for name, kind in (("four", COMMIT), ("new", COMMIT), ("new back", ROLLBACK)):
        producer.answer(asked[name], kind)
    ended |= {"four", "new", "new back"}
    found = producer.watch()
    assert is_killed or not found
    leave(broker, producer)

    broker, producer = serve(turns[3])
    found = producer.watch()
    assert is_killed or not found
    leave(broker, producer)
    assert bodies(home.store) == Counter(["one", "two", "three", "four", "new"])
