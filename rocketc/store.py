"""rocketc.open(): a store's files, its lock and its recovery, put together to a MessageStore."""

from __future__ import annotations

import logging
import os
from typing import Any

from rocketc import _checkpoint
from rocketc._commit_log import CommitLog
from rocketc._locks import LOCKS, AdaptiveLock
from rocketc._mapped_file_queue import MappedFileQueue
from rocketc._message import Message
from rocketc._store import MessageStore
from rocketc.config import StoreConfig
from rocketc.errors import StoreIOError
from rocketc.futures import LoopWaiters, PutFuture
from rocketc.paths import StrPath, resolve
from rocketc.queue_files import queues_end
from rocketc.recovery import Recovery, recover
from rocketc.running import AbortFile, StoreLock, make_folder

_log = logging.getLogger("rocketc.store")


def open(
    path: StrPath,
    *,
    flush: str | None = None,
    lock: str | None = None,
    read_only: bool = False,
    config: StoreConfig | None = None,
    **fields: Any,
) -> MessageStore:
    """Open a store for writing, made if it is not there; it is recovered first if it was not closed.

    path       its root folder; the log is in `commitlog` below it unless the settings say otherwise
    flush      "async" (default): a put is durable some hundred ms later; "sync": before it returns
    lock       what guards the end of the log: "reentrant" (default), "spin" or "adaptive"
    read_only  take no lock and write nothing; puts are refused
    config     a StoreConfig; the other keywords are its fields and win over it
    A log whose files have another size than the default keeps its size, unless the settings name one.
    Raises StoreLockedError if another process, or this one, has it open; StoreIOError; StoreFullError.

    >>> import rocketc, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with rocketc.open(folder, mapped_file_size_commit_log=1 << 20) as store:
    ...     store.put("orders", b"hello").status.name
    'PUT_OK'
    >>> [m.body for m in rocketc.scan(folder)]
    [b'hello']
    """
    root = os.path.abspath(os.fspath(path))
    settings = StoreConfig.of(flush=flush, lock=lock, config=config, **fields)
    if config is None and "mapped_file_size_commit_log" not in fields:
        settings = _with_size_found(root, settings)
    if settings.duplication_enable:
        raise ValueError("duplication_enable is True; that comes with replication, which is not there yet")
    if read_only:
        return MessageStore._make(root, settings, None, ReadOnlyRoot(root), PutFuture, LoopWaiters)
    make_folder(root)
    return MessageStore._make(root, settings, *StoreRoot.open(root, settings), PutFuture, LoopWaiters)


class StoreRoot:
    """What belongs to a store beside its log: the lock file, the abort file, the checkpoint."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._lock = StoreLock(root)
        self._abort = AbortFile(root)
        self._checkpoint_fd = -1
        self._queues_end: int | None = None
        self.recovery: Recovery | None = None

    @classmethod
    def open(cls, root: str, config: StoreConfig) -> tuple[CommitLog, StoreRoot]:
        """Take the lock, recover the log, start its threads."""
        self = cls(root)
        try:
            return self._start(config), self
        except BaseException:
            self._release()
            raise

    def _start(self, config: StoreConfig) -> CommitLog:
        queue = MappedFileQueue(
            config.commit_log_paths(self._root), config.mapped_file_size_commit_log, config.read_only_paths
        )
        queue.make_folders()
        queue.load()
        checkpoint_path = os.path.join(self._root, "checkpoint")
        checkpoint = _checkpoint.read(checkpoint_path)

        def on_file(_: str, timestamp: int) -> None:
            nonlocal checkpoint
            if timestamp > checkpoint.physic_msg_timestamp:
                checkpoint = checkpoint._replace(physic_msg_timestamp=timestamp)
                _checkpoint.write(checkpoint_path, checkpoint)

        self.recovery, offsets = recover(
            self._root,
            queue,
            clean=not self._abort.exists(),
            checkpoint=checkpoint,
            crc=config.check_crc_on_recover,
            property_crc=config.force_verify_prop_crc,
            stripes=config.topic_queue_lock_num,
            on_file=on_file,
        )
        if not self.recovery.clean:
            _log.info("%s: recovered; the log goes on at physical offset %d", self._root, self.recovery.end)
        self._queues_end = queues_end(self._root)
        lock = AdaptiveLock(config.spin_lock_collision_retreat_optimal_degree)
        log = CommitLog(queue, offsets, lock if config.lock == "adaptive" else LOCKS[config.lock](), config)
        if not os.path.exists(checkpoint_path):
            _checkpoint.write(checkpoint_path, checkpoint)
        self._checkpoint_fd = os.open(checkpoint_path, os.O_RDWR | os.O_CLOEXEC)
        self._abort.create()
        found = self.recovery
        log.start(
            self._checkpoint_fd, tuple(checkpoint), last_record_end=found.last_record_end, timestamp=found.timestamp
        )
        return log

    def close(self, flushed: bool, log: CommitLog) -> None:
        """The end of a store whose threads have stopped. What is not flushed, or not in the consume queues, is told by
        the abort file, which stays then: RocketMQ goes through the log at its next start (store.md 7.2)."""
        try:
            if flushed and (self._queues_end is None or log.last_record_end <= self._queues_end):
                self._abort.remove()
            elif flushed:
                _log.info("%s: the consume queues lag behind the log, so `abort` stays", self._root)
        finally:
            self._release()

    def _release(self) -> None:
        if self._checkpoint_fd >= 0:
            os.close(self._checkpoint_fd)
            self._checkpoint_fd = -1
        self._lock.release()


class ReadOnlyRoot:
    """A store that somebody else may be writing: what can be told of it from its files."""

    def __init__(self, root: str) -> None:
        self._root = root
        resolve(root)  # there is a log

    @property
    def min_phy_offset(self) -> int:
        return min((file.base or 0 for log in resolve(self._root) for file in log.files), default=0)

    @property
    def max_phy_offset(self) -> int:
        from rocketc.scan import scan

        files = [file for log in resolve(self._root) for file in log.files]
        if not files:
            return 0
        found = scan(files[-1], errors="report", crc="none")
        last = files[-1].base or 0
        for message in found:
            last = message.phy_offset + message.store_size
        return last

    def message(self, phy_offset: int) -> Message | None:
        from rocketc.scan import scan

        found = scan(self._root, start=phy_offset, stop=phy_offset + 1, errors="skip")
        return next((m for m in found if m.phy_offset == phy_offset), None)


def _with_size_found(root: str, config: StoreConfig) -> StoreConfig:
    """The settings with the size that the files of an existing log have."""
    files: list[tuple[int, int]] = []
    for folder in [*config.commit_log_paths(root), *config.read_only_paths]:
        if not os.path.isdir(folder):
            continue
        try:
            with os.scandir(folder) as entries:
                files += [(int(e.name), e.stat().st_size) for e in entries if e.name.isdigit() and e.is_file()]
        except OSError as error:
            raise StoreIOError(error.errno, error.strerror, folder) from None
    files.sort()
    if len(files) > 1 and files[-1][1] < files[0][1]:
        files.pop()  # it was not given its length
    sizes = {size for _, size in files} - {0}
    return config.replace(mapped_file_size_commit_log=sizes.pop()) if len(sizes) == 1 else config
