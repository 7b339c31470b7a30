"""Our slave at RocketMQ's own master: log, topics, groups and offsets arrive; its clients read from it afterwards."""

import json
import signal
import time

import pytest
from interop import scenarios
from interop.asking import Asking
from interop.our_broker import OurBroker, wait_for
from interop.peer import RELEASES
from support.command import start

import rocketc
from rocketc.derived import timer_check
from rocketc.tables.fastjson import parse

pytestmark = pytest.mark.long

SIZES = {
    "mapped_file_size_commit_log": 33_554_432, "mapped_file_size_consume_queue": 60_000, "max_hash_slot_num": 5000,
    "max_index_num": 20_000,
}  # fmt: skip
DELAYS = "1s 2s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 3s"  # of JavaCluster
TOPIC, GROUP = "orders", "audit"
BEAT = {
    "clientID": "c1",
    "consumerDataSet": [{
        "groupName": GROUP, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING", "unitMode": False,
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [{"topic": TOPIC, "subString": "*"}],
    }],
    "producerDataSet": [],
}  # fmt: skip


class Broker:
    """A broker that is asked by its address."""

    def __init__(self, address):
        self.address = address
        self._asking = Asking(address)

    def ask(self, code, body=None, **fields):
        found, values, raw = self._asking.ask(code, body, **fields)
        assert found == 0, (code, found)
        return values, raw

    def table(self, code):
        return parse(self.ask(code)[1])

    def end(self):
        """The end of its log."""
        return int(self.table(28)["table"]["commitLogMaxOffset"])

    def send(self, topic, body, queue=0, properties="", **fields):
        told = {"a": "p", "b": topic, "c": "TBW102", "d": 4, "e": queue, "f": 0, "g": 1, "h": 0, "i": properties}
        self.ask("SEND_MESSAGE_V2", body, **{**told, "m": False, **fields})

    def pull(self, topic, queue=0):
        """The records of a queue."""
        fields = {
            "consumerGroup": "TOOLS_CONSUMER",
            "topic": topic,
            "queueId": queue,
            "queueOffset": 0,
            "maxMsgNums": 32,
        }
        fields |= {"sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0}
        return self.ask("PULL_MESSAGE", **fields)[1]

    def offset(self):
        return int(self.ask(14, consumerGroup=GROUP, topic=TOPIC, queueId=0)[0]["offset"])

    def close(self):
        self._asking.close()


@pytest.fixture(params=RELEASES)
def pair(request, begin, tmp_path):
    """A master of RocketMQ, its slave, and the process of each."""
    names = begin(scenarios.JavaCluster, request.param, tmp_path / "names", brokerPort="none")
    theirs = begin(
        scenarios.JavaCluster, request.param, tmp_path / "java", namePort="none", nameServer=names.name_server
    )
    ours = begin_slave(begin, tmp_path / "slave", names.name_server)
    master, slave = Broker(theirs.broker), Broker(ours.address)
    slave.name_server = names.name_server
    yield request.param, master, slave, theirs, ours
    master.close()
    slave.close()


def begin_slave(begin, path, name_server, *options, **fields):
    settings = {**SIZES, "message_delay_level": DELAYS, "broker_name": "broker-a", "slave_read_enable": True, **fields}
    return begin(OurBroker, path, "--name-server", name_server, "--port", 0, "--role", "slave", *options, **settings)


def fill(master, release):
    """Messages, delayed and timed ones, a group and its offset."""
    for n in range(20):
        master.send(TOPIC, b"m%02d" % n, n % 4, f"UNIQ_KEY\1K{n}\2KEYS\1k{n}\2TAGS\1t\2")
    for n in range(3):
        master.send(TOPIC, b"late%d" % n, 0, f"UNIQ_KEY\1L{n}\2DELAY\00118\2")
    if release > "5":
        for n, seconds in enumerate((2, 600)):
            master.send(TOPIC, b"timed%d" % n, 1, f"UNIQ_KEY\1T{n}\2TIMER_DELAY_SEC\1{seconds}\2")
    master.ask("HEART_BEAT", BEAT)
    master.ask("UPDATE_CONSUMER_OFFSET", consumerGroup=GROUP, topic=TOPIC, queueId=0, commitOffset=4)


def rocketc_output(*args):
    process = start(*args)
    out, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, b"")
    return out


def end(broker):
    """End it in order; all that it complains about is its master."""
    broker._process.send_signal(signal.SIGTERM)
    _, errors = broker._process.communicate(timeout=20)
    lines = errors.decode().splitlines()
    assert broker._process.returncode == 0
    assert [line for line in lines if "replication waits" not in line and "does not answer" not in line] == []


def bodies_of(records):
    found = []
    while records:
        size = int.from_bytes(records[:4], "big")
        found += [message.body for message in rocketc.decode(records[:size], None, unwrap=False)]
        records = records[size:]
    return found


def test_a_slave_has_all_of_its_master_and_serves_its_clients(pair, begin, tmp_path):
    release, master, slave, theirs, _ = pair
    fill(master, release)
    time.sleep(7)  # the delayed and timed messages are delivered
    assert wait_for(lambda: slave.end() == master.end() > 0)
    assert wait_for(lambda: slave.table(43)["offsetTable"] == master.table(43)["offsetTable"], 25)
    assert wait_for(lambda: slave.table(21)["dataVersion"]["counter"] == master.table(21)["dataVersion"]["counter"], 25)
    for queue in range(4):
        assert slave.pull(TOPIC, queue) == master.pull(TOPIC, queue) != b""
    assert slave.table(21)["dataVersion"] == {"stateVersion": 0, **master.table(21)["dataVersion"]}
    for code, table in ((21, "topicConfigTable"), (201, "subscriptionGroupTable")):
        has, expected = slave.table(code)[table], master.table(code)[table]
        assert has.keys() == expected.keys()
        assert all(has[name].items() >= one.items() for name, one in expected.items())  # 4.9.7 has fewer fields
    assert slave.offset() == 4
    assert slave.table(45)["offsetTable"] == master.table(45)["offsetTable"] == {18: 3}
    if release > "5":
        told, kept = (timer_check.decode(one.ask(60)[1]) for one in (master, slave))
        assert kept.last_timer_queue_offset == told.last_timer_queue_offset == 2
        assert told.last_read_time_ms - 5000 <= kept.last_read_time_ms <= told.last_read_time_ms
        assert slave.table(61)["timingCount"]["orders"]["count"] == 1
    files = {
        name: parse((tmp_path / "slave/config" / name).read_bytes()) for name in ("topics.json", "delayOffset.json")
    }
    assert files["topics.json"]["topicConfigTable"].keys() == master.table(21)["topicConfigTable"].keys()
    assert files["delayOffset.json"]["offsetTable"] == {18: 3}

    found = json.loads(rocketc_output("admin", "lag", "--slaves", "--json", "-n", slave.name_server))
    assert [(one["brokerId"], one["logEnd"], one["behind"]) for one in found["brokers"]] == [
        (0, master.end(), None), (1, master.end(), 0),
    ]  # fmt: skip
    assert [one["behind"] for one in found["replicas"]] == ([0] if release > "5" else [])
    theirs.close()  # the master's machine is gone
    clients = begin(scenarios.Clients, release, tmp_path / "clients")
    expected = sorted([f"m{n:02}" for n in range(20)] + [f"late{n}" for n in range(3)] + ["timed0"] * (release > "5"))
    consumed = clients.step(slave, TOPIC, "poll", group="later", count=len(expected), millis=500)
    assert sorted(consumed) == expected
    rest = clients.step(slave, TOPIC, "consume", group=GROUP, count=len(expected) - 4, millis=500)
    assert sorted(rest) == sorted(set(expected) - {"m00", "m04", "m08", "m12"})
    assert wait_for(lambda: slave.offset() == 8)


def test_our_slave_becomes_the_master(pair, begin, tmp_path):
    """By broker.conf and restart, after the end of RocketMQ's master: order and offsets are kept."""
    release, master, slave, theirs, ours = pair
    fill(master, release)
    master.send(TOPIC, b"due later", 0, "UNIQ_KEY\1X\2DELAY\00118\2")
    time.sleep(1)
    assert wait_for(lambda: slave.end() == master.end() > 0)
    assert wait_for(lambda: slave.offset() == 4, 25)
    before = master.pull(TOPIC, 0)
    theirs.close()
    end(ours)
    settings = {**SIZES, "message_delay_level": DELAYS, "broker_name": "broker-a", "broker_id": 0}
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerRole=ASYNC_MASTER\nbrokerId=0\nbindAddress=127.0.0.1\nbrokerIP1=127.0.0.1\n")
    options = ("-c", conf, "--name-server", slave.name_server, "--port", 0)
    again = Broker(begin(OurBroker, tmp_path / "slave", *options, **settings).address)
    assert again.pull(TOPIC, 0).startswith(before) and again.offset() == 4
    bodies = lambda: bodies_of(again.pull(TOPIC, 0))  # noqa: E731
    again.send(TOPIC, b"after", 0)
    assert b"after" in bodies()
    assert wait_for(lambda: b"due later" in bodies())
    assert wait_for(lambda: sum(body.startswith(b"late") for body in bodies()) >= 3)
    again.close()
