"""Count the messages of a scan by group: files side by side, bodies left alone."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rocketc.jobs._counts import DIMENSIONS, GroupCounter
from rocketc.read.parallel import processors
from rocketc.read.scan import Scan, ScanReport

__all__ = ["DIMENSIONS", "Count", "Group", "count"]

_THREADS_MAX = 4  # disks that are read in more places at once get slower
_LOOK = 0.1  # seconds between two looks at how far the threads are


class Group(NamedTuple):
    """What some messages have in common, and their sums.

    values     one for each dimension: a str, or an int (a queue id; ms at which a second, minute, hour or day begins;
               the power of two that a size reaches), or None if the messages have none
    bytes      stored bytes; a record that holds an inner batch counts once
    first      store timestamp of the earliest, ms; None: there is none
    last       of the latest
    smallest   stored bytes of a record
    largest    likewise
    """

    values: tuple[str | int | None, ...]
    messages: int
    bytes: int
    first: int | None
    last: int | None
    smallest: int | None
    largest: int | None


class Count:
    """What count() found: iterates over the groups, in no order. `report` is the books of the passes together."""

    def __init__(self, counter: GroupCounter, report: ScanReport) -> None:
        self._counter = counter
        self.by = counter.by
        self.report = report

    def __len__(self) -> int:
        return len(self._counter)

    def __iter__(self) -> Iterator[Group]:
        return map(Group._make, self._counter)

    def largest(self, number: int, by_messages: bool = False) -> tuple[list[Group], Group]:
        """So many groups with the most bytes (or messages), largest first, and all other messages as one."""
        groups, others = self._counter.largest(number, by_messages)
        return [Group._make(group) for group in groups], Group._make(others)

    @property
    def total(self) -> Group:
        return Group._make(self._counter.total)

    @property
    def more(self) -> Group:
        """Messages of groups that came when there were max_groups already."""
        return Group._make(self._counter.more)

    def percentile(self, part: float) -> int | None:
        """Stored bytes that `part` (0 to 1) of the records do not exceed; at most 1/32 too large."""
        return self._counter.percentile(part)


def count(
    scan: Scan,
    by: Sequence[str] = (),
    *,
    max_groups: int = 1 << 20,
    threads: int | None = None,
    tell: Callable[[int], None] = lambda done: None,
) -> Count:
    """Count the messages of a scan by what `by` names: any of DIMENSIONS, in that order.

    max_groups  bounds the memory: some 150 bytes a group, and its texts
    threads     how many read, each a file at a time; None: one a processor, up to 4
    tell        is called now and then with the bytes walked over so far

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
        work.run(work.counters[0], tell)
    else:
        work.run_threads(tell)
    first, *others = work.counters
    for other in others:
        first.merge(other)
    return Count(first, ScanReport.total(part.report for part in parts))


class _Work:
    """Files to be read, and who counts what."""

    def __init__(self, parts: list[Scan], counters: list[GroupCounter]) -> None:
        self._parts = parts
        self._waiting = deque(parts)
        self._stopped = False
        self._error: BaseException | None = None
        self.counters = counters

    def run(self, counter: GroupCounter, tell: Callable[[int], None]) -> None:
        """Count file after file, until none is waiting."""
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
                tell(done + run.report().bytes)
            done += run.report().bytes
            counter.end_file()

    def run_threads(self, tell: Callable[[int], None]) -> None:
        """A thread for each counter. They are not waited for if this one is interrupted: each ends with its batch."""
        threads = [threading.Thread(target=self._run_one, args=(counter,), daemon=True) for counter in self.counters]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(_LOOK)
                while thread.is_alive():
                    tell(sum(part.report.bytes for part in self._parts))
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
