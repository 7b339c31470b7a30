"""Consumers of Java, Go and Python in one group share the queues as one, while members come, go, hang and die."""

import asyncio
import time

import pytest
from interop import scenarios
from interop.groups import Group, Sending
from interop.our_broker import OurBroker, wait_for
from interop.peer import RELEASES, Unavailable

from rocketc.client import Admin, Producer
from rocketc.tables.topics import TopicConfig

STRATEGIES = {
    "AVG": [*RELEASES, "go", "python", "python"],
    "AVG_BY_CIRCLE": [*RELEASES, "go", "python", "python"],
    "CONSISTENT_HASH": [*RELEASES, "python", "python"],  # that of Go has another ring
}
QUEUES = 8


@pytest.fixture(scope="module", params=["ours", *RELEASES])
def broker(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("groups")
    if request.param == "ours":
        one = OurBroker(folder / "store", "--port", 0)
    else:
        try:
            one = scenarios.JavaCluster(request.param, folder)
        except Unavailable as reason:
            pytest.skip(str(reason))
    yield one
    one.close()


def settle(group, producer, topic, living, seconds=200):
    """Wait until each queue belongs to one living member, and each member that gets queues by the strategy has some."""
    may_be_idle = group.strategy == "CONSISTENT_HASH"
    rounds = iter(range(1000))
    owners = {}

    def look():
        since, n = time.time() * 1000, next(rounds)
        sent = {f"round{n}.{i}" for i in range(QUEUES)}
        route = producer_queues(producer, topic)
        for i, queue in enumerate(route):
            producer.send(topic, f"round{n}.{i}".encode(), queue=queue)
        if not wait_for(lambda: sent <= group.bodies(), 2.0):
            return False
        owners.clear()
        owners.update(group.owners(since))
        of_round = [one for one in group.consumed if one.body in sent]
        working = set().union(*owners.values())
        return (
            len(owners) == QUEUES
            and len(of_round) == QUEUES
            and all(len(names) == 1 for names in owners.values())
            and (working <= living if may_be_idle else working == living)
        )

    assert wait_for(look, seconds), (owners, living)


def producer_queues(producer, topic):
    chosen = []

    def choose(queues):
        chosen.append(sorted(queues))
        return queues[0]

    producer.send(topic, b"which queues are there?", selector=choose)
    return chosen[0]


def check_committed(name_server, group, topic, seconds=20):
    """The group commits all messages."""

    async def state():
        async with Admin(name_server) as admin:
            return await admin.consume_state(group, topic)

    def lag():
        return asyncio.run(state()).lag

    wait_for(lambda: not lag(), seconds)
    assert lag() == 0


@pytest.mark.long
@pytest.mark.timeout(900)  # brokers keep the lock of a queue for 60 s
@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_mixed_group(broker, tmp_path, strategy, orderly):
    topic = group_name = f"mixed-{strategy}-{orderly}".lower()
    asyncio.run(make_topic(broker.name_server, topic))
    group = Group(broker.name_server, group_name, topic, tmp_path, strategy, orderly, millis=3)
    try:
        with Producer("rounds", broker.name_server) as producer:
            sending = Sending(broker.name_server, topic)
            try:
                members = [group.join(language) for language in STRATEGIES[strategy]]
                living = {one.name for one in members}
                settle(group, producer, topic, living)
                java_old, *_, python, second = members
                python.leave()
                living.discard(python.name)
                settle(group, producer, topic, living)
                java_old.kill()
                living.discard(java_old.name)
                settle(group, producer, topic, living)
                second.hang()
                time.sleep(3)
                second.go_on()
                third = group.join("python")
                living.add(third.name)
                settle(group, producer, topic, living)
                second.kill()
                living.discard(second.name)
                fourth = group.join(RELEASES[1])
                living.add(fourth.name)
                settle(group, producer, topic, living)
            finally:
                bodies = sending.end()
            group.wait(bodies, 60)
            check_committed(broker.name_server, group_name, topic)
            for name in living:
                group.members[name].leave()
            group.check()
            assert len(bodies) > 500 and sending.failures == 0
            check_committed(broker.name_server, group_name, topic)
    except Unavailable as reason:
        pytest.skip(str(reason))
    finally:
        group.close()


def test_a_mixed_group_at_once(begin, tmp_path):
    """The quick one of `make test`: Java, Go and Python at our broker."""
    ours = begin(OurBroker, tmp_path / "store", "--port", 0)
    asyncio.run(make_topic(ours.name_server, "mixed"))
    group = Group(ours.name_server, "mixed", "mixed", tmp_path)
    try:
        members = {group.join(language).name: language for language in (RELEASES[1], "go", "python")}
        living = set(members)
        with Producer("rounds", ours.name_server) as producer:
            settle(group, producer, "mixed", living, 30)
            for name in members:
                member = group.members[name]
                if members[name] == "go":
                    member.kill()
                else:
                    member.leave()
                living.discard(name)
                if living:
                    settle(group, producer, "mixed", living, 30)
    except Unavailable as reason:
        pytest.skip(str(reason))
    finally:
        group.close()


async def make_topic(name_server, topic):
    async with Admin(name_server) as admin:
        await admin.create_topic(TopicConfig(topic, QUEUES, QUEUES))
