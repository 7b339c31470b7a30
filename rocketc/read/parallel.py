"""Run work in several threads: the number of processors, and results in the order of their inputs."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

T = TypeVar("T")
R = TypeVar("R")


def processors() -> int:
    """Return the number of processors that this process may use, as limited by taskset or a container.

    >>> processors() >= 1
    True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(work: Callable[[T], R], items: Iterable[T], pool: Executor | None, room: int) -> Iterator[R]:
    """Yield work(item) for each item, in the order of the items.

    pool  does the work while the next items are produced; None: do it in this thread, on demand
    room  the most unfinished results while the next item is produced

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(2) as pool:
    ...     list(in_order(str.upper, "abc", pool, 2))
    ['A', 'B', 'C']
    """
    if pool is None:
        yield from map(work, items)
        return
    waiting: deque[Future[R]] = deque()
    for item in items:
        waiting.append(pool.submit(work, item))
        del item  # it may be large
        if len(waiting) > room:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
