"""Collect the facts that `info` prints. Reads the first record of each commit log file, and all of the last file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any

from rocketc.config import ROCKETMQ_SIZES, StoreConfig, broker_conf
from rocketc.derived.queue_files import UNIT_BYTES, detect_file_sizes, files_below
from rocketc.errors import RocketcError
from rocketc.files import _checkpoint
from rocketc.files._mapped_file import MappedFile
from rocketc.files.durable import errors_named
from rocketc.files.lock_file import AbortFile, holder_of
from rocketc.files.paths import Log, LogFile, base_of, resolve, was_deleted
from rocketc.files.regular import open_regular
from rocketc.files.remote import refuse_urls
from rocketc.files.sparse import holes_of
from rocketc.jobs.other_files import OtherFile, check_other_files, unreadable_texts
from rocketc.jobs.progress import Progress, no_progress
from rocketc.read._filter import Filter
from rocketc.read._message import Message
from rocketc.read._reader import Reader
from rocketc.read._walk import Walker
from rocketc.read.scan_report import Damage, joined
from rocketc.store.opening import with_detected_file_size

CHECKPOINT_FIELDS = (
    "physicMsgTimestamp",
    "logicsMsgTimestamp",
    "indexMsgTimestamp",
    "masterFlushedOffset",
    "confirmPhyOffset",
)
_INDEX_NAME = re.compile(r"[0-9]{17}")
_LOOKED_AT = 1000  # queue files whose sizes are compared
_PROGRESS_EVERY = 1 << 16  # messages between two progress reports
_SURVEYS = 10  # attempts, if the owner of the store deletes the last file, or closes the store meanwhile


@dataclass
class File:
    """A commit log file.

    file            its path
    physicalOffset  of its first byte; None if neither its name nor a record contains it
    allocated       bytes on disk
    storeTimestamp  of its first message; None if there is none or it cannot be read
    state           "": no errors; "empty": created in advance; otherwise the error
    """

    file: str
    physicalOffset: int | None
    size: int
    allocated: int
    storeTimestamp: int | None = None
    state: str = ""


@dataclass(frozen=True)
class Hole:
    """Missing bytes of the log.

    kind  "missing": there is no file; "short": the file ends before the next one begins; "sparse": never written, with
          data after it
    """

    kind: str
    start: int
    stop: int
    file: str | None = None


@dataclass
class Inventory:
    """The facts found; the names are the JSON keys. Fields from `abort` to `cut` are `None` if the path is not a root.

    consumeQueues  numbers of topics and queues; "incomplete": some could not be read and counted
    unreadable     texts: what could not be read, except files of the log
    deleted        ranges of physical offsets in files that the store's owner deleted before they were read; no damage
    others         the other files of a root: checkpoint, tables, markers, and files that are not checked
    """

    path: str
    kind: str
    files: list[File] = field(default_factory=list)
    begin: int | None = None
    end: int | None = None
    firstStoreTimestamp: int | None = None
    lastStoreTimestamp: int | None = None
    lastFile: str | None = None
    lastFileMessages: int = 0
    holes: list[Hole] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    abort: dict[str, Any] | None = None
    lock: dict[str, Any] | None = None
    checkpoint: dict[str, int] | None = None
    consumeQueues: dict[str, int] | None = None
    indexFiles: int | None = None
    cut: dict[str, int] | None = None
    unreadable: list[str] = field(default_factory=list)
    brokerConf: dict[str, Any] | None = None  # sizes of files that a broker must have in its broker.conf
    deleted: list[tuple[int, int]] = field(default_factory=list)
    others: list[OtherFile] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there are no messages and no traces of messages."""
        return self.firstStoreTimestamp is None and not self.damage and not self.deleted

    @property
    def had_messages_until(self) -> int | None:
        """Store timestamp of a durable message that is not in the log, because the end of the log is lost.

        None if the end is not lost, or if this is unknown, as while a broker runs. Source: the checkpoint.
        """
        if self.checkpoint is None or self.abort is None or self.abort["present"]:
            return None
        durable = self.checkpoint["physicMsgTimestamp"]
        return durable if durable > (self.lastStoreTimestamp or 0) else None

    @property
    def is_whole(self) -> bool:
        return not (self.has_errors or self.is_empty)

    @property
    def has_errors(self) -> bool:
        """Whether something is damaged, missing or could not be read. A store without messages is not an error."""
        lost = self.holes or self.damage or self.had_messages_until is not None
        return bool(lost or self.unreadable or any(one.error is not None for one in self.others))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict without unknown fields."""
        whole = {name: value for name, value in asdict(self).items() if value is not None}
        if not self.unreadable:
            del whole["unreadable"]
        for name in ("files", "holes", "damage"):
            whole[name] = [{k: v for k, v in entry.items() if v is not None and v != ""} for entry in whole[name]]
        whole["others"] = [one.to_dict() for one in self.others]
        whole["deleted"] = [{"start": start, "stop": stop} for start, stop in self.deleted]
        if self.had_messages_until is not None:
            whole["hadMessagesUntil"] = self.had_messages_until
        return whole


def take_inventory(path: str, progress: Progress = no_progress) -> Inventory:
    """Inspect a store root, a commit log folder, a file or a glob; all of the last file is read.

    Raises StoreIOError if nothing exists at the path.

    >>> import tempfile, rocketc
    >>> root = tempfile.mkdtemp()
    >>> with rocketc.open(root, mapped_file_size_commit_log=1 << 16) as store:
    ...     _ = store.put("orders", b"hi")
    >>> take_inventory(root).lastFileMessages
    1
    """
    refuse_urls([path], "info")
    is_root = os.path.isdir(os.path.join(path, "commitlog"))
    deleted: list[tuple[int, int]] = []
    for _ in range(_SURVEYS):
        out = Inventory(path, "store" if is_root else "commitlog" if os.path.isdir(path) else "file")
        is_open = is_root and AbortFile(path).exists()
        logs = resolve(path)
        for log in logs:
            _survey_log(log, out, progress)
        if os.path.isdir(path):
            _add_files_made_ahead(os.path.join(path, "commitlog") if is_root else path, out)
        if is_root:
            out.others = check_other_files(path)
            _survey_root(path, out)
        deleted = joined(sorted({*deleted, *out.deleted}))
        out.deleted = deleted
        was_closed = is_open and out.abort is not None and not out.abort["present"]
        if not was_closed and all(out.files and log.files[-1].path == out.lastFile for log in logs[-1:] if log.files):
            break  # otherwise the checkpoint is later than what was read, or the last file was deleted
    return out


def _survey_log(log: Log, out: Inventory, progress: Progress) -> None:
    out.holes += [Hole("missing", *gap) for gap in log.missing]
    for file in log.files:
        try:
            with errors_named(file.path):
                info = os.stat(file.path)
        except RocketcError:
            if not was_deleted(file.path):
                raise
            out.deleted.append((file.origin, file.next_base))
            continue
        facts = File(file.path, file.base, info.st_size, info.st_blocks * 512)
        out.files.append(facts)
        if file.base is not None and file.size < file.limit:
            out.holes.append(Hole("short", file.base + file.size, file.base + file.limit, file.path))
        try:
            if file is log.files[-1]:
                _walk(file, facts, out, progress)
            else:
                _look_at_start(file, facts, out)
            if facts.allocated < facts.size:
                base = facts.physicalOffset or 0
                out.holes += [Hole("sparse", *hole, file.path) for hole in holes_of(file.path, base)]
        except RocketcError as error:
            if was_deleted(file.path):
                out.files.remove(facts)
                out.deleted.append((file.origin, file.next_base))
                continue
            facts.state = f"unreadable: {error.strerror if isinstance(error, OSError) else error}"
            start = file.origin
            out.damage.append(Damage(file.path, start, start + file.size, facts.state))
        if facts.storeTimestamp is not None and out.firstStoreTimestamp is None:
            out.firstStoreTimestamp = facts.storeTimestamp
        if facts.physicalOffset is not None and out.begin is None:
            out.begin = facts.physicalOffset
    out.holes.sort(key=lambda hole: hole.start)


def _open(file: LogFile, stop: int | None = None, random: bool = False) -> tuple[Walker, Iterator[Message]]:
    """Return the messages of one file; unlike scan(file.path), this does not list the folder again for each file."""
    everything = Filter()
    walker = Walker(
        MappedFile(file.path, random), file.base, everything, limit=file.limit, stop=stop, errors="skip",
        last=file.last, file=file.path,
    )  # fmt: skip
    blocks = Reader([walker], everything, columns=[], decompress=False, unwrap=False)
    return walker, chain.from_iterable(blocks)


def _look_at_start(file: LogFile, facts: File, out: Inventory) -> None:
    """Read the first record of a file that is not the last."""
    walker, messages = _open(file, stop=None if file.base is None else file.base + 1, random=True)
    first = next(messages, None)
    if first is not None:
        facts.storeTimestamp = first.store_timestamp
    _take_damage(walker, facts, out)


def _walk(file: LogFile, facts: File, out: Inventory, progress: Progress) -> None:
    """Read all records of the last file of a log."""
    walker, messages = _open(file)
    count = 0
    with progress("reading the last file", file.size) as update:
        for message in messages:
            count += 1
            if count == 1:
                facts.storeTimestamp = message.store_timestamp
                facts.physicalOffset = walker.base
            if count % _PROGRESS_EVERY == 0:
                update(walker.walked)
    if count > 0:
        out.lastStoreTimestamp = message.store_timestamp
    out.lastFile = file.path
    out.lastFileMessages = count
    out.end = walker.position
    _take_damage(walker, facts, out)
    if walker.walked == 0:
        facts.state = "empty"


def _take_damage(walker: Walker, facts: File, out: Inventory) -> None:
    damage = [Damage(facts.file, *entry) for entry in walker.damage]
    if damage:
        facts.state = damage[0].reason
        out.damage += damage


def _add_files_made_ahead(folder: str, out: Inventory) -> None:
    """Add the files after the last one with data, which a scan does not read."""
    known = {file.file for file in out.files}
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        base = base_of(path)
        if base is not None and path not in known:
            try:
                info = os.stat(path)
            except FileNotFoundError:  # deleted since it was listed
                continue
            out.files.append(File(path, base, info.st_size, info.st_blocks * 512, None, "empty"))


def _survey_root(root: str, out: Inventory) -> None:
    abort = AbortFile(root)
    out.abort = {"present": abort.exists()}
    if (pid := abort.pid) is not None:
        out.abort["pid"] = pid
    out.lock = {"present": os.path.exists(os.path.join(root, "lock"))}
    if (holder := holder_of(root)) is not None:
        out.lock["pid"] = holder or None
    out.unreadable += unreadable_texts(root, out.others)
    bad = out.unreadable
    checkpoint = _read(os.path.join(root, "checkpoint"), _checkpoint.LEAST_BYTES)
    if checkpoint is not None and len(checkpoint) == _checkpoint.LEAST_BYTES:
        out.checkpoint = dict(zip(CHECKPOINT_FIELDS, _checkpoint.decode(checkpoint), strict=True))
    before = len(bad)
    queues = [
        (topic.name, queue.name)
        for kind in UNIT_BYTES
        for topic in _folders(os.path.join(root, kind), bad)
        for queue in _folders(topic.path, bad)
        if queue.name.isdecimal()
    ]
    out.consumeQueues = {"topics": len({topic for topic, _ in queues}), "queues": len(queues)}
    if len(bad) > before:
        out.consumeQueues["incomplete"] = True
    index, before = os.path.join(root, "index"), len(bad)
    if os.path.isdir(index):
        names = [entry.name for entry in _entries(index, bad)]
        out.indexFiles = sum(_INDEX_NAME.fullmatch(name) is not None for name in names) if len(bad) == before else None
    with suppress(RocketcError):
        out.brokerConf = _broker_conf(root)
    kept = _files(os.path.join(root, "cut"), bad)
    out.cut = {"files": len(kept), "bytes": sum(entry.stat().st_size for entry in kept)}


def _broker_conf(root: str) -> dict[str, Any]:
    """Return the lines of broker.conf with which a broker opens the store: it refuses files of other sizes."""
    config = with_detected_file_size(root, detect_file_sizes(root, StoreConfig(), _LOOKED_AT))
    names = [*ROCKETMQ_SIZES]
    if not any(files_below(root, "batchconsumequeue")):
        names.remove("mapper_file_size_batch_consume_queue")
    if config.enable_consume_queue_ext:
        names += ["enable_consume_queue_ext", "mapped_file_size_consume_queue_ext"]
    return broker_conf(config, names)


def _folders(path: str, unreadable: list[str]) -> list[os.DirEntry[str]]:
    return [entry for entry in _entries(path, unreadable) if entry.is_dir()]


def _files(path: str, unreadable: list[str]) -> list[os.DirEntry[str]]:
    return [entry for entry in _entries(path, unreadable) if entry.is_file(follow_symlinks=False)]


def _entries(path: str, unreadable: list[str]) -> list[os.DirEntry[str]]:
    """Return the entries of a folder; none if it does not exist. Add the error of another folder to `unreadable`."""
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        unreadable.append(f"{path}: {error.strerror}")
        return []


def _read(path: str, size: int) -> bytes | None:
    """Return the first bytes of a small file, or None if it cannot be read."""
    try:
        with open(path, "rb", opener=open_regular) as file:
            return file.read(size)
    except OSError:
        return None
