"""The event loop of a process or a thread: uvloop's if it is installed, with threads that work until the loop ends."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import queue
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

_T = TypeVar("_T")
_THREADS = min(32, (os.cpu_count() or 1) + 4)  # as ThreadPoolExecutor


class LoopExecutor(concurrent.futures.ThreadPoolExecutor):
    """The threads of a loop on a daemon thread. They work until shutdown(), also while the process ends.

    A ThreadPoolExecutor refuses work as soon as the main thread has ended. But other threads of the program may use the
    loop then, and what an exit handler closes must still write its files. It is the base class because a loop accepts
    no other one.

    >>> with LoopExecutor() as executor:
    ...     executor.submit(max, 2, 3).result()
    3
    """

    def __init__(self, max_workers: int = _THREADS) -> None:
        super().__init__(max_workers)
        self._calls: queue.SimpleQueue[tuple[concurrent.futures.Future[Any], Callable[[], Any]] | None]
        self._calls = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)  # threads that wait for a call, or are about to
        self._started: list[threading.Thread] = []
        self._is_over, self._starting = False, threading.Lock()

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[_T]:
        with self._starting:
            if self._is_over:
                raise RuntimeError("cannot schedule new futures after shutdown")
            future: concurrent.futures.Future[_T] = concurrent.futures.Future()
            self._calls.put((future, partial(fn, *args, **kwargs)))
            if not self._idle.acquire(blocking=False) and len(self._started) < self._max_workers:
                thread = threading.Thread(target=self._work, name=f"rocketc-work-{len(self._started)}", daemon=True)
                thread.start()
                self._started.append(thread)
        return future

    def _work(self) -> None:
        while (item := self._calls.get()) is not None:
            future, call = item
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:  # the caller gets it
                    future.set_exception(error)
            del item, future, call  # they may be large, and the next call may come late
            self._idle.release()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._starting:
            self._is_over = True
            with contextlib.suppress(queue.Empty):
                while cancel_futures:
                    if (item := self._calls.get_nowait()) is not None:
                        item[0].cancel()
            for _ in self._started:
                self._calls.put(None)
        if wait:
            for thread in self._started:
                thread.join()


def run_on_loop(main: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine on a loop of its own, as asyncio.run(): uvloop's if it is installed.

    >>> async def main():
    ...     return 1
    >>> run_on_loop(main())
    1
    """
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


def run_in_daemon(main: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine on a loop of this daemon thread, as run_on_loop() with a LoopExecutor.

    >>> async def main():
    ...     return await asyncio.get_running_loop().run_in_executor(None, max, 2, 3)
    >>> run_in_daemon(main())
    3
    """

    async def run() -> _T:
        asyncio.get_running_loop().set_default_executor(LoopExecutor())
        return await main

    return run_on_loop(run())


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop for a daemon thread, with a LoopExecutor: uvloop's if it is installed.

    >>> new_event_loop().close()
    """
    try:
        import uvloop
    except ImportError:
        loop = asyncio.new_event_loop()
    else:
        loop = uvloop.new_event_loop()
    loop.set_default_executor(LoopExecutor())
    return loop
