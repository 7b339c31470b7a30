"""Work of the store that takes long, for example deletions, on a thread beside the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from rocketc.broker.table_writer import reason
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer, Call

_log = logging.getLogger("rocketc.broker")

Done = Callable[[str | None], object]
T = TypeVar("T")

_AT_ONCE = 2  # look-ups of tools; the other threads of the loop are for sends that create topics, and for deletions


class StoreWork:
    """Runs calls, and answers requests.

    in_thread  False: run() calls at once, for a store without threads
    """

    def __init__(self, *, in_thread: bool) -> None:
        self._in_thread = in_thread
        self._loop = asyncio.get_running_loop()
        self._last: asyncio.Task[None] | None = None
        self._answers: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(_AT_ONCE)

    def run(self, work: Callable[[], object], done: Done) -> None:
        """Call `work` after all earlier ones, then `done` on the loop with None, or with the text of the error."""
        if not self._in_thread:
            done(_fault(work))
            return
        self._last = self._loop.create_task(self._run(self._last, work, done), name="work of the store")

    async def _run(self, before: asyncio.Task[None] | None, work: Callable[[], object], done: Done) -> None:
        if before is not None:
            await asyncio.wait({before})
        fault = await self._loop.run_in_executor(None, _fault, work)
        self._loop.call_soon(done, fault)  # its error does not end this task

    def answer(self, call: Call, compute: Callable[[], Answer]) -> Answer | None:
        """Answer a request with what `compute` returns, on a thread beside others. It may only read."""
        return self.look(call, compute, lambda answer: answer)

    def look(self, call: Call, read: Callable[[], T], then: Callable[[T], Answer | None]) -> Answer | None:
        """Answer a request that needs something from the store's files.

        read  reads it, on a thread beside others
        then  gets what `read` returned, on the loop, and returns the answer, or None if it answers later itself. The
              broker's tables may have changed meanwhile
        An error of one of the two is the answer.
        """
        if not self._in_thread:
            return then(read())
        task = self._loop.create_task(self._look(call, read, then), name="answer to a tool")
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)
        return None

    async def _look(self, call: Call, read: Callable[[], T], then: Callable[[T], Answer | None]) -> None:
        found: list[T] = []
        answers: list[Answer | None] = []
        async with self._turns:
            fault = await self._loop.run_in_executor(None, _fault, lambda: found.append(read()))
        if fault is None:
            fault = _fault(lambda: answers.append(then(found[0])))
        answer = answers[0] if fault is None else Answer(Code.SYSTEM_ERROR, remark=fault)
        if answer is not None:
            call.later(answer)

    async def close(self) -> None:
        """Wait until all calls are done."""
        while tasks := {*self._answers, *({self._last} if self._last is not None and not self._last.done() else ())}:
            await asyncio.wait(tasks)


def _fault(work: Callable[[], object]) -> str | None:
    try:
        work()
    except Exception as error:  # any: it is the answer to the request
        _log.warning("a request of a tool failed: %s", error)
        if isinstance(error, OSError) and error.filename:
            return f"{error.filename}: {reason(error)}; when the file can be written, repeat the request"
        return f"{type(error).__name__}: {error}"
    return None
