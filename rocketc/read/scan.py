"""Scan and ScanReport: iterate over the messages of a log, or read them as Arrow columns, with filters."""

from __future__ import annotations

import datetime
import errno
import itertools
import os
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from rocketc._arguments import seconds_of, whole_number
from rocketc.config_fields import Size, size_of, unknown_keyword
from rocketc.errors import CorruptRecordError, DamageWarning, MissingTopicWarning, StoreIOError
from rocketc.files._mapped_file import MappedFile
from rocketc.files.paths import Log, LogFile, Paths, local_of, resolve, was_deleted
from rocketc.files.remote import Options, RemoteFile, RemotePath, is_url, shown
from rocketc.read import arrow_interop
from rocketc.read._arrow import Batch, Schema, stream_capsule
from rocketc.read._few_records import few_messages
from rocketc.read._filter import Filter
from rocketc.read._message import Message
from rocketc.read._reader import Reader
from rocketc.read._walk import Walker
from rocketc.rendering import HtmlRepr

if TYPE_CHECKING:
    import pyarrow
    from typing_extensions import Buffer

Topics = str | re.Pattern[str] | Iterable[str | re.Pattern[str]]
Texts = str | Iterable[str]
When = int | datetime.datetime
Offsets = Mapping[str, Mapping[int | None, tuple[int | None, int | None]]]
Errors = Literal["raise", "skip", "report"]
Crc = Literal["none", "body", "full"]
Unreadable = Literal["raise", "skip"]

INT64 = (-(1 << 63), (1 << 63) - 1)
_CRC = {"none": 0, "body": 1, "full": 2}
MISSING_FILE = "missing_file"  # the reason of a range of the log whose file was lost
# The reason of a file that can't be opened, by errno. Other errors do not depend on the file, or it was just deleted.
UNREADABLE = {errno.EACCES: "no_permission", errno.EPERM: "no_permission", errno.EIO: "unreadable"}
UNREADABLE_REASONS = frozenset(UNREADABLE.values())


@dataclass(frozen=True)
class Damage:
    """Bytes that could not be read as records.

    start, stop  physical offsets, half open
    reason       the first error in the range, one of the names in docs/damage.md
    """

    file: str | None
    start: int
    stop: int
    reason: str

    def __str__(self) -> str:
        where = f"{self.file}: " if self.file else ""
        return f"{where}{self.stop - self.start} bytes lost at physical offset {self.start}: {self.reason}"


def torn_tail(damage: Sequence[Damage], end: int | None) -> Damage | None:
    """Return the damage at the end of the bytes read, left by a killed writer or being written now; otherwise None.

    damage  all damage found, in the order of the log
    end     physical offset where reading ended

    >>> torn_tail([Damage(None, 0, 10, "zeroed"), Damage(None, 100, 120, "truncated")], end=120)
    Damage(file=None, start=100, stop=120, reason='truncated')
    >>> torn_tail([Damage(None, 0, 10, "zeroed")], end=120)
    """
    last = damage[-1] if damage else None
    return last if last is not None and last.stop == end and last.reason != MISSING_FILE else None


def joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join the ranges that follow one another; they are in order.

    >>> joined([(0, 10), (10, 20), (30, 40)])
    [(0, 20), (30, 40)]
    """
    out: list[tuple[int, int]] = []
    for start, stop in ranges:
        if out and out[-1][1] == start:
            start = out.pop()[0]
        out.append((start, stop))
    return out


@dataclass
class ScanReport(HtmlRepr):
    """Counts and damage of the latest pass over a scan, up to its current position.

    records  messages returned
    bytes    bytes read
    blanks   blank records (one at the end of each full file)
    files    files opened
    damage   damaged ranges that were skipped (errors="skip" or "report"), also those of missing files
    missing  ranges of physical offsets between two files that none of the files read contains, in the whole log
    end      physical offset of the end of the last byte read; None if nothing was read
    deleted  ranges of physical offsets in files that the store's owner deleted after they were listed, and before they
             were read; not an error. If the path was a Log or LogFile, such a file is a StoreIOError
    """

    records: int = 0
    bytes: int = 0
    blanks: int = 0
    files: int = 0
    damage: list[Damage] = field(default_factory=list)
    missing: list[tuple[int, int]] = field(default_factory=list)
    end: int | None = None
    deleted: list[tuple[int, int]] = field(default_factory=list)

    @classmethod
    def total(cls, reports: Iterable[ScanReport]) -> ScanReport:
        """Add up the reports of several passes; those of the files of a log must be in order.

        >>> ScanReport.total([ScanReport(records=2, end=200), ScanReport(records=1, end=300)])
        ScanReport(records=3, bytes=0, blanks=0, files=0, damage=[], missing=[], end=300, deleted=[])
        """
        out = cls()
        for one in reports:
            out.records += one.records
            out.bytes += one.bytes
            out.blanks += one.blanks
            out.files += one.files
            out.damage += one.damage
            out.missing += one.missing
            out.deleted = joined([*out.deleted, *one.deleted])
            out.end = out.end if one.end is None else one.end
        return out


@dataclass(frozen=True)
class _Reading:
    """The options of scan() except the filter."""

    start: int | None = None
    stop: int | None = None
    columns: Sequence[str] | None = None
    where: Callable[[Message], bool] | None = None
    errors: Errors = "raise"
    crc: Crc = "body"
    decompress: bool = True
    unwrap: bool = True
    batch_bytes: int = 16 << 20
    max_decompressed: int = 64 << 20
    storage: Options | None = field(default=None, repr=False)
    partial: bool = False
    unreadable: Unreadable = "raise"

    @property
    def is_narrow(self) -> bool:
        """Whether these options leave out messages."""
        return self.start is not None or self.stop is not None or self.where is not None

    def __post_init__(self) -> None:
        if self.errors not in ("raise", "skip", "report"):
            raise ValueError(f"errors={self.errors!r}: must be 'raise', 'skip' or 'report'")
        if self.crc not in _CRC:
            raise ValueError(f"crc={self.crc!r}: must be 'none', 'body' or 'full'")
        if self.unreadable not in ("raise", "skip"):
            raise ValueError(f"unreadable={self.unreadable!r}: must be 'raise' or 'skip'")
        for name, value in (("start", self.start), ("stop", self.stop)):
            if not (value is None or hasattr(value, "__index__")):  # any int: a range may end outside the log
                raise TypeError(f"{name}: expected int, got {type(value).__name__}")


_ADVICE_PARTIAL = (
    "restore the file; partial=True reads the files that are there, errors='skip' or 'report' lists the range"
)

# Shared by all calls of decode() with default options; never modified.
_PLAIN = _Reading()
_NO_FILTER = Filter()
_USUAL = (_PLAIN.errors, _PLAIN.crc, _PLAIN.batch_bytes, _PLAIN.max_decompressed)


class ScanRun:
    """One pass over the sources of a scan: opens them one after the other and counts what it reads."""

    def __init__(
        self,
        scan: Scan,
        columns: Sequence[str] | None,
        follow: float | None = None,
        idle: Callable[[], None] | None = None,
        body: bool = True,
    ) -> None:
        self._scan = scan
        self._follow = follow
        self._idle = idle
        self._walker: Walker | None = None
        self._noted = 0
        self._lost_to = 0  # physical offset up to which lost files of the current log are reported
        self._skipped: LogFile | None = None  # the latest file that was deleted before it was read
        self._report = ScanReport(missing=[gap for log in scan.logs for gap in log.missing])
        reading = scan._reading
        self.reader = Reader(
            self._walkers(),
            scan._filter,
            columns=columns,
            where=reading.where,
            decompress=reading.decompress and (body or reading.where is not None),
            unwrap=reading.unwrap,
            max_decompressed=reading.max_decompressed,
            batch_bytes=reading.batch_bytes,
        )

    def _walkers(self) -> Iterator[Walker]:
        scan = self._scan
        if scan._buffer is not None:
            yield self._open(scan._buffer, scan._base, 0, True, scan.path)
        for log in scan.logs:
            self._lost_to = 0
            if self._follow is not None:
                yield from self._following(log)
                continue
            for file in self._files(log):
                if scan._is_outside(file):
                    continue
                self._pass_lost(log, file.begin)
                try:
                    walker = self._open(None, file.base, file.limit, file.last, part=file)
                except StoreIOError as error:
                    if not self._may_skip(file):
                        self._pass_unreadable(file, error)
                    continue
                yield walker
            self._pass_lost(log, None)
        self._close()

    def _pass_lost(self, log: Log, upto: int | None) -> None:
        """Report the lost files before a physical offset that are not reported yet; None: all of the log."""
        for start, stop in self._scan._lost(log):
            if self._lost_to <= start and (upto is None or stop <= upto):
                self._lost_to = stop
                self._lose(Damage(log.lost_name(start), start, stop, MISSING_FILE), _ADVICE_PARTIAL)

    def _pass_unreadable(self, file: LogFile, error: StoreIOError) -> None:
        """Report a local file that can't be opened, or raise the error."""
        reading = self._scan._reading
        reason = UNREADABLE.get(error.errno or 0)
        if reading.unreadable == "raise" or reading.errors == "raise" or reason is None or is_url(file.path):
            raise error
        start = file.begin if reading.start is None else max(file.begin, reading.start)
        end = min(file.end, reading.stop) if reading.stop is not None else file.end
        self._lose(Damage(file.path, start, end, reason), "")

    def _lose(self, damage: Damage, advice: str) -> None:
        """Report damage between two walkers as the scan's `errors` says."""
        self._close()
        if self._scan._reading.errors == "raise":
            raise CorruptRecordError(damage.file, damage.start, damage.reason, advice)
        self._report.damage.append(damage)
        if self._scan._reading.errors == "report":
            warnings.warn(str(damage), DamageWarning, stacklevel=4)

    def _files(self, log: Log) -> Iterator[LogFile]:
        """Yield the files of a log. If the last one was deleted before it was read, list and yield later ones."""
        scan, files = self._scan, log.files
        while files:
            yield from files
            last = files[-1]
            if last is not self._skipped or scan._listed is None or len(scan.logs) != 1:
                return
            later = (file for log in resolve(scan._listed, scan._reading.storage) for file in log.files)
            files = tuple(file for file in later if file.base is not None and file.base >= last.next_base)

    def _following(self, log: Log) -> Iterator[Walker]:
        """Yield a walker for each file of a growing log, without end or up to the stop of the scan."""
        position: int | None = None
        stop = self._scan._reading.stop
        while stop is None or position is None or position < stop:
            waiting = True
            for file in log.files:
                if self._scan._is_outside(file) or (
                    position is not None and file.base is not None and file.base + file.size <= position
                ):
                    continue
                self._pass_lost(log, file.begin)
                try:
                    source = MappedFile(file.path)
                except StoreIOError:
                    if not self._may_skip(file):
                        raise
                    continue
                walker = self._open(source, file.base, file.limit, file.last, file.path, position)
                yield walker
                while not walker.done and source.size_now() <= source.size:
                    self._wait()
                    yield walker
                waiting = walker.position == position
                position = walker.position
            if waiting:
                self._wait()
            [log] = resolve(self._scan.path)

    def _may_skip(self, file: LogFile) -> bool:
        """Whether a file could not be opened because the store's owner has deleted it; then note this in the report."""
        if isinstance(self._scan.path, (Log, LogFile)) or not was_deleted(file.path):
            return False
        self._report.deleted = joined([*self._report.deleted, (file.origin, file.next_base)])
        self._skipped = file
        return True

    def _wait(self) -> None:
        self.note()
        if self._idle is not None:
            self._idle()
        time.sleep(self._follow or 0)

    def _open(
        self,
        source: Any,
        base: int | None,
        limit: int,
        last: bool,
        path: str | None = None,
        position: int | None = None,
        part: LogFile | None = None,
    ) -> Walker:
        self._close()
        reading = self._scan._reading
        starts = [reading.start if position is None else position, None if part is None else part.start]
        stops = [reading.stop, None if part is None else part.stop]
        start = max((start for start in starts if start is not None), default=None)
        stop = min((stop for stop in stops if stop is not None), default=None)
        how: dict[str, Any] = {
            "limit": limit,
            "start": start,
            "stop": stop,
            "search": part is not None and (part.start, part.stop) != (None, None),
            "exact": part is not None and part.exact and start == part.start,
            "exact_stop": None if part is None else part.exact_stop,
            "crc": _CRC[reading.crc],
            "errors": reading.errors,
            "last": last,
            "follow": self._follow is not None,
        }
        if part is None:
            self._walker = Walker(source, base, self._scan._filter, file=path, **how)
        else:
            self._walker = open_walker(part, self._scan._filter, reading.storage, **how)
        self._report.files += 1
        return self._walker

    def _close(self) -> None:
        """Add the counts of the current walker to the report."""
        self.note()
        if self._walker is not None:
            self._report = self.report()
            self._walker = None
            self._noted = 0

    def note(self) -> None:
        """Issue a DamageWarning for each new damaged range, if errors is "report"."""
        if self._walker is None or self._scan._reading.errors != "report":
            return
        for start, stop, reason in self._walker.damage[self._noted :]:
            warnings.warn(str(Damage(self._walker.file, start, stop, reason)), DamageWarning, stacklevel=4)
        self._noted = len(self._walker.damage)

    def report(self) -> ScanReport:
        """Return the report including the current walker."""
        done, walker = self._report, self._walker
        out = ScanReport(
            self.reader.records, done.bytes, done.blanks, done.files, list(done.damage), list(done.missing), done.end,
            list(done.deleted),
        )  # fmt: skip
        if walker is not None:
            out.bytes += walker.walked
            out.blanks += walker.blanks
            out.damage += [Damage(walker.file, *entry) for entry in walker.damage]
            out.end = walker.position
        return out

    def blocks(self) -> Iterator[list[Message]]:
        for block in self.reader:
            self.note()
            yield block
        self.note()
        self._warn_of_topics()

    def batches(self) -> Iterator[Batch]:
        while (batch := self.reader.next_batch()) is not None:
            self.note()
            yield batch
        self.note()
        self._warn_of_topics()

    def _warn_of_topics(self) -> None:
        """Issue a MissingTopicWarning if this pass found nothing because no store has the topics of the scan."""
        if self.reader.records == 0 and self._follow is None and (text := self._scan._missing_topics()):
            warnings.warn(text, MissingTopicWarning, stacklevel=3)


class Scan(HtmlRepr):
    """The messages of commit log files, read on demand. Created by rocketc.scan() and rocketc.decode().

    Iteration returns Message objects. batches(), to_arrow() and all consumers of the Arrow PyCapsule protocol (DuckDB,
    Polars, pandas, pyarrow, nanoarrow) get columns. Each pass starts from the beginning, and `report` describes the
    latest pass. Use a pass in one thread only. Several passes, also of one Scan, may run in several threads, and
    columns are decoded without the GIL.

    >>> import rocketc
    >>> scan = rocketc.decode(rocketc.encode("orders", b"hi") + b"no record", errors="skip")
    >>> [m.body for m in scan]
    [b'hi']
    >>> scan.report.damage
    [Damage(file=None, start=99, stop=108, reason='bad_magic')]

    path  the path given to scan(), or the buffer's name given to decode(), or None
    logs  the logs that are read; empty for a buffer
    """

    # Class attributes, so that decode() of a short buffer with default options creates as little as possible.
    _reading = _PLAIN
    _filter = _NO_FILTER
    _asked: Mapping[str, object] = {}
    _column_names: list[str] | None = None
    _pass: ScanRun | list[Message] | None = None

    def __init__(
        self,
        logs: list[Log],
        path: Paths | LogFile | Log | None,
        buffer: Any,
        base: int | None,
        filter: Filter,
        reading: _Reading,
        asked: Mapping[str, object],
    ) -> None:
        self.logs = logs
        self.path: Any = path
        self._listed: Any = None if isinstance(path, (Log, LogFile)) else path  # is listed again if its files are gone
        self._buffer = buffer
        self._base = base
        self._filter = filter
        self._reading = reading
        self._asked = {name: value for name, value in asked.items() if value is not None}
        self._column_names = Schema(reading.columns).names

    @property
    def column_names(self) -> list[str]:
        """The columns of batches, in order."""
        if self._column_names is None:
            self._column_names = Schema(self._reading.columns).names
        return self._column_names

    def __repr__(self) -> str:
        texts = [*self._source(), *(f"{name}={text}" for name, text in self._options())]
        return f"<rocketc.Scan of {', '.join(texts)}>"

    def describe(self) -> list[tuple[str, str]]:
        """Return names and values as text: `log` and `size`, then the options that differ from their defaults.

        >>> import rocketc
        >>> rocketc.decode(b"", topics="orders").describe()
        [('log', 'a buffer'), ('size', '0 bytes'), ('topics', "'orders'")]
        """
        log, size = self._source()
        return [("log", log), ("size", size), *self._options()]

    def _source(self) -> tuple[str, str]:
        if self._buffer is not None:
            return "a buffer" if self.path is None else str(self.path), f"{self.bytes} bytes"
        names = [file.name for log in self.logs for file in log.files]
        one = isinstance(self.path, (str, os.PathLike))
        log = shown(os.fspath(self.path)) if one else names[0] if len(names) == 1 else f"{len(names)} files"
        return log, f"{self.bytes} bytes in {len(names)} file{'s' * (len(names) != 1)}"

    def _options(self) -> Iterator[tuple[str, str]]:
        """Yield the options of scan() that differ from their defaults, with their values as text of limited length."""
        usual = _Reading()
        asked = {name: value for name, value in vars(self._reading).items() if value != getattr(usual, name)}
        for name, value in {**self._asked, **asked}.items():
            if name != "storage":
                text = repr(value)
                yield name, text if len(text) <= 80 else f"{text[:76]} ..."

    def _is_outside(self, file: LogFile) -> bool:
        """Whether no record of the file can begin in [start, stop)."""
        if file.base is None:
            return False
        start, stop = self._reading.start, self._reading.stop
        before = start is not None and file.next_base <= start
        return before or (stop is not None and file.base >= stop)

    def _lost(self, log: Log) -> Iterator[tuple[int, int]]:
        """Yield the ranges in [start, stop) whose files were lost, unless the caller reads a part of the log."""
        return log.lost_between(self._reading.start, self._reading.stop) if not self._reading.partial else iter(())

    def _missing_topics(self) -> str | None:
        """Return a line about the topics of this scan if no store has any of them, or None.

        A scan of files, such as one that by_file() returns, is a part of a larger one: other files may have them.
        """
        asked: Any = self._asked.get("topics")
        topics = [asked] if isinstance(asked, (str, re.Pattern)) else list(asked or ())
        given = [self.path] if isinstance(self.path, (str, os.PathLike)) else self.path
        if not topics or self._buffer is not None or not isinstance(given, list):
            return None
        paths = [local_of(os.fspath(path)) for path in given]
        if any(is_url(path) or not os.path.isdir(path) for path in paths):
            return None
        from rocketc.read.topics import known_topics, missing_text, not_among  # late: keeps the start of commands fast

        known = known_topics(paths)
        if known is None and (len(self._asked) > 1 or self._reading.is_narrow or self.bytes == 0):
            return None  # the folders are not a store, and the other options may have left out the messages
        missing = not_among(topics, known or ())
        where = "this store" if len(paths) == 1 else "these stores"
        return missing_text(missing, known or (), where) if len(missing) == len(topics) else None

    def run(self, columns: Sequence[str] | None, body: bool = True) -> ScanRun:
        """Start a pass: its blocks() returns messages (columns: []), its batches() returns batches of these columns.

        body  False: the bodies of the messages are not used, and are not decompressed

        >>> import rocketc
        >>> [len(block) for block in rocketc.decode(rocketc.encode("t", b"a")).run([]).blocks()]
        [1]
        """
        self._pass = run = ScanRun(self, columns, body=body)
        return run

    def __iter__(self) -> Iterator[Message]:
        """Iterate over the messages in log order.

        >>> import rocketc
        >>> two = rocketc.encode("t", b"a") + rocketc.encode("t", b"b", phy_offset=93)
        >>> [m.body for m in rocketc.decode(two)]
        [b'a', b'b']
        """
        if self._reading is _PLAIN:
            few = few_messages(self._buffer, self._base, self.path)
            if few is not None:
                self._pass = few
                return iter(few)
        return itertools.chain.from_iterable(self.run([]).blocks())

    def follow(self, poll: float = 0.1, idle: Callable[[], None] | None = None) -> Iterator[Message]:
        """Iterate over the messages in the log and all later ones, without end or up to the `stop` of the scan.

        poll  seconds between two checks for new messages
        idle  called before each wait; an exception that it raises ends the iteration

        Requires one log whose files are named by their offset. Raises ValueError for a buffer or several logs.

        >>> import pathlib, tempfile, rocketc
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "00000000000000000000").write_bytes(rocketc.encode("t", b"first") + bytes(100))
        >>> next(rocketc.scan(folder).follow()).body
        b'first'
        """
        poll = seconds_of("poll", poll, least=0)
        if len(self.logs) != 1:
            raise ValueError("follow() needs one commit log")
        if any(is_url(file.path) for file in self.logs[0].files):
            raise ValueError("follow() reads local files only, not URLs")
        self._pass = run = ScanRun(self, [], follow=poll, idle=idle)
        return itertools.chain.from_iterable(run.blocks())

    def batches(self) -> Iterator[pyarrow.RecordBatch]:
        """Read batches of about batch_bytes as pyarrow.RecordBatch (extra `arrow`).

        >>> import rocketc
        >>> [batch.num_rows for batch in rocketc.decode(rocketc.encode("t", b"a")).batches()]
        [1]
        """
        return arrow_interop.record_batches(self.run(self.column_names).batches())

    def to_arrow(self) -> pyarrow.Table:
        """Read everything into one pyarrow.Table (extra `arrow`).

        >>> import rocketc
        >>> rocketc.decode(rocketc.encode("t", b"a"), columns=["topic", "body"]).to_arrow().to_pylist()
        [{'topic': 't', 'body': b'a'}]
        """
        return arrow_interop.table(self.run(self.column_names).batches(), self.column_names)

    def count(self) -> int:
        """Count the messages. They are checked as by iteration, but compressed bodies are not decompressed.

        >>> import rocketc
        >>> rocketc.decode(rocketc.encode("t", b"a")).count()
        1
        """
        run = self.run([])
        for _ in run.batches():
            pass
        return run.report().records

    def by_file(self) -> list[Scan]:
        """Return one scan per file, in log order. They can be read in parallel, and together they equal this scan.

        Each has its own report; ScanReport.total() adds them up.

        >>> import pathlib, tempfile, rocketc
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> for base in (0, 100):
        ...     record = rocketc.encode("t", b"123456789", phy_offset=base)  # 100 bytes
        ...     _ = (folder / f"{base:020d}").write_bytes(record)
        >>> [[m.phy_offset for m in part] for part in rocketc.scan(folder).by_file()]
        [[0], [100]]
        """
        if self._buffer is not None:
            return [self]
        out = []
        for log in self.logs:
            lost = list(log.lost)
            for file in log.files:
                if not self._is_outside(file):
                    missing = tuple(gap for gap in log.missing if gap[0] == file.next_base)
                    mine = tuple(gap for gap in lost if gap[0] == file.next_base or gap[1] == file.origin)
                    lost = [gap for gap in lost if gap not in mine]
                    one = self._part(replace(log, files=(file,), missing=missing, lost=mine), file.path)
                    one._listed = self._listed if len(self.logs) == 1 and file is log.files[-1] else None
                    out.append(one)
            if len(lost) == len(log.lost) and any(self._lost(log)):  # all of [start, stop) is in a lost file
                out.append(self._part(replace(log, files=(), missing=()), self.path))
        return out

    def _part(self, log: Log, path: Any) -> Scan:
        return Scan([log], path, None, None, self._filter, self._reading, self._asked)

    @property
    def bytes(self) -> int:
        """Number of bytes that a pass reads: the size of the buffer, or of all files together.

        >>> import rocketc
        >>> rocketc.decode(bytes(100)).bytes
        100
        """
        if self._buffer is not None:
            return len(self._buffer)
        return sum(file.size for log in self.logs for file in log.files if not self._is_outside(file))

    @property
    def report(self) -> ScanReport:
        """The report of the latest pass so far."""
        if isinstance(self._pass, list):
            size = len(self._buffer)
            return ScanReport(records=len(self._pass), bytes=size, files=1, end=self._pass[0].phy_offset + size)
        return self._pass.report() if self._pass is not None else ScanReport()

    def __reduce__(self) -> Any:
        """Pickle the scan: its files and options, or the bytes of its buffer; not the report of a pass.

        A scan in another process reads the same files, which must be there. `where` must be a function of a module, and
        the values of storage_options, secrets too, are in the pickle.

        >>> import pickle, rocketc
        >>> [m.body for m in pickle.loads(pickle.dumps(rocketc.decode(rocketc.encode("t", b"a"), topics="t")))]
        [b'a']
        """
        buffer = self._buffer if self._buffer is None else bytes(self._buffer)
        return _scan_of, (self.logs, self.path, buffer, self._base, self._reading, dict(self._asked))

    def __array__(self, *_args: Any, **_kwargs: Any) -> Any:
        """Refuse to become an array of Message objects: pandas.DataFrame(scan) asks for one."""
        raise TypeError(
            "a Scan is not an array; for a pandas.DataFrame call scan.to_arrow().to_pandas(), or "
            "pandas.DataFrame.from_arrow(scan) with pandas 3"
        )

    def __arrow_c_schema__(self) -> object:
        return Schema(self.column_names).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Start a new pass as an Arrow stream.

        Raises ValueError if the requested schema has other columns; its types are ignored.
        """
        return stream_capsule(self.run(self.column_names).batches(), self.column_names, requested_schema)


def _scan_of(
    logs: list[Log], path: Any, buffer: bytes | None, base: int | None, reading: _Reading, asked: dict[str, Any]
) -> Scan:
    """Return an unpickled scan."""
    return Scan(logs, path, buffer, base, Filter(**asked, unwrap=reading.unwrap), reading, asked)


def open_walker(file: LogFile, filter: Filter, storage: Options | None = None, **how: Any) -> Walker:
    """Return a walker over a file that resolve() found, local or remote.

    storage  options of the file systems of URLs
    how      arguments of Walker except source, base, limit, last and file

    Raises StoreIOError.

    >>> open_walker(LogFile("nowhere", 0, 100, 100, True), Filter())
    Traceback (most recent call last):
        ...
    rocketc.errors.StoreIOError: [Errno 2] No such file or directory: 'nowhere'
    """
    how |= {"limit": file.limit, "last": file.last}
    if not is_url(file.path):
        return Walker(MappedFile(file.path), file.base, filter, file=file.path, **how)
    stop = how.get("stop")
    behind = None if stop is None or file.base is None else stop - file.base
    source = RemoteFile(RemotePath(file.path, storage), file.size, behind)
    return Walker(source.view, file.base, filter, file=shown(file.path), fetch=source.fetch, **how)


_ASKED = ("topics", "queues", "tags", "keys", "begin", "end", "offsets")  # arguments of scan() for the filter


def _asked_for(logs: list[Log], path: Any, buffer: Any, base: int | None, reading: _Reading, *asked: Any) -> Scan:
    """Create a scan; asked are the values of _ASKED."""
    named = dict(zip(_ASKED, asked, strict=True))
    return Scan(logs, path, buffer, base, Filter(**named, unwrap=reading.unwrap), reading, named)


def scan(
    path: Paths | LogFile | Log,
    *,
    topics: Topics | None = None,
    queues: int | Iterable[int] | None = None,
    tags: Texts | None = None,
    keys: Texts | None = None,
    begin: When | None = None,
    end: When | None = None,
    offsets: Offsets | None = None,
    start: int | None = None,
    stop: int | None = None,
    columns: Sequence[str] | None = None,
    where: Callable[[Message], bool] | None = None,
    errors: Errors = "raise",
    crc: Crc = "body",
    decompress: bool = True,
    unwrap: bool = True,
    batch_bytes: Size = 16 << 20,
    max_decompressed: Size = 64 << 20,
    storage_options: Options | None = None,
    partial: bool = False,
    unreadable: Unreadable = "raise",
    **unknown: NoReturn,
) -> Scan:
    """Read the messages of a RocketMQ commit log, without a broker. The log may be in use, copied or damaged.

    path        store root, commit log folder, file, glob, or a list of them. URLs need the extra `remote`: s3://,
                hdfs://, gs://, http://, and all others that fsspec supports
    topics      names, and compiled patterns that match the whole topic. If the scan finds no message, and the store
                does not have these topics, a MissingTopicWarning names the most similar one
    queues      queue ids
    tags        the message's TAGS is one of them; "A||B" is both, "*" is all
    keys        one of them is among the blank-separated KEYS, or is UNIQ_KEY
    begin, end  store timestamps, [begin, end): ms since the epoch, or aware datetimes
    offsets     {topic: {queue id: (begin, end)}}: queue offsets, [begin, end), None for no bound. Of a topic listed
                here only the listed queues pass; None as queue id means all other queues
    start, stop physical offsets, [start, stop): records whose first byte is in this range
    columns     names and order of the Arrow columns; None: all
    where       a predicate of Message, applied last
    errors      "raise": raise CorruptRecordError at the first damage; "skip": continue at the next record; "report":
                continue and issue a DamageWarning. With both, `report.damage` lists the lost ranges
    crc         "none"; "body": check BODYCRC of each record returned; "full": check the property CRC too, if there is
                one
    decompress  decompress zlib, LZ4 and zstd bodies, each up to max_decompressed bytes. LZ4 and zstd need the extra
                `compression`; without it, such a message is damage (`missing_codec`), and "raise" raises
                MissingCodecError
    unwrap      return the messages of an inner batch instead of the batch
    batch_bytes approximate bytes of the stored records in an Arrow batch; this and max_decompressed may be text such as
                "64MiB"
    storage_options  options for fsspec's file systems of URLs: {"key": ..., "secret": ...}; never shown
    partial     the path has only a part of the log: do not report a file that is missing between two others.
                Without it, such a file in [start, stop) is damage (`missing_file`). Files before the first one were
                deleted because they were old, and files that the path leaves out are not read: neither is damage
    unreadable  of a file without permission or with a disk error: "raise": raise StoreIOError; "skip": the file is
                damage (`no_permission`, `unreadable`), unless errors is "raise"

    Raises StoreIOError at once for a path that cannot be read, ValueError and TypeError for invalid options.

    >>> import pathlib, tempfile, rocketc
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> record = rocketc.encode("orders", b"hi", properties={"TAGS": "A"})
    >>> _ = (folder / "00000000000000000000").write_bytes(record)
    >>> [m.body for m in rocketc.scan(folder, topics="orders", tags="A")]
    [b'hi']
    """
    if unknown:
        raise unknown_keyword(scan, unknown)
    if not isinstance(path, (str, os.PathLike, LogFile, Log)):
        path = list(path)
    sizes = size_of("batch_bytes", batch_bytes, 1), size_of("max_decompressed", max_decompressed)
    reading = _Reading(
        start, stop, columns, where, errors, crc, decompress, unwrap, *sizes, storage_options, partial, unreadable
    )
    logs = resolve(path, storage_options)
    return _asked_for(logs, path, None, None, reading, topics, queues, tags, keys, begin, end, offsets)


def decode(
    buffer: Buffer,
    base_offset: int | None = 0,
    *,
    topics: Topics | None = None,
    queues: int | Iterable[int] | None = None,
    tags: Texts | None = None,
    keys: Texts | None = None,
    begin: When | None = None,
    end: When | None = None,
    offsets: Offsets | None = None,
    start: int | None = None,
    stop: int | None = None,
    columns: Sequence[str] | None = None,
    where: Callable[[Message], bool] | None = None,
    errors: Errors = "raise",
    crc: Crc = "body",
    decompress: bool = True,
    unwrap: bool = True,
    batch_bytes: Size = 16 << 20,
    max_decompressed: Size = 64 << 20,
    file: str | None = None,
    **unknown: NoReturn,
) -> Scan:
    """Read the messages in a buffer: bytes, memoryview, mmap, numpy array. All other arguments are those of scan().

    buffer       contiguous; kept, not copied; zeros end it
    base_offset  physical offset of its first byte; None: read it from the first record
    file         name of the buffer in `file`, in errors and in the report

    >>> import rocketc
    >>> rocketc.decode(rocketc.encode("t", b"a", phy_offset=4096), base_offset=None).count()
    1
    """
    if unknown:
        raise unknown_keyword(decode, unknown)
    if base_offset is not None and base_offset != 0:
        base_offset = whole_number("base_offset", base_offset, *INT64)
    view = buffer if type(buffer) is bytes else memoryview(buffer).cast("B")
    if (
        (topics is None and queues is None and tags is None and keys is None and begin is None and end is None)
        and (offsets is None and start is None and stop is None and columns is None and where is None)
        and decompress is True
        and unwrap is True
        and (errors, crc, batch_bytes, max_decompressed) == _USUAL
    ):
        scan = Scan.__new__(Scan)
        scan.logs, scan.path, scan._buffer, scan._base = [], file, view, base_offset
        return scan
    sizes = size_of("batch_bytes", batch_bytes, 1), size_of("max_decompressed", max_decompressed)
    reading = _Reading(start, stop, columns, where, errors, crc, decompress, unwrap, *sizes)
    return _asked_for([], file, view, base_offset, reading, topics, queues, tags, keys, begin, end, offsets)
