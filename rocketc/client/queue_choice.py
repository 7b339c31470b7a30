"""Which queue a message goes into, and which brokers are avoided for a while.

Source: RocketMQ TopicPublishInfo, MQFaultStrategy, LatencyFaultToleranceImpl, SelectMessageQueueByHash.
"""

from __future__ import annotations

import random
from collections.abc import Container, Sequence

from rocketc.client._send_path import Turn
from rocketc.client.recent import Recent
from rocketc.client.routes import MessageQueue
from rocketc.errors import IllegalMessageError
from rocketc.format._encoding import java_hash

# After a send that took at least the first number of ms, its broker is avoided for the second number of ms.
_PAUSES = ((15_000, 30_000), (5_000, 10_000), (3_000, 6_000), (1_800, 5_000), (550, 2_000))
_TOPICS_MOST = 2_000  # whose turns are known; others begin at a random queue again
_ISOLATED_MS = 10_000  # counts for a send that failed: RocketMQ 5's isolation


class RoundRobin:
    """Takes the queues of a topic one after the other, beginning at a random one.

    chance  for the beginning

    >>> import random
    >>> queues = [MessageQueue("orders", name, n) for name in ("a", "b") for n in (0, 1)]
    >>> turns = RoundRobin(random.Random(1))
    >>> sorted(turns.next("orders", queues) for _ in queues) == queues
    True
    >>> turns.next("orders", queues, avoid={"a"}).broker_name
    'b'
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._turns: Recent[str, Turn] = Recent(_TOPICS_MOST)

    def turn(self, topic: str) -> Turn:
        """Return whose turn it is, for code that takes the next queue itself: add 1 to its value for each."""
        turn = self._turns.get(topic)
        if turn is None:
            turn = self._turns[topic] = Turn(self._chance.randrange(1 << 16))
        return turn

    def next(self, topic: str, queues: Sequence[MessageQueue], avoid: Container[str] = ()) -> MessageQueue:
        """Return the next queue, if possible of a broker whose name is not in `avoid`.

        queues  of the topic, at least one
        """
        turn = self.turn(topic)
        for i in range(1, len(queues) + 1):
            queue = queues[(turn.value + i) % len(queues)]
            if queue.broker_name not in avoid:
                break
        else:
            i, queue = 1, queues[(turn.value + 1) % len(queues)]
        turn.value += i
        return queue


def check_choice(**ways: object) -> None:
    """Raise IllegalMessageError if more than one argument of a send chooses the queue.

    >>> check_choice(queue=None, shard="c-7")
    >>> check_choice(queue=1, shard="c-7")
    Traceback (most recent call last):
    rocketc.errors.IllegalMessageError: give queue or shard, not both: each chooses the queue of the message
    """
    given = [name for name, value in ways.items() if value is not None]
    if len(given) > 1:
        raise IllegalMessageError(f"give {given[0]} or {given[1]}, not both: each chooses the queue of the message")


def queue_of_shard(shard: str, queues: Sequence[MessageQueue]) -> MessageQueue:
    """Return the queue of a shard: the same one while the topic keeps its queues. Java's selector by hash agrees.

    >>> queue_of_shard("c-7", [MessageQueue("orders", "a", n) for n in range(4)]).queue_id
    1
    """
    value = java_hash(shard)
    rest = abs(value) % len(queues)  # Java's % has the sign of the hash, and its sign is dropped
    return queues[rest]


class LatencyFaults:
    """Avoids brokers that were slow or failed (RocketMQ: sendLatencyFaultEnable).

    >>> faults = LatencyFaults()
    >>> faults.sent("a", ms=3, now=100.0)
    >>> faults.failed("b", now=100.0)
    >>> faults.avoided(now=105.0), faults.avoided(now=111.0)
    ({'b'}, set())
    """

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def sent(self, broker_name: str, ms: float, now: float) -> None:
        """Note how long a send took. now: loop.time()"""
        pause = next((pause for least, pause in _PAUSES if ms >= least), 0)
        if pause:
            self._until[broker_name] = now + pause / 1000
        else:
            self._until.pop(broker_name, None)

    def failed(self, broker_name: str, now: float) -> None:
        """Note that a send failed."""
        self.sent(broker_name, _ISOLATED_MS, now)

    def avoided(self, now: float) -> set[str]:
        """Return the names of the brokers that are avoided now."""
        return {name for name, until in self._until.items() if now < until}
