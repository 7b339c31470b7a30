"""Which queues of a topic a consumer of a group gets: RocketMQ's strategies, under their names.

All consumers of a group must use the same strategy. Those that brokers know, too, are in remoting.allocation.
Source: RocketMQ AllocateMessageQueueStrategy, org.apache.rocketmq.client.consumer.rebalance.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Sequence

from rocketc._layout import RETRY_PREFIX
from rocketc.client.routes import MessageQueue
from rocketc.remoting.allocation import (
    AllocateStrategy,
    Averagely,
    AveragelyByCircle,
    ConsistentHash,
    StrategyName,
    queue_text,
    strategy,
    takes_part,
)

__all__ = [
    "AllocateStrategy",
    "Averagely",
    "AveragelyByCircle",
    "ByConfig",
    "ByMachineRoom",
    "Checked",
    "ConsistentHash",
    "Divide",
    "MachineRoomNearby",
    "StrategyName",
    "queue_text",
    "strategy",
    "strategy_of",
]

Divide = Callable[[str, str, Sequence[MessageQueue], Sequence[str]], Iterable[MessageQueue]]


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
        if not takes_part(client_id, queues, client_ids):
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
        if not takes_part(client_id, queues, client_ids):
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
