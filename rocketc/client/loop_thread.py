"""The thread whose event loop runs the clients that are not used from a coroutine. There is one in a process."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import inspect
import logging
import os
import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from rocketc.client.waiters import End, FutureEnd, Waiter, end_with
from rocketc.errors import ClosedError
from rocketc.remoting.loops import new_event_loop

T = TypeVar("T")

_log = logging.getLogger("rocketc.client")

_END_SECONDS = 5.0  # for what still runs when the thread ends, such as a close() that Ctrl-C interrupted
_EXIT_SECONDS = 2.0  # for a loop that ends with its process


class LoopThread:
    """An event loop on a daemon thread. It begins when it is made, and ends with close().

    >>> async def main():
    ...     return 1
    >>> with LoopThread() as thread:
    ...     thread.run(main())
    1
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = new_event_loop()
        # No lock: a signal handler may close a client while the code that it interrupts calls one.
        self._pending: set[concurrent.futures.Future[Any] | End] = set()
        self._calls: deque[tuple[End, Callable[..., object], tuple[object, ...]]] = deque()
        self._is_told = False  # the loop will take the calls
        self._is_stopped = False
        self._is_over = False  # nothing runs any more
        self._patience = _END_SECONDS
        self._thread = threading.Thread(target=self._serve, name="rocketc-client", daemon=True)
        self._thread.start()
        _threads.add(self)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            while not self._is_stopped:
                try:
                    self._loop.run_forever()
                except (SystemExit, KeyboardInterrupt):  # of a task, which has it as its result, too
                    _log.warning("a task of a client raised what ends an event loop; it continues", exc_info=True)
            self._loop.run_until_complete(_finish_tasks(self._patience))
        finally:
            self._loop.close()
            self._is_over = True
            for future in list(self._pending):
                _refuse(future)

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine on the loop, and return its future."""
        try:
            self._check()
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except (ClosedError, RuntimeError):
            work.close()
            if self.is_here and self._loop.is_closed():
                raise ClosedError("the client is closed") from None
            raise
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        if self._is_over:
            _refuse(future)
        return future

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop, and return its result. Ctrl-C, or what a signal handler raises, cancels it."""
        try:
            return self.result(Waiter[T](), self._run_task, work)
        except (ClosedError, RuntimeError):
            if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                work.close()
            raise

    def _run_task(self, waiter: Waiter[T], work: Coroutine[Any, Any, T]) -> None:
        if waiter.is_canceled:
            work.close()
        else:
            end_with(self._loop.create_task(work), waiter)

    def begin(self, end: End, function: Callable[..., object], *arguments: object) -> None:
        """Call function(end, *arguments) on the loop, soon: it begins something whose end it gives to `end`.

        Raises ClosedError, RuntimeError as submit().
        """
        self._check()
        self._calls.append((end, function, arguments))
        if not self._is_told:
            try:
                self._is_told = True
                self._loop.call_soon_threadsafe(self._take_calls)
            except BaseException as error:  # also of a signal handler: the next call tells the loop again
                self._is_told = False
                if isinstance(error, RuntimeError) and self._loop.is_closed():
                    raise ClosedError("the client is closed") from None
                raise
        self._pending.add(end)
        if self._is_over:
            _refuse(end)

    def _take_calls(self) -> None:
        self._is_told = False  # first: a call that comes from now on tells the loop again
        calls = self._calls
        for _ in range(len(calls)):
            end, function, arguments = calls.popleft()
            try:
                function(end, *arguments)
            except BaseException as error:
                end.set_exception(error)
                if not isinstance(error, Exception):
                    self._loop.call_soon(self._take_calls)  # the others
                    raise

    def result(self, waiter: Waiter[T], function: Callable[..., object], *arguments: object) -> T:
        """Call function(waiter, *arguments) as begin() does, and return what the waiter gets.

        Ctrl-C, or what a signal handler raises, cancels the call.
        """
        try:
            self.begin(waiter, function, *arguments)
            return waiter.wait()
        except BaseException:
            if not waiter.is_done:
                with contextlib.suppress(ClosedError, RuntimeError):  # of begin(): they are raised already
                    self.call(waiter.stop)
            raise
        finally:
            self._pending.discard(waiter)

    def submit_to(self, function: Callable[..., object], *arguments: object) -> concurrent.futures.Future[Any]:
        """Call function(end, *arguments) on the loop as begin() does, and return the future of its end."""
        future = concurrent.futures.Future[Any]()
        end = FutureEnd(future)
        self.begin(end, function, *arguments)

        def ended(done: concurrent.futures.Future[Any]) -> None:
            self._pending.discard(end)
            if done.cancelled():
                with contextlib.suppress(ClosedError, RuntimeError):
                    self._loop.call_soon_threadsafe(end.stop)

        future.add_done_callback(ended)
        return future

    def call(self, function: Callable[[], object]) -> None:
        """Call a function on the loop, soon."""
        self._check()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function)

    @property
    def is_over(self) -> bool:
        """Whether nothing runs on the loop any more."""
        return self._is_over

    @property
    def is_here(self) -> bool:
        """Whether the thread is one of this process, and not of the parent from which it was forked."""
        return self._pid == os.getpid()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on the thread of the loop, where nothing may wait for the loop."""
        return threading.current_thread() is self._thread

    def _check(self) -> None:
        self.check_process()
        self.check_caller()

    def check_process(self) -> None:
        """Raise ClosedError in a process that was forked from the one of the thread."""
        if not self.is_here:
            raise ClosedError("this client was opened before a fork: open one in this process")

    def check_caller(self) -> None:
        """Raise RuntimeError on the thread of the loop, where nothing may wait for the loop."""
        if self.is_current:
            raise RuntimeError("a client that waits was called on its own event loop: use the async client there")

    def close(self) -> None:
        """Stop the loop, and wait for the thread. Tasks that still run get some seconds, then they are canceled."""
        if self.is_here:
            self._loop.call_soon_threadsafe(self._stop)
            self._thread.join()

    def leave(self) -> None:
        """End the thread of a client that nothing has closed, because the process ends."""
        if self.is_here and not self.is_current:
            unfinished = sum(isinstance(one, FutureEnd) for one in list(self._pending))
            if unfinished:
                _log.warning(
                    "the program ends while %d messages of send_async() are without a result: they may not be sent; "
                    "close the producer, or use `with`",
                    unfinished,
                )  # fmt: skip
            self._patience = 0.0
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._stop)
            self._thread.join(_EXIT_SECONDS)

    def _stop(self) -> None:
        self._is_stopped = True
        self._loop.stop()

    def __enter__(self) -> LoopThread:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _refuse(future: concurrent.futures.Future[Any] | End) -> None:
    """End a call that came too late for the loop."""
    with contextlib.suppress(concurrent.futures.InvalidStateError):
        future.set_exception(ClosedError("the client is closed"))


async def _finish_tasks(patience: float) -> None:
    """Let the tasks of this loop end, and cancel those that take too long. patience: seconds"""
    await asyncio.sleep(0)  # submitted coroutines become tasks
    for seconds in (patience, 1.0):
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=seconds)
        for task in late:
            task.cancel()


_threads: weakref.WeakSet[LoopThread] = weakref.WeakSet()


@atexit.register
def _leave_all() -> None:
    """End the loops that still run: one that runs while the interpreter ends crashes the process."""
    for thread in list(_threads):
        thread.leave()


_lock = threading.RLock()  # a signal handler may close a client while the code that it interrupts opens one
_shared: LoopThread | None = None
_users = 0


def shared_loop() -> LoopThread:
    """Return the thread of this process; call give_back_loop() later. After a fork, the child gets its own.

    >>> first, second = shared_loop(), shared_loop()
    >>> first is second
    True
    >>> give_back_loop(first), give_back_loop(second)
    (None, None)
    """
    global _shared, _users
    with _lock:
        if _shared is None:
            _shared, _users = LoopThread(), 0
        _users += 1
        return _shared


def check_caller() -> None:
    """Raise RuntimeError on the thread of the shared loop, if there is one.

    >>> check_caller()
    """
    thread = _shared
    if thread is not None:
        thread.check_caller()


def give_back_loop(thread: LoopThread) -> None:
    """End the use of shared_loop(). The last one ends the thread.

    >>> give_back_loop(shared_loop())
    """
    global _shared, _users
    with _lock:
        if thread is not _shared:
            return  # of the parent of this process
        _users -= 1
        if _users:
            return
        _shared = None
    thread.close()


def end_dropped(kind: str, group: str, thread: LoopThread, close: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Warn of a client that nothing refers to any more and that was not closed, and close it: for __del__().

    kind, group  name the client
    close        of the client; it is run on the loop, and nothing waits for it

    >>> async def close():
    ...     pass
    >>> loop = shared_loop()
    >>> with warnings.catch_warnings(record=True) as found:
    ...     warnings.simplefilter("always")
    ...     end_dropped("producer", "shop", loop, close)
    >>> print(found[0].message)
    the producer of group shop was never closed, so it ends now: use `with`, or keep it and call close()
    """
    if not thread.is_here:
        return  # the parent of this process has it
    text = f"the {kind} of group {group} was never closed, so it ends now: use `with`, or keep it and call close()"
    warnings.warn(text, ResourceWarning, stacklevel=3)
    if sys.is_finalizing() or thread.is_over:
        return
    _log.warning("%s", text)
    with contextlib.suppress(RuntimeError):  # the process ends, so no thread begins any more
        threading.Thread(target=_end_dropped, args=(thread, close), name="rocketc-client-end", daemon=True).start()


def _end_dropped(thread: LoopThread, close: Callable[[], Coroutine[Any, Any, object]]) -> None:
    try:
        thread.run(close())
    except Exception as error:
        _log.debug("a client that was never closed does not end: %s", error)
    finally:
        give_back_loop(thread)


def _forked() -> None:
    """In a child there is no thread, and the lock may be held by one of the parent."""
    global _lock, _shared, _users
    _lock, _shared, _users = threading.RLock(), None, 0


os.register_at_fork(after_in_child=_forked)
