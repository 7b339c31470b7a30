"""The message at a physical offset, read without what lies around it; or what stands there instead."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rocketc._filter import Filter
from rocketc._mapped_file import MappedFile
from rocketc._message import Message
from rocketc._record import encode
from rocketc._walk import Walker
from rocketc.cli.output import in_words
from rocketc.cli.progress import progress
from rocketc.errors import CorruptRecordError, StoreIOError
from rocketc.paths import Log, LogFile, resolve
from rocketc.remote import refuse_urls
from rocketc.scan import decode, scan

_HEAD = 8  # bytes: size and magic number
_MAGIC = {encode("", version=1)[4:_HEAD], encode("", version=2)[4:_HEAD]}


class NotThere(Exception):
    """No message begins at the offset; the text says why."""


def at_offset(paths: Sequence[str], offset: int) -> list[Message]:
    """The message whose record begins at a physical offset; all of them if that is an inner batch.

    Raises NotThere. In several logs each is looked into.
    """
    refuse_urls(paths, "this")
    found: list[Message] = []
    told: list[str] = []
    for log in resolve(list(paths)):
        try:
            found += _in_log(log, offset)
        except NotThere as reason:
            told.append(str(reason))
    if not found:
        raise NotThere("; ".join(told) or f"nothing to read: {' '.join(paths)}")
    return found


def _in_log(log: Log, offset: int) -> list[Message]:
    ends = []
    for file in log.files:
        base = _base_of(file)
        if base <= offset < base + file.limit:
            return _in_file(file, base, offset)
        ends.append((base, base + file.limit))
    if not ends:
        raise NotThere(f"no message begins at byte {offset}: the log has no files")
    begin, end = ends[0][0], ends[-1][1]
    where = f"the log begins at byte {begin}" if offset < begin else f"the files of the log end at byte {end}"
    if begin <= offset < end:
        where = "no file holds it"
    raise NotThere(f"no message begins at byte {offset}: {where}")


def _base_of(file: LogFile) -> int:
    if file.base is not None:
        return file.base
    return Walker(MappedFile(file.path), None, Filter(), file=file.path).base


def _in_file(file: LogFile, base: int, offset: int) -> list[Message]:
    try:
        with open(file.path, "rb", buffering=0, opener=_without_waiting) as opened:
            fd, pos = opened.fileno(), offset - base
            head = os.pread(fd, _HEAD, pos)
            size = int.from_bytes(head[:4], "big", signed=True)
            if head[4:] not in _MAGIC or not _HEAD < size <= file.size - pos:
                return _instead(file, base, offset, None)
            record = _read(fd, size, pos)
    except OSError as error:
        raise StoreIOError(error.errno, error.strerror, file.path) from None
    try:
        return list(decode(record, offset, crc="full", file=file.path))
    except CorruptRecordError as error:
        return _instead(file, base, offset, error.reason)


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


def _instead(file: LogFile, base: int, offset: int, reason: str | None) -> list[Message]:
    """Walk over the file up to the offset, and say what stands there: NotThere.

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
            raise NotThere(f"{no}it lies in the record of {which}, which begins at byte {last.phy_offset}")
        raise NotThere(f"the record at byte {offset} is damaged: {reason}{in_words(reason or '')}")
    for damage in walk.report.damage:
        if damage.start <= offset < damage.stop:
            raise NotThere(
                f"{no}bytes {damage.start} to {damage.stop} are damaged: {damage.reason}{in_words(damage.reason)}"
            )
        end = max(end, damage.stop)
    if walk.report.blanks:
        raise NotThere(f"{no}from byte {end} on {file.path} is blank")
    raise NotThere(f"{no}the log ends at byte {end}")
