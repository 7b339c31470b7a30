"""What a thread waits for while the event loop of the clients works, sends that end there without a task, and waits
with a limit.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

from rocketc.client.send_results import SendResult

T = TypeVar("T")


async def wait_set(event: asyncio.Event, seconds: float) -> None:
    """Wait until an event is set, but no longer than this time.

    >>> asyncio.run(wait_set(asyncio.Event(), 0.001))
    """
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({waiting}, timeout=max(0.0, seconds))
    finally:
        waiting.cancel()


class Waiter(Generic[T]):
    """The end of one call, which one thread waits for. It is cheaper than a concurrent future.

    is_done      it has the end
    is_canceled  the thread does not wait any more
    cancel       ends the call, on the loop; None: the loop has not begun it

    >>> waiter = Waiter()
    >>> waiter.set_result(7)
    >>> waiter.wait()
    7
    """

    __slots__ = ("_error", "_lock", "_result", "cancel", "is_canceled", "is_done")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._error: BaseException | None = None
        self.is_done = self.is_canceled = False
        self.cancel: Callable[[], object] | None = None

    def set_result(self, result: T) -> None:
        if not self.is_done:
            self._result, self.is_done = result, True
            self._lock.release()

    def set_exception(self, error: BaseException) -> None:
        if not self.is_done:
            self._error, self.is_done = error, True
            self._lock.release()

    def wait(self) -> T:
        """Return the result, or raise the exception. A signal handler may interrupt it."""
        self._lock.acquire()
        if self._error is None:
            return self._result
        try:
            raise self._error
        finally:
            self._error = None  # it refers to this frame

    def stop(self) -> None:
        """End the call, on the loop, because the thread does not wait any more."""
        self.is_canceled = True
        if self.cancel is not None:
            self.cancel()


class FutureEnd(Generic[T]):
    """The end of one call, for a future that a program may cancel. The attributes are those of a Waiter.

    It forgets the future at the end: the future refers to it, and a cycle is memory until the next garbage collection.
    """

    __slots__ = ("_future", "cancel", "is_canceled")

    def __init__(self, future: concurrent.futures.Future[T]) -> None:
        self._future: concurrent.futures.Future[T] | None = future
        self.is_canceled = False
        self.cancel: Callable[[], object] | None = None

    def set_result(self, result: T) -> None:
        future, self._future = self._future, None
        if future is not None and not future.done() and future.set_running_or_notify_cancel():
            future.set_result(result)

    def set_exception(self, error: BaseException) -> None:
        future, self._future = self._future, None
        if future is None:
            return
        if isinstance(error, concurrent.futures.CancelledError):
            future.cancel()
        if not future.done() and future.set_running_or_notify_cancel():
            future.set_exception(error)

    def stop(self) -> None:
        """End the call, on the loop, because the future was canceled."""
        self.is_canceled, self._future = True, None
        if self.cancel is not None:
            self.cancel()


End = Waiter[Any] | FutureEnd[Any]


def end_with(task: asyncio.Task[Any], end: End) -> None:
    """Let a task be what a call waits for.

    >>> async def main():
    ...     waiter = Waiter()
    ...     end_with(asyncio.create_task(asyncio.sleep(0, "done")), waiter)
    ...     await asyncio.sleep(0.01)
    ...     return waiter.wait()
    >>> asyncio.run(main())
    'done'
    """

    def pass_on(done: asyncio.Task[Any]) -> None:
        if done.cancelled():
            end.set_exception(concurrent.futures.CancelledError())
        elif (error := done.exception()) is not None:
            end.set_exception(error)
        else:
            end.set_result(done.result())

    end.cancel = task.cancel
    task.add_done_callback(pass_on)


class DirectAnswer(Generic[T]):
    """The answer of a send that the compiled way has begun: its result ends a call at once, without a task.

    end     gets the result: a SendResult, or the list of them of a batch
    rest    called with the send for another outcome: returns the work that follows from it, and that awaits this object
    ended   called with the send at the end of that work, however it ends
    forget  called with the send if nothing waits for it any more
    begun   the send; set it before the answer can come
    """

    __slots__ = ("_end", "_ended", "_error", "_forget", "_is_done", "_rest", "_result", "begun")

    def __init__(
        self,
        end: End,
        rest: Callable[[Any], Coroutine[Any, Any, T]],
        ended: Callable[[Any], object],
        forget: Callable[[Any], object],
    ) -> None:
        self._end, self._rest, self._ended, self._forget = end, rest, ended, forget
        self._is_done = False
        self._result: Any = None
        self._error: BaseException | None = None
        self.begun: Any = None
        end.cancel = self.cancel

    def done(self) -> bool:
        return self._is_done

    def set_result(self, result: Any) -> None:
        self._is_done, self._result = True, result
        if type(result) in (SendResult, list):
            self.begun = self._end.cancel = None  # they refer to this object
            self._end.set_result(result)
        else:
            self._continue()

    def set_exception(self, error: BaseException) -> None:
        self._is_done, self._error = True, error
        self._continue()

    def _continue(self) -> None:
        begun, self.begun, ended = self.begun, None, self._ended
        task = asyncio.get_running_loop().create_task(self._rest(begun))
        # Nothing of the work, no `finally` either, runs in a task that is canceled before its first step.
        task.add_done_callback(lambda _: ended(begun))
        end_with(task, self._end)

    def cancel(self) -> None:
        """Do not wait for the answer any more."""
        if not self._is_done:
            self._is_done = True
            begun, self.begun = self.begun, None
            self._end.cancel = None
            self._forget(begun)

    def __await__(self) -> Generator[Any, None, Any]:
        """Return or raise the outcome, which is there before anything awaits it."""
        yield from ()
        if self._error is not None:
            raise self._error
        return self._result
