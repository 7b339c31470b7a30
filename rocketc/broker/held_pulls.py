"""Pulls that wait for messages (long polling), and what wakes them.

Source: RocketMQ PullRequestHoldService, NotifyMessageArrivingListener.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rocketc.broker._pull_path import CheckedPull
from rocketc.derived.queue_change import QueueChange
from rocketc.remoting.server import Call

SWEEP_SECONDS = 5.0

Key = tuple[str, int]  # topic, queue id


@dataclass(eq=False)
class HeldPull:
    """A pull without messages yet.

    offset    queue offset that it wants
    checked   what its checks found
    deadline  loop.time() when it is answered in any case
    """

    call: Call
    key: Key
    offset: int
    checked: CheckedPull
    deadline: float


class HeldPulls:
    """The table of held pulls by queue. It gets the queues that changed, and looks at no others.

    wake        answers a pull
    max_offset  returns the queue offset after the last message of a queue
    Every 5 s it wakes all pulls whose queues have later messages, also those whose tags do not match: their consumers
    then continue at a later offset.
    """

    def __init__(
        self,
        wake: Callable[[HeldPull], object],
        max_offset: Callable[[str, int], int],
        loop: asyncio.AbstractEventLoop,
        sweep_seconds: float = SWEEP_SECONDS,
    ) -> None:
        self._wake, self._max_offset, self._loop, self._seconds = wake, max_offset, loop, sweep_seconds
        self._held: dict[Key, dict[HeldPull, None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._first: asyncio.Future[None] | None = None  # done when a pull is held
        self.count = 0
        self._is_closed = False

    async def until_held(self) -> None:
        """Return when a pull is held. One task may wait."""
        if not self._held:
            self._first = self._loop.create_future()
            await self._first

    def add(self, pull: HeldPull) -> None:
        self._held.setdefault(pull.key, {})[pull] = None
        self.count += 1
        if self._first is not None and not self._first.done():
            self._first.set_result(None)
        if self._is_closed:
            self._loop.call_soon(self.wake_all)
        elif self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._sweep)

    def remove(self, pull: HeldPull) -> bool:
        """Forget a pull; False if it is not held."""
        of_queue = self._held.get(pull.key)
        if of_queue is None or pull not in of_queue:
            return False
        del of_queue[pull]
        self.count -= 1
        if not of_queue:
            del self._held[pull.key]
        return True

    def on_changes(self, changes: Iterable[QueueChange]) -> None:
        """Wake the pulls whose queues have messages that they may want."""
        for change in changes:
            of_queue = self._held.get((change.topic, change.queue_id))
            if of_queue is None:
                continue
            codes = change.tags_codes
            for pull in list(of_queue):
                wanted = pull.checked.subscription
                is_wanted = codes is None or wanted.takes_all or any(map(wanted.matches, codes))
                if is_wanted and change.max_offset > pull.offset:
                    self.remove(pull)
                    self._wake(pull)

    def _sweep(self) -> None:
        self._timer = self._loop.call_later(self._seconds, self._sweep) if self._held else None
        now = self._loop.time()
        for key, of_queue in list(self._held.items()):
            end = self._max_offset(*key)
            for pull in list(of_queue):
                if pull.call.connection.is_lost:
                    self.remove(pull)
                elif end > pull.offset or now >= pull.deadline:
                    self.remove(pull)
                    self._wake(pull)

    def wake_all(self) -> None:
        """Wake all pulls, for example at the end of the broker."""
        for of_queue in list(self._held.values()):
            for pull in list(of_queue):
                self.remove(pull)
                self._wake(pull)

    def close(self) -> None:
        """Answer what is held, and stop. Later pulls are answered at once."""
        self._is_closed = True
        self.wake_all()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
