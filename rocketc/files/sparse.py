"""Where a file holds data, and where it has holes: parts that nobody has written, which read as zeros."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress

_BLOCK_BYTES = 1 << 20
_ZEROS = bytes(_BLOCK_BYTES)


def next_data(fd: int, pos: int, size: int) -> int:
    """The first byte at or behind pos that is not in a hole; size if there is none before it.

    A system that knows of no holes says pos, and so does a disk that fails: whoever reads there meets it.

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
    """Where the data at pos ends: the next hole, or size.

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
    """[start, stop) of the parts of a file from pos on that are no holes.

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     _ = file.write(b"data"), file.flush()
    ...     list(extents(file.fileno()))
    [(0, 4)]
    """
    size = os.fstat(fd).st_size
    while pos < size and (start := next_data(fd, pos, size)) < size:
        pos = max(next_hole(fd, start, size), start + 1)  # somebody may make a hole of it meanwhile
        yield start, pos


def written_blocks(fd: int, pos: int = 0) -> Iterator[tuple[int, bytes]]:
    """(position, bytes) of the parts of a file from pos on that are no holes and not all zeros, 1 MiB at most each.

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     _ = file.seek(2 << 20), file.write(b"data"), file.flush()
    ...     [(at >= 1 << 20, data.lstrip(bytes(1))) for at, data in written_blocks(file.fileno())]
    [(True, b'data')]
    """
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # what is read ahead into a hole counts as data then
    for start, stop in list(extents(fd, pos)):
        while start < stop:
            block = os.pread(fd, min(_BLOCK_BYTES, stop - start), start)
            if not block:
                return
            if block != _ZEROS[: len(block)]:
                yield start, block
            start += len(block)


def holes_of(path: str, base: int = 0) -> list[tuple[int, int]]:
    """Holes of a sparse file that have data behind them, [start, stop); a hole at the end is room for more.

    base  what to count from: the physical offset of its first byte
    None are found in a file that can't be opened, and by a system that knows of no holes.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "whole"
    >>> _ = path.write_bytes(b"data")
    >>> holes_of(str(path))
    []
    """
    out: list[tuple[int, int]] = []
    pos = 0
    with suppress(OSError), open(path, "rb", buffering=0) as file:
        for start, stop in extents(file.fileno()):
            if start > pos:
                out.append((base + pos, base + start))
            pos = stop
    return out
