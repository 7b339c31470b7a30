"""Catch-up: when a store is opened, consume queues and index are compared with the log and completed.

Both are derived from the log, so the log decides. It is dispatched again from some point on: existing units are
compared with its records, and rewritten if they differ. A small log is dispatched from its first record on, which
repairs every error in the derived files. Of a large log only the end is dispatched, after a crash from the checkpoint
on. If the units there do not fit the units before them, the whole log is dispatched.
"""

from __future__ import annotations

import bisect
import contextlib
import logging
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from rocketc.derived._consume_queues import ConsumeQueues
from rocketc.derived._dispatcher import Dispatcher
from rocketc.derived._key_index import KeyIndex
from rocketc.files._checkpoint import FILE_BYTES, Checkpoint
from rocketc.files.durable import errors_named, sync_data, write_all
from rocketc.files.paths import LogFile
from rocketc.files.regular import open_regular
from rocketc.log.recovery import SMALL_BYTES, first_timestamp
from rocketc.read._filter import Filter
from rocketc.read.scan_run import open_walker

_log = logging.getLogger("rocketc.recovery")

_CRC_NONE = 0
# The queue sums at the end of the checkpoint file, which RocketMQ does not use: mark, begin and end of the log,
# ConsumeQueues.summed(), KeyIndex.end_phy_offset and last_file.
_SUMS = struct.Struct(">8sqqqqqqq")
_SUMS_AT = FILE_BYTES - _SUMS.size
_MARK = b"rcqueues"
_NO_INDEX = -2


@dataclass
class CatchUpReport:
    """The result of catch_up().

    start     physical offset from which the log was dispatched again
    whole     True: start is the first record of the log
    durable   physical offset before which queues and index were already durable
    repairs   the differences from the log that were repaired, as text
    unqueued  number of records that could not be added to a queue
    """

    start: int
    whole: bool
    durable: int = 0
    repairs: list[str] = field(default_factory=list)
    unqueued: int = 0


def catch_up(
    dispatcher: Dispatcher,
    files: list[LogFile],
    end: int,
    *,
    clean: bool,
    checkpoint: Checkpoint,
    problems: list[str],
    damage: Sequence[tuple[int, int]] = (),
    queued: int = -1,
    boundaries: Sequence[int] = (),
    indexed: int = -1,
) -> CatchUpReport:
    """Dispatch the log again up to its end, from the first record that may be missing in queues or index.

    dispatcher  not started yet; its queues and index are loaded
    files       log files, in order
    end         physical offset at which the log ends
    clean       True: the store was closed
    problems    known errors of the files of queues and index; if there are any, the whole log is dispatched
    damage      (start, stop) of damaged parts of the log; the queue offsets of messages there are not used again
    queued      physical offset before which queues and index are durable; -1: take the times in the checkpoint
    boundaries  physical offsets where a record ends and the next one begins, ascending
    indexed     physical offset before which the index has every key; -1: take the last key in the index
    Raises StoreIOError, StoreFullError.

    >>> import os, rocketc, shutil, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with rocketc.open(folder, mapped_file_size_commit_log=1 << 20) as store:
    ...     r = store.put("orders", b"hello")
    >>> shutil.rmtree(os.path.join(folder, "consumequeue"))
    >>> with rocketc.open(folder) as store:  # catches up
    ...     store.max_offset("orders")
    1
    """
    first = files[0].origin if files else 0
    whole = bool(problems) or (not clean and queued < 0 and checkpoint.min_timestamp <= 0) or end - first <= SMALL_BYTES
    whole = whole or (not clean and bool(dispatcher.queues.broken_off()))
    begins = sorted({file.origin for file in files} | set(boundaries))
    start = first
    if not whole:
        start = _start(files, begins, dispatcher, end, clean=clean, checkpoint=checkpoint, queued=queued)
    index = dispatcher.index
    if whole and index is not None:
        # slots and chains: the comparison with the log does not check them
        problems = [*problems, *index.check()]
    found = CatchUpReport(start, whole, repairs=list(problems))
    ends = dispatcher.queues.ends()
    index_end = index.end_phy_offset if index is not None else -1
    index_from = first
    if index is not None and problems:
        index.repair()
    elif index is not None and not whole:
        index_from = max(index.end_phy_offset, min(indexed, end), first)
    while True:
        dispatcher.start_at(start, index_from, whole=start <= first)
        needed = start if index is None else min(start, index_from)
        _take(dispatcher, files, _last_up_to(begins, needed, first), end)
        if dispatcher.has_mismatch and start > first:
            found.repairs.append("the consume queues do not match the log: the whole log is dispatched again")
            start = first
            continue
        repairs = dispatcher.finish(end, first, damage)
        if repairs is not None and dispatcher.queues.has_mismatch:
            found.repairs += repairs
            continue
        if repairs is not None or index is None:
            break
        found.repairs.append(f"index: {index.mismatch}")
        index_from = max(index.repair(), first)
    found.start, found.whole, found.unqueued = start, start <= first, dispatcher.unqueued
    found.repairs += repairs or []
    if clean and end > first:
        for topic, queue_id in _grown(dispatcher.queues, ends):
            found.repairs.append(f"queue {queue_id} of topic {topic}: its last messages were missing")
        if index is not None and index.end_phy_offset > index_end:
            which = f"the keys of records after physical offset {index_end}" if index_end >= 0 else "all keys"
            found.repairs.append(f"index: {which} were missing")
    found.durable = end if clean else min(queued if queued >= 0 else start, end)
    if found.repairs or (found.whole and not clean):
        found.durable = min(found.durable, start)
    if index is not None and index.end_phy_offset > index_end:
        found.durable = min(found.durable, index_from)
    for text in found.repairs:
        _log.warning("%s", text)
    return found


def save_queue_sums(fd: int, queues: ConsumeQueues, index: KeyIndex | None, begin: int, end: int) -> None:
    """Write the queue sums to the checkpoint file: the number of queues, their offsets, and the end of the index.

    Call it after a store was opened or cleaned, and while it is closed. Queues and index must have all records of the
    log.
    fd          of the checkpoint file
    begin, end  physical offsets of the log; the end is compared only if the store was closed

    >>> import tempfile
    >>> queues, file = ConsumeQueues(tempfile.mkdtemp()), tempfile.NamedTemporaryFile()
    >>> save_queue_sums(file.fileno(), queues, None, 0, 100)
    >>> missing_queues(file.name, queues, 0, 100, clean=True)
    []
    """
    last = (_NO_INDEX, -1) if index is None else (index.end_phy_offset, index.last_file)
    write_all(fd, _SUMS.pack(_MARK, begin, end, *queues.summed(), *last), _SUMS_AT)
    sync_data(fd)


def clear_queue_sums(checkpoint: str) -> None:
    """Remove the queue sums from the checkpoint file, if it has them. Call it before the store's files are replaced.

    >>> import tempfile
    >>> queues, file = ConsumeQueues(tempfile.mkdtemp()), tempfile.NamedTemporaryFile()
    >>> save_queue_sums(file.fileno(), queues, None, 0, 100)
    >>> clear_queue_sums(file.name)
    >>> any(file.read())
    False
    """
    if not os.path.exists(checkpoint):
        return
    with errors_named(checkpoint), open(checkpoint, "r+b", buffering=0, opener=open_regular) as file:
        if os.fstat(file.fileno()).st_size == FILE_BYTES:
            write_all(file.fileno(), bytes(_SUMS.size), _SUMS_AT)
            sync_data(file.fileno())


def missing_queues(checkpoint: str, queues: ConsumeQueues, begin: int, end: int, *, clean: bool) -> list[str]:
    """Compare the queues with the queue sums; return a text if queues or files of them are missing, otherwise nothing.

    Catch-up alone may not notice this, because the part of the log that it dispatches may hold no record of the missing
    queue. After a crash there may be more queues than in the sums.
    checkpoint  path of the checkpoint file
    queues      loaded
    begin, end  physical offsets of the log

    >>> import tempfile
    >>> queues, file = ConsumeQueues(tempfile.mkdtemp()), tempfile.NamedTemporaryFile()
    >>> save_queue_sums(file.fileno(), queues, None, 0, 100)
    >>> missing_queues(file.name, queues, 0, 100, clean=True)
    []
    """
    note = _note_in(checkpoint)
    if note is None:
        return []
    noted_begin, noted_end, *noted = note
    count, starts, ends = queues.summed()
    same = starts == noted[1] or begin != noted_begin
    if clean and end == noted_end:
        same = same and (count, ends) == (noted[0], noted[2])
    else:
        same = same and count >= noted[0]
    return [] if same else [f"consume queues or files of them are missing: found {count} queues, expected {noted[0]}"]


def indexed_up_to(checkpoint: str, index: KeyIndex, end: int, kept: tuple[int, int] | None = None) -> int:
    """Return the physical offset before which the index has every key; -1 if it is unknown.

    It is unknown for a closed store if the log or the index does not end where the queue sums say, or the index ends in
    another file. Then one of them has grown or lost data since. After a crash it is known only if there were no keys.
    Otherwise slots of the last file may point to units that were lost, so its keys are compared with the log.
    checkpoint  path of the checkpoint file
    index       loaded
    end         physical offset at which the log ends
    kept        after a crash: queued_offset() and indexed_offset() of the checkpoint; None: the store was closed

    >>> import tempfile
    >>> queues, file = ConsumeQueues(tempfile.mkdtemp()), tempfile.NamedTemporaryFile()
    >>> index = KeyIndex(tempfile.mkdtemp())
    >>> save_queue_sums(file.fileno(), queues, index, 0, 100)
    >>> indexed_up_to(file.name, index, 100)
    100
    """
    if kept is not None:
        queued, indexed = kept
        return min(queued, end) if indexed == 0 and index.end_phy_offset < 0 else -1
    note = _note_in(checkpoint)
    same = note is not None and (note[1], *note[-2:]) == (end, index.end_phy_offset, index.last_file)
    return end if same else -1


def _note_in(checkpoint: str) -> tuple[int, ...] | None:
    """Return the numbers that save_queue_sums() wrote, or None if the file does not have them."""
    data = b""
    with contextlib.suppress(OSError), open(checkpoint, "rb", buffering=0, opener=open_regular) as file:
        data = os.pread(file.fileno(), _SUMS.size, _SUMS_AT)
    return _SUMS.unpack(data)[1:] if len(data) == _SUMS.size and data.startswith(_MARK) else None


def _grown(queues: ConsumeQueues, ends: Sequence[int]) -> list[tuple[str, int]]:
    """Return the queues that have more messages than before. New queues come last in ConsumeQueues.ends().

    ends  earlier result of ConsumeQueues.ends()
    """
    now = queues.ends()
    if now == ends:
        return []
    before = [*ends, *[0] * (len(now) - len(ends))]
    return [queue for queue, last, was in zip(queues.items(), now, before, strict=True) if last > was]


def _start(
    files: list[LogFile],
    begins: list[int],
    dispatcher: Dispatcher,
    end: int,
    *,
    clean: bool,
    checkpoint: Checkpoint,
    queued: int,
) -> int:
    """Return the physical offset from which the log is dispatched again: one of `begins`, where records begin."""
    first = begins[0]
    known = min(dispatcher.queues.end_before(1 << 62), end - SMALL_BYTES)
    if clean or queued >= 0:
        return _last_up_to(begins, known if clean else min(known, queued), first)
    for file in reversed(files):
        if file.origin <= known and 0 < first_timestamp(file.path) <= checkpoint.min_timestamp:
            return file.origin
    return first


def _last_up_to(offsets: list[int], most: int, first: int) -> int:
    """Return the last of these ascending offsets that is not above `most`; `first` if all are above it."""
    at = bisect.bisect_right(offsets, most)
    return offsets[at - 1] if at > 0 else first


def _take(dispatcher: Dispatcher, files: list[LogFile], start: int, end: int) -> None:
    """Dispatch the records from `start`, where a record begins, to `end`."""
    for file in files:
        if file.next_base <= start or file.origin >= end:
            continue
        exact = start > file.origin
        walker = open_walker(file, Filter(), start=start, stop=end, exact=exact, crc=_CRC_NONE, errors="report")
        if not dispatcher.take(walker):
            return
