"""Find one message by its physical offset, queue offset or key, without a scan where the files allow it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from rocketc._layout import CQ_UNIT_BYTES, PROPERTY_KEYS, PROPERTY_UNIQUE_KEY
from rocketc.config import StoreConfig
from rocketc.derived._consume_queues import ConsumeQueues
from rocketc.derived._key_index import KeyIndex
from rocketc.derived.queue_files import detect_file_sizes, index_below
from rocketc.errors import CorruptRecordError, MissingCodecError, RocketcError
from rocketc.files._mapped_file import MappedFile
from rocketc.files.durable import errors_named
from rocketc.files.paths import Log, LogFile, base_of, resolve
from rocketc.files.regular import open_regular
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

    causes  (text, reason) for each log searched; reason is a name of a kind of damage, such as "bad_body_crc", or ""
    """

    def __init__(self, *causes: tuple[str, str]) -> None:
        super().__init__("; ".join(text for text, _ in causes))
        self.causes = causes


def _not_found(text: str, reason: str = "") -> RecordNotFound:
    return RecordNotFound((text, reason))


def at_offset(
    paths: Sequence[str], offset: int, progress: Progress = no_progress, decompress: bool = True
) -> list[Message]:
    """Return the message whose record begins at a physical offset; all messages of an inner batch.

    If the paths name several logs, each is searched. Raises RecordNotFound, and MissingCodecError for a body that is to
    be decompressed.

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
            found += _in_log(log, offset, progress, decompress)
        except RecordNotFound as error:
            causes += error.causes
    if not found:
        raise RecordNotFound(*causes or [(f"nothing to read: {' '.join(paths)}", "")])
    return found


def _in_log(log: Log, offset: int, progress: Progress, decompress: bool) -> list[Message]:
    ends = []
    for file in log.files:
        base = _base_of(file)
        if base <= offset < base + file.limit:
            return _in_file(file, base, offset, progress, decompress)
        ends.append((base, base + file.limit))
    if not ends:
        raise _not_found(f"no message begins at byte {offset}: the log is without files")
    begin, end = ends[0][0], ends[-1][1]
    where = f"the log begins at byte {begin}" if offset < begin else f"the files of the log end at byte {end}"
    if begin <= offset < end:
        where = "there is no file for it"
    raise _not_found(f"no message begins at byte {offset}: {where}")


def _base_of(file: LogFile) -> int:
    if file.base is not None:
        return file.base
    return Walker(MappedFile(file.path), None, Filter(), file=file.path).base


def _in_file(file: LogFile, base: int, offset: int, progress: Progress, decompress: bool) -> list[Message]:
    with errors_named(file.path), open(file.path, "rb", buffering=0, opener=open_regular) as opened:
        fd, pos = opened.fileno(), offset - base
        head = os.pread(fd, _HEAD, pos)
        size = int.from_bytes(head[:4], "big", signed=True)
        if head[4:] not in _MAGIC or not _HEAD < size <= file.size - pos:
            return _instead(file, base, offset, None, progress)
        record = _read(fd, size, pos)
    try:
        return list(decode(record, offset, crc="full", file=file.path, decompress=decompress))
    except CorruptRecordError as error:
        return _instead(file, base, offset, error.reason, progress)


def _read(fd: int, size: int, pos: int) -> bytes:
    """Read up to `size` bytes; pread() may return fewer bytes at a time."""
    parts = []
    while size > 0 and (part := os.pread(fd, size, pos)):
        parts.append(part)
        size -= len(part)
        pos += len(part)
    return b"".join(parts)


def _instead(file: LogFile, base: int, offset: int, reason: str | None, progress: Progress) -> list[Message]:
    """Scan the file up to the offset, and raise RecordNotFound with what is at the offset.

    reason  the damage of the record that seems to begin at the offset; None: nothing there looks like a record
    """
    walk = scan(file.path, stop=offset + 1, errors="skip", crc="none", unwrap=False, decompress=False)
    last = None
    with progress("looking for the records around", offset - base) as update:
        for last in walk:
            update(last.phy_offset - base)
    no = f"no message begins at byte {offset}: "
    end = base if last is None else last.phy_offset + last.store_size
    if last is not None and end > offset:
        if last.phy_offset < offset:
            which = f"{last.topic}/{last.queue_id}@{last.queue_offset}"
            raise _not_found(f"{no}it is inside the record of {which}, which begins at byte {last.phy_offset}")
        raise _not_found(f"the record at byte {offset} is damaged: {reason}", reason or "")
    for damage in walk.report.damage:
        if damage.start <= offset < damage.stop:
            raise _not_found(f"{no}bytes {damage.start} to {damage.stop} are damaged: {damage.reason}", damage.reason)
        end = max(end, damage.stop)
    if walk.report.blanks:
        raise _not_found(f"{no}from byte {end} on {file.path} is blank")
    raise _not_found(f"{no}the log ends at byte {end}")


def find_in_queue(paths: Sequence[str], topic: str, queue_id: int, offset: int) -> int | None:
    """Return the physical offset of the record with a queue offset, if the consume queue has it and the log agrees.

    Returns None if the queue does not exist or is a batch queue, if it is without this message, or if its unit is
    wrong.

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
        units = queues.units(topic, queue_id, offset, 1)  # reads only the files of this queue
        queues.close()
        if len(units) != 1 or units[0][4] != offset:
            return None
        at = units[0][1]
        found = at_offset(paths, at, decompress=False)
    except (RocketcError, RecordNotFound, OSError, ValueError):
        return None
    there = any((m.topic, m.queue_id, m.queue_offset) == (topic, queue_id, offset) for m in found)
    return at if there else None


class KeyLookup:
    """Finds the messages of a topic with a key or a unique id in a store's index.

    paths  of the store
    keys   the key in each of its forms
    where  another condition on the messages, or None
    scan   scan(start=, stop=) returns the matching messages in a range of physical offsets
    warn   called with a text if the index exists but is damaged
    decompress  decompress the bodies
    scans  scans of the parts of the log that the index does not cover
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
        decompress: bool = True,
    ) -> None:
        self._paths = list(paths)
        self._topic = topic
        self._keys = keys
        self._where = where
        self._scan = scan
        self._warn = warn
        self._decompress = decompress
        self.scans: list[Scan] = []

    def find(self) -> list[Message] | None:
        """Return all matches in the order of the log; None if there is no index or (with a warning) it is damaged."""
        root = root_of(self._paths)
        if root is None or not os.path.isdir(os.path.join(root, "index")):
            return None
        if not os.path.isdir(os.path.join(root, "consumequeue", self._topic)):
            return None  # may be a batch queue: the index does not contain the keys of messages in inner batches
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
        except MissingCodecError:
            return None  # the scan reports it
        except RocketcError as error:
            self._warn(f"the index is damaged, so the log is searched: {error}")
            return None
        except RecordNotFound:
            return None  # the index contains a record that cannot be read: the scan reports the reason

    def _find(self, index: KeyIndex) -> list[Message] | None:
        headers = [header for _, header in index.headers() if header.index_count > 1]
        files = [file for log in resolve(self._paths) for file in log.files]
        if not headers or not files:
            return None
        start = files[0].origin
        places = {at for text in self._keys for at in index.offsets(self._topic, text) if at >= start}
        found = [m for at in places for m in self._at(at) if self._fits(m)]
        known = {m.phy_offset for m in found}
        for first, behind in _between([(header.begin_phy_offset, header.end_phy_offset) for header in headers], start):
            part = self._scan(start=first, stop=behind)
            self.scans.append(part)
            found += [m for m in part if m.phy_offset not in known]
            known |= {m.phy_offset for m in found}
        return sorted(found, key=lambda m: (m.phy_offset, m.queue_offset))

    def _at(self, offset: int) -> list[Message]:
        return at_offset(self._paths, offset, decompress=self._decompress)

    def _fits(self, m: Message) -> bool:
        """Whether a message has the key: the index contains hashes, so its record may have another key."""
        named = {*m.properties.get(PROPERTY_KEYS, "").split(" "), m.properties.get(PROPERTY_UNIQUE_KEY)}
        if m.topic != self._topic or not named & set(self._keys):
            return False
        return self._where is None or bool(self._where(m))


def _between(ranges: Sequence[tuple[int, int]], start: int) -> Iterator[tuple[int, int | None]]:
    """Yield the ranges of physical offsets that the index files, each with its first and last record, do not cover."""
    at = start
    for first, last in ranges:
        if first > at:
            yield at, first
        at = max(at, last)
    yield at, None  # the index may be without some keys of the last record
