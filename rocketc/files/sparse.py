"""Find the data and the holes of a sparse file. A hole is a part that was never written; it reads as zeros."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress

from rocketc.files.regular import open_regular

_BLOCK_BYTES = 1 << 20
_ZEROS = bytes(_BLOCK_BYTES)


def next_data(fd: int, pos: int, size: int) -> int:
    """Return the position of the first byte from pos on that is not in a hole; size if there is none before it.

    If the system does not support holes, or the disk fails, this returns pos: the error then appears when reading.

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     _ = file.seek(1 << 20), file.write(b"data"), file.flush()
    ...     next_data(file.fileno(), 0, 1 << 21) in (0, 1 << 20), next_data(file.fileno(), 1 << 20, 1 << 21)
    (True, 1048576)
    """
    try:
        return min(os.lseek(fd, pos, os.SEEK_DATA), size)
    except OSError as error:
        return size if error.errno == errno.ENXIO else pos
    except AttributeError:
        return pos


def next_hole(fd: int, pos: int, size: int) -> int:
    """Return the end of the data at pos: the next hole, or size.

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     _ = file.write(b"data"), file.flush()
    ...     next_hole(file.fileno(), 0, 4)
    4
    """
    try:
        return min(os.lseek(fd, pos, os.SEEK_HOLE), size)
    except (OSError, AttributeError):
        return size


def extents(fd: int, pos: int = 0) -> Iterator[tuple[int, int]]:
    """Yield [start, stop) of the parts of a file from pos on that are not holes.

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     _ = file.write(b"data"), file.flush()
    ...     list(extents(file.fileno()))
    [(0, 4)]
    """
    size = os.fstat(fd).st_size
    while pos < size and (start := next_data(fd, pos, size)) < size:
        pos = max(next_hole(fd, start, size), start + 1)  # another process may punch a hole meanwhile
        yield start, pos


def written_blocks(fd: int, pos: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield (position, bytes) of the parts of a file from pos on that are not holes or zeros, at most 1 MiB each.

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     _ = file.seek(2 << 20), file.write(b"data"), file.flush()
    ...     [(at >= 1 << 20, data.lstrip(bytes(1))) for at, data in written_blocks(file.fileno())]
    [(True, b'data')]
    """
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # a hole with read-ahead pages would count as data
    for start, stop in list(extents(fd, pos)):
        while start < stop:
            block = os.pread(fd, min(_BLOCK_BYTES, stop - start), start)
            if not block:
                return
            if block != _ZEROS[: len(block)]:
                yield start, block
            start += len(block)


def holes_of(path: str, base: int = 0) -> list[tuple[int, int]]:
    """Return the holes [start, stop) of a file that have data after them. A hole at the end is free space for records.

    base  added to the positions: the physical offset of the first byte of the file
    Returns an empty list if the file can't be opened, or the system does not support holes.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "whole"
    >>> _ = path.write_bytes(b"data")
    >>> holes_of(str(path))
    []
    """
    out: list[tuple[int, int]] = []
    pos = 0
    with suppress(OSError), open(path, "rb", buffering=0, opener=open_regular) as file:
        for start, stop in extents(file.fileno()):
            if start > pos:
                out.append((base + pos, base + start))
            pos = stop
    return out
