"""What the clients of a simulated cluster did, and what must be true of it."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from simulation.history import History, Queue

LOCK_LIVE_SECONDS = 30.0  # a client does not trust an older lock
TROUBLE_SECONDS = 90.0  # after which a lock that a broker or a client lost is given again
TIMEOUT_SECONDS = 60.0  # consume_timeout: of a listener


class Stored(NamedTuple):
    """A message that a broker acknowledged."""

    body: bytes
    queue: Queue
    offset: int
    began: float
    ended: float


class Call(NamedTuple):
    """One call of a listener of an orderly consumer."""

    member: str
    first: int  # offset
    began: float
    ended: float


class ClientHistory(History):
    """slack: seconds that an answer may take on its way."""

    def __init__(self, slack: float) -> None:
        super().__init__(slack)
        self.lines: dict[str, list[Stored]] = defaultdict(list)  # messages that were sent one after the other
        self.started: dict[str, dict[Queue, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
        self.done: dict[str, dict[Queue, set[int]]] = defaultdict(lambda: defaultdict(set))  # listeners returned
        self._prefix: dict[tuple[str, Queue], int] = defaultdict(int)  # all before it are done
        self.consumed: dict[str, set[bytes]] = defaultdict(set)  # bodies, by group
        self._order: dict[str, dict[Queue, int]] = defaultdict(dict)  # the greatest offset that an orderly group did
        self.calls: dict[tuple[str, Queue], list[Call]] = defaultdict(list)
        self.troubles: dict[str, list[float]] = defaultdict(
            list
        )  # of hosts: when a member hung, or a broker began again

    # sends

    def stored_at(self, line: str, body: bytes, queue: Queue, offset: int, began: float, ended: float) -> None:
        """A send was acknowledged. line: what is sent one after the other; empty: nothing"""
        one = Stored(body, queue, offset, began, ended)
        if line:
            self.lines[line].append(one)
        self.acknowledged.append(one)  # type: ignore[arg-type]

    # consumption

    def begins(self, group: str, queue: Queue, offset: int, body: bytes, now: float) -> None:
        """A listener gets a message."""
        self.delivered(group, queue, offset, body, now)
        self.started[group][queue].setdefault(offset, now)

    def ends(self, group: str, queue: Queue, offset: int, body: bytes, *, failed: bool = False) -> None:
        """A listener is done with a message. failed: it must come again."""
        self.done[group][queue].add(offset)
        if not failed:
            self.consumed[group].add(body)

    def in_order(self, group: str, queue: Queue, offset: int) -> None:
        """An orderly group is done with a message: it was done with all before it."""
        before = self._order[group].get(queue, -1)
        if offset > before + 1:
            self.fault(f"{group} consumed {offset} of {queue}, after {before}: out of order")
        self._order[group][queue] = max(before, offset)

    def committed(self, group: str, queue: Queue, offset: int, where: str) -> None:
        """An offset of a group was seen: everything before it was consumed, or took too long."""
        if group not in self.done or self.now is None:
            return
        done, at = self.done[group][queue], self._prefix[group, queue]
        started, now = self.started[group][queue], self.now()
        while at < offset and (at in done or now - started.get(at, now) > TIMEOUT_SECONDS):
            at += 1
        self._prefix[group, queue] = max(at, self._prefix[group, queue])
        if at < offset:
            self.fault(f"{now:.2f}, {where}: the offset of {group} in {queue} is {offset}, but {at} is not consumed")

    now = None  # a callable, as soon as the network is there

    # at the end

    def at_end(self) -> list[str]:
        for group, bodies in self.consumed.items():
            for one in self.acknowledged:
                if one.body not in bodies:
                    self.fault(f"{group} never consumed {one}")
        self._check_lines()
        for (group, queue), calls in self.calls.items():
            self._check_calls(group, queue, calls)
        return self.wrong

    def _check_lines(self) -> None:
        for line, sends in self.lines.items():
            last: dict[Queue, Stored] = {}
            for one in sends:
                before = last.get(one.queue)
                if before is not None and before.offset >= one.offset:
                    self.fault(f"{line} was stored out of order: {before}, {one}")
                last[one.queue] = one

    def _check_calls(self, group: str, queue: Queue, calls: list[Call]) -> None:
        """No two members work on a queue at the same time, but for locks that were lost."""
        calls.sort(key=lambda one: one.began)
        for n, one in enumerate(calls):
            for other in calls[n + 1 :]:
                if other.began >= one.ended:
                    break
                if other.member != one.member and not self._was_in_trouble(queue[0], one, other):
                    self.fault(f"{group}: two listeners worked on {queue} at the same time: {one}, {other}")

    def _was_in_trouble(self, broker: str, one: Call, other: Call) -> bool:
        if one.ended - one.began > LOCK_LIVE_SECONDS - 5:
            return True
        for call in (one, other):  # a process that hung ends its call, and begins no other one without a new lock
            if any(call.began <= at <= call.ended for at in self.troubles[call.member]):
                return True
        return any(one.began - TROUBLE_SECONDS <= at <= other.began for at in self.troubles[broker])
