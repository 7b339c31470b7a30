"""Cleaning: delete files of a store that are expired, or whose space is needed, by RocketMQ's rules.

Log files are deleted oldest first; the last one is always kept. Files of consume queues and index that refer only to
deleted messages are deleted after them. If RocketMQ's releases differ, the rules are those of RocketMQ 5. There is one
exception: a file that is in use is never deleted, even if its readers hold it for a long time. This module starts no
thread: the owner of the store calls run() every cleanResourceInterval.
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
from rocketc.files.regular import open_regular
from rocketc.rendering import HtmlRepr
from rocketc.store.disk_usage import DiskUse, Levels, LookAt, look
from rocketc.tables.config_manager import Clock, now_ms
from rocketc.tables.topics import is_system_topic

_log = logging.getLogger("rocketc.cleaning")

CHANGEABLE = frozenset(
    {
        "delete_when",
        "file_reserved_time",
        "delete_file_batch_max",
        "delete_commit_log_files_interval",
        "delete_consume_queue_files_interval",
        "redelete_hanged_file_interval",
        "destroy_maped_file_interval_forcibly",
        "clean_file_forcibly_enable",
        "disk_max_used_space_ratio",
        "disk_space_clean_forcibly_ratio",
        "disk_space_warning_level_ratio",
        "replicas_per_disk_partition",
        "logical_disk_space_clean_forcibly_threshold",
        "auto_create_topic_enable",
        "default_topic_queue_nums",
    }
)  # fields of StoreConfig that may be changed while the store is open

_NAME = re.compile(r"[0-9]{20}")
MANUAL_RUNS = 20  # runs for which a request by ask() is valid
_HOUR = 3_600_000  # ms
_SETTLED = 1 << 63  # larger than every physical offset


def refuse_fixed(fields: Iterable[str]) -> None:
    """Raise TypeError for a field of StoreConfig that only an opening uses.

    >>> refuse_fixed(["file_reserved_time"])
    >>> refuse_fixed(["flush_disk_type"])
    Traceback (most recent call last):
    TypeError: flush_disk_type cannot be changed while the store is open
    """
    for name in fields:
        if name not in CHANGEABLE:
            raise TypeError(f"{name} cannot be changed while the store is open")


class LogFiles(Protocol):
    """The commit log's files, for example a MappedFileQueue."""

    @property
    def files(self) -> list[str]: ...
    def avoid(self, folders: Iterable[str]) -> None: ...
    def delete_expired(self, expired_ms: int, now_ms: int, *, immediately: bool = False, batch: int = 10) -> int: ...


class LogOnDisk:
    """The files of a log that no process has open for writing, without preallocated files that are still empty.

    folders    folders of the log
    read_only  more folders of the log; their files are never deleted
    The attribute `limit` is the most files that delete_expired() deletes from now on; None: no limit.

    >>> import tempfile
    >>> LogOnDisk([tempfile.mkdtemp()]).files
    []
    """

    def __init__(self, folders: Iterable[str], read_only: Iterable[str] = ()) -> None:
        self._read_only = list(read_only)
        self.limit: int | None = None
        found = []
        for folder in [*folders, *self._read_only]:
            with errors_named(folder), suppress(FileNotFoundError):
                found += [os.path.join(folder, name) for name in os.listdir(folder) if _NAME.fullmatch(name)]
        self.files = sorted(found, key=_start)
        while len(self.files) > 1 and not _is_written(self.files[-1]):
            self.files.pop()

    def avoid(self, folders: Iterable[str]) -> None:
        """Do nothing: this object does not create files."""

    def delete_expired(self, expired_ms: int, now_ms: int, *, immediately: bool = False, batch: int = 10) -> int:
        """Delete expired files durably, oldest first; return how many. The last file is always kept.

        expired_ms   minimum age: ms since the last change
        now_ms       ms since the epoch
        immediately  True: ignore the age
        batch        the most files to delete
        Stops at the first file that is younger, or is in a read-only folder. Raises StoreIOError.
        """
        deleted = 0
        while len(self.files) > 1 and deleted < batch and self.limit != 0:
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
            if self.limit is not None:
                self.limit -= 1
        return deleted


class Queues(Protocol):
    """The consume queues, for example a ConsumeQueues.

    delete_expired() deletes the files that refer only to messages before a physical offset, and returns the number of
    deleted files of each queue. It calls pause() after each queue that had such files, and stops if the result is true.
    """

    def delete_expired(self, min_phy: int, /, pause: Callable[[], object]) -> dict[str, int]: ...


class Index(Protocol):
    """The key index, for example a KeyIndex. delete_expired() deletes such files too, and returns how many."""

    def delete_expired(self, min_phy: int, /) -> int: ...


@dataclass(frozen=True)
class Cleaned:
    """A file that was deleted, or would be. `age` is ms since its last change, -1 for files of queues and index."""

    kind: str  # "commitlog", "consumequeue", "consumequeue_ext", "batchconsumequeue" or "index"
    path: str
    size: int  # bytes, of which a sparse file may take fewer
    age: int
    why: str


@dataclass(frozen=True)
class OldestKept:
    """The first log file that is kept; all files after it are kept too. `files` is the number of kept files."""

    path: str
    size: int
    age: int
    why: str
    files: int = 1


@dataclass
class CleanReport(HtmlRepr):
    """The result of a run of the cleaner, or of a dry run.

    now             time of the run, ms since the epoch
    because         reasons for the run, as text; empty: there is no reason to delete files
    at_once         True: files are deleted even if they are not expired
    deleted         the deleted files, in the order of deletion
    kept            the first log file that is kept, and the reason; None if the log is empty
    derived         number of deleted files of queues and index
    min_phy_offset  physical offset at which the log begins after the run; -1: the log is empty
    disks           used share of each file system, 0 to 1, by folder; -1: the folder does not exist
    disk_full       True: the store refuses messages because a disk is too full
    dry             True: this was a dry run, no file was deleted
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
        """Total bytes of the deleted files."""
        return sum(one.size for one in self.deleted)

    @property
    def log_files(self) -> int:
        """Number of deleted log files."""
        return sum(one.kind == "commitlog" for one in self.deleted)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a dict for JSON.

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
    """Deletes the files of one store. Use it in one thread at a time.

    log         the log files
    config      deleteWhen, fileReservedTime and the levels of disk use
    queues      the consume queues; None: the store does not have any
    index       the key index; None: the store does not have one
    root        root folder of the store
    clock       returns ms since 1970
    statvfs     os.statvfs, or a replacement for tests
    pause       waits the given seconds between two files; a true result ends the run
    on_full     called with (DISK_FULL, LOGIC_DISK_FULL) when one of these flags changes; the store refuses messages
                while one is set
    settle      flushes log, queues and index; returns the physical offset before which all messages are durably in
                queues and index. Files that end after it are kept: otherwise, after a power cut, the store could give
                the queue offsets of their messages to new ones. None: queues and index are complete and durable

    >>> import tempfile
    >>> from rocketc.files._mapped_file_queue import MappedFileQueue
    >>> root = tempfile.mkdtemp()
    >>> log = MappedFileQueue([root + "/commitlog"], 4096)
    >>> log.make_folders()
    >>> "it was requested" in Cleaner(log, StoreConfig(), root=root).plan(asked=True).because
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
        self._settled = _SETTLED if settle is None else 0  # last result of settle()
        self._asked = 0  # remaining runs of a request by ask()
        self._hanged: str | None = None  # the file that could not be deleted because it was in use
        self._hanged_since = 0
        self._retried = 0  # time of the last attempt to delete that file
        self._cleaned_up_to = 0  # queues and index are cleaned up to this physical offset
        self.disk_full = False
        self.queues_full = False

    def configure(self, config: StoreConfig) -> None:
        """Take other settings from the next run on."""
        self._config, self._levels = config, Levels.of(config)

    def ask(self, runs: int = MANUAL_RUNS) -> None:
        """Let the next runs delete expired files at any hour (executeDeleteFilesManually)."""
        self._asked = runs

    def plan(self, now: int | None = None, *, asked: bool = False, expired_ms: int | None = None) -> CleanReport:
        """Return a report of what run() would do now. Nothing is deleted, and flags and counters do not change.

        now         ms since the epoch; None: the clock's time
        asked       True: as after ask()
        expired_ms  minimum age of an expired file: ms since its last change; None: fileReservedTime
        run() keeps a file that is in use and all files after it. plan() does not check this.
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
        """Delete up to deleteFileBatchMax log files, then the files of queues and index for them.

        now, asked, expired_ms  as in plan()
        detailed                True: the report also names the files of queues and index, not only their number
        Raises StoreIOError if a file can't be deleted, and the errors of `settle`. Files deleted before the error stay
        deleted.
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
        """Delete the log files that end at or before a physical offset, and the files of queues and index for them.

        The caller makes sure that the messages are not needed any more. Age, hour and disk use do not matter. The last
        file is kept. Raises StoreIOError if a file can't be deleted; files deleted before the error stay deleted.
        """
        now = self._clock()
        why = f"messages before physical offset {phy_offset} are not needed any more"
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
        queues = os.path.join(self._root, "consumequeue")  # RocketMQ always creates it; here the first queue does
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
                _log.error("%s: %s; messages are refused until there is space", self._root, disks.why)
            else:
                _log.info("%s: there is space on the disk again", self._root)
            self._on_full(*after)

    def _begin(self, now: int, disks: DiskUse, asked: bool) -> CleanReport:
        hour = time.localtime(now / 1000).tm_hour
        because = []
        if hour in self._config.delete_hours:
            because.append(f"it is {hour} o'clock")
        if disks.why is not None:
            because.append(disks.why)
        if asked or self._asked > 0:
            because.append("it was requested")
        return CleanReport(
            now,
            because,
            at_once=disks.at_once and self._config.clean_file_forcibly_enable,
            disks=disks.shares,
            disk_full=self.disk_full or self.queues_full,
        )

    # ------------------------------------------------------------ the log

    def _candidates(self, now: int, at_once: bool, expired_ms: int | None) -> tuple[list[Cleaned], OldestKept | None]:
        """Return the log files that one run would delete, and the first one that it would keep."""
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
                why = f"a run deletes at most {len(going)} files"
            if why is not None:
                return going, OldestKept(path, info.st_size, age, why, len(files) - number)
            old = f"older than {_time(limit)}"
            going.append(Cleaned("commitlog", path, info.st_size, age, old if age >= limit else "disk full"))
        return going, None

    def _first_kept(self, now: int, expired_ms: int | None) -> OldestKept | None:
        """Return the first log file, for a run without a reason to delete files."""
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
            _log.warning("%s: %s, but no file can be deleted", self._root, report.because[0])

    def _is_settled(self) -> bool:
        """Return True if all messages of the first file are durably in queues and index."""
        files = self._log.files
        if self._settle is not None and len(files) > 1 and _start(files[1]) > self._settled:
            self._settled = self._settle()
        return len(files) < 2 or _start(files[1]) <= self._settled

    def _retry(self, now: int, report: CleanReport) -> None:
        """Try again, at any hour, to delete the file that was in use. Since then it does not accept new readers."""
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
            _log.warning("%s should be deleted, but has been in use for %s", path, _time(now - self._hanged_since))

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
    """Make all files of the system durable: the `settle` of a Cleaner for a store whose writer was killed.

    The queues may lack the last messages; the file of these messages is kept.

    >>> sync_system() > 0
    True
    """
    os.sync()
    return _SETTLED


def expired_queues(ends: Iterable[tuple[str, int, int]], min_phy_offset: int) -> list[tuple[str, int]]:
    """Return the consume queues whose messages are all deleted from the log (cleanExpiredConsumerQueue).

    ends  (topic, queue id, physical end of the last record) of each queue; -1: the queue is empty, and is kept
    Queues of system topics are kept.

    >>> expired_queues([("old", 0, 500), ("new", 0, 5000), ("empty", 0, -1), ("TBW102", 0, 500)], 1000)
    [('old', 0)]
    """
    return [
        (topic, queue_id)
        for topic, queue_id, end in ends
        if end != -1 and end < min_phy_offset and not is_system_topic(topic)
    ]


def unused_topics(topics: Iterable[str], retain: Iterable[str]) -> list[str]:
    """Return the topics to delete: all but those of `retain`, system topics and light queues (cleanUnusedTopic).

    >>> unused_topics(["orders", "audit", "%LMQ%a", "TBW102"], retain=["orders"])
    ['audit']
    """
    kept = set(retain)
    unused = (topic for topic in topics if topic not in kept and not is_system_topic(topic))
    return [topic for topic in unused if not topic.startswith(LMQ_PREFIX)]


def _is_written(path: str) -> bool:
    try:
        with open(path, "rb", buffering=0, opener=open_regular) as file:
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
    """Return the bytes of log, queues and index: the sum of the lengths of their files."""
    total = 0
    for path in log_files:
        try:
            total += os.path.getsize(path)
        except OSError:
            continue
    return total + derived_bytes(root)
