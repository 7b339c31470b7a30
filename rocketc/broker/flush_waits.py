"""Answers that wait until the records of their sends are durable."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Callable
from typing import Protocol

from rocketc.log._positions import Position, PositionDescriptor
from rocketc.remoting.codes import Code
from rocketc.store.futures import descriptors

Done = Callable[[int], object]  # called with the code of the answer


class FlushedStore(Protocol):
    """What FlushWaits needs of a store."""

    @property
    def flushed_phy_offset(self) -> int: ...
    @property
    def flushed_position(self) -> Position | None: ...
    @property
    def failed(self) -> Exception | None: ...


class FlushWaits:
    """A list of answers in the order of the log. One wake-up a flush answers all that became durable.

    store    open for writing
    timeout  seconds after which an answer has the code FLUSH_DISK_TIMEOUT
    Create it on the thread of the event loop; close() it there.
    """

    def __init__(self, store: FlushedStore, timeout: float) -> None:
        self._store = store
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[int, float, Done]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        position = store.flushed_position
        assert position is not None
        self._read, self._write = descriptors()
        self._flushed = PositionDescriptor(position, self._write)
        self._loop.add_reader(self._read, self._on_flush)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, end: int, done: Done) -> None:
        """Call `done` when the log is durable up to `end`; later ends must not be smaller.

        After close() it is called soon, with FLUSH_DISK_TIMEOUT.
        """
        if self._read < 0:
            self._loop.call_soon(done, Code.FLUSH_DISK_TIMEOUT)
            return
        self._waiting.append((end, self._loop.time() + self._timeout, done))
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout, self._on_time)
        if len(self._waiting) == 1 and not self._flushed.arm(end):
            self._loop.call_soon(self._answer)  # durable by now, or the store failed

    def _on_flush(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 8)
        self._answer()

    def _answer(self) -> None:
        while self._waiting:
            flushed = self._store.flushed_phy_offset
            while self._waiting and self._waiting[0][0] <= flushed:
                self._waiting.popleft()[2](Code.SUCCESS)
            if self._waiting and self._store.failed is not None:
                self._end_all()
            if not self._waiting or self._flushed.arm(self._waiting[0][0]):
                return
            if self._store.flushed_phy_offset <= flushed and self._store.failed is None:
                return  # the store is closed: _on_time() ends them

    def _on_time(self) -> None:
        now = self._loop.time()
        while self._waiting and self._waiting[0][1] <= now:
            self._waiting.popleft()[2](Code.FLUSH_DISK_TIMEOUT)
        self._timer = self._loop.call_at(self._waiting[0][1], self._on_time) if self._waiting else None

    def _end_all(self) -> None:
        """The store failed: the records may not be durable."""
        waiting, self._waiting = self._waiting, deque()
        for _, _, done in waiting:
            done(Code.FLUSH_DISK_TIMEOUT)

    def close(self) -> None:
        """End the answers that wait with FLUSH_DISK_TIMEOUT. A second call does nothing."""
        if self._read < 0:
            return
        self._answer()
        self._end_all()
        self._loop.remove_reader(self._read)
        self._flushed.end()
        if self._timer is not None:
            self._timer.cancel()
        for fd in {self._read, self._write}:
            os.close(fd)
        self._read = self._write = -1
