"""Work that waits for the disk, beside the event loop: one piece after the other, in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class DiskWork:
    """Runs work on a thread, and tells the loop what it returned.

    in_thread  False: run() does the work and calls `done` at once, for virtual time

    >>> async def main():
    ...     work = DiskWork()
    ...     work.run(lambda: "written", print)
    ...     await work.close()
    >>> asyncio.run(main())
    written
    """

    def __init__(self, *, in_thread: bool = True) -> None:
        self._in_thread = in_thread
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[Callable[[], Any], Callable[[Any], object]]] = deque()
        self._running: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether any work runs or waits."""
        return self._running is not None

    def run(self, work: Callable[[], T], done: Callable[[T], object]) -> None:
        """Do `work` on a thread after all earlier work, then call `done` on the loop with what it returns.

        An error of `work` or `done` goes to the exception handler of the loop, and later work runs; after an error of
        `work`, `done` is not called.
        """
        if not self._in_thread:
            done(work())
            return
        self._waiting.append((work, done))
        if self._running is None:
            self._running = self._loop.create_task(self._run(), name="disk work")

    async def _run(self) -> None:
        while self._waiting:
            work, done = self._waiting.popleft()
            try:
                done(await self._loop.run_in_executor(None, work))
            except Exception as error:
                self._loop.call_exception_handler({"message": "work for the disk failed", "exception": error})
        self._running = None

    async def close(self) -> None:
        """Wait until all work is done."""
        while self._running is not None and not self._running.done():
            await asyncio.wait({self._running})
