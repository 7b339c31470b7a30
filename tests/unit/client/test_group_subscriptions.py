"""Two consumers of one group in a process must have the same subscriptions."""

import asyncio
import itertools
import re

import pytest

import rocketc
from rocketc.client import AsyncConsumer, PullConsumer, PushConsumer
from rocketc.client.group_subscriptions import GroupSubscriptions
from rocketc.client.subscriptions import subscribe_all
from rocketc.errors import SubscriptionError

ENDED = "; the consumers of a group need the same subscriptions: use another group"
_groups = (f"group-{n}" for n in itertools.count())


@pytest.fixture(scope="module")
def broker():
    with rocketc.Broker() as one:
        for topic in ("orders", "bills"):
            one.topics.create(topic)
        yield one


def pushing(group, name_server, topics):
    one = PushConsumer(group, name_server)
    for topic, tags in topics.items():
        one.subscribe(topic, tags=tags, listener=print)
    return one


def pulling(group, name_server, topics):
    return PullConsumer(group, name_server, topics=topics)


@pytest.mark.parametrize("kind", [pushing, pulling])
@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ({"orders": "*"}, {"bills": "*"}, "bills (*), and another one of this process to orders (*)"),
        ({"orders": "a"}, {"orders": "b"}, "orders (b), and another one of this process to orders (a)"),
        (
            {"orders": "*", "bills": "*"},
            {"orders": "*"},
            "orders (*), and another one of this process to bills (*), or",
        ),
    ],
)
def test_other_subscriptions_are_refused_at_the_start(broker, kind, first, second, text):
    group = next(_groups)
    text = f"group '{group}': this consumer subscribes to {text}"
    with kind(group, broker.name_server, first):
        with pytest.raises(SubscriptionError, match=f"^{re.escape(text)}.*{re.escape(ENDED)}"[:-1]):
            kind(group, broker.name_server, second).start()
        with kind(next(_groups), broker.name_server, second):
            pass
    with kind(group, broker.name_server, second):  # the first one has left
        pass


@pytest.mark.parametrize("kind", [pushing, pulling])
def test_other_subscriptions_are_refused_later(broker, kind):
    """Members may subscribe to the same topics one after the other."""
    group = next(_groups)
    with kind(group, broker.name_server, {}) as a, kind(group, broker.name_server, {}) as b:

        def add(one, topic, tags="*"):
            if kind is pushing:
                one.subscribe(topic, tags=tags, listener=print)
            else:
                one.subscribe(topic, tags)

        add(a, "orders", "a || b")
        with pytest.raises(
            SubscriptionError, match=re.escape("orders (a), and another one of this process to orders (")
        ):
            add(b, "orders", "a")
        with pytest.raises(
            SubscriptionError, match=re.escape("bills (*), and another one of this process to orders (")
        ):
            add(b, "bills")
        add(a, "bills")
        add(b, "bills")
        add(b, "orders", "b || a")


def test_the_same_subscriptions(broker):
    group = next(_groups)
    topics = {"orders": "a || b", "bills": "*"}

    async def main():
        async with (
            AsyncConsumer(group, broker.name_server, topics=topics),
            AsyncConsumer(group, broker.name_server, topics={"bills": "*", "orders": "b||a"}),
        ):
            with pytest.raises(SubscriptionError, match=f"group '{group}'"):
                await AsyncConsumer(group, broker.name_server, topics=["orders"]).start()

    asyncio.run(main())


def test_chosen_queues_are_not_a_subscription(broker):
    group = next(_groups)
    with PullConsumer(group, broker.name_server) as one, pulling(group, broker.name_server, {"bills": "*"}):
        one.assign(one.fetch_message_queues("orders"))


class Instance:
    is_member = True


def test_a_topic_that_a_member_does_not_have_for_long(caplog):
    instance, all_topics = Instance(), {one.topic: one for one in subscribe_all(["orders", "bills"])}
    own = {}
    a = GroupSubscriptions(instance, ["a:1", "b:1"], "g", lambda: all_topics)
    b = GroupSubscriptions(instance, ["b:1", "a:1"], "g", lambda: own)
    for one in (a, b):
        one.join()
        one.watch(100.0)
    own["orders"] = all_topics["orders"]
    for now in (101.0, 119.0):
        a.watch(now)
        b.watch(now)
    assert not caplog.messages
    for now in (120.0, 150.0):
        a.watch(now)
        b.watch(now)
    assert caplog.messages == [
        "g: a consumer of this process does not subscribe to bills, as another one does: its share of their "
        "messages is not consumed"
    ]
    caplog.clear()
    own["bills"] = all_topics["bills"]
    b.watch(180.0)
    del own["bills"]
    b.watch(200.0)
    assert not caplog.messages
