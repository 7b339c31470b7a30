"""The files that show which process uses a store: `lock`, held by the writer, and `abort`, which exists while it runs.
The writer also locks the folders of its log. Also close_all(), for the end of a process."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import struct
import sys
import threading
import weakref
from collections.abc import Iterable
from typing import NoReturn, Protocol

from rocketc.errors import StoreLockedError
from rocketc.files.durable import errors_named, sync_folder, write_all
from rocketc.files.regular import open_regular

_log = logging.getLogger("rocketc.store")

# On Linux such a lock belongs to the open file: a second one in the same process fails too, and it conflicts with the
# locks of other programs (F_SETLK), such as Java. Other systems use F_SETLK; there _held prevents a second one.
_BY_FILE = sys.platform == "linux"
_SET_LOCK, _GET_LOCK = 37, 36  # F_OFD_SETLK, F_OFD_GETLK
_FLOCK = struct.Struct("@hhqqi0q")  # fields of struct flock: l_type to l_pid

_opening = threading.RLock()  # no fork happens between the opening of a lock file and its entry in _open
_open: weakref.WeakSet[StoreLock] = weakref.WeakSet()
_held: set[tuple[int, int] | None] = set()  # device and inode


class StoreLock:
    """The right to write to a store: a lock on the first byte of `lock` in its root, as in RocketMQ, and a lock on each
    folder of its log.

    root     the store's folder; the file is created there, and stays
    folders  of the log; those that do not exist are left out, see take_folders(). None: `commitlog` below the root
    The locks end with release(), or with the process. A forked child does not hold them. Where there are only F_SETLK
    locks (macOS), that of the file also ends when this process closes any other descriptor of the file `lock`. The
    folders are locked with flock(), which RocketMQ does not use: they keep out a second rocketc if `lock` was deleted,
    or if two stores name one folder. A file system that can't lock folders is accepted.
    Raises StoreLockedError if this process or another one holds a lock; StoreIOError and StoreFullError with the
    file's name.

    >>> import tempfile
    >>> root = tempfile.mkdtemp()
    >>> lock = StoreLock(root)
    >>> StoreLock(root)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    rocketc.errors.StoreLockedError: ... is open for writing already...
    >>> lock.release()
    >>> StoreLock(root).release()
    """

    def __init__(self, root: str | os.PathLike[str], folders: Iterable[str] | None = None) -> None:
        self._fd = -1
        self._root = os.fspath(root)
        self._key: tuple[int, int] | None = None
        self._folders: dict[tuple[int, int], tuple[int, str]] = {}  # device and inode -> descriptor, path
        path = os.path.join(self._root, "lock")
        try:
            with errors_named(path):
                self._take(path)
                write_all(self._fd, b"lock", 0)
                os.fsync(self._fd)
            self.take_folders([os.path.join(self._root, "commitlog")] if folders is None else folders)
        except BaseException:
            self.release()
            raise

    def _take(self, path: str) -> None:
        with _opening:
            if not _BY_FILE and _key_of(path) in _held:  # opening and closing it here would end the lock
                self._locked()
            self._fd = open_regular(path, os.O_RDWR | os.O_CREAT)
            _open.add(self)
            try:
                if _BY_FILE:
                    fcntl.fcntl(self._fd, _SET_LOCK, _flock(fcntl.F_WRLCK))
                else:
                    fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
                    self._key = _key_of(path)
                    _held.add(self._key)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
                self._locked()

    def _locked(self) -> NoReturn:
        pid = _holder(self._fd, self._root) if _BY_FILE else _running_pid(self._root)
        how = "" if not pid else ", in this process" if pid == os.getpid() else f", by process {pid}"
        raise StoreLockedError(f"{self._root} is open for writing already{how}")

    def take_folders(self, folders: Iterable[str]) -> None:
        """Lock these folders of the log too, as far as they exist and are not locked yet. Raises StoreLockedError if
        another store has one, StoreIOError."""
        for folder in folders:
            with _opening, errors_named(folder), contextlib.suppress(FileNotFoundError):
                self._take_folder(os.path.abspath(folder))

    def _take_folder(self, folder: str) -> None:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK | os.O_CLOEXEC)
        info = os.fstat(fd)
        if (info.st_dev, info.st_ino) in self._folders:  # the same folder under two names
            os.close(fd)
            return
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            own = folder == os.path.join(os.path.abspath(self._root), "commitlog")
            pid = _running_pid(self._root) if own else 0
            how = "" if not pid else ", in this process" if pid == os.getpid() else f", by process {pid}"
            raise StoreLockedError(f"the log in {folder} is in use by another writer{how}") from None
        except OSError as error:  # a file system without locks of folders: NFS
            _log.debug("%s can't be locked: %s", folder, error.strerror)
        self._folders[info.st_dev, info.st_ino] = fd, folder

    def watched(self) -> list[tuple[str, int, int, bool]]:
        """Return what must stay in its place while the lock is held: (path, device, inode, whether the path may be a
        symbolic link)."""
        info = os.fstat(self._fd)
        folders = [(path, device, inode, True) for (device, inode), (_, path) in self._folders.items()]
        return [(os.path.abspath(os.path.join(self._root, "lock")), info.st_dev, info.st_ino, False), *folders]

    @property
    def fd(self) -> int:
        """Descriptor of the lock file; -1 after release(), and in a forked child."""
        return self._fd

    def release(self) -> None:
        """Release the lock. The file stays. Does nothing on a second call, or in a forked child."""
        with _opening:
            _open.discard(self)
            if self._fd < 0:
                return
            if self._key is not None:
                _held.discard(self._key)
            for folder, _ in self._folders.values():  # before the file: the next writer takes the file first
                with contextlib.suppress(OSError):
                    fcntl.flock(folder, fcntl.LOCK_UN)
            if _BY_FILE:  # a child that C code forked may have the file open as well
                with contextlib.suppress(OSError):
                    fcntl.fcntl(self._fd, _SET_LOCK, _flock(fcntl.F_UNLCK))
            self._close()

    def _close(self) -> None:
        fds = [self._fd, *(fd for fd, _ in self._folders.values())]
        self._fd = -1
        self._folders = {}
        for fd in fds:
            os.close(fd)

    def _leave_to_parent(self) -> None:
        """In a forked child: close the files without releasing the parent's locks."""
        if self._fd >= 0:
            self._close()

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            self.release()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a StoreLock can't be pickled: it belongs to its process")


def holder_of(root: str | os.PathLike[str]) -> int | None:
    """Return the id of the process that holds a store's lock, without taking a lock; 0: the process is unknown; None:
    no process holds it, or this can't be determined (always, except on Linux).

    >>> import tempfile
    >>> root = tempfile.mkdtemp()
    >>> lock = StoreLock(root)
    >>> AbortFile(root).create()
    >>> holder_of(root) == (os.getpid() if sys.platform == "linux" else None)
    True
    >>> lock.release()
    >>> holder_of(root)
    """
    if not _BY_FILE:  # opening and closing the file here might end the lock
        return None
    try:
        fd = open_regular(os.path.join(root, "lock"))
    except OSError:
        return None
    try:
        return _holder(fd, root)
    except OSError:  # a file system without locks
        return None
    finally:
        os.close(fd)


def _holder(fd: int, root: str | os.PathLike[str]) -> int | None:
    """Do holder_of() for an open lock file that this descriptor does not lock."""
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, _GET_LOCK, _flock(fcntl.F_WRLCK)))
    if kind == fcntl.F_UNLCK:
        return None
    if pid > 0:  # an F_SETLK lock; -1: a lock of an open file, not of a process
        return pid if _is_running(pid) else 0
    return _running_pid(root)


def _running_pid(root: str | os.PathLike[str]) -> int:
    """Return the process that the abort file names, if it still runs; otherwise 0."""
    pid = AbortFile(root).pid
    return pid if pid is not None and _is_running(pid) else 0


def pid_in(text: bytes) -> int | None:
    """Return the process id in an abort file, from its first bytes (20 are enough); None: it names no process.

    >>> pid_in(b"4711"), pid_in(b""), pid_in(b"99999999999999999999")
    (4711, None, None)
    """
    text = text.rstrip()
    return int(text) if text.isdigit() and 0 < int(text) < 1 << 31 else None


class AbortFile:
    """`abort` in a store's root: it exists while the store runs. If it exists at the start, the store has crashed.

    root  the store's folder

    >>> import tempfile
    >>> abort = AbortFile(tempfile.mkdtemp())
    >>> abort.create()
    >>> abort.exists(), abort.pid == os.getpid()
    (True, True)
    >>> abort.remove()
    >>> abort.exists()
    False
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = os.fspath(root)
        self.path = os.path.join(self._root, "abort")

    def exists(self) -> bool:
        """Whether the store runs, or was not closed. Raises StoreIOError if this can't be determined."""
        with errors_named(self.path):
            try:
                os.lstat(self.path)
            except FileNotFoundError:
                return False
            return True

    @property
    def pid(self) -> int | None:
        """The process that the file names, as RocketMQ 5 and rocketc write it; None: it names no process, or is
        missing."""
        try:
            with open(self.path, "rb", opener=open_regular) as file:
                return pid_in(file.read(20))
        except OSError:
            return None

    def create(self) -> None:
        """Create the file, or take over an existing one, and make it durable. Raises StoreIOError, StoreFullError; a
        new file is removed then."""
        there = self.exists()
        with errors_named(self.path):
            fd = open_regular(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            try:
                os.write(fd, b"%d" % os.getpid())
                os.fsync(fd)
            except OSError:
                if not there:  # nothing was written to the store yet: it stays closed
                    with contextlib.suppress(OSError):
                        os.unlink(self.path)
                raise
            finally:
                os.close(fd)
        sync_folder(self._root)

    def remove(self) -> None:
        """Remove the file, durably. A missing file is not an error. Raises StoreIOError."""
        with errors_named(self.path), contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        sync_folder(self._root)


class _Open(Protocol):
    def close(self) -> None: ...


def close_all(opened: Iterable[_Open]) -> None:
    """Close all objects, at the interpreter's end, even if closing some of them fails. Raises the first error.

    >>> close_all([])
    """
    errors: list[BaseException] = []
    for one in list(opened):
        try:
            one.close()
        except BaseException as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _flock(kind: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, 0, 1, 0)


def _key_of(path: str) -> tuple[int, int] | None:
    try:
        info = os.stat(path)
    except FileNotFoundError:
        return None
    return info.st_dev, info.st_ino


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # the process of another user
    return True


def _in_child() -> None:
    for lock in list(_open):
        lock._leave_to_parent()
    _open.clear()
    _held.clear()
    _opening.release()


os.register_at_fork(before=_opening.acquire, after_in_parent=_opening.release, after_in_child=_in_child)
