"""Work done ahead: the next items are made while the last one is being used."""

from __future__ import annotations

import contextvars
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_order(work: Callable[[T], R], items: Iterable[T], pool: Executor, room: int) -> Iterator[R]:
    """work(item) of each, several at once and so many of them ahead, in the order of the items.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(2) as pool:
    ...     list(in_order(str.upper, "abc", pool, 2))
    ['A', 'B', 'C']
    """
    waiting: deque[Future[R]] = deque()
    for item in items:
        waiting.append(pool.submit(work, item))
        if len(waiting) > room:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


class _End:
    """Behind the last item: with the error that ended them, if one did."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def ahead(items: Iterable[T], room: int) -> Generator[T, None, None]:
    """The same items in the same order, made in a thread of their own; an error comes where it belongs.

    room  so many are made before they are asked for, and one is in the making
    Close it: the thread has ended then. Useful where making and using let go of the GIL.

    >>> list(ahead("abc", 1))
    ['a', 'b', 'c']
    """
    made: queue.Queue[T | _End] = queue.Queue(room)
    enough = threading.Event()

    def make() -> None:
        end = _End()
        try:
            for item in items:
                made.put(item)
                if enough.is_set():
                    break
        except BaseException as error:
            end = _End(error)
        made.put(end)

    # Warnings are caught by context in some Pythons: those of the thread are to go where the caller's go.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(make,), name="rocketc-ahead", daemon=True)
    thread.start()
    try:
        while not isinstance(item := made.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        enough.set()
        while thread.is_alive():
            try:
                made.get_nowait()
            except queue.Empty:
                thread.join(0.01)
