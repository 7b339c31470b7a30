"""The registry of consumers. What a heartbeat changes, and whom it notifies, was seen on a 5.3.3 broker."""

import pytest

from rocketc.broker.consumers import COMPENSATED_MS, ClientChannel, ConsumerManager
from rocketc.broker.heartbeat import ConsumerData
from rocketc.broker.subscriptions import Subscription
from rocketc.remoting.subscribing import ConsumeFromWhere, ConsumeType, MessageModel

BROADCASTING = MessageModel.BROADCASTING


@pytest.fixture
def notices():
    return []


@pytest.fixture
def consumers(notices):
    return ConsumerManager(lambda connection, group: notices.append((connection, group)))


def client(name="c", now=0):
    return ClientChannel(name, "JAVA", 479, now)


def data(*topics, group="g", model=MessageModel.CLUSTERING, version=0, text="*", **others):
    wanted = tuple(Subscription(topic, text, sub_version=version) for topic in topics)
    return ConsumerData(group, message_model=model, subscriptions=wanted, **others)


def test_a_new_channel_notifies_all_channels_of_the_group(consumers, notices):
    assert consumers.register("a", client("ca"), data("orders"))[:2] == (True, True)
    assert notices == [("a", "g")]
    assert consumers.register("b", client("cb"), data("orders"))[:2] == (True, False)
    assert notices[1:] == [("a", "g"), ("b", "g")]
    assert consumers.register("b", client("cb"), data("orders"))[:2] == (False, False)
    assert len(notices) == 3
    assert consumers.group("g").client_ids == ["ca", "cb"]


def test_another_client_id_on_a_connection_replaces_the_first_without_notice(consumers, notices):
    consumers.register("a", client("ca"), data())
    consumers.register("a", client("cx"), data())
    assert consumers.group("g").client_ids == ["cx"] and len(notices) == 1


def test_a_client_with_two_connections_is_listed_twice(consumers):
    for connection in "ab":
        consumers.register(connection, client("c"), data())
    assert consumers.group("g").client_ids == ["c", "c"]
    assert consumers.group("g").channel("c")[0] == "a"
    assert consumers.group("g").channel("x") is None


def test_a_changed_set_of_topics_notifies_and_a_changed_expression_does_not(consumers, notices):
    consumers.register("a", client(), data("orders", version=10))
    notices.clear()
    assert not consumers.register("a", client(), data("orders", version=11, text="x")).sub_changed
    assert notices == []
    assert consumers.register("a", client(), data("orders", "audit", version=11)).sub_changed
    assert consumers.register("a", client(), data("audit", version=11)).sub_changed
    assert consumers.register("a", client(), data()).sub_changed
    assert len(notices) == 3
    assert consumers.group("g").subscriptions == {}


@pytest.mark.parametrize("version, text", [(9, "*"), (10, "*"), (11, "x")])
def test_only_a_greater_version_replaces_an_expression(consumers, version, text):
    consumers.register("a", client(), data("orders", version=10))
    consumers.register("a", client(), data("orders", version=version, text="x"))
    found = consumers.find_subscription("g", "orders")
    assert (found.sub_string, found.sub_version) == (text, max(version, 10))


def test_the_latest_heartbeat_decides_how_the_group_consumes(consumers, notices):
    consumers.register("a", client(), data())
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumers.register(
        "a", client(),
        data("t", model=BROADCASTING, consume_type=ConsumeType.CONSUME_ACTIVELY, consume_from_where=first),
    )  # fmt: skip
    group = consumers.group("g")
    assert (group.consume_type, group.message_model, group.consume_from_where) == (
        ConsumeType.CONSUME_ACTIVELY, BROADCASTING, first,
    )  # fmt: skip
    assert len(notices) == 1  # not for the second, which is of a broadcasting group


def test_consumer_manager_test_broadcasting_groups_are_not_notified(consumers, notices):
    """ConsumerManagerTest: a second registration of a BROADCASTING group fires no CHANGE."""
    consumers.register("a", client("ca"), data("t", model=BROADCASTING))
    consumers.register("b", client("cb"), data("t", "u", model=BROADCASTING))
    consumers.unregister("a", "g")
    assert notices == []


def test_a_group_of_an_unknown_model_is_not_notified(consumers, notices):
    consumers.register("a", client(), data("t", model=None))
    assert notices == []


def test_groups_that_must_not_be_notified(notices):
    consumers = ConsumerManager(lambda *notice: notices.append(notice), may_notify=lambda group: group != "quiet")
    consumers.register("a", client(), data("t", group="quiet"))
    consumers.register("a", client(), data("t", group="loud"))
    assert notices == [("a", "loud")]


def test_consumer_manager_test_unregister_of_the_last_channel_removes_the_group(consumers, notices):
    """ConsumerManagerTest."""
    consumers.register("a", client("ca"), data())
    consumers.register("b", client("cb"), data())
    notices.clear()
    assert consumers.unregister("a", "g") and notices == [("b", "g")]
    assert not consumers.unregister("a", "g") and not consumers.unregister("a", "other")
    assert consumers.unregister("b", "g") and len(notices) == 1
    assert consumers.group("g") is None and consumers.groups() == [] and consumers.groups_of("b") == []


def test_a_lost_connection_leaves_all_its_groups(consumers, notices):
    for group in ("g", "h"):
        consumers.register("a", client("ca"), data(group=group))
        consumers.register("b", client("cb"), data(group=group))
    notices.clear()
    assert consumers.groups_of("a") == ["g", "h"]
    assert consumers.connection_lost("a") == ["g", "h"] and consumers.connection_lost("a") == []
    assert notices == [("b", "g"), ("b", "h")]


def test_channels_without_heartbeats_expire(consumers, notices):
    consumers.register("a", client("ca", now=0), data())
    consumers.register("b", client("cb", now=1), data())
    notices.clear()
    assert consumers.expire(120_000) == [] and notices == []
    assert consumers.expire(120_001) == ["a"] and notices == [("b", "g")]
    consumers.register("b", client("cb", now=100_000), data())
    assert consumers.expire(220_000) == []
    assert consumers.expire(220_001) == ["b"] and consumers.group("g") is None


def test_notices_that_wait(notices):
    consumers = ConsumerManager(lambda *notice: notices.append(notice), is_real_time=False)
    consumers.register("a", client(), data("t"))
    consumers.register("b", client(), data("t"))
    consumers.register("a", client(), data("t", group="gone"))
    consumers.unregister("a", "gone")
    assert notices == []
    consumers.send_notices()
    assert notices == [("a", "g"), ("b", "g")]
    consumers.send_notices()
    assert len(notices) == 2


def test_client_manage_processor_test_v2_heartbeats(consumers):
    """ClientManageProcessorTest: IS_SUB_CHANGE of V2 heartbeats."""
    assert not consumers.register("a", client(), data("topicA"), fingerprint=1).wants_full
    assert not consumers.register("a", client(), data(), fingerprint=1, is_light=True).wants_full
    assert consumers.register("a", client(), data("topicB"), fingerprint=2).wants_full
    light = consumers.register("a", client(), data(), fingerprint=2, is_light=True)
    assert light == (False, False, False)
    assert list(consumers.group("g").subscriptions) == ["topicB"]


def test_fingerprints_are_of_the_group(consumers):
    consumers.register("a", client("ca"), data("t"), fingerprint=9)
    assert consumers.register("b", client("cb"), data("t"), fingerprint=5).wants_full
    assert consumers.register("a", client("ca"), data(), fingerprint=9, is_light=True).wants_full
    assert not consumers.register("a", client("ca"), data("t"), fingerprint=0).wants_full  # V1 keeps it
    assert not consumers.register("a", client("ca"), data(), fingerprint=9, is_light=True).wants_full


def test_a_light_heartbeat_of_an_unknown_group_asks_for_a_full_one(consumers):
    assert consumers.register("a", client(), data(), fingerprint=9, is_light=True) == (True, False, True)
    assert consumers.register("a", client(), data("t"), fingerprint=9) == (False, True, False)


def test_consumer_manager_test_registering_without_subscriptions_keeps_the_old_ones(consumers):
    """ConsumerManagerTest."""
    consumers.register("a", client(), data("t"))
    assert not consumers.register("a", client(), data(), fingerprint=4, is_light=True).sub_changed
    assert consumers.find_subscription("g", "t") is not None


def test_pulls_that_are_checked_already_are_checked_again_in_time(consumers):
    """The compiled way keeps the checks of a pull as long as the generation is the same."""
    consumers.compensate("g", ConsumeType.CONSUME_ACTIVELY, MessageModel.CLUSTERING, Subscription("t"), 0)
    before = consumers.generation
    consumers.expire(COMPENSATED_MS // 2)
    assert consumers.generation == before
    for now in (COMPENSATED_MS // 2 + 1, COMPENSATED_MS - 1):
        consumers.expire(now)
        assert consumers.generation == before + 1 and consumers.find_subscription("g", "t", compensated=True)
    consumers.compensate("g", ConsumeType.CONSUME_ACTIVELY, MessageModel.CLUSTERING, Subscription("t"), COMPENSATED_MS)
    consumers.expire(COMPENSATED_MS + 1)
    assert consumers.generation == before + 1 and consumers.find_subscription("g", "t", compensated=True)


def test_consumer_manager_test_compensated_groups(consumers):
    """ConsumerManagerTest: visible only when asked for; expired compensated subscriptions vanish singly."""
    for now, topic in enumerate(("t", "u")):
        consumers.compensate("g", ConsumeType.CONSUME_ACTIVELY, MessageModel.CLUSTERING, Subscription(topic), now)
    assert consumers.group("g") is None and consumers.group("g", compensated=True).name == "g"
    assert consumers.find_subscription("g", "t") is None
    assert consumers.find_subscription("g", "t", compensated=True) == Subscription("t")
    assert consumers.expire(COMPENSATED_MS) == []
    consumers.expire(COMPENSATED_MS + 1)
    assert consumers.find_subscription("g", "t", compensated=True) is None
    assert consumers.find_subscription("g", "u", compensated=True) is not None
    consumers.expire(COMPENSATED_MS + 2)
    assert consumers.group("g", compensated=True) is None


def test_look_ups(consumers):
    consumers.register("a", client(), data("t"))
    assert consumers.groups_of_topic("t") == ["g"] and consumers.groups_of_topic("u") == []
    assert consumers.find_subscription("g", "u") is None and consumers.find_subscription("h", "t") is None
    assert [group.name for group in consumers.groups()] == ["g"]
