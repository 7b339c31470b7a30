"""A commit log that grows while a stream reads it: where its whole records end, and whether any of it was lost."""

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
from rocketc.read.scan import scan
from rocketc.spark.partitions import is_outside

if TYPE_CHECKING:
    import pyarrow

VERSION = 1
_CHECKED = 88  # bytes of a record up to its body: its own offset, time and CRC among them
_LOOKS = 10
_PLACES = ["physicalOffset", "storeSize"]
Files = tuple[LogFile, ...]
Given = ParamSpec("Given")
Found = TypeVar("Found")


class DataLossError(RocketcError):
    """What a stream was to read is not there any more."""


@dataclass(frozen=True)
class LogPosition:
    """How far a stream has read: its offset in Spark's checkpoint.

    offset   physical offset of what comes next; None: there was no log yet
    initial  where the stream began
    last     where the last record before it begins (a blank one may follow), and
    crc      the CRC-32 of its first bytes: whether it is still there; None: the stream begins where it stands

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
        """Raises ValueError for what this version of rocketc did not write."""
        version = given.get("version")
        if isinstance(version, int) and version > VERSION:
            raise ValueError(
                f"rocketmq: the checkpoint holds an offset of version {version}, {dict(given)}; this rocketc knows "
                f"version {VERSION}: install the one that wrote it, or begin with a new checkpoint"
            )
        values = {field: given.get(name) for name, field in _JSON.items()}
        if version != VERSION or not all(value is None or type(value) is int for value in values.values()):
            raise ValueError(
                f"rocketmq: the checkpoint holds {dict(given)}, which is no offset of this source; it is another "
                "query's: begin with a new checkpoint"
            )
        return cls(**values)

    @property
    def begins(self) -> bool:
        """Whether the stream has read nothing yet."""
        return self.offset is None or self.offset == self.initial


_JSON = {"physicalOffset": "offset", "initialOffset": "initial", "lastRecord": "last", "lastCrc": "crc"}


def _retried(look: Callable[Given, Found]) -> Callable[Given, Found]:
    """A look that is taken anew if a file was deleted since it was listed, as a running store does with old ones."""

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
    """The log that a stream reads. Nothing stays open between two calls.

    paths         as in rocketc.scan(); a path that is not there yet is an empty log
    options       keyword arguments of rocketc.scan() for what is wanted
    fail_on_loss  data that is gone is DataLossError, otherwise a line on stderr
    """

    def __init__(self, paths: list[str], options: Mapping[str, Any], fail_on_loss: bool) -> None:
        self._paths = paths
        self._wanted: dict[str, Any] = {**options, "errors": "skip", "decompress": False}
        # A record that is being written has its header first: its body is checked even where no one else wants that.
        self._all: dict[str, Any] = {"errors": "skip", "decompress": False, "unwrap": False, "crc": "body"}
        if options.get("crc") == "full":
            self._all["crc"] = "full"
        self._fail_on_loss = fail_on_loss
        self._told: set[str] = set()
        self._known_end: LogPosition | None = None

    def files(self) -> Files:
        """The files there are up to the last one with data, in order."""
        try:
            logs = resolve(self._paths)
        except StoreIOError as error:
            if error.errno != errno.ENOENT:
                raise
            self._tell(f"{error.strerror}; the stream waits for it")
            return ()
        if len(logs) > 1:
            raise ValueError(f"rocketmq: {self._name}: {len(logs)} commit logs; a stream reads one, take one for each")
        for file in logs[0].files:
            if file.base is None:
                raise ValueError(f"rocketmq: {file.path}: a stream needs files that are named by their offset")
        return logs[0].files

    def begin(self) -> LogPosition:
        """In front of the first record."""
        files = self.files()
        return _at(files[0].origin) if files else LogPosition()

    @_retried
    def begin_at(self, time: int) -> LogPosition:
        """In front of a file before which there are only records stored before this time."""
        files = self.files()
        if not files:
            return LogPosition()
        later = itertools.dropwhile(lambda file: is_outside(file, time, None), files[:-1])
        return _at(next(later, files[-1]).origin)

    @_retried
    def end(self) -> LogPosition:
        """Behind the last whole record; in front of the first file if there is none."""
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
        """Behind a whole record: the end of a batch that begins at start. start itself if there is nothing new.

        upto         records from here on come later
        max_bytes    the batch ends with the record that holds its last byte
        max_files    files that it reads
        max_records  of those that the filters let through; a record with an inner batch counts as its messages, and is
                     not cut
        Limits let one record through at least. Raises DataLossError.
        """
        files = self.files()
        at, known = self._stand(files, start)
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
        """What a batch reads. Raises DataLossError."""
        if start.begins and end.initial is not None and start.offset != end.initial:
            start = _at(end.initial)  # it is the first batch once more; Spark does not keep where that began
        if end.offset is None or start.offset == end.offset:
            return []
        files = self.files()
        at, known = self._stand(files, start)
        if at >= end.offset:
            return []
        end_known = bool(files) and end.offset <= files[-1].next_base and _is_there(files, end)
        if not end_known:
            self._lose_range(at, end.offset, "the log was cut, or written anew, since the batch was planned")
        for gap_start, gap_stop in _gaps(files):
            if at < gap_stop and gap_start < end.offset:
                self._lose_range(max(at, gap_start), gap_stop, "a file is not there")
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
        """Behind the last whole record of those from `at` on, which begins one; None: there is none."""
        last, known = files[-1], self._known_end
        if known is not None and ((known.offset or 0) < at or not _is_there(files, known)):
            known = None
        if known is not None and known.offset is not None:
            at = known.offset
            if last.origin <= at <= last.next_base and not any(_read(last, at, 8)):
                return known  # nothing was written since
        self._known_end = self._last(files, at, None) or known
        return self._known_end

    def _last(self, files: Files, at: int, stop: int | None, known: bool = True) -> LogPosition | None:
        """Behind the last whole record of those that begin from `at` on, but before stop. None: there is none."""
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
        """Behind the record that holds the n-th message from `at` on; None: there are fewer before stop."""
        for file in _between(files, at, stop):
            for batch in scan(_part(file, at, known, stop), columns=_PLACES, **options).batches():
                if batch.num_rows >= count:
                    return _place(file, *_record(batch, count - 1))
                count -= batch.num_rows
        return None

    def _stand(self, files: Files, place: LogPosition) -> tuple[int, bool]:
        """Where the stream goes on, and whether a record begins there for sure. Raises DataLossError."""
        at = place.offset
        if not files:
            if place.last is not None:
                self._lose(f"the stream has read up to offset {at}, and there are no files any more")
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
                self._lose(f"the log ends at offset {back}, and the stream has read up to {at}: it was cut")
                return back, True
            self._lose(
                f"the log is not the one that the stream has read up to offset {at}: it was cut and written anew"
            )
            return at, False
        for start, stop in _gaps(files):
            if start <= at < stop:
                self._lose_range(at, stop, "a file is not there")
                return stop, True
        return at, True

    def _lose_range(self, start: int, stop: int, why: str) -> None:
        self._lose(f"physical offsets {start} to {stop} are lost: {why}")

    def _lose(self, what: str) -> None:
        if self._fail_on_loss:
            raise DataLossError(
                f"rocketmq: {self._name}: {what}; option failOnDataLoss=false goes on with what is there"
            )
        self._tell(what)

    def _tell(self, what: str) -> None:
        """Say it on stderr, once: Spark has it in the log of the driver."""
        if what not in self._told:
            self._told.add(what)
            print(f"rocketc: {self._name}: {what}", file=sys.stderr)

    @property
    def _name(self) -> str:
        return ", ".join(self._paths)


def _at(offset: int) -> LogPosition:
    return LogPosition(offset, offset)


def _between(files: Files, start: int, stop: int | None) -> Iterator[LogFile]:
    """The files that have any of these offsets."""
    return (file for file in files if start < file.next_base and (stop is None or file.origin < stop))


def _part(file: LogFile, start: int, known: bool, stop: int | None) -> LogFile:
    """What a file has between these offsets; known: a record begins at the first one for sure."""
    part = replace(file, stop=stop, exact_stop=stop)
    return replace(part, start=start, exact=known) if file.origin < start else part


def _gaps(files: Files) -> Iterator[tuple[int, int]]:
    """The offsets between files that have no file."""
    return ((one.next_base, other.origin) for one, other in itertools.pairwise(files) if one.next_base < other.origin)


def _record(batch: pyarrow.RecordBatch, row: int) -> tuple[int, int]:
    """Where a record begins, and its bytes; of columns _PLACES."""
    start, size = (column[row].as_py() for column in batch.columns)
    return start, size


def _place(file: LogFile, start: int, size: int, closed: bool = False) -> LogPosition:
    """Behind a record of a file, and behind the blank one that closes the file."""
    return LogPosition(file.next_base if closed else start + size, None, start, _crc(file, start))


def _crc(file: LogFile, record: int) -> int:
    return zlib.crc32(_read(file, record, _CHECKED))


def _is_there(files: Iterable[LogFile], place: LogPosition) -> bool:
    """Whether the last record that was read still stands where it stood; True if its file is gone, as files go."""
    if place.last is None:
        return True
    return all(_crc(file, place.last) == place.crc for file in files if file.origin <= place.last < file.next_base)


def _read(file: LogFile, offset: int, count: int) -> bytes:
    """Bytes from this physical offset on, as many as there are."""
    with errors_named(file.path), open(file.path, "rb", buffering=0) as opened:
        return os.pread(opened.fileno(), count, offset - file.origin)
