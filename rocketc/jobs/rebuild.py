"""Rebuild the consume queues and the index of a store from its log. No process may have the store open.

The new files are built in the folder `rebuild` in the store's root. They replace the old files when they are complete
and durable. If the process is killed before that, nothing has changed; later, the next opening completes the rebuild.
The log is only read, and damage in it is skipped.

One thread writes each queue in the order of the log, so the files equal RocketMQ's byte for byte. More threads would
not help: at 9 M records of 230 bytes (2 GB of log) per second, the disk is the limit.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rocketc.config import StoreConfig
from rocketc.derived._consume_queues import ConsumeQueues
from rocketc.derived._dispatcher import Dispatcher
from rocketc.derived._key_index import KeyIndex
from rocketc.derived.queue_files import QUEUE_FOLDERS, detect_file_sizes, files_below, index_below, queues_below
from rocketc.errors import StoreIOError
from rocketc.files import _checkpoint
from rocketc.files.durable import errors_named, make_folder, sync_folder, sync_tree
from rocketc.files.lock_file import AbortFile, StoreLock
from rocketc.files.paths import LogFile, StrPath, resolve
from rocketc.files.remote import refuse_urls
from rocketc.jobs.verify_derived import load_unmodified
from rocketc.read._filter import Filter
from rocketc.read._walk import Walker
from rocketc.read.scan_report import Damage
from rocketc.read.scan_run import open_walker
from rocketc.rendering import HtmlRepr
from rocketc.store.catch_up import clear_queue_sums
from rocketc.store.opening import batch_topics, refuse_links, with_detected_file_size
from rocketc.tables.deleted_topics import DeletedTopics

QueueStarts = Mapping[tuple[str, int], tuple[int, int]]  # topic, queue id -> physical offset, queue offset

FOLDER = "rebuild"  # below the root, during the rebuild

_CRC_NONE = 0
_UPDATE_EVERY = 0.1  # seconds


@dataclass
class RebuildReport(HtmlRepr):
    """What rebuild() wrote.

    start, stop  physical offsets: the first byte of the log, and the end of its last record
    bytes        of the log that were read
    queues       number of queues
    messages     in queues; prepared and rolled back messages are in none
    keys         in the index
    files        path below the root -> bytes, of each new file
    unqueued     records that no queue could take: the topic is not a valid folder name, or the queue offset is
                 impossible
    damage       damaged ranges of the log; their records are in no queue
    missing      ranges of physical offsets between files for which there is no file
    seconds      duration
    """

    start: int = 0
    stop: int = 0
    bytes: int = 0
    queues: int = 0
    messages: int = 0
    keys: int = 0
    files: dict[str, int] = field(default_factory=dict)
    unqueued: int = 0
    damage: list[Damage] = field(default_factory=list)
    missing: list[tuple[int, int]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_whole(self) -> bool:
        """Whether the log is intact and every message is in its queue."""
        return not (self.damage or self.missing or self.unqueued)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict.

        >>> RebuildReport(stop=4096, queues=2).to_dict()["queues"]
        2
        """
        return {
            "isWhole": self.is_whole, "start": self.start, "stop": self.stop, "bytes": self.bytes,
            "queues": self.queues, "messages": self.messages, "keys": self.keys,
            "files": [{"path": path, "size": size} for path, size in self.files.items()], "unqueued": self.unqueued,
            "damage": [{"start": d.start, "stop": d.stop, "reason": d.reason} for d in self.damage],
            "missing": [{"start": start, "stop": stop} for start, stop in self.missing],
            "seconds": round(self.seconds, 3),
        }  # fmt: skip


def rebuild(
    path: StrPath,
    only: Literal["cq", "index"] | None = None,
    *,
    config: StoreConfig | None = None,
    tell: Callable[[int], None] | None = None,
) -> RebuildReport:
    """Rebuild the consume queues and the index of a store from its log.

    path    the store's root folder; no process may have the store open
    only    "cq": the queues; "index": the index; None: both
    config  the broker's settings that determine these files; None: take the sizes from the existing files, otherwise
            RocketMQ's defaults
    tell    called a few times a second with the bytes of the log read so far

    The old files are kept until the new ones are complete, so the disk must have room for both. If the process is
    killed, the store is unchanged, or the next opening completes the rebuild. Raises StoreLockedError, StoreIOError (no
    log, or a disk error) and StoreFullError; nothing is changed then.

    >>> import os, rocketc, shutil, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with rocketc.open(folder, mapped_file_size_commit_log=1 << 20, max_index_num=100) as store:
    ...     r = store.put("orders", b"hello", keys="k1")
    >>> shutil.rmtree(os.path.join(folder, "consumequeue"))
    >>> report = rocketc.rebuild(folder)
    >>> report.queues, report.messages, report.keys
    (1, 1, 1)
    """
    if only not in (None, "cq", "index"):
        raise ValueError(f"only={only!r}: must be 'cq', 'index' or None")
    return rebuild_files(path, only, config, tell, None)


def rebuild_files(
    path: StrPath,
    only: Literal["cq", "index"] | None,
    config: StoreConfig | None,
    update: Callable[[int], None] | None,
    claims: QueueStarts | None,
) -> RebuildReport:
    """Do the work of rebuild().

    claims  the record with which each queue begins, as returned by ConsumeQueues.claims(); None: read it from the old
            files

    >>> rebuild_files("nowhere", None, None, None, {})
    Traceback (most recent call last):
    rocketc.errors.StoreIOError: [Errno 2] No such file or directory: 'nowhere'
    """
    begun = time.monotonic()
    refuse_urls([os.fspath(path)], "rebuild()")
    root = os.path.abspath(os.fspath(path))
    settings = with_detected_file_size(root, config if config is not None else detect_file_sizes(root, StoreConfig()))
    folders = [path for path in (*settings.commit_log_paths(root), *settings.read_only_paths) if os.path.isdir(path)]
    logs = resolve(folders) if folders else []
    files = logs[0].files if len(logs) == 1 else ()
    if not files:
        why = "no commit log to rebuild from" if os.path.lexists(root) else os.strerror(errno.ENOENT)
        raise StoreIOError(errno.ENOENT, why, os.fspath(path))
    refuse_links(root, settings)
    lock = StoreLock(root, settings.commit_log_paths(root))
    try:
        work = os.path.join(root, FOLDER)
        _remove(work)
        try:
            run = _Run(root, work, settings, only, claims)
            run.read(files, update)
            _replace(root, work, run.kinds, run.index_timestamp)
        finally:
            _remove(work)
    finally:
        lock.release()
    run.report.missing = list(logs[0].missing)
    run.report.seconds = time.monotonic() - begun
    return run.report


class _Run:
    """Builds new queues and a new index from a log, in a folder of their own."""

    def __init__(self, root: str, work: str, config: StoreConfig, only: str | None, claims: QueueStarts | None) -> None:
        self.kinds = {"cq": QUEUE_FOLDERS, "index": ("index",), None: (*QUEUE_FOLDERS, "index")}[only]
        self.report = RebuildReport()
        self.index_timestamp: int | None = None
        self._work = work
        self._only = only
        make_folder(work)
        queues = queues_below(work, config, batch_topics=batch_topics(root))
        index = None
        if only == "index" or (only is None and config.message_index_enable):
            index = index_below(work, config)
            index.load()
        self._config = config
        old = load_unmodified(root, config)
        self._claims = old.claims() if claims is None else claims
        deleted = DeletedTopics(root)
        deleted.remove_recreated(old.remaining(deleted.ends))
        old.close()
        self._deleted_topics = deleted.offsets()
        self._dispatcher = self._new_dispatcher(queues, index)

    def _new_dispatcher(self, queues: ConsumeQueues, index: KeyIndex | None) -> Dispatcher:
        dispatcher = Dispatcher(queues, index, self._config)
        dispatcher.leave_out(self._deleted_topics)
        return dispatcher

    def read(self, files: Sequence[LogFile], update: Callable[[int], None] | None) -> None:
        """Dispatch the whole log and make the new files durable."""
        report, dispatcher = self.report, self._dispatcher
        queues, index = dispatcher.queues, dispatcher.index
        first = files[0].origin
        report.start = report.stop = first
        dispatcher.start_at(first if self._only != "index" else 1 << 62, first, whole=True)
        with _progress_thread(update) as read:
            for file in files:
                self._read_file(file, read)
        dispatcher.finish(report.stop, first)
        report.unqueued = dispatcher.unqueued
        if queues.repeated():
            self._read_again(files, first)
        found = list(queues.items())
        report.queues = len(found)
        report.messages = sum(queues.messages(*queue) for queue in found)
        if index is not None:
            self.index_timestamp = index.flush()
            report.keys = sum(max(header.index_count - 1, 0) for _, header in index.headers())
            index.free_rest()
            index.close()
        queues.free_rest()
        queues.close()
        report.files = {os.path.relpath(path, self._work): size for path, size in files_below(self._work)}
        sync_tree(self._work)

    def _read_again(self, files: Sequence[LogFile], first: int) -> None:
        """Dispatch again if queue offsets repeat: queues of deleted topics begin where their old files begin."""
        queues = self._dispatcher.queues
        again = [queue for queue in queues.repeated() if queue in self._claims]
        for topic, queue_id in again:
            queues.claim(topic, queue_id, *self._claims[topic, queue_id])
        while again:  # again if an old file proves wrong
            dispatcher = self._new_dispatcher(queues, None)
            dispatcher.start_at(first, first, whole=True)
            for file in files:
                dispatcher.take(_walker(file))
            dispatcher.finish(self.report.stop, first)
            self.report.unqueued = dispatcher.unqueued
            if not queues.has_mismatch:
                break

    def _read_file(self, file: LogFile, read: list[Any]) -> None:
        report = self.report
        walker = _walker(file)
        read[1:] = [walker]
        self._dispatcher.take(walker)
        report.bytes += walker.walked
        report.stop = max(report.stop, walker.position)
        report.damage += [Damage(file.path, *entry) for entry in walker.damage]
        read[:] = [report.bytes]


def _walker(file: LogFile) -> Walker:
    return open_walker(file, Filter(), crc=_CRC_NONE, errors="report")


@contextlib.contextmanager
def _progress_thread(update: Callable[[int], None] | None) -> Iterator[list[Any]]:
    """While entered, a thread reports the bytes read: those of finished files and those of the current walker."""
    read: list[Any] = [0]
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(_UPDATE_EVERY):
            if update is not None:
                update(read[0] + sum(walker.walked for walker in read[1:]))

    thread = threading.Thread(target=run, name="rocketc-rebuild", daemon=True)
    if update is not None:
        thread.start()
    try:
        yield read
    finally:
        ended.set()
        if update is not None:
            thread.join()
            update(read[0])


def _replace(root: str, work: str, kinds: tuple[str, ...], index_timestamp: int | None) -> None:
    """Replace the old folders by the new ones.

    During the replacement, the abort file exists and the checkpoint says that nothing in these files is durable. An
    opening after a crash then dispatches the whole log again.
    """
    abort = AbortFile(root)
    path = os.path.join(root, "checkpoint")
    checkpoint = _checkpoint.read(path)
    marked = not abort.exists() and checkpoint.physic_msg_timestamp > 0
    if checkpoint.physic_msg_timestamp > 0:
        _checkpoint.write(path, checkpoint._replace(logics_msg_timestamp=0, index_msg_timestamp=0))
    if marked:
        abort.create()
    if kinds != ("index",):
        clear_queue_sums(path)
    for kind in kinds:
        old, new = os.path.join(root, kind), os.path.join(work, kind)
        with errors_named(old):
            if os.path.lexists(old):
                os.rename(old, os.path.join(work, "old " + kind))
            if os.path.lexists(new):
                os.rename(new, old)
    sync_folder(root)
    if checkpoint.physic_msg_timestamp > 0:
        if kinds != ("index",):  # the queues now have everything that is durable in the log
            checkpoint = checkpoint._replace(logics_msg_timestamp=checkpoint.physic_msg_timestamp)
        if index_timestamp is not None:
            checkpoint = checkpoint._replace(index_msg_timestamp=index_timestamp)
        _checkpoint.write(path, checkpoint)
    if marked:
        abort.remove()


def _remove(folder: str) -> None:
    import shutil  # late: `import rocketc` is quicker without it

    with errors_named(folder), contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)
