"""The tables of topics, groups, consumer offsets and delay offsets: read, change, write, damage."""

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from support import stores

from rocketc.errors import IllegalMessageError, StoreIOError
from rocketc.tables.fastjson import parse
from rocketc.tables.groups import SubscriptionGroupConfig, SubscriptionGroups
from rocketc.tables.offsets import ConsumerOffsets, DelayOffsets
from rocketc.tables.table_file import read_table
from rocketc.tables.topics import PERM_READ, TopicConfig, Topics, is_system_topic, topic_name_error

BROKERS = ["v497-broker", "v533-broker", "flights-2013-01"]
NOW = 1_800_000_000_000


def clock() -> int:
    return NOW


@pytest.fixture
def broker(tmp_path):
    """broker(name): a copy of a golden store's tables."""

    def make(name: str) -> Path:
        return stores.unpack(name, tmp_path).path

    return make


def of_version(raw: bytes, counter: int) -> bytes:
    """Return the file with another dataVersion."""
    data = parse(raw)
    old = data["dataVersion"]
    text = raw.decode()
    text = text.replace(f'"counter":{old["counter"]}', f'"counter":{counter}', 1)
    return text.replace(f'"timestamp":{old["timestamp"]}', f'"timestamp":{NOW}', 1).encode()


# ---------------------------------------------------------------- topics
def test_the_defaults_are_rocketmqs():
    one = TopicConfig("orders")
    assert (one.read_queue_nums, one.write_queue_nums, one.perm, one.order) == (16, 16, 6, False)
    assert (one.topic_filter_type, one.topic_sys_flag, one.attributes) == ("SINGLE_TAG", 0, {})
    assert (one.queue_type, one.cleanup_policy, one.message_type) == ("SimpleCQ", "DELETE", "UNSPECIFIED")


@pytest.mark.parametrize("name", BROKERS)
def test_topics_of_a_broker(broker, name):
    root = broker(name)
    raw = read_table(root / "config/topics.json").data["topicConfigTable"]
    topics = Topics(root)
    assert list(topics) == list(raw)
    for topic, config in topics.items():
        assert (config.topic_name, config.read_queue_nums) == (topic, raw[topic]["readQueueNums"])
        assert config.to_file() == {"attributes": {}, **raw[topic]}
    assert topics.load_error is None and not topics.changed and not topics.persist()
    if name == "v533-broker":
        assert topics["Inner"].queue_type == "BatchCQ"
        assert topics["rmq_sys_SYNC_BROKER_MEMBER_golden-a"].perm == 1


@pytest.mark.parametrize("name", BROKERS)
def test_a_reverted_change_restores_the_brokers_file_except_its_version(broker, name):
    path = broker(name) / "config/topics.json"
    raw = path.read_bytes()
    topics = Topics(path.parents[1], clock=clock)
    counter = topics.version[0]
    made = topics.create("new", queues=3)
    assert parse(path.read_bytes())["topicConfigTable"]["new"]["writeQueueNums"] == 3
    assert ("attributes" in parse(path.read_bytes())["topicConfigTable"]["new"]) is (name != "v497-broker")
    assert topics.version == (counter + 1, NOW)
    assert topics.create("new", queues=3) == made  # nothing changes, so nothing is counted or written
    assert topics.version == (counter + 1, NOW)
    assert topics.delete(["new", "none"]) == ["new"]
    assert path.read_bytes() == of_version(raw, counter + 2)


def test_a_recreated_topic_has_the_position_of_a_brokers(broker):
    path = broker("v533-broker") / "config/topics.json"
    raw = path.read_bytes()
    topics = Topics(path.parents[1], clock=clock)
    kept = {name: topics[name] for name in ("Orders", "Inner", "TBW102", "%RETRY%G_audit") if name in topics}
    topics.delete(kept)
    for name, config in reversed(kept.items()):
        topics.create(
            name,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            attributes={f"+{key}": value for key, value in config.attributes.items()},
        )
    counter = parse(raw)["dataVersion"]["counter"] + 2 * len(kept)
    assert path.read_bytes() == of_version(raw, counter)


NEW_TABLE = """{
    "dataVersion":{
        "counter":1,
        "stateVersion":0,
        "timestamp":1800000000000
    },
    "topicConfigTable":{
        "orders":{
            "attributes":{
                "message.type":"FIFO"
            },
            "order":true,
            "perm":6,
            "readQueueNums":8,
            "topicFilterType":"SINGLE_TAG",
            "topicName":"orders",
            "topicSysFlag":0,
            "writeQueueNums":8
        }
    }
}"""


def test_a_store_without_topics(tmp_path):
    topics = Topics(tmp_path, clock=clock)
    assert len(topics) == 0 and "orders" not in topics and topics.get("orders") is None
    topics.create("orders", queues=8, message_type="FIFO", order=True)
    assert (tmp_path / "config/topics.json").read_text() == NEW_TABLE.replace("    ", "\t")
    assert Topics(tmp_path)["orders"] == topics["orders"]


def test_what_is_not_given_stays(tmp_path):
    """A call without a number of queues does not hide queues with messages from consumers."""
    topics = Topics(tmp_path)
    made = topics.create("orders", read_queue_nums=16, write_queue_nums=8, perm=PERM_READ, order=True)
    assert topics.create("orders") == made == topics.create("orders", perm=PERM_READ)
    assert topics.create("orders", queues=2, order=False) == replace(
        made, read_queue_nums=2, write_queue_nums=2, order=False
    )
    new = topics.create("bills")
    assert (new.read_queue_nums, new.write_queue_nums, new.perm, new.order) == (4, 4, 6, False)


def test_names_of_both_kinds(tmp_path):
    """A damaged file mixes whole numbers with names: it is written in the order of the texts of both."""
    path = tmp_path / "config/topics.json"
    path.parent.mkdir()
    path.write_text('{0:1,"topicConfigTable":{"orders":{"topicName":"orders",7:8}}}')
    Topics(tmp_path).create("orders", queues=2)
    found = read_table(path).data
    assert found[0] == 1 and found["topicConfigTable"]["orders"][7] == 8
    assert Topics(tmp_path)["orders"].read_queue_nums == 2


def test_unknown_fields_of_newer_releases_are_kept(tmp_path):
    path = tmp_path / "config/topics.json"
    path.parent.mkdir()
    path.write_text(
        '{"dataVersion":{"counter":7,"timestatmp":1},"more":{"a":1},"topicConfigTable":{"a":{"topicName":"a","new":[1]}}}'
    )
    topics = Topics(tmp_path, clock=clock)
    topics.create("a", queues=2)
    data = read_table(path).data
    assert data["dataVersion"] == {"counter": 8, "timestatmp": NOW}  # RocketMQ 4.0 has this spelling
    assert data["more"] == {"a": 1}
    assert data["topicConfigTable"]["a"] == {
        "new": [1], "order": False, "perm": 6, "readQueueNums": 2, "topicFilterType": "SINGLE_TAG", "topicName": "a",
        "topicSysFlag": 0, "writeQueueNums": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("orders", None), ("%RETRY%a_b-c|d", None), ("a" * 127, None), ("%RETRY%" + "a" * 248, None),
        ("%DLQ%" + "a" * 250, None), ("", "be empty"), (" \t", "be empty"), ("a b", "letters"), ("a.b", "letters"),
        ("ä", "letters"), ("a\n", "letters"), ("a" * 128, "127 characters at most, not 128"),
        ("%RETRY%" + "a" * 249, "255 characters at most, not 256"), ("x%RETRY%" + "a" * 200, "127 characters"),
    ],
)  # fmt: skip
def test_names(tmp_path, name, wrong):
    topics = Topics(tmp_path)
    if wrong is None:
        assert topic_name_error(name) is None
        assert topics.create(name).topic_name == name
        assert Topics(tmp_path)[name] == topics[name]
        return
    assert wrong in topic_name_error(name)
    with pytest.raises(IllegalMessageError, match=wrong):
        topics.create(name)
    assert topics.auto_create(name) is None
    assert not topics and not topics.persist()


@pytest.mark.parametrize(
    "values",
    [
        {"queues": -1}, {"queues": 1 << 31}, {"queues": True}, {"queues": "4"}, {"read_queue_nums": 1.5}, {"perm": 16},
        {"perm": -1}, {"queue_type": "Simple"}, {"message_type": "fifo"}, {"attributes": {"cleanup.policy": "KEEP"}},
        {"attributes": {"a": 1}}, {"order": 1},
    ],
)  # fmt: skip
def test_values_that_rocketmq_does_not_have(tmp_path, values):
    topics = Topics(tmp_path)
    with pytest.raises(ValueError, match="orders: "):
        topics.create("orders", **values)
    assert not topics


def test_attributes_change_as_with_rocketmqs_tools(tmp_path):
    topics = Topics(tmp_path)
    topics.create("a", queue_type="BatchCQ", attributes={"reserve.time": "1000", "+message.type": "FIFO"})
    assert topics["a"].attributes == {"queue.type": "BatchCQ", "reserve.time": "1000", "message.type": "FIFO"}
    topics.create("a", attributes={"-reserve.time": "", "+message.type": "NORMAL"})
    assert topics["a"].attributes == {"queue.type": "BatchCQ", "message.type": "NORMAL"}
    for change in ({"+queue.type": "SimpleCQ"}, {"-queue.type": ""}):
        with pytest.raises(ValueError, match=r"a: queue.type is BatchCQ and can't be changed"):
            topics.create("a", attributes=change)


def test_many_topics_are_written_at_once(tmp_path):
    topics = Topics(tmp_path)
    for number in range(100):
        topics.create(f"t{number}", persist=False)
    assert topics.changed and not (tmp_path / "config").exists()
    assert topics.persist() and len(Topics(tmp_path)) == 100


# ---------------------------------------------------------------- created by a put
def test_a_put_to_an_unknown_topic_creates_four_queues(tmp_path):
    topics = Topics(tmp_path)
    made = topics.auto_create("orders")
    assert (made.read_queue_nums, made.write_queue_nums, made.perm) == (4, 4, 6)
    assert topics.auto_create("orders") is made
    assert not (tmp_path / "config").exists() and topics.changed  # in memory at once, on the disk later
    assert topics.persist() and not topics.changed
    assert Topics(tmp_path)["orders"] == made


def test_no_more_queues_than_the_default_topic_has(tmp_path):
    topics = Topics(tmp_path, default_topic_queue_nums=2)
    assert topics.auto_create("a").write_queue_nums == 2
    assert topics.auto_create("b", queues=1).write_queue_nums == 1
    topics.create("TBW102", queues=3, perm=7)
    assert topics.auto_create("c", queues=16).write_queue_nums == 3


def test_permissions_are_inherited_without_the_inherit_bit(tmp_path):
    topics = Topics(tmp_path)
    topics.create("TBW102", queues=8, perm=5)
    assert topics.auto_create("a").perm == 4
    topics.create("TBW102", queues=8, perm=6)  # without the inherit bit no topic is created
    assert topics.auto_create("b") is None


def test_auto_creation_can_be_disabled(tmp_path):
    topics = Topics(tmp_path, auto_create_topic_enable=False)
    assert topics.auto_create("orders") is None
    retry = topics.auto_create("%RETRY%audit")  # it is created nevertheless, as in a broker
    assert (retry.read_queue_nums, retry.write_queue_nums, retry.perm) == (1, 1, 6)
    topics.create("orders")
    assert topics.auto_create("orders") is topics["orders"]


def test_threads_create_a_topic_once(tmp_path):
    topics = Topics(tmp_path)
    made = []

    def make() -> None:
        for number in range(200):
            made.append(topics.auto_create(f"t{number}"))
            if number % 20 == 0:
                topics.persist()

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    topics.persist()
    assert len({id(config) for config in made}) == 200 == len(Topics(tmp_path))
    assert topics.version[0] == 200


# ---------------------------------------------------------------- damage
@pytest.mark.parametrize("kind", [Topics, SubscriptionGroups, ConsumerOffsets, DelayOffsets])
@pytest.mark.parametrize("main", [b"", b"{", b"\0" * 50, b'{"a":'])
@pytest.mark.parametrize("bak", [None, b"noise"])
def test_a_table_with_a_damaged_bak_is_reported_and_empty(tmp_path, caplog, kind, main, bak):
    path = tmp_path / "config" / kind.NAME
    path.parent.mkdir()
    path.write_bytes(main)
    if bak is not None:
        Path(f"{path}.bak").write_bytes(bak)
    table = kind(tmp_path)
    assert list(table.items()) == [] and not table.changed
    assert str(path) in table.load_error and table.load_error.endswith("it is read as empty")
    assert [(record.name, record.message) for record in caplog.records] == [("rocketc.tables", table.load_error)]


def test_a_damaged_table_is_read_from_its_bak(tmp_path, caplog):
    Topics(tmp_path).create("a")
    Topics(tmp_path).create("b")
    path = tmp_path / "config/topics.json"
    for damage in (path.read_bytes()[:-3], b"", None):
        caplog.clear()
        path.unlink() if damage is None else path.write_bytes(damage)
        topics = Topics(tmp_path)
        assert list(topics) == ["a"]
        if damage is not None:  # a broker that died while it replaced the file leaves no main file, which is fine
            assert topics.load_error.endswith("topics.json.bak was read instead") and topics.load_error in caplog.text
        else:
            assert topics.load_error is None and not caplog.records


def test_an_unreadable_table_is_an_error(tmp_path):
    path = tmp_path / "config/topics.json"
    path.mkdir(parents=True)
    with pytest.raises(StoreIOError):
        Topics(tmp_path)


@pytest.mark.parametrize("entry", ["1", "[]", '{"perm":"rw"}', '{"readQueueNums":-1}', '{"attributes":{"a":1}}', "{}"])
def test_an_invalid_entry_is_skipped_alone(tmp_path, entry):
    path = tmp_path / "config/topics.json"
    path.parent.mkdir()
    path.write_text('{"topicConfigTable":{"a":{"topicName":"a"},"b":%s}}' % entry)
    topics = Topics(tmp_path)
    assert list(topics) == ["a"] and f"{path}: b: " in topics.load_error


def test_parts_of_other_types(tmp_path):
    (tmp_path / "config").mkdir()
    for kind, text in (
        (Topics, '{"topicConfigTable":[1]}'),
        (ConsumerOffsets, '{"offsetTable":7}'),
        (DelayOffsets, '{"offsetTable":{"a":1}}'),
        (SubscriptionGroups, '{"dataVersion":4,"subscriptionGroupTable":null}'),
    ):
        (tmp_path / "config" / kind.NAME).write_text(text)
        table = kind(tmp_path)
        assert list(table.items()) == [] and table.load_error
    offsets = tmp_path / "config/consumerOffset.json"
    offsets.write_text('{"offsetTable":{"a@b":{0:1},"c@d":{0:"x"},"e@f":{"g":1},"h@i":7,"j@k":{"3":4}}}')
    table = ConsumerOffsets(tmp_path)
    assert list(table.items()) == [("a", "b", 0, 1), ("j", "k", 3, 4)] and table.load_error.count("skipped") == 3


def test_a_write_that_fails_can_be_repeated(tmp_path, monkeypatch):
    topics = Topics(tmp_path)
    real = os.fsync

    def failing(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(StoreIOError):
        topics.create("orders")
    assert "orders" in topics and topics.changed
    monkeypatch.setattr(os, "fsync", real)
    assert topics.persist()
    assert "orders" in Topics(tmp_path)


# ---------------------------------------------------------------- groups
@pytest.mark.parametrize("name", BROKERS)
def test_groups_of_a_broker(broker, name):
    path = broker(name) / "config/subscriptionGroup.json"
    raw = path.read_bytes()
    groups = SubscriptionGroups(path.parents[1], clock=clock)
    table = parse(raw)["subscriptionGroupTable"]
    assert list(groups) == list(table)
    for group, config in groups.items():
        assert config.to_file().items() >= table[group].items()
    counter = groups.version[0]
    assert groups.create(SubscriptionGroupConfig("new", retry_max_times=2))
    assert not groups.create(SubscriptionGroupConfig("new", retry_max_times=2))
    new = parse(path.read_bytes())["subscriptionGroupTable"]["new"]
    assert new.keys() == table["SELF_TEST_C_GROUP"].keys() and new["retryMaxTimes"] == 2
    assert groups.delete("new") == ["new"]
    assert path.read_bytes() == of_version(raw, counter + 2)


def test_a_new_table_of_groups_is_one_of_rocketmq_5(tmp_path):
    SubscriptionGroups(tmp_path).create(SubscriptionGroupConfig("a"))
    data = read_table(tmp_path / "config/subscriptionGroup.json").data
    assert list(data) == ["dataVersion", "forbiddenTable", "subscriptionGroupTable"]
    assert data["subscriptionGroupTable"]["a"]["groupRetryPolicy"] == {"type": "CUSTOMIZED"}
    with pytest.raises(ValueError, match="retry_queue_nums is '1', not int"):
        SubscriptionGroupConfig("a", retry_queue_nums="1")


# ---------------------------------------------------------------- offsets
@pytest.mark.parametrize("name", BROKERS)
def test_offsets_of_a_broker(broker, name):
    path = broker(name) / "config/consumerOffset.json"
    raw = path.read_bytes()
    data = parse(raw)
    offsets = ConsumerOffsets(path.parents[1], clock=clock)
    assert {(f"{topic}@{group}", queue, at) for topic, group, queue, at in offsets.items()} == {
        (key, queue, at) for key, queues in data["offsetTable"].items() for queue, at in queues.items()
    }
    topic, group, queue, at = next(offsets.items())
    assert offsets.get(topic, group, queue) == at and offsets.queues(topic, group)[queue] == at
    offsets.commit(topic, group, queue, at)
    assert offsets.persist() and not offsets.persist()
    assert path.read_bytes() == (raw if name == "v497-broker" else of_version(raw, data["dataVersion"]["counter"] + 1))


def test_an_offset_is_the_last_committed_one(tmp_path):
    offsets = ConsumerOffsets(tmp_path)
    assert offsets.get("a", "g", 0) == -1 and offsets.queues("a", "g") == {}
    offsets.commit("a", "g", 0, 100)
    offsets.commit("a", "g", 0, 7)  # smaller ones, too
    assert offsets.get("a", "g", 0) == 7
    with pytest.raises(ValueError, match=r"offset is .*; allowed are"):
        offsets.commit("a", "g", 0, 1 << 63)
    with pytest.raises((TypeError, AttributeError)):
        offsets.commit("a", "g", 0, "7")
    with pytest.raises(ValueError, match=r"level is .*; allowed are 1 to"):
        DelayOffsets(tmp_path).commit(0, 1)


def test_the_version_of_offsets_grows_with_the_first_and_every_500th_commit(tmp_path):
    offsets = ConsumerOffsets(tmp_path, clock=clock)
    counters = []
    for number in range(1002):
        offsets.commit("a", "g", 0, number)
        counters.append(offsets.version[0])
    assert [number for number in range(1002) if counters[number] != (counters[number - 1] if number else 0)] == [
        0,
        500,
        1000,
    ]


def test_offsets_can_be_removed(tmp_path):
    offsets = ConsumerOffsets(tmp_path)
    for topic in "ab":
        for group in "gh":
            offsets.commit(topic, group, 0, 1)
    with pytest.raises(TypeError):
        offsets.forget()
    assert offsets.forget(topic="a", group="g") == 1
    assert offsets.forget(group="h") == 2
    offsets.persist()
    assert list(ConsumerOffsets(tmp_path).items()) == [("b", "g", 0, 1)]
    assert read_table(tmp_path / "config/consumerOffset.json").data["groupTopicMap"] == {"g": ["b"]}
    assert offsets.forget(topic="c") == 0 and not offsets.changed


def test_delay_offsets(broker):
    path = broker("v533-broker") / "config/delayOffset.json"
    raw = path.read_bytes()
    offsets = DelayOffsets(path.parents[1], clock=clock)
    assert offsets.items() == [(1, 51), (2, 25), (3, 16), (17, 0), (18, 0)]
    offsets.commit(1, 51)
    offsets.persist()
    assert path.read_bytes() == of_version(raw, parse(raw)["dataVersion"]["counter"] + 1)
    path = broker("v497-unclean") / "config/delayOffset.json"
    raw = path.read_bytes()
    offsets = DelayOffsets(path.parents[1])
    offsets.commit(1, 2)
    offsets.persist()
    assert path.read_text() == '{\n\t"offsetTable":{1:2\n\t}\n}'


@pytest.mark.parametrize("topic", ["TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer"])
def test_system_topics(topic):
    assert is_system_topic(topic) and not is_system_topic(f"my_{topic}")
