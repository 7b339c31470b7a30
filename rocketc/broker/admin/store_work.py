"""Work of the store that takes long, for example deletions: on a thread beside the event loop, one after the other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

_log = logging.getLogger("rocketc.broker")

Done = Callable[[str | None], object]


class StoreWork:
    """Runs calls one at a time.

    in_thread  False: run() calls at once, for a store without threads
    """

    def __init__(self, *, in_thread: bool) -> None:
        self._in_thread = in_thread
        self._loop = asyncio.get_running_loop()
        self._last: asyncio.Task[None] | None = None

    def run(self, work: Callable[[], object], done: Done) -> None:
        """Call `work`, then `done` on the loop with None, or with the text of the error."""
        if not self._in_thread:
            done(_fault(work))
            return
        self._last = self._loop.create_task(self._run(self._last, work, done), name="work of the store")

    async def _run(self, before: asyncio.Task[None] | None, work: Callable[[], object], done: Done) -> None:
        if before is not None:
            await asyncio.wait({before})
        fault = await self._loop.run_in_executor(None, _fault, work)
        self._loop.call_soon(done, fault)  # its error does not end this task

    async def close(self) -> None:
        """Wait until all calls are done."""
        while self._last is not None and not self._last.done():
            await asyncio.wait({self._last})


def _fault(work: Callable[[], object]) -> str | None:
    try:
        work()
    except Exception as error:  # any: it is the answer to the request
        _log.warning("a request of a tool failed: %s", error)
        return f"{type(error).__name__}: {error}"
    return None
