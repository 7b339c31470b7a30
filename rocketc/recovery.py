"""Recovery: where the log ends after a clean end or a crash, what is damaged in it, and what has to be cut off.

The log is cut only behind what is known to be durable: damage before that costs the damaged records and no others.
What is cut is kept beside the log, and the cut is durable before anything is appended (promise 5).
"""

from __future__ import annotations

import contextlib
import filecmp
import logging
import os
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rocketc._checkpoint import Checkpoint
from rocketc._consume_queues import ConsumeQueues
from rocketc._filter import Filter
from rocketc._gone_topics import GoneTopics
from rocketc._mapped_file import MappedFile
from rocketc._mapped_file_queue import MappedFileQueue
from rocketc._queue_offsets import QueueOffsets
from rocketc._recover import Pass
from rocketc._walk import Walker
from rocketc.paths import LogFile, resolve
from rocketc.running import make_folder, naming, sync_file, sync_folder

_log = logging.getLogger("rocketc.recovery")

_HEAD_BYTES = 88  # a record's fixed fields with two IPv4 hosts: enough for its store timestamp
_MARGIN_MS = 3000  # RocketMQ takes so much off a checkpoint's times
SMALL_BYTES = 128 << 20  # of a log that is looked at as a whole whenever it is opened
_CLEAN_FILES = 3  # after a clean end the last files only are checked
_ALWAYS = 1 << 62  # ms; later than any time
_CRC_NONE, _CRC_BODY, _CRC_FULL = 0, 1, 2
_COPY_BYTES = 1 << 20
_ZEROS = bytes(_COPY_BYTES)


@dataclass
class Recovery:
    """What recovery found.

    clean      the store had been closed, or is new
    start      physical offset from which records were checked
    end        physical offset at which the log goes on
    last_record_end  physical offset behind the last record
    records    how many were looked at
    timestamp  ms: store timestamp of the last one; 0: there is none
    damage     (start, stop, reason) of what was stepped over or cut
    missing    (start, stop) of files that are not there
    cut        physical offset from which something was cut off, or None
    saved      the files that keep what was cut
    """

    clean: bool
    start: int = 0
    end: int = 0
    last_record_end: int = 0
    records: int = 0
    timestamp: int = 0
    damage: list[tuple[int, int, str]] = field(default_factory=list)
    missing: list[tuple[int, int]] = field(default_factory=list)
    cut: int | None = None
    saved: list[str] = field(default_factory=list)


def recover(
    root: str,
    queue: MappedFileQueue,
    queues: ConsumeQueues,
    *,
    clean: bool,
    checkpoint: Checkpoint,
    flushed: int = -1,
    queued: int = -1,
    crc: bool = True,
    property_crc: bool = False,
    stripes: int = 32,
    on_file: Callable[[str, int], None] | None = None,
    gone: GoneTopics | None = None,
) -> tuple[Recovery, QueueOffsets]:
    """Find the end of a loaded log, cut off what is behind it, and learn the next offset of each queue.

    root        the store's root: what is cut goes to its folder `cut`
    queues      loaded; what they say of records before those that are looked at is believed
    clean       there was no abort file: all that is there was made durable
    checkpoint  what it says of the log; zeros if it is lost
    flushed     physical offset before which the log is durable; -1: the checkpoint's time tells
    queued      the same of the consume queues
    crc         check bodies (checkCRCOnRecover), and with property_crc the whole record too
    stripes     topicQueueLockNum
    on_file     called with (path, ms of its last record) when a file was checked and is durable, after a crash
    gone        topics that were deleted
    A recovery that is killed starts again and comes to the same end. Raises StoreIOError.

    >>> import tempfile
    >>> root = tempfile.mkdtemp()
    >>> queue = MappedFileQueue([root + "/commitlog"], 1 << 20)
    >>> queue.load()
    >>> recover(root, queue, ConsumeQueues(root), clean=True, checkpoint=Checkpoint(0, 0, 0, 0, 0))[0].end
    0
    """
    found = Recovery(clean=clean, missing=list(queue.missing))
    files = list(resolve(queue.files)[0].files) if queue.files else []
    for gap in found.missing:
        _log.warning("%s: no file holds physical offsets %d to %d", root, *gap)
    first = _first_to_check(files, clean, checkpoint, flushed)
    found.start = files[first].base or 0 if files else 0
    believed = found.start
    if sum(file.size for file in files) <= SMALL_BYTES:
        believed = files[0].base or 0 if files else 0
    kind = _CRC_NONE if not crc else _CRC_FULL if property_crc else _CRC_BODY
    damage: list[tuple[int, int, str]] = []
    stop: int | None = None
    while True:
        offsets = QueueOffsets(stripes)
        reached = queues.end_before(believed, offsets)
        noted = first - 1 if _can_trust(reached, files, first, clean, checkpoint, queued) else 0
        run = Pass(
            offsets,
            _ALWAYS if clean else checkpoint.physic_msg_timestamp,
            believed,
            flushed=-1 if clean else flushed,
            gone=gone,
        )
        found.damage = []
        end = files[0].base or 0 if files else 0
        for i, file in enumerate(files):
            if i < noted:
                continue
            if stop is not None and (file.base or 0) >= stop:
                break
            end = _walk(file, run, found, kind if i >= first else _CRC_NONE, stop, end)
            if not clean and i >= first and stop is None:
                sync_file(file.path)  # a crash of the machine must not take what we go on from
                if on_file is not None and not found.damage and run.torn < 0 and run.timestamp > 0:
                    on_file(file.path, run.timestamp)
            _tell(file, i, len(files), run)
        if stop is not None:
            break
        cut = _cut_at(found, run, clean, end)
        damage = found.damage
        if cut >= end:
            break
        stop = cut  # records behind it do not count: once more without them
    found.end, found.damage = end if stop is None else stop, damage
    found.records, found.timestamp, found.last_record_end = run.records, run.timestamp, max(run.end, 0)
    _count_damaged(files, found, offsets, gone)
    _cut_off(root, queue, files, found)
    if not clean:
        for folder in sorted({os.path.dirname(path) for path in queue.files}):
            sync_folder(folder)  # a file may have been made, and its name not be durable yet
    for start, stop_at, reason in found.damage:
        kept = "cut off and kept" if found.cut is not None and start >= found.cut else "stepped over"
        _log.warning("%s: damage at physical offsets %d to %d (%s): %s", root, start, stop_at, reason, kept)
    return found, offsets


def _count_damaged(files: list[LogFile], found: Recovery, offsets: QueueOffsets, gone: GoneTopics | None) -> None:
    """A record whose body is damaged has its queue offset still: nobody else gets it."""
    for start, stop, reason in found.damage:
        if reason == "bad_body_crc" and start < found.end:
            file = next(file for file in files if (file.base or 0) <= start < (file.base or 0) + file.limit)
            with naming(file.path), open(file.path, "rb", buffering=0) as log:
                data = os.pread(log.fileno(), stop - start, start - (file.base or 0))
            Pass(offsets, 0, gone=gone).take(Walker(data, start, Filter(), crc=_CRC_NONE, errors="report"))


def _first_to_check(files: list[LogFile], clean: bool, checkpoint: Checkpoint, flushed: int) -> int:
    """Index of the file from which on records are checked. Source: store.md 7.4, 7.5."""
    if clean:
        return max(len(files) - _CLEAN_FILES, 0)
    limit = checkpoint.physic_msg_timestamp - _MARGIN_MS
    for i in range(len(files) - 1, -1, -1):
        if 0 < first_timestamp(files[i].path) <= limit and (flushed < 0 or (files[i].base or 0) <= flushed):
            return i
    return 0


def first_timestamp(path: str) -> int:
    """Store timestamp (ms) of the record that a file begins with; 0 if it begins with none.

    >>> first_timestamp("no such file")
    0
    """
    with contextlib.suppress(OSError), open(path, "rb", buffering=0) as file:
        head = file.read(_HEAD_BYTES)
        if len(head) == _HEAD_BYTES and head[4:8] in (b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab"):
            (sys_flag,) = struct.unpack_from(">i", head, 36)
            at = 48 + (20 if sys_flag & 0x10 else 8)
            return int.from_bytes(head[at : at + 8], "big", signed=True)
    return 0


def _walk(file: LogFile, run: Pass, found: Recovery, crc: int, stop: int | None, end: int) -> int:
    """Take one file's records into the pass; where the log goes on behind it, `end` if it holds nothing."""
    mapped = MappedFile(file.path)
    try:
        walker = Walker(
            mapped,
            file.base,
            Filter(),
            limit=file.limit,
            stop=stop,
            crc=crc,
            errors="report",
            last=file.last,
            file=file.path,
        )
        blank = run.take(walker)
        found.damage += walker.damage
        del walker
    finally:
        mapped.close()
    base = file.base or 0
    if blank and stop is None:
        return base + file.limit
    return run.end if run.end > base else max(end, base) if not found.damage else end


def _cut_at(found: Recovery, run: Pass, clean: bool, end: int) -> int:
    """The end of the log: the first damage that is not known to have been durable, or the end of what is valid."""
    limit = max(run.durable_end, 0)
    if clean:
        limit = run.torn if run.torn >= 0 and run.end == end else end
    cut = end
    if run.torn >= limit:  # nothing durable stands behind it, whatever the disk has promised
        found.damage = sorted([*found.damage, (run.torn, run.torn_end, "zeroed")])
        cut = min(run.torn, end)
    limit = max(limit, run.flushed)
    return min([cut, *(start for start, _, _ in found.damage if limit <= start < end)])


def _cut_off(root: str, queue: MappedFileQueue, files: list[LogFile], found: Recovery) -> None:
    """Save what stands behind the end, then take it away, so that no later recovery can mistake it for the log."""
    tails = [(file, max(found.end - (file.base or 0), 0)) for file in files if (file.base or 0) + file.size > found.end]
    for file, pos in tails:
        stop = _data_end(file.path, pos)
        if stop > pos:
            found.cut = found.end
            found.saved.append(_save(root, file, pos, stop))
    queue.truncate(found.end)
    for file, pos in tails[:1]:
        if file.path in queue.files:
            _clear(file.path, pos, _data_end(file.path, pos))


def cut_off(queue: MappedFileQueue, end: int) -> None:
    """Take away what stands behind an end that somebody knows, of a loaded log that nobody has open; nothing is kept.

    Killed in between, the log ends at `end` or behind it, once it was recovered.

    >>> import rocketc, tempfile
    >>> root = tempfile.mkdtemp()
    >>> with rocketc.open(root, mapped_file_size_commit_log=1 << 20) as store:
    ...     ends = [store.put("t", body).end for body in (b"stays", b"goes")]
    >>> queue = MappedFileQueue([root + "/commitlog"], 1 << 20)
    >>> queue.load()
    >>> cut_off(queue, ends[0])
    >>> [m.body for m in rocketc.scan(root)]
    [b'stays']
    """
    queue.truncate(end)
    for path in queue.files:
        base = int(os.path.basename(path))
        if base <= end:
            _clear(path, end - base, _data_end(path, end - base))


def _extents(fd: int, pos: int) -> list[tuple[int, int]]:
    """[start, stop) of the parts of a file from pos on that are no holes."""
    extents = []
    size = os.fstat(fd).st_size
    while pos < size:
        try:
            pos = os.lseek(fd, pos, os.SEEK_DATA)
        except OSError:
            break
        stop = os.lseek(fd, pos, os.SEEK_HOLE)
        extents.append((pos, stop))
        pos = stop
    return extents


def _blocks(path: str, pos: int) -> Iterator[tuple[int, bytes]]:
    """(position, bytes) of the parts of a file from pos on that are no holes and not all zeros."""
    with open(path, "rb", buffering=0) as file:
        fd = file.fileno()
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # what is read ahead into a hole counts as data then
        for start, stop in _extents(fd, pos):
            while start < stop:
                block = os.pread(fd, min(_COPY_BYTES, stop - start), start)
                if not block:
                    return
                if block != _ZEROS[: len(block)]:
                    yield start, block
                start += len(block)


def _data_end(path: str, pos: int) -> int:
    """Behind the last byte from pos on that is not zero; pos if all are."""
    end = pos
    for at, block in _blocks(path, pos):
        end = at + len(block.rstrip(b"\0"))
    return end


def _save(root: str, file: LogFile, pos: int, stop: int) -> str:
    """Copy [pos, stop) of a log file to the folder `cut`, durably; return the path, named by its physical offset.

    What a recovery that was killed has saved already is not saved again.
    """
    folder = os.path.join(root, "cut")
    make_folder(folder)
    name = os.path.join(folder, f"{(file.base or 0) + pos:020d}")
    path, tmp, n = name, name + ".tmp", 0
    with naming(tmp):
        with open(tmp, "wb", buffering=0) as out:
            for at, block in _blocks(file.path, pos):
                if at < stop:
                    os.pwrite(out.fileno(), block[: stop - at], at - pos)
            os.ftruncate(out.fileno(), stop - pos)
            os.fsync(out.fileno())
        while os.path.exists(path) and not filecmp.cmp(path, tmp, shallow=False):
            n += 1
            path = f"{name}.{n}"
        os.replace(tmp, path)
    sync_folder(folder)
    return path


def _clear(path: str, pos: int, stop: int) -> None:
    """Write zeros over [pos, stop) of a file, durably; its room on the disk stays.

    The last bytes go first: until all are gone, the damage at pos stays what it is, and with it where to cut.
    """
    if stop <= pos:
        return
    with naming(path), open(path, "r+b", buffering=0) as file:
        for start in range(pos + (stop - pos - 1) // _COPY_BYTES * _COPY_BYTES, pos - 1, -_COPY_BYTES):
            os.pwrite(file.fileno(), bytes(min(_COPY_BYTES, stop - start)), start)
        os.fdatasync(file.fileno())


_told = 0.0


def _tell(file: LogFile, i: int, count: int, run: Pass) -> None:
    """Progress, about once a second."""
    global _told
    now = time.monotonic()
    if now - _told >= 1:
        _told = now
        _log.info("%s: file %d of %d, %d records", file.path, i + 1, count, run.records)


def _can_trust(
    reached: int, files: list[LogFile], first: int, clean: bool, checkpoint: Checkpoint, queued: int
) -> bool:
    """Whether the consume queues tell all of the records before the last file that is not checked.

    They do if one of them knows a record in that file: they are written in the log's order. After a crash of the
    machine some may lack what others have, unless the checkpoint says that all of it was durable.
    """
    if first == 0 or reached <= (files[first - 1].base or 0):
        return False
    if queued >= 0:
        return clean or (files[first].base or 0) <= queued
    return clean or 0 < first_timestamp(files[first].path) <= checkpoint.logics_msg_timestamp - _MARGIN_MS
