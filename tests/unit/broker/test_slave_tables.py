"""The tables of a master: bodies of all kinds, right and wrong, and what a slave has after it took them."""

import json
import logging
import os
import random

import pytest

from rocketc.broker.slave_tables import (
    DELAYS,
    GROUPS,
    OFFSETS,
    TIMER_CHECK,
    TIMER_COUNTS,
    TOPICS,
    SlaveTables,
)
from rocketc.derived import timer_check
from rocketc.derived.timer_check import TimerCheck
from rocketc.errors import BadRequestError, StoreIOError
from rocketc.tables.config_manager import path_of
from rocketc.tables.groups import SubscriptionGroupConfig, SubscriptionGroups
from rocketc.tables.offsets import ConsumerOffsets, DelayOffsets
from rocketc.tables.table_file import read_table
from rocketc.tables.topic_counts import TimerCounts
from rocketc.tables.topics import Topics

NOW = 1_700_000_000_000
VERSION = {"counter": 7, "stateVersion": 2, "timestamp": 1000}


class Slave:
    def __init__(self, root):
        self.root = root
        self.topics, self.groups, self.offsets = Topics(root), SubscriptionGroups(root), ConsumerOffsets(root)
        self.changed = []
        self.topics.on_change = lambda topic: self.changed.append(topic.topic_name)
        self.now = NOW
        self.tables = SlaveTables(
            root, self.topics, self.groups, self.offsets, TimerCounts(root), clock=lambda: self.now
        )

    def take(self, code, data):
        return self.tables.take(code, data if isinstance(data, bytes) else json.dumps(data).encode())

    def file(self, name):
        return read_table(path_of(self.root, name)).data


@pytest.fixture
def slave(memory_path):
    return Slave(memory_path)


def topics(*names, version=VERSION, **fields):
    table = {name: {"topicName": name, "readQueueNums": 3, "writeQueueNums": 4, "perm": 6, **fields} for name in names}
    return {"dataVersion": version, "topicConfigTable": table}


def groups(*names, version=VERSION, **others):
    table = {name: {"groupName": name, "retryMaxTimes": 5} for name in names}
    return {"dataVersion": version, "subscriptionGroupTable": table, **others}


# ---------------------------------------------------------------- topics and groups


def test_the_topics_are_those_of_the_master(slave):
    slave.topics.create("own")
    assert slave.take(TOPICS, topics("orders", "audit"))
    assert sorted(slave.topics) == ["audit", "orders"] and slave.topics["orders"].write_queue_nums == 4
    assert sorted(slave.changed) == ["audit", "orders", "own"]
    assert slave.file("topics.json")["dataVersion"] == VERSION
    assert sorted(slave.file("topics.json")["topicConfigTable"]) == ["audit", "orders"]
    assert sorted(Topics(slave.root)) == ["audit", "orders"]


def test_an_equal_version_changes_nothing(slave):
    slave.take(TOPICS, topics("orders"))
    assert not slave.take(TOPICS, topics("orders", "audit")) and list(slave.topics) == ["orders"]
    slave.take(GROUPS, groups("g"))
    assert not slave.take(GROUPS, groups("g", "h")) and list(slave.groups) == ["g"]


@pytest.mark.parametrize("change", [{"counter": 6}, {"timestamp": 999}, {"stateVersion": 1}])
def test_any_other_version_counts_also_an_older_one(slave, change):
    slave.take(TOPICS, topics("orders"))
    assert slave.take(TOPICS, topics("audit", version={**VERSION, **change})) and list(slave.topics) == ["audit"]
    slave.take(GROUPS, groups("g"))
    assert slave.take(GROUPS, groups("h", version={**VERSION, **change})) and list(slave.groups) == ["h"]


def test_a_change_of_the_slave_itself_does_not_last(slave):
    slave.take(GROUPS, groups("g"))
    slave.groups.create(SubscriptionGroupConfig("own"))
    assert slave.take(GROUPS, groups("g")) and list(slave.groups) == ["g"]


def test_a_table_of_rocketmq_4(slave):
    version = {"counter": 3, "timestamp": 9}
    slave.take(TOPICS, topics("orders", version=version))
    slave.take(GROUPS, groups("g", version=version))
    assert slave.file("topics.json")["dataVersion"] == version
    assert "attributes" not in slave.file("topics.json")["topicConfigTable"]["orders"]
    assert slave.file("subscriptionGroup.json")["dataVersion"] == version
    assert "forbiddenTable" not in slave.file("subscriptionGroup.json")
    assert not slave.take(TOPICS, topics("audit", version={"counter": 3, "timestatmp": 9}))  # the spelling of 4.0


def test_fields_of_newer_releases_are_kept(slave):
    slave.take(TOPICS, topics("orders", newField={"a": 1}))
    assert slave.file("topics.json")["topicConfigTable"]["orders"]["newField"] == {"a": 1}


def test_missing_fields_have_their_defaults(slave):
    slave.take(TOPICS, {"dataVersion": VERSION, "topicConfigTable": {"orders": {"topicName": "orders"}}})
    assert (slave.topics["orders"].read_queue_nums, slave.topics["orders"].perm) == (16, 6)


def test_what_groups_must_not_read(slave):
    slave.take(GROUPS, groups("g", forbiddenTable={"g": {"orders": 4}}))
    assert not slave.groups.is_readable("g", "orders")
    assert slave.file("subscriptionGroup.json")["forbiddenTable"] == {"g": {"orders": 4}}
    before = slave.groups.generation
    slave.take(GROUPS, groups("g", version={**VERSION, "counter": 8}, forbiddenTable={}))
    assert slave.groups.is_readable("g", "orders") and slave.groups.generation > before


def test_an_entry_that_is_not_valid_keeps_the_former_one(slave, caplog):
    slave.take(TOPICS, topics("orders"))
    wrong = topics("orders", "audit", version={**VERSION, "counter": 8})
    wrong["topicConfigTable"]["orders"]["perm"] = "RW"
    wrong["topicConfigTable"]["more"] = 5
    assert slave.take(TOPICS, wrong)
    assert sorted(slave.topics) == ["audit", "orders"] and slave.topics["orders"].perm == 6
    [record] = caplog.records
    assert record.levelno == logging.WARNING and record.getMessage().startswith("2 topics of the master can't be used:")


@pytest.mark.parametrize("code", [TOPICS, GROUPS])
def test_an_empty_table_is_refused(slave, code):
    slave.topics.create("own")
    for empty in (topics(), groups()):
        with pytest.raises(BadRequestError, match=r"is empty|not a JSON object"):
            slave.take(code, empty)
    assert list(slave.topics) == ["own"]


# ---------------------------------------------------------------- offsets


def test_offsets_of_a_pair_replace_its_queues_and_others_stay(slave):
    for queue, offset in ((0, 3), (1, 4)):
        slave.offsets.commit("orders", "audit", queue, offset)
    slave.offsets.commit("orders", "own", 0, 9)
    version = b'"dataVersion":{"counter":7,"stateVersion":2,"timestamp":1000}'
    slave.take(OFFSETS, b"{" + version + b',"offsetTable":{"orders@audit":{0:2}}}')
    assert sorted(slave.offsets.items()) == [("orders", "audit", 0, 2), ("orders", "own", 0, 9)]
    assert slave.file("consumerOffset.json")["offsetTable"] == {"orders@audit": {0: 2}, "orders@own": {0: 9}}
    assert slave.file("consumerOffset.json")["dataVersion"] == VERSION


def test_equal_offsets_are_not_written_again(slave):
    data = {"dataVersion": VERSION, "offsetTable": {"orders@audit": {"0": 2}}}
    assert slave.take(OFFSETS, data) and not slave.take(OFFSETS, data)
    slave.offsets.commit("orders", "audit", 0, 3)  # by a consumer that reads from the slave
    assert slave.take(OFFSETS, data) and slave.offsets.get("orders", "audit", 0) == 2
    assert slave.take(OFFSETS, {**data, "dataVersion": {**VERSION, "counter": 8}})


def test_offsets_of_rocketmq_4_lack_a_version(slave):
    assert slave.take(OFFSETS, b'{"offsetTable":{"orders@audit":{"0":2,1:-1}}}')
    assert dict(slave.offsets.queues("orders", "audit")) == {0: 2, 1: -1}


def test_delay_offsets_are_written(slave):
    data = {"dataVersion": VERSION, "offsetTable": {"1": 11, "18": 2}}
    assert slave.take(DELAYS, data) and not slave.take(DELAYS, data)
    assert slave.file("delayOffset.json") == {"dataVersion": VERSION, "offsetTable": {1: 11, 18: 2}}
    assert slave.take(DELAYS, {"offsetTable": {"1": 12}})
    assert DelayOffsets(slave.root).get(1) == 12 and DelayOffsets(slave.root).get(18) == 0


@pytest.mark.parametrize("table", [{"0": 1}, {"-1": 1}, {"1": -1}])
def test_impossible_delay_offsets_change_nothing(slave, table):
    slave.take(DELAYS, {"offsetTable": {"1": 11}})
    with pytest.raises(BadRequestError, match="impossible"):
        slave.take(DELAYS, {"offsetTable": table})
    assert DelayOffsets(slave.root).items() == [(1, 11)]


def test_counts_of_timed_messages_are_written(slave):
    data = {"dataVersion": VERSION, "timingCount": {"orders": {"count": 4, "timeStamp": 99}}}
    assert slave.take(TIMER_COUNTS, data) and not slave.take(TIMER_COUNTS, data)
    assert TimerCounts(slave.root).items() == [("orders", 4)]
    assert slave.file("timermetrics")["dataVersion"] == VERSION


def test_a_timercheck_lets_the_next_master_make_its_wheel(slave):
    told = TimerCheck(NOW - 3000, 0, 10, 4, 1, NOW - 9000, 12)
    assert slave.take(TIMER_CHECK, told.encode()[:56])
    path = os.path.join(slave.root, "config", "timercheck")
    assert timer_check.read(path) == TimerCheck(NOW - 3000, 1, 10, 10, 1, NOW, 12)
    assert timer_check.read(path).read_time == NOW - 3000  # not the time at which the master wrote it
    slave.now += 1000
    assert not slave.take(TIMER_CHECK, told.encode())
    assert slave.take(TIMER_CHECK, TimerCheck(NOW - 2000, 52, 11, 4, 1, NOW - 9000, 12).encode())
    assert timer_check.read(path).last_timer_log_flush_pos == 52


# ---------------------------------------------------------------- wrong answers

TABLES = {
    TOPICS: topics("orders"),
    GROUPS: groups("g", forbiddenTable={}),
    OFFSETS: {"dataVersion": VERSION, "offsetTable": {"orders@audit": {"0": 1}}},
    DELAYS: {"dataVersion": VERSION, "offsetTable": {"1": 1}},
    TIMER_COUNTS: {"dataVersion": VERSION, "timingCount": {"orders": {"count": 1, "timeStamp": 2}}},
}
NOT_A_TABLE = [b"", b"null", b"[]", b"5", b'"x"', b"{", b"\xff", b"[" * 5000, b'{"offsetTable":{"a@b":{0:1}}', b"{}"]


@pytest.mark.parametrize("code", [*TABLES, TIMER_CHECK])
@pytest.mark.parametrize("body", NOT_A_TABLE, ids=range(len(NOT_A_TABLE)))
def test_what_is_not_a_table_changes_nothing(slave, code, body):
    with pytest.raises(BadRequestError):
        slave.take(code, body)
    assert not os.path.exists(os.path.join(slave.root, "config"))


def places(value, path=()):
    """The paths to all members of nested objects."""
    for name, found in value.items():
        yield (*path, name)
        if isinstance(found, dict):
            yield from places(found, (*path, name))


MEMBERS = [(code, path) for code, table in TABLES.items() for path in places(table)]
OTHERS = [5, -1, 1 << 70, "x", "7", True, None, [], {}, [1], {"a": {}}, 0.5]


@pytest.mark.parametrize(("code", "path"), MEMBERS, ids=str)
def test_a_wrong_or_missing_member_is_an_error_or_a_default(slave, code, path):
    """No other error, and a table that can be written and read again."""
    for other in (*OTHERS, "missing"):
        table = json.loads(json.dumps(TABLES[code]))
        inner = table
        for name in path[:-1]:
            inner = inner[name]
        if other == "missing":
            del inner[path[-1]]
        else:
            inner[path[-1]] = other
        try:
            slave.take(code, table)
        except BadRequestError:
            continue
    for kind in (Topics, SubscriptionGroups, ConsumerOffsets, DelayOffsets, TimerCounts):
        assert kind(slave.root).load_error is None


@pytest.mark.parametrize("seed", range(20))
def test_cut_and_changed_bytes(slave, seed):
    chance = random.Random(seed)
    for code, table in TABLES.items():
        whole = json.dumps(table).encode()
        for _ in range(20):
            at = chance.randrange(len(whole))
            wrong = whole[:at] + bytes([chance.randrange(256)]) + whole[at + chance.randrange(2) :]
            for body in (wrong, whole[:at]):
                try:
                    slave.take(code, body)
                except BadRequestError:
                    pass


@pytest.mark.parametrize("raw", [b"x" * 55, TimerCheck(last_timer_queue_offset=-1).encode(), b"\xff" * 4096])
def test_a_wrong_timercheck(slave, raw):
    with pytest.raises(BadRequestError):
        slave.take(TIMER_CHECK, raw)
    assert not os.path.exists(os.path.join(slave.root, "config", "timercheck"))


def test_huge_tables(slave):
    names = [f"topic{n}" for n in range(20_000)]
    slave.take(TOPICS, topics(*names))
    assert len(slave.topics) == 20_000 and len(Topics(slave.root)) == 20_000
    many = {f"{name}@g": {str(queue): 1 for queue in range(8)} for name in names}
    slave.take(OFFSETS, {"offsetTable": many})
    assert sum(1 for _ in slave.offsets.items()) == 160_000


def test_a_huge_text_that_is_not_json_fails_fast(slave):
    with pytest.raises(BadRequestError, match="not JSON"):
        slave.take(OFFSETS, b'{"offsetTable":{' + b'"a":{0:1},' * 50_000 + b"!")


# ---------------------------------------------------------------- the disk


def test_a_table_that_is_not_written_is_written_with_the_next_answer(slave):
    config = os.path.join(slave.root, "config")
    open(config, "w").close()
    for code, table in TABLES.items():
        with pytest.raises(StoreIOError):
            slave.take(code, table)
    assert slave.topics["orders"]
    os.unlink(config)
    for code, table in TABLES.items():
        slave.take(code, table)
    assert list(Topics(slave.root)) == ["orders"] and list(SubscriptionGroups(slave.root)) == ["g"]
    assert ConsumerOffsets(slave.root).get("orders", "audit", 0) == DelayOffsets(slave.root).get(1) == 1
    assert TimerCounts(slave.root).items() == [("orders", 1)]
