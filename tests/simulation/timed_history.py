"""What happened to timed messages, and what must be true of it."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from simulation.history import History

from rocketc.broker import names

TOPIC = "reminders"
SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000  # ms
PRECISION = SECOND
RECALL_MS = PRECISION + 500  # a recall that was answered longer before the time is in time
LATE_MS = PRECISION + 2000
QUIET_SECONDS = 5.0  # a broker that just started, or whose clock just changed, may be late
FLUSH_SECONDS = 1.0 + 1.0  # timerFlushIntervalMs, and some more


@dataclass
class Timed:
    """A timed message.

    delay      ms after the clock of the broker; None: it is due at a time
    due, most  ms since the epoch: it is due between them
    """

    delay: int | None
    due: int
    most: int
    began: float
    clock: int  # ms: of the broker, when it began
    is_acknowledged: bool = False
    is_refused: bool = False
    asked_back: bool = False  # by a recall that may have come in time
    taken_back: bool = False  # by a recall that came in time
    recalls: list[tuple[float, int]] = field(default_factory=list)  # that were answered with 0: when, and ms


class Copy(NamedTuple):
    """A delivered message: when it was seen, and its moment in ms."""

    queue: int
    offset: int
    at: float
    out: str


class TimedHistory:
    """now: seconds of the virtual time. clock: ms, of the broker. roll_ms: a message due later is stored again."""

    clock: Callable[[], int]

    def __init__(self, history: History, now: Callable[[], float], roll_ms: int) -> None:
        self._history, self._now, self._roll_ms = history, now, roll_ms
        self.sent: dict[bytes, Timed] = {}
        self.copies: dict[bytes, list[Copy]] = defaultdict(list)
        self.deaths: list[float] = []
        self.ends: list[float] = []  # deaths, and ends in order
        self.behind: list[float] = []  # starts with a clock that was later before
        self.up_since: float | None = None
        self._jumps: list[tuple[float, int]] = []  # when, and ms
        self._must: dict[bytes, tuple[int, float]] = {}  # acknowledged: ms when they are due, and since when

    # what happens

    def started(self) -> None:
        self.up_since = self._now()

    def jumped(self, milliseconds: int) -> None:
        self._jumps.append((self._now(), milliseconds))

    def has_jumped_since(self, at: float) -> bool:
        return any(jump >= at for jump, _ in self._jumps)

    def begin(self, body: bytes, delay: int | None, due: int) -> Timed:
        """A message is about to be sent. due: by the clock of the broker now, if it has a delay."""
        one = self.sent[body] = Timed(delay, due, due, self._now(), self.clock())
        return one

    def acknowledged(self, body: bytes) -> None:
        one = self.sent[body]
        one.is_acknowledged = True
        if one.delay is not None:
            one.due, one.most = self._earliest(one), max(self.clock() + one.delay, one.due)
            forward = sum(ms for at, ms in self._jumps if at >= one.began and ms > 0)
            one.most = max(one.most, one.due + forward)
        if not self.copies.get(body):
            self._must[body] = one.most, self._now()

    def refused(self, body: bytes) -> None:
        self.sent[body].is_refused = True

    def recalled(self, body: bytes, latest: int) -> None:
        """A recall was answered with 0. latest: ms; the clock of the broker was never later."""
        one = self.sent[body]
        one.asked_back = True
        one.taken_back = one.taken_back or latest + RECALL_MS <= one.due
        one.recalls.append((self._now(), self.clock()))
        if one.taken_back:
            self._history.counts["taken back"] += 1
        self._must.pop(body, None)

    def asks_back(self, body: bytes) -> None:
        self.sent[body].asked_back = True
        self._must.pop(body, None)

    def not_recalled(self, body: bytes) -> None:
        """The only recall of a message was refused."""
        one = self.sent[body]
        one.asked_back = False
        if not self.copies.get(body):
            self._must[body] = one.most, self._now()

    def _earliest(self, one: Timed) -> int:
        """When a message may be due at the earliest: the clock may have been set back before it was stored."""
        if one.delay is None:
            return one.due
        return one.due + sum(ms for at, ms in self._jumps if at >= one.began and ms < 0)

    def forget(self, queue: int, end: int) -> None:
        """A power cut took the messages of a queue from an offset on."""
        for body, copies in self.copies.items():
            kept = [one for one in copies if one.queue != queue or one.offset < end]
            one = self.sent[body]
            if len(kept) < len(copies) and not kept and one.is_acknowledged and not one.asked_back:
                self._must[body] = one.most, self._now()
            copies[:] = kept

    def delivered(self, queue: int, message: Any, latest: int, seen: float) -> None:
        """A message was seen in its queue. latest: ms; the clock of the broker was never later."""
        body = bytes(message.body).partition(b"|")[0]
        self._must.pop(body, None)
        self._history.counts["delivered"] += 1
        one, at = self.sent.get(body), message.store_timestamp
        if one is None:
            self._history.fault(f"{body!r} is delivered, and was not sent")
            return
        earliest = one.due if one.is_acknowledged else self._earliest(one)
        was_back = any(ms < 0 for _, ms in self._jumps)
        if at < earliest - (PRECISION if was_back else 0):  # a clock that is set back by a step or two is not followed
            self._history.fault(f"{body!r} is delivered at {at}, {earliest - at} ms too early: {one}")
        if at > latest:
            self._history.fault(f"{body!r} is delivered at {at}, but the clock was never later than {latest}")
        if one.is_refused:
            self._history.fault(f"{body!r} was refused, and is delivered: {one}")
        if one.taken_back and not self._may_miss(one):
            self._history.fault(f"{body!r} was taken back, and is delivered at {at}: {one}")
        told = message.properties
        self.copies[body].append(Copy(queue, message.queue_offset, seen, told.get(names.TIMER_OUT_MS, "")))
        place = told.get(names.REAL_TOPIC, TOPIC), told.get(names.REAL_QUEUE, str(queue)), told.get("UNIQ_KEY")
        if place != (TOPIC, str(queue), body.decode()):
            self._history.fault(f"{body!r} is delivered to {queue} with {told}")

    def _may_miss(self, one: Timed) -> bool:
        """Whether a recall in time may come into the wheel after the time of its message.

        The broker did not run, or the clock was set forward, while one of both waited for another round.
        """
        passed = [*self.ends, *(at for at, ms in self._jumps if ms > 0)]
        rolls = self._rolls(one) or any(one.most - clock >= self._roll_ms - PRECISION for _, clock in one.recalls)
        return rolls and any(at >= one.began for at in passed)

    def _rolls(self, one: Timed) -> bool:
        return one.most - one.clock >= self._roll_ms - PRECISION  # the broker takes the step before its clock

    def _may_roll_twice(self, one: Timed) -> bool:
        """Whether a message may have been put into the timer topic twice: a kill or a lost time came after that."""
        was_back = any(at >= one.began and ms < 0 for at, ms in self._jumps)  # it may roll then
        return (self._rolls(one) or was_back) and any(at >= one.began for at in self.deaths + self.behind)

    # what must be true

    def waiting(self) -> int:
        """Return when all messages are due, in ms."""
        due = [one.most for one in self.sent.values() if not one.is_refused]
        return max(due, default=0) + LATE_MS

    def check_late(self, clock: int) -> None:
        """Check that nothing is late, if the broker had the time."""
        now = self._now()
        changed = max([self.up_since or now, *(at for at, _ in self._jumps[-1:])])
        if self.up_since is None or now - changed < QUIET_SECONDS:
            return
        for body, (due, since) in list(self._must.items()):
            if due + LATE_MS <= clock and now - since >= LATE_MS / 1000:
                del self._must[body]
                self._history.fault(f"at {now:.2f}, {body!r} is late by {clock - due} ms: {self.sent[body]}")

    def at_end(self) -> None:
        for body, one in self.sent.items():
            copies = self.copies.get(body, [])
            if one.is_acknowledged and not one.asked_back and not copies:
                self._history.fault(f"{body!r} is never delivered: {one}")
            for first, second in itertools.pairwise(copies):
                if any(first.at <= at <= second.at and at - first.at <= FLUSH_SECONDS for at in self.deaths):
                    self._history.counts["again"] += 1
                    continue
                if self._may_roll_twice(one):
                    self._history.counts["again after a roll"] += 1
                elif any(first.at <= at <= second.at for at in self.behind):
                    self._history.counts["again by a clock"] += 1
                else:
                    self._history.fault(f"{body!r} is delivered twice, seen at {first.at:.2f} and {second.at:.2f}")
