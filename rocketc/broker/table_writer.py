"""Writes tables to the disk beside the event loop, once for all changes that have come together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from rocketc.tables.config_manager import ConfigManager

_log = logging.getLogger("rocketc.broker")

Done = Callable[[], object]


class TableWriter:
    """Persists tables on a thread.

    in_thread  False: save() writes at once, for a store without threads
    """

    def __init__(self, *, in_thread: bool = True) -> None:
        self._in_thread = in_thread
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, tuple[ConfigManager, list[Done]]] = {}  # by path
        self._writing: asyncio.Task[None] | None = None

    def save(self, table: ConfigManager, done: Done | None = None) -> None:
        """Write the changes of a table soon, then call `done` on the loop. An error is logged, and `done` is called."""
        if not self._in_thread:
            _persist(table)
            if done is not None:
                self._loop.call_soon(done)
            return
        _, all_done = self._waiting.setdefault(table.path, (table, []))
        all_done += [] if done is None else [done]
        if self._writing is None:
            self._writing = self._loop.create_task(self._write(), name="tables")

    def is_saved(self, table: ConfigManager) -> bool:
        """Whether all changes of a table are on the disk. False also while any table is written."""
        return self._writing is None and not table.changed

    async def _write(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, {}
            for table, all_done in waiting.values():
                await self._loop.run_in_executor(None, _persist, table)
                for done in all_done:
                    self._loop.call_soon(done)  # its error ends neither this task nor the others
        self._writing = None

    async def close(self) -> None:
        """Wait until everything is written."""
        while self._writing is not None:
            await asyncio.wait({self._writing})


def _persist(table: ConfigManager) -> None:
    try:
        table.persist()
    except Exception as error:  # any: the task that writes the tables continues
        _log.warning("%s is not written: %s; it is tried again with the next change", table.path, error)
