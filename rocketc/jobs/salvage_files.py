"""The log files of a salvaged store: the valid records of a damaged log, at their old positions or compacted.

To keep positions, the bytes between two lost ranges are copied unchanged. A lost range is filled with a record that
says what was lost. This record has the flag of a rolled back transaction, so a broker enters it into no queue and no
index. A lost range that reaches the end of a file is replaced by the blank record of that file.
"""

from __future__ import annotations

import bisect
import contextlib
import errno
import json
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from rocketc._layout import BLANK_BYTES, FLAG_ROLLBACK, HOST_V6_BYTES, MSG_BORN_HOST_AT, MSG_MIN_BYTES, PROP_CRC_BYTES
from rocketc.errors import StoreIOError
from rocketc.files.durable import errors_named, write_all
from rocketc.files.paths import LogFile
from rocketc.files.regular import open_regular
from rocketc.format._encoding import encode, encode_blank_record, move_records, store_timestamp_of
from rocketc.read._filter import Filter
from rocketc.read._log_audit import Audit
from rocketc.read.scan_report import Damage, torn_tail
from rocketc.read.scan_run import open_walker

TOPIC = "rocketc_lost"  # topic of the records that fill a lost range

_LEAST = MSG_MIN_BYTES + 1  # bytes of the smallest filler record; its topic has one letter
_DESCRIBED_BYTES = 192  # bytes of a filler record with room for the full description
_LOST_BYTES = 1 << 20  # the longest filler record; a longer range gets several
_COPY_BYTES = 1 << 20
_HEAD_BYTES = MSG_BORN_HOST_AT + HOST_V6_BYTES + 8  # bytes of a record up to and including its store timestamp
_CRC_FULL = 2
_LONG_MAX = (1 << 63) - 1
_MISSING_MAX = 10_000  # consecutive missing files

Update = Callable[[int], None]
Runs = list[tuple[str, int, int, int, int]]


@dataclass
class ReadableRanges:
    """The valid and the damaged ranges of one log file.

    ranges     physical offsets of the valid bytes: records, and the blank record with the bytes after it
    damage     the ranges between them
    torn       whether the last damaged range is a torn record at the end of the log
    runs       of queue offsets, as returned by Audit.runs()
    timestamp  store timestamp of the last record in ms; 0 if there is none
    """

    file: LogFile
    ranges: list[tuple[int, int]] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    torn: bool = False
    runs: Runs = field(default_factory=list)
    records: int = 0
    messages: int = 0
    timestamp: int = 0

    @property
    def bytes(self) -> int:
        return sum(stop - start for start, stop in self.ranges)


def find(file: LogFile, update: Update) -> ReadableRanges:
    """Read a file and check every record in it. Raises StoreIOError.

    >>> find(LogFile("nowhere", 0, 100, 100, True), print)
    Traceback (most recent call last):
    rocketc.errors.StoreIOError: [Errno 2] No such file or directory: 'nowhere'
    """
    walker = open_walker(file, Filter(), crc=_CRC_FULL, errors="skip")
    audit = Audit(walker)
    while audit.step():
        update(walker.walked)
    out = ReadableRanges(file, records=audit.records, messages=audit.messages, timestamp=audit.last_timestamp)
    out.runs = audit.runs()
    out.damage = [Damage(walker.file, *entry) for entry in walker.damage]
    out.torn = walker.ended and torn_tail(out.damage, walker.position) is not None
    at = file.origin
    for lost in out.damage:
        if lost.start > at:
            out.ranges.append((at, lost.start))
        at = lost.stop
    if walker.position > at:
        out.ranges.append((at, walker.position))
    return out


class LogFolder:
    """The folder that the new log is written to, file by file.

    folder  None: write nothing (dry run)
    size    of each file in bytes
    """

    def __init__(self, folder: str | None, size: int) -> None:
        self.size = size
        self.made: list[str] = []  # names of files
        self._folder = folder
        self._fd = -1
        self._base = -1

    def begin(self, base: int, pos: int = 0) -> None:
        """Start the file at a physical offset: create or empty it, or with `pos` keep its first `pos` bytes."""
        self.close()
        if pos == 0:
            self.made.append(f"{base:020d}")
        self._base = base
        if self._folder is not None:
            with errors_named(self._path):
                self._fd = open_regular(self._path, os.O_RDWR | os.O_CREAT)
                os.ftruncate(self._fd, pos)
                os.ftruncate(self._fd, self.size)

    def drop_from(self, phy_offset: int) -> None:
        """Delete the files from this physical offset on: a salvage that was killed did not finish them."""
        folder = self._folder or ""
        with errors_named(folder):
            for name in os.listdir(folder):
                if int(name) >= phy_offset:
                    os.unlink(os.path.join(folder, name))

    @property
    def _path(self) -> str:
        return os.path.join(self._folder or "", f"{self._base:020d}")

    def write(self, phy_offset: int, data: bytes | bytearray | memoryview) -> None:
        if self._fd < 0:
            return
        with errors_named(self._path):
            write_all(self._fd, data, phy_offset - self._base)

    def copy(self, source: int, path: str, start: int, stop: int) -> None:
        """Copy the physical offsets [start, stop) from an open file that begins at the same physical offset."""
        if self._fd < 0:
            return
        pos, end = start - self._base, stop - self._base
        with contextlib.suppress(OSError, AttributeError):  # not supported between these file systems: copy below
            while pos < end and (done := os.copy_file_range(source, self._fd, end - pos, pos, pos)):
                pos += done
        buffer = memoryview(bytearray(min(_COPY_BYTES, max(end - pos, 0))))
        while pos < end:
            data = buffer[: end - pos]
            _read(source, path, pos, data)
            self.write(self._base + pos, data)
            pos += len(data)

    def end(self, changed_ns: int | None = None) -> None:
        """Finish the current file: make it durable and close it.

        changed_ns  modification time to set; RocketMQ deletes old files by their modification time
        """
        if self._fd >= 0:
            with errors_named(self._path):
                if changed_ns is not None:
                    os.utime(self._fd, ns=(changed_ns, changed_ns))
                os.fsync(self._fd)
        self.close()

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _read(source: int, path: str, pos: int, view: memoryview) -> None:
    """Fill the view with bytes from a file of the damaged store. Raises StoreIOError."""
    got = 0
    with errors_named(path):
        while got < len(view):
            part = os.preadv(source, [view[got:]], pos + got)
            if part == 0:
                raise OSError(errno.EIO, "became shorter while it was read; run salvage again")
            got += part


class InPlaceLog:
    """Writes each file at its old physical offset; only the lost ranges differ from the source.

    Raises StoreIOError if the files do not form a row of equal size, or if a lost range is too short for a record.
    """

    def __init__(self, out: LogFolder) -> None:
        self._out = out
        self._end: int | None = None
        self._timestamp = 1

    def go_on(self, end: int, timestamp: int) -> None:
        """Continue after a salvage that was killed: the files before this physical offset are complete."""
        self._end, self._timestamp = end, max(timestamp, 1)
        self._out.drop_from(end)

    def copy(self, found: ReadableRanges, source: int) -> None:
        file, size = found.file, self._out.size
        base = _base(file)
        if base % size or file.limit > size or base > _LONG_MAX - size:
            text = f"has {file.limit} bytes from physical offset {base} on and does not fit into a row of files of "
            text += f"{size} bytes, so positions cannot be kept; use compact=True (--compact) to move the records"
            raise StoreIOError(errno.EINVAL, text, file.path)
        fillers = list(self._fillers(found, source))
        changed = os.fstat(source).st_mtime_ns
        self._fill_up_to(file, changed)
        self._out.begin(base)
        for start, stop in found.ranges:
            self._out.copy(source, file.path, start, min(stop, base + file.size))
        for start, stop, lost, timestamp in fillers:
            if stop == base + size:
                self._out.write(start, _blank(stop - start))
                continue
            for at, record in filler_records(start, stop, lost, timestamp):
                self._out.write(at, record)
        self._out.end(changed)
        self._end = base + size
        self._timestamp = max(found.timestamp, 1)

    def _fill_up_to(self, file: LogFile, changed: int) -> None:
        """Write one blank record for each file that is missing before this one."""
        base, size = _base(file), self._out.size
        if self._end is None:
            return
        missing = (base - self._end) // size
        if missing > _MISSING_MAX:
            text = f"follows {missing} missing files, too many to keep positions; use compact=True (--compact)"
            raise StoreIOError(errno.EINVAL, text, file.path)
        for start in range(self._end, base, size):
            self._out.begin(start)
            self._out.write(start, _blank(size))
            self._out.end(changed)

    def _fillers(self, found: ReadableRanges, source: int) -> Iterator[tuple[int, int, Damage, int]]:
        """Yield (start, stop, damage, store timestamp of the next record) for each lost range."""
        base = _base(found.file)
        end = base + self._out.size
        timestamp = found.timestamp or self._timestamp
        whole = {start for start, _ in found.ranges}
        out = []
        for lost in reversed(found.damage[: -1 if found.torn else None]):
            if lost.stop in whole:
                timestamp = _store_time(source, lost.stop - base) or timestamp
            stop = end if lost.stop >= base + found.file.limit else lost.stop
            room = stop - lost.start
            if room < (BLANK_BYTES if stop == end else _LEAST):
                text = (
                    f"{room} bytes lost at physical offset {lost.start} are too few for a record that describes the "
                    "loss, so positions cannot be kept; use compact=True (--compact)"
                )
                raise StoreIOError(errno.EINVAL, text, found.file.path)
            out.append((lost.start, stop, lost, timestamp))
        return reversed(out)


def filler_records(start: int, stop: int, lost: Damage, timestamp: int) -> Iterator[tuple[int, bytes]]:
    """Yield (physical offset, bytes) of the records that fill a lost range.

    start, stop  physical offsets; at least 92 bytes apart
    lost         the damage to describe
    timestamp    store timestamp of the records in ms

    >>> [(at, len(record)) for at, record in filler_records(4096, 5096, Damage(None, 4096, 5096, "bad_magic"), 1)]
    [(4096, 1000)]
    """
    room = stop - start
    count = max(-(-room // _LOST_BYTES), 1)
    text = json.dumps({"lost": [lost.start, lost.stop], "reason": lost.reason}).encode()
    for i in range(count):
        size = room // count if i + 1 < count else room - room // count * (count - 1)
        at = start + room // count * i
        has_crc = size >= _LEAST + PROP_CRC_BYTES  # brokers with forceVerifyPropCRC require it
        free = size - MSG_MIN_BYTES - (PROP_CRC_BYTES if has_crc else 0)
        topic = TOPIC[:free]
        said = text if len(text) <= free - len(topic) else b""
        yield at, encode(
            topic, said.ljust(free - len(topic)), phy_offset=at, sys_flag=FLAG_ROLLBACK, property_crc=has_crc,
            born_timestamp=timestamp, store_timestamp=timestamp,
        )  # fmt: skip


class CompactedLog:
    """Writes the valid records one after the other, without the lost ranges.

    start     physical offset of the first record
    map_path  file for the JSON lines that map old ranges to new offsets; None: do not write it

    The first file never starts at physical offset 0. A queue unit for a lost message contains offset 0, and RocketMQ
    then skips the rest of the file at that offset.

    When queues are rebuilt, the distance between two records of a queue must have room for the messages missing between
    them. So each lost range is replaced by filler records: 91 bytes for each missing queue offset, counted for the
    queue that misses most.
    """

    def __init__(self, out: LogFolder, start: int, map_path: str | None) -> None:
        self.at = start
        self.runs: list[tuple[int, int, int]] = []  # old start, old stop, new start
        self._out = out
        self._open = False
        self._buffer = bytearray(_COPY_BYTES)
        self._map_path = map_path
        self._ends: dict[tuple[str, int], int] = {}  # topic, queue id -> the next queue offset
        self._room = 0  # lost bytes for which no filler record has been written yet
        self._stop: int | None = None  # where the last range ended
        self._begun = 0  # number of runs before the current file
        self._changed = 0  # ns: modification time of the current source file

    def copy(self, found: ReadableRanges, source: int) -> None:
        self._begun = len(self.runs)
        self._changed = os.fstat(source).st_mtime_ns
        needed = self._needed(found)
        for i, (start, stop) in enumerate(found.ranges):
            self._room += 0 if self._stop is None else max(start - self._stop, 0)
            self._write_fillers(min(needed.get(i, 0), self._room), found, source, start)
            self._copy_records(found.file, source, start, stop)
            self._stop = stop
        self._end_file()
        if self._map_path is not None:
            lines = (json.dumps({"start": a, "stop": b, "to": to}) + "\n" for a, b, to in self.runs[self._begun :])
            with errors_named(self._map_path), open(self._map_path, "a", opener=open_regular) as out:
                out.writelines(lines)
                out.flush()
                os.fsync(out.fileno())

    def note(self, found: ReadableRanges) -> dict[str, Any]:
        """Return the state that go_on() needs to continue after this file."""
        ends = {(topic, queue_id): behind for topic, queue_id, _, behind, _ in found.runs}
        queue_ends = [[*queue, end] for queue, end in ends.items()]
        return {"at": self.at, "runs": len(self.runs), "room": self._room, "stop": self._stop, "ends": queue_ends}

    def go_on(self, notes: list[dict[str, Any]]) -> None:
        """Continue after a salvage that was killed: these notes are those of the finished files."""
        assert self._map_path is not None
        runs, self.at = notes[-1]["runs"], notes[-1]["at"]
        self._room, self._stop = notes[-1]["room"], notes[-1]["stop"]
        self._ends = {(topic, queue_id): end for note in notes for topic, queue_id, end in note["ends"]}
        self._out.drop_from(self.at)
        with errors_named(self._map_path), open(self._map_path, "r+", opener=open_regular) as file:
            for _ in range(runs):
                run = json.loads(file.readline())
                self.runs.append((run["start"], run["stop"], run["to"]))
            file.truncate(file.tell())

    def _needed(self, found: ReadableRanges) -> dict[int, int]:
        """Return range number -> bytes of filler records to write before it for the missing queue offsets."""
        needed: dict[int, int] = {}
        for topic, queue_id, first, behind, phy_offset in found.runs:
            missing = first - self._ends.get((topic, queue_id), first)
            self._ends[topic, queue_id] = behind
            if missing > 0:
                i = bisect.bisect_right(found.ranges, phy_offset, key=lambda range: range[0]) - 1
                needed[i] = max(needed.get(i, 0), missing * MSG_MIN_BYTES)
        return needed

    def _write_fillers(self, needed: int, found: ReadableRanges, source: int, before: int) -> None:
        """Write filler records for `needed` lost bytes, before the record at the physical offset `before`."""
        base = _base(found.file)
        lost = next((one for one in found.damage if one.stop == before), Damage(None, before, before, "missing"))
        if self._out.size < _DESCRIBED_BYTES + BLANK_BYTES:
            return
        while needed > 0:
            room = self._out.size - self.at % self._out.size
            if room < _DESCRIBED_BYTES + BLANK_BYTES:
                self._roll(found.file, before, room)
                continue
            size = max(min(needed, room - BLANK_BYTES, _LOST_BYTES), _DESCRIBED_BYTES)
            self._go_to_file()
            timestamp = _store_time(source, before - base) or found.timestamp
            for at, record in filler_records(self.at, self.at + size, lost, timestamp):
                self._out.write(at, record)
            self.at += size
            self._room -= size
            needed -= size

    def _copy_records(self, file: LogFile, source: int, start: int, stop: int) -> None:
        size = self._out.size
        stop = min(stop, _base(file) + file.size)
        while start < stop:
            room = size - self.at % size
            data = memoryview(self._buffer)[: stop - start]  # reuse memory: new memory costs more than the copy
            _read(source, file.path, start - _base(file), data)
            done, why = move_records(data, self.at, room)
            if done:
                self._write(data, done)
                self._note(start, done)
                start += done
                self.at += done
            if why == "blank":
                return
            if why == "full":
                self._roll(file, start, room - done)
            elif why == "more" and done == 0:
                if len(data) == stop - start:
                    why = "damage"
                else:  # a long record
                    self._buffer = bytearray(min(2 * len(self._buffer), stop - start))
            if why == "damage":
                raise StoreIOError(errno.EIO, f"changed at physical offset {start} while it was read", file.path)

    def _write(self, data: memoryview, size: int) -> None:
        self._go_to_file()
        self._out.write(self.at, data[:size])

    def _go_to_file(self) -> None:
        """Open the file that the log continues in."""
        if not self._open:
            pos = self.at % self._out.size
            self._out.begin(self.at - pos, pos)
            self._open = True

    def _roll(self, file: LogFile, start: int, room: int) -> None:
        if room == self._out.size:
            text = f"the record at physical offset {start} is too long for files of {room} bytes: give a config, --conf"
            raise StoreIOError(errno.EINVAL, text, file.path)
        self._go_to_file()
        self._out.write(self.at, _blank(room))
        self._end_file()
        self.at += room

    def _end_file(self) -> None:
        if self._open:
            self._out.end(self._changed)
            self._open = False

    def _note(self, start: int, size: int) -> None:
        before, stop, to = self.runs[-1] if len(self.runs) > self._begun else (0, -1, 0)
        if stop == start and to + stop - before == self.at:
            self.runs[-1] = before, start + size, to
        else:
            self.runs.append((start, start + size, self.at))

    def new_offset(self, phy_offset: int) -> int:
        """Return the new physical offset of a record; if it was lost, that of the next record."""
        i = bisect.bisect_right(self.runs, phy_offset, key=lambda run: run[0])
        if i and phy_offset < self.runs[i - 1][1]:
            return phy_offset - self.runs[i - 1][0] + self.runs[i - 1][2]
        return self.runs[i][2] if i < len(self.runs) else self.at


def _blank(room: int) -> bytes:
    """Return the first bytes of a blank record as RocketMQ writes it; the rest of the record is a hole in the file."""
    return struct.pack(">i", room) + encode_blank_record(BLANK_BYTES)[4:]


def _base(file: LogFile) -> int:
    if file.base is None:
        raise StoreIOError(errno.EINVAL, "the file name must be its physical offset; rename it", file.path)
    return file.base


def _store_time(source: int, pos: int) -> int:
    """Return the store timestamp of the record at a byte of a file; 0 for a blank record."""
    return store_timestamp_of(os.pread(source, _HEAD_BYTES, pos))
