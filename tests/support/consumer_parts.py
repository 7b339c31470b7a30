"""Random questions about the parts of a consumer, and rocketc's answers in the form of RocketMQ's.

tests/interop/java/ConsumerParts.java answers the same questions.
"""

import json
import random
from pathlib import Path
from typing import Any

from rocketc.client import strategies
from rocketc.client.routes import MessageQueue
from rocketc.client.subscriptions import ConsumerData, encode_heartbeat, subscribe
from rocketc.errors import SubscriptionError
from rocketc.remoting import allocation
from rocketc.remoting.subscribing import ConsumeFromWhere, ConsumeType, MessageModel

Question = dict[str, Any]

GOLDEN = Path(__file__).parents[1] / "golden" / "consumer-5.3.3.jsonl"

NAMES = ("AVG", "AVG_BY_CIRCLE", "CONFIG", "MACHINE_ROOM", "CONSISTENT_HASH")
NEARBY = "MACHINE_ROOM_NEARBY-"
ROOMS = ("east", "west", "north")
WORDS = {  # Java's text of an error: ours
    "currentCID is empty": "the client id is empty",
    "mqAll is null or mqAll empty": "the list of queues is empty",
    "cidAll is null or cidAll empty": "the list of client ids is empty",
    "illegal virtualNodeCnt": "virtual_nodes is",
    "Machine room is null for mq": "the broker of",
    "Machine room is null for consumer id": "the consumer",
}


_EXPRESSIONS = (
    *("*", "", None, "A", "A || B", "A||B", " A ||  || B ", "||", "||||", "|| ||", "A || A", "é||日本||\U0001f600"),
    *("*||A", " * ", "a|b", "A ||", "\tA\n\x00", "\u00a0A", "Aa||BB"),
)
SUBSCRIPTIONS: list[Question] = [
    *({"do": "subscribe", "topic": "orders", "expression": one, "type": "TAG"} for one in _EXPRESSIONS),
    {"do": "subscribe", "topic": "orders", "expression": "A", "type": None},
    *({"do": "subscribe", "topic": "orders", "expression": one, "type": "SQL92"} for one in ("a > 1", "*", "", None)),
    {"do": "subscribe", "topic": "orders", "expression": "x", "type": "OTHER"},
]
HEARTBEAT: Question = {
    "do": "heartbeat",
    "clientId": "10.0.0.1@7#99",
    "producers": ["CLIENT_INNER_PRODUCER"],
    "consumers": [
        {
            "group": "audit",
            "type": "CONSUME_PASSIVELY",
            "model": "CLUSTERING",
            "from": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptions": [
                {"topic": "%RETRY%audit", "expression": "*", "type": "TAG", "version": 1700000000001},
                {"topic": "orders", "expression": "new || paid || sent", "type": "TAG", "version": 1700000000000},
                {"topic": "sql", "expression": "a > 1 AND b = 'x\"ä'", "type": "SQL92", "version": 3},
            ],
        },
        {
            "group": "news",
            "type": "CONSUME_ACTIVELY",
            "model": "BROADCASTING",
            "from": "CONSUME_FROM_TIMESTAMP",
            "subscriptions": [],
        },
    ],
}


def questions() -> list[Question]:
    """The questions of the golden file."""
    return [*allocations(120, seed=33), *SUBSCRIPTIONS, HEARTBEAT]


def recorded(kind: str) -> list[tuple[Question, Any]]:
    """The questions of a kind in the golden file, each with RocketMQ's answer."""
    lines = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]
    return [(line["asked"], line["answer"]) for line in lines if line["asked"]["do"] == kind]


def allocations(count: int, seed: int) -> list[Question]:
    """Random arguments of strategies: mostly whole groups, some with strange names, missing members and empty lists."""
    chance = random.Random(seed)
    return [_allocation(chance) for _ in range(count)]


def _allocation(chance: random.Random) -> Question:
    name = chance.choice([*NAMES, *(NEARBY + one for one in NAMES if one != "CONFIG"), NEARBY + NEARBY + "AVG"])
    separator = "." if NEARBY in name else "@"
    rooms = chance.sample(ROOMS, chance.randint(1, 3))
    brokers = [f"{chance.choice(ROOMS)}{separator}b{i}" for i in range(chance.randint(1, 4))]
    clients = [f"{chance.choice(ROOMS)}.10.0.0.{chance.randint(1, 99)}@{i}#é" for i in range(chance.randint(1, 9))]
    queues = [["orders", broker, i] for broker in sorted(brokers) for i in range(chance.randint(1, 8))]
    clients.sort()
    client = chance.choice(clients)
    strange = chance.random()
    if strange < 0.05:
        queues, clients = chance.choice([(queues, []), ([], clients), ([], [])])
    elif strange < 0.1:
        client = chance.choice(["", "unknown", "east.unknown"])
    elif strange < 0.15:
        clients.insert(0, clients[-1])
    elif strange < 0.2:
        names = [f"east{separator * 2}b", f"{separator}b", f"b{separator}", "b", f"east{separator}b{separator}c"]
        queues[-1][1] = chance.choice(names)
    elif strange < 0.25:
        clients.append(chance.choice([".c", "c"]))
    asked = {"do": "allocate", "strategy": name, "client": client, "queues": queues, "clients": clients, "rooms": rooms}
    if name == "CONFIG":
        asked["config"] = chance.sample(queues, chance.randint(0, len(queues)))
    if name == "CONSISTENT_HASH" and chance.random() < 0.3:
        asked["nodes"] = chance.choice([-1, 0, 1, 3, 100])
    return asked


def allocated(asked: Question) -> Question:
    """Our answer to one of them."""
    try:
        one = strategy_of(asked["strategy"], asked)
        found = one.allocate("group", asked["client"], _queues(asked["queues"]), asked["clients"])
    except ValueError as error:
        return {"error": str(error)}
    return {"name": one.name, "queues": [list(queue) for queue in found]}


def subscribed(asked: Question) -> Question:
    """Our answer to a question about a subscription."""
    try:
        return subscribe(asked["topic"], asked["expression"], asked["type"]).members()
    except SubscriptionError as error:
        return {"error": str(error)}


def heartbeat(asked: Question) -> bytes:
    """Our heartbeat with these groups."""
    consumers = [
        ConsumerData(
            one["group"],
            tuple(
                subscribe(each["topic"], each["expression"], each["type"], sub_version=each["version"])
                for each in one["subscriptions"]
            ),
            ConsumeType[one["type"]],
            MessageModel[one["model"]],
            ConsumeFromWhere[one["from"]],
        )
        for one in asked["consumers"]
    ]
    return encode_heartbeat(asked["clientId"], consumers, asked["producers"])


def in_order(value: Any) -> Any:
    """A JSON value as pairs, with the lists of sets sorted: only these have another order in each Java process."""
    if isinstance(value, dict):
        return [(name, in_order(inner)) for name, inner in value.items()]
    return sorted(map(in_order, value), key=repr) if isinstance(value, list) else value


def are_alike(java: Question, ours: Question) -> bool:
    """Whether two answers are the same. The texts of errors differ; they have to name the same argument."""
    if "error" not in java:
        return java == ours
    kind, _, text = java["error"].partition(": ")
    word = next(word for word in WORDS if text.startswith(word))
    return kind == "IllegalArgumentException" and ours.get("error", "").startswith(WORDS[word])


def strategy_of(name: str, asked: Question) -> strategies.AllocateStrategy:
    if name.startswith(NEARBY):
        inner = strategy_of(name.removeprefix(NEARBY), asked)
        return strategies.MachineRoomNearby(inner, lambda queue: _room(queue.broker_name), _room)
    if name == "CONFIG":
        return strategies.ByConfig(_queues(asked["config"]))
    if name == "MACHINE_ROOM":
        return strategies.ByMachineRoom(asked["rooms"])
    if name == "CONSISTENT_HASH":
        return strategies.ConsistentHash(asked.get("nodes", allocation.VIRTUAL_NODES))
    return strategies.strategy(name)  # type: ignore[arg-type]


def _room(name: str) -> str | None:
    room, dot, _ = name.partition(".")
    return room if dot else None


def _queues(found: list[list[Any]]) -> list[MessageQueue]:
    return [MessageQueue(*one) for one in found]
