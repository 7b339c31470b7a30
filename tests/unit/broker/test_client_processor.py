"""Heartbeats, unregistrations and checks of subscriptions; expected answers were seen on a 5.3.3 broker."""

import asyncio
import json
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from rocketc.broker import client_processor
from rocketc.broker.client_processor import ClientProcessor
from rocketc.broker.consumers import ConsumerManager
from rocketc.broker.groups import GroupManager
from rocketc.broker.heartbeat import decode_heartbeat
from rocketc.broker.producers import ProducerManager
from rocketc.errors import BadRequestError, RocketcError, StoreFullError
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command
from rocketc.remoting.requests import REQUESTS
from rocketc.remoting.server import Call
from rocketc.remoting.subscribing import ConsumeFromWhere, ConsumeType, MessageModel
from rocketc.tables.groups import SubscriptionGroupConfig, SubscriptionGroups
from rocketc.tables.topics import TopicConfig

GOLDEN = Path(__file__).parents[2] / "golden/admin-5.3.3.jsonl"
V1 = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
V2 = {**V1, "IS_SUB_CHANGE": "false"}


class Broker:
    """The processor with its registries; `ask` returns (code, fields, remark)."""

    def __init__(self, root, **options):
        self.now = 0
        self.notices, self.retry_topics = [], {}
        self.groups = GroupManager(SubscriptionGroups(root))
        self.consumers = ConsumerManager(lambda *notice: self.notices.append(notice), may_notify=self.groups.may_notify)
        self.producers = ProducerManager()
        self.topics = {"orders": TopicConfig("orders"), "ordered": TopicConfig("ordered", order=True)}
        self.processor = ClientProcessor(
            self.consumers,
            self.producers,
            self.groups,
            topics=self.topics,
            make_retry_topic=self.make_retry_topic,
            clock=lambda: self.now,
            **options,
        )

    def make_retry_topic(self, name, queues, *, order, sys_flag):
        self.topics[name] = TopicConfig(name, queues, queues, order=order, topic_sys_flag=sys_flag)

    def ask(self, code, body=b"", fields=None, connection="a", **others):
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        command = Command(code, fields or {}, body, **others)
        answer = self.processor.process(Call(command, REQUESTS[code].decode(command.fields), connection, print))
        assert answer.body == b""
        return answer.code, REQUESTS[code].encode_answer(answer.values), answer.remark

    def beat(self, body, **others):
        return self.ask(34, body, **others)

    def state(self):
        consumers = {group.name: (group.client_ids, list(group.subscriptions)) for group in self.consumers.groups()}
        return consumers, self.producers.groups(), set(self.groups.table), dict(self.topics)


@pytest.fixture
def broker(tmp_path):
    return Broker(tmp_path)


def group(name, *topics, **others):
    wanted = [{"topic": topic, "subString": "*", "subVersion": 1} for topic in topics]
    return {
        "groupName": name, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": wanted, "unitMode": False,
    } | others  # fmt: skip


def beat(*groups, client="c", producers=(), **others):
    shops = [{"groupName": name} for name in producers]
    return {"clientID": client, "consumerDataSet": list(groups), "producerDataSet": shops} | others


def golden(code):
    lines = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line["code"] == code]


@pytest.mark.parametrize("line", golden(34) + golden(35))
def test_answers_as_recorded(broker, line):
    body = (line["requestBody"] or "").encode()
    found = broker.ask(line["code"], body, line["request"])
    assert found == (line["answerCode"], line["answer"], line["remark"])


def test_a_heartbeat_registers_groups_producers_and_client(broker):
    broker.now = 77
    body = beat(group("audit", "orders", "other"), client="me", producers=["shop"])
    assert broker.beat(body, language="GO", version=253) == (Code.SUCCESS, V1, None)
    audit = broker.consumers.group("audit")
    assert (audit.consume_type, audit.message_model) == (ConsumeType.CONSUME_PASSIVELY, MessageModel.CLUSTERING)
    assert audit.consume_from_where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    channel = audit.channels["a"]
    assert (channel.client_id, channel.language, channel.version, channel.last_update) == ("me", "GO", 253, 77)
    assert sorted(audit.subscriptions) == ["orders", "other"]
    assert list(broker.producers.group("shop")) == ["a"]
    assert broker.topics["%RETRY%audit"] == TopicConfig("%RETRY%audit", 1, 1)
    assert broker.notices == [("a", "audit")]


def test_retry_topics(broker):
    """As many queues as the group says; ordered if a topic is; with the bit of unit mode."""
    broker.groups.table.create(SubscriptionGroupConfig("many", retry_queue_nums=3))
    broker.beat(beat(group("many", "orders"), group("unit", "ordered", unitMode=True)))
    assert broker.topics["%RETRY%many"].write_queue_nums == 3
    unit = broker.topics["%RETRY%unit"]
    assert (unit.order, unit.topic_sys_flag) == (True, 2)
    broker.beat(beat(group("many", "ordered")))
    assert broker.topics["%RETRY%many"].order
    broker.beat(beat(group("many"), heartbeatFingerprint=1, withoutSub=True))
    assert broker.topics["%RETRY%many"].order


def test_groups_that_may_not_exist_are_left_out(tmp_path):
    broker = Broker(tmp_path)
    broker.beat(beat(group("my audit", "orders"), group("", "orders"), group("g" * 256), group("fine", "orders")))
    assert [known.name for known in broker.consumers.groups()] == ["fine"]
    assert {name for name in broker.topics if name.startswith("%RETRY%")} == {"%RETRY%fine"}


def test_groups_are_not_notified_if_their_settings_forbid_it(broker):
    broker.groups.table.create(SubscriptionGroupConfig("quiet", notify_consumer_ids_changed_enable=False))
    broker.beat(beat(group("quiet", "orders"), group("loud", "orders")))
    assert broker.notices == [("a", "loud")]


def test_client_manage_processor_test_v2_heartbeats(broker):
    """ClientManageProcessorTest: topicA, topicA light: false; topicB: true; topicB light: false, group unchanged."""

    def v2(*topics, fingerprint, light):
        return broker.beat(beat(group("g", *topics), heartbeatFingerprint=fingerprint, withoutSub=light))

    assert v2("topicA", fingerprint=1, light=False) == (Code.SUCCESS, V2, None)
    assert v2(fingerprint=1, light=True) == (Code.SUCCESS, V2, None)
    assert v2("topicB", fingerprint=2, light=False) == (Code.SUCCESS, V1, None)
    before = broker.state()
    assert v2(fingerprint=2, light=True) == (Code.SUCCESS, V2, None)
    assert broker.state() == before and list(broker.consumers.group("g").subscriptions) == ["topicB"]


def test_a_v1_heartbeat_without_subscriptions_is_a_full_one(broker):
    broker.beat(beat(group("g", "orders")))
    assert broker.beat(beat(group("g"), withoutSub=True)) == (Code.SUCCESS, V1, None)
    assert broker.consumers.group("g").subscriptions == {}


def test_one_changed_group_of_several_asks_for_a_full_heartbeat(broker):
    both = [group("g", "orders"), group("h", "orders")]
    assert broker.beat(beat(*both, heartbeatFingerprint=1))[1] == V2
    broker.beat(beat(both[0], heartbeatFingerprint=2))
    assert broker.beat(beat(*both, heartbeatFingerprint=2))[1] == V1


def test_client_manage_processor_test_unregister(broker):
    """ClientManageProcessorTest: unregister removes the producer or the consumer group."""
    broker.beat(beat(group("g", "orders"), producers=["shop"]))
    assert broker.ask(35, fields={"clientID": "c", "producerGroup": "shop"}) == (Code.SUCCESS, {}, None)
    assert broker.producers.groups() == [] and broker.consumers.group("g") is not None
    assert broker.ask(35, fields={"clientID": "other", "consumerGroup": "g"}) == (Code.SUCCESS, {}, None)
    assert broker.consumers.group("g") is None


@pytest.mark.parametrize(
    "fields",
    [{}, {"consumerGroup": "nobody", "producerGroup": "nobody"}, {"consumerGroup": "", "producerGroup": ""}],
)
def test_unregister_of_what_is_not_there(broker, fields):
    before = broker.state()
    assert broker.ask(35, fields={"clientID": "c"} | fields) == (Code.SUCCESS, {}, None)
    assert broker.state() == before


def test_unregister_of_another_connection(broker):
    broker.beat(beat(group("g", "orders"), client="c1"), connection="a")
    broker.beat(beat(group("g", "orders"), client="c2"), connection="b")
    broker.ask(35, fields={"clientID": "c1", "consumerGroup": "g"}, connection="b")
    assert broker.consumers.group("g").client_ids == ["c1"]


HOSTILE = [
    (b"", "not a JSON object"),
    (b"null", "not a JSON object"),
    (b"[]", "not a JSON object"),
    (b"1", "not a JSON object"),
    (b"{", "not JSON"),
    (b"\xff", "not JSON"),
    (b'{"clientID":NaN}', "not JSON"),
    (b'{"clientID":' + b"9" * 5000 + b"}", "not JSON"),
    (b"[" * 100_000, "nested too deep"),
    (b'{"a":' * 100_000, "nested too deep"),
    (b" " * ((1 << 20) + 1), "1048577 bytes; 1048576 at most"),
    (beat(group("g"), client=None), "lacks the member clientID"),
    (beat(group("g"), client=""), "lacks the member clientID"),
    (beat(client=None, producers=["shop"]), "lacks the member clientID"),
    (beat(client=["c"]), "clientID is not a text"),
    (beat(client="c" * 1025), "clientID has 1025 characters"),
    (beat(client="\ud800"), "clientID is not valid Unicode"),
    ({"clientID": "c", "consumerDataSet": 5}, "consumerDataSet is not a list"),
    ({"clientID": "c", "producerDataSet": {}}, "producerDataSet is not a list"),
    ({"clientID": "c", "consumerDataSet": [None]}, "a consumer group is not a JSON object"),
    ({"clientID": "c", "producerDataSet": ["shop"]}, "a producer group is not a JSON object"),
    (beat({}), "lacks the member groupName"),
    (beat(producers=[None]), "lacks the member groupName"),
    (beat(producers=[[]]), "groupName is not a text"),
    (beat(group("g" * 70_000)), "groupName has 70000 characters"),
    (beat(group("g", consumeType=5)), "consumeType is neither a name nor one of the numbers 0 to 2"),
    (beat(group("g", messageModel=["CLUSTERING"])), "messageModel is neither a name nor one of the numbers 0 to 1"),
    (beat(group("g", unitMode="maybe")), "unitMode is neither true nor false"),
    (beat(group("g", subscriptionDataSet={})), "subscriptionDataSet is not a list"),
    (beat(group("g", None)), "lacks the member topic"),
    (beat(group("g", "x" * 263)), "topic has 263 characters"),
    (beat(group("g", subscriptionDataSet=[{"topic": "t", "subVersion": "x"}])), "subVersion is not a whole number"),
    (beat(group("g"), heartbeatFingerprint="abc"), "heartbeatFingerprint is not a whole number"),
    (beat(group("g"), heartbeatFingerprint=1 << 31), "heartbeatFingerprint is not a whole number"),
    (beat(group("g"), withoutSub="3"), "withoutSub is neither"),
    (beat(*[group("")] * 1001), "consumerDataSet has 1001 elements; 1000 at most"),
    (beat(producers=["shop"] * 1001), "producerDataSet has 1001 elements; 1000 at most"),
    (beat(*[{"groupName": "g", "subscriptionDataSet": [{"topic": "t"}] * 3000}] * 2), "6000 subscriptions; 5000 at"),
    (beat({"groupName": "g", "subscriptionDataSet": [{"topic": "t"}] * 5001}), "subscriptionDataSet has 5001"),
    (b'{"clientID":"c","consumerDataSet":[' + b'{"groupName":"g"},' * 999_999 + b'{"groupName":"g"}]}', "bytes"),
]


@pytest.mark.parametrize("body, error", HOSTILE)
def test_hostile_heartbeats_are_answered_and_register_nothing(broker, body, error):
    good = beat(group("before", "orders"), producers=["before"])
    broker.beat(good)
    before = broker.state()
    if isinstance(body, dict):
        for name in ("consumerDataSet", "producerDataSet"):  # good groups before the bad one
            if isinstance(body.get(name), list):
                body = {**body, name: [{"groupName": "good"}, *body[name]][: max(1000, len(body[name]))]}
    code, values, remark = broker.beat(body)
    assert (code, values) == (Code.SYSTEM_ERROR, {}) and error.split(" has ")[0] in remark
    assert broker.state() == before


def test_what_rocketmq_accepts_too(broker):
    for body in ({}, beat(), beat(client=None), {"clientID": "c", "consumerDataSet": None, "other": [1]}):
        assert broker.beat(body) == (Code.SUCCESS, V1, None)
    odd = group("g", "orders", consumeType="XX", messageModel=None, consumeFromWhere="", unitMode="true")
    assert broker.beat(beat(odd, heartbeatFingerprint="7")) == (Code.SUCCESS, V2, None)
    found = broker.consumers.group("g")
    assert (found.consume_type, found.message_model, found.consume_from_where) == (None, None, None)
    assert broker.notices == []


def test_a_connection_is_in_a_limited_number_of_groups(broker, monkeypatch):
    monkeypatch.setattr(client_processor, "GROUPS_OF_A_CONNECTION", 4)
    assert broker.beat(beat(group("g1"), group("g2"), producers=["s1", "s2"]))[0] == Code.SUCCESS
    assert broker.beat(beat(group("g1"), group("g2"), producers=["s1", "s2"]))[0] == Code.SUCCESS
    before = broker.state()
    for body in (beat(group("g3")), beat(producers=["s3"])):
        code, _, remark = broker.beat(body)
        assert (code, remark) == (Code.SYSTEM_ERROR, "the connection would be in 5 groups; 4 at most")
    assert broker.state() == before
    assert broker.beat(beat(group("g3")), connection="b")[0] == Code.SUCCESS


def test_a_retry_topic_that_cannot_be_made_registers_nothing(broker):
    def fail(*args, **others):
        raise StoreFullError(28, "No space left on device")

    broker.processor._make_retry_topic = fail
    with pytest.raises(StoreFullError):
        broker.beat(beat(group("g", "orders")))
    assert broker.consumers.groups() == []


def test_decode_heartbeat_of_the_limits():
    body = json.dumps({"clientID": "c", "consumerDataSet": [group(f"g{n}") for n in range(1000)]}).encode()
    assert len(decode_heartbeat(body).consumers) == 1000
    with pytest.raises(BadRequestError):
        decode_heartbeat(b"{}" + b" " * (1 << 20))


# CHECK_CLIENT_CONFIG


def check(kind, text="a > 1"):
    return {"clientId": "c", "group": "g", "subscriptionData": {"expressionType": kind, "subString": text}}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        {},
        {"subscriptionData": None},
        {"subscriptionData": {}},
        check("TAG"),
        check(""),
        check("TAG", "||"),
    ],
)
def test_checks_that_pass(broker, body):
    assert broker.ask(46, body) == (Code.SUCCESS, {}, None)


@pytest.mark.parametrize("kind", ["SQL92", "FOO"])
def test_checks_without_property_filter(broker, kind):
    remark = f"The broker does not support consumer to filter message by {kind}"
    assert broker.ask(46, check(kind)) == (Code.SYSTEM_ERROR, {}, remark)


def test_checks_with_property_filter(tmp_path):
    broker = Broker(tmp_path, is_property_filter_on=lambda: True)
    assert broker.ask(46, check("SQL92")) == (Code.SUCCESS, {}, None)
    code, _, remark = broker.ask(46, check("SQL92", "a >"))
    assert code == Code.SUBSCRIPTION_PARSE_FAILED and "column 4" in remark
    assert broker.ask(46, check("FOO")) == (
        Code.SUBSCRIPTION_PARSE_FAILED, {}, "there is no filter of type FOO"
    )  # fmt: skip


LONG = " OR ".join(f"a = '{n} is long'" for n in range(400))


@pytest.mark.parametrize(
    ("text", "error", "answer"),
    [
        (f"{LONG} OR b = 1", None, (Code.SUCCESS, None)),
        (f"{LONG} OR", None, (Code.SUBSCRIPTION_PARSE_FAILED, "SQL filter, column")),
        (
            f"{LONG} OR b = 2",
            RocketcError("SQL filters need the package lark"),
            (Code.SYSTEM_ERROR, "SQL filters need"),
        ),
        (f"{LONG} OR b = 3", RecursionError("too deep"), (Code.SYSTEM_ERROR, "RecursionError: too deep")),
    ],
)
def test_long_expressions_are_checked_on_a_thread(tmp_path, monkeypatch, text, error, answer):
    broker = Broker(tmp_path, is_property_filter_on=lambda: True, in_thread=True)
    threads, original = [], client_processor.filter_error

    def note(kind, text):
        threads.append(threading.current_thread())
        if error is not None:
            raise error
        return original(kind, text)

    monkeypatch.setattr(client_processor, "filter_error", note)

    async def main():
        done = asyncio.get_running_loop().create_future()
        command = Command(46, {}, json.dumps(check("SQL92", text)).encode())
        connection = SimpleNamespace(peer="a peer")
        assert broker.processor.process(Call(command, {}, connection, done.set_result)) is None
        return await asyncio.wait_for(done, 20)

    found = asyncio.run(main())
    assert found.code == answer[0] and (found.remark or "").startswith(answer[1] or "")
    assert threads and threading.main_thread() not in threads


def test_a_check_without_lark(tmp_path, monkeypatch):
    def missing(kind, text):
        raise RocketcError("SQL filters need the package lark")

    monkeypatch.setattr(client_processor, "filter_error", missing)
    broker = Broker(tmp_path, is_property_filter_on=lambda: True)
    assert broker.ask(46, check("SQL92")) == (Code.SYSTEM_ERROR, {}, "SQL filters need the package lark")


@pytest.mark.parametrize(
    "body", [b"{", b"5", {"subscriptionData": 5}, check([]), check("SQL92" * 100), check("x", "y" * 70_000) | {"a": 1}]
)
def test_hostile_checks(tmp_path, body):
    broker = Broker(tmp_path, is_property_filter_on=lambda: True)
    assert broker.ask(46, body)[0] == Code.SYSTEM_ERROR


@pytest.mark.parametrize("length", [122, 123, 248, 249, 255])
def test_groups_with_long_names(broker, length, caplog):
    """A consumer subscribes to the topic of its retries, too; none is made that the store could not hold."""
    name = "g" * length
    for _ in range(2):
        assert broker.beat(beat(group(name, "orders", "%RETRY%" + name)))[0] == Code.SUCCESS
    assert name in broker.state()[0]
    assert ("%RETRY%" + name in broker.topics) is (length <= 248)
    warnings = [one for one in caplog.records if one.name == "rocketc.broker" and one.levelname == "WARNING"]
    assert len(warnings) == (length > 122)
    assert all(f"the name has {length} characters" in one.getMessage() for one in warnings)
