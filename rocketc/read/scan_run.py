"""ScanRun: one pass over the files of a scan, from their opening to the counts of the report."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from rocketc.errors import CorruptRecordError, DamageWarning, MissingTopicWarning, StoreIOError
from rocketc.files._mapped_file import MappedFile
from rocketc.files.paths import Log, LogFile, resolve, was_deleted
from rocketc.files.remote import Options, RemoteFile, RemotePath, is_url, shown
from rocketc.read._arrow import Batch
from rocketc.read._filter import Filter
from rocketc.read._message import Message
from rocketc.read._reader import Reader
from rocketc.read._walk import Walker
from rocketc.read.scan_options import CRC_CODES, Reading
from rocketc.read.scan_report import MISSING_FILE, UNREADABLE, Damage, ScanReport, joined

_ADVICE_PARTIAL = (
    "restore the file; partial=True reads the files that are there, errors='skip' or 'report' lists the range"
)


class Scanned(Protocol):
    """What a pass needs of its Scan."""

    logs: list[Log]
    path: Any
    _reading: Reading
    _filter: Filter
    _buffer: Any
    _base: int | None
    _listed: Any

    def _is_outside(self, file: LogFile) -> bool: ...

    def _lost(self, log: Log) -> Iterator[tuple[int, int]]: ...

    def _missing_topics(self) -> str | None: ...


class ScanRun:
    """One pass over the sources of a scan: opens them one after the other and counts what it reads."""

    def __init__(
        self,
        scan: Scanned,
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
            "crc": CRC_CODES[reading.crc],
            "errors": reading.errors,
            "last": last,
            "follow": self._follow is not None,
            "around": reading.around and start == reading.start,
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
