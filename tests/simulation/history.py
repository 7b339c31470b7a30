"""What happened in a simulated cluster, and what must be true of it."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

LOCK_SECONDS = 60.0
LOST_LOCK_SECONDS = 31.0  # of an owner without a connection
DELAYS = 1.0, 3.0, 8.0  # of the levels
DELAY_PERSIST_SECONDS = 10.0
LATE_SECONDS = 1.0
END_SECONDS = 10.0  # a broker that ends in order may still serve
SWEEP_SECONDS = 5.0

Queue = tuple[str, str, int]  # broker, topic, queue id


class Send(NamedTuple):
    """A message that was acknowledged."""

    body: bytes
    tag: str
    queue: Queue
    offset: int
    began: float
    ended: float
    wire: tuple[int, int]  # the connection, and the place among the sends on it


class Delayed(NamedTuple):
    """A delayed message that was acknowledged. attempts: how many times it was sent until then."""

    body: bytes
    tag: str
    broker: str
    topic: str
    level: int
    began: float
    ended: float
    attempts: int


class Back(NamedTuple):
    """A message that a broker took back from a group. times: its reconsume times when it comes again."""

    group: str
    body: bytes
    broker: str
    times: int
    level: int
    ended: float


class Pull(NamedTuple):
    """A pull that took long."""

    queue: Queue
    offset: int
    tag: str
    began: float
    ended: float


class Lock(NamedTuple):
    """A lock that a client got in a life of a broker."""

    client: str
    began: float
    ended: float
    life: int


@dataclass
class Notice:
    """A client must hear from a broker about a group between two moments."""

    client: str
    broker: str
    group: str
    since: float
    until: float
    link: Any
    why: str


@dataclass
class History:
    """slack: seconds that an answer may take on its way."""

    slack: float
    sent: dict[bytes, float] = field(default_factory=dict)  # when each message was first sent
    tags: dict[bytes, str] = field(default_factory=dict)
    acknowledged: list[Send] = field(default_factory=list)
    got: dict[str, dict[Queue, dict[int, bytes]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(dict))
    )
    delayed: list[Delayed] = field(default_factory=list)
    levels: dict[bytes, int] = field(default_factory=dict)  # of delayed messages
    copies: dict[bytes, dict[tuple[Queue, int], float]] = field(default_factory=lambda: defaultdict(dict))
    backs: list[Back] = field(default_factory=list)
    due_again: dict[tuple[str, bytes, str, int], float] = field(default_factory=dict)  # of all send-backs: the first
    again: dict[tuple[str, bytes, str, int], float] = field(default_factory=dict)  # when it was delivered again
    dead: set[tuple[str, bytes, str]] = field(default_factory=set)  # dead letters, at the end: group, body, broker
    downs: list[tuple[str, float]] = field(default_factory=list)  # when brokers ended, in any way
    deaths: list[tuple[str, float]] = field(default_factory=list)  # brokers that were killed, or lost their power
    slow: list[Pull] = field(default_factory=list)
    locks: dict[tuple[str, Queue], list[Lock]] = field(default_factory=lambda: defaultdict(list))
    unlocks: dict[tuple[str, Queue, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    notices: dict[tuple[str, str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    due: list[Notice] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    filters: dict[str, str] = field(default_factory=dict)  # the tag that a group wants; "": all messages

    def fault(self, what: str) -> None:
        self.wrong.append(what)

    # while it runs

    def delivered(self, group: str, queue: Queue, offset: int, body: bytes, now: float) -> None:
        self.counts["delivered"] += 1
        began = self.sent.get(body)
        if began is None or began > now:
            self.fault(f"{group} got {body!r} at {now:.2f}, before it was sent")
        before = self.got[group][queue].setdefault(offset, body)
        if before != body:
            self.fault(f"{group} got {body!r} at {queue}, {offset}, where {before!r} was")

    def stored(self, group: str, queue: Queue, offset: int, body: bytes, times: int, at: float) -> None:
        """A message that a group pulled was stored at a time."""
        level = self.levels.get(body, 0)
        if queue[1].startswith("%RETRY%"):
            key = group, body, queue[0], times
            self.again.setdefault(key, at)
            if at < self.due_again.get(key, at + 1) - 0.002:
                self.fault(
                    f"{key} was stored again at {at:.3f}, early: it was due at {self.due_again.get(key, 'no time')}"
                )
        elif level:
            self.copies[body].setdefault((queue, offset), at)
            if at < self.sent[body] + DELAYS[level - 1] - 0.002:
                self.fault(f"{body!r} of level {level} was sent at {self.sent[body]:.3f} and stored at {at:.3f}: early")

    def pulled(self, pull: Pull, wait: float) -> None:
        """A pull whose connection was never in trouble ended."""
        took = pull.ended - pull.began
        if took > wait + SWEEP_SECONDS + self.slack:
            self.fault(f"a pull of {pull.queue} took {took:.2f} s")
        if took > self.slack:
            self.slow.append(pull)

    def committed(self, group: str, queue: Queue, offset: int, where: str) -> None:
        """An offset of a group was seen: everything before it was given to the group."""
        got, tag = self.got[group][queue], self.filters.get(group, "")
        if tag:
            return  # only others know what the group did not want: see at_end()
        missing = next((n for n in range(offset) if n not in got), None)
        if missing is not None:
            self.fault(f"{where}: the offset of {group} in {queue} is {offset}, but it never got {missing}")

    def locked(self, group: str, queue: Queue, lock: Lock) -> None:
        for other in self.locks[group, queue]:
            if (
                other.client != lock.client
                and other.life == lock.life
                and lock.began >= other.ended
                and lock.ended <= other.began + LOST_LOCK_SECONDS
                and not any(other.began <= at <= lock.ended for at in self.unlocks[group, queue, other.client])
            ):
                self.fault(f"{queue} of {group} was locked by {other} and by {lock}")
        self.locks[group, queue].append(lock)
        self.counts["locks"] += 1

    def expect(self, notice: Notice) -> None:
        self.due.append(notice)

    # at the end

    def at_end(self) -> list[str]:
        """Check the whole history; return what is wrong."""
        self._check_delivery()
        self._check_delayed()
        self._check_backs()
        self._check_order()
        self._check_slow_pulls()
        for one in self.due:
            heard = self.notices[one.client, one.broker, one.group]
            if one.link.was_in_trouble(one.since - self.slack, one.until):
                continue
            self.counts["notices"] += 1
            if not any(one.since <= at <= one.until for at in heard):
                self.fault(f"{one.client} did not hear from {one.broker} about {one.group}, {one.since:.2f}: {one.why}")
        return self.wrong

    def _check_delivery(self) -> None:
        for group, queues in self.got.items():
            tag = self.filters.get(group, "")
            for one in self.acknowledged:
                if tag in ("", one.tag) and queues[one.queue].get(one.offset) != one.body:
                    self.fault(f"{group} never got {one}")

    def _check_delayed(self) -> None:
        for one in self.delayed:
            for group, queues in self.got.items():
                is_wanted = self.filters.get(group, "") in ("", one.tag)
                if is_wanted and not any(
                    one.body in queues[queue].values() for queue in list(queues) if queue[:2] == (one.broker, one.topic)
                ):
                    self.fault(f"{group} never got {one}")
            copies = sorted(at for (queue, _), at in self.copies[one.body].items() if queue[0] == one.broker)
            if one.attempts == 1:
                for first, second in itertools.pairwise(copies):
                    if not self._may_come_again(one.broker, first, second):
                        self.fault(f"{one} was delivered twice, at {first:.3f} and {second:.3f}")
            self._check_late(one, copies)

    def _may_come_again(self, broker: str, first: float, second: float) -> bool:
        """Whether a broker died between two deliveries, and soon after the first."""
        return any(
            name == broker and first <= at <= second and at - first <= DELAY_PERSIST_SECONDS + self.slack + 1.0
            for name, at in self.deaths
        )

    def _check_late(self, one: Delayed, copies: list[float]) -> None:
        due = one.ended + DELAYS[one.level - 1]
        since = one.began - END_SECONDS
        is_up = not any(name == one.broker and since <= at <= due + LATE_SECONDS for name, at in self.downs)
        if is_up and copies and copies[0] > due + LATE_SECONDS:
            self.fault(f"{one} was stored at {copies[0]:.3f}, too late")

    def _check_backs(self) -> None:
        for one in self.backs:
            if one.level < 0:
                if (one.group, one.body, one.broker) not in self.dead:
                    self.fault(f"{one} is not a dead letter")
            elif (one.group, one.body, one.broker, one.times) not in self.again:
                self.fault(f"{one.group} never got {one} again")

    def _check_order(self) -> None:
        places: dict[tuple[bytes, Queue], list[Send]] = defaultdict(list)
        for one in self.acknowledged:
            places[one.body.split(b".")[0], one.queue].append(one)
        for sends in places.values():
            sends.sort(key=lambda one: one.offset)
            for before, after in itertools.pairwise(sends):
                is_same_wire = before.wire[0] == after.wire[0] and before.wire[1] > after.wire[1]
                if after.ended <= before.began or is_same_wire:
                    self.fault(f"out of order: {before}, {after}")

    def _check_slow_pulls(self) -> None:
        there: dict[Queue, list[Send]] = defaultdict(list)
        for one in self.acknowledged:
            there[one.queue].append(one)
        for pull in self.slow:
            for one in there[pull.queue]:
                if one.offset >= pull.offset and pull.tag in ("", one.tag):
                    waited = pull.ended - max(one.ended, pull.began)
                    if waited > self.slack:
                        self.fault(f"{pull} ended {waited:.2f} s late: {one}")
                        break
