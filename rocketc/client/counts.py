"""What a client counts: sends, pulls and calls of listeners, with their times. A count costs less than a microsecond.

Source: RocketMQ ConsumerStatsManager, ConsumeStatus; its documentation of client metrics, for the bounds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from rocketc.client._times import Times
from rocketc.client.owned_queue import Owned

SEND_BOUNDS = (1, 5, 10, 20, 50, 200, 500)  # ms, of rocketmq_send_cost_time
PROCESS_BOUNDS = (1, 5, 10, 100, 10_000, 60_000)  # of rocketmq_process_time
AWAIT_BOUNDS = (1, 5, 20, 100, 1_000, 5_000, 10_000)  # of rocketmq_await_time
_TOPICS_MOST = 1_000  # that are counted one by one
OTHERS = "other topics"  # the name of all further ones together; no topic can have it

__all__ = ["OTHERS", "PROCESS_BOUNDS", "SEND_BOUNDS", "ConsumeCounts", "ConsumerCounts", "ProducerCounts", "Times",
           "TimesByTopic", "Window", "consumer_counts"]  # fmt: skip

Key = tuple[str, bool]  # topic, whether it succeeded


class TimesByTopic:
    """Times by topic and success. Topics beyond a limit are counted together."""

    def __init__(self, bounds: tuple[int, ...]) -> None:
        self._bounds = bounds
        self._found: dict[Key, Times] = {}

    def add(self, topic: str, is_ok: bool, ms: float, count: int = 1) -> None:
        """Count calls."""
        (self._found.get((topic, is_ok)) or self.of(topic, is_ok)).add(ms, count)

    def of(self, topic: str, is_ok: bool) -> Times:
        """Return the times of a topic, for code that adds to them often."""
        times = self._found.get((topic, is_ok))
        if times is None:
            key = (topic if len(self._found) < _TOPICS_MOST else OTHERS), is_ok
            times = self._found.setdefault(key, Times(self._bounds))
        return times

    def items(self) -> list[tuple[Key, Times]]:
        """Return the times by topic and success. Any thread may call it."""
        return list(self._found.items())


class Window:
    """A count over the last minute or hour.

    seconds  of one slot
    slots    whole slots that are kept, before the current one

    >>> window = Window(10, 6)
    >>> window.add(100.0, 3, ms=6.0)
    >>> window.add(111.0, 1, ms=2.0)
    >>> window.sum(111.0), window.mean(111.0), window.sum(500.0)
    (4, 2.0, 0)
    """

    def __init__(self, seconds: int, slots: int) -> None:
        self._seconds, self._slots = seconds, slots
        self._last: list[float] = [-1, 0, 0.0]  # number, count, ms
        self._kept: deque[list[float]] = deque(maxlen=slots + 1)

    def add(self, now: float, count: int, ms: float = 0.0) -> None:
        """Count something. now: loop.time()"""
        last = self._last
        if last[0] != now // self._seconds:
            last = self._last = [now // self._seconds, 0, 0.0]
            self._kept.append(last)
        last[1] += count
        last[2] += ms

    def _since(self, now: float) -> list[list[float]]:
        first = now // self._seconds - self._slots
        return [one for one in list(self._kept) if one[0] >= first]

    def sum(self, now: float) -> int:
        """Return the count over the window."""
        return int(sum(one[1] for one in self._since(now)))

    def rate(self, now: float) -> float:
        """Return the count per second, over the whole window."""
        return self.sum(now) / (self._seconds * self._slots)

    def both(self, now: float) -> tuple[int, float]:
        """Return the count and the ms over the window."""
        found = self._since(now)
        return int(sum(one[1] for one in found)), sum(one[2] for one in found)

    def mean(self, now: float) -> float:
        """Return the ms of one; 0.0 if nothing was counted."""
        count, ms = self.both(now)
        return ms / count if count else 0.0


class _OfTopic:
    def __init__(self) -> None:
        self.pulls, self.pulled = Window(10, 6), Window(10, 6)
        self.ok, self.failed = ((Times(PROCESS_BOUNDS), Window(10, 6)) for _ in range(2))
        self.failed_hour = Window(60, 60)

    def process_time(self, now: float) -> float:
        """The ms of a message in the last minute."""
        parts = [window.both(now) for _, window in (self.ok, self.failed)]
        count = sum(count for count, _ in parts)
        return sum(ms for _, ms in parts) / count if count else 0.0


class ConsumeCounts:
    """What a consumer counts. Times are ms."""

    def __init__(self) -> None:
        self.pulls = TimesByTopic(SEND_BOUNDS)  # those that returned messages
        self.pulled_messages: dict[str, int] = {}
        self.awaits = TimesByTopic(AWAIT_BOUNDS)  # of messages, from the pull to the call of the listener
        self.returned = 0  # messages that were sent back, for another delivery
        self._topics: dict[str, _OfTopic] = {}

    def pulled(self, topic: str, messages: int, ms: float, now: float) -> None:
        """Count a pull that returned messages."""
        self.pulls.add(topic, True, ms)
        self.pulled_messages[topic] = self.pulled_messages.get(topic, 0) + messages
        of = self._of(topic)
        of.pulls.add(now, 1, ms)
        of.pulled.add(now, messages)

    def consumed(self, topic: str, is_ok: bool, messages: int, ms: float, now: float) -> None:
        """Count a call of a listener."""
        of = self._topics.get(topic) or self._of(topic)
        times, window = of.ok if is_ok else of.failed
        times.add(ms, messages)
        window.add(now, messages, ms * messages)
        if not is_ok:
            of.failed_hour.add(now, messages)

    def processed(self) -> list[tuple[Key, Times]]:
        """Return the times of listeners by topic and success. Any thread may call it."""
        parts = [
            ((topic, is_ok), times)
            for topic, of in list(self._topics.items())
            for is_ok, (times, _) in ((True, of.ok), (False, of.failed))
        ]
        return [(key, times) for key, times in parts if times.count]

    def _of(self, topic: str) -> _OfTopic:
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = _OfTopic()
        return found

    def status(self, topics: list[str], now: float) -> dict[str, dict[str, Any]]:
        """Return ConsumeStatus by topic, as a consumer reports it to mqadmin.

        >>> counts = ConsumeCounts()
        >>> counts.consumed("orders", False, 1, ms=3.0, now=70.0)
        >>> counts.status(["orders"], 70.0)["orders"]["consumeFailedMsgs"]
        1
        """
        return {
            topic: {
                "consumeFailedMsgs": of.failed_hour.sum(now),
                "consumeFailedTPS": of.failed[1].rate(now),
                "consumeOKTPS": of.ok[1].rate(now),
                "consumeRT": of.process_time(now),
                "pullRT": of.pulls.mean(now),
                "pullTPS": of.pulled.rate(now),
            }
            for topic, of in ((topic, self._topics.get(topic) or _OfTopic()) for topic in topics)
        }


@dataclass(frozen=True)
class ProducerCounts:
    """What a producer has counted since its start.

    sends     calls of send() by topic and success, all attempts included; a batch counts once
    retries   attempts after the first one
    messages  and
    bytes     in flight now
    ends      END_TRANSACTION that a producer of transactions has written, by the name of the state; also answers to
              checks
    """

    client_id: str
    group: str
    sends: list[tuple[Key, Times]]
    retries: int
    messages: int
    bytes: int
    ends: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ConsumerCounts:
    """What a consumer has counted since its start.

    processed  messages by topic and success, with the times of the calls of listeners
    pulls      that returned messages, by topic
    pulled     messages by topic
    awaits     messages by topic, with the times from their pulls to the calls of listeners
    returned   messages that were sent back, for another delivery
    cached     by topic: messages that were pulled and are not consumed, and bytes of their bodies
    queues     of this member
    """

    client_id: str
    group: str
    processed: list[tuple[Key, Times]]
    pulls: list[tuple[Key, Times]]
    pulled: dict[str, int]
    returned: int
    queues: int
    cached: dict[str, tuple[int, int]] = field(default_factory=dict)
    awaits: list[tuple[Key, Times]] = field(default_factory=list)


def consumer_counts(client_id: str, group: str, counts: ConsumeCounts, owned: Collection[Owned]) -> ConsumerCounts:
    """Return what a consumer has counted, and the messages that its queues have now.

    >>> consumer_counts("10.0.0.1@1", "billing", ConsumeCounts(), []).queues
    0
    """
    cached: dict[str, tuple[int, int]] = {}
    for one in owned:
        messages, size = cached.get(one.queue.topic, (0, 0))
        cached[one.queue.topic] = messages + len(one.process_queue), size + one.process_queue.size
    return ConsumerCounts(
        client_id, group, counts.processed(), counts.pulls.items(), dict(counts.pulled_messages), counts.returned,
        len(owned), cached, counts.awaits.items(),
    )  # fmt: skip
