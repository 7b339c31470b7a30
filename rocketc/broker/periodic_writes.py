"""Writes what changes with each message, such as offsets: now and then, and at the end of the broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from rocketc.errors import StoreFailedError, StoreFullError, StoreIOError

_log = logging.getLogger("rocketc.broker")


class PeriodicWrites:
    """Writes on a thread, one after the other for each caller.

    in_thread  False: a write happens at once, for a store without threads
    """

    def __init__(self, *, in_thread: bool = True) -> None:
        self._in_thread = in_thread
        self._loop = asyncio.get_running_loop()

    async def do(self, work: Callable[[], object]) -> None:
        """Do work that waits for the disk."""
        if self._in_thread:
            await self._loop.run_in_executor(None, work)
        else:
            work()

    async def repeat(self, persist: Callable[[], object], what: str, period: Callable[[], float]) -> None:
        """Write again and again, without end. A write that fails is logged, and tried again after the next period.

        what    whose offsets they are, for the log
        period  returns the seconds between two writes
        """
        while True:
            await asyncio.sleep(period())
            try:
                await self.do(persist)
            except (StoreIOError, StoreFullError, StoreFailedError) as error:
                _log.warning("the offsets of %s are not written: %s; it is tried again", what, error)

    async def do_last(self, writes: Iterable[tuple[str, Callable[[], object]]]) -> None:
        """Write everything at the end. A write that fails is logged, and does not keep the others from being written.

        writes  what each writes, for the log, and the write
        """
        for name, persist in writes:
            try:
                await self.do(persist)
            except Exception as error:  # any: the other tables are written
                _log.error("%s: the last write failed, and its latest changes are lost: %s", name, error)
