"""Lists of consumers, queries and updates of offsets; codes and remarks were seen on a 5.3.3 broker."""

import json
from pathlib import Path

import pytest

from rocketc.broker import consumer_processor
from rocketc.broker.consumer_processor import ConsumerProcessor
from rocketc.broker.consumers import ClientChannel, ConsumerManager
from rocketc.broker.groups import GroupManager
from rocketc.broker.heartbeat import ConsumerData
from rocketc.broker.offsets import ConsumerOffsetManager
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command
from rocketc.remoting.requests import REQUESTS
from rocketc.remoting.server import Call
from rocketc.tables.groups import SubscriptionGroups
from rocketc.tables.offsets import ConsumerOffsets
from rocketc.tables.topics import TopicConfig

GOLDEN = Path(__file__).parents[2] / "golden/admin-5.3.3.jsonl"
QUERY = {"consumerGroup": "g", "topic": "orders", "queueId": "0"}
UPDATE = QUERY | {"commitOffset": "9"}
BOOTS_FIRST = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"


class Broker:
    """The processor with its registries; `ask` returns (code, fields, remark, body)."""

    def __init__(self, root):
        self.groups = GroupManager(SubscriptionGroups(root))
        self.groups.find("g")
        self.consumers = ConsumerManager(lambda *notice: None)
        self.offsets = ConsumerOffsetManager(ConsumerOffsets(root))
        self.topics = {name: TopicConfig(name, 4, 4) for name in ("orders", "%RETRY%g")}
        self.min_offsets, self.in_memory = {}, set()
        self.processor = ConsumerProcessor(
            self.consumers,
            self.offsets,
            self.groups,
            topics=self.topics,
            min_offset=lambda *queue: self.min_offsets.get(queue, -1),
            is_first_in_memory=lambda *queue: queue in self.in_memory,
        )

    def ask(self, code, fields):
        command = Command(code, fields)
        answer = self.processor.process(Call(command, REQUESTS[code].decode(fields), "a", print))
        return answer.code, REQUESTS[code].encode_answer(answer.values), answer.remark, answer.body

    def query(self, **fields):
        return self.ask(14, QUERY | fields)[:3]

    def update(self, **fields):
        sent = {name: text for name, text in (UPDATE | fields).items() if text is not None}
        return self.ask(15, sent)[::2]


@pytest.fixture
def broker(tmp_path):
    return Broker(tmp_path)


def test_answers_as_recorded(broker):
    lines = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]
    for line in lines:
        if line["code"] in (14, 15, 38):
            request = line["request"]
            broker.groups.find(request["consumerGroup"])
            broker.topics[request["topic"]] = TopicConfig(request["topic"])
            found = broker.ask(line["code"], request)
            assert found == (line["answerCode"], line["answer"], line["remark"], b"")
            assert broker.query(**request)[1] == {"offset": "8"}
            return
    pytest.fail("nothing recorded")


# ConsumerManageProcessorTest


def test_consumer_manage_processor_test_consumer_lists(broker):
    """Unknown group 1, group without channel 1, with channel 0."""
    unknown = (Code.SYSTEM_ERROR, {}, "no consumer for this group, g", b"")
    assert broker.ask(38, {"consumerGroup": "g"}) == unknown
    for connection, name in (("a", "c1"), ("b", "c2"), ("c", "c2"), ("d", "ü")):
        broker.consumers.register(connection, ClientChannel(name, "JAVA", 479, 0), ConsumerData("g"))
    body = '{"consumerIdList":["c1","c2","c2","ü"]}'.encode()
    assert broker.ask(38, {"consumerGroup": "g"}) == (Code.SUCCESS, {}, None, body)
    for connection in "abcd":
        broker.consumers.connection_lost(connection)
    assert broker.ask(38, {"consumerGroup": "g"}) == unknown
    assert broker.ask(38, {"consumerGroup": ""})[2] == "no consumer for this group, "


def test_consumer_manage_processor_test_update_of_unknown_topic_and_group(broker):
    assert broker.update(topic="nope") == (Code.TOPIC_NOT_EXIST, "Topic nope not exist!")
    assert broker.update(topic="") == (Code.TOPIC_NOT_EXIST, "Topic  not exist!")
    assert broker.update(consumerGroup="h", topic="nope") == (
        Code.SUBSCRIPTION_GROUP_NOT_EXIST, "Group h not exist!",
    )  # fmt: skip
    assert "h" not in broker.groups  # an update creates no group
    assert list(broker.offsets.table.items()) == []


@pytest.mark.parametrize("is_pending", [False, True])
def test_consumer_manage_processor_test_update_with_and_without_pending_reset(broker, is_pending):
    if is_pending:
        broker.offsets.reset("g", "orders", 0, 3)
    assert broker.update() == (Code.SUCCESS, "Offset has been previously reset" if is_pending else None)
    assert broker.query() == (Code.SUCCESS, {"offset": "3" if is_pending else "9"}, None)
    broker.offsets.take_reset("g", "orders", 0)
    assert broker.query() == (Code.SUCCESS, {"offset": "3" if is_pending else "9"}, None)
    assert broker.update() == (Code.SUCCESS, None) and broker.query()[1] == {"offset": "9"}


def test_consumer_manage_processor_test_queries(broker):
    """Nothing stored 22; stored 0: 0; stored -1, min -1, in memory: 0."""
    assert broker.query() == (Code.QUERY_NOT_FOUND, {}, BOOTS_FIRST)
    broker.update(commitOffset="0")
    assert broker.query() == (Code.SUCCESS, {"offset": "0"}, None)
    broker.update(commitOffset="-1")
    broker.in_memory.add(("orders", 0))
    assert broker.query() == (Code.SUCCESS, {"offset": "0"}, None)


@pytest.mark.parametrize(
    "least, in_memory, found", [(-1, True, True), (0, True, True), (0, False, False), (1, True, False)]
)
def test_a_new_group_starts_at_the_first_message_of_a_young_topic(broker, least, in_memory, found):
    broker.min_offsets["orders", 2] = least
    if in_memory:
        broker.in_memory.add(("orders", 2))
    zero = (Code.SUCCESS, {"offset": "0"}, None)
    assert broker.query(queueId="2") == (zero if found else (Code.QUERY_NOT_FOUND, {}, BOOTS_FIRST))
    assert broker.query(queueId="2", setZeroIfNotFound="true", consumerGroup="new") == broker.query(queueId="2")
    for no in ("false", "x"):
        code, _, remark = broker.query(queueId="2", setZeroIfNotFound=no)
        assert (code, remark) == (
            Code.QUERY_NOT_FOUND, "Not found, do not set to zero, maybe this group boot first",
        )  # fmt: skip


@pytest.mark.parametrize("fields", [{"topic": "nope"}, {"consumerGroup": "no such"}, {"queueId": "77"}])
def test_queries_of_what_is_not_there(broker, fields):
    assert broker.query(**fields) == (Code.QUERY_NOT_FOUND, {}, BOOTS_FIRST)


def test_updates_are_stored_as_given(broker):
    for offset in ("9", "2", "0", str((1 << 63) - 1)):
        assert broker.update(commitOffset=offset) == (Code.SUCCESS, None)
        assert broker.query() == (Code.SUCCESS, {"offset": offset}, None)
    assert broker.update(commitOffset="-9") == (Code.SUCCESS, None)
    assert broker.query() == (Code.QUERY_NOT_FOUND, {}, BOOTS_FIRST)
    assert broker.update(topic="%RETRY%g") == (Code.SUCCESS, None)


def test_updates_without_queue_or_offset(broker):
    assert broker.update(queueId=None) == (Code.INVALID_PARAMETER, "QueueId is null, topic is orders")
    assert broker.update(commitOffset=None) == (Code.INVALID_PARAMETER, "Offset is null, topic is orders")


def test_offsets_of_queues_that_do_not_exist_are_limited(broker, monkeypatch):
    monkeypatch.setattr(consumer_processor, "OTHER_QUEUES_MOST", 3)
    others = ["4", "-3", *map(str, range(1000, 1005))]
    for queue_id in others:
        assert broker.update(queueId=queue_id) == (Code.SUCCESS, None)  # 4 of the topic's own and 3 others fit
    for queue_id in ("5000", "5"):
        code, remark = broker.update(queueId=queue_id)
        assert code == Code.INVALID_PARAMETER and f"queue {queue_id} of topic orders does not exist" in remark
    assert broker.update(queueId="4", commitOffset="10") == (Code.SUCCESS, None)
    for queue_id in "0123":
        assert broker.update(queueId=queue_id) == (Code.SUCCESS, None)
