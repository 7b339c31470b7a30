"""Calls coroutines with the items of a queue: many at a time if they wait, in one run if they do not.

A task for each call would cost more than a short listener. So a worker steps through the items that are ready, and
starts each coroutine itself. Only if one waits for something, the worker waits with it, and another worker continues.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from rocketc.client.ready_items import ItemT, OwnerT, Part, ReadyItems
from rocketc.client.user_coroutines import rest_of

_RUN_SECONDS = 0.005  # without a turn of the loop for others

OwnerT_contra = TypeVar("OwnerT_contra", contravariant=True)


class Calls(Protocol[OwnerT_contra, ItemT]):
    """What the workers do with the items of an owner."""

    def function(self, owner: OwnerT_contra) -> Callable[[ItemT], Coroutine[Any, Any, object]] | None:
        """Return the function that returns the coroutine of an item; None: the items are done without a call."""

    def waits(self, owner: OwnerT_contra, item: ItemT, began: float) -> None:
        """The coroutine waits for something. began: loop.time() before its call"""

    def finished(self, owner: OwnerT_contra, item: ItemT, outcome: object) -> None:
        """A coroutine has ended: what it returned or raised."""

    def finished_run(self, owner: OwnerT_contra, items: list[ItemT], seconds: float) -> None:
        """These coroutines succeeded, one after the other and without a wait, in this time together."""


class CoroutineWorkers(Generic[OwnerT, ItemT]):
    """Runs at most `most` coroutines at a time.

    calls   what is done with an item
    begin   starts a task, and returns it
    good    a coroutine may return this instead of None

    >>> class Shown:
    ...     async def work(self, item):
    ...         if item == "slow":
    ...             await asyncio.sleep(0.001)
    ...     def function(self, owner):
    ...         return self.work
    ...     def waits(self, owner, item, began):
    ...         print(owner, item, "waits")
    ...     def finished(self, owner, item, outcome):
    ...         print(owner, item, "ended with", outcome)
    ...     def finished_run(self, owner, items, seconds):
    ...         print(owner, "ended:", *items)
    >>> async def main():
    ...     workers = CoroutineWorkers(Shown(), 2, asyncio.ensure_future)
    ...     workers.give(Part("A", ["a", "slow", "b", "c"]))
    ...     await asyncio.sleep(0.1)
    >>> asyncio.run(main())
    A ended: a
    A slow waits
    A ended: b c
    A slow ended with None
    """

    def __init__(
        self,
        calls: Calls[OwnerT, ItemT],
        most: int,
        begin: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        good: object = None,
    ) -> None:
        self._calls, self._most, self._begin, self._good = calls, most, begin, good
        self._loop = asyncio.get_running_loop()
        self._ready: ReadyItems[OwnerT, ItemT] = ReadyItems()
        self._free: deque[asyncio.Future[None]] = deque()  # of workers that wait for items
        self._workers = 0
        self._is_waking = False  # a worker was woken up or begun, and does not run yet
        self._new: asyncio.Task[None] | None = None  # the one that was begun
        self._is_stopped = False

    def give(self, part: Part[OwnerT, ItemT]) -> None:
        """Call the coroutine for each of these items, soon."""
        if not self._is_stopped:
            self._ready.add(part)
            self._wake()

    def stop(self) -> None:
        """Call no coroutine any more. The caller cancels the tasks."""
        self._is_stopped = True
        self._ready.clear()

    def _wake(self) -> None:
        """Let one worker, a new one if all are busy, step through the items that are ready."""
        if self._is_waking or self._ready.first() is None:
            return
        if self._free:
            self._is_waking = True
            self._free.popleft().set_result(None)
        elif self._workers < self._most:
            self._is_waking = True
            self._workers += 1
            self._new = self._begin(self._work())
            self._new.add_done_callback(self._left)

    async def _work(self) -> None:
        free: asyncio.Future[None] | None = None
        self._new = None
        try:
            while not self._is_canceled:  # a coroutine may have caught it
                self._is_waking = False
                began = self._loop.time()
                while (part := self._ready.first()) is not None:
                    if await self._step(part) or self._is_canceled:
                        return
                    if self._loop.time() - began > _RUN_SECONDS:
                        await asyncio.sleep(0)
                        began = self._loop.time()
                if self._is_stopped:  # a coroutine that was canceled has ended
                    return
                free = self._loop.create_future()
                self._free.append(free)
                await free
                free = None
        except GeneratorExit:  # there may be no loop any more
            self._is_stopped = True
            raise
        finally:
            if free is not None and free in self._free:
                self._free.remove(free)
            elif free is not None:
                self._is_waking = False  # it was woken up

    def _left(self, worker: asyncio.Task[None]) -> None:
        """A worker has ended: a coroutine has canceled its task, for example, or all tasks of the loop are canceled.

        This is not in a `finally` of the worker: there is none in a task that is canceled before its first step.
        """
        if worker is self._new:
            self._new, self._is_waking = None, False
        if not self._is_stopped:
            self._workers -= 1
            self._wake()

    @property
    def _is_canceled(self) -> bool:
        """Whether the task of the worker that runs now is canceled. Python 3.10 does not say it."""
        task = asyncio.current_task()
        return sys.version_info >= (3, 11) and task is not None and task.cancelling() > 0

    async def _step(self, part: Part[OwnerT, ItemT]) -> bool:
        """Step through items until one has waited, or for a few ms. Results are handled before anything is awaited.

        Return whether a coroutine was canceled while it waited.
        """
        calls, owner, good, clock = self._calls, part.owner, self._good, self._loop.time
        function = calls.function(owner)
        if function is None:
            for item in part.items:
                calls.finished(owner, item, None)
            return False
        run: list[ItemT] = []
        copied = contextvars.copy_context
        first = began = at = clock()
        for item in part.items:
            waits_for: Any = None
            context = copied()  # what a coroutine sets in it is not seen by the next one
            try:
                called = context.run(function, item)
                waits_for = context.run(called.send, None)
            except StopIteration as ended:
                outcome = ended.value
            except BaseException as error:  # SystemExit would end the loop of all clients
                outcome = error
            else:
                if run:
                    calls.finished_run(owner, run, at - began)
                calls.waits(owner, item, at)
                self._wake()  # another worker continues
                try:
                    outcome = await rest_of(called, waits_for, context.run)
                except GeneratorExit:
                    raise
                except BaseException as error:  # also of something canceled
                    outcome = error
                if not self._is_stopped:
                    calls.finished(owner, item, outcome)
                return isinstance(outcome, asyncio.CancelledError)
            at = clock()
            if outcome is None or outcome is good:
                run.append(item)
            else:
                if run:
                    calls.finished_run(owner, run, at - began)
                    run = []
                calls.finished(owner, item, outcome)
                began = at
            if at - first > _RUN_SECONDS:
                break
        if run:
            calls.finished_run(owner, run, at - began)
        return False
