"""The subscriptions of one store, and its followers in asyncio."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any

from rocketc._arguments import whole_number
from rocketc.derived._change_feed import ChangeSubscriber
from rocketc.errors import ClosedError
from rocketc.status import GetStatus
from rocketc.store.subscription import Key, PolledSubscriber, Subscription, finish, pause_since

if TYPE_CHECKING:
    import asyncio

    from rocketc.read._message import Message
    from rocketc.store._store import MessageStore


def _key(topic: str, queue_id: int) -> Key:
    return str(topic), whole_number("queues: queue id", queue_id, -(1 << 31), (1 << 31) - 1)


class _LoopFollowers:
    """The followers of queues in one event loop. They share one subscription to all queues."""

    def __init__(self, subscription: Subscription, loop: asyncio.AbstractEventLoop) -> None:
        self._subscription = subscription
        self._loop = loop
        self._waiting: dict[Key, set[asyncio.Future[None]]] = {}
        self._fd = subscription.fileno()
        loop.add_reader(self._fd, self._on_changes)

    def listen(self, key: Key) -> asyncio.Future[None]:
        """Return a future that is done when a queue gets messages. The caller reads the queue, then awaits it."""
        future: asyncio.Future[None] = self._loop.create_future()
        if not self._waiting:
            self._subscription._subscriber.skip()
            self._subscription._arm()
        self._waiting.setdefault(key, set()).add(future)
        return future

    def discard(self, key: Key, future: asyncio.Future[None]) -> None:
        futures = self._waiting.get(key)
        if futures is not None:
            futures.discard(future)
            if not futures:
                del self._waiting[key]

    def _on_changes(self) -> None:
        if not self._waiting:
            self._subscription._drain()  # listen() arms it again
            return
        try:
            changes = self._subscription.changes()
        except ClosedError:
            self._loop.remove_reader(self._fd)  # close() of the store runs, and will call detach()
            return
        for change in changes:
            for future in self._waiting.pop((change.topic, change.queue_id), ()):
                finish(future)

    def end(self) -> None:
        """Wake all followers, which then find that the store is closed, and close the subscription."""
        if not self._subscription.closed:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._fd)
            self._subscription.close()
        waiting, self._waiting = self._waiting, {}
        for futures in waiting.values():
            for future in futures:
                finish(future)

    def detach(self) -> None:
        """Call end(): on the loop's thread, or directly if the loop is closed. Any thread may call it."""
        if not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.end)
                return
        self.end()


class Subscriptions:
    """Implements MessageStore.subscribe() and follow(). The followers of an event loop share one subscription."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._loops: dict[asyncio.AbstractEventLoop, _LoopFollowers] = {}
        self._lock = threading.Lock()

    def subscribe(self, queues: Iterable[Key] | None) -> Subscription:
        """See MessageStore.subscribe()."""
        wanted = None if queues is None else frozenset(_key(*queue) for queue in queues)
        if wanted is not None and not wanted:
            raise ValueError("queues is empty; name at least one queue, or pass None for all")
        feed = self._store.feed
        if feed is None:
            return Subscription(PolledSubscriber(self._store, wanted))
        return Subscription(ChangeSubscriber(feed, self._store.path, wanted))

    async def follow(
        self, topic: str, queue_id: int, offset: int | None, *, tags: Any, max_count: int, **how: Any
    ) -> AsyncIterator[Message]:
        """See MessageStore.follow()."""
        import asyncio

        key = topic, queue_id
        if offset is None:
            offset = self._store.min_offset(topic, queue_id)
        at = max(whole_number("offset", offset, -(1 << 63), (1 << 63) - 1), 0)
        since = time.monotonic()
        while True:
            followers = None if self._store.read_only else self._followers()
            new = followers.listen(key) if followers is not None else None
            try:
                found = self._store.get(topic, queue_id, at, max_count, tags=tags, **how)
                if found.status is GetStatus.OFFSET_OVERFLOW_BADLY:
                    raise ValueError(
                        f"topic {topic!r}, queue {queue_id}: the queue ends at {found.max_offset}, before offset {at}"
                    )
                at = max(at, found.next_offset)
                if not found and at >= found.max_offset:
                    if new is None:  # another process writes the store: there are no notifications
                        await asyncio.sleep(pause_since(since))
                    else:
                        await new
                    if self._store.closed:
                        raise ClosedError(f"{self._store.path}: the store is closed")
            finally:
                if followers is not None and new is not None:
                    followers.discard(key, new)
            for message in found:
                yield message
                since = time.monotonic()

    def _followers(self) -> _LoopFollowers:
        """Return the followers of the running loop, and drop those of closed loops."""
        import asyncio

        loop = asyncio.get_running_loop()
        followers = self._loops.get(loop)
        if followers is None:
            with self._lock:
                for other in [other for other in self._loops if other.is_closed()]:
                    self._loops.pop(other).end()
                followers = self._loops[loop] = _LoopFollowers(self.subscribe(None), loop)
        return followers

    def detach(self) -> None:
        """Wake all followers after the store was closed, and close the descriptors. Any thread may call it."""
        with self._lock:
            loops, self._loops = self._loops, {}
        for followers in loops.values():
            followers.detach()
