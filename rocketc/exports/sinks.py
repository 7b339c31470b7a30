"""Write the bytes of an export: a sink per file, and names that appear once all bytes of a file are on the disk."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO

from rocketc.exports.manifest import File, files_in, read_manifest, refuse_foreign, remove_export, write_manifest
from rocketc.files.durable import errors_named, write_all

if TYPE_CHECKING:
    from typing_extensions import Buffer

BLOCK_BYTES = 1 << 20
_NOT_SYNCABLE = {errno.EINVAL, errno.ENOTSUP, errno.EROFS}  # a pipe, or a file system that cannot sync folders


class Sink:
    """Writes bytes to a file in blocks; pyarrow accepts it as a file.

    A sink that was dropped after an error accepts all bytes and writes none, because pyarrow's writers finish their
    files even when they are discarded.
    """

    closed = False

    def __init__(self, put: Callable[[memoryview], None]) -> None:
        self._put = put
        self._parts: list[bytes] = []
        self._waiting = 0
        self.bytes = 0  # accepted so far
        self._dropped = False

    def write(self, data: Buffer) -> int:
        view = memoryview(data)
        if self._dropped:
            return view.nbytes
        self.bytes += view.nbytes
        if view.nbytes >= BLOCK_BYTES:  # write it directly, without a copy
            self.flush()
            self._put(view)
        else:
            self._parts.append(bytes(data))
            self._waiting += view.nbytes
            if self._waiting >= BLOCK_BYTES:
                self.flush()
        return view.nbytes

    def flush(self) -> None:
        parts, self._parts, self._waiting = self._parts, [], 0
        if parts and not self._dropped:
            self._put(memoryview(parts[0] if len(parts) == 1 else b"".join(parts)))

    def drop(self) -> None:
        self._dropped = True
        self._parts.clear()

    def tell(self) -> int:
        return self.bytes

    def close(self) -> None:
        self.flush()

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


def sink_to_descriptor(fd: int, path: str) -> Sink:
    def put(data: memoryview) -> None:
        with errors_named(path):
            write_all(fd, data)

    return Sink(put)


def sink_to_end_of(path: str, shown: str) -> Sink:
    """Return a sink that opens the file only to append a block: there may be thousands of such sinks.

    shown  path of the file in errors
    """

    def put(data: memoryview) -> None:
        with errors_named(shown):
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            try:
                write_all(fd, data)
            finally:
                os.close(fd)

    return Sink(put)


def sink_to_stream(stream: BinaryIO) -> Sink:
    """Return a sink to an open file of the caller; its errors are passed to the caller."""

    def put(data: memoryview) -> None:
        while data:  # a raw stream may write only a part
            data = data[stream.write(data) :]
        stream.flush()

    return Sink(put)


@contextmanager
def whole_file(path: str, overwrite: bool) -> Iterator[Sink]:
    """Open a sink for a file that gets its name when the block succeeds; after an error no file is left.

    Devices and pipes are written directly: they must not be replaced by a file.
    """
    shown, path = path, os.path.realpath(path)
    if is_special(path):
        with _special_file(path) as straight:
            yield straight
        return
    refuse_existing(path, overwrite, shown)
    temporary = _temporary_beside(path)
    fd = -1
    sink: Sink | None = None
    try:
        with errors_named(shown):
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            with suppress(FileNotFoundError):
                os.fchmod(fd, stat.S_IMODE(os.stat(path).st_mode))
        sink = sink_to_descriptor(fd, shown)
        yield sink
        sink.flush()
        refuse_existing(path, overwrite, shown)
        with errors_named(shown):
            os.fsync(fd)
            os.replace(temporary, path)
            sync(os.path.dirname(path))
    except BaseException:
        if sink is not None:
            sink.drop()
        with suppress(OSError):
            os.unlink(temporary)
        raise
    finally:
        if fd >= 0:
            os.close(fd)


@contextmanager
def _special_file(path: str) -> Iterator[Sink]:
    with errors_named(path):
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    sink = sink_to_descriptor(fd, path)
    try:
        yield sink
        sink.flush()
    finally:
        sink.drop()
        os.close(fd)


@contextmanager
def whole_folder(path: str, overwrite: bool) -> Iterator[str]:
    """Create a folder to fill, which gets its name when the block succeeds; after an error no folder is left.

    A manifest beside it lists its files. With overwrite, it replaces a folder that has only what its manifest lists.
    """
    import shutil

    shown, path = path, os.path.realpath(path)
    refuse_existing_folder(shown, overwrite)
    temporary, old = _temporary_beside(path), _temporary_beside(path)
    before, made = read_manifest(path) if os.path.lexists(path) else set(), set[File]()
    try:
        with errors_named(shown):
            os.mkdir(temporary)
        yield temporary
        refuse_existing_folder(shown, overwrite)
        with errors_named(shown):
            made = set(files_in(temporary))
            sync_tree(temporary)
            write_manifest(path, before | made)  # true of both folders, if the process is killed now
            with suppress(FileNotFoundError):
                os.rename(path, old)
            os.rename(temporary, path)
            sync(os.path.dirname(path))
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        if not os.path.lexists(path):
            with suppress(OSError):
                os.rename(old, path)
        if made:
            with suppress(OSError):
                write_manifest(path, before)
        raise
    remove_export(old, before, path)
    with errors_named(shown):
        write_manifest(path, made)


def is_special(path: str) -> bool:
    """Whether the path is a device, a pipe or a socket."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def refuse_existing(path: str, overwrite: bool, shown: str) -> None:
    """Raise FileExistsError with the path `shown` if the path exists and must not be replaced."""
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), shown)
    if not overwrite and os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), shown)


def refuse_existing_folder(path: str, overwrite: bool) -> None:
    """Raise FileExistsError if a folder exists and has files, or with overwrite, files that no export wrote."""
    try:
        names = os.listdir(path)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None
    if names and not overwrite:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    if names:
        refuse_foreign(os.path.realpath(path), path)


def _temporary_beside(path: str) -> str:
    return os.path.join(os.path.dirname(path), f".rocketc-export-{os.urandom(4).hex()}.tmp")


def sync(path: str) -> None:
    """Make a file or a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in _NOT_SYNCABLE:
            raise
    finally:
        os.close(fd)


def sync_tree(root: str) -> None:
    """Make everything in a folder durable, several files at a time, which the disk can combine."""
    from concurrent.futures import ThreadPoolExecutor

    paths = (os.path.join(folder, name) for folder, _, names in os.walk(root) for name in [*names, "."])
    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(sync, paths):
            pass
