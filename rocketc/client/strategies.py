"""Which queues of a topic a consumer of a group gets: RocketMQ's strategies, under their names.

All consumers of a group must use the same strategy. Each computes its own part, so the result depends on the arguments
only. The caller sorts queues and client ids; then all members agree.
Source: RocketMQ AllocateMessageQueueStrategy, org.apache.rocketmq.client.consumer.rebalance.
"""

from __future__ import annotations

import hashlib
import inspect
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Literal, Protocol

from rocketc._layout import RETRY_PREFIX
from rocketc.client.routes import MessageQueue

VIRTUAL_NODES = 10  # of each client in the ring of CONSISTENT_HASH
StrategyName = Literal["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"]  # the strategies without settings
Divide = Callable[[str, str, Sequence[MessageQueue], Sequence[str]], Iterable[MessageQueue]]


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
        if not _takes_part(client_id, queues, client_ids):
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
        if not _takes_part(client_id, queues, client_ids):
            return []
        return list(queues[client_ids.index(client_id) :: len(client_ids)])


class ByConfig:
    """CONFIG: a fixed list, which is not checked. Each consumer of the group has a list of its own.

    The queues of the retry topic are divided as by AVG, unless the list has some of them. RocketMQ gives them to no
    consumer then, so that messages that failed never come again.

    >>> ByConfig([MessageQueue("orders", "broker-a", 3)]).allocate("g", "a", [], ["a", "b"])
    [MessageQueue(topic='orders', broker_name='broker-a', queue_id=3)]
    """

    name = "CONFIG"

    def __init__(self, queues: Sequence[MessageQueue]) -> None:
        self._queues = list(queues)

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the fixed list. Empty arguments raise nothing."""
        topic = queues[0].topic if queues else ""
        if topic.startswith(RETRY_PREFIX) and all(one.topic != topic for one in self._queues):
            return Averagely().allocate(group, client_id, queues, client_ids)
        return list(self._queues)


class ByMachineRoom:
    """MACHINE_ROOM: only the queues of brokers in some rooms. The name of such a broker is `room@name`.

    rooms  the names of the rooms

    >>> queues = [MessageQueue("orders", "east@a", i) for i in range(5)] + [MessageQueue("orders", "west@b", 0)]
    >>> [[queue.queue_id for queue in ByMachineRoom({"east"}).allocate("g", id, queues, "ab")] for id in "ab"]
    [[0, 1, 4], [2, 3]]
    """

    name = "MACHINE_ROOM"

    def __init__(self, rooms: Collection[str]) -> None:
        self._rooms = frozenset(rooms)

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of one consumer: see AllocateStrategy."""
        if not _takes_part(client_id, queues, client_ids):
            return []
        index, count = client_ids.index(client_id), len(client_ids)
        near = [queue for queue in queues if self._is_in_a_room(queue)]
        size, more = divmod(len(near), count)
        given = near[index * size : (index + 1) * size]
        return given + near[count * size + index :][:1] if index < more else given

    def _is_in_a_room(self, queue: MessageQueue) -> bool:
        parts = queue.broker_name.rstrip("@").split("@")  # as Java's split(), which drops empty parts at the end
        return len(parts) == 2 and parts[0] in self._rooms


class MachineRoomNearby:
    """MACHINE_ROOM_NEARBY: consumers get the queues of their own room, divided by another strategy.

    Queues of a room without consumers are divided among all consumers.
    inner             the other strategy
    room_of_queue     the room of a queue's broker
    room_of_consumer  the room of the consumer with a client id
    allocate() raises ValueError if a room is empty or None.

    >>> nearby = MachineRoomNearby(Averagely(), lambda queue: queue.broker_name[0], lambda client_id: client_id[0])
    >>> queues = [MessageQueue("orders", name, 0) for name in ("a1", "a2", "b1", "c1")]
    >>> [[queue.broker_name for queue in nearby.allocate("g", id, queues, ["a8", "b9"])] for id in ("a8", "b9")]
    [['a1', 'a2', 'c1'], ['b1']]
    """

    def __init__(
        self,
        inner: AllocateStrategy,
        room_of_queue: Callable[[MessageQueue], str | None],
        room_of_consumer: Callable[[str], str | None],
    ) -> None:
        self._inner, self._room_of_queue, self._room_of_consumer = inner, room_of_queue, room_of_consumer

    @property
    def name(self) -> str:
        return f"MACHINE_ROOM_NEARBY-{self._inner.name}"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of one consumer: those of its room, then those of each room without consumers."""
        if not _takes_part(client_id, queues, client_ids):
            return []
        queues_of: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            room = self._room_of_queue(queue)
            if not room:
                raise ValueError(f"the broker of {queue_text(queue)} is in no machine room")
            queues_of.setdefault(room, []).append(queue)
        members_of: dict[str, list[str]] = {}
        for member in client_ids:
            room = self._room_of_consumer(member)
            if not room:
                raise ValueError(f"the consumer {member} is in no machine room")
            members_of.setdefault(room, []).append(member)
        given = []
        own = next(room for room, members in members_of.items() if client_id in members)
        if own in queues_of:
            given += self._inner.allocate(group, client_id, queues_of[own], members_of[own])
        for room in sorted(queues_of.keys() - members_of.keys()):
            given += self._inner.allocate(group, client_id, queues_of[room], client_ids)
        return given


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
        if not _takes_part(client_id, queues, client_ids) or not self._nodes:
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


class Checked:
    """A strategy of a program, whose results are checked: a mistake must not leave queues without a consumer.

    divide  the arguments and the result are those of AllocateStrategy.allocate()
    allocate() raises TypeError or ValueError for a result that is not a part of the queues.

    >>> first = Checked("FIRST", lambda group, client_id, queues, client_ids: queues[:1])
    >>> first.allocate("g", "a", [MessageQueue("orders", "broker-a", i) for i in range(3)], ["a"])
    [MessageQueue(topic='orders', broker_name='broker-a', queue_id=0)]
    """

    def __init__(self, name: str, divide: Divide) -> None:
        self.name, self._divide = name, divide

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of one consumer: see AllocateStrategy."""
        found: object = self._divide(group, client_id, list(queues), list(client_ids))
        if not isinstance(found, Iterable) or isinstance(found, str | bytes):
            raise TypeError(f"the strategy {self.name} returned {type(found).__name__}; expected a list of queues")
        given = list(found)
        for one in given:
            if not isinstance(one, MessageQueue):
                raise TypeError(f"the strategy {self.name} returned a list with {type(one).__name__}; expected queues")
            if one not in queues:
                raise ValueError(f"the strategy {self.name} returned {queue_text(one)}, which the topic does not have")
        if len(set(given)) < len(given):
            raise ValueError(f"the strategy {self.name} returned a queue twice")
        return given


_OWN = (Averagely, AveragelyByCircle, ByConfig, ByMachineRoom, ConsistentHash, Checked)


def strategy_of(chosen: StrategyName | AllocateStrategy | Divide) -> AllocateStrategy:
    """Return the strategy of a setting: a name, an object of this module, or a function or object of the program.

    Raises ValueError for an unknown name, TypeError for anything else.

    >>> strategy_of("AVG").name, strategy_of(ByConfig([])).name
    ('AVG', 'CONFIG')
    >>> def mine(group, client_id, queues, client_ids): return queues
    >>> strategy_of(mine).name
    'mine'
    """
    if isinstance(chosen, str):
        return strategy(chosen)
    if isinstance(chosen, _OWN):
        return chosen
    is_class = isinstance(chosen, type)
    divide = getattr(chosen, "allocate", chosen)
    if is_class or not callable(divide) or inspect.iscoroutinefunction(divide):
        shown = f"the class {chosen.__name__}" if isinstance(chosen, type) else type(chosen).__name__
        raise TypeError(
            f"allocate_message_queue_strategy: expected a name, a plain function, or an object with allocate() of "
            f"rocketc.client.strategies, not {shown}"
        )
    name = getattr(chosen, "name", None) or getattr(chosen, "__name__", type(chosen).__name__)
    return Checked(str(name), divide)


def queue_text(queue: MessageQueue) -> str:
    """Return a queue as Java's MessageQueue.toString() writes it: CONSISTENT_HASH hashes this text.

    >>> queue_text(MessageQueue("orders", "broker-a", 0))
    'MessageQueue [topic=orders, brokerName=broker-a, queueId=0]'
    """
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def _takes_part(client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> bool:
    """Whether the consumer is in the group. Raises ValueError for an empty argument."""
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
