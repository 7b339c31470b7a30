"""Subscription: reports which queues get messages, to threads, to event loops by a descriptor, or to asyncio."""

from __future__ import annotations

import contextlib
import io
import os
import threading
import time
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from rocketc._arguments import seconds_of
from rocketc.derived._change_feed import ChangeSubscriber
from rocketc.derived.queue_change import QueueChange
from rocketc.errors import ClosedError
from rocketc.store.futures import descriptors

if TYPE_CHECKING:
    import asyncio

    from typing_extensions import Self

Key = tuple[str, int]  # topic, queue id

_POLL_SECONDS = 0.001  # first pause between checks of a store that another process writes
_POLL_MOST_SECONDS = 0.05  # longest pause: a long wait uses almost no CPU
_POLLS = 16  # a pause is 1/16 of the time waited so far
_RING = (1).to_bytes(8, "little")


class PolledStore(Protocol):
    """The part of a store that a PolledSubscriber uses. This module does not import MessageStore, which is above it."""

    @property
    def path(self) -> str: ...
    @property
    def closed(self) -> bool: ...
    def _max_offsets(self, queues: frozenset[Key] | None, /) -> dict[Key, int]: ...


def pause_since(since: float) -> float:
    """Return the pause in seconds before the next check of a store that another process writes.

    since  when the wait began, by time.monotonic()

    >>> pause_since(time.monotonic() - 60)
    0.05
    """
    return min(max((time.monotonic() - since) / _POLLS, _POLL_SECONDS), _POLL_MOST_SECONDS)


class PolledSubscriber:
    """A ChangeSubscriber for a store that another process writes. It polls, because there are no notifications."""

    missed = 0
    is_armed = False

    def __init__(self, store: PolledStore, queues: frozenset[Key] | None) -> None:
        self.path = store.path
        self._store = store
        self._queues = queues
        self._ended = False
        self._known = store._max_offsets(queues)

    def check_open(self) -> None:
        if self._ended:
            raise ClosedError(f"{self.path}: the subscription is closed")
        if self._store.closed:
            raise ClosedError(f"{self.path}: the store is closed")

    def changes(self) -> tuple[list[QueueChange], bool]:
        self.check_open()
        now = self._store._max_offsets(self._queues)
        before, self._known = self._known, now
        return [QueueChange(*key, end, None) for key, end in sorted(now.items()) if end != before.get(key, 0)], False

    def wait(self, timeout: float | None = None) -> bool:
        since = time.monotonic()
        while True:
            self.check_open()
            now = self._store._max_offsets(self._queues)
            if any(end != self._known.get(key, 0) for key, end in now.items()):
                return True
            left = float("inf") if timeout is None else since + timeout - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(pause_since(since), left))

    def arm(self) -> None:
        self.check_open()

    def skip(self) -> None:
        self._known = self._store._max_offsets(self._queues)

    def set_fd(self, fd: int) -> None:
        if fd >= 0:
            raise io.UnsupportedOperation(
                f"{self.path}: the store is open for reading only, so there is no descriptor: its writer sends no "
                "notifications; use wait()"
            )

    def end(self) -> None:
        self._ended = True


class Subscription:
    """Reports which queues got messages since it was created, or since the last call. See MessageStore.subscribe().

        with store.subscribe() as subscription:
            while subscription.wait():
                for change in subscription.changes():
                    ...

    Any number of threads may use a subscription; each change goes to one of them. One task of asyncio may use
    `async for changes in subscription`. No message is missed between two calls. Pending changes do not need memory: if
    a subscriber is 16,384 or more messages behind, changes() reports all queues, with tags_codes None.

    A store that is open for reading only is polled, every ms at first and every 50 ms later. Both changes() and wait()
    raise ClosedError if the store or the subscription is closed, also during the wait, and in a forked child.

    >>> import rocketc, tempfile
    >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
    ...     with store.subscribe() as subscription:
    ...         r = store.put("orders", b"one", tags="A")
    ...         subscription.wait(timeout=5), subscription.changes()
    (True, [QueueChange(topic='orders', queue_id=0, max_offset=1, tags_codes=(65,))])
    """

    def __init__(self, subscriber: ChangeSubscriber | PolledSubscriber) -> None:
        self._subscriber = subscriber
        self._lock = threading.Lock()  # guards the fields below
        self._read = self._write = -1
        self._rung = False  # True: changes() made the descriptor readable, because there are more changes
        self._reader: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None = None
        self.closed = False

    @property
    def missed(self) -> int:
        """Number of times that the subscriber was too far behind, so that all queues were reported."""
        return self._subscriber.missed

    def changes(self) -> list[QueueChange]:
        """Return the queues that got messages since the last call, each once; an empty list if there are none.

        One call returns at most 256 queues, the next call returns more. The messages can be read already. The call does
        not wait.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     subscription = store.subscribe([("orders", 0)])
        ...     r = store.put("orders", b"one"), store.put("other", b"two"), store.put("orders", b"three", tags="A")
        ...     store.wait_dispatched(), subscription.changes(), subscription.changes()
        (True, [QueueChange(topic='orders', queue_id=0, max_offset=2, tags_codes=(0, 65))], [])
        """
        if self._read >= 0:
            self._arm()
        found, more = self._subscriber.changes()
        if more and self._read >= 0:
            self._ring()
        return found

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until there are changes, which changes() returns. Return False if timeout seconds pass first.

        If several threads wait, all of them return, and one of them gets the changes.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     store.subscribe().wait(timeout=0.01)
        False
        """
        return self._subscriber.wait(None if timeout is None else seconds_of("timeout", timeout))

    def fileno(self) -> int:
        """Return a descriptor for select(), poll() or an event loop.

        It is readable when there may be changes, and when the store is closed. Then call changes(). Do not read from
        the descriptor, and do not close it. After the first call of fileno(), each wake-up writes to the descriptor.
        Raises io.UnsupportedOperation if the store is open for reading only.

        >>> import rocketc, select, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     with store.subscribe() as subscription:
        ...         r = store.put("orders", b"one")
        ...         ready, _, _ = select.select([subscription], [], [], 5)
        ...         ready == [subscription]
        True
        """
        with self._lock:
            if self._read < 0:
                self._subscriber.check_open()
                read, write = descriptors()
                try:
                    self._subscriber.set_fd(write)
                except BaseException:
                    _close({read, write})
                    raise
                os.write(write, _RING)  # readable at once: the first changes() call checks for earlier changes and arms
                self._read, self._write, self._rung = read, write, True
            return self._read

    def close(self) -> None:
        """Close the subscription: waiting threads get ClosedError, an `async for` ends. A second call does nothing.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     subscription = store.subscribe()
        ...     subscription.close()
        ...     subscription.changes()  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        rocketc.errors.ClosedError: ...: the subscription is closed
        """
        self._subscriber.set_fd(-1)
        self._subscriber.end()
        with self._lock:
            self.closed = True
            if self._reader is not None:
                loop, future = self._reader
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(finish, future)
                    return  # _wait_readable() continues and closes the descriptors
            self._close()

    def __repr__(self) -> str:
        return f"<rocketc.Subscription {self._subscriber.path!r}{', closed' if self.closed else ''}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if "_write" in self.__dict__:  # False if __init__() failed
            self._subscriber.set_fd(-1)
            self._close()

    def __aiter__(self) -> AsyncIterator[list[QueueChange]]:
        return self

    async def __anext__(self) -> list[QueueChange]:
        """Wait for the next changes, at least one, and return them. Raises RuntimeError if another task waits."""
        import asyncio  # not at the top: programs that do not use asyncio should not wait for the import

        since = time.monotonic()
        while True:
            if self.closed:
                raise StopAsyncIteration
            if isinstance(self._subscriber, ChangeSubscriber):
                self.fileno()
            found = self.changes()
            if found:
                return found
            if isinstance(self._subscriber, ChangeSubscriber):
                await self._wait_readable()
            else:
                await asyncio.sleep(pause_since(since))

    async def _wait_readable(self) -> None:
        import asyncio

        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if not self._begin_reading(loop, future):
            return
        try:
            await future
        finally:
            with self._lock:
                self._reader = None
                loop.remove_reader(self._read)
                if self.closed:
                    self._close()

    def _begin_reading(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> bool:
        """Register a future that is done when the descriptor is readable; False if the subscription is closed."""
        with self._lock:
            if self.closed:
                return False
            if self._reader is not None:
                raise RuntimeError("another task waits for changes of this subscription; create one for each task")
            self._reader = loop, future
            loop.add_reader(self._read, finish, future)
            return True

    def _arm(self) -> None:
        """Make the descriptor readable at the next change, and not before."""
        self._subscriber.check_open()  # a forked child must not consume its parent's wake-up
        if self._rung or not self._subscriber.is_armed:
            self._drain()
            self._subscriber.arm()

    def _drain(self) -> None:
        with self._lock, contextlib.suppress(BlockingIOError):
            self._rung = False
            if self._read >= 0:
                os.read(self._read, 8)

    def _ring(self) -> None:
        """Make the descriptor readable now."""
        with self._lock, contextlib.suppress(BlockingIOError):
            if self._write >= 0 and not self._rung:
                os.write(self._write, _RING)
                self._rung = True

    def _close(self) -> None:
        fds, self._read, self._write = {self._read, self._write} - {-1}, -1, -1
        _close(fds)


def finish(future: asyncio.Future[None]) -> None:
    """Finish a future, so that the task that awaits it continues.

    >>> import asyncio
    >>> async def main():
    ...     future = asyncio.get_running_loop().create_future()
    ...     finish(future)
    ...     return await future
    >>> asyncio.run(main())
    """
    if not future.done():
        future.set_result(None)


def _close(fds: set[int]) -> None:
    for fd in fds:
        os.close(fd)
