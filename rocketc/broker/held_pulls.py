"""Pulls that wait for messages (long polling), and what wakes them.

Source: RocketMQ PullRequestHoldService, NotifyMessageArrivingListener.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable
from dataclasses import dataclass

from rocketc.broker._pull_path import CheckedPull
from rocketc.derived.queue_change import QueueChange
from rocketc.remoting.server import Call
from rocketc.remoting.subscribing import is_tag_type

SWEEP_SECONDS = 5.0
PAUSE_SECONDS, PAUSE_MOST_SECONDS = 0.001, 0.004  # after messages that a filter rejects

Key = tuple[str, int]  # topic, queue id


@dataclass(eq=False)
class HeldPull:
    """A pull without messages yet.

    offset    queue offset that it wants
    looked    no message before this queue offset passes its filter
    checked   what its checks found
    deadline  loop.time() when it is answered in any case
    """

    call: Call
    key: Key
    offset: int
    checked: CheckedPull
    deadline: float
    looked: int = 0

    def __post_init__(self) -> None:
        self.looked = self.offset


class HeldPulls:
    """The table of held pulls by queue. It gets the queues that changed, and looks at no others.

    wake        answers a pull
    max_offset  returns the queue offset after the last message of a queue
    find        returns -1 if a message of a queue passes a filter that looks at messages, from an offset on, or the
                offset after the last one. It gets what the checks found, the queue id and the offset
    Every 5 s it wakes all pulls whose queues have later messages, also those whose tags do not match: their consumers
    then continue at a later offset.
    """

    def __init__(
        self,
        wake: Callable[[HeldPull], object],
        max_offset: Callable[[str, int], int],
        loop: asyncio.AbstractEventLoop,
        sweep_seconds: float = SWEEP_SECONDS,
        find: Callable[[CheckedPull, int, int], int] = lambda checked, queue_id, offset: -1,
    ) -> None:
        self._wake, self._max_offset, self._loop, self._seconds = wake, max_offset, loop, sweep_seconds
        self._find = find
        self._held: dict[Key, dict[HeldPull, None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._first: asyncio.Future[None] | None = None  # done when a pull is held
        self.count = 0
        self.woken = 0  # pulls that on_changes() has woken
        self.rejected = 0  # times that messages were read for a pull, and its filter rejected them
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

    def on_changes(self, changes: Iterable[QueueChange]) -> int:
        """Wake the pulls whose queues have messages that they may want. Return their number."""
        before = self.woken
        for change in changes:
            of_queue = self._held.get((change.topic, change.queue_id))
            if of_queue is None:
                continue
            codes = change.tags_codes
            for pull in list(of_queue):
                wanted = pull.checked.subscription
                is_wanted = codes is None or wanted.takes_all or any(map(wanted.matches, codes))
                if is_wanted and change.max_offset > pull.looked and self._is_found(pull):
                    self.remove(pull)
                    self.woken += 1
                    self._wake(pull)
        return self.woken - before

    async def follow(self, changes: AsyncIterable[Iterable[QueueChange]]) -> None:
        """Wake pulls as queues change. While none is held, no message wakes the loop: this costs as much as a send.

        After messages that the filter of a held pull rejects, it pauses for 1, 2, then 4 ms. Messages of other queues
        cause no pause: consumers of quiet topics would wait longer for theirs. The next changes include all since the
        last ones, so none is missed.
        """
        pause = PAUSE_SECONDS
        await self.until_held()
        async for changed in changes:
            rejected = self.rejected
            if self.on_changes(changed) or self.rejected == rejected:
                pause = PAUSE_SECONDS
            else:
                await asyncio.sleep(pause)
                pause = min(2 * pause, PAUSE_MOST_SECONDS)
            await self.until_held()

    def _is_found(self, pull: HeldPull) -> bool:
        """Look at the new messages of a pull with a filter on properties, which are compared nowhere else."""
        if is_tag_type(pull.checked.subscription.expression_type):
            return True
        following = self._find(pull.checked, pull.key[1], pull.looked)
        pull.looked = max(pull.looked, following)
        self.rejected += following >= 0
        return following < 0

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
