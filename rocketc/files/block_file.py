"""Files read in blocks, without a map: they use little memory, and a file cut meanwhile is an error, not a signal."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rocketc.errors import StoreIOError
from rocketc.files import sparse
from rocketc.files.durable import errors_named
from rocketc.files.regular import open_regular

if TYPE_CHECKING:
    from typing_extensions import Self

BLOCK_BYTES = 1 << 20


class BlockFile:
    """A file to read in blocks; use it in a `with` statement, which closes it.

    path  str or os.PathLike
    The size is that at the opening: bytes that are appended later are not read.
    Raises StoreIOError with errno and file name: missing, no permission, not a regular file, cut short meanwhile.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "00000000000000000000"
    >>> _ = path.write_bytes(b"first second torn")
    >>> with BlockFile(path) as file:
    ...     file.size, file.read(6, 6), list(file.blocks(0, file.size, 6))
    (17, b'second', [(0, b'first second')])
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._fd = -1
        self.path = os.fspath(path)
        with errors_named(self.path):
            self._fd = open_regular(self.path)
            self.size = os.fstat(self._fd).st_size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def fileno(self) -> int:
        return self._fd

    def read(self, pos: int, size: int) -> bytes:
        """Return the bytes [pos, pos + size); fewer only at the end of the file."""
        size = max(min(size, self.size - pos), 0)
        parts: list[bytes] = []
        while size > 0:
            with errors_named(self.path):
                part = os.pread(self._fd, size, pos)
            if not part:
                raise StoreIOError(errno.EIO, "became shorter while it was read", self.path)
            parts.append(part)
            pos += len(part)
            size -= len(part)
        return b"".join(parts)

    def blocks(self, start: int, stop: int, unit: int) -> Iterator[tuple[int, bytes]]:
        """Yield blocks of whole units in [start, stop), each with the position of its first unit, without units in
        holes.

        unit  size of a unit in bytes; the first one begins at `start`
        """
        most = max(BLOCK_BYTES // unit, 1) * unit
        stop = min(stop, self.size)
        while stop - start >= unit:
            start += max(self.next_data(start) - start, 0) // unit * unit
            data = self.read(start, min(most, max(stop - start, 0) // unit * unit))
            if data:
                yield start, data
            start += max(len(data), unit)

    def next_data(self, pos: int) -> int:
        """Return the position of the first byte from pos on that is not in a hole; the size if there is none."""
        return sparse.next_data(self._fd, pos, self.size)

    def data_stop(self) -> int:
        """Return the position after the last byte that is not zero; 0 if all are zero."""
        stop = self.size
        while stop > 0:
            stop = self._without_hole(stop)
            start = max(stop - BLOCK_BYTES, 0)
            data = self.read(start, stop - start)
            for at in reversed(range(0, len(data), 4096)):
                page = data[at : at + 4096]
                if page != bytes(len(page)):
                    return start + at + len(page.rstrip(b"\0"))
            stop = start
        return 0

    def _without_hole(self, stop: int) -> int:
        """Return a position at or before stop with only a hole between them."""
        data = 0  # largest position known to have data after it
        while stop - data > BLOCK_BYTES:
            middle = (data + stop) // 2
            if self.next_data(middle) < stop:
                data = middle
            else:
                stop = middle
        return stop
