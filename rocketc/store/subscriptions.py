"""Messages of a queue for asyncio, as they come."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from rocketc.errors import ClosedError
from rocketc.status import GetStatus
from rocketc.store.futures import descriptors

if TYPE_CHECKING:
    import asyncio

    from rocketc.read._message import Message
    from rocketc.store._store import MessageStore

_POLL_SECONDS = 0.002  # between the first two looks at what another process writes,
_POLL_MOST_SECONDS = 0.05  # and between the last ones: who waits for long uses next to no processor
_POLLS = 16  # a pause is that part of what was waited so far


class Subscriptions:
    """Who follows queues of one store, in one event loop; one descriptor tells of new messages."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: set[asyncio.Future[None]] = set()
        self._read = self._write = -1

    async def follow(
        self, topic: str, queue_id: int, offset: int | None, *, tags: Any, max_count: int, **how: Any
    ) -> AsyncIterator[Message]:
        """What MessageStore.follow() returns."""
        at = self._store.min_offset(topic, queue_id) if offset is None else offset
        at = max(at, 0)
        since = time.monotonic()
        while True:
            new = self._listen()
            found = self._store.get(topic, queue_id, at, max_count, tags=tags, **how)
            if found.status is GetStatus.OFFSET_OVERFLOW_BADLY:
                raise ValueError(
                    f"topic {topic!r}, queue {queue_id}: it ends at {found.max_offset}, before offset {at}"
                )
            at = max(at, found.next_offset)
            for message in found:
                yield message
                since = time.monotonic()
            if not found and at >= found.max_offset:
                await self._next(new, since)
            else:
                self._waiting.discard(new)

    def _listen(self) -> asyncio.Future[None]:
        """A future of the next new messages, in whatever queue. Raises RuntimeError for a second event loop."""
        import asyncio  # here: who never awaits need not wait for it to be loaded

        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            if self._loop is not None and not self._loop.is_closed() and self._waiting:
                raise RuntimeError(f"{self._store!r} serves another event loop; open a store for each")
            self._attach(loop)
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.add(future)
        if self._read >= 0:
            self._store._arm()
        return future

    def _attach(self, loop: asyncio.AbstractEventLoop) -> None:
        self._waiting.clear()
        if self._loop is not None and not self._loop.is_closed() and self._read >= 0:
            self._loop.remove_reader(self._read)
        self._loop = loop
        if self._store.read_only:
            return
        if self._read < 0:
            self._read, self._write = descriptors()
            self._store._listen(self._write)
        loop.add_reader(self._read, self._on_message)

    async def _next(self, new: asyncio.Future[None], since: float) -> None:
        import asyncio

        try:
            if self._read < 0:  # another process writes: it tells nobody
                pause = (time.monotonic() - since) / _POLLS
                await asyncio.sleep(min(max(pause, _POLL_SECONDS), _POLL_MOST_SECONDS))
            else:
                await new
        finally:
            self._waiting.discard(new)
        if self._store.closed:
            raise ClosedError(f"{self._store.path}: the store is closed")

    def _on_message(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 8)
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def detach(self) -> None:
        """The store is closed: let who waits see it, and give the descriptor up. In any thread."""
        if self._read >= 0:
            self._store._listen(-1)
        if self._loop is not None and not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._end)
                return
        self._close()

    def _end(self) -> None:
        if self._read >= 0 and self._loop is not None:
            self._loop.remove_reader(self._read)
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._close()

    def _close(self) -> None:
        for fd in {self._read, self._write} - {-1}:
            os.close(fd)
        self._read = self._write = -1
