"""Writes tables to the disk beside the event loop, once for all changes that have come together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from rocketc.remoting.codes import Code
from rocketc.remoting.disk_work import DiskWork
from rocketc.remoting.server import Answer, Call

_log = logging.getLogger("rocketc.broker")

RETRY_SECONDS = 5.0
_REMARK_MOST = 1000  # characters


class Kept(Protocol):
    """What TableWriter needs of a table, for example of a ConfigManager."""

    @property
    def path(self) -> str: ...
    @property
    def changed(self) -> bool: ...
    def persist(self) -> bool: ...


Done = Callable[["str | None"], object]  # called with None, or with the fault and what to do, as text for the peer


class TableWriter:
    """Persists tables on a thread. A table that can't be written is tried again every RETRY_SECONDS.

    in_thread  False: save() writes at once, for a store without threads
    """

    def __init__(self, *, in_thread: bool = True) -> None:
        self._loop = asyncio.get_running_loop()
        self._disk = DiskWork(in_thread=in_thread)
        self._waiting: dict[str, list[Done]] = {}  # by the path of a table whose write has not begun
        self._retries: dict[str, Kept] = {}  # by path: the last write failed
        self._faults: dict[str, str] = {}  # by path: why
        self._later: dict[str, list[Done]] = {}  # by path: they wait for the next try
        self._timer: asyncio.TimerHandle | None = None
        self.failed = 0  # writes that failed

    def save(self, table: Kept, done: Done | None = None) -> None:
        """Write the changes of a table soon, then call `done` on the loop.

        done  called with None if the changes are on the disk, or else with the fault as text. Then they stay in memory,
              and the writer tries again later
        """
        waiting = self._waiting.get(table.path)
        if waiting is not None:  # the thread may begin meanwhile; it has the list, and all changes until now
            waiting += [] if done is None else [done]
            return
        self._waiting[table.path] = [*self._later.pop(table.path, ()), *([] if done is None else [done])]
        self._disk.run(partial(self._write, table), self._written)

    def wait(self, table: Kept, done: Done) -> None:
        """Call `done` as save() does. But if the last write has failed, tell it at once, and do not try again now."""
        fault = self._faults.get(table.path)
        if fault is None or table.path in self._waiting:
            self.save(table, done)
        else:
            self._loop.call_soon(done, fault)

    def after_retry(self, table: Kept, done: Done) -> None:
        """Call `done` after the next try to write a table; now if no write has failed since the last success."""
        if table.path in self._faults:
            self._later.setdefault(table.path, []).append(done)
        else:
            self.save(table, done)

    def is_saved(self, table: Kept) -> bool:
        """Whether all changes of a table are on the disk. False also while any table is written."""
        return not self._disk.is_busy and not table.changed

    def _write(self, table: Kept) -> tuple[Kept, list[Done], Exception | None]:
        waiting = self._waiting.pop(table.path)
        try:
            table.persist()
        except Exception as error:  # any: those who wait get it
            return table, waiting, error
        return table, waiting, None

    def _written(self, outcome: tuple[Kept, list[Done], Exception | None]) -> None:
        table, waiting, error = outcome
        fault = None if error is None else self._failed(table, error)
        if fault is None and self._faults.pop(table.path, None) is not None:
            del self._retries[table.path]
            _log.info("%s is written again", table.path)
        for done in waiting:
            self._loop.call_soon(done, fault)  # its error does not end the others

    def _failed(self, table: Kept, error: Exception) -> str:
        self.failed += 1
        is_first = table.path not in self._faults
        _log.log(
            logging.WARNING if is_first else logging.DEBUG,
            "%s is not written: %s; it is tried again every %d seconds",
            table.path,
            reason(error),
            RETRY_SECONDS,
        )
        self._retries[table.path] = table
        fault = self._faults[table.path] = fault_text(table.path, error)
        if self._timer is None:
            self._timer = self._loop.call_later(RETRY_SECONDS, self._retry)
        return fault

    def _retry(self) -> None:
        self._timer = None
        for table in list(self._retries.values()):
            self.save(table)

    async def close(self) -> None:
        """Wait until everything is written, or has failed again."""
        await self._disk.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def reason(error: Exception) -> str:
    """Return what is wrong, without the name of the file.

    >>> reason(OSError(28, "No space left on device", "topics.json")), reason(ValueError("too large"))
    ('No space left on device', 'too large')
    """
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__


def fault_text(path: str, error: Exception) -> str:
    """Return the remark of an answer to a request whose change is in memory, but not on the disk.

    >>> fault_text("topics.json", OSError(28, "No space left on device"))[:51]
    'topics.json is not written: No space left on device'
    """
    return (
        f"{path} is not written: {reason(error)}; the change is in the broker's memory only, and a restart loses it. "
        f"Make the file writable: the broker tries again every {RETRY_SECONDS:.0f} seconds, or repeat the request"
    )[:_REMARK_MOST]


def answering(call: Call, answer: Answer) -> Done:
    """Return a `done` of save(): it answers a request with `answer`, or with SYSTEM_ERROR and the fault.

    >>> from types import SimpleNamespace
    >>> done = answering(SimpleNamespace(later=lambda answer: print(answer.code, answer.remark)), Answer())
    >>> done("topics.json is not written")
    1 topics.json is not written
    """
    return lambda fault: call.later(answer if fault is None else Answer(Code.SYSTEM_ERROR, remark=fault))
