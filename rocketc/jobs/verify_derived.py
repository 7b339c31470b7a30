"""Compare the consume queues, the index and the checkpoint of a store with its log. Nothing is written.

The units of queues and index are in the order of the log. So one scan of the log checks all of them at the same time.
Only a position in each queue and the first ten thousand runs of errors are kept in memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rocketc.config import StoreConfig
from rocketc.derived._consume_queues import ConsumeQueues
from rocketc.derived._derived_audit import DerivedAudit
from rocketc.derived.queue_files import QUEUE_FOLDERS, detect_file_sizes, files_below, index_below, queues_below
from rocketc.errors import RocketcError
from rocketc.files import _checkpoint
from rocketc.files.lock_file import AbortFile
from rocketc.files.paths import LogFile, resolve
from rocketc.read._filter import Filter
from rocketc.read.scan import open_walker
from rocketc.tables.deleted_topics import DeletedTopics

_CRC_NONE = 0
_LACKING = ("lacks", "no_queue", "key_lacks")


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
        return not (self.findings or self.problems or self.unreadable)

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
        self._has_queues = any(True for _ in files_below(root, *QUEUE_FOLDERS))
        self._has_index = any(True for _ in files_below(root, "index"))

    def __call__(self) -> DerivedReport:
        """Compare, and return the report. What cannot be read is listed in the report."""
        report = DerivedReport()
        if not self._files:
            return report
        if not self._has_queues and (error := _listing_error(self._root, *QUEUE_FOLDERS)) is not None:
            self._leave_out("queues", error, report)
        if not self._has_index and (error := _listing_error(self._root, "index")) is not None:
            self._leave_out("index", error, report)
        if self._has_queues or self._has_index:
            try:
                self._compare(detect_file_sizes(self._root, StoreConfig()), report)
            except OSError as error:  # of the log
                report.unreadable.append(_why(error))
                report.not_checked += ["queues"] * self._has_queues + ["index"] * self._has_index
            except RocketcError as error:
                report.problems.append(str(error))
        return report

    def _leave_out(self, what: str, error: OSError, report: DerivedReport) -> None:
        """Note that the queues or the index can't be read, and do not compare them."""
        report.unreadable.append(_why(error))
        report.not_checked.append(what)
        if what == "queues":
            self._has_queues = False
        else:
            self._has_index = False

    def _compare(self, config: StoreConfig, report: DerivedReport) -> None:
        root, files, index, settled = self._root, self._files, None, True
        if self._has_index:
            settled = not AbortFile(root).exists()
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
            queues = queues_below(root, config, read_only=True)
            try:
                if self._has_queues:
                    queues.load()
            except OSError as error:
                self._leave_out("queues", error, report)
                queues.close()
                queues = queues_below(root, config, read_only=True)
            if not (self._has_queues or self._has_index):
                return
            for queue in wrong_claims:
                queues.drop_claim(*queue)
            claims = queues.claims()
            deleted.remove_recreated(queues.remaining(deleted.ends), remove_all=True)
            audit = DerivedAudit(queues, index, config)
            audit.leave_out(deleted.offsets())
            now = max(_end_of(log.files) for log in resolve(root))  # after the queues and the index were loaded
            settled &= not AbortFile(root).exists()
            audit.begin(start, stop, now=now, queues=self._has_queues, index=self._has_index, settled=settled)
            self._walk(audit)
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
        if AbortFile(root).exists():
            _leave_out_tail(audit, report)
        queues.close()
        if index is not None:
            index.close()

    def _walk(self, audit: DerivedAudit) -> None:
        beside, self._beside = self._beside, ()  # only the first scan is shared
        self.walked = 0
        for i, file in enumerate(self._files):
            if self.stop:
                return
            start = None
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
        walker = open_walker(file, Filter(), crc=_CRC_NONE, errors="report", start=start, exact=start is not None)
        while not self.stop and audit.step(walker):
            self.walked = before + walker.walked
        self.walked = before + walker.walked


def _end_of(files: Sequence[LogFile]) -> int:
    """Return the physical offset of the end of the last file of a log; 0 if there are no files."""
    return files[-1].next_base if files else 0


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


def _leave_out_tail(audit: DerivedAudit, report: DerivedReport) -> None:
    """Move the last records, which queues or index do not have yet, to report.behind: the next opening adds them."""
    kept = []
    for finding in report.findings:
        tail = audit.key_tail if finding.what == "key_lacks" else audit.queue_tail
        if finding.what in _LACKING and 0 <= tail <= finding.phy_offset:
            report.counts[finding.what] -= finding.count
            if finding.what != "key_lacks" or audit.queue_tail < 0:
                report.behind += finding.count
        else:
            kept.append(finding)
    report.findings = kept
    report.counts = {what: count for what, count in report.counts.items() if count > 0}


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
