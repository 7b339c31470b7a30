"""Messages to put into a store with RocketMQ or rocketc, and the ledger of what must be read from it afterwards.

A message is a dict with the field names of Peer.java; a put adds the offsets. `{"batch": [...]}` is a client batch.
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from interop import ours
from interop.peer import Peer

Told = dict[str, Any]

CHECKSUM = "__CRC32#"  # not put, but read if enabledAppendPropCRC is on
PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC
HOSTS = ["10.1.2.3:54321", "192.168.1.10:10911", "[1050:0:0:0:5:600:300c:326b]:123", "[fe80:0:0:0:0:0:0:1]:10911"]
WORDS = ["amber", "basin", "cedar", "delta", "ember", "Straße", "Łódź", "λambda", "東京", "🚀", "½"]


def plan(seed: int, count: int, *, v2: bool = False) -> list[Told]:
    """`count` puts of all kinds. v2: also topics of more than 127 characters, which 4.x does not support."""
    chance = random.Random(seed)
    topics = ["Orders", "a", "Zz_9-%"] + (["%RETRY%" + "g" * 150, "%RETRY%" + "h" * 248] if v2 else [])

    def message() -> Told:
        properties = {}
        if chance.random() < 0.7:
            properties["TAGS"] = chance.choice(["TagA", "TagB", "Aa", "BB"])
        if chance.random() < 0.7:
            properties["KEYS"] = chance.choice(["k1", "k2 k3", "k4  k5", "ключ", "AaAa BBBB AaBB"])
        if chance.random() < 0.3:
            properties[chance.choice(["city", "город"])] = " ".join(chance.choices(WORDS, k=3))
        if chance.random() < 0.1:
            properties["pair"] = "name\1value"
        return {
            "topic": chance.choice(topics),
            "queueId": chance.randrange(3),
            "body": chance.randbytes(chance.choice([0, 1, 50, chance.randrange(900), chance.randrange(5000)])),
            "properties": properties,
            "flag": chance.choice([0, 0, 1, -1, -(2**31), 2**31 - 1]),
            "sysFlag": 0,
            "bornTimestamp": chance.randrange(2**41),
            "bornHost": chance.choice(HOSTS),
            "storeHost": chance.choice(HOSTS),
            "reconsumeTimes": chance.randrange(4),
            "preparedTransactionOffset": 0,
        }

    def batch() -> Told:
        first = {**message(), "topic": "Batch"}
        shared = {key: first[key] for key in ("topic", "queueId", "bornTimestamp", "bornHost", "storeHost")}
        rest = [{**message(), **shared, "reconsumeTimes": first["reconsumeTimes"]} for _ in range(chance.randrange(8))]
        return {"batch": [first, *rest]}

    planned = []
    for _ in range(count):
        if chance.random() < 0.1:
            planned.append(batch())
            continue
        planned.append(message())
        if chance.random() < 0.1:
            planned[-1]["sysFlag"] = chance.choice([PREPARED, COMMIT, ROLLBACK])
            planned[-1]["preparedTransactionOffset"] = chance.randrange(2**40)
    return planned


def of_size(size: int, topic: str = "a") -> Told:
    """A message whose record has this number of bytes, without properties."""
    return {
        "topic": topic,
        "queueId": 0,
        "body": bytes(size - 91 - len(topic)),
        "properties": {},
        "flag": 0,
        "sysFlag": 0,
        "bornTimestamp": 0,
        "bornHost": HOSTS[0],
        "storeHost": HOSTS[1],
        "reconsumeTimes": 0,
        "preparedTransactionOffset": 0,
    }


def read(peer: Peer, root: Path) -> list[Told]:
    """Every message of a store that is open in Java, in log order, as RocketMQ reads it.

    RocketMQ reads it through the queues, or at its physical offset if it is in no queue. RocketMQ finds each record
    valid, and rocketc reads the same.
    """
    records = ours.scan(root)
    answer = peer.read(root)
    apart = [message["physicalOffset"] for message in records if not is_queued(message)]
    theirs = sorted(
        [*answer["messages"], *filter(None, peer.look(root, apart))], key=lambda message: message["physicalOffset"]
    )
    assert all(message.pop("valid") for message in theirs)
    same(theirs, records)

    lengths = Counter((message["topic"], message["queueId"]) for message in records if is_queued(message))
    bounds = {(topic, queue): (low, high) for topic, queue, low, high in answer["queues"] if high}
    assert bounds == {queue: (0, length) for queue, length in lengths.items()}
    assert answer["max"] >= max((message["physicalOffset"] + message["storeSize"] for message in theirs), default=0)
    return theirs


def is_queued(message: Told) -> bool:
    """Whether the message is in a queue: half messages and rollbacks are not."""
    return message["sysFlag"] & ROLLBACK not in (PREPARED, ROLLBACK)


class Ledger:
    """What a store has acknowledged, in the order of the log."""

    def __init__(self) -> None:
        self.messages: list[Told] = []

    def add(self, planned: Iterable[Told], answers: Iterable[Told]) -> None:
        """Add the messages that were put, with the store's answer to each."""
        for item, answer in zip(planned, answers, strict=True):
            assert answer["ok"] and answer["status"] == "PUT_OK", answer
            entries = item.get("batch", [item])
            assert answer["count"] == len(entries)
            for n, message in enumerate(entries):
                known = {"queueOffset": answer["queueOffset"] + n, "storeTimestamp": answer["storeTimestamp"]}
                if n == 0:
                    known["physicalOffset"] = answer["phyOffset"]
                if len(entries) == 1:
                    known.update(storeSize=answer["size"], msgId=answer["msgId"])
                self.messages.append({**stored(message), **known})

    def adopt(self, planned: Iterable[Told], messages: list[Told]) -> None:
        """Add messages that a killed writer has put and not acknowledged; from now on they must stay.

        `messages` are all messages of the log. Those at the end without an acknowledgment are the next ones of the
        plan, in order.
        """
        late = messages[len(self.messages) :]
        for message, wanted in zip(late, flat(planned), strict=False):
            late_one = without_checksum(message)
            assert {key: late_one[key] for key in stored(wanted)} == stored(wanted)
            self.messages.append(late_one)

    def check(self, messages: list[Told]) -> None:
        """Assert that `messages`, in log order, are those acknowledged: none lost, changed, renumbered or invented."""
        known = []
        for message, wanted in zip(messages, self.messages, strict=False):
            found = without_checksum(message)
            known.append({key: found[key] for key in wanted})
        same(known, self.messages)
        self.messages = list(map(without_checksum, messages))  # the other fields that the reader returned must stay too

    def keys(self) -> dict[tuple[str, str], list[int]]:
        """(topic, key) -> physical offsets of the messages that RocketMQ finds by the key, in log order."""
        found: dict[tuple[str, str], list[int]] = {}
        for message in self.messages:
            if message["sysFlag"] & ROLLBACK != ROLLBACK:
                for key in set(message["properties"].get("KEYS", "").split()):
                    found.setdefault((message["topic"], key), []).append(message["physicalOffset"])
        return found


def same(found: list[Told], wanted: list[Told]) -> None:
    """Assert that the two are equal; name only the first difference."""
    for one, other in zip(found, wanted, strict=False):
        assert one == other
    assert len(found) == len(wanted)


def flat(planned: Iterable[Told]) -> Iterator[Told]:
    for item in planned:
        yield from item.get("batch", [item])


def without_checksum(message: Told) -> Told:
    properties = {name: text for name, text in message["properties"].items() if name != CHECKSUM}
    return {**message, "properties": properties}


def stored(message: Told) -> Told:
    """A message as the log has it, as far as its sender knows the fields."""
    six = (0x10 if message["bornHost"][0] == "[" else 0) | (0x20 if message["storeHost"][0] == "[" else 0)
    return {**message, "sysFlag": message["sysFlag"] | six}
