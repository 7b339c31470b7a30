"""Check a store: each record of its commit log, and the relations between records. The store is only read."""

from __future__ import annotations

import bisect
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from rocketc._arguments import whole_number
from rocketc.errors import RocketcError
from rocketc.files.paths import Log, LogFile, Paths, base_of, resolve, was_deleted
from rocketc.files.sparse import holes_of
from rocketc.jobs.other_files import OtherFile, check_other_files, unreadable_texts
from rocketc.jobs.verify_derived import Comparison, DerivedReport, times_of_checkpoint
from rocketc.read._filter import Filter
from rocketc.read._log_audit import Audit
from rocketc.read._walk import Walker
from rocketc.read.parallel import processors
from rocketc.read.scan_report import Damage, joined, torn_tail
from rocketc.read.scan_run import open_walker
from rocketc.rendering import HtmlRepr

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rocketc.derived._derived_audit import DerivedAudit

_CRC_FULL = 2
_QUEUES_MAX = 1 << 21  # these limits bound the memory that a malicious log can use
_GAPS_MAX = 1 << 20  # of all queues together
_UPDATE_EVERY = 0.1  # seconds
_LISTINGS = 10  # attempts, if the owner of a store deletes all files that were listed

End = Literal["closed", "open", "torn", "ahead", "unreadable", "deleted"]


@dataclass
class FileReport:
    """What was found in one file of a commit log.

    phy_offset          of its first byte
    bytes               bytes checked: everything except the free space after the last record
    messages            more than records if there are inner batches, which are one record each
    first_offset, last_offset   physical offsets of the first and the last record; None if there is none
    first_store_timestamp, last_store_timestamp     of the same records; ms
    backwards           records with an earlier store timestamp than the record before: a clock was set back
    backwards_at        physical offset of the first of these
    backwards_ms        the largest such step in ms
    holes               ranges of physical offsets that were never written, or were punched out, with data after them;
                        they read as zeros, which is damage only if `damage` says so
    end                 "closed": the file is full; "open": it has room for more records; "torn": damage up to the end
                        of the log, left by a writer that was killed or lost power; "ahead": created in advance, empty;
                        "unreadable": see error; "deleted": the store's owner deleted it before it was read
    """

    file: str
    phy_offset: int
    size: int
    bytes: int = 0
    records: int = 0
    messages: int = 0
    blanks: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    first_store_timestamp: int | None = None
    last_store_timestamp: int | None = None
    backwards: int = 0
    backwards_at: int | None = None
    backwards_ms: int = 0
    holes: list[tuple[int, int]] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    end: End = "closed"
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict without the fields that are `None`.

        >>> FileReport("00000000000000000000", 0, 4096, end="ahead").to_dict()["physicalOffset"]
        0
        """
        out: dict[str, Any] = {
            "file": self.file, "physicalOffset": self.phy_offset, "size": self.size, "bytes": self.bytes,
            "records": self.records, "messages": self.messages, "blanks": self.blanks,
            "firstPhysicalOffset": self.first_offset, "lastPhysicalOffset": self.last_offset,
            "firstStoreTimestamp": self.first_store_timestamp, "lastStoreTimestamp": self.last_store_timestamp,
            "end": self.end, "error": self.error,
        }  # fmt: skip
        if self.backwards:
            out["backwards"] = {
                "records": self.backwards, "physicalOffset": self.backwards_at, "largestMs": self.backwards_ms
            }  # fmt: skip
        if self.holes:
            out["holes"] = [{"start": start, "stop": stop} for start, stop in self.holes]
        if self.damage:
            out["damage"] = [{"start": d.start, "stop": d.stop, "reason": d.reason} for d in self.damage]
        return {name: value for name, value in out.items() if value is not None}


@dataclass(frozen=True)
class QueueRange:
    """Queue offsets of one queue that are missing in the log, or that several records have.

    start, stop  queue offsets, half open
    file, phy_offset  of the first record after the gap, or of the first repeated record
    """

    topic: str
    queue_id: int
    start: int
    stop: int
    file: str
    phy_offset: int

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict.

        >>> QueueRange("orders", 0, 17, 19, "00000000000000000000", 4096).to_dict()["queueId"]
        0
        """
        return {
            "topic": self.topic, "queueId": self.queue_id, "start": self.start, "stop": self.stop, "file": self.file,
            "physicalOffset": self.phy_offset,
        }  # fmt: skip


@dataclass
class VerifyReport(HtmlRepr):
    """What verify() found.

    files               all files, in the order of the log
    missing             ranges of physical offsets between files for which there is no file
    queues              number of queues with messages
    missing_offsets     queue offsets between others that no record has: their messages are lost
    duplicate_offsets   queue offsets that more than one record has: a broker assigned them twice, or a topic was
                        deleted and created again
    incomplete          whether not all queue offsets were checked because of too many errors or queues
    derived             what was found in the consume queues, the index and the checkpoint; None: the path is not a
                        store's root, or the log is empty
    others              the other files of a store's root: checkpoint, tables, markers, and files that are not checked
    """

    files: list[FileReport] = field(default_factory=list)
    missing: list[tuple[int, int]] = field(default_factory=list)
    queues: int = 0
    missing_offsets: list[QueueRange] = field(default_factory=list)
    duplicate_offsets: list[QueueRange] = field(default_factory=list)
    incomplete: bool = False
    derived: DerivedReport | None = None
    others: list[OtherFile] = field(default_factory=list)

    @property
    def records(self) -> int:
        return sum(file.records for file in self.files)

    @property
    def messages(self) -> int:
        return sum(file.messages for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def damage(self) -> list[Damage]:
        """The damage of all files, in the order of the log."""
        return [damage for file in self.files for damage in file.damage]

    @property
    def deleted(self) -> list[tuple[int, int]]:
        """Ranges of physical offsets in files that the store's owner deleted before they were read. No damage."""
        return joined((file.phy_offset, file.phy_offset + file.size) for file in self.files if file.end == "deleted")

    @property
    def is_empty(self) -> bool:
        """Whether there are no records and no traces of records."""
        return self.bytes == 0 and all(file.error is None and file.end != "deleted" for file in self.files)

    @property
    def is_whole(self) -> bool:
        """Whether nothing is lost or damaged. A clock that was set back and holes without damage do not count."""
        are_others_whole = all(one.error is None for one in self.others)
        return self.is_log_whole and are_others_whole and (self.derived is None or self.derived.is_whole)

    @property
    def is_log_whole(self) -> bool:
        """The same for the log alone: errors in queues and index cost no message."""
        lost = self.missing or self.missing_offsets or self.duplicate_offsets or self.incomplete
        return not (lost or any(file.damage or file.error is not None for file in self.files))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict.

        >>> VerifyReport(queues=2).to_dict()["isWhole"]
        True
        """
        return {
            "isWhole": self.is_whole,
            "records": self.records,
            "messages": self.messages,
            "bytes": self.bytes,
            "queues": self.queues,
            "files": [file.to_dict() for file in self.files],
            "missing": [{"start": start, "stop": stop} for start, stop in self.missing],
            "deleted": [{"start": start, "stop": stop} for start, stop in self.deleted],
            "missingQueueOffsets": [each.to_dict() for each in self.missing_offsets],
            "duplicateQueueOffsets": [each.to_dict() for each in self.duplicate_offsets],
            "incomplete": self.incomplete,
            "derived": self.derived.to_dict() if self.derived is not None else None,
            "others": [one.to_dict() for one in self.others],
        }


def verify(path: Paths, *, jobs: int | None = None, tell: Callable[[int], None] | None = None) -> VerifyReport:
    """Check every record of a commit log: lengths, CRC of body and properties, offsets, order of store timestamps.

    For a store's root, also compare every unit of the consume queues and of the index, and the checkpoint, with the
    log, and check the other files: `report.others`.

    path  store root, commit log folder, file, glob, or a list of them; for a store by URL only the log is checked
    jobs  number of files that are read in parallel; None: the number of processors. With 1, a store's log is read once
          for both the records and the comparison; otherwise one thread reads the log again for the comparison
    tell  called a few times a second with the bytes read so far; those of a store's log count twice

    Bodies are not decompressed: their CRC shows whether they are unchanged.
    Another process may write to the store. Records that are not dispatched yet are counted in `report.derived.behind`.
    Files that the process deletes before they are read are in `report.deleted`. Neither is an error.
    Raises StoreIOError if nothing exists at the path. Files that cannot be read are listed in the report.

    >>> import pathlib, tempfile, rocketc
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> log = b"".join(rocketc.encode("t", b"body", queue_offset=i, phy_offset=96 * n) for n, i in enumerate((0, 1, 4)))
    >>> _ = (folder / "00000000000000000000").write_bytes(log)
    >>> report = rocketc.verify(folder)
    >>> report.records, report.damage, [(each.start, each.stop) for each in report.missing_offsets]
    (3, [], [(2, 4)])
    """
    jobs = processors() if jobs is None else whole_number("jobs", jobs, 1, (1 << 31) - 1)
    path = path if isinstance(path, (str, os.PathLike)) else list(path)
    gone: dict[str, FileReport] = {}
    for _ in range(_LISTINGS):
        report, lasts = _verify(path, jobs, tell)
        gone |= {file.file: file for file in report.files if file.end == "deleted"}
        if not lasts & gone.keys():
            break  # otherwise there are files after those that were listed
    known = {file.file for file in report.files}
    report.files[:0] = [file for name, file in gone.items() if name not in known]
    return report


def _verify(path: Paths, jobs: int, tell: Callable[[int], None] | None) -> tuple[VerifyReport, set[str]]:
    """Do verify() for the files that are there now; return the report and the last file of each log."""
    from concurrent.futures import ThreadPoolExecutor  # late: it takes longer to import than all of rocketc

    root = root_of(path)
    times = times_of_checkpoint(root) if root is not None else {}  # before the log, which may grow meanwhile
    logs = resolve(path)
    report = VerifyReport()
    folders, known = _folders(path), {file.path for log in logs for file in log.files}
    work = [[_Check(file) for file in log.files] for log in logs]
    every: list[_Check | Comparison] = [check for checks in work for check in checks]
    comparison = None
    if root is not None and len(logs) == 1:
        # With one job, a single read of the log serves both checks; with two, separate reads are faster.
        comparison = Comparison(root, logs[0].files, [check.beside for check in work[0]] if jobs == 1 else ())
        every.append(comparison)
    with ThreadPoolExecutor(jobs) as pool:
        derived = pool.submit(comparison) if comparison is not None else None
        running = [deque(pool.submit(check) for check in checks) for checks in work]
        try:
            for log, futures in zip(logs, running, strict=True):
                found = _collect(log, futures, report, lambda: _report_progress(tell, every))
                report.files += _made_ahead(log, folders, known)
            if derived is not None and report.records:
                _wait(derived, lambda: _report_progress(tell, every))
        finally:
            for one in every:
                one.stop = True
    _report_progress(tell, every)
    report.others = check_other_files(root) if root is not None else []
    if derived is not None and root is not None and report.records:
        report.derived = derived.result()
        last = max((file.last_store_timestamp or 0) + file.backwards_ms for file in report.files)
        report.derived.problems[:0] = [
            f"{what} is {at}, later than the last store timestamp {last}" for what, at in times.items() if at > last
        ]
        if report.derived.made_again or report.derived.deleted:
            queues = _Queues(report.derived.made_again, report.derived.deleted)
            for file, runs in found:
                queues.enter(file, runs)
            report.missing_offsets, report.duplicate_offsets = list(queues.missing()), queues.duplicates
    if root is not None and (refused := unreadable_texts(root, report.others)):
        report.derived = report.derived or DerivedReport()
        report.derived.unreadable += refused
    return report, {log.files[-1].name for log in logs if log.files}


def root_of(path: Paths) -> str | None:
    """Return the store's root if the path is one, otherwise None.

    >>> root_of("store/commitlog/00000000000000000000") is None
    True
    """
    items = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    root = os.fspath(items[0]) if len(items) == 1 else ""
    return root if root and os.path.isdir(os.path.join(root, "commitlog")) else None


def _report_progress(update: Callable[[int], None] | None, every: Sequence[_Check | Comparison]) -> None:
    if update is not None:
        update(sum(one.walked for one in every))


def _wait(future: Future[Any], update: Callable[[], None]) -> None:
    from concurrent.futures import wait

    while not wait([future], timeout=_UPDATE_EVERY).done:
        update()


def _collect(
    log: Log, futures: deque[Future[tuple[FileReport, Runs, bool]]], report: VerifyReport, update: Callable[[], None]
) -> list[tuple[str, Runs]]:
    """Add the results of the files of one log in order; return the runs of each file."""
    queues = _Queues()
    found: list[tuple[str, Runs]] = []
    before: FileReport | None = None
    while futures:
        _wait(futures[0], update)
        file, runs, overflowed = futures.popleft().result()
        if file.end == "deleted":  # and all files before it: the messages after it are the first ones of their queues
            queues, found = _Queues(), []
        found.append((file.file, runs))
        queues.enter(file.file, runs)
        queues.incomplete |= overflowed
        if before is not None and file.first_store_timestamp is not None:
            _compare_times(before, file)
        if file.first_store_timestamp is not None:
            before = file
        report.files.append(file)
    report.missing += log.missing
    report.queues += len(queues)
    report.missing_offsets += queues.missing()
    report.duplicate_offsets += queues.duplicates
    report.incomplete |= queues.incomplete
    return found


def _compare_times(before: FileReport, file: FileReport) -> None:
    step = (before.last_store_timestamp or 0) - (file.first_store_timestamp or 0)
    if step > 0:
        file.backwards += 1
        file.backwards_at = file.first_offset
        file.backwards_ms = max(file.backwards_ms, step)


Runs = list[tuple[str, int, int, int, int]]  # as returned by Audit.runs()


class _Check:
    """Reads one file, in a thread. It reads the file once; later calls return the same result."""

    def __init__(self, file: LogFile) -> None:
        self._file = file
        self._found: tuple[FileReport, Runs, bool] | None = None
        self.walked = 0
        self.stop = False

    def __call__(self) -> tuple[FileReport, Runs, bool]:
        if self._found is None:
            self._found = self._read()
        return self._found

    def beside(self, derived: DerivedAudit, note: Callable[[int], None]) -> int | None:
        """Read the file and pass its records to the comparison; see Comparison."""
        upto: int | None = None

        def compare(audit: Audit, walker: Walker) -> None:
            nonlocal upto
            while not self.stop and derived.step_beside(audit):
                self.walked = walker.walked
                note(walker.walked)
            note(derived.upto - walker.base)
            upto = derived.upto if walker.damage else walker.base + self._file.limit

        self._found = self._read(compare)
        return upto

    def _read(self, first: Callable[[Audit, Walker], None] | None = None) -> tuple[FileReport, Runs, bool]:
        file = self._file
        out = FileReport(file.name, file.origin, file.size)
        if self.stop:
            return out, [], False
        try:
            walker = open_walker(file, Filter(), crc=_CRC_FULL, errors="skip")
        except RocketcError as error:
            if was_deleted(file.path):
                out.end = "deleted"
                return out, [], False
            out.end = "unreadable"
            out.error = str(error.strerror) if isinstance(error, OSError) else str(error)
            return out, [], False
        # loops over records in C; Python gets only runs of them
        audit = Audit(walker, queues_max=_QUEUES_MAX, gaps_max=_GAPS_MAX)
        if first is not None:
            first(audit, walker)
        while not self.stop and audit.step():
            self.walked = walker.walked
        self.walked = walker.walked
        _take(audit, walker, out)
        out.holes = holes_of(file.path, out.phy_offset)
        return out, audit.runs(), audit.overflowed


def _take(audit: Audit, walker: Walker, out: FileReport) -> None:
    out.phy_offset = walker.base
    out.bytes = walker.walked
    out.records, out.messages, out.blanks = audit.records, audit.messages, walker.blanks
    out.damage = [Damage(walker.file, *entry) for entry in walker.damage]
    if audit.records:
        out.first_offset, out.last_offset = audit.first_offset, audit.last_offset
        out.first_store_timestamp, out.last_store_timestamp = audit.first_timestamp, audit.last_timestamp
    if audit.backwards:
        out.backwards, out.backwards_at, out.backwards_ms = audit.backwards, audit.backwards_at, audit.backwards_ms
    if walker.ended:
        out.end = "torn" if torn_tail(out.damage, walker.position) else "open"


def _folders(path: Paths) -> set[str]:
    """Return the commit log folders that the path names, not those of single files."""
    items = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    out = set()
    for item in items:
        item = os.fspath(item)
        inner = os.path.join(item, "commitlog")
        folder = inner if os.path.isdir(inner) else item
        out.add(os.path.dirname(os.path.join(folder, "a file")))
    return out


def _made_ahead(log: Log, folders: set[str], known: set[str]) -> Iterator[FileReport]:
    """Yield the files after the last one with data, which a scan does not read; `known` are the other files."""
    for folder in sorted({os.path.dirname(file.path) for file in log.files} & folders):
        with suppress(OSError):
            for name in sorted(os.listdir(folder)):
                path, base = os.path.join(folder, name), base_of(name)
                if base is not None and path not in known:
                    known.add(path)
                    with suppress(FileNotFoundError):  # deleted since it was listed
                        yield FileReport(path, base, os.stat(path).st_size, end="ahead")


class _Queues:
    """The queue offsets in a log: for each queue a list of spans in order; one span if nothing is missing.

    made_again, deleted  as in DerivedReport: earlier records are ignored
    """

    def __init__(
        self, made_again: Mapping[tuple[str, int], int] | None = None, deleted: Mapping[str, int] | None = None
    ) -> None:
        self._begins = made_again or {}
        self._deleted = deleted or {}
        self._spans: dict[tuple[str, int], list[_Span]] = {}
        self._gaps = 0  # spans that are not the first of their queue
        self.duplicates: list[QueueRange] = []
        self.incomplete = False

    def __len__(self) -> int:
        return len(self._spans)

    def enter(self, file: str, runs: Runs) -> None:
        """Add the runs of the next file, in the order of the log."""
        for topic, queue_id, first, behind, phy_offset in runs:
            begin = self._begins.get((topic, queue_id), self._deleted.get(topic, 0))
            if phy_offset < begin:
                continue
            spans = self._spans.get((topic, queue_id))
            if spans is not None and spans[-1].behind == first:
                spans[-1].behind = behind
            elif self._gaps == _GAPS_MAX if spans is not None else len(self._spans) == _QUEUES_MAX:
                self.incomplete = True
            else:
                if spans is None:
                    spans = self._spans[topic, queue_id] = []
                else:
                    self._gaps += 1
                for start, stop in _add(spans, _Span(first, behind, file, phy_offset)):
                    self.duplicates.append(QueueRange(topic, queue_id, start, stop, file, phy_offset))

    def missing(self) -> Iterator[QueueRange]:
        for (topic, queue_id), spans in sorted(self._spans.items()):
            for i in range(1, len(spans)):
                behind = spans[i]
                yield QueueRange(topic, queue_id, spans[i - 1].behind, behind.first, behind.file, behind.phy_offset)


@dataclass
class _Span:
    """Queue offsets [first, behind), and the record with the first one."""

    first: int
    behind: int
    file: str
    phy_offset: int


def _add(spans: list[_Span], new: _Span) -> list[tuple[int, int]]:
    """Add a span to a list of disjoint spans; return the parts that were in the list already."""
    if spans and new.first > spans[-1].behind:
        spans.append(new)
        return []
    begin = bisect.bisect_left(spans, new.first, key=lambda span: span.behind)
    end = bisect.bisect_right(spans, new.behind, key=lambda span: span.first)
    touched = spans[begin:end]
    both = [(max(new.first, span.first), min(new.behind, span.behind)) for span in touched]
    if touched:
        lowest = min(touched[0], new, key=lambda span: span.first)
        behind = max(touched[-1].behind, new.behind)
        new = _Span(lowest.first, behind, lowest.file, lowest.phy_offset)
    spans[begin:end] = [new]
    return [(start, stop) for start, stop in both if start < stop]
