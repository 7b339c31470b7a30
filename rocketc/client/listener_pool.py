"""Threads for listeners that are plain functions: a listener that blocks holds up no other one."""

from __future__ import annotations

import asyncio
import functools
import inspect
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from rocketc.client.user_coroutines import result_of

Call = Callable[[], object]
Done = Callable[[Any], object]  # gets what the call returned, or the exception that it raised


_here = threading.local()  # pool: the one whose thread this is


class ListenerPool:
    """Calls functions on daemon threads, which begin as they are needed. Results go to the event loop, many at a time.

    most  threads

    >>> async def main():
    ...     pool, result = ListenerPool(2), asyncio.get_running_loop().create_future()
    ...     pool.submit(lambda: 7, result.set_result)
    ...     return await result
    >>> asyncio.run(main())
    7
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._calls: queue.SimpleQueue[tuple[Call, Done] | None] = queue.SimpleQueue()
        self._threads = 0
        self._busy = 0  # calls that are not done
        self._results: deque[tuple[Done, object]] = deque()
        self._lock = threading.Lock()
        self._is_told = False  # the loop will take the results

    def submit(self, call: Call, done: Done) -> None:
        """Call a function on a thread, then `done` on the event loop with its result or exception."""
        self._busy += 1
        if self._threads < min(self._busy, self._most):
            self._threads += 1
            threading.Thread(target=self._run, name=f"rocketc-listener-{self._threads}", daemon=True).start()
        self._calls.put((call, done))

    async def call(self, function: Callable[[Any], object], argument: Any) -> object:
        """Call a function on a thread, and return what it returns; a coroutine that it returns runs on the event loop.

        Raises what the function raises.

        >>> async def main():
        ...     return await ListenerPool(1).call(len, "seven")
        >>> asyncio.run(main())
        5
        """
        answer: asyncio.Future[object] = self._loop.create_future()

        def done(result: object) -> None:
            if not answer.done():
                answer.set_result(result)

        self.submit(functools.partial(function, argument), done)
        result = await answer
        if isinstance(result, Exception):
            raise result
        return await result_of(result) if inspect.isawaitable(result) else result

    @property
    def is_here(self) -> bool:
        """Whether the calling thread is one of this pool, in a call."""
        return getattr(_here, "pool", None) is self

    def _run(self) -> None:
        _here.pool = self
        while (entry := self._calls.get()) is not None:
            call, done = entry
            try:
                result = call()
            except Exception as error:
                result = error
            except BaseException as error:  # sys.exit() in a listener must not end the thread
                result = RuntimeError(f"the listener raised {type(error).__name__}")
            self._results.append((done, result))
            with self._lock:
                if self._is_told:
                    continue
                self._is_told = True
            try:
                self._loop.call_soon_threadsafe(self._take)
            except RuntimeError:  # the loop is closed
                return

    def _take(self) -> None:
        with self._lock:
            self._is_told = False
        while self._results:
            self._busy -= 1
            done, result = self._results.popleft()
            done(result)

    def close(self) -> None:
        """End the threads, each after its call."""
        for _ in range(self._threads):
            self._calls.put(None)
