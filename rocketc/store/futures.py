"""Waiting for a put without blocking a thread: PutFuture for put_async(), LoopWaiters of each event loop for aput()."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from rocketc.config import StoreConfig
from rocketc.errors import ClosedError, StoreFailedError
from rocketc.log._positions import Position, PositionDescriptor
from rocketc.store._pending_put import PendingPut, mark_timed_out

if TYPE_CHECKING:
    import asyncio

    from rocketc.log._put_result import PutResult

_LAZY = frozenset({"_condition", "_state", "_result", "_exception", "_waiters", "_done_callbacks"})
_making = threading.RLock()


class FlushedStore(Protocol):
    """The part of a store that a future uses. MessageStore creates futures, so this module does not import it."""

    _finisher: Any

    @property
    def config(self) -> StoreConfig: ...
    @property
    def background(self) -> bool: ...
    @property
    def failed(self) -> StoreFailedError | None: ...
    @property
    def flushed_phy_offset(self) -> int: ...
    @property
    def flushed_position(self) -> Position | None: ...
    def wait_flushed(self, phy_offset: int, timeout: float | None = None, /) -> bool: ...
    def _wait_closed(self, timeout: float, /) -> bool: ...
    def _timed_out(self, topic: str, size: int, end: int, /) -> None: ...


class PutFuture(PendingPut, concurrent.futures.Future):  # type: ignore[type-arg]
    """A Future of a PutResult. It is done when the message is durable, or after sync_flush_timeout.

    result() and done() are cheap: done() compares two numbers, and result() waits in the store itself. The state of
    concurrent.futures.Future is created on the first use of a callback (add_done_callback, wait, as_completed,
    asyncio.wrap_future). A thread of the store then finishes the future.
    """

    def __getattr__(self, name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(name)
        with _making:
            if "_condition" not in self.__dict__:
                concurrent.futures.Future.__init__(self)
                _finisher_of(self._store).add(self)
        return self.__dict__[name]

    def __repr__(self) -> str:
        """Return the state and the PutResult. Future.__repr__() would create the state of Future and start a thread."""
        durable = not self._until or self._store.flushed_phy_offset >= self._put.end
        state = "done" if durable else "failed" if self._store.failed is not None else "waiting"
        return f"<rocketc.PutFuture {state}, {self._put!r}>"

    def _is_over(self) -> bool:
        store = self._store
        if not self._until or store.flushed_phy_offset >= self._put.end or store.failed is not None:
            return True
        return time.monotonic_ns() > self._until

    def done(self) -> bool:
        return self._is_over()

    def running(self) -> bool:
        return not self._is_over()

    def cancelled(self) -> bool:
        return False

    def cancel(self) -> bool:
        return False  # the message is in the log

    def _waited(self, timeout: float | None) -> PutResult:
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._put

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait; return None, or the StoreFailedError of a failed flush. Raises TimeoutError after timeout seconds."""
        put = self._put
        store: FlushedStore = self._store
        if not self._until or store.flushed_phy_offset >= put.end:
            return None
        if not self._is_over():
            left = max(self._until - time.monotonic_ns(), 0) / 1e9
            left = left if timeout is None else min(timeout, left)
            try:
                store.wait_flushed(put.end, left)
            except ClosedError:
                store._wait_closed(left)  # close() flushes
            except StoreFailedError:
                pass  # returned below
        if store.flushed_phy_offset >= put.end:
            return None
        if store.failed is not None:
            return store.failed
        if time.monotonic_ns() <= self._until:
            raise concurrent.futures.TimeoutError(f"the message is not durable after {timeout} s")
        if mark_timed_out(put):
            store._timed_out(self._topic, put.size, put.end)
        return None


class _Finisher:
    """A thread that finishes those futures of a store that have callbacks, in their order.

    In a store with background=False there is no thread; step() calls finish().
    """

    def __init__(self, store: FlushedStore) -> None:
        self._futures: deque[PutFuture] = deque()
        self._more = threading.Condition()
        self._thread: threading.Thread | None = None
        self._store = store

    def add(self, future: PutFuture) -> None:
        with self._more:
            self._futures.append(future)
            if self._thread is None and self._store.background:
                self._thread = threading.Thread(target=self._run, name="rocketc-futures", daemon=True)
                self._thread.start()
            self._more.notify()
        if not self._store.background:
            self.finish()

    def finish(self) -> None:
        """Finish the futures that are done, without waiting."""
        while self._futures and self._futures[0]._is_over():
            future = self._futures.popleft()
            self._finish(future, future.exception())

    def _run(self) -> None:
        while True:
            with self._more:
                if not self._futures and not self._more.wait_for(lambda: self._futures, 1.0):
                    self._thread = None
                    return
                future = self._futures.popleft()
            done = [(future, future.exception())]  # waits
            with self._more:  # one flush makes many messages durable
                while self._futures and self._futures[0].done():
                    done.append((self._futures[0], self._futures.popleft().exception()))
            for future, error in done:
                self._finish(future, error)

    def _finish(self, future: PutFuture, error: BaseException | None) -> None:
        if error is None:
            future.set_result(future._put)
        else:
            future.set_exception(error)


def _finisher_of(store: FlushedStore) -> _Finisher:
    finisher: _Finisher | None = store._finisher
    if finisher is None:
        finisher = store._finisher = _Finisher(store)
    return finisher


class LoopWaiters:
    """The aput() calls of one event loop that wait for a flush. One descriptor wakes the loop for all of them.

    store  open for writing
    loop   the running event loop
    """

    def __init__(self, store: FlushedStore, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._loop = loop
        self._waiting: deque[tuple[int, int, asyncio.Future[PutResult], PutResult, str]] = deque()
        self._read = self._write = -1
        self._read, self._write = descriptors()
        assert store.flushed_position is not None
        self._flushed = PositionDescriptor(store.flushed_position, self._write)
        loop.add_reader(self._read, self._on_flush)

    def detach(self) -> None:
        """Finish all futures after the store was closed, and close the descriptor. Any thread may call it."""
        import asyncio  # not at the top: programs that do not use asyncio should not wait for the import

        self._flushed.end()
        if not self._loop.is_closed() and asyncio._get_running_loop() is not self._loop:
            with contextlib.suppress(RuntimeError):  # the loop was closed since
                self._loop.call_soon_threadsafe(self.end)
                return
        self.end()

    def end(self) -> None:
        """Finish all futures if the loop is not closed, and close the descriptor. Call it on the loop's thread."""
        if not self._loop.is_closed() and self._read >= 0:
            self._loop.remove_reader(self._read)
            self._answer()
        self._close()

    def _close(self) -> None:
        fds, self._read, self._write = {self._read, self._write} - {-1}, -1, -1
        if fds:
            self._flushed.end()
        for fd in fds:
            os.close(fd)

    def __del__(self) -> None:
        self._close()  # for a loop that stopped before it ran end()

    def wait(self, put: PutResult, topic: str, must_wait: bool) -> asyncio.Future[PutResult]:
        """Return a future of the put; it is done when the message is durable.

        topic      of the message
        must_wait  False: the future is done at once
        """
        future: asyncio.Future[PutResult] = self._loop.create_future()
        if not must_wait or self._store.flushed_phy_offset >= put.end:
            future.set_result(put)
            return future
        until = time.monotonic_ns() + self._store.config.sync_flush_timeout * 1_000_000
        until = until if self._store.background else 1 << 63  # step() flushes, and uses the store's clock
        self._waiting.append((put.end, until, future, put, topic))
        if len(self._waiting) == 1:
            self._loop.call_later(self._store.config.sync_flush_timeout / 1000 + 0.001, self._on_time)
            if not self._flushed.arm(put.end):
                self._loop.call_soon(self._answer)  # the message is durable by now, or the store has failed
        return future

    def _on_flush(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 8)
        self._answer()

    def _on_time(self) -> None:
        self._answer()
        if self._waiting:
            left = (self._waiting[0][1] - time.monotonic_ns()) / 1e9
            self._loop.call_later(max(left, 0) + 0.001, self._on_time)

    def _answer(self) -> None:
        """Finish the futures that are durable, have failed or took too long; request a wake-up for the next one."""
        flushed, failed = self._store.flushed_phy_offset, self._store.failed
        while self._waiting:
            end, until, future, put, topic = self._waiting[0]
            if end > flushed and failed is None and time.monotonic_ns() <= until:
                if self._flushed.arm(end):
                    return
                flushed, failed = self._store.flushed_phy_offset, self._store.failed
                if end > flushed and failed is None:
                    return  # the store is closed, or this process was forked: _on_time() finishes the futures
                continue
            self._waiting.popleft()
            if future.done():
                continue  # canceled by the caller
            if end <= flushed:
                future.set_result(put)
            elif failed is not None:
                future.set_exception(failed)
            else:
                mark_timed_out(put)
                self._store._timed_out(topic, put.size, put.end)
                future.set_result(put)


async def close_in_thread(close: Callable[[], None]) -> None:
    """Call close() in a thread, so that the event loop runs on: closing waits for the disk and for other threads.

    If the task is canceled meanwhile, it ends when close() has returned: then the next open() finds the store unlocked.

    >>> import asyncio
    >>> asyncio.run(close_in_thread(lambda: print("closed")))
    closed
    """
    import asyncio

    closing = asyncio.get_running_loop().run_in_executor(None, close)
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        await asyncio.wait([closing])
        raise


class EventLoops:
    """The event loops that call aput() of one store, each with its LoopWaiters."""

    def __init__(self, store: FlushedStore) -> None:
        self._store = store
        self._loops: dict[asyncio.AbstractEventLoop, LoopWaiters] = {}
        self._lock = threading.Lock()

    def running(self) -> LoopWaiters:
        """Return the LoopWaiters of the running loop, and drop those of closed loops.

        Raises RuntimeError if no loop runs.
        """
        import asyncio

        loop = asyncio.get_running_loop()
        waiters = self._loops.get(loop)
        if waiters is None:
            with self._lock:
                for other in [other for other in self._loops if other.is_closed()]:
                    self._loops.pop(other).end()
                waiters = self._loops[loop] = LoopWaiters(self._store, loop)
        return waiters

    def detach(self) -> None:
        """Detach the LoopWaiters of all loops after the store was closed. Any thread may call it."""
        with self._lock:
            loops, self._loops = self._loops, {}
        for waiters in loops.values():
            waiters.detach()


def descriptors() -> tuple[int, int]:
    """Return two descriptors, (to read, to write): an eventfd, or a pipe without eventfd. The caller closes them.

    >>> read, write = descriptors()
    >>> _ = os.write(write, (1).to_bytes(8, "little"))
    >>> len(os.read(read, 8))
    8
    >>> for fd in {read, write}:
    ...     os.close(fd)
    """
    if hasattr(os, "eventfd"):
        fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        return fd, fd
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    return read, write
