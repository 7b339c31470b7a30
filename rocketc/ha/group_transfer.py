"""Messages that wait until enough replicas have them. One report of a slave ends the waits of all that it covers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from rocketc.ha.replicas import Replica, Replicas
from rocketc.status import PutStatus

SLAVE_TIMEOUT = 3.0  # seconds: slaveTimeout

Done = Callable[[PutStatus], object]


class GroupTransfer:
    """A list of waits in the order of the log, without a task or a timer for each.

    replicas  the connected slaves
    timeout   seconds after which a wait ends with FLUSH_SLAVE_TIMEOUT
    Create it on the thread of the event loop, and close() it there.
    Source: RocketMQ GroupTransferService.
    """

    def __init__(self, replicas: Replicas, timeout: float = SLAVE_TIMEOUT) -> None:
        self._replicas = replicas
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[int, float, Done]] = deque()
        self._earlier: deque[tuple[int, float, Done]] = deque()  # a slave has come that is not sent these messages
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._earlier) + len(self._waiting)

    def add(self, end: int, done: Done) -> None:
        """Call `done` with the status of a stored message whose record ends at `end`.

        PUT_OK: enough replicas have it. FLUSH_SLAVE_TIMEOUT: not in time. SLAVE_NOT_AVAILABLE, soon: there is no slave
        to wait for, see Replicas.refusal(). Later ends should not be smaller: the waits end in their order.
        After close() the status is FLUSH_SLAVE_TIMEOUT.
        """
        refused = PutStatus.FLUSH_SLAVE_TIMEOUT if self._is_closed else self._replicas.refusal(end)
        if refused is not None or (not self._waiting and end <= self._replicas.replicated):
            self._loop.call_soon(done, PutStatus.PUT_OK if refused is None else refused)
            return
        self._waiting.append((end, self._loop.time() + self._timeout, done))
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout, self._on_time)

    def begin(self, replica: Replica, first: int) -> None:
        """A slave gets the log from a physical offset on: it can't acknowledge what was before. Others may do it.

        It may have another log up to there, or none. The messages that wait now are the only ones before this offset.
        """
        replica.first = first
        while self._waiting and self._waiting[0][0] <= first:
            self._earlier.append(self._waiting.popleft())

    def report(self, replica: Replica, phy_offset: int) -> None:
        """Record the report of a slave, and end the waits for what it has."""
        has_moved = self._replicas.report(replica, phy_offset)
        if self._earlier:
            self._end_earlier()
        if has_moved:
            self._end_waits()

    def configure(self, timeout: float) -> None:
        """Take another time-out for later waits, and end those that need fewer replicas if `acks` has changed."""
        self._timeout = timeout
        self._replicas.look()
        if self._replicas.acks <= 1:
            waiting = [*self._earlier, *self._waiting]
            self._earlier, self._waiting = deque(), deque()
            for _, _, done in waiting:
                self._answer(done, PutStatus.PUT_OK)
        self._end_earlier()
        if self._timer is not None:
            self._timer.cancel()
            self._on_time()

    def _end_waits(self) -> None:
        reached, waiting = self._replicas.replicated, self._waiting
        while waiting and waiting[0][0] <= reached:
            self._answer(waiting.popleft()[2], PutStatus.PUT_OK)

    def _end_earlier(self) -> None:
        earlier, self._earlier = self._earlier, deque()
        for wait in earlier:
            if self._replicas.have(wait[0]):
                self._answer(wait[2], PutStatus.PUT_OK)
            else:
                self._earlier.append(wait)

    def _on_time(self) -> None:
        now = self._loop.time()
        for waiting in (self._earlier, self._waiting):
            while waiting and waiting[0][1] <= now:
                end, _, done = waiting.popleft()
                is_there = waiting is self._waiting and end <= self._replicas.replicated  # it was behind another wait
                self._answer(done, PutStatus.PUT_OK if is_there else PutStatus.FLUSH_SLAVE_TIMEOUT)
        self._end_waits()
        due = [waiting[0][1] for waiting in (self._earlier, self._waiting) if waiting]
        self._timer = self._loop.call_at(min(due), self._on_time) if due else None

    def _answer(self, done: Done, status: PutStatus) -> None:
        """Call `done`. If it fails, the loop reports it, and the other waits end as they should."""
        try:
            done(status)
        except Exception as error:
            self._loop.call_exception_handler({"message": "an answer of a wait for slaves failed", "exception": error})

    def close(self) -> None:
        """End all waits with FLUSH_SLAVE_TIMEOUT. A second call does nothing."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting = [*self._earlier, *self._waiting]
        self._earlier, self._waiting = deque(), deque()
        for _, _, done in waiting:
            self._answer(done, PutStatus.FLUSH_SLAVE_TIMEOUT)
