"""A commit log that grows while a stream reads it: finds the end of its complete records, and data that was lost."""

from __future__ import annotations

import errno
import functools
import itertools
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from rocketc.errors import RocketcError, StoreIOError
from rocketc.files.durable import errors_named
from rocketc.files.paths import LogFile, resolve
from rocketc.files.regular import open_regular
from rocketc.read.scan import scan
from rocketc.spark.partitions import is_outside

if TYPE_CHECKING:
    import pyarrow

VERSION = 1
_CHECKED = 88  # bytes of a record before its body, which include its physical offset, times and CRC
_LOOKS = 10  # retries
_PLACES = ["physicalOffset", "storeSize"]
Files = tuple[LogFile, ...]
Given = ParamSpec("Given")
Found = TypeVar("Found")


class DataLossError(RocketcError):
    """Data that a stream has to read does not exist any more."""


@dataclass(frozen=True)
class LogPosition:
    """The position of a stream in the log: its offset in Spark's checkpoint.

    offset   physical offset from which the stream reads next; None: the log did not exist yet
    initial  physical offset where the stream began
    last     physical offset of the last record before `offset` (a blank record may follow it); None: nothing was read
    crc      CRC-32 of the first bytes of that record, to check that it is still there; None: nothing was read

    >>> LogPosition.from_json(LogPosition(4096, 0, 4000, 77).to_json())
    LogPosition(offset=4096, initial=0, last=4000, crc=77)
    """

    offset: int | None = None
    initial: int | None = None
    last: int | None = None
    crc: int | None = None

    def to_json(self) -> dict[str, int]:
        values = {name: getattr(self, field) for name, field in _JSON.items()}
        return {"version": VERSION, **{name: value for name, value in values.items() if value is not None}}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> LogPosition:
        """Read a position. Raises ValueError if this version of rocketc did not write it."""
        version = given.get("version")
        if isinstance(version, int) and version > VERSION:
            raise ValueError(
                f"rocketmq: the checkpoint holds an offset of version {version}, {dict(given)}; this rocketc reads "
                f"version {VERSION}: install the rocketc that wrote it, or use a new checkpoint"
            )
        values = {field: given.get(name) for name, field in _JSON.items()}
        if version != VERSION or not all(value is None or type(value) is int for value in values.values()):
            raise ValueError(
                f"rocketmq: the checkpoint holds {dict(given)}, which is not an offset of this source. It belongs to "
                "another query: use a new checkpoint"
            )
        return cls(**values)

    @property
    def begins(self) -> bool:
        """Whether the stream has read nothing yet."""
        return self.offset is None or self.offset == self.initial


_JSON = {"physicalOffset": "offset", "initialOffset": "initial", "lastRecord": "last", "lastCrc": "crc"}


def _retried(look: Callable[Given, Found]) -> Callable[Given, Found]:
    """Decorate a method to retry if a file was deleted after it was listed; a running store deletes old files."""

    @functools.wraps(look)
    def looks(*args: Given.args, **named: Given.kwargs) -> Found:
        for _ in range(_LOOKS):
            try:
                return look(*args, **named)
            except StoreIOError as error:
                if error.errno != errno.ENOENT:
                    raise
        return look(*args, **named)

    return looks


class GrowingLog:
    """The log that a stream reads. No file stays open between two calls.

    paths         as in rocketc.scan(); a path that does not exist yet is an empty log
    options       keyword arguments of rocketc.scan() that select messages
    fail_on_loss  raise DataLossError for lost data; otherwise write a line to stderr
    """

    def __init__(self, paths: list[str], options: Mapping[str, Any], fail_on_loss: bool) -> None:
        self._paths = paths
        self._wanted: dict[str, Any] = {**options, "errors": "skip", "decompress": False}
        # The header of a record is written first. So its body is checked even if the options do not check CRCs.
        self._all: dict[str, Any] = {"errors": "skip", "decompress": False, "unwrap": False, "crc": "body"}
        if options.get("crc") == "full":
            self._all["crc"] = "full"
        self._fail_on_loss = fail_on_loss
        self._reported: set[str] = set()
        self._known_end: LogPosition | None = None

    def files(self) -> Files:
        """Return the existing files up to the last one with data, in order."""
        try:
            logs = resolve(self._paths)
        except StoreIOError as error:
            if error.errno != errno.ENOENT:
                raise
            self._report(f"{error.strerror}; the stream waits for it")
            return ()
        if len(logs) > 1:
            raise ValueError(f"rocketmq: {self._name}: {len(logs)} commit logs; use a stream for each of them")
        for file in logs[0].files:
            if file.base is None:
                raise ValueError(f"rocketmq: {file.path}: a stream needs files that are named by their physical offset")
        return logs[0].files

    def begin(self) -> LogPosition:
        """Return the position before the first record."""
        files = self.files()
        return _at(files[0].origin) if files else LogPosition()

    @_retried
    def begin_at(self, time: int) -> LogPosition:
        """Return the position before the first file that may have records stored at this time or later."""
        files = self.files()
        if not files:
            return LogPosition()
        later = itertools.dropwhile(lambda file: is_outside(file, time, None), files[:-1])
        return _at(next(later, files[-1]).origin)

    @_retried
    def end(self) -> LogPosition:
        """Return the position after the last complete record; before the first file if there is no record."""
        files = self.files()
        if not files:
            return LogPosition()
        return self._end(files, files[0].origin) or _at(files[0].origin)

    @_retried
    def next(
        self,
        start: LogPosition,
        upto: int | None = None,
        *,
        max_bytes: int | None = None,
        max_files: int | None = None,
        max_records: int | None = None,
    ) -> LogPosition:
        """Return the end of a batch that begins at `start`, after a complete record; `start` if nothing is new.

        upto         records that begin here or later are not in the batch
        max_bytes    size of the batch; it ends with the record that contains its last byte
        max_files    number of files that the batch reads
        max_records  number of messages that the options select; an inner batch counts as its messages, and is not
                     divided
        A batch has at least one record, whatever the limits are. Raises DataLossError.
        """
        files = self.files()
        at, known = self._resume(files, start)
        if not files:
            return start
        end = self._end(files, at)
        if end is None or end.offset is None or end.offset <= at:
            return start if start.offset in (None, at) else self._moved(start, _at(at), at)
        stops = [end.offset]
        if upto is not None:
            stops.append(upto)
        if max_bytes is not None:
            stops.append(at + max_bytes)
        if max_files is not None:
            ahead = [file.next_base for file in files if file.next_base > at]
            stops.append(ahead[min(max_files, len(ahead)) - 1])
        stop = min(stops)
        if stop <= at:
            return start
        if stop < end.offset:
            last = self._last(files, at, stop, known) or self._nth(files, at, known, end.offset, 1, self._all)
            end = last or end
        if max_records is not None and end.offset is not None:
            end = self._nth(files, at, known, end.offset, max_records, self._wanted) or end
        return self._moved(start, end, at)

    @_retried
    def parts(self, start: LogPosition, end: LogPosition) -> list[LogFile]:
        """Return the parts of files that a batch reads. Raises DataLossError."""
        if start.begins and end.initial is not None and start.offset != end.initial:
            start = _at(end.initial)  # the first batch again; Spark does not keep its start
        if end.offset is None or start.offset == end.offset:
            return []
        files = self.files()
        at, known = self._resume(files, start)
        if at >= end.offset:
            return []
        end_known = bool(files) and end.offset <= files[-1].next_base and _is_there(files, end)
        if not end_known:
            self._lose_range(at, end.offset, "the log was cut or replaced after the batch was planned")
        for gap_start, gap_stop in _gaps(files):
            if at < gap_stop and gap_start < end.offset:
                self._lose_range(max(at, gap_start), gap_stop, "a file is missing")
        return [
            replace(
                file,
                start=at if file.origin < at else None,
                stop=end.offset if end.offset < file.next_base else None,
                exact=known,
                exact_stop=end.offset if end_known else None,
            )
            for file in _between(files, at, end.offset)
        ]

    @staticmethod
    def _moved(start: LogPosition, end: LogPosition, at: int) -> LogPosition:
        return replace(end, initial=at if start.initial is None else start.initial)

    def _end(self, files: Files, at: int) -> LogPosition | None:
        """Return the position after the last complete record from `at` on, where a record begins; None: no record."""
        last, known = files[-1], self._known_end
        if known is not None and ((known.offset or 0) < at or not _is_there(files, known)):
            known = None
        if known is not None and known.offset is not None:
            at = known.offset
            if last.origin <= at <= last.next_base and not any(_read(last, at, 8)):
                return known  # nothing was written after it
        self._known_end = self._last(files, at, None) or known
        return self._known_end

    def _last(self, files: Files, at: int, stop: int | None, known: bool = True) -> LogPosition | None:
        """Return the position after the last complete record that begins in [at, stop); None: no record."""
        for file in reversed(list(_between(files, at, stop))):
            messages = scan(_part(file, at, known, stop), columns=_PLACES, **self._all)
            last = None
            for batch in messages.batches():
                last = _record(batch, -1)
            if last is not None:
                return _place(file, *last, closed=messages.report.blanks > 0)
        return None

    def _nth(
        self, files: Files, at: int, known: bool, stop: int, count: int, options: Mapping[str, Any]
    ) -> LogPosition | None:
        """Return the position after the record with the `count`-th message from `at` on; None: fewer before `stop`."""
        for file in _between(files, at, stop):
            for batch in scan(_part(file, at, known, stop), columns=_PLACES, **options).batches():
                if batch.num_rows >= count:
                    return _place(file, *_record(batch, count - 1))
                count -= batch.num_rows
        return None

    def _resume(self, files: Files, place: LogPosition) -> tuple[int, bool]:
        """Return where the stream continues, and whether a record certainly begins there. Raises DataLossError."""
        at = place.offset
        if not files:
            if place.last is not None:
                self._lose(f"the stream has read up to offset {at}, and the log files are gone")
            return at or 0, True
        first = files[0].origin
        if at is None:
            return first, True
        if at < first:
            self._lose_range(at, first, "their files were deleted")
            return first, True
        if at > files[-1].next_base or not _is_there(files, place):
            end = self._last(files, first, None)
            back = first if end is None or end.offset is None else end.offset
            if back < at:
                self._lose(f"the log ends at offset {back}, but the stream has read up to {at}: the log was cut")
                return back, True
            self._lose(f"this is not the log that the stream has read up to offset {at}: it was cut and written again")
            return at, False
        for start, stop in _gaps(files):
            if start <= at < stop:
                self._lose_range(at, stop, "a file is missing")
                return stop, True
        return at, True

    def _lose_range(self, start: int, stop: int, why: str) -> None:
        self._lose(f"physical offsets {start} to {stop} are lost: {why}")

    def _lose(self, what: str) -> None:
        if self._fail_on_loss:
            raise DataLossError(
                f"rocketmq: {self._name}: {what}; use option failOnDataLoss=false to continue with the remaining data"
            )
        self._report(what)

    def _report(self, what: str) -> None:
        """Write a line to stderr, once per text; Spark adds it to the log of the driver."""
        if what not in self._reported:
            self._reported.add(what)
            print(f"rocketc: {self._name}: {what}", file=sys.stderr)

    @property
    def _name(self) -> str:
        return ", ".join(self._paths)


def _at(offset: int) -> LogPosition:
    return LogPosition(offset, offset)


def _between(files: Files, start: int, stop: int | None) -> Iterator[LogFile]:
    """Yield the files that contain any offset in [start, stop)."""
    return (file for file in files if start < file.next_base and (stop is None or file.origin < stop))


def _part(file: LogFile, start: int, known: bool, stop: int | None) -> LogFile:
    """Return the part of a file between these offsets; known: a record certainly begins at `start`."""
    part = replace(file, stop=stop, exact_stop=stop)
    return replace(part, start=start, exact=known) if file.origin < start else part


def _gaps(files: Files) -> Iterator[tuple[int, int]]:
    """Yield the ranges of offsets between two files."""
    return ((one.next_base, other.origin) for one, other in itertools.pairwise(files) if one.next_base < other.origin)


def _record(batch: pyarrow.RecordBatch, row: int) -> tuple[int, int]:
    """Return the physical offset and the size of a record, from a row of the columns _PLACES."""
    start, size = (column[row].as_py() for column in batch.columns)
    return start, size


def _place(file: LogFile, start: int, size: int, closed: bool = False) -> LogPosition:
    """Return the position after a record of a file; closed: after the blank record that ends the file."""
    return LogPosition(file.next_base if closed else start + size, None, start, _crc(file, start))


def _crc(file: LogFile, record: int) -> int:
    return zlib.crc32(_read(file, record, _CHECKED))


def _is_there(files: Iterable[LogFile], place: LogPosition) -> bool:
    """Whether the last record that was read is still in its place; also True if its file was deleted."""
    if place.last is None:
        return True
    return all(_crc(file, place.last) == place.crc for file in files if file.origin <= place.last < file.next_base)


def _read(file: LogFile, offset: int, count: int) -> bytes:
    """Read up to `count` bytes from this physical offset on."""
    with errors_named(file.path), open(file.path, "rb", buffering=0, opener=open_regular) as opened:
        return os.pread(opened.fileno(), count, offset - file.origin)
