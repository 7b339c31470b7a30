"""Do the consume queues, the index and the checkpoint of a store say what its log says? Nothing is written.

Both are in the log's order, so one walk over the log goes through all of them at the same time: what is kept in memory
is a place in each queue, and the first ten thousand runs of what is wrong.
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
    """A run of units that are not as the log says, or of records that have none.

    what         "lacks": the queue has no unit for these queue offsets; "elsewhere": its units lead to another place,
                 or say another number; "bad_size", "bad_tags_code": they say else of the record; "no_record": the log
                 has no such record; "no_queue": records whose queue is not there, by physical offset; "key_lacks":
                 records with keys that the index does not have, by physical offset; "key_no_record": units of an index
                 file that no record has; "key_bad_time": their time is not the record's; "key_bad_header": the first or
                 the last one of a file, whose header tells of another record
    first, last  both included: queue offsets, physical offsets, or units of an index file
    count        how many
    phy_offset   that the first unit says, or of the first record
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
        """JSON-ready; what there is not is left out.

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

    queues       how many there are; None: the store has no consume queues
    units        of queues, that are as the log says
    keys         units of the index that are; None: the store has no index
    findings     what is not
    counts       how many of each kind, if there are more than findings tell
    behind       records at the end of the log that queues or index do not have yet: the store runs, or was not closed
    problems     files that can't be read, or are not what they should be, and times of the checkpoint that lie behind
                 the log: text
    made_again   (topic, queue id) -> where a queue begins whose topic was deleted before: physical offset; records
                 before it are in no queue
    deleted      topic -> the same, of all queues of a topic that rocketc deleted
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

    @property
    def is_whole(self) -> bool:
        """All of it is as the log says, as far as it goes."""
        return not (self.findings or self.problems)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready.

        >>> DerivedReport(queues=1, units=5).to_dict()["isWhole"]
        True
        """
        return {
            "isWhole": self.is_whole, "queues": self.queues, "units": self.units, "keys": self.keys,
            "findings": [finding.to_dict() for finding in self.findings], "counts": self.counts,
            "behind": self.behind, "problems": self.problems,
        }  # fmt: skip


Beside = Callable[[DerivedAudit, Callable[[int], None]], "int | None"]


class Comparison:
    """Compares the derived files of a store with its log, once; a thread may do it.

    root    the store's
    files   of its log, in order; if it is written meanwhile, there may be more
    beside  for each of the files: reads it for itself, and has the audit compare its records meanwhile; it tells how
            many bytes these were so far, and returns the physical offset from which on they are still to be compared,
            None: all of them are
    walked  bytes of the log that were compared so far; set `stop` to end it early

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
        """What can't be read is in the report."""
        report = DerivedReport()
        if self._files and (self._has_queues or self._has_index):
            try:
                self._compare(detect_file_sizes(self._root, StoreConfig()), report)
            except RocketcError as error:
                report.problems.append(str(error))
        return report

    def _compare(self, config: StoreConfig, report: DerivedReport) -> None:
        root, files, index, settled = self._root, self._files, None, True
        if self._has_index:
            settled = not AbortFile(root).exists()
            index = index_below(root, config, read_only=True)
            report.problems += index.load()
            report.problems += index.check(lambda: not self.stop)
        deleted = DeletedTopics(root)
        report.problems += [deleted.load_error] if deleted.load_error is not None else []
        start, stop = files[0].origin, files[-1].next_base
        lies: list[tuple[str, int]] = []
        while True:
            queues = load_unmodified(root, config)
            for queue in lies:
                queues.disbelieve(*queue)
            claims = queues.claims()
            deleted.believe(queues.standing(deleted.ends), all_of_them=True)
            audit = DerivedAudit(queues, index, config)
            audit.leave_out(deleted.gone())
            now = max(_end_of(log.files) for log in resolve(root))  # after what tells of its records was loaded
            settled &= not AbortFile(root).exists()
            audit.begin(start, stop, now=now, queues=self._has_queues, index=self._has_index, settled=settled)
            self._walk(audit)
            again = queues.made_again()
            if self.stop or all(is_true for _, _, is_true in again):
                break
            lies += [(topic, queue_id) for topic, queue_id, is_true in again if not is_true]
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
        beside, self._beside = self._beside, ()  # a second walk has nobody to go with
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
    """Physical offset behind the last file of a log; 0: there is none."""
    return files[-1].next_base if files else 0


def load_unmodified(root: str, config: StoreConfig) -> ConsumeQueues:
    """The consume queues of a store, to be read only; whoever asks for a file that is gone finds no units.

    >>> import tempfile
    >>> load_unmodified(tempfile.mkdtemp(), StoreConfig()).items()
    []
    """
    queues = queues_below(root, config, read_only=True)
    queues.load()
    return queues


def _leave_out_tail(audit: DerivedAudit, report: DerivedReport) -> None:
    """Records behind all that queues or index have are not in them yet: the next opening sees to that."""
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
    """Up to which store time of a record a store's checkpoint goes, in ms: a text that tells where -> the time.

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
