"""Read the units of consume queues and index files in order; report and skip damaged units."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rocketc._layout import BCQ_UNIT_BYTES, CQ_UNIT_BYTES
from rocketc.derived._index_reader import IndexFile
from rocketc.errors import StoreIOError
from rocketc.files.block_file import BLOCK_BYTES, BlockFile
from rocketc.files.paths import base_of, was_deleted
from rocketc.format import _queue_units as cq
from rocketc.jobs.file_kinds import Files

_Opened = TypeVar("_Opened")
Unit = tuple[Any, ...]  # as returned by the decoders
OnFault = Callable[["Fault"], None]

FAULTS = {
    "bad_size": "a record or unit cannot have this size",
    "bad_phy_offset": "a physical offset cannot be negative",
    "bad_batch_size": "a batch cannot have so few messages",
    "bad_base_offset": "a queue offset cannot be negative",
    "bad_bit_map_size": "the bit map does not fill its unit",
    "bad_key_hash": "the hash of a key cannot be negative",
    "bad_time_diff": "a unit cannot be older than its file",
    "bad_previous": "the previous unit in the chain must be an older one",
    "bad_chain": "the unit is not in the chain of its key's hash slot",
    "bad_slot": "the slot contains the number of a unit that does not exist",
    "bad_count": "the header's number of units does not fit the size of the file",
    "bad_name": "the name of a queue file must be the byte offset of its first unit in the queue",
    "short_header": "the file ends within its header",
    "unknown_slots": "the number of hash slots is unknown: give it with --index-slots",
    "zeroed": "zero bytes where units should be",
    "torn": "the file ends within a unit",
    "missing": "there is no file for them",
}


@dataclass(frozen=True)
class Fault:
    """An error in a file of units.

    what         what first and last count: "queue offset", "unit", "byte", "slot"; "": the error is in the whole file
    first, last  both included
    reason       a name in FAULTS
    """

    file: str
    reason: str
    what: str = ""
    first: int = 0
    last: int = 0

    def __str__(self) -> str:
        where = f"{self.what}s {self.first} to {self.last}: " if self.what else ""
        if self.what and self.first == self.last:
            where = f"{self.what} {self.first}: "
        return f"{self.file}: {where}{self.reason} ({FAULTS[self.reason]})"


class Faults:
    """Joins consecutive faults and reports them; reports at most 100 per file, but counts all.

    deleted  files that the store's owner deleted after they were listed, and before they were read: no faults
    """

    MOST = 100

    def __init__(self, report: OnFault) -> None:
        self._report = report
        self._last: Fault | None = None
        self._reported: dict[str, int] = {}
        self.count = 0
        self.deleted: list[str] = []

    def add(self, fault: Fault) -> None:
        last = self._last
        if last is not None:
            same = (last.file, last.reason, last.what) == (fault.file, fault.reason, fault.what)
            if same and fault.first == last.last + 1:
                self._last = Fault(last.file, last.reason, last.what, last.first, fault.last)
                return
            self.flush()
        self._last = fault

    def flush(self) -> None:
        """Report the last fault, without waiting for a fault that continues it."""
        if self._last is None:
            return
        fault, self._last = self._last, None
        self.count += 1
        reported = self._reported[fault.file] = self._reported.get(fault.file, 0) + 1
        if reported <= self.MOST:
            self._report(fault)


def open_listed(path: str, faults: Faults, open_file: Callable[[str], _Opened]) -> _Opened | None:
    """Return open_file(path); None if the store's owner has deleted the file: then it is noted in `faults.deleted`.

    >>> open_listed("nowhere/00000000000000000000", Faults(print), BlockFile)
    Traceback (most recent call last):
        ...
    rocketc.errors.StoreIOError: [Errno 2] No such file or directory: 'nowhere/00000000000000000000'
    """
    try:
        return open_file(path)
    except StoreIOError:
        if not was_deleted(path):
            raise
    faults.deleted.append(path)
    return None


def read_queue(files: Files, faults: Faults, start: int = 0) -> Iterator[tuple[str, list[Unit]]]:
    """Yield the units of a queue as returned by its decoder, in lists, each with its file; report invalid ones to
    faults.

    start  number of the first unit to return

    start  number of the first unit that is wanted

    >>> import tempfile, rocketc
    >>> root = tempfile.mkdtemp()
    >>> with rocketc.open(root, mapped_file_size_commit_log=1 << 16) as store:
    ...     _ = store.put("orders", b"hi")
    >>> files = Files("consumequeue", (f"{root}/consumequeue/orders/0/{0:020}",))
    >>> [len(units) for _, units in read_queue(files, Faults(print))]
    [1]
    """
    size, decode = (
        (CQ_UNIT_BYTES, cq.decode_units) if files.kind == "consumequeue" else (BCQ_UNIT_BYTES, cq.decode_batch_units)
    )
    what = "queue offset" if files.kind == "consumequeue" else "unit"
    gaps = _Gaps(faults, what)
    for path in files.paths:
        file = open_listed(path, faults, BlockFile)
        if file is None:
            gaps = _Gaps(faults, what)  # the next file is the first one
            continue
        with file:
            base = base_of(path) or 0
            first, stop = base // size, base // size + file.size // size
            if base % size:
                faults.add(Fault(path, "bad_name"))
            gaps.enter(path, first, start)
            for pos, data in file.blocks(min(max(start - first, 0) * size, file.size), file.size, size):
                yield path, gaps.check(decode(data, first + pos // size))
            gaps.leave(stop)
            if file.size % size:
                faults.add(Fault(path, "torn", what, stop, stop))
    faults.flush()


def read_ext(files: Files, faults: Faults) -> Iterator[tuple[str, list[Unit]]]:
    """Yield the units of ext files as returned by their decoder, in lists; positions are those in ext addresses.

    >>> import tempfile
    >>> path = f"{tempfile.mkdtemp()}/{0:020}"
    >>> open(path, "wb").close()
    >>> [units for _, units in read_ext(Files("consumequeue_ext", (path,)), Faults(print))]
    []
    """
    for path in files.paths:
        file = open_listed(path, faults, BlockFile)
        if file is None:
            continue
        with file:
            base, pos, why = base_of(path) or 0, 0, cq.EXT_MORE
            while why == cq.EXT_MORE and pos < file.size:
                data = file.read(pos, BLOCK_BYTES)
                units, taken, why = cq.decode_ext_units(data, base + pos)
                yield path, list(units)
                if why == cq.EXT_MORE and pos + len(data) == file.size:
                    if any(data[taken:]):
                        faults.add(Fault(path, "torn", "byte", pos + taken, file.size - 1))
                    break
                pos += taken
            if why == cq.EXT_UNUSED and (stop := file.data_stop()) > pos:
                faults.add(Fault(path, "zeroed", "byte", pos, stop - 1))
            elif why in FAULTS:
                faults.add(Fault(path, why, "byte", pos, file.size - 1))
    faults.flush()


def read_index(file: IndexFile, faults: Faults) -> Iterator[list[Unit]]:
    """Yield the valid units of an index file in lists; report invalid units and errors of the file to `faults`.

    >>> import os, tempfile, rocketc
    >>> root = tempfile.mkdtemp()
    >>> with rocketc.open(root, mapped_file_size_commit_log=1 << 16) as store:
    ...     _ = store.put("orders", b"hi", keys="k1")
    >>> with IndexFile(os.path.join(root, "index", os.listdir(f"{root}/index")[0])) as file:
    ...     sum(len(units) for units in read_index(file, Faults(print)))
    1
    """
    if file.fault is not None:
        faults.add(Fault(file.path, file.fault))
    if file.slots is not None:
        gaps = _Gaps(faults, "unit")
        gaps.enter(file.path, 1)
        for units in file.units():
            yield gaps.check(units)
        gaps.leave(file.count + 1)
        gaps.close()
    faults.flush()


class _Gaps:
    """Tracks the numbers of units: a unit missing before others is damage; at the end it was not written yet."""

    def __init__(self, faults: Faults, what: str) -> None:
        self._faults = faults
        self._what = what
        self._file = ""
        self._next = 0  # number of the next unit expected
        self._stop: int | None = None  # number after the last unit that the files so far have room for
        self._unwritten: list[Fault] = []  # at the ends of the last files: damage if another unit follows

    def enter(self, file: str, first: int, start: int = 0) -> None:
        """Start a file with its first unit number; units before `start` are not wanted."""
        if self._stop is not None and first > max(self._stop, start):
            self._faults.add(Fault(file, "missing", self._what, max(self._stop, start), first - 1))
        self._file = file
        self._next = max(first, start)

    def check(self, units: Sequence[Unit]) -> list[Unit]:
        """Return the units without a fault; report the faults (the last field of each unit)."""
        good: list[Unit] = []
        if units:
            self.close()
        for unit in units:
            number, fault = unit[0], unit[-1]
            if number > self._next:
                self._faults.add(Fault(self._file, "zeroed", self._what, self._next, number - 1))
            self._next = number + 1
            if fault is None or fault == cq.PRE_BLANK:
                good.append(unit)
            else:
                self._faults.add(Fault(self._file, fault, self._what, number, number))
        return good

    def leave(self, stop: int) -> None:
        """End a file that has room for units before this number."""
        if self._next < stop:
            self._unwritten.append(Fault(self._file, "zeroed", self._what, self._next, stop - 1))
        self._stop = stop

    def close(self) -> None:
        """Report unwritten units as damage, because other units follow or were expected."""
        for fault in self._unwritten:
            self._faults.add(fault)
        self._unwritten.clear()
