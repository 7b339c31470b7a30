"""Recovery finds where the log ends after a clean end or a crash, finds damage, and cuts off what is not valid.

Policy "keep" cuts the log only after the records that are known to be durable. Damage before them costs only the
damaged records. Policy "java" cuts where RocketMQ does: at the first record that its recovery rejects. With both, the
bytes that are cut off are kept beside the log, and the cut is durable before anything is appended (promise 5); see
rocketc.log.truncation.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from rocketc.files._checkpoint import Checkpoint
from rocketc.files._mapped_file import MappedFile
from rocketc.files._mapped_file_queue import MappedFileQueue
from rocketc.files.durable import errors_named, sync_file, sync_folder
from rocketc.files.paths import LogFile, base_of, resolve
from rocketc.files.regular import open_regular
from rocketc.format._encoding import store_timestamp_of
from rocketc.log._queue_offsets import QueueOffsets
from rocketc.log._recovery_pass import RecoveryPass
from rocketc.log.recovery_parts import take_in_parts
from rocketc.log.truncation import truncate_and_backup
from rocketc.read._filter import Filter
from rocketc.read._java_walk import JavaWalk
from rocketc.read._walk import Walker
from rocketc.read.scan_run import open_walker
from rocketc.tables._deleted_topics import DeletedTopicOffsets

_log = logging.getLogger("rocketc.recovery")

_HEAD_BYTES = 76  # of a record, up to its store timestamp
_MARGIN_MS = 3000  # RocketMQ subtracts this from the times of a checkpoint
SMALL_BYTES = 128 << 20  # a log up to this size is read completely at each opening
APART = 16 << 20  # least distance in bytes between the boundaries
_CLEAN_FILES = 3  # after a clean end only the last files are checked
_ALWAYS = 1 << 62  # ms; later than any time
_CRC_NONE, _CRC_BODY, _CRC_FULL = 0, 1, 2


class QueueEnds(Protocol):
    """What recovery needs from the consume queues, which are built on top of the log."""

    def end_before(self, phy_offset: int, offsets: QueueOffsets | None = None) -> int:
        """Physical offset of the end of the last record before phy_offset that a queue has. Also raise `offsets`."""
        ...


@dataclass
class Recovery:
    """The result of a recovery.

    clean      the store was closed, or is new
    start      physical offset from which records were checked
    end        physical offset at which the log continues
    last_record_end  physical offset of the end of the last record
    records    number of records checked
    timestamp  ms: store timestamp of the last one; 0: there is none
    damage     (start, stop, reason) of the bytes that were skipped or cut off
    missing    (start, stop) of missing files
    cut        physical offset from which bytes were cut off, or None
    saved      the files with the bytes that were cut off
    boundaries  physical offsets in the checked files at which one record ends and the next one begins
    confirmed   the log is the one for which the notes in the checkpoint were written
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
    boundaries: list[int] = field(default_factory=list)
    confirmed: bool = False


def recover(
    root: str,
    queue: MappedFileQueue,
    queues: QueueEnds,
    *,
    clean: bool,
    checkpoint: Checkpoint,
    flushed: int = -1,
    queued: int = -1,
    crc: bool = True,
    property_crc: bool = False,
    stripes: int = 32,
    on_file: Callable[[str, int], None] | None = None,
    deleted_topics: DeletedTopicOffsets | None = None,
    policy: str = "keep",
    index_safe: bool = False,
    threads: int = 1,
) -> tuple[Recovery, QueueOffsets]:
    """Find the end of a loaded log, cut off the bytes after it, and find the next offset of each queue.

    root            the store's root: bytes that are cut off go to its folder `cut`
    queues          loaded; they are trusted for the records before the first checked one
    clean           there was no abort file: all files were made durable
    checkpoint      what it says about the log; zeros if it is lost
    flushed         physical offset before which the log is durable; -1: use the checkpoint's time
    queued          the same for the consume queues
    crc             check bodies (checkCRCOnRecover); with property_crc the whole record too
    stripes         topicQueueLockNum
    on_file         called after a crash with (path, ms of its last record) when a file is checked and durable. Not
                    called with "java", which must begin again where it began
    deleted_topics  the deleted topics
    policy          "keep" or "java"
    index_safe      with "java": also begin where the index was durable (messageIndexSafe)
    threads         large files are read on up to this many threads, with the same result
    A recovery that is interrupted starts again, with the same result. Raises StoreIOError.

    >>> import tempfile
    >>> from rocketc.derived._consume_queues import ConsumeQueues
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
    java = policy == "java"
    if java:
        limit = checkpoint.min_timestamp_index if index_safe else checkpoint.min_timestamp
        first = _java_first(files, queues, clean, limit)
        on_file = None
    else:
        first = _first_to_check(files, clean, checkpoint, flushed)
    trusted = files[first].origin if files else 0
    vouched = -1 if java else min(flushed, queued)
    near = vouched - SMALL_BYTES - SMALL_BYTES // 8  # so that catch-up, too, finds a record to begin with
    from_note = bool(files) and near > trusted
    if sum(file.size for file in files) <= SMALL_BYTES:
        trusted, from_note = files[0].origin if files else 0, False
    kind = _CRC_NONE if not crc else _CRC_FULL if property_crc else _CRC_BODY
    damage: list[tuple[int, int, str]] = []
    stop: int | None = None
    if java and files:
        stop, damage = _java_end(files[first:], queue.files[len(files) :], kind)
        kind = _CRC_NONE  # everything before it is checked
    unsynced = not clean
    while True:
        offsets = QueueOffsets(stripes)
        reached = queues.end_before(near if from_note else trusted, offsets)
        if from_note and not trusted < reached < vouched:
            from_note = False
            continue
        found.start = reached if from_note else files[first].origin if files else 0
        noted = first - 1 if _can_trust(reached, files, first, clean, checkpoint, queued) else 0
        run = RecoveryPass(
            offsets,
            _ALWAYS if clean else checkpoint.physic_msg_timestamp,
            found.start if from_note else trusted,
            flushed=-1 if clean else flushed,
            deleted_topics=deleted_topics,
            apart=APART,
            mark=vouched,
        )
        found.damage = []
        end = files[0].origin if files else 0
        found.confirmed = False
        if from_note:
            run.boundaries.append(found.start)
            noted = next(i for i, file in enumerate(files) if found.start < file.next_base)
        for i, file in enumerate(files):
            if i < noted:
                continue
            if stop is not None and file.origin >= stop:
                break
            begin = max(found.start, file.origin) if from_note else file.origin
            end = _walk(file, run, found, kind if i >= first else _CRC_NONE, begin, stop, end, threads)
            if file.origin < vouched <= file.next_base:
                found.confirmed = _is_confirmed(run, found, vouched, end, checkpoint)
            if from_note and not found.confirmed and file.next_base >= vouched:
                break
            if unsynced and i >= first:
                sync_file(file.path)  # after a crash of the machine, the bytes that recovery builds on must be there
                sound = not found.damage and run.torn < 0 and (found.confirmed or not from_note)
                if on_file is not None and sound and run.timestamp > 0:
                    on_file(file.path, run.timestamp)
            _log_progress(file, i, len(files), run)
        if from_note and not found.confirmed:
            _log.info("%s: the log does not agree with the notes in its checkpoint: more of it is read", root)
            from_note = False
            continue
        unsynced = False
        if stop is not None:
            before = [(start, min(past, stop), reason) for start, past, reason in found.damage]
            found.damage = before + [one for one in damage if one[0] >= stop]
            break
        cut = _cut_at(found, run, clean, end)
        if cut >= end:
            break
        damage, stop = found.damage, cut  # records after it do not count: read the log again without them
    found.end = end if stop is None else stop
    found.records, found.timestamp, found.last_record_end = run.records, run.timestamp, max(run.end, 0)
    found.boundaries = run.boundaries
    _count_damaged(files, found, offsets, deleted_topics)
    found.saved = truncate_and_backup(root, queue, files, found.end, as_java=java)
    found.cut = found.end if found.saved else None
    if not clean:
        for folder in sorted({os.path.dirname(path) for path in queue.files}):
            sync_folder(folder)  # a file may be new, and its name not durable yet
    for start, stop_at, reason in found.damage:
        kept = "cut off and kept" if found.cut is not None and start >= found.cut else "skipped"
        _log.warning("%s: damage at physical offsets %d to %d (%s): %s", root, start, stop_at, reason, kept)
    if found.saved:
        _log.warning("%s: the log was cut at physical offset %d; %s", root, found.end, _saved_text(found.saved))
    return found, offsets


def _count_damaged(
    files: list[LogFile], found: Recovery, offsets: QueueOffsets, deleted_topics: DeletedTopicOffsets | None
) -> None:
    """Keep the queue offset of a record with a damaged body, so that no other message gets it."""
    for start, stop, reason in found.damage:
        if reason == "bad_body_crc" and start < found.end:
            file = next(file for file in files if file.origin <= start < file.next_base)
            with errors_named(file.path), open(file.path, "rb", buffering=0, opener=open_regular) as log:
                data = os.pread(log.fileno(), stop - start, start - file.origin)
            run = RecoveryPass(offsets, 0, deleted_topics=deleted_topics)
            run.take(Walker(data, start, Filter(), crc=_CRC_NONE, errors="report"))


def _first_to_check(files: list[LogFile], clean: bool, checkpoint: Checkpoint, flushed: int) -> int:
    """Index of the first file whose records are checked. Source: RocketMQ CommitLog."""
    if clean:
        return max(len(files) - _CLEAN_FILES, 0)
    limit = checkpoint.physic_msg_timestamp - _MARGIN_MS
    for i in range(len(files) - 1, -1, -1):
        if 0 < first_timestamp(files[i].path) <= limit and (flushed < 0 or files[i].origin <= flushed):
            return i
    return 0


def _java_first(files: list[LogFile], queues: QueueEnds, clean: bool, limit: int) -> int:
    """Index of the file in which RocketMQ begins. Source: RocketMQ CommitLog of 5.3.2 and 5.3.3.

    limit  ms; after a crash, begin in the newest file whose first record is not younger
    """
    if clean:
        reached = queues.end_before(_ALWAYS)
        return max((i for i, file in enumerate(files) if file.origin <= reached), default=0)
    for i in range(len(files) - 1, 0, -1):
        stamp = first_timestamp(files[i].path)
        if stamp != 0 and stamp <= limit:
            return i
    return 0


def _java_end(files: list[LogFile], prepared: list[str], crc: int) -> tuple[int, list[tuple[int, int, str]]]:
    """Where RocketMQ's recovery ends the log, and the damage that it finds there.

    files     files to read, the last one with data
    prepared  the files after them, in which nothing is written yet
    """
    for i, file in enumerate(files):
        mapped = MappedFile(file.path)
        try:
            walk = JavaWalk(mapped, file.origin, crc=crc)
            end, stop, blank, reason = walk.end, walk.stop, walk.blank, walk.reason
            del walk
        finally:
            mapped.close()
        if not blank:
            if reason is None and i + 1 < len(files):  # zeros, but more files follow
                stop, reason = file.next_base, "zeroed"
            return end, [(end, stop, reason)] if reason is not None and stop > end else []
    return (base_of(prepared[0]) or 0) if prepared else end, []


def first_timestamp(path: str) -> int:
    """Store timestamp (ms) of the record at the start of a file; 0 if there is no record.

    >>> first_timestamp("no such file")
    0
    """
    with contextlib.suppress(OSError), open(path, "rb", buffering=0, opener=open_regular) as file:
        return store_timestamp_of(file.read(_HEAD_BYTES))
    return 0


def _is_confirmed(run: RecoveryPass, found: Recovery, vouched: int, end: int, checkpoint: Checkpoint) -> bool:
    """Whether the log is the one of which the checkpoint says that it is durable up to `vouched`.

    A record ends there, it is not younger than the checkpoint, and there is no damage before it. Otherwise the queues
    or the checkpoint are of another log, or another program has cut the log and written other records.
    """
    if any(start < vouched for start, _, _ in found.damage):
        return False
    time = run.mark_time
    if time < 0 and end == vouched:  # the records end in the file before it
        time = run.timestamp
    return 0 <= time <= checkpoint.physic_msg_timestamp + _MARGIN_MS


def _walk(
    file: LogFile,
    run: RecoveryPass,
    found: Recovery,
    crc: int,
    begin: int,
    stop: int | None,
    end: int,
    threads: int,
) -> int:
    """Take one file's records into the pass. Return where the log continues after it, or `end` for an empty file.

    begin  physical offset in the file, where a record begins
    """
    base = file.origin
    begin = take_in_parts(file, run, begin, stop, crc, threads)
    walker = open_walker(file, Filter(), start=begin, stop=stop, exact=begin > base, crc=crc, errors="report")
    blank = run.take(walker)
    found.damage += walker.damage
    if blank and stop is None:
        return file.next_base
    return run.end if run.end > base else max(end, base) if not found.damage else end


def _cut_at(found: Recovery, run: RecoveryPass, clean: bool, end: int) -> int:
    """The end of the log: the first damage that is not known to be durable, or the end of the valid records."""
    limit = max(run.durable_end, 0)
    if clean:
        limit = run.torn if run.torn >= 0 and run.end == end else end
    cut = end
    if run.torn >= limit:  # nothing after it is durable, whatever the disk reported
        found.damage = sorted([*found.damage, (run.torn, run.torn_end, "zeroed")])
        cut = min(run.torn, end)
    limit = max(limit, run.flushed)
    return min([cut, *(start for start, _, _ in found.damage if limit <= start < end)])


def _saved_text(saved: list[str]) -> str:
    more = f" and {len(saved) - 1} more files" if len(saved) > 1 else ""
    return f"the bytes after it are kept in {saved[0]}{more}"


_last_logged = 0.0


def _log_progress(file: LogFile, i: int, count: int, run: RecoveryPass) -> None:
    """Log the progress, about once a second."""
    global _last_logged
    now = time.monotonic()
    if now - _last_logged >= 1:
        _last_logged = now
        _log.info("%s: file %d of %d, %d records", file.path, i + 1, count, run.records)


def _can_trust(
    reached: int, files: list[LogFile], first: int, clean: bool, checkpoint: Checkpoint, queued: int
) -> bool:
    """Whether the consume queues have all records before the last file that is not checked.

    They do if one of them has a record in that file, because they are written in the log's order. After a crash of the
    machine some may lack records that others have, unless the checkpoint says that all of them were durable.
    """
    if first == 0 or reached <= files[first - 1].origin:
        return False
    if queued >= 0:
        return clean or files[first].origin <= queued
    return clean or 0 < first_timestamp(files[first].path) <= checkpoint.logics_msg_timestamp - _MARGIN_MS
