"""One message by its physical offset, its queue offset, or its key: read without a scan where files allow it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from rocketc._layout import CQ_UNIT_BYTES, PROPERTY_KEYS, PROPERTY_UNIQUE_KEY
from rocketc.config import StoreConfig
from rocketc.derived._consume_queues import ConsumeQueues
from rocketc.derived._key_index import KeyIndex
from rocketc.derived.queue_files import detect_file_sizes, index_below
from rocketc.errors import CorruptRecordError, RocketcError
from rocketc.files._mapped_file import MappedFile
from rocketc.files.durable import errors_named
from rocketc.files.paths import Log, LogFile, base_of, resolve
from rocketc.files.remote import refuse_urls
from rocketc.format._encoding import encode
from rocketc.jobs.progress import Progress, no_progress
from rocketc.jobs.verify import root_of
from rocketc.read._filter import Filter
from rocketc.read._message import Message
from rocketc.read._walk import Walker
from rocketc.read.scan import Scan, decode, scan

_HEAD = 8  # bytes: size and magic number
_MAGIC = {encode("", version=1)[4:_HEAD], encode("", version=2)[4:_HEAD]}


class RecordNotFound(Exception):
    """No message begins at the offset.

    causes  (text, reason) for each log that was searched; reason: of damage, such as "bad_body_crc", or ""
    """

    def __init__(self, *causes: tuple[str, str]) -> None:
        super().__init__("; ".join(text for text, _ in causes))
        self.causes = causes


def _not_found(text: str, reason: str = "") -> RecordNotFound:
    return RecordNotFound((text, reason))


def at_offset(paths: Sequence[str], offset: int, progress: Progress = no_progress) -> list[Message]:
    """The message whose record begins at a physical offset; all of them if that is an inner batch.

    Raises RecordNotFound. With several logs, each is searched.

    >>> import tempfile, rocketc
    >>> root = tempfile.mkdtemp()
    >>> with rocketc.open(root, mapped_file_size_commit_log=1 << 16) as store:
    ...     _ = store.put("orders", b"hi")
    >>> at_offset([root], 0)[0].body
    b'hi'
    """
    refuse_urls(paths, "this")
    found: list[Message] = []
    causes: list[tuple[str, str]] = []
    for log in resolve(list(paths)):
        try:
            found += _in_log(log, offset, progress)
        except RecordNotFound as error:
            causes += error.causes
    if not found:
        raise RecordNotFound(*causes or [(f"nothing to read: {' '.join(paths)}", "")])
    return found


def _in_log(log: Log, offset: int, progress: Progress) -> list[Message]:
    ends = []
    for file in log.files:
        base = _base_of(file)
        if base <= offset < base + file.limit:
            return _in_file(file, base, offset, progress)
        ends.append((base, base + file.limit))
    if not ends:
        raise _not_found(f"no message begins at byte {offset}: the log has no files")
    begin, end = ends[0][0], ends[-1][1]
    where = f"the log begins at byte {begin}" if offset < begin else f"the files of the log end at byte {end}"
    if begin <= offset < end:
        where = "no file holds it"
    raise _not_found(f"no message begins at byte {offset}: {where}")


def _base_of(file: LogFile) -> int:
    if file.base is not None:
        return file.base
    return Walker(MappedFile(file.path), None, Filter(), file=file.path).base


def _in_file(file: LogFile, base: int, offset: int, progress: Progress) -> list[Message]:
    with errors_named(file.path), open(file.path, "rb", buffering=0, opener=_without_waiting) as opened:
        fd, pos = opened.fileno(), offset - base
        head = os.pread(fd, _HEAD, pos)
        size = int.from_bytes(head[:4], "big", signed=True)
        if head[4:] not in _MAGIC or not _HEAD < size <= file.size - pos:
            return _instead(file, base, offset, None, progress)
        record = _read(fd, size, pos)
    try:
        return list(decode(record, offset, crc="full", file=file.path))
    except CorruptRecordError as error:
        return _instead(file, base, offset, error.reason, progress)


def _without_waiting(path: str, flags: int) -> int:
    """A FIFO would be waited for otherwise."""
    return os.open(path, flags | os.O_NONBLOCK)


def _read(fd: int, size: int, pos: int) -> bytes:
    """Up to `size` bytes; a read may give less at once."""
    parts = []
    while size > 0 and (part := os.pread(fd, size, pos)):
        parts.append(part)
        size -= len(part)
        pos += len(part)
    return b"".join(parts)


def _instead(file: LogFile, base: int, offset: int, reason: str | None, progress: Progress) -> list[Message]:
    """Walk over the file up to the offset, and raise RecordNotFound with what stands there.

    reason  what is wrong with the record that seems to begin there, if one does
    """
    walk = scan(file.path, stop=offset + 1, errors="skip", crc="none", unwrap=False, decompress=False)
    last = None
    with progress("looking for the records around", offset - base) as tell:
        for last in walk:
            tell(last.phy_offset - base)
    no = f"no message begins at byte {offset}: "
    end = base if last is None else last.phy_offset + last.store_size
    if last is not None and end > offset:
        if last.phy_offset < offset:
            which = f"{last.topic}/{last.queue_id}@{last.queue_offset}"
            raise _not_found(f"{no}it lies in the record of {which}, which begins at byte {last.phy_offset}")
        raise _not_found(f"the record at byte {offset} is damaged: {reason}", reason or "")
    for damage in walk.report.damage:
        if damage.start <= offset < damage.stop:
            raise _not_found(f"{no}bytes {damage.start} to {damage.stop} are damaged: {damage.reason}", damage.reason)
        end = max(end, damage.stop)
    if walk.report.blanks:
        raise _not_found(f"{no}from byte {end} on {file.path} is blank")
    raise _not_found(f"{no}the log ends at byte {end}")


def find_in_queue(paths: Sequence[str], topic: str, queue_id: int, offset: int) -> int | None:
    """Physical offset of the record with a queue offset, if the store's consume queue tells, and the log agrees.

    None: there is no such queue, or it is one of inner batches; it does not have the message, or says what is not true.

    >>> import tempfile, rocketc
    >>> root = tempfile.mkdtemp()
    >>> with rocketc.open(root, mapped_file_size_commit_log=1 << 16) as store:
    ...     _ = store.put("orders", b"hi")
    >>> find_in_queue([root], "orders", 0, 0)
    0
    """
    root = root_of(list(paths))
    folder = os.path.join(root or "", "consumequeue", topic, str(queue_id))
    if root is None or not os.path.isdir(folder):
        return None
    try:
        sizes = [
            os.path.getsize(os.path.join(folder, name))
            for name in sorted(os.listdir(folder))
            if base_of(name) is not None
        ]
        queues = ConsumeQueues(root, sizes[0] if sizes else CQ_UNIT_BYTES, read_only=True)
        units = queues.units(topic, queue_id, offset, 1)  # only this queue's files are looked at
        queues.close()
        if len(units) != 1 or units[0][4] != offset:
            return None
        at = units[0][1]
        found = at_offset(paths, at)
    except (RocketcError, RecordNotFound, OSError, ValueError):
        return None
    there = any((m.topic, m.queue_id, m.queue_offset) == (topic, queue_id, offset) for m in found)
    return at if there else None


class KeyLookup:
    """Messages of a topic that have a key, or a unique id, found through a store's index.

    paths  of the store
    keys   the key in each of its forms
    where  what else a message must fulfil, or None
    scan   scan(start=, stop=) of the messages wanted, in a range of physical offsets
    warn   called with a line if the index is there, and damaged
    scans  what had to be scanned: parts of the log that the index says nothing of
    """

    def __init__(
        self,
        paths: Sequence[str],
        topic: str,
        keys: Sequence[str],
        *,
        where: Callable[[Message], object] | None,
        scan: Callable[..., Scan],
        warn: Callable[[str], None],
    ) -> None:
        self._paths = list(paths)
        self._topic = topic
        self._keys = keys
        self._where = where
        self._scan = scan
        self._warn = warn
        self.scans: list[Scan] = []

    def find(self) -> list[Message] | None:
        """All of them in the order of the log; None if there is no index, or it can't be trusted, which is told."""
        root = root_of(self._paths)
        if root is None or not os.path.isdir(os.path.join(root, "index")):
            return None
        if not os.path.isdir(os.path.join(root, "consumequeue", self._topic)):
            return None  # it may be one of inner batches: the index does not know the keys of the messages in them
        if os.path.isdir(os.path.join(root, "batchconsumequeue", self._topic)):
            return None
        sizes = detect_file_sizes(root, StoreConfig())
        try:
            index = index_below(root, sizes, read_only=True)
            try:
                problems = index.load()
                if problems:
                    self._warn(f"the index is damaged, so the log is searched: {problems[0]}")
                    return None
                return self._find(index)
            finally:
                index.close()
        except RocketcError as error:
            self._warn(f"the index is damaged, so the log is searched: {error}")
            return None
        except RecordNotFound:
            return None  # it knows of a record that can't be read: the scan tells why

    def _find(self, index: KeyIndex) -> list[Message] | None:
        headers = [header for _, header in index.headers() if header.index_count > 1]
        files = [file for log in resolve(self._paths) for file in log.files]
        if not headers or not files:
            return None
        start = files[0].origin
        places = {at for text in self._keys for at in index.offsets(self._topic, text) if at >= start}
        found = [m for at in places for m in at_offset(self._paths, at) if self._fits(m)]
        known = {m.phy_offset for m in found}
        for first, behind in _between([(header.begin_phy_offset, header.end_phy_offset) for header in headers], start):
            part = self._scan(start=first, stop=behind)
            self.scans.append(part)
            found += [m for m in part if m.phy_offset not in known]
            known |= {m.phy_offset for m in found}
        return sorted(found, key=lambda m: (m.phy_offset, m.queue_offset))

    def _fits(self, m: Message) -> bool:
        """The index has hashes of keys: a record that it names may have another key."""
        named = {*m.properties.get(PROPERTY_KEYS, "").split(" "), m.properties.get(PROPERTY_UNIQUE_KEY)}
        if m.topic != self._topic or not named & set(self._keys):
            return False
        return self._where is None or bool(self._where(m))


def _between(ranges: Sequence[tuple[int, int]], start: int) -> Iterator[tuple[int, int | None]]:
    """The physical offsets that files of the index, each with its first and last record, say nothing of."""
    at = start
    for first, last in ranges:
        if first > at:
            yield at, first
        at = max(at, last)
    yield at, None  # the last record is not known to have all its keys
