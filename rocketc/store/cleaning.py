"""Cleaning: which files of a store are too old, or in the way of new ones, and may go; RocketMQ's rules.

Files of the commit log go oldest first, and never the last one; what the consume queues and the index say of them goes
after them. Where releases differ these are the rules of RocketMQ 5, but for one thing: a file that is in use is not
taken away from its users by force, however long they hold it. Nothing here starts a thread: whoever has a store calls
run() every cleanResourceInterval.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

from rocketc._layout import LMQ_PREFIX
from rocketc.config import StoreConfig
from rocketc.derived.queue_files import DerivedFile, derived_bytes, files_before
from rocketc.files.durable import errors_named, sync_folder
from rocketc.rendering import HtmlRepr
from rocketc.store.disk_usage import DiskUse, Levels, LookAt, look
from rocketc.tables.config_manager import Clock, now_ms
from rocketc.tables.topics import is_system_topic

_log = logging.getLogger("rocketc.cleaning")

_NAME = re.compile(r"[0-9]{20}")
MANUAL_RUNS = 20  # so many runs does a request last
_HOUR = 3_600_000  # ms
_SETTLED = 1 << 63  # behind all physical offsets


class LogFiles(Protocol):
    """The commit log's files: a MappedFileQueue is one."""

    @property
    def files(self) -> list[str]: ...
    def avoid(self, folders: Iterable[str]) -> None: ...
    def delete_expired(self, expired_ms: int, now_ms: int, *, immediately: bool = False, batch: int = 10) -> int: ...


class LogOnDisk:
    """The files of a log that nobody has open for writing; those that are made ready and not written are left out.

    folders    where they are
    read_only  folders with files that are never deleted

    >>> import tempfile
    >>> LogOnDisk([tempfile.mkdtemp()]).files
    []
    """

    def __init__(self, folders: Iterable[str], read_only: Iterable[str] = ()) -> None:
        self._read_only = list(read_only)
        found = []
        for folder in [*folders, *self._read_only]:
            with errors_named(folder), suppress(FileNotFoundError):
                found += [os.path.join(folder, name) for name in os.listdir(folder) if _NAME.fullmatch(name)]
        self.files = sorted(found, key=_start)
        while len(self.files) > 1 and not _is_written(self.files[-1]):
            self.files.pop()

    def avoid(self, folders: Iterable[str]) -> None:
        """Nothing to do: it makes no files."""

    def delete_expired(self, expired_ms: int, now_ms: int, *, immediately: bool = False, batch: int = 10) -> int:
        """Delete files that were not changed for expired_ms, durably, oldest first, never the last; returns how many.

        The first one that is younger, or in a read-only folder, ends it. Raises StoreIOError.
        """
        deleted = 0
        while len(self.files) > 1 and deleted < batch:
            path = self.files[0]
            with errors_named(path):
                changed = os.stat(path).st_mtime_ns // 1_000_000
                folder = os.path.dirname(path)
                if (not immediately and changed + expired_ms > now_ms) or folder in self._read_only:
                    break
                os.unlink(path)
            sync_folder(folder)
            self.files.pop(0)
            deleted += 1
        return deleted


class Queues(Protocol):
    """The consume queues; they delete files that tell only of what is before a physical offset, ConsumeQueues as well.

    pause() is called behind each queue that lost files, and ends it if it returns what is true; returns how many files
    each queue lost.
    """

    def delete_expired(self, min_phy: int, /, pause: Callable[[], object]) -> dict[str, int]: ...


class Index(Protocol):
    """The key index; it deletes such files too, and returns how many. KeyIndex is one."""

    def delete_expired(self, min_phy: int, /) -> int: ...


@dataclass(frozen=True)
class Cleaned:
    """A file that was deleted, or would be. `age` is ms since it was changed, -1 for files that follow the log's."""

    kind: str  # "commitlog", "consumequeue", "consumequeue_ext", "batchconsumequeue" or "index"
    path: str
    size: int  # bytes, of which a sparse file may take fewer
    age: int
    why: str


@dataclass(frozen=True)
class OldestKept:
    """The first file of the log that stays, and with it all behind it. `files`: how many these are."""

    path: str
    size: int
    age: int
    why: str
    files: int = 1


@dataclass
class CleanReport(HtmlRepr):
    """What a run did, or would do.

    now             ms: when that was
    because         why there is something to delete at all, in words; empty: there is not
    at_once         files go whether expired or not
    deleted         the files, in the order in which they go
    kept            the first file of the log that stays, and why; None if the log is empty
    derived         how many files of queues and index went after the log's
    min_phy_offset  physical offset at which the log begins now; -1: it is empty
    disks           how much of each file system is in use, 0 to 1, by folder; -1: it is not there
    disk_full       whether the store takes no messages because the disk is full
    dry             nothing was really deleted
    """

    now: int = 0
    because: list[str] = field(default_factory=list)
    at_once: bool = False
    deleted: list[Cleaned] = field(default_factory=list)
    kept: OldestKept | None = None
    derived: int = 0
    min_phy_offset: int = -1
    disks: dict[str, float] = field(default_factory=dict)
    disk_full: bool = False
    dry: bool = False

    @property
    def size(self) -> int:
        """Bytes of the files that are deleted."""
        return sum(one.size for one in self.deleted)

    @property
    def log_files(self) -> int:
        """How many files of the commit log are deleted."""
        return sum(one.kind == "commitlog" for one in self.deleted)

    def to_dict(self) -> dict[str, Any]:
        """The report for JSON.

        >>> CleanReport(now=1700000000000).to_dict()["deleted"]
        []
        """
        return {
            "now": self.now,
            "because": self.because,
            "atOnce": self.at_once,
            "deleted": [vars(one) for one in self.deleted],
            "size": self.size,
            "kept": vars(self.kept) if self.kept else None,
            "minPhyOffset": self.min_phy_offset,
            "disks": self.disks,
            "diskFull": self.disk_full,
            "dry": self.dry,
        }


class Cleaner:
    """What deletes the files of one store; one thread at a time.

    log         its log files
    config      deleteWhen, fileReservedTime and the levels of disk use
    queues      its consume queues, None: there are none
    index       the key index, None: there is none
    root        the store's root
    clock       ms since 1970
    statvfs     os.statvfs, or what answers in its place
    pause       waits so many seconds between two files; what it returns, if true, ends the run
    on_full     called with (DISK_FULL, LOGIC_DISK_FULL) when one of these flags changes: the store then takes no
                messages while one is set
    settle      makes durable what queues and index tell of the log; the physical offset before which they tell all.
                Files that end behind it stay: else a power cut would take their queue offsets, and give them again.
                None: all is durable, and told

    >>> import tempfile
    >>> from rocketc.files._mapped_file_queue import MappedFileQueue
    >>> root = tempfile.mkdtemp()
    >>> log = MappedFileQueue([root + "/commitlog"], 4096)
    >>> log.make_folders()
    >>> "it was asked for" in Cleaner(log, StoreConfig(), root=root).plan(asked=True).because
    True
    """

    def __init__(
        self,
        log: LogFiles,
        config: StoreConfig,
        *,
        root: str | os.PathLike[str],
        queues: Queues | None = None,
        index: Index | None = None,
        clock: Clock = now_ms,
        statvfs: LookAt = os.statvfs,
        pause: Callable[[float], object] = time.sleep,
        on_full: Callable[[bool, bool], object] = lambda disk, queues: None,
        settle: Callable[[], int] | None = None,
    ) -> None:
        self._log = log
        self._config = config
        self._levels = Levels.of(config)
        self._root = os.fspath(root)
        self._queues = queues
        self._index = index
        self._clock = clock
        self._statvfs = statvfs
        self._pause = pause
        self._on_full = on_full
        self._settle = settle
        self._settled = _SETTLED if settle is None else 0  # what that said last
        self._asked = 0  # runs that a request has left
        self._hanged: str | None = None  # the file that could not be deleted because it was in use
        self._hanged_since = 0
        self._retried = 0  # when it was last tried
        self._cleaned_up_to = 0  # the queues and the index know nothing of what is before that
        self.disk_full = False
        self.queues_full = False

    def ask(self, runs: int = MANUAL_RUNS) -> None:
        """Delete what is expired in the next runs, at any hour (executeDeleteFilesManually)."""
        self._asked = runs

    def plan(self, now: int | None = None, *, asked: bool = False, expired_ms: int | None = None) -> CleanReport:
        """What run() would do now; nothing is deleted, and no flag or counter changes.

        now         ms; None: the clock's
        asked       as after ask()
        expired_ms  a file that was not changed for so long is expired; None: fileReservedTime says
        Files that turn out to be in use will stay, and those behind them; this is not seen here.
        """
        now = self._clock() if now is None else now
        disks = self._look()
        report = self._begin(now, disks, asked)
        report.dry = True
        files = self._candidates(now, report.at_once, expired_ms)
        if report.because:
            report.deleted, report.kept = files
        elif files[0]:
            why = f"it is not {self._config.delete_when} o'clock, and the disk is not full"
            report.kept = _kept(files[0][0], why, len(self._log.files))
        else:
            report.kept = files[1]
        if report.kept is not None:
            report.min_phy_offset = _start(report.kept.path)
            following = [_cleaned(one) for one in files_before(self._root, report.min_phy_offset)]
            report.deleted += following
            report.derived = len(following)
        if disks.disk_full is not None:
            report.disk_full = disks.disk_full or (self.queues_full if disks.queues_full is None else disks.queues_full)
        return report

    def run(
        self, now: int | None = None, *, asked: bool = False, expired_ms: int | None = None, detailed: bool = False
    ) -> CleanReport:
        """Delete what may go now: up to deleteFileBatchMax files of the log, then what follows them.

        now, asked, expired_ms  as plan() takes them
        detailed                the report names the files of queues and index too, not only how many there were
        Raises StoreIOError if a file can't be deleted, and what `settle` raises; what was deleted before that is.
        """
        now = self._clock() if now is None else now
        disks = self._look()
        self._set_flags(disks)
        report = self._begin(now, disks, asked)
        self._asked = max(self._asked - 1, 0)
        if report.because:
            self._clean_log(now, report, expired_ms)
        else:
            report.kept = self._first_kept(now, expired_ms)
        self._retry(now, report)
        files = self._log.files
        report.min_phy_offset = _start(files[0]) if files else -1
        self._clean_derived(report, detailed)
        return report

    def delete_before(self, phy_offset: int) -> CleanReport:
        """Delete the files of the log that end at a physical offset or before it, and what follows them: for who knows
        that nobody wants them any more. Age, hour and disks do not count; the last file stays.

        Raises StoreIOError if a file can't be deleted; what was deleted before that is.
        """
        now = self._clock()
        why = f"nobody wants what is before {phy_offset}"
        report = CleanReport(now, [why])
        files = self._log.files
        for path, following in pairwise(files):
            if _start(following) > phy_offset:
                break
            info = os.stat(path)
            if not self._is_settled() or self._log.delete_expired(0, now, immediately=True, batch=1) == 0:
                break  # in use, or in a read-only folder: the next call tries again
            _log.info("%s deleted: %s", path, why)
            age = now - info.st_mtime_ns // 1_000_000
            report.deleted.append(Cleaned("commitlog", path, info.st_size, age, "consumed"))
        report.min_phy_offset = _start(files[len(report.deleted)]) if files else -1
        self._clean_derived(report, False)
        return report

    # ------------------------------------------------------------ why

    def _look(self) -> DiskUse:
        queues = os.path.join(self._root, "consumequeue")  # RocketMQ always has it; here the first queue makes it
        return look(
            self._config.commit_log_paths(self._root),
            queues if os.path.exists(queues) else self._root,
            self._levels,
            replicas=self._config.replicas_per_disk_partition,
            size=lambda: _bytes_below(self._root, self._log.files),
            statvfs=self._statvfs,
        )

    def _set_flags(self, disks: DiskUse) -> None:
        before = self.disk_full, self.queues_full
        if disks.disk_full is not None:
            self.disk_full = disks.disk_full
        if disks.queues_full is not None:
            self.queues_full = disks.queues_full
        self._log.avoid(disks.full_paths)
        after = self.disk_full, self.queues_full
        if after != before:
            if any(after):
                _log.error("%s: %s; no message is taken until there is room", self._root, disks.why)
            else:
                _log.info("%s: there is room on the disk again", self._root)
            self._on_full(*after)

    def _begin(self, now: int, disks: DiskUse, asked: bool) -> CleanReport:
        hour = time.localtime(now / 1000).tm_hour
        because = []
        if hour in self._config.delete_hours:
            because.append(f"it is {hour} o'clock")
        if disks.why is not None:
            because.append(disks.why)
        if asked or self._asked > 0:
            because.append("it was asked for")
        return CleanReport(
            now,
            because,
            at_once=disks.at_once and self._config.clean_file_forcibly_enable,
            disks=disks.shares,
            disk_full=self.disk_full or self.queues_full,
        )

    # ------------------------------------------------------------ the log

    def _candidates(self, now: int, at_once: bool, expired_ms: int | None) -> tuple[list[Cleaned], OldestKept | None]:
        """The files of the log that would go in one run, and the first one that would not."""
        limit = self._config.file_reserved_time * _HOUR if expired_ms is None else expired_ms
        going: list[Cleaned] = []
        files = self._log.files
        for number, path in enumerate(files):
            try:
                info = os.stat(path)
            except OSError as error:
                return going, OldestKept(path, 0, 0, f"{error.strerror}", len(files) - number)
            age = now - info.st_mtime_ns // 1_000_000
            why = None
            if number == len(files) - 1:
                why = "it is the last one"
            elif not at_once and age < limit:
                why = f"it is younger than {_time(limit)}"
            elif len(going) == self._config.delete_file_batch_max:
                why = f"a run deletes {len(going)} files at most"
            if why is not None:
                return going, OldestKept(path, info.st_size, age, why, len(files) - number)
            old = f"older than {_time(limit)}"
            going.append(Cleaned("commitlog", path, info.st_size, age, old if age >= limit else "disk full"))
        return going, None

    def _first_kept(self, now: int, expired_ms: int | None) -> OldestKept | None:
        """The first file of the log, where there is no reason to delete any."""
        going, kept = self._candidates(now, False, expired_ms)
        if not going:
            return kept
        return _kept(going[0], "there is no reason to delete anything now", len(self._log.files))

    def _clean_log(self, now: int, report: CleanReport, expired_ms: int | None) -> None:
        going, report.kept = self._candidates(now, report.at_once, expired_ms)
        limit = self._config.file_reserved_time * _HOUR if expired_ms is None else expired_ms
        for number, one in enumerate(going):
            if number and self._pause(self._config.delete_commit_log_files_interval / 1000):
                report.kept = _kept(one, "the store is being closed", len(self._log.files))
                return
            if not self._is_settled():
                report.kept = _kept(one, "its messages are not in the queues yet", len(self._log.files))
                break
            if self._log.delete_expired(limit, now, immediately=report.at_once, batch=1) == 0:
                report.kept = _kept(one, "it is in use, or in a read-only folder", len(self._log.files))
                if self._hanged != one.path:
                    self._hanged, self._hanged_since, self._retried = one.path, now, now
                break
            _log.info("%s deleted: %s; %s", one.path, one.why, ", ".join(report.because))
            report.deleted.append(one)
        if report.at_once and not report.deleted:
            _log.warning("%s: %s, and no file can go", self._root, report.because[0])

    def _is_settled(self) -> bool:
        """Whether queues and index tell, on the disk, of all that the first file holds."""
        files = self._log.files
        if self._settle is not None and len(files) > 1 and _start(files[1]) > self._settled:
            self._settled = self._settle()
        return len(files) < 2 or _start(files[1]) <= self._settled

    def _retry(self, now: int, report: CleanReport) -> None:
        """Try again to delete the file that was in use, whatever the hour: it takes no new readers since then."""
        path, config = self._hanged, self._config
        if path is None:
            return
        files = self._log.files
        if not files or files[0] != path:
            self._hanged = None
            return
        if now - self._retried < config.redelete_hanged_file_interval or len(files) < 2:
            return
        self._retried = now
        info = os.stat(path)
        if self._is_settled() and self._log.delete_expired(0, now, immediately=True, batch=1) == 1:
            age = now - info.st_mtime_ns // 1_000_000
            report.deleted.append(Cleaned("commitlog", path, info.st_size, age, "no longer in use"))
            report.kept = self._first_kept(now, None)
            self._hanged = None
            _log.info("%s deleted: it is no longer in use", path)
        elif now - self._hanged_since >= config.destroy_maped_file_interval_forcibly:
            _log.warning("%s should go, and has been in use for %s", path, _time(now - self._hanged_since))

    # ------------------------------------------------------------ what follows

    def _clean_derived(self, report: CleanReport, detailed: bool) -> None:
        start = report.min_phy_offset
        if start <= self._cleaned_up_to:
            return
        expected = list(files_before(self._root, start)) if detailed else []
        stopped = []

        def pause() -> bool:
            stopped.append(self._pause(self._config.delete_consume_queue_files_interval / 1000))
            return bool(stopped[-1])

        if self._queues is not None:
            report.derived += sum(self._queues.delete_expired(start, pause).values())
        if not any(stopped):
            if self._index is not None:
                report.derived += self._index.delete_expired(start)
            self._cleaned_up_to = start
        report.deleted += [_cleaned(one) for one in expected if not os.path.exists(one.path)]


def sync_system() -> int:
    """The `settle` of a Cleaner for a store whose writer was killed: what it left in the memory of the system is made
    durable. Its queues may lack the last messages, whose file stays.

    >>> sync_system() > 0
    True
    """
    os.sync()
    return _SETTLED


def expired_queues(ends: Iterable[tuple[str, int, int]], min_phy_offset: int) -> list[tuple[str, int]]:
    """The consume queues that tell of nothing that is left of the log (cleanExpiredConsumerQueue).

    ends  (topic, queue id, physical end of its last record) of each queue; -1: it has none yet, and stays
    System topics stay.

    >>> expired_queues([("old", 0, 500), ("new", 0, 5000), ("empty", 0, -1), ("TBW102", 0, 500)], 1000)
    [('old', 0)]
    """
    return [
        (topic, queue_id)
        for topic, queue_id, end in ends
        if end != -1 and end < min_phy_offset and not is_system_topic(topic)
    ]


def unused_topics(topics: Iterable[str], retain: Iterable[str]) -> list[str]:
    """The topics that are to go if those of `retain` stay (cleanUnusedTopic): no system topics, no light queues.

    >>> unused_topics(["orders", "audit", "%LMQ%a", "TBW102"], retain=["orders"])
    ['audit']
    """
    kept = set(retain)
    unused = (topic for topic in topics if topic not in kept and not is_system_topic(topic))
    return [topic for topic in unused if not topic.startswith(LMQ_PREFIX)]


def _is_written(path: str) -> bool:
    try:
        with open(path, "rb", buffering=0) as file:
            return any(file.read(8))  # the size and the magic code of its first record
    except OSError:
        return True


def _start(path: str) -> int:
    return int(os.path.basename(path))


def _kept(one: Cleaned, why: str, files: int) -> OldestKept:
    return OldestKept(one.path, one.size, one.age, why, files)


def _cleaned(one: DerivedFile) -> Cleaned:
    return Cleaned(one.kind, one.path, one.size, -1, "follows")


def _time(ms: int) -> str:
    units = [(24 * _HOUR, "d"), (_HOUR, "h"), (60_000, "min"), (1000, "s")]
    for unit, name in units if ms >= 7 * 24 * _HOUR else units[1:]:
        if ms % unit == 0 and ms > 0:
            return f"{ms // unit} {name}"
    for unit, name in units:
        if ms >= 2 * unit:
            return f"{ms // unit} {name}"
    return f"{ms} ms"


def _bytes_below(root: str, log_files: Sequence[str]) -> int:
    """Bytes of the log, of the queues and of the index, as their files' lengths say."""
    total = 0
    for path in log_files:
        try:
            total += os.path.getsize(path)
        except OSError:
            continue
    return total + derived_bytes(root)
