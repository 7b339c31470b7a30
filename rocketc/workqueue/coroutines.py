"""Coroutines that wait for what a thread can wait for: a message of a queue, or room in it."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


@dataclass(eq=False)
class _Waiting:
    """The coroutines of one event loop that wait, in the order of their turns."""

    turns: deque[asyncio.Future[None]] = field(default_factory=deque)
    is_asked: bool = False  # the thread waits for them


class Waits:
    """The waits of all event loops for one thing. One thread waits for all of them, and only while there are some.

    >>> import asyncio
    >>> there, waits = [], Waits()
    >>> asyncio.run(waits.first(lambda: there.pop() if there else None, lambda: there.append(1)))
    1
    >>> asyncio.run(waits.first(lambda: None, lambda: None, until=0.0)) is None
    True
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "rocketc-queue")
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Waiting] = weakref.WeakKeyDictionary()

    async def first(
        self, attempt: Callable[[], T | None], wait: Callable[[], object], until: float = float("inf")
    ) -> T | None:
        """Return the first result of attempt() that is not None; None at the time `until` of the monotonic clock.

        wait  called in the thread: returns when an attempt may succeed, and after a fraction of a second in any case.
              The coroutine whose turn is next raises what it raises
        """
        import asyncio  # not at the top: programs that do not use asyncio should not wait for the import

        waiting = self._loops.setdefault(asyncio.get_running_loop(), _Waiting())
        is_new = True
        try:
            while (found := attempt()) is None:
                left = until - time.monotonic()
                if left <= 0:
                    return None
                await self._turn(waiting, wait, left, is_new)
                is_new = False
            return found
        finally:
            self._next_turn(waiting)  # of another coroutine: there may be more, or this one was canceled in its turn

    async def _turn(self, waiting: _Waiting, wait: Callable[[], object], seconds: float, is_new: bool) -> None:
        """Wait for a turn, for some seconds at most. A coroutine whose attempt failed stays the first one."""
        import asyncio

        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        (waiting.turns.append if is_new else waiting.turns.appendleft)(turn)
        try:
            if not waiting.is_asked:
                self._thread.submit(self._ask, loop, waiting, wait)
                waiting.is_asked = True
            await asyncio.wait([turn], timeout=None if seconds == float("inf") else seconds)
        finally:
            if not turn.done():
                waiting.turns.remove(turn)
            elif (error := turn.exception()) is not None:
                raise error

    def _ask(self, loop: asyncio.AbstractEventLoop, waiting: _Waiting, wait: Callable[[], object]) -> None:
        error = None
        try:
            wait()
        except Exception as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop was closed since
            loop.call_soon_threadsafe(self._answered, waiting, error)

    def _answered(self, waiting: _Waiting, error: Exception | None) -> None:
        waiting.is_asked = False
        if error is not None and waiting.turns:
            waiting.turns.popleft().set_exception(error)
        else:
            self._next_turn(waiting)

    def _next_turn(self, waiting: _Waiting) -> None:
        if not waiting.is_asked and waiting.turns:
            waiting.turns.popleft().set_result(None)
