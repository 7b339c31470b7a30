"""Salvage: copy every readable record of a damaged store to a new store that a broker can open.

The damaged store is only read. The new store is written to the folder `DST.unfinished` next to its final path, where no
program takes it for a store. It is renamed when it is complete and durable. Notes in that folder list the log files
that are done, so a salvage that was killed continues after them.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from rocketc.config import StoreConfig
from rocketc.derived.queue_files import detect_file_sizes
from rocketc.errors import StoreIOError
from rocketc.files import _checkpoint
from rocketc.files.durable import errors_named, make_folder, sync_folder, sync_tree
from rocketc.files.lock_file import StoreLock
from rocketc.files.paths import Log, StrPath, resolve
from rocketc.files.regular import open_regular
from rocketc.files.remote import local_target, refuse_urls
from rocketc.jobs.rebuild import QueueStarts, rebuild_files
from rocketc.jobs.salvage_files import CompactedLog, InPlaceLog, LogFolder, ReadableRanges, find
from rocketc.jobs.verify import root_of
from rocketc.jobs.verify_derived import load_unmodified
from rocketc.read.scan_report import Damage
from rocketc.rendering import HtmlRepr
from rocketc.tables.deleted_topics import DeletedTopics

UNFINISHED = ".unfinished"
MAP = "salvage-map.jsonl"
REPORT = "salvage.json"

_NOTES = "notes.jsonl"
_STORE = "store"
_CONFIG = "config"
_BESIDE = ("compaction", "brokerIdentity")  # other files of a broker that are copied
_BY_PLACE = ("timerlog", "timerwheel", "epochFileCheckpoint")  # contain physical offsets, so --compact leaves them out
_TIMER_CHECK = "timercheck"  # the same, in config


@dataclass
class SalvageReport(HtmlRepr):
    """What salvage() found and wrote.

    records    in the new store
    messages   more than records if there are inner batches
    bytes      valid bytes of the log: records, and the blank records at the ends of files
    lost       damaged ranges; adjacent ranges with different reasons are listed separately
    missing    ranges of physical offsets between files for which there is no file
    behind     records after the end of the log that consume queues of src point to: the log has lost its end
    behind_to  physical offset where the last of these records ended; 0 if there are none
    files      path below the new store -> bytes; of a dry run only the log files
    queues     of the new store
    unqueued   records that no queue could take: the topic is not a valid folder name, or the queue offset is impossible
    map        file in which --compact wrote which bytes went where; otherwise None
    dry        nothing was written
    seconds    duration
    """

    records: int = 0
    messages: int = 0
    bytes: int = 0
    lost: list[Damage] = field(default_factory=list)
    missing: list[tuple[int, int]] = field(default_factory=list)
    behind: int = 0
    behind_to: int = 0
    files: dict[str, int] = field(default_factory=dict)
    queues: int = 0
    unqueued: int = 0
    map: str | None = None
    dry: bool = False
    seconds: float = 0.0

    @property
    def is_whole(self) -> bool:
        """Whether nothing was lost and every message is in a queue."""
        return not (self.lost or self.missing or self.behind or self.unqueued)

    @property
    def hides(self) -> bool:
        """Whether RocketMQ skips valid messages: those after a lost range in the file at offset 0, positions kept."""
        first = "commitlog/" + "0" * 20
        return self.map is None and any(lost.start < self.files.get(first, 0) for lost in self.lost)

    @property
    def lost_bytes(self) -> int:
        return sum(lost.stop - lost.start for lost in self.lost) + sum(stop - start for start, stop in self.missing)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict without the fields that are `None`.

        >>> SalvageReport(records=2).to_dict()["isWhole"]
        True
        """
        out = {
            "isWhole": self.is_whole, "records": self.records, "messages": self.messages, "bytes": self.bytes,
            "queues": self.queues, "unqueued": self.unqueued, "lostBytes": self.lost_bytes,
            "lost": [asdict(d) for d in self.lost],
            "missing": [{"start": start, "stop": stop} for start, stop in self.missing],
            "behind": self.behind, "behindTo": self.behind_to,
            "files": [{"path": path, "size": size} for path, size in self.files.items()],
            "map": self.map, "dry": self.dry, "seconds": round(self.seconds, 3),
        }  # fmt: skip
        return {name: value for name, value in out.items() if value is not None}


def salvage(
    src: StrPath,
    dst: StrPath,
    *,
    compact: bool = False,
    dry_run: bool = False,
    config: StoreConfig | None = None,
    tell: Callable[[int], None] | None = None,
) -> SalvageReport:
    """Copy every readable record of a damaged store into a new one that a broker opens.

    src      a store's root, its commitlog folder, or a log file; src is only read, and a broker may be writing to it
    dst      the new store's root; it must not exist
    compact  False: records keep their physical offsets, and lost ranges are filled. True: the records are written one
             after the other, and a file in dst lists which bytes went where
    dry_run  read and report only; write nothing
    config   the broker's settings that determine the files; None: take the sizes from the files of src, otherwise
             RocketMQ's defaults
    tell     called a few times a second with the bytes read so far; the log is read twice, so its bytes count twice

    The tables in src's config folder are copied. Consume queues and index are rebuilt. The new store is in
    dst.unfinished until it is complete: if the process is killed or the disk is full, make the same call again to
    continue. Raises ValueError if dst is inside src or contains it; StoreIOError if dst exists, src is without a log or
    positions cannot be kept; StoreFullError; StoreLockedError.


    >>> import os, rocketc, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> src, dst = os.path.join(folder, "broken"), os.path.join(folder, "salvaged")
    >>> with rocketc.open(src, mapped_file_size_commit_log=1 << 20, max_index_num=100) as store:
    ...     places = [store.put("orders", body).phy_offset for body in (b"one", b"two", b"three")]
    >>> with open(os.path.join(src, "commitlog", "0" * 20), "r+b") as file:
    ...     _ = file.seek(places[1] + 4)
    ...     _ = file.write(b"junk")
    >>> report = rocketc.salvage(src, dst)
    >>> report.messages, [(lost.start, lost.stop, lost.reason) for lost in report.lost] == [(*places[1:], "bad_magic")]
    (2, True)
    >>> with rocketc.open(dst) as store:
    ...     [(m.queue_offset, m.body) for m in store.get("orders")]
    [(0, b'one'), (2, b'three')]
    """
    begun = time.monotonic()
    source, place = _Source(src, config), local_target(dst, "salvage()")
    source.refuse(place, place + UNFINISHED)
    if dry_run:
        _refuse_there(place)
        report = _Run(source, None, compact, tell).read()
        report.dry = True
    else:
        with _Work(place, source, compact) as work:
            report = work.report if work.is_done else _salvage(source, work, compact, tell)
            if report.records:
                work.finish()
            else:
                report.files = {}
                work.remove()
    report.seconds = time.monotonic() - begun
    return report


def _salvage(source: _Source, work: _Work, compact: bool, update: Callable[[int], None] | None) -> SalvageReport:
    run = _Run(source, work, compact, update)
    report = run.read()
    if report.records:
        run.make_store()
        work.note_done(report)
    return report


class _Source:
    """The damaged store."""

    def __init__(self, path: StrPath, config: StoreConfig | None) -> None:
        self.path = os.fspath(path)
        self.place = os.path.abspath(self.path)
        refuse_urls([self.path], "salvage()")
        self.root = root_of(self.path)
        folders = [self.path]
        if self.root is not None and config is not None:
            named = (*config.commit_log_paths(self.root), *config.read_only_paths)
            folders = [one for one in named if os.path.isdir(one)]
            if not folders:
                raise StoreIOError(errno.ENOENT, "none of the folders named in the settings exists", ",".join(named))
        logs = resolve(folders)
        if len(logs) != 1 or not logs[0].files:
            raise StoreIOError(errno.ENOENT, "found no commit log to salvage, or several", self.path)
        self.log: Log = logs[0]
        self.size = self._size() if config is None else config.mapped_file_size_commit_log
        if config is not None:
            self.config = config
        elif self.root is not None:
            self.config = detect_file_sizes(self.root, StoreConfig())
        else:
            small = StoreConfig()
            self.config = small if self.size == small.mapped_file_size_commit_log else StoreConfig.rocketmq()

    def _size(self) -> int:
        """Return the most frequent size of the log's files: the last file may have been cut."""
        sizes = Counter(file.limit for file in self.log.files)
        return max(sizes, key=lambda size: (sizes[size], size))

    def refuse(self, *places: str) -> None:
        """Raise ValueError if one of the places is inside the store or contains it."""
        folders = {os.path.dirname(file.path) for file in self.log.files}
        if os.path.isfile(self.place):  # a single file may be next to anything but a log
            folders = {folder for folder in folders if os.path.basename(os.path.realpath(folder)) == "commitlog"}
        ours = {os.path.realpath(one) for one in [self.place, *folders]}
        for place in places:
            real = os.path.join(os.path.realpath(os.path.dirname(place)), os.path.basename(place))
            for one in ours:
                if os.path.commonpath([one, real]) in (one, real):
                    raise ValueError(f"{place} and {self.path} overlap: salvage into another folder")


class _Work:
    """The folder `DST.unfinished` with the new store and the notes. Raises the errors of StoreLock."""

    def __init__(self, place: str, source: _Source, compact: bool) -> None:
        self.place = place
        self.folder = place + UNFINISHED
        self.store = os.path.join(self.folder, _STORE)
        self.log = os.path.join(self.store, "commitlog")
        self.done: list[dict[str, Any]] = []  # notes of the files that are done
        self.is_done = False
        self.report = SalvageReport()
        self._path = os.path.join(self.folder, _NOTES)
        self._head = {"salvage": source.place, "compact": compact, "size": source.size}
        there = os.path.lexists(self.folder)
        if not there:
            _refuse_there(place)
        elif not os.path.isfile(self._path) and set(os.listdir(self.folder)) - {"lock"}:
            raise StoreIOError(errno.EEXIST, "exists and is not an unfinished salvage; remove it", self.folder)
        make_folder(self.folder)
        self._lock = StoreLock(self.folder)
        try:
            self._begin(source)
        except BaseException:
            self._lock.release()
            raise

    def _begin(self, source: _Source) -> None:
        notes, end = self._read()
        head = notes[0] if notes else self._head
        if head.get("salvage") != source.place:
            text = f"is an unfinished salvage of {head.get('salvage')}: finish that salvage, or remove the folder"
            raise StoreIOError(errno.EEXIST, text, self.folder)
        if notes and "done" in notes[-1]:
            self.is_done, self.report = True, _report_from(notes[-1]["done"])
            return
        if not notes and os.path.lexists(self.place):
            self.remove()  # the rest of a salvage that was killed after it was complete
        _refuse_there(self.place)
        if head == self._head and _is_same_log(source, notes[1:]):
            self.done = notes[1:]
            with errors_named(self._path):
                os.truncate(self._path, end)
        else:
            self._clear()
            with errors_named(self.folder), contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
            self.note(self._head)
            sync_folder(self.folder)
            make_folder(self.log)

    def _clear(self) -> None:
        import shutil  # late: `import rocketc` is quicker without it

        with errors_named(self.store), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.store)

    def _read(self) -> tuple[list[dict[str, Any]], int]:
        """Return the notes and their length in bytes; a torn last note is left out."""
        notes: list[dict[str, Any]] = []
        end = 0
        with (
            errors_named(self._path),
            contextlib.suppress(FileNotFoundError),
            open(self._path, "rb", opener=open_regular) as file,
        ):
            for line in file:
                try:
                    note = json.loads(line)
                except ValueError:
                    break
                if not line.endswith(b"\n") or not isinstance(note, dict):
                    break
                notes.append(note)
                end += len(line)
        return notes, end

    def note(self, what: dict[str, Any]) -> None:
        """Append one note and make it durable."""
        with errors_named(self._path), open(self._path, "ab", buffering=0, opener=open_regular) as file:
            data = json.dumps(what).encode() + b"\n"
            if file.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())

    def note_done(self, report: SalvageReport) -> None:
        """Write the report into the new store and note that only the rename is left to do."""
        if report.map is not None:
            report.map = os.path.join(self.place, MAP)
        report.files = dict(_files_below(self.store))
        path = os.path.join(self.store, REPORT)
        with errors_named(path), open(path, "w", opener=open_regular) as file:
            json.dump(report.to_dict(), file, indent=1)
        sync_tree(self.store)
        self.note({"done": report.to_dict()})

    def finish(self) -> None:
        """Rename the new store to its final path and remove the folder of this salvage."""
        above = os.path.dirname(self.place)
        if os.path.lexists(self.store):
            _refuse_there(self.place)
            with errors_named(self.place):
                os.rename(self.store, self.place)
            sync_folder(above)
        self.remove()

    def remove(self) -> None:
        """Remove the folder of this salvage."""
        self._clear()
        with errors_named(self.folder):
            for name in ("lock", _NOTES):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self.folder, name))
            os.rmdir(self.folder)
        sync_folder(os.path.dirname(self.folder))

    def __enter__(self) -> _Work:
        return self

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        if isinstance(error, StoreIOError) and error.errno == errno.EINVAL:
            self.remove()  # the salvage cannot succeed: keep nothing
        elif isinstance(error, StoreIOError) and error.errno != errno.EEXIST:
            error.strerror = f"{error.strerror}; {self.folder} is kept; make the same call again to continue"
        self._lock.release()


class _Run:
    """Reads all files of the log and writes the new log.

    work  None: write nothing (dry run)
    """

    def __init__(
        self, source: _Source, work: _Work | None, compact: bool, update: Callable[[int], None] | None
    ) -> None:
        self._source = source
        self._work = work
        self._update = update
        self._read = 0  # bytes of files that are done
        self._timestamp = 0
        self._report = SalvageReport(missing=list(source.log.missing))
        self._out = LogFolder(work.log if work is not None else None, source.size)
        self._layer: InPlaceLog | CompactedLog = InPlaceLog(self._out)
        if compact:
            first = -(-max(source.log.files[0].origin, 1) // source.size) * source.size
            path = os.path.join(work.store, MAP) if work is not None else None
            self._layer = CompactedLog(self._out, first, path)
            self._report.map = path

    def read(self) -> SalvageReport:
        """Read the log and write its valid records to the new log."""
        report, done = self._report, self._work.done if self._work is not None else []
        if done:
            self._go_on(done)
        last = done[-1]["base"] if done else -1
        # Load the queues before the log: a running broker writes a record to the log first, then to its queue.
        queues = load_unmodified(self._source.root, self._source.config) if self._source.root is not None else None
        end = 0
        for file in self._source.log.files:
            if file.base is not None and file.base <= last:
                self._read += file.size
                continue
            with errors_named(file.path):
                fd = open_regular(file.path)
            try:
                info = os.fstat(fd)
                found = find(file, self._progress)
                self._layer.copy(found, fd)
            finally:
                os.close(fd)
                self._out.close()
            self._read += file.size
            self._progress(0)
            self._enter(found.records, found.messages, found.bytes, found.damage, found.timestamp)
            end = max([end, *(stop for _, stop in found.ranges[-1:]), *(lost.stop for lost in found.damage[-1:])])
            if self._work is not None and not file.last:
                self._work.note(self._note(found, info))
        report.files = {f"commitlog/{name}": self._source.size for name in self._out.made}
        if queues is not None:
            report.behind, report.behind_to = queues.behind(end)
            queues.close()
        return report

    def _enter(self, records: int, messages: int, size: int, lost: list[Damage], timestamp: int) -> None:
        self._report.records += records
        self._report.messages += messages
        self._report.bytes += size
        self._report.lost += lost
        self._timestamp = timestamp if records else self._timestamp

    def _progress(self, walked: int) -> None:
        if self._update is not None:
            self._update(self._read + walked)

    def _note(self, found: ReadableRanges, info: os.stat_result) -> dict[str, Any]:
        out: dict[str, Any] = {
            "base": found.file.base, "size": info.st_size, "changed": info.st_mtime_ns, "records": found.records,
            "messages": found.messages, "bytes": found.bytes, "timestamp": found.timestamp,
            "lost": [[d.file, d.start, d.stop, d.reason] for d in found.damage],
        }  # fmt: skip
        if isinstance(self._layer, CompactedLog):
            out |= self._layer.note(found)
        return out

    def _go_on(self, done: list[dict[str, Any]]) -> None:
        """Continue after the files that an earlier salvage has noted as done."""
        for note in done:
            lost = [Damage(*one) for one in note["lost"]]
            self._enter(note["records"], note["messages"], note["bytes"], lost, note["timestamp"])
        if isinstance(self._layer, CompactedLog):
            self._layer.go_on(done)
        else:
            self._layer.go_on(done[-1]["base"] + self._source.size, self._timestamp)

    def make_store(self) -> None:
        """Write the other files of the store: tables, checkpoint, consume queues, index."""
        import shutil  # late: `import rocketc` is quicker without it

        assert self._work is not None
        store, root = self._work.store, self._source.root
        compact = isinstance(self._layer, CompactedLog)
        with errors_named(store):
            for name in set(os.listdir(store)) - {"commitlog", MAP}:  # files of a salvage that was killed here
                path = os.path.join(store, name)
                shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        claims: QueueStarts = {}
        if root is not None:
            for name in (_CONFIG, *_BESIDE, *(() if compact else _BY_PLACE)):
                _copy(os.path.join(root, name), os.path.join(store, name))
            if compact:
                with errors_named(store), contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(store, _CONFIG, _TIMER_CHECK))
            claims = self._claims(root, store)
        when = min(max(self._timestamp, 0), _checkpoint.LATEST_MS)
        _checkpoint.write(os.path.join(store, "checkpoint"), _checkpoint.NOTHING._replace(physic_msg_timestamp=when))
        size = self._source.size
        config = self._source.config.replace(mapped_file_size_commit_log=size, store_path_commit_log=None)
        made = rebuild_files(store, None, config, self._progress, claims)
        self._report.queues, self._report.unqueued = made.queues, made.unqueued

    def _claims(self, root: str, store: str) -> QueueStarts:
        """Return where queues of deleted and re-created topics begin; adapt the table of deletions to new offsets."""
        queues = load_unmodified(root, self._source.config)
        deleted = DeletedTopics(root)
        deleted.remove_recreated(queues.remaining(deleted.ends))
        claims = queues.claims()
        queues.close()
        if deleted.ends or os.path.lexists(os.path.join(store, _CONFIG, DeletedTopics.NAME)):
            DeletedTopics(store).replace({name: self._new_offset(end) for name, end in deleted.ends.items()})
        return {queue: (self._new_offset(at), number) for queue, (at, number) in claims.items()}

    def _new_offset(self, phy_offset: int) -> int:
        return self._layer.new_offset(phy_offset) if isinstance(self._layer, CompactedLog) else phy_offset


def _report_from(done: dict[str, Any]) -> SalvageReport:
    return SalvageReport(
        done["records"], done["messages"], done["bytes"],
        [Damage(one["file"], one["start"], one["stop"], one["reason"]) for one in done["lost"]],
        [(one["start"], one["stop"]) for one in done["missing"]], done["behind"], done["behindTo"],
        {one["path"]: one["size"] for one in done["files"]}, done["queues"], done["unqueued"], done.get("map"),
    )  # fmt: skip


def _is_same_log(source: _Source, notes: list[dict[str, Any]]) -> bool:
    """Whether there are notes and they match the files of the log, up to the last file that was noted."""
    if not all(_is_same(source, note) for note in notes):
        return False
    bases = {note["base"] for note in notes}
    return bool(bases) and all(file.base in bases for file in source.log.files if (file.base or 0) <= max(bases))


def _is_same(source: _Source, note: dict[str, Any]) -> bool:
    """Whether a file is unchanged since it was noted; a file that a running broker has deleted since is accepted."""
    path = next((file.path for file in source.log.files if file.base == note.get("base")), None)
    if path is None:
        return bool(note["base"] < source.log.files[0].origin)
    info = os.stat(path)
    return (info.st_size, info.st_mtime_ns) == (note["size"], note["changed"])


def _refuse_there(place: str) -> None:
    if os.path.lexists(place):
        raise StoreIOError(errno.EEXIST, "already exists: salvage writes a new store, give another path", place)


def _copy(source: str, target: str) -> None:
    """Copy a file, or a folder with all regular files below it; replace an older copy, skip symbolic links."""
    import shutil  # late: `import rocketc` is quicker without it

    try:
        mode = os.lstat(source).st_mode
    except OSError:
        return
    if stat.S_ISREG(mode):
        with (
            errors_named(target),
            open(source, "rb", opener=open_regular) as data,
            open(target, "wb", opener=open_regular) as out,
        ):
            shutil.copyfileobj(data, out)
    elif stat.S_ISDIR(mode):
        make_folder(target)
        with errors_named(source):
            names = sorted(os.listdir(source))
        for name in names:
            _copy(os.path.join(source, name), os.path.join(target, name))


def _files_below(root: str) -> Iterator[tuple[str, int]]:
    for folder, names, files in os.walk(root):
        names.sort()
        for name in sorted(files):
            path = os.path.join(folder, name)
            yield os.path.relpath(path, root), os.lstat(path).st_size
