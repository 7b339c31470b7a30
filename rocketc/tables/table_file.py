"""The broker's tables, config/*.json: JSON as RocketMQ writes it, with integer names without quotes.

The previous version of a file is kept as `.bak`. Older brokers overwrite the file in place. Here it is replaced by a
new file, so a reader finds the complete old or new table, even if this process is killed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from dataclasses import dataclass
from typing import Any

from rocketc.errors import ConfigTableError, StoreIOError
from rocketc.files.block_file import BlockFile
from rocketc.files.durable import errors_named, sync_folder, write_all
from rocketc.files.regular import open_regular
from rocketc.tables.fastjson import LARGEST, parse, to_bytes

_READS = 5  # of a file that grows while it is read
_PASSING = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EINTR}  # not about the file


@dataclass(frozen=True)
class ConfigTable:
    """The result of read_table().

    file    the file that was read: the requested one, or its `.bak`
    data    its object; names without quotes are int
    load_error   why the requested file was not read; None if it was
    """

    file: str
    data: dict[Any, Any]
    load_error: str | None = None


def read_table(path: str | os.PathLike[str]) -> ConfigTable:
    """Read a table as a broker does: if the file is missing, empty or not JSON, read its `.bak`.

    Raises StoreIOError if neither file can be read, or if memory or file descriptors are exhausted: otherwise a caller
    could write the older table over the newer one. Raises ConfigTableError if the existing files are not JSON.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "consumerOffset.json"
    >>> _ = path.write_text('{"offsetTable":{"orders@audit":{0:12,1:9}}}')
    >>> read_table(path).data
    {'offsetTable': {'orders@audit': {0: 12, 1: 9}}}
    """
    path = os.fspath(path)
    try:
        return ConfigTable(path, read_object(path))
    except (ConfigTableError, StoreIOError) as error:
        first = error
    try:
        if path.endswith(".bak") or (isinstance(first, StoreIOError) and first.errno in _PASSING):
            raise first
        try:
            return ConfigTable(f"{path}.bak", read_object(f"{path}.bak"), _plain(first))
        except (ConfigTableError, StoreIOError) as second:
            if _is_missing(second):
                raise first from None
            if _is_missing(first):
                raise
            raise ConfigTableError(f"{_plain(first)}; {_plain(second)}") from None
    finally:
        del first  # its traceback refers to this frame: a cycle that would keep all callers until a collection


def _is_missing(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno == errno.ENOENT


def _plain(error: Exception) -> str:
    return f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)


def read_object(path: str, *, object_names: bool = False) -> dict[Any, Any]:
    """Read one file that is a JSON object, and not its `.bak`.

    object_names  names may also be objects: see rocketc.tables.fastjson.parse()
    Raises StoreIOError, or ConfigTableError if it is not an object.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "offsets.json"
    >>> _ = path.write_text('{"offsetTable":{{"queueId":1}:7}}')
    >>> read_object(str(path), object_names=True)
    {'offsetTable': {(('queueId', 1),): 7}}
    """
    for is_last in [False] * _READS + [True]:
        with BlockFile(path) as file:
            if file.size > LARGEST:
                raise ConfigTableError(f"{path}: {file.size} bytes are too large for a table of at most {LARGEST}")
            raw = file.read(0, file.size)
        try:
            found = parse(raw, object_names=object_names)
        except ValueError as error:
            if not is_last and _size_of(path) != len(raw):
                continue  # a broker has added entries meanwhile: see growing_file
            raise ConfigTableError(f"{path}: {error}") from None
        if not isinstance(found, dict):
            raise ConfigTableError(f"{path}: line 1, column 1: not an object")
        return found
    raise AssertionError("unreachable")


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def write_table(path: str | os.PathLike[str], data: dict[Any, Any], *, compact: bool = False) -> None:
    """Write a table as RocketMQ does, and keep the previous version as `.bak`.

    path     the file; its folder exists
    data     as returned by read_table(); int names are written without quotes, and entries keep their order
    compact  on one line, as brokers write `timermetrics` and `transactionMetrics`
    When this function returns, the new table is durable. After a kill or a power cut at any time, read_table() returns
    the old or the new table. One thread at a time. Raises StoreIOError or StoreFullError with the file's name;
    read_table() then also returns one of the two. Raises ValueError or TypeError for invalid data, and changes nothing.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "consumerOffset.json"
    >>> write_table(path, {"offsetTable": {"orders@audit": {0: 12, 1: 9}}})
    >>> write_table(path, {"offsetTable": {}})
    >>> read_table(path).data, read_table(f"{path}.bak").data
    ({'offsetTable': {}}, {'offsetTable': {'orders@audit': {0: 12, 1: 9}}})
    """
    path = os.fspath(path)
    raw = to_bytes(data, compact=compact)
    if not isinstance(data, dict) or len(raw) > LARGEST:
        raise ValueError(f"{path}: the data has {len(raw)} bytes; a table is an object of at most {LARGEST}")
    replace_file(path, raw)


def replace_file(path: str | os.PathLike[str], raw: bytes, *, keep_mode: bool = False) -> None:
    """Write a file as a whole, durably, and keep its previous version as `.bak`: the steps of write_table().

    path       the file; its folder exists
    keep_mode  the new file gets the permissions of the one that it replaces, and its owner if this process may do so
    Raises StoreIOError or StoreFullError with the file's name; the file is then the old or the new one.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "namesrv.conf"
    >>> replace_file(path, b"listenPort=9876")
    >>> path.read_text()
    'listenPort=9876'
    """
    path = os.fspath(path)
    new, old = f"{path}.tmp", f"{path}.bak.tmp"
    try:
        _write(new, raw, like=path if keep_mode else None)
        has_old = _keep(path, old)
        with errors_named(path):
            os.rename(new, path)
        folder = os.path.dirname(path) or "."
        sync_folder(folder)
        # Not before: if the file was damaged, `.bak` was the only good table until the new file was durable.
        if has_old:
            with errors_named(f"{path}.bak"):
                os.rename(old, f"{path}.bak")
            sync_folder(folder)
    except BaseException:
        for left in (new, old):
            with contextlib.suppress(OSError):
                os.unlink(left)
        raise


def replace_without_bak(path: str, raw: bytes) -> None:
    """Write a file as a whole, durably, and leave its `.bak` alone.

    Raises StoreIOError or StoreFullError with the file's name; the file is then the old or the new one.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "topics.json.bak"
    >>> replace_without_bak(str(path), b"{}")
    >>> path.read_text()
    '{}'
    """
    new = f"{path}.tmp"
    try:
        _write(new, raw)
        with errors_named(path):
            os.rename(new, path)
        sync_folder(os.path.dirname(path) or ".")
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise


def _write(path: str, raw: bytes, like: str | None = None) -> None:
    with errors_named(path):
        fd = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            if like is not None:
                _take_owner_and_mode(fd, os.stat(like))
            write_all(fd, raw)
            os.fsync(fd)
        finally:
            os.close(fd)


def _take_owner_and_mode(fd: int, of: os.stat_result) -> None:
    """Give an open file, still empty, the owner and the permissions of another one."""
    now = os.fstat(fd)
    if (now.st_uid, now.st_gid) != (of.st_uid, of.st_gid):
        with contextlib.suppress(PermissionError):  # only root may do that
            os.fchown(fd, of.st_uid, of.st_gid)
    os.fchmod(fd, stat.S_IMODE(of.st_mode))


def _keep(path: str, old: str) -> bool:
    """Link or copy the existing file to a second name. Returns False if there is no file."""
    with errors_named(path), contextlib.suppress(FileNotFoundError):
        os.unlink(old)
    try:
        os.link(path, old)
    except FileNotFoundError:
        return False
    except OSError:  # a file system without hard links
        try:
            with errors_named(path), open(path, "rb", opener=open_regular) as file:
                raw = file.read()
        except StoreIOError as error:
            if _is_missing(error):
                return False
            raise
        _write(old, raw)
    return True
