"""rocketc.open(): lock a store, recover it, and return a MessageStore."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections import Counter
from collections.abc import Set
from functools import partial
from typing import TYPE_CHECKING

from rocketc.config import StoreConfig, named_sizes, refuse_sync_master, refuse_unknown
from rocketc.config_fields import ConfigFields, Flush, Lock
from rocketc.derived._consume_queues import ConsumeQueues
from rocketc.derived._index_reader import IndexFile
from rocketc.derived._key_index import KeyIndex
from rocketc.derived._reput import ReputService
from rocketc.derived.queue_files import QUEUE_FOLDERS, index_below, presume_sizes, queues_below
from rocketc.errors import RocketcError, StoreIOError
from rocketc.files import _checkpoint
from rocketc.files._mapped_file_queue import MappedFileQueue
from rocketc.files.durable import errors_named, make_folder, sync_folder
from rocketc.files.lock_file import AbortFile, StoreLock
from rocketc.files.paths import LogFile, StrPath, resolve
from rocketc.files.regular import refuse_linked_folders
from rocketc.files.remote import refuse_urls
from rocketc.log._commit_log import CommitLog
from rocketc.log._lock_watch import LockWatch
from rocketc.log._put_locks import LOCKS, AdaptiveLock
from rocketc.log.recovery import Recovery, recover
from rocketc.read.parallel import processors
from rocketc.store._lookups import Lookups
from rocketc.store._queue_reader import QueueReader
from rocketc.store._store import MessageStore
from rocketc.store.alarms import Alarms
from rocketc.store.catch_up import CatchUpReport, catch_up, indexed_up_to, missing_queues, save_queue_sums
from rocketc.store.futures import EventLoops, PutFuture
from rocketc.store.maintenance import Maintenance
from rocketc.store.stepping import Stepper, StoreClock
from rocketc.store.subscriptions import Subscriptions
from rocketc.tables.config_manager import Clock, now_ms
from rocketc.tables.deleted_topics import DeletedTopics, end_deletions
from rocketc.tables.table_file import read_table
from rocketc.tables.topics import Topics

if TYPE_CHECKING:
    from typing_extensions import Unpack

_log = logging.getLogger("rocketc.store")


def open(
    path: StrPath,
    *,
    flush: Flush | None = None,
    lock: Lock | None = None,
    read_only: bool = False,
    clock: Clock | None = None,
    background: bool = True,
    config: StoreConfig | None = None,
    **fields: Unpack[ConfigFields],
) -> MessageStore:
    """Open a store for writing, and return a MessageStore.

    The store is created if it does not exist, and recovered if it was not closed.
    path       root folder of the store; the log is in its folder `commitlog`, unless the settings name another one
    flush      "async" (default): a put is durable some hundred ms later; "sync": before it returns
    lock       the put lock, which guards the end of the log: "reentrant" (default), "spin" or "adaptive"
    read_only  True: do not take the store's lock, and do not write; puts are refused
    clock      only with background=False: a function that returns ms since the epoch, for store timestamps and all
               intervals; None: the time of day. It is read once by each put (put_many: once for each 1,024 messages),
               by create_topic() and the methods that delete, and by step()
    background  False: the store starts no threads; step() does their work. The same calls with the same times write the
               same bytes; a simulation needs this
    config     a StoreConfig; the other keywords are its fields, and override it
    Damaged records are skipped, all others stay readable. After a crash, a damaged end of the log is cut off and kept;
    with recovery="java" the log is cut where RocketMQ cuts it. An existing store keeps the sizes of its files, unless
    the settings name another size than a default.
    `async with rocketc.open(...)` works too: opening blocks the event loop, closing does not.
    Raises StoreLockedError if another process, or this one, has it open; StoreIOError, also if the path is a file;
    StoreFullError; TypeError for an unknown keyword; ValueError for a clock without background=False, and for
    broker_role="SYNC_MASTER": a put does not wait for replicas. A broker does, and so can rocketc.ha.Master.

    >>> import rocketc, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with rocketc.open(folder, mapped_file_size_commit_log=1 << 20) as store:
    ...     store.put("orders", b"hello").status.name
    'PUT_OK'
    >>> [m.body for m in rocketc.scan(folder)]
    [b'hello']
    """
    refuse_unknown("open()", fields, open.__kwdefaults__ or ())
    refuse_urls([os.fspath(path)], "open()")
    if clock is not None and background:
        raise ValueError("clock needs background=False: the background threads of a store use the time of day")
    root = os.path.abspath(os.fspath(path))
    _refuse_file(root)
    settings = StoreConfig.of(flush=flush, lock=lock, config=config, **fields)
    if not read_only:
        try:
            refuse_sync_master(settings)
        except ValueError as error:
            raise ValueError(f"{root}: {error}") from None
    return _open(root, settings, fields.keys() | named_sizes(settings), read_only, clock, background)


def open_master(
    path: StrPath, config: StoreConfig, *, clock: Clock | None = None, background: bool = True
) -> MessageStore:
    """Open a store for a caller that waits for replicas itself, as a broker does: broker_role may be "SYNC_MASTER".

    The arguments and errors are those of open().

    >>> import tempfile
    >>> config = StoreConfig(broker_role="SYNC_MASTER", mapped_file_size_commit_log=1 << 20)
    >>> with open_master(tempfile.mkdtemp(), config) as store:
    ...     store.config.broker_role
    'SYNC_MASTER'
    """
    refuse_urls([os.fspath(path)], "a broker")
    root = os.path.abspath(os.fspath(path))
    _refuse_file(root)
    return _open(root, config, named_sizes(config), False, clock, background)


def _open(
    root: str,
    settings: StoreConfig,
    named: Set[str],
    read_only: bool,
    clock: Clock | None,
    background: bool,
) -> MessageStore:
    """Do the work of open(). `named` are the fields that the caller has set."""
    if "mapped_file_size_commit_log" not in named:
        settings = with_detected_file_size(root, settings)
    if not named & {"max_hash_slot_num", "max_index_num"}:
        settings = _with_index_found(root, settings)
    settings = presume_sizes(root, settings, named)
    if settings.duplication_enable:
        raise ValueError("duplication_enable is True; this setting is not supported yet")
    waiters = (PutFuture, EventLoops, Subscriptions)
    if read_only:
        there = ReadOnlyRoot(root, settings)
        return MessageStore._make(root, settings, there, *_readers(root, settings), None, waiters)
    times = None if background else StoreClock(clock)
    make_folder(root)
    dispatcher, owner, stepper = StoreRoot.open(root, settings, times)
    try:
        reader = QueueReader(dispatcher.log.queue, dispatcher.queues, settings)
        lookups = Lookups(reader, dispatcher.index, dispatcher.log.offsets)
        maintenance = partial(
            Maintenance,
            root,
            settings,
            dispatcher.log.queue,
            dispatcher.queues,
            dispatcher.index,
            on_cleaned=owner.note_cleaned,
            settle=dispatcher.settle,
            deleted=owner.deleted,
            clock=now_ms if times is None else times.last,
            background=background,
        )
        alarms = Alarms(root, dispatcher, settings)
        if settings.has_store_pool and settings.flush == "sync":
            text = (
                "transient_store_pool_enable with SYNC_FLUSH: each put waits until its bytes are copied from the pool "
                "to the log file and flushed; turn one of them off"
            )
            _log.warning("%s: %s", root, text)
        return MessageStore._make(
            root, settings, owner, reader, lookups, dispatcher, waiters, maintenance, alarms, stepper
        )
    except BaseException:
        dispatcher.stop()
        dispatcher.log.stop()
        owner.end(False)
        owner.release()
        raise


def _readers(root: str, config: StoreConfig) -> tuple[QueueReader, Lookups]:
    """Return the readers of a store that is open for reading only; another process may write it."""
    log = MappedFileQueue(
        config.commit_log_paths(root), config.mapped_file_size_commit_log, config.read_only_paths, only_read=True
    )
    log.load()
    queues = ConsumeQueues(
        root,
        config.mapped_file_size_consume_queue,
        config.mapper_file_size_batch_consume_queue,
        open_queues=config.max_open_consume_queues,
        read_only=True,
    )
    with contextlib.ExitStack() as undo:
        undo.callback(queues.close)
        queues.load()
        reader = QueueReader(log, queues, config)
        index = None
        if config.message_index_enable:
            index = index_below(root, config, read_only=True)
            undo.callback(index.close)
            index.load()
        undo.pop_all()
        return reader, Lookups(reader, index)


class StoreRoot:
    """The files of a store other than log, queues and index: the lock file, the abort file and the checkpoint."""

    def __init__(self, root: str, config: StoreConfig) -> None:
        self._root = root
        self._lock = StoreLock(root, config.commit_log_paths(root))
        self._watch: LockWatch | None = None
        self._abort = AbortFile(root)
        self._checkpoint_fd = -1
        self._mapped: list[ConsumeQueues | KeyIndex] = []  # until the threads start, which close them at their end
        self._log: CommitLog | None = None
        self._queues: ConsumeQueues | None = None
        self._index: KeyIndex | None = None
        self.deleted: DeletedTopics | None = None
        self.recovery: Recovery | None = None
        self.caught_up: CatchUpReport | None = None

    @classmethod
    def open(
        cls, root: str, config: StoreConfig, clock: StoreClock | None = None
    ) -> tuple[ReputService, StoreRoot, Stepper | None]:
        """Lock the store, recover the log, let queues and index catch up, and start the threads.

        clock  of a store without threads: a Stepper is returned, and no threads start; None: the store has threads
        """
        refuse_links(root, config)
        self = cls(root, config)
        try:
            dispatcher, stepper = self._start(config, clock)
            return dispatcher, self, stepper
        except BaseException:
            for one in self._mapped:
                one.close()
            self.release()
            raise

    def _start(self, config: StoreConfig, clock: StoreClock | None) -> tuple[ReputService, Stepper | None]:
        queue = MappedFileQueue(
            config.commit_log_paths(self._root), config.mapped_file_size_commit_log, config.read_only_paths
        )
        clean = not self._abort.exists()
        queue.load(crashed=not clean)
        checkpoint_path = os.path.join(self._root, "checkpoint")
        checkpoint = _checkpoint.read(checkpoint_path)

        queued = _checkpoint.queued_offset(checkpoint_path, checkpoint)
        indexed = _checkpoint.indexed_offset(checkpoint_path, checkpoint)

        def on_file(path: str, timestamp: int) -> None:
            nonlocal checkpoint
            if timestamp > checkpoint.physic_msg_timestamp:
                checkpoint = checkpoint._replace(physic_msg_timestamp=timestamp)
                end = int(os.path.basename(path)) + config.mapped_file_size_commit_log
                _checkpoint.write(checkpoint_path, checkpoint, flushed=end)

        queues = queues_below(self._root, config, batch_topics=batch_topics(self._root))
        self._mapped.append(queues)
        queues.load(crashed=not clean)
        if not queue.files and checkpoint.physic_msg_timestamp > 0:
            _refuse_missing_log(config.commit_log_paths(self._root), queues)
        queue.make_folders()
        self._lock.take_folders(config.commit_log_paths(self._root))  # those that are new
        flushed = _checkpoint.flushed_offset(checkpoint_path, checkpoint)
        deleted = self.deleted = DeletedTopics(self._root)
        if deleted.ends and not clean:
            sync_folder(os.path.dirname(deleted.path))  # make the table durable before it causes deletions
        empty = queues.without_units(deleted.behind(queue.min_offset))
        ended = end_deletions(deleted, queues.remaining(deleted.ends), empty, queues.delete)
        self.recovery, offsets = recover(
            self._root,
            queue,
            queues,
            clean=clean,
            checkpoint=checkpoint,
            flushed=flushed,
            queued=queued,
            crc=config.check_crc_on_recover,
            property_crc=config.force_verify_prop_crc,
            stripes=config.topic_queue_lock_num,
            on_file=on_file,
            deleted_topics=deleted.offsets(),
            policy=config.recovery,
            index_safe=config.message_index_enable and config.message_index_safe,
            threads=processors() if clock is None else 1,
        )
        deleted.end_with(self.recovery.end)
        if not self.recovery.clean:
            _log.info("%s: recovered; the log continues at physical offset %d", self._root, self.recovery.end)
        index = _index(self._root, config)
        if index is not None:
            self._mapped.append(index)
        problems = [*ended, *queues.errors]
        problems += index.load(clean, checkpoint.index_msg_timestamp, queued) if index is not None else ()
        problems += missing_queues(checkpoint_path, queues, queue.min_offset, self.recovery.end, clean=clean)
        lock = AdaptiveLock(config.spin_lock_collision_retreat_optimal_degree)
        put_lock = lock if config.lock == "adaptive" else LOCKS[config.lock]()
        log = CommitLog(queue, offsets, put_lock, config, clock is None)
        log.check_queue_room(self._root)
        dispatcher = ReputService(queues, index, config, log, clock is None)
        stepper = None if clock is None else Stepper(clock, dispatcher)
        dispatcher.leave_out(deleted.offsets())
        files = list(resolve(queue.files)[0].files) if queue.files else []
        kept = None if clean else (-1, -1)
        if not clean and self.recovery.confirmed:
            kept = queued, indexed
        durable = (1 << 62) if clean else max(flushed, self.recovery.end)
        if config.recovery == "java":  # RocketMQ uses the queue offsets of messages that it cuts off again
            durable = self.recovery.end
        lost = [(start, stop) for start, stop, _ in self.recovery.damage if start < durable]
        self.caught_up = catch_up(
            dispatcher,
            files,
            self.recovery.end,
            clean=clean,
            checkpoint=checkpoint,
            queued=queued,
            problems=problems,
            damage=lost,
            boundaries=self.recovery.boundaries,
            indexed=-1 if index is None else indexed_up_to(checkpoint_path, index, self.recovery.end, kept),
        )
        queues.raise_offsets(offsets, self.recovery.end)
        self._checkpoint_fd = _checkpoint.open_file(checkpoint_path)
        self._abort.create()
        found = self.recovery
        with errors_named(checkpoint_path):
            save_queue_sums(self._checkpoint_fd, queues, index, queue.min_offset, found.end)
        log.start(
            self._checkpoint_fd,
            tuple(checkpoint),
            last_record_end=found.last_record_end,
            timestamp=found.timestamp,
            queued=self.caught_up.durable,
            indexed=index.end_phy_offset + 1 if index is not None else -1,
        )
        self._mapped.clear()
        dispatcher.start()
        self._watch = LockWatch(log, self._lock.watched())
        if stepper is None:
            self._watch.start()
        else:
            stepper.check_lock = self._watch.look
        self._log, self._queues, self._index = log, queues, index
        return dispatcher, stepper

    def note_cleaned(self) -> None:
        """Update the queue sums after files were deleted; otherwise the next open() would report them as missing."""
        if self._log is not None and self._queues is not None and self._checkpoint_fd >= 0:
            with contextlib.suppress(OSError):
                save_queue_sums(self._checkpoint_fd, self._queues, self._index, self._log.queue.min_offset, -1)

    def end(self, whole: bool) -> None:
        """Finish closing a store whose threads have stopped; release() comes after it. Raises StoreIOError.

        whole  True: the whole log is durable, and is in queues and index; False: the abort file is kept, so that the
               next open() recovers the store
        """
        if whole:
            if self._log is not None and self._queues is not None:
                log = self._log.queue
                with errors_named(os.path.join(self._root, "checkpoint")):
                    save_queue_sums(self._checkpoint_fd, self._queues, self._index, log.min_offset, log.wrote)
            self._abort.remove()
        else:
            _log.warning("%s: not all data is durable; `abort` is kept, the next open() recovers the store", self._root)

    def release(self) -> None:
        """Release the lock of the store. A second call does nothing."""
        if self._watch is not None:
            self._watch.stop()
        fd, self._checkpoint_fd = self._checkpoint_fd, -1
        if fd >= 0:
            os.close(fd)
        self._lock.release()


class ReadOnlyRoot:
    """The root of a store that is open for reading only: it answers from the files, which another process may write."""

    def __init__(self, root: str, config: StoreConfig) -> None:
        self._root = root
        self._config = config
        self.log_files()  # raises StoreIOError if there is no log

    def log_files(self) -> tuple[LogFile, ...]:
        """Return the log files in all folders of the settings. Raises StoreIOError if there is no log."""
        if self._config.log_paths("") == StoreConfig().log_paths(""):
            logs = resolve(self._root)
        else:
            folders = self._config.log_paths(self._root)
            logs = resolve([path for path in folders if os.path.isdir(path)] or folders)
        return tuple(file for log in logs for file in log.files)

    def topics(self) -> Topics:
        return Topics(self._root)

    @property
    def min_phy_offset(self) -> int:
        return min((file.origin for file in self.log_files()), default=0)

    @property
    def max_phy_offset(self) -> int:
        from rocketc.read.scan import scan

        files = self.log_files()
        if not files:
            return 0
        found = scan(files[-1], errors="report", crc="none")
        last = files[-1].origin
        for message in found:
            last = message.phy_offset + message.store_size
        return last


def refuse_links(root: str, config: StoreConfig) -> None:
    """Raise StoreIOError if a folder of the store is a symbolic link, unless config.linked_folders allows it. The root,
    and folders that the settings name, may be links.

    >>> refuse_links("/nowhere", StoreConfig())
    """
    if not config.linked_folders:
        log = ["commitlog"] if config.store_path_commit_log is None else []
        refuse_linked_folders(root, [*log, *QUEUE_FOLDERS, "index", "config", "cut"])


def _index(root: str, config: StoreConfig) -> KeyIndex | None:
    if not config.message_index_enable:
        return None
    return index_below(root, config)


def batch_topics(root: str) -> list[str]:
    """Return the topics that have batch queues by the broker's table of topics.

    >>> batch_topics("/nowhere")
    []
    """
    try:
        table = read_table(os.path.join(root, "config", "topics.json")).data.get("topicConfigTable", {})
        return [topic for topic, row in table.items() if row.get("attributes", {}).get("queue.type") == "BatchCQ"]
    except (RocketcError, AttributeError):
        return []


def _with_index_found(root: str, config: StoreConfig) -> StoreConfig:
    """Return the settings with the numbers of slots and units of an existing index."""
    folder = os.path.join(root, "index")
    try:
        names = sorted(name for name in os.listdir(folder) if name.isdecimal() and name.isascii())
        for name in names:
            with IndexFile(os.path.join(folder, name)) as file:
                if file.fault is None and file.slots and file.capacity and file.count:
                    return config.replace(max_hash_slot_num=file.slots, max_index_num=file.capacity + 1)
    except (OSError, ValueError):
        pass  # KeyIndex.load() reports the error
    return config


def _refuse_file(root: str) -> None:
    """Raise StoreIOError if the root, or a folder above it, is a file."""
    path = root
    while not os.path.lexists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    if os.path.exists(path) and not os.path.isdir(path):
        text = "this is a file, not a folder; give the store's root folder, which contains commitlog"
        raise StoreIOError(errno.ENOTDIR, text, path)


def _refuse_missing_log(folders: list[str], queues: ConsumeQueues) -> None:
    """Raise StoreIOError if the queues refer to messages, but there are no files of the log.

    Either a disk is not mounted or a path is wrong. A new log would begin at 0, and give queue offsets of existing
    messages to new ones.
    """
    count, _ = queues.behind(0)
    if count:
        text = f"no file of the commit log exists, but consume queues refer to {count} messages: is a disk missing?"
        raise StoreIOError(errno.ENOENT, f"{text} To start empty, remove the folder consumequeue", ",".join(folders))


def with_detected_file_size(root: str, config: StoreConfig) -> StoreConfig:
    """Return the settings with the file size of an existing log: the size that most of its files have.

    >>> import tempfile, rocketc
    >>> root = tempfile.mkdtemp()
    >>> with rocketc.open(root, mapped_file_size_commit_log=1 << 16) as store:
    ...     _ = store.put("orders", b"hi")
    >>> with_detected_file_size(root, rocketc.StoreConfig()).mapped_file_size_commit_log
    65536
    """
    files: list[tuple[int, int, str]] = []
    for folder in config.log_paths(root):
        if not os.path.isdir(folder):
            continue
        with errors_named(folder), os.scandir(folder) as entries:
            numbers = [entry for entry in entries if entry.name.isdecimal() and entry.is_file()]
            files += [(int(entry.name), entry.stat().st_size, entry.path) for entry in numbers]
    files.sort()
    if len(files) > 1 and files[-1][1] < files[0][1]:
        files.pop()  # the last file does not have its full size yet
    sizes = Counter(size for _, size, _ in files if size)
    most = [size for size, count in sizes.items() if count == max(sizes.values())]
    if len(most) != 1:
        return config
    size = most[0]
    path = next(path for _, each, path in files if each == size)
    try:
        return config.replace(mapped_file_size_commit_log=size)
    except ValueError:
        text = f"it has {size} bytes; to write a log, all its files must have one size from 128 to 2147483647 bytes"
        raise StoreIOError(errno.EINVAL, text, path) from None
