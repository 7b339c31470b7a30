"""Open a store's own files, whatever has taken their place: a FIFO, a socket, a device, a folder or a symbolic link."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable

from rocketc.errors import FILE_TEXTS, StoreIOError

_LOG = "set store_path_commit_log (storePathCommitLog in a broker.conf) to that folder, or "


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> int:
    """Open a store's file and return its descriptor, which the caller closes. It is also an `opener` for open().

    flags  of os.open(); with O_CREAT, a new file gets the permissions of the umask
    Opening never waits, as it would for a FIFO. A file that is opened for writing must not be a symbolic link.
    Raises OSError with the file's name: ELOOP for such a link, EISDIR for a folder, ENXIO for a FIFO, a socket or a
    device, and the errors of os.open().

    >>> import tempfile
    >>> root = tempfile.mkdtemp()
    >>> os.mkfifo(f"{root}/abort")
    >>> open_regular(f"{root}/abort")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    OSError: [Errno 6] not a regular file: '...abort'
    """
    writes = flags & os.O_ACCMODE != os.O_RDONLY
    wanted = flags | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_NOFOLLOW if writes else 0)
    try:
        fd = os.open(path, wanted, 0o666)
    except OSError as error:
        if error.errno in FILE_TEXTS and (writes or error.errno != errno.ELOOP):
            raise OSError(error.errno, FILE_TEXTS[error.errno], os.fspath(path)) from None
        raise
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd
    os.close(fd)
    kind = errno.EISDIR if stat.S_ISDIR(mode) else errno.ENXIO
    raise OSError(kind, FILE_TEXTS.get(kind) or os.strerror(kind), os.fspath(path))


def refuse_linked_folders(root: str, names: Iterable[str]) -> None:
    """Raise StoreIOError if one of these folders below a root is a symbolic link. The root itself may be one.

    >>> import tempfile
    >>> root = tempfile.mkdtemp()
    >>> refuse_linked_folders(root, ["commitlog"])
    >>> os.symlink("/elsewhere", f"{root}/commitlog")
    >>> refuse_linked_folders(root, ["commitlog"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    rocketc.errors.StoreIOError: [Errno 40] a symbolic link to /elsewhere, and a writer does not follow links ...
    """
    for name in names:
        path = os.path.join(root, name)
        if os.path.islink(path):
            text = f"a symbolic link to {os.path.realpath(path)}, and a writer does not follow links in a store"
            advice = f"{_LOG if name == 'commitlog' else ''}allow it with linked_folders=True (linkedFolders=true)"
            raise StoreIOError(errno.ELOOP, f"{text}; {advice}", path)
