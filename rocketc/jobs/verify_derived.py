"""Compare the consume queues, the index and the checkpoint of a store with its log. Nothing is written.

The units of queues and index are in the order of the log. So one scan of the log checks all of them at the same time.
Only a position in each queue and the first ten thousand runs of errors are kept in memory.

Another process may write to the store, or delete old files, at the same time. Then the queues are read twice before the
scan. All records before the end of the last unit of the first reading must have their units in the second one. Later
records without a unit at the end of their queue are not dispatched yet. What is deleted meanwhile is left out. If
errors are left, the comparison is repeated: real errors stay, and those of a race with the other process do not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from rocketc.config import StoreConfig
from rocketc.derived._consume_queues import ConsumeQueues
from rocketc.derived._derived_audit import DerivedAudit
from rocketc.derived.queue_files import QUEUE_FOLDERS, detect_file_sizes, files_below, index_below, queues_below
from rocketc.errors import RocketcError
from rocketc.files import _checkpoint
from rocketc.files.lock_file import AbortFile
from rocketc.files.paths import LogFile, resolve, was_deleted
from rocketc.read._filter import Filter
from rocketc.read.scan_run import open_walker
from rocketc.tables.deleted_topics import DeletedTopics

_CRC_NONE = 0
_BY_PHY_OFFSET = ("no_queue", "key_lacks")  # their numbers are physical offsets
_ALL = (1 << 63) - 1  # larger than every physical offset
_TRIES = 3  # comparisons of a store that another process writes, until one is without errors


@dataclass(frozen=True)
class Finding:
    """A run of units that disagree with the log, or of records without units.

    what         "lacks": the queue is without units for these queue offsets; "elsewhere": its units point to another
                 physical offset, or to a record with another queue offset; "bad_size", "bad_tags_code": they have
                 another size or tags code than the record; "no_record": the log is without such a record; "no_queue":
                 records whose queue does not exist, by physical offset; "key_lacks": records with keys that are missing
                 in the index, by physical offset; "key_no_record": units of an index file without a matching record;
                 "key_bad_time": their time differs from the record's; "key_bad_header": the first or last unit of a
                 file, whose header describes another record
    first, last  both included: queue offsets, physical offsets, or numbers of units of an index file
    count        number of units or records
    phy_offset   stored in the first unit, or of the first record
    """

    what: str
    topic: str | None
    queue_id: int | None
    file: str | None
    first: int
    last: int
    count: int
    phy_offset: int

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict without the fields that are `None`.

        >>> Finding("lacks", "orders", 0, None, 3, 4, 2, 4096).to_dict()["queueId"]
        0
        """
        out = {
            "what": self.what, "topic": self.topic, "queueId": self.queue_id, "file": self.file, "first": self.first,
            "last": self.last, "count": self.count, "physicalOffset": self.phy_offset,
        }  # fmt: skip
        return {name: value for name, value in out.items() if value is not None}


@dataclass
class DerivedReport:
    """What was found in the files that are derived from a log.

    queues       number of queues; None: the store is without consume queues
    units        units of queues that agree with the log
    keys         units of the index that agree with the log; None: the store is without an index
    findings     units and records that do not agree
    counts       kind of finding -> number of units or records, including those that are not listed in findings
    behind       records at the end of the log that are not in queues or index yet: the store is open, or was not closed
    problems      texts: files that cannot be read or are invalid, and times of the checkpoint that are later than the
                 log
    made_again   (topic, queue id) -> physical offset where a queue begins whose topic was deleted before; records
                 before it are in no queue
    deleted      topic -> the same, for all queues of a topic that rocketc deleted
    unreadable   texts: what could not be read
    not_checked  of "queues" and "index": what exists, but was not compared with the log
    """

    queues: int | None = None
    units: int = 0
    keys: int | None = None
    findings: list[Finding] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    behind: int = 0
    problems: list[str] = field(default_factory=list)
    made_again: dict[tuple[str, int], int] = field(default_factory=dict)
    deleted: dict[str, int] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)
    not_checked: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether the existing units agree with the log and all files are valid."""
        return not (self.findings or self.counts or self.problems or self.unreadable)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict.

        >>> DerivedReport(queues=1, units=5).to_dict()["isWhole"]
        True
        """
        return {
            "isWhole": self.is_whole, "queues": self.queues, "units": self.units, "keys": self.keys,
            "findings": [finding.to_dict() for finding in self.findings], "counts": self.counts,
            "behind": self.behind, "problems": self.problems, "unreadable": self.unreadable,
            "notChecked": self.not_checked,
        }  # fmt: skip


Beside = Callable[[DerivedAudit, Callable[[int], None]], "int | None"]


class Comparison:
    """Compares the derived files of a store with its log, once; may run in its own thread.

    root    the store's root
    files   of its log, in order; the log may grow meanwhile
    beside  a function for each file. It reads the file for its own checks and passes the records to the audit. It
            reports the number of bytes compared so far, and returns the physical offset from which on records are still
            to be compared; None: all of them
    walked  bytes of the log that were compared so far
    stop    set it to end the comparison early

    >>> import tempfile
    >>> Comparison(tempfile.mkdtemp(), [])().is_whole
    True
    """

    def __init__(self, root: str, files: Sequence[LogFile], beside: Sequence[Beside] = ()) -> None:
        self.walked = 0
        self.stop = False
        self._root = root
        self._files = files
        self._beside = beside
        self._has_queues = self._has_index = False

    def __call__(self) -> DerivedReport:
        """Compare, and return the report. What cannot be read is listed in the report."""
        for attempt in range(1, _TRIES + 1):
            report, writer = DerivedReport(), _Writer(self._root)
            try:
                if attempt > 1:
                    self._files = [file for log in resolve(self._root) for file in log.files]
                if self._files and self._find_files(report):
                    self._compare(detect_file_sizes(self._root, StoreConfig()), report, writer)
            except OSError as error:  # of the log
                report.unreadable.append(_why(error))
                report.not_checked += ["queues"] * self._has_queues + ["index"] * self._has_index
            except RocketcError as error:
                report.problems.append(str(error))
            if report.is_whole or self.stop or not writer.was_there():
                break
        return report

    def _find_files(self, report: DerivedReport) -> bool:
        """Find out whether the store has queues and an index. Return whether it has one of them."""
        self._has_queues = any(True for _ in files_below(self._root, *QUEUE_FOLDERS))
        self._has_index = any(True for _ in files_below(self._root, "index"))
        if not self._has_queues and (error := _listing_error(self._root, *QUEUE_FOLDERS)) is not None:
            self._leave_out("queues", error, report)
        if not self._has_index and (error := _listing_error(self._root, "index")) is not None:
            self._leave_out("index", error, report)
        return self._has_queues or self._has_index

    def _leave_out(self, what: str, error: OSError, report: DerivedReport) -> None:
        """Note that the queues or the index can't be read, and do not compare them."""
        report.unreadable.append(_why(error))
        report.not_checked.append(what)
        if what == "queues":
            self._has_queues = False
        else:
            self._has_index = False

    def _load_queues(self, config: StoreConfig, report: DerivedReport) -> ConsumeQueues:
        try:
            if self._has_queues:
                return load_unmodified(self._root, config)
        except OSError as error:
            self._leave_out("queues", error, report)
        return queues_below(self._root, config, read_only=True)

    def _compare(self, config: StoreConfig, report: DerivedReport, writer: _Writer) -> None:
        root, files, index = self._root, self._files, None
        if self._has_index:
            index = index_below(root, config, read_only=True)
            try:
                report.problems += index.load()
                report.problems += index.check(lambda: not self.stop)
            except OSError as error:
                self._leave_out("index", error, report)
                index.close()
                index = None
        deleted = DeletedTopics(root)
        report.problems += [deleted.load_error] if deleted.load_error is not None else []
        start, stop = files[0].origin, files[-1].next_base
        wrong_claims: list[tuple[str, int]] = []
        while True:
            queues = self._load_queues(config, report)
            if not (self._has_queues or self._has_index):
                return
            audit, dispatched = DerivedAudit(queues, index, config), _ALL
            if writer.was_there() and self._has_queues:
                dispatched = audit.last_dispatched(_end_of(root, stop))
                queues.look_at_all()
            for queue in wrong_claims:
                queues.drop_claim(*queue)
            claims = queues.claims()
            deleted.remove_recreated(queues.remaining(deleted.ends), remove_all=True)
            audit.leave_out(deleted.offsets())
            now = _end_of(root, stop)  # after the queues and the index were loaded
            audit.begin(
                start, stop, now=now, queues=self._has_queues, index=self._has_index, settled=not writer.was_there(),
                dispatched=dispatched,
            )  # fmt: skip
            self._walk(audit, is_live=dispatched < _ALL)
            again = queues.made_again()
            if self.stop or all(is_true for _, _, is_true in again):
                break
            wrong_claims += [(topic, queue_id) for topic, queue_id, is_true in again if not is_true]
            queues.close()
        report.problems += queues.errors
        report.made_again = {(topic, queue_id): claims[topic, queue_id][0] for topic, queue_id, _ in again}
        report.deleted = {topic: end for topic, end in deleted.ends.items() if end > start}
        report.queues = len(queues) if self._has_queues else None
        report.units = audit.units
        report.keys = audit.keys if self._has_index else None
        report.counts = audit.counts()
        report.findings = [Finding(*one) for one in audit.findings()]
        report.behind = sum(audit.counts(tail=True).values())
        begin = _begin_of(root, start)
        _drop(report, lambda one: start <= one.phy_offset < begin)  # about records that were deleted meanwhile
        report.findings = _joined(report.findings) if dispatched < _ALL else report.findings
        if writer.was_there():
            keys = _drop(report, lambda one: one.what == "key_lacks" and 0 <= audit.key_tail <= one.phy_offset)
            report.behind = report.behind or keys
        queues.close()
        if index is not None:
            index.close()

    def _walk(self, audit: DerivedAudit, is_live: bool) -> None:
        beside, self._beside = self._beside, ()  # only the first scan is shared
        self.walked = 0
        for i, file in enumerate(self._files):
            if self.stop:
                return
            start = None
            if is_live:  # the findings in deleted files are dropped afterwards
                audit.begin_file()
            if beside and file.base is not None:
                start = beside[i](audit, partial(self._note, self.walked))
            if start is None or start < file.next_base:
                self._take(audit, file, start)
        if not self.stop:
            audit.end()

    def _note(self, before: int, walked: int) -> None:
        self.walked = before + walked

    def _take(self, audit: DerivedAudit, file: LogFile, start: int | None) -> None:
        before = self.walked
        try:
            walker = open_walker(file, Filter(), crc=_CRC_NONE, errors="report", start=start, exact=start is not None)
        except RocketcError:
            if not was_deleted(file.path):
                raise
            audit.skip_to(file.next_base)
            return
        while not self.stop and audit.step(walker):
            self.walked = before + walker.walked
        self.walked = before + walker.walked


class _Writer:
    """Notices whether another process writes to a store, or did so since this object was made.

    A store that was not closed counts as well: nothing tells it from one whose writer does not hold the lock.
    """

    def __init__(self, root: str) -> None:
        self._abort = AbortFile(root)
        self._checkpoint = os.path.join(root, "checkpoint")
        self._before = self._stamp()
        self._seen = False
        self.was_there()

    def was_there(self) -> bool:
        # The checkpoint is written when a store is closed: the store may have been opened and closed meanwhile.
        self._seen = self._seen or self._abort.exists() or self._stamp() != self._before
        return self._seen

    def _stamp(self) -> tuple[int, int] | None:
        with suppress(OSError):
            info = os.stat(self._checkpoint)
            return info.st_ino, info.st_mtime_ns
        return None


def _end_of(root: str, least: int) -> int:
    """Return the physical offset of the end of the last file of a store's log; at least `least`."""
    return max([least, *(log.files[-1].next_base for log in resolve(root) if log.files)])


def _begin_of(root: str, least: int) -> int:
    """Return the physical offset of the first file of a store's log; at least `least`."""
    return max([least, *(log.files[0].origin for log in resolve(root)[:1] if log.files)])


def load_unmodified(root: str, config: StoreConfig) -> ConsumeQueues:
    """Load the consume queues of a store read-only; a file that no longer exists is read as a file without units.

    >>> import tempfile
    >>> load_unmodified(tempfile.mkdtemp(), StoreConfig()).items()
    []
    """
    queues = queues_below(root, config, read_only=True)
    queues.load()
    return queues


def _listing_error(root: str, *kinds: str) -> OSError | None:
    """Return the error of the first folder of these kinds, or of a topic, that can't be listed; None: no error."""
    for kind in kinds:
        above = os.path.join(root, kind)
        try:
            for name in os.listdir(above):
                if os.path.isdir(folder := os.path.join(above, name)):
                    os.listdir(folder)
        except FileNotFoundError:
            continue
        except OSError as error:
            return error
    return None


def _why(error: Exception) -> str:
    """Return the path and the reason of an OSError, and the text of another error."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _drop(report: DerivedReport, is_dropped: Callable[[Finding], bool]) -> int:
    """Remove these findings from a report, and from its counts. Returns the number of their units or records."""
    count = 0
    for one in filter(is_dropped, report.findings):
        report.counts[one.what] -= one.count
        count += one.count
    report.findings = [one for one in report.findings if not is_dropped(one)]
    report.counts = {what: left for what, left in report.counts.items() if left > 0}
    return count


def _joined(findings: list[Finding]) -> list[Finding]:
    """Join the findings of a queue that continue in the next file of the log."""
    out: list[Finding] = []
    latest: dict[tuple[str, str | None, int | None, str | None], int] = {}
    for one in findings:
        kind = (one.what, one.topic, one.queue_id, one.file)
        at = latest.get(kind, -1)
        if at >= 0 and (out[at].last + 1 == one.first or one.what in _BY_PHY_OFFSET):
            out[at] = replace(out[at], last=one.last, count=out[at].count + one.count)
        else:
            latest[kind] = len(out)
            out.append(one)
    return out


def times_of_checkpoint(root: str) -> dict[str, int]:
    """Return description -> time in ms for each of the times up to which the checkpoint says the store is durable.

    >>> import tempfile
    >>> list(times_of_checkpoint(tempfile.mkdtemp()).values())
    [0, 0, 0]
    """
    path, out = os.path.join(root, "checkpoint"), {}
    with suppress(RocketcError):
        checkpoint = _checkpoint.read(path)
        for name in ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp"):
            out[f"{path}: {name}"] = getattr(checkpoint, name)
    return out
