"""Work done by several threads: how many processors there are, and results in the order of what they are made of."""

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
    """How many it may use: fewer than there are, where taskset or a container says so.

    >>> processors() >= 1
    True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(work: Callable[[T], R], items: Iterable[T], pool: Executor | None, room: int) -> Iterator[R]:
    """work(item) of each, in the order of the items.

    pool  does the work while the next items are made; None: each is done when it is asked for
    room  so many results may be waited for when one more item is made

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
