"""Transactions of our producer at RocketMQ's brokers and ours: histories and records are those of Java's producer."""

import concurrent.futures
import re
import threading
import time

import pytest
from interop import scenarios
from interop.our_broker import OurBroker, wait_for
from interop.peer import RELEASES, Unavailable
from interop.test_transactions import end_with_warnings

import rocketc
from rocketc._layout import FLAG_COMMIT, FLAG_TRANSACTION_MASK, PROPERTY_UNIQUE_KEY
from rocketc.client import TransactionProducer
from rocketc.format.traces import decode_traces

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

HALF, OP, GIVEN_UP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
SETTINGS = {
    "transactionCheckInterval": 1000,
    "transactionCheckMax": 3,
    "transactionTimeOut": 3000,  # a message is not asked about before
    "transactionOpBatchInterval": 100,
}
COMMIT, ROLLBACK, UNKNOW = "COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"
LARGE = "z" * 5000  # compressed
SCRIPT = [
    {"body": "commit", "local": COMMIT, "checks": ["throw"]},
    {"body": "rollback", "local": ROLLBACK, "checks": ["throw"]},
    {"body": LARGE, "local": COMMIT, "checks": ["throw"]},
    {"body": "unknown, commit", "local": UNKNOW, "checks": [COMMIT]},
    {"body": "unknown, rollback", "local": UNKNOW, "checks": [ROLLBACK]},
    {"body": "unknown, unknown, commit", "local": UNKNOW, "checks": [UNKNOW, COMMIT]},
    {"body": "throw, throw, rollback", "local": "throw", "checks": ["throw", ROLLBACK]},
    {"body": "unknown for ever", "local": UNKNOW, "checks": [UNKNOW]},
]
CHECKS = 1 + 1 + 2 + 2 + 3  # the broker gives the last message up after three
DEAD = [{"body": "left", "local": UNKNOW, "checks": [COMMIT]}]  # by a producer that ends before it is asked
CONSUMED = sorted(["commit", LARGE, "unknown, commit", "unknown, unknown, commit"])


class Player:
    """What java/LocalTransactions.java does, by our producer."""

    def __init__(self, script):
        self._script = {one["body"]: one for one in script}
        self._turn = threading.Lock()
        self.checks, self.seen = {}, {}

    def local(self, message):
        return self._said(self._script[message.body.decode()]["local"])

    def check(self, message):
        body = message.body.decode()
        with self._turn:
            before, planned = self.checks.setdefault(body, []), self._script[body]["checks"]
            answer = planned[min(len(before), len(planned) - 1)]
            before.append(answer)
            self.seen.setdefault(body, [message.topic, message.tags, message.keys, True, sorted(message.properties)])
        return self._said(answer)

    def _said(self, name):
        if name == "throw":
            raise ValueError("as the script says")
        return name

    def count(self):
        with self._turn:
            return sum(map(len, self.checks.values()))

    def play(self, name_server, topic, group, *, checks, is_sending=True, **options):
        sent = []
        with TransactionProducer(group, name_server, check=self.check, send_msg_timeout=8000, **options) as producer:
            for body in self._script if is_sending else ():
                result = producer.send_in_transaction(topic, body.encode(), self.local, tags="t", keys=f"k-{body}")
                same = result.transaction_id == result.msg_id
                sent.append([body, result.sent.status.name, result.state.name, same])
            wait_for(lambda: self.count() >= checks, 40)
            time.sleep(2.5)  # END_TRANSACTION of the last check; nothing more is asked
        return {"sent": sent, "checks": self.checks, "seen": self.seen}


def snake(name):
    """The name of a setting of ours."""
    return re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name)


def started(kind, folder):
    """A broker of ours, or of a release of RocketMQ; its store is folder/store."""
    if kind in RELEASES:
        return scenarios.JavaCluster(kind, folder, **{f"broker.{name}": one for name, one in SETTINGS.items()})
    broker = OurBroker(folder / "store", "--port", 0, **{snake(name): one for name, one in SETTINGS.items()})
    broker.end = lambda: end_with_warnings(broker)
    return broker


@pytest.fixture(scope="module", params=["ours", *RELEASES])
def played(request, tmp_path_factory):
    """What both producers saw, and the messages of the broker's store by topic."""
    folder = tmp_path_factory.mktemp("python-transactions")
    try:
        clients = scenarios.Clients("5.3.3" if request.param == "ours" else request.param, folder / "clients")
    except Unavailable as reason:
        pytest.skip(str(reason))
    found, cluster = {}, None
    try:
        cluster = started(request.param, folder / "cluster")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            java = pool.submit(
                clients.step, cluster, "java", "run_script", group="j", script=SCRIPT, checks=CHECKS, millis=2500,
                traces="java-traces",
            )  # fmt: skip
            traced = {"enable_msg_trace": True, "custom_trace_topic": "python-traces"}
            found["python"] = Player(SCRIPT).play(cluster.name_server, "python", "p", checks=CHECKS, **traced)
            found["java"] = java.result()
        # A producer ends, and another one of its group is asked.
        ends = {"group": "java-ends", "script": DEAD, "checks": 0, "millis": 0}
        clients.step(cluster, "java-ends", "run_script", **ends)
        found["java-ends"] = Player(DEAD).play(cluster.name_server, "", "java-ends", checks=1, is_sending=False)
        with (
            TransactionProducer("python-ends", cluster.name_server, check=Player(DEAD).check) as producer,
            producer.transaction("python-ends", b"left", tags="t", keys="k-left") as transaction,
        ):
            transaction.unknown()
        # Java's producer is known to a broker after its first message; ours when it starts.
        asked = [{"body": "other", "local": COMMIT}, {"body": "left", "checks": [COMMIT]}]
        found["python-ends"] = clients.step(
            cluster, "others", "run_script", group="python-ends", script=asked, checks=1, millis=2500
        )
        counts = {"java": 4, "python": 4, "java-ends": 1, "python-ends": 1}
        read = {
            topic: clients.step(cluster, topic, "consume", group=f"g-{topic}", count=count, millis=500)
            for topic, count in counts.items()
        }
        cluster.end()
    finally:
        clients.close()
        if cluster is not None:
            cluster.close()
    stored = {}
    for message in rocketc.scan(folder / "cluster" / "store"):
        stored.setdefault(message.topic, []).append(message)
    return found, stored, read


def test_the_histories_are_equal(played):
    found, _, _ = played
    java, python = found["java"], found["python"]
    assert python["sent"] == java["sent"] and len(java["sent"]) == len(SCRIPT)
    assert python["checks"] == java["checks"] and sum(map(len, java["checks"].values())) == CHECKS
    for one in java["seen"].values():
        assert one[0] == "java"
        one[0] = "python"
    assert python["seen"] == java["seen"]


def test_another_producer_of_the_group_is_asked(played):
    found, _, read = played
    for topic in ("java-ends", "python-ends"):
        assert found[topic]["checks"] == {"left": [COMMIT]} and read[topic] == ["left"]
        assert found[topic]["seen"]["left"][:3] == [topic, "t", "k-left"]


def test_consumers_get_what_was_committed(played):
    _, _, read = played
    assert sorted(read["java"]) == sorted(read["python"]) == CONSUMED


def told(message):
    """A record without topics, groups, ids, queues, times and places."""
    varying = {PROPERTY_UNIQUE_KEY, "__transactionId__", "REAL_QID", "REAL_TOPIC", "PGROUP"}
    properties = {name: value for name, value in message.properties.items() if name not in varying}
    names = sorted(message.properties)
    return message.body, message.tags, message.flag, message.sys_flag, message.stored_body, names, properties


def of(stored, kind, topic):
    """The records of a topic of the broker that are about a topic of a producer."""
    return [one for one in stored.get(kind, []) if one.properties.get("REAL_TOPIC") == topic]


@pytest.mark.parametrize("kind", [HALF, GIVEN_UP])
def test_half_messages_are_equal(played, kind):
    _, stored, _ = played
    java, python = ([told(one) for one in of(stored, kind, topic)] for topic in ("java", "python"))
    assert sorted(python, key=repr) == sorted(java, key=repr) and java
    for topic in ("java", "python"):
        for one in of(stored, kind, topic):
            properties = one.properties
            assert properties["PGROUP"] == topic[0] and properties["REAL_QID"] in "0123" and one.queue_id == 0
            assert (
                properties.get("__transactionId__", properties[PROPERTY_UNIQUE_KEY]) == properties[PROPERTY_UNIQUE_KEY]
            )


def test_committed_messages_are_equal(played):
    _, stored, _ = played
    java, python = (sorted([told(one) for one in stored[topic]], key=repr) for topic in ("java", "python"))
    assert python == java and sorted(one.body.decode() for one in stored["python"]) == CONSUMED
    halves = {one.phy_offset: one for one in stored[HALF]}
    for topic in ("java", "python"):
        for one in stored[topic]:
            half = halves[one.prepared_transaction_offset]
            assert one.sys_flag & FLAG_TRANSACTION_MASK == FLAG_COMMIT
            assert half.properties[PROPERTY_UNIQUE_KEY] == one.properties[PROPERTY_UNIQUE_KEY]
            assert half.properties["REAL_QID"] == str(one.queue_id) and half.born_timestamp == one.born_timestamp


def test_op_marks_are_of_the_same_halves(played):
    """A mark has the queue offset of each half message that is done: those with an end, and those moved by a check."""
    _, stored, _ = played
    halves = {one.queue_offset: one for one in stored[HALF]}
    done = [int(text) for mark in stored[OP] for text in mark.body.decode().split(",") if text]
    marked = {"java": [], "python": []}
    for offset in done:
        half = halves[offset]
        topic = half.properties["REAL_TOPIC"]
        if topic in marked:
            marked[topic].append((half.body, half.properties.get("TRANSACTION_CHECK_TIMES")))
    assert sorted(marked["python"], key=repr) == sorted(marked["java"], key=repr) and marked["java"]


def test_traces_are_equal(played):
    _, stored, _ = played
    java, python = (
        sorted([shown(one) for message in stored[f"{topic}-traces"] for one in decode_traces(message.body)], key=repr)
        for topic in ("java", "python")
    )
    assert python == java and {one["type"] for one in java} == {"Pub", "EndTransaction"}


def shown(record):
    """A record of message trace without times, ids and names."""
    varying = ("timestamp", "msgId", "costTime", "offsetMsgId", "transactionId", "topic", "group")
    return {name: "" if name in varying else value for name, value in record.items()}
