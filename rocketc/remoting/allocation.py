"""How the queues of a topic are divided among the consumers of a group, by a rule that consumers and brokers know.

Each computes the part of one consumer, so the result depends on the arguments only. The caller sorts queues and client
ids; then all agree.
Source: RocketMQ AllocateMessageQueueStrategy, org.apache.rocketmq.client.consumer.rebalance.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from rocketc.remoting.route_data import MessageQueue

VIRTUAL_NODES = 10  # of each client in the ring of CONSISTENT_HASH
StrategyName = Literal["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"]  # the strategies without settings


class AllocateStrategy(Protocol):
    """A way to divide queues. Write a class of your own with these two members to use another one.

    name  brokers and tools show it
    """

    @property
    def name(self) -> str: ...

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of one consumer.

        client_id   of this consumer
        queues      all queues of the topic, sorted
        client_ids  all consumers of the group, sorted
        Returns an empty list if client_id is not in client_ids.
        Raises ValueError if client_id, queues or client_ids is empty.
        """
        ...


class Averagely:
    """AVG: each consumer gets adjacent queues, as many as the others or one more. RocketMQ's default.

    >>> queues = [MessageQueue("orders", "broker-a", i) for i in range(10)]
    >>> [[queue.queue_id for queue in Averagely().allocate("g", id, queues, "abcd")] for id in "abcd"]
    [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]
    """

    name = "AVG"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of one consumer: see AllocateStrategy."""
        if not takes_part(client_id, queues, client_ids):
            return []
        index = client_ids.index(client_id)
        size, more = divmod(len(queues), len(client_ids))
        start = index * size + min(index, more)
        return list(queues[start : start + size + (index < more)])


class AveragelyByCircle:
    """AVG_BY_CIRCLE: the first queue goes to the first consumer, the second to the second one, and so on in a circle.

    >>> queues = [MessageQueue("orders", "broker-a", i) for i in range(10)]
    >>> [[queue.queue_id for queue in AveragelyByCircle().allocate("g", id, queues, "abcd")] for id in "abcd"]
    [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]
    """

    name = "AVG_BY_CIRCLE"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of one consumer: see AllocateStrategy."""
        if not takes_part(client_id, queues, client_ids):
            return []
        return list(queues[client_ids.index(client_id) :: len(client_ids)])


class ConsistentHash:
    """CONSISTENT_HASH: few queues change their consumer when a consumer joins or leaves.

    virtual_nodes  places of each consumer in the ring; all members must have the same number
    Raises ValueError for a negative number.

    >>> queues = [MessageQueue("T", "B", i) for i in range(6)]
    >>> [queue.queue_id for queue in ConsistentHash().allocate("g", "c1", queues, ["c0", "c1", "c2"])]
    [0, 3, 5]
    """

    name = "CONSISTENT_HASH"

    def __init__(self, virtual_nodes: int = VIRTUAL_NODES) -> None:
        if virtual_nodes < 0:
            raise ValueError(f"virtual_nodes is {virtual_nodes}; it must not be negative")
        self._nodes = virtual_nodes

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of one consumer: see AllocateStrategy."""
        if not takes_part(client_id, queues, client_ids) or not self._nodes:
            return []
        owners = self._ring(client_ids)
        ring = sorted(owners)
        given = []
        for queue in queues:
            at = bisect_left(ring, _hash(queue_text(queue)))
            if owners[ring[at % len(ring)]] == client_id:
                given.append(queue)
        return given

    def _ring(self, client_ids: Sequence[str]) -> dict[int, str]:
        """Return the consumer at each place of the ring. An id that is listed twice has twice the places."""
        owners: dict[int, str] = {}
        counts: dict[str, int] = {}
        for member in client_ids:
            first = counts.get(member, 0)
            counts[member] = first + self._nodes
            for number in range(first, first + self._nodes):
                owners[_hash(f"{member}-{number}")] = member
        return owners


def strategy(name: StrategyName) -> AllocateStrategy:
    """Return the strategy with a name of RocketMQ without settings. Raises ValueError for another name.

    >>> strategy("AVG").name
    'AVG'
    """
    kinds: dict[str, Callable[[], AllocateStrategy]] = {
        one.name: one for one in (Averagely, AveragelyByCircle, ConsistentHash)
    }
    if name not in kinds:
        raise ValueError(f"{name!r} is not a strategy without settings: {', '.join(kinds)}")
    return kinds[name]()


def queue_text(queue: MessageQueue) -> str:
    """Return a queue as Java's MessageQueue.toString() writes it: CONSISTENT_HASH hashes this text.

    >>> queue_text(MessageQueue("orders", "broker-a", 0))
    'MessageQueue [topic=orders, brokerName=broker-a, queueId=0]'
    """
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def takes_part(client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> bool:
    """Whether the consumer is in the group. Raises ValueError for an empty argument.

    >>> takes_part("a", [MessageQueue("orders", "broker-a", 0)], ["a", "b"])
    True
    """
    if not client_id:
        raise ValueError("the client id is empty")
    if not queues:
        raise ValueError("the list of queues is empty")
    if not client_ids:
        raise ValueError("the list of client ids is empty")
    return client_id in client_ids


def _hash(key: str) -> int:
    digest = hashlib.md5(key.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")
