"""The parts of rocketc's consumer and RocketMQ's own classes give the same answers to random questions."""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from interop import scenarios
from interop.peer import RELEASES
from support import consumer_parts

import rocketc
from rocketc.broker.send_back import SendBackProcessor
from rocketc.client.offset_stores import LocalFileOffsetStore
from rocketc.client.routes import MessageQueue
from rocketc.client.send_backs import retry_send
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer

# Properties of a failed message that only RocketMQ's client adds, or the broker.
ADDED = {
    "MIN_OFFSET",
    "MAX_OFFSET",
    "CONSUME_START_TIME",
    "MSG_REGION",
    "TRACE_ON",
    "CLUSTER",
    "REAL_TOPIC",
    "REAL_QID",
}


@pytest.fixture(scope="module", params=RELEASES)
def java(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[scenarios.ConsumerParts]:
    try:
        process = scenarios.ConsumerParts(request.param, tmp_path_factory.mktemp("parts"))
    except scenarios.Unavailable as reason:
        pytest.skip(str(reason))
    yield process
    process.close()


@pytest.mark.long
def test_strategies_allocate_alike(java):
    asked = consumer_parts.allocations(20_000, seed=4)
    for question, theirs in zip(asked, java.answers(asked), strict=True):
        ours = consumer_parts.allocated(question)
        assert consumer_parts.are_alike(theirs, ours), f"{question}\n{theirs}\n{ours}"


@pytest.mark.long
def test_recorded_subscriptions_are_those_of_both_releases(java):
    asked = consumer_parts.SUBSCRIPTIONS
    for question, theirs in zip(asked, java.answers(asked), strict=True):
        assert (question, theirs) in consumer_parts.recorded("subscribe")


def steps(chance: random.Random) -> list[list[Any]]:
    """Random calls of a store of offsets in a file."""
    queue = [[topic, broker, i] for topic in ("orders", "%RETRY%a|b") for broker in ("a", "b") for i in (0, 1, 10)]
    kinds: list[Callable[[], list[Any]]] = [
        lambda: ["load"],
        lambda: ["read", chance.choice(queue), "READ_FROM_MEMORY"],
        lambda: ["read", chance.choice(queue), "READ_FROM_STORE"],
        lambda: ["update", chance.choice(queue), chance.choice([0, 1, 5, 1 << 40]), chance.random() < 0.5],
        lambda: ["persist", chance.choice(queue)],
        lambda: ["persistAll", chance.sample(queue, chance.randint(1, 5))],
        lambda: ["remove", chance.choice(queue)],
    ]
    return [chance.choice(kinds)() for _ in range(40)]


def play(store: LocalFileOffsetStore, step: list[Any]) -> int | str:
    """What rocketc's store does at one step."""
    kind, *arguments = step
    if kind == "load":
        store.load()
    elif kind == "persistAll":
        store.persist_all([MessageQueue(*one) for one in arguments[0]])
    else:
        queue = MessageQueue(*arguments[0])
        if kind == "read":
            return store.get(queue) if arguments[1] == "READ_FROM_MEMORY" else store.read(queue)
        if kind == "update":
            store.update(queue, arguments[1], increase_only=arguments[2])
        elif kind == "persist":
            store.persist(queue)
        else:
            store.remove(queue)
    return "done"


@pytest.mark.long
def test_stores_of_offsets_do_the_same(java, tmp_path):
    """Half of the calls, then RocketMQ's store has our file and ours has RocketMQ's."""
    if java.release < "5":
        pytest.skip("4.x writes only the queues that a consumer has, and forgets no queue")
    for seed in range(60):
        calls = steps(random.Random(seed))
        first, second = calls[:20], [["load"], *calls[20:]]
        one, two = LocalFileOffsetStore(tmp_path, "c", f"one{seed}"), LocalFileOffsetStore(tmp_path, "c", f"two{seed}")
        assert [play(one, step) for step in first] == java.offsets("c", f"two{seed}", first), seed
        given, taken = java.folder / "c", tmp_path / "c"
        if Path(one.path).exists():
            shutil.copytree(taken / f"one{seed}", given / f"one{seed}")
            shutil.copytree(given / f"two{seed}", taken / f"two{seed}")
        assert [play(two, step) for step in second] == java.offsets("c", f"one{seed}", second), seed


@pytest.mark.long
def test_a_broadcasting_consumer_and_our_store_continue_each_other(java):
    """RocketMQ's consumer reads some messages and writes its file; then it begins where our store says."""
    with rocketc.Broker() as broker:
        broker.topics.create("orders", 2)
        asked = {"do": "broadcast", "nameServer": broker.name_server, "topic": "orders", "group": "audit"}
        for i in range(6):
            broker.store.put("orders", b"%d" % i, queue_id=i % 2)
        [answer] = java.answers([{**asked, "count": 6}])
        assert sorted(answer["bodies"]) == [*"012345"]

        store = LocalFileOffsetStore(java.folder, answer["clientId"], "audit")
        store.load()
        queues = [MessageQueue("orders", "broker-a", i) for i in range(2)]
        assert store.offsets() == {queues[0]: 3, queues[1]: 3}

        store.update(queues[1], 2, increase_only=False)
        store.persist(queues[1])
        [answer] = java.answers([{**asked, "count": 1}])
        assert answer["bodies"] == ["5"]
        assert [store.read(queue) for queue in queues] == [3, 3]


@pytest.mark.long
@pytest.mark.parametrize("orderly", [True, False])
def test_failed_messages_that_are_sent_again(java, orderly, monkeypatch):
    """An orderly consumer sends a message that failed too many times; a concurrent one if its send-back fails."""
    refused = []

    def refuse(self, call):
        refused.append(call.values["offset"])
        return Answer(Code.SYSTEM_ERROR, remark="no")

    monkeypatch.setattr(SendBackProcessor, "_checked", lambda self, group: None)  # nothing for the compiled path
    monkeypatch.setattr(SendBackProcessor, "process", refuse)
    properties = {"own": "x", "UNIQ_KEY": "7F00000100000000000000000000", "WAIT": "true", "TRAN_MSG": "true"}
    with rocketc.Broker() as broker:
        broker.topics.create("orders", 1)
        broker.store.put("orders", b"body", tags="t", keys="k", flag=5, properties=properties)
        asked = {"do": "fail", "nameServer": broker.name_server, "topic": "orders", "group": "audit"}
        [times] = java.answers([{**asked, "orderly": orderly, "most": 1, "count": 2 if orderly else 1}])
        assert times == ([0, 1] if orderly else [0])
        [failed] = rocketc.scan(broker.path, topics=["orders"])
        assert set(refused) == (set() if orderly else {failed.phy_offset})
        [found] = rocketc.scan(broker.path, topics=["%DLQ%audit" if orderly else "SCHEDULE_TOPIC_XXXX"])
    ours = retry_send("audit", failed, times[-1], 1, is_orderly=orderly)
    expected = {name: text for name, text in found.properties.items() if name not in ADDED}
    if orderly:
        assert expected.pop("DELAY") == "-1"  # the broker changes it
        ours.properties.pop("DELAY")
        if java.release < "5":  # 4.x sends the times before this failure
            assert expected.pop("RECONSUME_TIME") == "1"
            assert ours.properties.pop("RECONSUME_TIME") == "2"
    assert (ours.body, ours.flag, ours.properties) == (found.body, found.flag, expected)
    assert found.reconsume_times == ours.reconsume_times - (orderly and java.release < "5")
