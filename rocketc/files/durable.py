"""Make files and folders durable, and convert their errors to StoreIOError."""

from __future__ import annotations

import errno
import fcntl
import os

from rocketc.errors import StoreFullError, StoreIOError
from rocketc.files.regular import open_regular


class errors_named:
    """A context in which OSErrors become StoreIOError or StoreFullError with this file's name. Others pass unchanged.

    >>> with errors_named("store/lock"):
    ...     raise OSError(28, "No space left on device")
    Traceback (most recent call last):
    rocketc.errors.StoreFullError: [Errno 28] No space left on device: 'store/lock'
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, StoreIOError):
            ours = StoreFullError if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreIOError
            raise ours(error.errno, error.strerror or str(error), self._path) from None


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Make the names of the files in a folder durable. Raises StoreIOError.

    >>> import tempfile
    >>> sync_folder(tempfile.mkdtemp())
    """
    path = os.fspath(path)
    with errors_named(path):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def sync_data(fd: int) -> None:
    """Make the bytes of an open file durable, but not its times. Raises OSError.

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     sync_data(file.fileno())
    """
    if hasattr(fcntl, "F_FULLFSYNC"):  # on macOS, fsync() only writes to the disk's own cache
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(fd)


def sync_file(path: str | os.PathLike[str]) -> None:
    """Make a file's bytes durable. Raises StoreIOError.

    >>> import tempfile
    >>> sync_file(tempfile.mkstemp()[1])
    """
    path = os.fspath(path)
    with errors_named(path):
        fd = open_regular(path, os.O_RDWR)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def sync_tree(path: str | os.PathLike[str]) -> None:
    """Make a folder and all of its content durable. Raises StoreIOError.

    >>> import tempfile
    >>> sync_tree(tempfile.mkdtemp())
    """
    for folder, _, names in os.walk(path):
        for name in names:
            sync_file(os.path.join(folder, name))
        sync_folder(folder)


def write_all(fd: int, data: bytes | bytearray | memoryview, at: int | None = None) -> None:
    """Write all bytes to a file, in several calls if necessary. Raises OSError.

    at  their position; None: the current position, also for files without positions such as pipes

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     write_all(file.fileno(), b"whole", 3)
    ...     file.read()
    b'\\x00\\x00\\x00whole'
    """
    rest = memoryview(data)
    while rest:
        wrote = os.write(fd, rest) if at is None else os.pwrite(fd, rest, at)
        rest, at = rest[wrote:], None if at is None else at + wrote


def make_folder(path: str | os.PathLike[str]) -> None:
    """Create a folder and its missing parents, each of them durable. Raises StoreIOError.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "data", "store")
    >>> make_folder(path)
    >>> os.path.isdir(path)
    True
    """
    path = os.path.abspath(os.fspath(path))
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    if above != path:
        make_folder(above)
    with errors_named(path):
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
    sync_folder(above)
