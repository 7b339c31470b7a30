"""A store moves from RocketMQ's broker to ours and back: clients see the same topics, groups, offsets and messages."""

import contextlib
import re
from collections import Counter
from pathlib import Path
from time import sleep

import pytest
from interop import scenarios
from interop.asking import Asking
from interop.our_broker import OurBroker, wait_for
from interop.peer import RELEASES
from support import stores
from support.ports import free_port

import rocketc
from rocketc.tables.fastjson import parse

LONG = pytest.mark.long

# The sizes of JavaCluster's stores, for our broker, as a broker.conf.
CONF = """
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
bindAddress=127.0.0.1
brokerIP1=127.0.0.1
mappedFileSizeCommitLog=33554432
mappedFileSizeConsumeQueue=60000
maxHashSlotNum=5000
maxIndexNum=20000
diskSpaceWarningLevelRatio=99
"""

# Java's log at level WARN, on stderr. 5.x has a logback of its own.
WARNINGS = """
<configuration>
  <appender name="all" class="{prefix}ch.qos.logback.core.ConsoleAppender">
    <target>System.err</target>
    <encoder><pattern>LOG %level %logger{{0}} %msg%n%ex{{3}}</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="all"/></root>
</configuration>
"""

# What RocketMQ's broker writes at each start: on an empty store, or on one of its own that was closed.
USUAL = re.compile(
    "No resource file|Load default|found a illegal magic code 0x0|truncate dirty logic files|RocketmqTransaction|"
    "The commitlog files are deleted|ServerBootstrap|"
    "Check transaction failed|"  # no producer is connected
    "Maybe try to build consume queue repeatedly|"  # after a kill
    "Trying do put delete timer msg|Skipping message due to unrecoverable error.*_RECALL_TAG_"  # a recall was due
)


class Home:
    """The folder of a cluster: its store, the port of its broker, and the process that serves it alternately."""

    def __init__(self, folder: Path, begin) -> None:
        self.folder, self._begin = folder, begin
        self.store = folder / "store"
        self._port = free_port(2)
        (folder / "broker.conf").write_text(CONF)
        self._logs = []
        for name, prefix in (("logback", ""), ("rmq.logback", "org.apache.rocketmq.logging.")):
            (folder / f"{name}.xml").write_text(WARNINGS.format(prefix=prefix))
            option = "-Dlogback.configurationFile" if name == "logback" else "-Drmq.logback.configurationFile"
            self._logs.append(f"{option}={folder / name}.xml")

    def unpack(self, name):
        """Take a golden store, and its settings instead of those of JavaCluster."""
        golden = stores.unpack(name, self.folder)
        golden.path.rename(self.store)
        sizes = {key: value for key, value in golden.about["config"].items() if "." not in key and key[:5] != "maped"}
        with (self.folder / "broker.conf").open("a") as file:
            file.writelines(f"{key}={value}\n" for key, value in sizes.items() if "Timer" not in key)
        return {f"store.{key}": value for key, value in sizes.items()}

    def theirs(self, release, **settings):
        """Start RocketMQ's broker; nothing in the store surprises it."""
        settings = {"brokerPort": self._port, **settings}
        broker = self._begin(scenarios.JavaCluster, release, self.folder, options=self._logs, **settings)
        broker.address = broker.broker
        lines = (self.folder / "JavaCluster.stderr").read_text(errors="replace").splitlines()
        assert [line for line in lines if line.startswith("LOG ") and not USUAL.search(line)] == []
        return broker

    def ours(self):
        return self._begin(OurBroker, self.store, "-c", self.folder / "broker.conf", "--port", self._port)

    def table(self, name):
        return parse((self.store / "config" / name).read_bytes())


@pytest.fixture
def home(tmp_path, begin):
    (tmp_path / "home").mkdir()
    return Home(tmp_path / "home", begin)


# ---------------------------------------------------------------- what clients see


def seen(broker, topics, offsets, *, every=1):
    """What clients see of a store: {(kind, ...): answer}.

    topics   names
    offsets  (topic, group, queue) to ask for
    every    ask for every n-th message by its key, id and time
    """
    found = {}
    names, asking = Asking(broker.name_server), Asking(broker.address)
    for topic in topics:
        code, _, body = names.ask("GET_ROUTEINFO_BY_TOPIC", topic=topic)
        queues = parse(body)["queueDatas"] if code == 0 else []
        found["route", topic] = code, queues
        for queue in range(max((data["readQueueNums"] for data in queues), default=0)):
            at = {"topic": topic, "queueId": queue}
            for kind in ("GET_MAX_OFFSET", "GET_MIN_OFFSET", "GET_EARLIEST_MSG_STORETIME"):
                found[kind, topic, queue] = asking.ask(kind, **at)
            found["messages", topic, queue] = records = pull_all(asking, at)
            for record in records[::-every]:
                [message] = rocketc.decode(record, None, crc="full", unwrap=False)
                look(found, asking, at, message)
    for topic, group, queue in offsets:
        found["offset", topic, group, queue] = asking.ask(
            "QUERY_CONSUMER_OFFSET", consumerGroup=group, topic=topic, queueId=queue
        )
    names.close()
    asking.close()
    return found


def pull_all(asking, at):
    """The records of a queue, as the answers of pulls have them."""
    records: list[bytes] = []
    offset = int(asking.ask("GET_MIN_OFFSET", **at)[1]["offset"])
    while True:
        fields = {"consumerGroup": "reader", "queueOffset": offset, "maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0}
        fields |= {"suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0, "expressionType": "TAG"}
        code, told, body = asking.ask("PULL_MESSAGE", **at, **fields)
        if code != 0:
            return records
        while body:
            size = int.from_bytes(body[:4], "big")
            records.append(body[:size])
            body = body[size:]
        offset = int(told["nextBeginOffset"])


def look(found, asking, at, message):
    """Look a message up by its keys, its place and its time."""
    topic, offset = at["topic"], message.phy_offset
    found["id", offset] = asking.ask("VIEW_MESSAGE_BY_ID", offset=offset)
    for time in (message.store_timestamp, message.store_timestamp + 1):
        found["time", topic, at["queueId"], time] = asking.ask("SEARCH_OFFSET_BY_TIMESTAMP", **at, timestamp=time)
    times = {"maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 60}
    keys = [(key, {}) for key in (message.keys or "").split()]
    if message.properties.get("UNIQ_KEY"):
        keys.append((message.properties["UNIQ_KEY"], {"_UNIQUE_KEY_QUERY": "true"}))
    for key, how in keys:
        code, _, body = asking.ask("QUERY_MESSAGE", topic=topic, key=key, **times, **how)
        found["key", topic, key, bool(how)] = code, body


def counts(broker, topics):
    """The number of messages in queues 0 to 2 of each topic."""
    asking = Asking(broker.address)
    queues = [(topic, asking.ask("GET_MAX_OFFSET", topic=topic, queueId=n)) for topic in topics for n in range(3)]
    asking.close()
    found = Counter()
    for topic, (_, told, _) in queues:
        found[topic] += int(told["offset"])
    return found


def compare(before, after, release):
    """Assert that clients see the same; name what differs first. A search by time has other rules in 4.9."""
    for what, answer in before.items():
        if what[0] != "time" or release > "5":
            assert after.get(what) == answer, what
    assert before.keys() == after.keys()


def committed(table):
    """(topic, group, queue) of all offsets in a consumerOffset.json."""
    pairs = [(*key.split("@", 1), queues) for key, queues in table["offsetTable"].items()]
    return [(topic, group, queue) for topic, group, queues in pairs for queue in queues]


def numbers(begin, end):
    return [f"n{n:03}" for n in range(begin, end)]


def change_tables(broker, release):
    """Topics and groups with settings of their own, made by RocketMQ's broker."""
    asking = Asking(broker.address)
    kinds = {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "defaultTopic": "TBW102"}
    for topic, read, write, perm, order in (
        ("moved", 3, 3, 6, False),
        ("wide", 5, 2, 4, True),
        ("unread", 1, 3, 2, False),
    ):
        fields = {"topic": topic, "readQueueNums": read, "writeQueueNums": write, "perm": perm, "order": order}
        more = {"attributes": "+message.type=FIFO"} if topic == "wide" and release > "5" else {}
        assert asking.ask(17, **kinds, **fields, **more)[0] == 0
    group = {"groupName": "own", "consumeEnable": False, "retryQueueNums": 3, "retryMaxTimes": 5, "brokerId": 1}
    assert asking.ask(200, group)[0] == 0
    asking.close()


SOME = ["send_properties", "send_zlib", "send_batch", "push_orderly", "lite_restart", "query_offsets"]
MANY = ["send_ordered", "send_large", "push_concurrent", "push_tags", "pull_offsets", "lite_seek", "query_unique_key"]


def play(clients, release, broker, names):
    for name, _, outcome in clients.run(names, broker.name_server):
        difference = scenarios.difference(scenarios.recorded()[release][name], outcome)
        assert difference == "" or (release < "5" and not isinstance(broker, OurBroker)), (name, difference)


def leave(broker, is_killed):
    """End a broker of ours or RocketMQ's."""
    if not is_killed:
        broker.end()
    elif isinstance(broker, OurBroker):
        broker.kill()
    else:
        broker.close()


@pytest.mark.long
@pytest.mark.parametrize("is_killed", [False, True], ids=["ended", "killed"])
@pytest.mark.parametrize("release", RELEASES)
def test_to_our_broker_and_back(begin, home, tmp_path, release, is_killed):
    clients = begin(scenarios.Clients, release, tmp_path / "clients")
    theirs = home.theirs(release)
    change_tables(theirs, release)
    play(clients, release, theirs, SOME + MANY)
    first = clients.step(theirs, "moved", "send", bodies=numbers(0, 20))
    assert sorted(clients.step(theirs, "moved", "consume", group="readers", count=20, millis=100)) == numbers(0, 20)
    clients.step(theirs, "moved", "send", bodies=numbers(20, 40))

    def written(group):
        """The sum of the offsets of a group in its file."""
        with contextlib.suppress(FileNotFoundError, ValueError):  # RocketMQ is writing it
            return sum(home.table("consumerOffset.json")["offsetTable"].get(f"moved@{group}", {}).values())

    def arrived(old, new, *, begin, end):
        """The second broker shows what the first one showed; the group continues."""
        topics = sorted(home.table("topics.json")["topicConfigTable"])
        before = seen(old, topics, [])
        if is_killed:  # offsets are written every 5 s, by RocketMQ after 10 s for the first time
            assert wait_for(lambda: written("readers") == begin, 25)
        leave(old, is_killed)
        tables = {name: home.table(name) for name in ("topics.json", "subscriptionGroup.json", "consumerOffset.json")}
        offsets = committed(tables["consumerOffset.json"])
        broker = new()
        compare(before, seen(broker, topics, []), release)
        found = seen(broker, [], offsets)
        for topic, group, queue in offsets:
            known = tables["consumerOffset.json"]["offsetTable"][f"{topic}@{group}"][queue]
            assert found["offset", topic, group, queue][1]["offset"] == str(known)
        came = clients.step(broker, "moved", "consume", group="readers", count=end - begin, millis=300)
        assert sorted(came) == numbers(begin, end)
        looked = clients.step(broker, "moved", "look", key="k-n007", id=first[7][3])
        assert looked == {"key": ["n007"], "id": "n007"}
        return broker, tables

    ours, tables = arrived(theirs, home.ours, begin=20, end=40)
    play(clients, release, ours, SOME)
    clients.step(ours, "moved", "send", bodies=numbers(40, 60))
    theirs, later = arrived(ours, lambda: home.theirs(release), begin=40, end=60)
    for name, key in (("topics.json", "topicConfigTable"), ("subscriptionGroup.json", "subscriptionGroupTable")):
        for entry, fields in tables[name][key].items():
            kept = later[name][key][entry]
            assert {field: kept[field] for field in fields} == fields, entry
    clients.step(theirs, "moved", "send", bodies=numbers(60, 80))
    arrived(theirs, home.ours, begin=60, end=80)


@pytest.mark.long
@pytest.mark.parametrize("name", ["v533-broker", "v497-broker"])
def test_a_store_of_rocketmqs_broker_and_back(home, name):
    """Our broker opens a store with all kinds of messages, adds some; RocketMQ's broker shows the same then."""
    settings = home.unpack(name)
    with rocketc.open(home.store, read_only=True) as store:
        begin = Counter({topic: sum(store.max_offset(topic, n) for n in range(3)) for topic in ("Delay", "Timer")})
    ours = home.ours()
    topics = set(home.table("topics.json")["topicConfigTable"])
    late = {"Delay", "Timer"} & topics
    offsets, known = committed(home.table("consumerOffset.json")), home.table("consumerOffset.json")["offsetTable"]
    found = seen(ours, [], offsets)
    for topic, group, queue in offsets:
        assert found["offset", topic, group, queue] == (0, {"offset": str(known[f"{topic}@{group}"][queue])}, b"")
    asking = Asking(ours.address)
    for n in range(6):
        sent = {"a": "p", "b": "Orders", "c": "TBW102", "d": 4, "e": n % 2, "f": 0, "g": 1, "h": 0, "m": False}
        assert asking.ask("SEND_MESSAGE_V2", b"new", i=f"KEYS\1new{n}\2UNIQ_KEY\1U{n}", **sent)[0] == 0
    told = {"consumerGroup": offsets[0][1], "topic": offsets[0][0], "queueId": offsets[0][2], "commitOffset": 2}
    assert asking.ask("UPDATE_CONSUMER_OFFSET", **told)[0] == 0
    asking.close()
    # Our broker delivers what waits for a delay level, and the timed messages of 5.x.
    assert wait_for(lambda: all(counts(ours, late)[topic] > begin[topic] for topic in late))
    sleep(1.0)
    before, delivered = seen(ours, topics - late, offsets, every=20), counts(ours, late)
    assert [what for what in before if what[:3] == ("key", "Orders", "new5")]
    ours.end()
    theirs = home.theirs("5.3.3", **settings)
    compare(before, seen(theirs, topics - late, offsets, every=20), "5.3.3")
    # RocketMQ's broker delivers none of them again.
    sleep(3.0)
    assert counts(theirs, late) == delivered
    assert delivered.get("Timer", 40) == 40


@LONG
@pytest.mark.promise(6)
@pytest.mark.parametrize("release", RELEASES)
def test_after_a_kill_rocketmq_finds_each_topic_that_was_answered(home, release):
    ours = home.ours()
    fields = {"defaultTopic": "TBW102", "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False}
    with contextlib.closing(Asking(ours.address)) as asking:
        for n in range(300):
            queues = {"readQueueNums": n % 8 + 1, "writeQueueNums": n % 8 + 1}
            assert asking.ask("UPDATE_AND_CREATE_TOPIC", topic=f"made{n}", **queues, **fields)[0] == 0
            group = {"groupName": f"group{n}", "retryMaxTimes": n}
            assert asking.ask("UPDATE_AND_CREATE_SUBSCRIPTIONGROUP", group)[0] == 0
        ours.kill()
    with contextlib.closing(Asking(home.theirs(release).address)) as asking:
        _, _, body = asking.ask("GET_ALL_TOPIC_CONFIG")
        topics = parse(body)["topicConfigTable"]
        _, _, body = asking.ask("GET_ALL_SUBSCRIPTIONGROUP_CONFIG")
        groups = parse(body)["subscriptionGroupTable"]
    assert [topics[f"made{n}"]["readQueueNums"] for n in range(300)] == [n % 8 + 1 for n in range(300)]
    assert [groups[f"group{n}"]["retryMaxTimes"] for n in range(300)] == list(range(300))
