"""Cut a log at an offset. The bytes after it are removed, and kept in the folder `cut` of the store.

They are kept durably before anything is removed. Until all of them are removed, the rest can't be mistaken for a part
of the log. So after a crash during a cut, recovery cuts again, with the same result.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from itertools import count, pairwise

from rocketc.files._mapped_file_queue import MappedFileQueue
from rocketc.files.durable import errors_named, make_folder, sync_data, sync_file, sync_folder, write_all
from rocketc.files.paths import LogFile
from rocketc.files.regular import open_regular
from rocketc.files.sparse import written_blocks

_COPY_BYTES = 1 << 20
_SECTOR_BYTES = 512  # a disk writes a whole sector or none of it
_HEAD_BYTES = 8  # size and magic number of a record


def truncate_and_backup(
    root: str, queue: MappedFileQueue, files: list[LogFile], end: int, *, as_java: bool = False
) -> list[str]:
    """End a loaded log at a physical offset. Return the paths of the kept files, named by their physical offsets.

    root        the store's root; the kept files go to its folder `cut`
    files       of the log, in their order, those that contain data
    as_java     for a recovery that ends the log at the first invalid record. The head of the record at `end` is cleared
                first, and a file that begins there is kept. Without as_java, the bytes at `end` stay until all bytes
                after them are removed
    Raises StoreIOError, StoreFullError. The log is then unchanged, or ends at `end` with some bytes left to clear.

    >>> import rocketc, tempfile
    >>> from rocketc.files.paths import resolve
    >>> root = tempfile.mkdtemp()
    >>> with rocketc.open(root, mapped_file_size_commit_log=1 << 20) as store:
    ...     ends = [store.put("t", body).end for body in (b"stays", b"goes")]
    >>> queue = MappedFileQueue([root + "/commitlog"], 1 << 20)
    >>> queue.load()
    >>> kept = truncate_and_backup(root, queue, list(resolve(root)[0].files), ends[0])
    >>> [m.body for m in rocketc.scan(root)], [m.body for m in rocketc.scan(kept)]
    ([b'stays'], [b'goes'])
    """
    tails = [(file, max(end - file.origin, 0)) for file in files if file.origin + file.size > end]
    kept = []
    for file, pos in tails:
        stop = _data_end(file.path, pos)
        if stop > pos:
            kept.append(_keep(root, file, pos, goes=file.origin > end))
    queue.truncate(end, keep_empty=as_java)
    for file, pos in tails[:1]:
        if file.path in queue.files:
            stop = _data_end(file.path, pos)
            if as_java:
                _clear(file.path, pos, min(pos + _HEAD_BYTES, stop))
            _clear(file.path, pos, stop)
    return kept


def truncate(queue: MappedFileQueue, end: int) -> None:
    """Remove the bytes after a known end of a loaded log that is not open; nothing is kept.

    After a crash during the call, the log ends at or after `end` once it is recovered.

    >>> import rocketc, tempfile
    >>> root = tempfile.mkdtemp()
    >>> with rocketc.open(root, mapped_file_size_commit_log=1 << 20) as store:
    ...     ends = [store.put("t", body).end for body in (b"stays", b"goes")]
    >>> queue = MappedFileQueue([root + "/commitlog"], 1 << 20)
    >>> queue.load()
    >>> truncate(queue, ends[0])
    >>> [m.body for m in rocketc.scan(root)]
    [b'stays']
    """
    queue.truncate(end)
    for path in queue.files:
        base = int(os.path.basename(path))
        if base <= end:
            _clear(path, end - base, _data_end(path, end - base))


def _blocks(path: str, pos: int) -> Iterator[tuple[int, bytes]]:
    """Yield (position, bytes) of the written parts of a file from pos on. Raises StoreIOError."""
    with errors_named(path), open(path, "rb", buffering=0, opener=open_regular) as file:
        yield from written_blocks(file.fileno(), pos)


def _data_end(path: str, pos: int) -> int:
    """Return the position after the last byte from pos on that is not zero; pos if all are zero."""
    end = pos
    for at, block in _blocks(path, pos):
        end = at + len(block.rstrip(b"\0"))
    return end


def _keep(root: str, file: LogFile, pos: int, *, goes: bool) -> str:
    """Keep the bytes of a log file from pos on in the folder `cut`, durably. Return the path.

    goes  the whole file will be deleted: a hard link is enough, without a copy
    Bytes that an interrupted recovery has already kept are not kept again.
    """
    folder = os.path.join(root, "cut")
    make_folder(folder)
    name = os.path.join(folder, f"{file.origin + pos:020d}")
    path = name
    for n in count(1):
        if not os.path.lexists(path):
            break
        if _is_kept(path, file, pos):
            sync_folder(folder)
            return path
        path = f"{name}.{n}"
    if not (goes and _link(file.path, path)):
        _copy(file, pos, name + ".tmp")
        with errors_named(path):
            os.replace(name + ".tmp", path)
    sync_folder(folder)
    return path


def _link(path: str, new: str) -> bool:
    """Create a hard link to a file. Return False if that is not possible, for example on another disk."""
    sync_file(path)
    with contextlib.suppress(OSError):
        os.link(path, new)
        return True
    return False


def _copy(file: LogFile, pos: int, path: str) -> None:
    """Copy a log file from pos on to a new file, with zeros as holes, and make it durable."""
    with errors_named(path):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # left by an interrupted recovery
        out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        for at, block in _blocks(file.path, pos):
            with errors_named(path):
                write_all(out, block, at - pos)
        with errors_named(path):
            os.ftruncate(out, file.size - pos)
            os.fsync(out)
    finally:
        os.close(out)


def _is_kept(path: str, file: LogFile, pos: int) -> bool:
    """Whether the file at `path` has all bytes of a log file from pos on, apart from those that were cleared
    meanwhile."""
    with errors_named(path):
        kept = open_regular(path)
    try:
        if os.path.samestat(os.fstat(kept), os.stat(file.path)):
            return True
        for at, block in _blocks(file.path, pos):
            with errors_named(path):
                was = os.pread(kept, len(block), at - pos)
            if not _is_block_kept(was, block, at, pos):
                return False
    finally:
        os.close(kept)
    return True


def _is_block_kept(kept: bytes, block: bytes, at: int, pos: int) -> bool:
    """Whether each sector of a block at position `at` equals the kept one, or is cleared. So may be the head at pos."""
    if kept == block:
        return True
    sectors = range(at - at % _SECTOR_BYTES, at + len(block), _SECTOR_BYTES)
    marks = sorted({*(max(mark - at, 0) for mark in sectors), max(pos + _HEAD_BYTES - at, 0), len(block)})
    return all(block[a:b] in (kept[a:b], bytes(b - a)) for a, b in pairwise(marks) if b <= len(block))


def _clear(path: str, pos: int, stop: int) -> None:
    """Write zeros over [pos, stop) of a file, durably. The disk space stays allocated.

    The last bytes are cleared first: until all are cleared, the damage at pos stays, and with it the place to cut.
    """
    if stop <= pos:
        return
    with errors_named(path), open(path, "r+b", buffering=0, opener=open_regular) as file:
        for start in range(pos + (stop - pos - 1) // _COPY_BYTES * _COPY_BYTES, pos - 1, -_COPY_BYTES):
            write_all(file.fileno(), bytes(min(_COPY_BYTES, stop - start)), start)
        sync_data(file.fileno())
