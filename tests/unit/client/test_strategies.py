"""Strategies divide queues as RocketMQ's: the numbers of its own tests, recorded allocations, and what holds always."""

import asyncio
import functools
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import consumer_parts
from unit.client.scripted import play
from unit.client.scripted_push import PushCluster

from rocketc.client.routes import MessageQueue
from rocketc.client.settings import ConsumerSettings
from rocketc.client.strategies import (
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
    queue_text,
    strategy,
    strategy_of,
)
from rocketc.client.subscriptions import subscribe

DIVIDING = ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"]


def queues(count, broker="B", topic="T"):
    return [MessageQueue(topic, broker, i) for i in range(count)]


def ids(count):
    return [f"c{i}" for i in range(count)]


def shares(one, queues, members):
    """The queue ids of each member."""
    return [[queue.queue_id for queue in one.allocate("group", member, queues, members)] for member in members]


@pytest.mark.parametrize(
    ("name", "count", "members", "given"),
    [
        ("AVG", 10, 4, [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]),
        ("AVG", 3, 4, [[0], [1], [2], []]),
        ("AVG", 4, 4, [[0], [1], [2], [3]]),
        ("AVG", 6, 1, [[0, 1, 2, 3, 4, 5]]),
        ("AVG_BY_CIRCLE", 10, 4, [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]),
        ("AVG_BY_CIRCLE", 1, 3, [[0], [], []]),
        ("CONSISTENT_HASH", 6, 3, [[1], [0, 3, 5], [2, 4]]),
    ],
)
def test_numbers_of_rocketmq(name, count, members, given):
    assert shares(strategy(name), queues(count), ids(members)) == given


def test_config_gives_everyone_the_list_and_checks_nothing():
    listed = queues(3, "other")
    one = ByConfig(listed)
    listed.clear()
    assert one.allocate("g", "c0", queues(9), ids(2)) == queues(3, "other")
    assert one.allocate("", "", [], []) == queues(3, "other")


def test_machine_room_ignores_other_rooms():
    mixed = queues(5, "room1@b") + queues(5, "room2@b")
    assert shares(ByMachineRoom(["room1"]), mixed, ids(2)) == [[0, 1, 4], [2, 3]]
    assert shares(ByMachineRoom([]), mixed, ids(2)) == [[], []]


@pytest.mark.parametrize(
    ("broker", "is_in"),
    [("r@b", True), ("r", False), ("r@", False), ("@b", False), ("r@b@", True), ("r@@b", False), ("r@b@c", False)],
)
def test_names_of_brokers_with_a_room(broker, is_in):
    assert bool(ByMachineRoom(["r"]).allocate("g", "c0", queues(1, broker), ["c0"])) is is_in


@pytest.mark.parametrize(("asked", "answer"), consumer_parts.recorded("allocate"))
def test_recorded_allocations(asked, answer):
    ours = consumer_parts.allocated(asked)
    assert consumer_parts.are_alike(answer, ours), ours


def test_rooms_without_consumers_come_in_the_order_of_their_names():
    one = MachineRoomNearby(Averagely(), lambda queue: queue.broker_name, lambda id: "m")
    mixed = [*queues(1, "z"), *queues(1, "m"), *queues(1, "b"), *queues(1, "a"), *queues(1, "c")]
    assert [queue.broker_name for queue in one.allocate("g", "c0", mixed, ["c0"])] == ["m", "a", "b", "c", "z"]


def test_an_id_that_is_listed_twice_has_twice_the_places_in_the_ring():
    given = ConsistentHash().allocate("g", "c0", queues(5), ["c0", "c0", "c1"])
    assert [queue.queue_id for queue in given] == [0, 1, 4]  # as RocketMQ; once: only queue 1


@pytest.mark.parametrize(
    "one", [*map(strategy, DIVIDING), ByMachineRoom(["B"]), MachineRoomNearby(Averagely(), queue_text, str)]
)
def test_empty_arguments_are_refused(one):
    for arguments, says in [
        (("", queues(1), ["c0"]), "the client id is empty"),
        (("c0", [], ["c0"]), "the list of queues is empty"),
        (("c0", queues(1), []), "the list of client ids is empty"),
    ]:
        with pytest.raises(ValueError, match=f"^{says}$"):
            one.allocate("group", *arguments)
    assert one.allocate("group", "stranger", queues(1), ["c0"]) == []


def test_wrong_settings():
    with pytest.raises(ValueError, match="virtual_nodes is -1; it must not be negative"):
        ConsistentHash(-1)
    with pytest.raises(ValueError, match="'avg' is not a strategy without settings: AVG, AVG_BY_CIRCLE, CONS"):
        strategy("avg")
    assert ConsistentHash(0).allocate("g", "c0", queues(3), ids(1)) == []


@pytest.mark.parametrize("room", [None, ""])
def test_a_room_that_is_not_known(room):
    with pytest.raises(ValueError, match=r"the broker of MessageQueue \[topic=T, brokerName=B, queueId=0\] is in no"):
        MachineRoomNearby(Averagely(), lambda queue: room, lambda id: "r").allocate("g", "c0", queues(1), ["c0"])
    with pytest.raises(ValueError, match="the consumer c0 is in no machine room"):
        MachineRoomNearby(Averagely(), lambda queue: "r", lambda id: room).allocate("g", "c0", queues(1), ["c0"])


GROUPS = st.sets(st.text("abc.@#-1", min_size=1, max_size=6), min_size=1, max_size=12).map(sorted)
QUEUES = st.dictionaries(st.text("abr@.", min_size=1, max_size=4), st.integers(1, 9), min_size=1, max_size=4).map(
    lambda brokers: [MessageQueue("orders", name, i) for name, count in sorted(brokers.items()) for i in range(count)]
)
ALL = [
    *map(strategy, DIVIDING),
    MachineRoomNearby(Averagely(), lambda queue: queue.broker_name[0], lambda id: id[0]),
    MachineRoomNearby(ConsistentHash(), lambda queue: queue.broker_name[0], lambda id: id[0]),
]


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)
@given(queues=QUEUES, members=GROUPS)
def test_each_queue_goes_to_exactly_one_consumer(one, queues, members):
    given = [queue for member in members for queue in one.allocate("g", member, queues, members)]
    assert sorted(given) == sorted(queues)


@pytest.mark.parametrize("one", [Averagely(), AveragelyByCircle()], ids=lambda one: one.name)
@given(queues=QUEUES, members=GROUPS)
def test_shares_differ_by_one_queue_at_most(one, queues, members):
    sizes = [len(one.allocate("g", member, queues, members)) for member in members]
    assert max(sizes) - min(sizes) <= 1


@given(queues=QUEUES, members=GROUPS, newcomer=st.text("xyz", min_size=1, max_size=3))
def test_consistent_hash_moves_only_what_it_must(queues, members, newcomer):
    one = ConsistentHash()
    owners = {queue: id for id in members for queue in one.allocate("g", id, queues, members)}
    more = sorted([*members, newcomer])
    later = {queue: id for id in more for queue in one.allocate("g", id, queues, more)}
    assert {later[queue] for queue in queues if later[queue] != owners[queue]} <= {newcomer}


@given(queues=QUEUES, members=GROUPS)
def test_a_room_with_consumers_keeps_its_queues(queues, members):
    one = MachineRoomNearby(AveragelyByCircle(), lambda queue: queue.broker_name[0], lambda id: id[0])
    rooms = {id[0] for id in members}
    for member in members:
        for queue in one.allocate("g", member, queues, members):
            assert queue.broker_name[0] in {member[0]} or queue.broker_name[0] not in rooms


# strategies of a program


class OwnStrategy:
    name = "OWN"

    def allocate(self, group, client_id, queues, client_ids):
        return tuple(queues[:2])


def test_strategies_of_settings():
    def mine(group, client_id, queues, client_ids):
        return (one for one in queues if one.queue_id % len(client_ids) == client_ids.index(client_id))

    own = ConsumerSettings(allocate_message_queue_strategy=mine).allocate_message_queue_strategy
    assert shares(strategy_of(own), queues(5), ids(2)) == [[0, 2, 4], [1, 3]]
    assert strategy_of(mine).name == "mine" and strategy_of(OwnStrategy()).name == "OWN"
    assert strategy_of(functools.partial(mine)).name == "partial"
    assert strategy_of(OwnStrategy()).allocate("g", "a", queues(3), ["a"]) == queues(2)
    ring = ConsistentHash(5)
    assert strategy_of(ring) is ring and strategy_of("AVG").name == "AVG"
    other = MachineRoomNearby(Averagely(), queue_text, str)
    assert strategy_of(other).name == "MACHINE_ROOM_NEARBY-AVG"


async def coroutine(group, client_id, queues, client_ids):
    return queues


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (OwnStrategy, "not the class OwnStrategy"),
        (coroutine, "not function"),
        (7, "not int"),
        (None, "not NoneType"),
        (types.SimpleNamespace(allocate=7), "not SimpleNamespace"),
    ],
)
def test_what_is_not_a_strategy(wrong, says):
    with pytest.raises(TypeError, match=says):
        ConsumerSettings(allocate_message_queue_strategy=wrong)


@pytest.mark.parametrize(
    ("result", "error", "says"),
    [
        (None, TypeError, "the strategy mine returned NoneType; expected a list of queues"),
        ("abc", TypeError, "the strategy mine returned str; expected a list of queues"),
        ([("orders", "b", 0)], TypeError, "the strategy mine returned a list with tuple; expected queues"),
        ([MessageQueue("other", "B", 0)], ValueError, "which the topic does not have"),
        ([MessageQueue("T", "B", 0)] * 2, ValueError, "the strategy mine returned a queue twice"),
    ],
)
def test_results_that_are_wrong(result, error, says):
    def mine(group, client_id, given, client_ids):
        given.clear(), client_ids.clear()  # copies
        return result

    mine.__name__ = "mine"
    all_of_them, members = [MessageQueue("T", "B", i) for i in range(3)], ["a"]
    with pytest.raises(error, match=says):
        strategy_of(mine).allocate("g", "a", all_of_them, members)
    assert len(all_of_them) == 3 and members == ["a"]


def test_a_fixed_list_does_not_leave_out_the_retry_topic():
    """With RocketMQ's strategy, messages that failed never come again."""
    listed, retries = [MessageQueue("T", "B", 1)], [MessageQueue("%RETRY%g", "B", i) for i in range(3)]
    parts = [ByConfig(listed).allocate("g", name, retries, ["a", "b"]) for name in "ab"]
    assert parts == [retries[:2], retries[2:]]
    assert ByConfig(listed).allocate("g", "a", [MessageQueue("T", "B", 0)], ["a", "b"]) == listed
    assert ByConfig(listed + retries[:1]).allocate("g", "b", retries, ["a", "b"]) == listed + retries[:1]
    with pytest.raises(ValueError, match="the list of client ids is empty"):
        ByConfig(listed).allocate("g", "a", retries, [])


def test_a_consumer_with_a_fixed_list():
    async def main():
        stage = PushCluster("a")
        core = stage.consumer(allocate_message_queue_strategy=ByConfig([MessageQueue("orders", "a", 1)]))
        await core.subscribe(subscribe("orders"), print)
        await core.start()
        await asyncio.sleep(1)
        assert sorted(map(str, core._member.owned)) == [
            "%RETRY%billing queue 0 on a", "%RETRY%billing queue 1 on a", "orders queue 1 on a",
        ]  # fmt: skip
        await core.close()

    play(main())


def test_a_consumer_with_a_strategy_of_the_program(caplog):
    """A wrong result is logged, and nothing changes."""

    async def main():
        stage, got, result = PushCluster("a"), [], ["one"]
        stage.put(3)

        def mine(group, client_id, queues, client_ids):
            return queues if result[0] == "all" else result

        async def listener(message):
            got.append(message.body)

        core = stage.consumer(allocate_message_queue_strategy=mine)
        await core.subscribe(subscribe("orders"), listener)
        await core.start()
        await asyncio.sleep(1)
        assert got == [] and "the strategy mine returned a list with str" in caplog.text
        result[0] = "all"
        await asyncio.sleep(30)
        assert got == [b"0", b"1", b"2"]
        assert core._asked._properties()["allocateMessageQueueStrategy"] == "mine"
        result[0] = "one"
        await asyncio.sleep(30)
        assert len(core._member.owned) == 4
        await core.close()

    play(main())
