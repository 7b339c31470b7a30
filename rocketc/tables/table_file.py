"""The broker's tables, config/*.json: JSON as RocketMQ writes it, with whole numbers as names that have no quotes.

A broker keeps what such a file was before beside it, as `.bak`. Older ones overwrite the file in place; here it is
replaced by a whole new one, so that whoever reads finds the old table or the new one, whenever this process ends.
"""

from __future__ import annotations

import contextlib
import errno
import os
from dataclasses import dataclass
from typing import Any

from rocketc.errors import ConfigTableError, StoreIOError
from rocketc.files.block_file import BlockFile
from rocketc.files.durable import errors_named, sync_folder, write_all
from rocketc.tables.fastjson import LARGEST, parse, to_bytes

_PASSING = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EINTR}  # nothing is wrong with the file


@dataclass(frozen=True)
class ConfigTable:
    """What read_table() found.

    file    the file that was read: the one asked for, or its `.bak`
    data    its object; names without quotes are int
    load_error   why the file asked for was not read; None if it was
    """

    file: str
    data: dict[Any, Any]
    load_error: str | None = None


def read_table(path: str | os.PathLike[str]) -> ConfigTable:
    """Read a table as a broker does: where the file is missing, empty or no JSON, its `.bak`.

    Raises StoreIOError if neither is there or can be read, or if no memory or no open files are left for it: else the
    older table would be written over the newer one. Raises ConfigTableError if what is there is no JSON.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "consumerOffset.json"
    >>> _ = path.write_text('{"offsetTable":{"orders@audit":{0:12,1:9}}}')
    >>> read_table(path).data
    {'offsetTable': {'orders@audit': {0: 12, 1: 9}}}
    """
    path = os.fspath(path)
    try:
        return ConfigTable(path, _read(path))
    except (ConfigTableError, StoreIOError) as error:
        first = error
    try:
        if path.endswith(".bak") or (isinstance(first, StoreIOError) and first.errno in _PASSING):
            raise first
        try:
            return ConfigTable(f"{path}.bak", _read(f"{path}.bak"), _plain(first))
        except (ConfigTableError, StoreIOError) as second:
            if _is_missing(second):
                raise first from None
            if _is_missing(first):
                raise
            raise ConfigTableError(f"{_plain(first)}; {_plain(second)}") from None
    finally:
        del first  # it knows this frame, so both would stay, with all callers, until the collector comes


def _is_missing(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno == errno.ENOENT


def _plain(error: Exception) -> str:
    return f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)


def _read(path: str) -> dict[Any, Any]:
    with BlockFile(path) as file:
        if file.size > LARGEST:
            raise ConfigTableError(f"{path}: {file.size} bytes are no table")
        raw = file.read(0, file.size)
    try:
        found = parse(raw)
    except ValueError as error:
        raise ConfigTableError(f"{path}: {error}") from None
    if not isinstance(found, dict):
        raise ConfigTableError(f"{path}: line 1, column 1: this is no object")
    return found


def write_table(path: str | os.PathLike[str], data: dict[Any, Any], *, compact: bool = False) -> None:
    """Write a table as RocketMQ does, and keep the one before as `.bak`.

    path     the file; its folder is there
    data     as read_table() gives it; names that are int get no quotes, and entries keep their order
    compact  all on one line, as brokers write `timermetrics` and `transactionMetrics`
    When it returns the new table is on the disk. Killed at any moment, or after a power loss, read_table() finds the
    old one or the new one. One thread at a time. Raises StoreIOError or StoreFullError with the file's name, and then
    read_table() finds one of the two as well; ValueError or TypeError if the data is no table, and nothing is changed.

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
        raise ValueError(f"{path}: {len(raw)} bytes are no table")
    new, old = f"{path}.tmp", f"{path}.bak.tmp"
    try:
        _write(new, raw)
        has_old = _keep(path, old)
        with errors_named(path):
            os.rename(new, path)
        folder = os.path.dirname(path) or "."
        sync_folder(folder)
        # Only now: had the file been damaged, `.bak` would have been all that there was until here.
        if has_old:
            with errors_named(f"{path}.bak"):
                os.rename(old, f"{path}.bak")
            sync_folder(folder)
    except BaseException:
        for left in (new, old):
            with contextlib.suppress(OSError):
                os.unlink(left)
        raise


def _write(path: str, raw: bytes) -> None:
    with errors_named(path):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            write_all(fd, raw)
            os.fsync(fd)
        finally:
            os.close(fd)


def _keep(path: str, old: str) -> bool:
    """Give the file that is there a second name; where there are no such names, copy it. False: there is none."""
    with errors_named(path), contextlib.suppress(FileNotFoundError):
        os.unlink(old)
    try:
        os.link(path, old)
    except FileNotFoundError:
        return False
    except OSError:  # a file system without hard links
        try:
            with errors_named(path), open(path, "rb") as file:
                raw = file.read()
        except StoreIOError as error:
            if _is_missing(error):
                return False
            raise
        _write(old, raw)
    return True
