"""Count the messages of a scan by group. Files are read in parallel; bodies are not decoded."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rocketc.jobs._counts import DIMENSIONS, GroupCounter
from rocketc.read.parallel import processors
from rocketc.read.scan import Scan
from rocketc.read.scan_report import ScanReport

__all__ = ["DIMENSIONS", "Count", "Group", "count"]

_THREADS_MAX = 4  # more parallel reads make disks slower
_LOOK = 0.1  # seconds between two progress reports


class Group(NamedTuple):
    """A group of messages with equal values, and its sums.

    values     one for each dimension, or None if the messages are without a value. A str, or an int: a queue id; ms at
               which a second, minute, hour or day begins; the power of two that a size reaches
    bytes      stored bytes; a record with an inner batch counts once
    first      store timestamp of the earliest message in ms; None if there is none
    last       of the latest message
    smallest   stored bytes of the smallest record
    largest    of the largest record
    """

    values: tuple[str | int | None, ...]
    messages: int
    bytes: int
    first: int | None
    last: int | None
    smallest: int | None
    largest: int | None


class Count:
    """The result of count(): iterate over it for the groups, in no order. `report` sums the reports of all passes."""

    def __init__(self, counter: GroupCounter, report: ScanReport) -> None:
        self._counter = counter
        self.by = counter.by
        self.report = report

    def __len__(self) -> int:
        return len(self._counter)

    def __iter__(self) -> Iterator[Group]:
        return map(Group._make, self._counter)

    def largest(self, number: int, by_messages: bool = False) -> tuple[list[Group], Group]:
        """Return the `number` groups with the most bytes (or messages), largest first, and the sums of all others."""
        groups, others = self._counter.largest(number, by_messages)
        return [Group._make(group) for group in groups], Group._make(others)

    @property
    def total(self) -> Group:
        return Group._make(self._counter.total)

    @property
    def more(self) -> Group:
        """Messages of the groups that exceed max_groups."""
        return Group._make(self._counter.more)

    def percentile(self, part: float) -> int | None:
        """Return the size in stored bytes that `part` (0 to 1) of the records do not exceed; at most 1/32 too large."""
        return self._counter.percentile(part)


def count(
    scan: Scan,
    by: Sequence[str] = (),
    *,
    max_groups: int = 1 << 20,
    threads: int | None = None,
    update: Callable[[int], None] = lambda done: None,
) -> Count:
    """Count the messages of a scan, grouped by the DIMENSIONS in `by`, in that order.

    max_groups  limits the memory; a group takes about 150 bytes plus its texts
    threads     number of threads, each reads a file at a time; None: one per processor, up to 4
    update      called now and then with the bytes read so far

    >>> import rocketc
    >>> scan = rocketc.decode(rocketc.encode("a", b"1") + rocketc.encode("b", b"2", phy_offset=93))
    >>> [(group.values, group.bytes) for group in count(scan, ["topic"])]
    [(('a',), 93), (('b',), 93)]
    """
    parts = scan.by_file()
    if threads is None:
        threads = min(processors(), _THREADS_MAX)
    work = _Work(parts, [GroupCounter(by, max_groups) for _ in range(max(1, min(threads, len(parts))))])
    if len(work.counters) == 1:
        work.run(work.counters[0], update)
    else:
        work.run_threads(update)
    first, *others = work.counters
    for other in others:
        first.merge(other)
    return Count(first, ScanReport.total(part.report for part in parts))


class _Work:
    """The files to read, and the counters."""

    def __init__(self, parts: list[Scan], counters: list[GroupCounter]) -> None:
        self._parts = parts
        self._waiting = deque(parts)
        self._stopped = False
        self._error: BaseException | None = None
        self.counters = counters

    def run(self, counter: GroupCounter, update: Callable[[int], None]) -> None:
        """Count one file after the other until no file is left."""
        done = 0
        while self._waiting:
            try:
                part = self._waiting.popleft()
            except IndexError:  # another thread was faster
                return
            run = part.run(counter.columns)
            for batch in run.batches():
                if self._stopped:
                    return
                counter.add(batch)
                update(done + run.report().bytes)
            done += run.report().bytes
            counter.end_file()

    def run_threads(self, update: Callable[[int], None]) -> None:
        """Run a thread for each counter. If this thread is interrupted, it does not wait: each ends after its batch."""
        threads = [threading.Thread(target=self._run_one, args=(counter,), daemon=True) for counter in self.counters]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(_LOOK)
                while thread.is_alive():
                    update(sum(part.report.bytes for part in self._parts))
                    thread.join(_LOOK)
        finally:
            self._stopped = True
        if self._error is not None:
            raise self._error

    def _run_one(self, counter: GroupCounter) -> None:
        try:
            self.run(counter, lambda done: None)
        except BaseException as error:
            self._error = self._error or error
            self._stopped = True
