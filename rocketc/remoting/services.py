"""The long-running tasks of one process, and how they end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

_log = logging.getLogger("rocketc.remoting")


class Services:
    """Runs tasks. The first one that fails ends run_until() with its error; at the end all are canceled.

    grace  seconds for which the end waits for the tasks

    >>> import asyncio
    >>> async def main():
    ...     async with Services() as services:
    ...         services.start("fails", fail())
    ...         await services.run_until(asyncio.Event())
    >>> async def fail():
    ...     raise ValueError("broken")
    >>> asyncio.run(main())
    Traceback (most recent call last):
    ValueError: broken
    """

    def __init__(self, grace: float = 5.0) -> None:
        self._grace = grace
        self._tasks: dict[asyncio.Task[None], None] = {}  # in the order in which they were started
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self, name: str, work: Coroutine[object, object, None]) -> None:
        """Run a coroutine as a task; `name` is for the log."""
        task = asyncio.create_task(work, name=name)
        self._tasks[task] = None  # the loop itself keeps only weak references
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.critical("%s failed; the process ends", task.get_name(), exc_info=error)
            if not self._failed.done():
                self._failed.set_exception(error)

    async def run_until(self, stop: asyncio.Event) -> None:
        """Return when `stop` is set; raise the error of the first task that fails."""
        stopped = asyncio.ensure_future(stop.wait())
        either: set[asyncio.Future[Any]] = {stopped, self._failed}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                self._failed.result()
        finally:
            stopped.cancel()

    async def __aenter__(self) -> Services:
        return self

    async def __aexit__(self, *error: object) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self._grace)
            for task in late:
                _log.error("%s did not end within %d s", task.get_name(), self._grace)
        if not self._failed.done():
            self._failed.cancel()
