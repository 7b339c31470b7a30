"""Threads for the listeners of a consumer: a listener that blocks holds up no other one, and short ones cost little.

A thread that wakes up takes one item after the other until there is none. Before it calls a listener, it wakes up one
more thread if items are left: that one runs as soon as the listener waits for something. Results go to the event loop
many at a time.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from rocketc.client.ready_items import ItemT, OwnerT, Part, ReadyItems

OwnerT_contra = TypeVar("OwnerT_contra", contravariant=True)

RETRY_SECONDS = 1.0  # after the system refused the first thread

_log = logging.getLogger("rocketc.client")
_here = threading.local()  # threads: the object whose thread this is


class Calls(Protocol[OwnerT_contra, ItemT]):
    """What the threads do with the items of an owner."""

    def call(self, owner: OwnerT_contra, item: ItemT, now: int) -> object:
        """Call a listener, on a thread, and return what it returns. now: ms"""

    def finished(self, owner: OwnerT_contra, item: ItemT, outcome: object) -> None:
        """A call has ended: what it returned or raised. Called on the event loop."""

    def finished_run(self, owner: OwnerT_contra, items: list[ItemT], began: int) -> None:
        """Calls have succeeded that began at the same time, in ms. Called on the event loop."""


class ListenerThreads(Generic[OwnerT, ItemT]):
    """Calls listeners on daemon threads, which begin as they are needed.

    calls  what is done with an item
    most   threads
    now    returns ms
    good   a call may return this instead of None

    >>> import time
    >>> class Shown:
    ...     def call(self, owner, item, now):
    ...         return item if item == "slow" else None
    ...     def finished(self, owner, item, outcome):
    ...         print(owner, item, "returned", outcome)
    ...     def finished_run(self, owner, items, began):
    ...         print(owner, "ended:", *items)
    >>> async def main():
    ...     threads = ListenerThreads(Shown(), 1, lambda: 0)
    ...     threads.give(Part("A", ["a", "b", "slow", "c"]))
    ...     time.sleep(0.1)  # all calls end before the loop looks
    ...     await asyncio.sleep(0)
    ...     threads.close()
    >>> asyncio.run(main())
    A ended: a b
    A slow returned slow
    A ended: c
    """

    def __init__(self, calls: Calls[OwnerT, ItemT], most: int, now: Callable[[], int], good: object = None) -> None:
        self._calls, self._most, self._now, self._good = calls, most, now, good
        self._loop = asyncio.get_running_loop()
        self._ready: ReadyItems[OwnerT, ItemT] = ReadyItems()
        self._results: deque[tuple[OwnerT, ItemT, object, int]] = deque()
        self._is_told = False  # the loop will take the results
        self._lock = threading.Lock()  # of `_ready`, and of the four fields below
        self._threads = 0
        self._asleep = 0  # of these, without those that are being woken up
        self._is_waking = False  # a thread was woken up or begun, and does not run yet
        self._is_closed = False
        self._is_refused = False  # the system refused a thread
        self._wake_ups: queue.SimpleQueue[bool] = queue.SimpleQueue()  # False: the thread ends

    def give(self, part: Part[OwnerT, ItemT]) -> None:
        """Call the listener for each of these items, soon."""
        with self._lock:
            if self._is_closed:
                return
            self._ready.add(part)
        self._wake_one()

    @property
    def is_here(self) -> bool:
        """Whether the calling thread is one of these, in a call."""
        return getattr(_here, "threads", None) is self

    def close(self) -> None:
        """Call no listener any more, and end the threads, each after its call."""
        with self._lock:
            self._is_closed = True
            self._ready.clear()
            for _ in range(self._threads):
                self._wake_ups.put(False)

    def _wake_one(self) -> None:
        """Let one more thread take items, if there are some. It wakes up the next one."""
        with self._lock:
            if self._is_waking or self._is_closed or self._ready.first() is None:
                return
            if self._asleep:
                self._asleep -= 1
                self._is_waking = True
                self._wake_ups.put(True)
                return
            if self._threads == self._most:
                return
            self._threads += 1
            self._is_waking = True
            name = f"rocketc-listener-{self._threads}"
        try:
            threading.Thread(target=self._run, name=name, daemon=True).start()
        except RuntimeError as error:  # the system refuses a thread; the running ones take all items
            with self._lock:
                self._threads -= 1
                self._is_waking = False
                is_first = not self._threads
            if not self._is_refused:
                _log.warning("no thread for a listener: %s; %d threads work", error, self._threads)
            self._is_refused = True
            if is_first:  # then this is the event loop
                self._loop.call_later(RETRY_SECONDS, self._wake_one)

    def _next(self) -> tuple[OwnerT, ItemT] | None:
        """Return the next item, as soon as there is one; None: this thread ends."""
        while True:
            with self._lock:
                part = self._ready.first()
                if part is not None:
                    return part.owner, next(part.items)
                self._asleep += 1
            if not self._wake_ups.get():
                return None
            self._is_waking = False

    def _run(self) -> None:
        _here.threads = self
        self._is_waking = False
        call, now, ready = self._calls.call, self._now, self._ready
        while (taken := self._next()) is not None:
            if ready and not self._is_waking:
                self._wake_one()
            owner, item = taken
            began = now()
            try:
                outcome = call(owner, item, began)
            except Exception as error:
                outcome = error
            except BaseException as error:  # sys.exit() in a listener must not end the thread
                outcome = RuntimeError(f"the listener raised {type(error).__name__}")
            self._results.append((owner, item, outcome, began))
            if not self._is_told:
                self._is_told = True
                try:
                    self._loop.call_soon_threadsafe(self._take)
                except RuntimeError:  # the loop is closed
                    return

    def _take(self) -> None:
        """Pass the results on, those of a run together."""
        self._is_told = False  # first: a result that comes from now on calls this again
        results, good = self._results, self._good
        run: tuple[OwnerT, list[ItemT], int] | None = None
        for _ in range(len(results)):
            owner, item, outcome, began = results.popleft()
            is_good = outcome is None or outcome is good
            if run is not None and not (is_good and began == run[2] and owner is run[0]):
                self._calls.finished_run(*run)
                run = None
            if not is_good:
                self._calls.finished(owner, item, outcome)
            elif run is None:
                run = owner, [item], began
            else:
                run[1].append(item)
        if run is not None:
            self._calls.finished_run(*run)
