"""Writes tables to the disk beside the event loop, once for all changes that have come together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from rocketc.remoting.disk_work import DiskWork
from rocketc.tables.config_manager import ConfigManager

_log = logging.getLogger("rocketc.broker")

Done = Callable[[], object]


class TableWriter:
    """Persists tables on a thread.

    in_thread  False: save() writes at once, for a store without threads
    """

    def __init__(self, *, in_thread: bool = True) -> None:
        self._loop = asyncio.get_running_loop()
        self._disk = DiskWork(in_thread=in_thread)
        self._waiting: dict[str, list[Done]] = {}  # by the path of a table whose write has not begun

    def save(self, table: ConfigManager, done: Done | None = None) -> None:
        """Write the changes of a table soon, then call `done` on the loop. An error is logged, and `done` is called."""
        waiting = self._waiting.get(table.path)
        if waiting is not None:  # the thread may begin meanwhile; it has the list, and all changes until now
            waiting += [] if done is None else [done]
            return
        self._waiting[table.path] = [] if done is None else [done]
        self._disk.run(partial(self._write, table), self._written)

    def is_saved(self, table: ConfigManager) -> bool:
        """Whether all changes of a table are on the disk. False also while any table is written."""
        return not self._disk.is_busy and not table.changed

    def _write(self, table: ConfigManager) -> list[Done]:
        waiting = self._waiting.pop(table.path)
        try:
            table.persist()
        except Exception as error:  # any: those who wait continue
            _log.warning("%s is not written: %s; it is tried again with the next change", table.path, error)
        return waiting

    def _written(self, waiting: list[Done]) -> None:
        for done in waiting:
            self._loop.call_soon(done)  # its error does not end the others

    async def close(self) -> None:
        """Wait until everything is written."""
        await self._disk.close()
