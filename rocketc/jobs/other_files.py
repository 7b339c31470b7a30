"""Check the files of a store that are neither of the log nor units of queues and index: checkpoint, tables, markers."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rocketc.derived.queue_files import QUEUE_FOLDERS, files_below
from rocketc.errors import RocketcError, StoreIOError
from rocketc.files import _checkpoint
from rocketc.files.block_file import BlockFile
from rocketc.files.lock_file import AbortFile
from rocketc.files.paths import base_of
from rocketc.jobs.file_kinds import kind_of
from rocketc.jobs.timer_files import check_fault, log_fault, wheel_fault
from rocketc.read.scan_report import UNREADABLE
from rocketc.tables.table_file import read_table

_INDEX_NAME = re.compile(r"[0-9]{17}")
_TABLES = {  # name -> the part that is an object
    "topics.json": "topicConfigTable",
    "subscriptionGroup.json": "subscriptionGroupTable",
    "consumerOffset.json": "offsetTable",
    "delayOffset.json": "offsetTable",
    "deletedTopics.json": "deletedTopics",
}
_TRIES, _PAUSE = 4, 0.05  # reads of a table while a broker runs; RocketMQ before 5.0 overwrites it in place; seconds


@dataclass(frozen=True)
class OtherFile:
    """A file of a store, or a folder whose files are not checked.

    file   below the store's root; the name of a folder ends in "/"
    state  "valid"; "not checked": rocketc does not know what such a file holds; "damaged": see error; "not read": it
           can't be read, see error; "missing": other files of the store say that it was there
    error  what is wrong, and what to do; None if nothing is
    files  number of files in the folder; 1 for a file
    """

    file: str
    state: str
    error: str | None = None
    files: int = 1

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict without the fields that are `None`.

        >>> OtherFile("checkpoint", "valid").to_dict()
        {'file': 'checkpoint', 'state': 'valid', 'files': 1}
        """
        found = {"file": self.file, "state": self.state, "error": self.error, "files": self.files}
        return {name: value for name, value in found.items() if value is not None}


def check_other_files(root: str) -> list[OtherFile]:
    """Check the checkpoint, the markers and the tables of a store, and name all other files. Nothing is written.

    The files of the log, of queues and index are left out. `consumequeue/` is listed as missing if there are no
    queues, but the checkpoint or the index shows that there were some. A missing index is not: not all stores have one.

    >>> import tempfile, rocketc
    >>> root = tempfile.mkdtemp()
    >>> with rocketc.open(root, mapped_file_size_commit_log=1 << 16) as store:
    ...     _ = store.put("orders", b"hi")
    >>> {one.file: one.state for one in check_other_files(root)}
    {'checkpoint': 'valid', 'lock': 'valid'}
    """
    return sorted([*_missing(root), *_others(root, "", _CHECKS)], key=lambda one: one.file)


def unreadable_texts(root: str, others: Sequence[OtherFile]) -> list[str]:
    """Return a text with path and reason for each of these files and folders that can't be read.

    >>> unreadable_texts("store", [OtherFile("checkpoint", "not read", "Permission denied")])
    ['store/checkpoint: Permission denied']
    """
    return [f"{os.path.join(root, one.file.rstrip('/'))}: {one.error}" for one in others if one.state == "not read"]


def _missing(root: str) -> Iterator[OtherFile]:
    times: Mapping[str, int] = {}
    with suppress(RocketcError, ValueError):
        times = _checkpoint.read(os.path.join(root, "checkpoint"))._asdict()
    # The index is listed first: a writer that has just created the store puts units into the queues first.
    has_index = any(True for _ in files_below(root, "index"))
    evidence = ["the checkpoint has a time of them"] * (times.get("logics_msg_timestamp", 0) > 0)
    evidence += ["there is an index"] * has_index
    if evidence and not any(True for _ in files_below(root, *QUEUE_FOLDERS)):
        text = f"no queue has a file, but {' and '.join(evidence)}; run `rocketc rebuild {root}`"
        yield OtherFile("consumequeue/", "missing", text, 0)


Check = Callable[[str, str], "str | None"]  # path and root -> what is wrong with a file


def _others(root: str, below: str, checks: Mapping[str, Check]) -> Iterator[OtherFile]:
    """Yield the files of a folder that are not checked elsewhere, or the folder if it can't be listed."""
    try:
        entries = _entries(os.path.join(root, below))
    except OSError as error:
        yield OtherFile(below, "not read", error.strerror, 0)
        return
    for entry in entries:
        name = below + entry.name
        is_folder = entry.is_dir(follow_symlinks=False)
        if is_folder and name in _FOLDERS:
            yield from _FOLDERS[name](root, name + "/")
        elif is_folder:
            yield OtherFile(name + "/", "not checked", files=_count(entry.path))
        else:
            check = checks.get(name) or (_check_table if kind_of(entry.path) == "json" else None)
            yield from _checked(root, name, check)


def _checked(root: str, name: str, check: Check | None) -> Iterator[OtherFile]:
    path = os.path.join(root, name)
    if check is None:
        yield OtherFile(name, "not checked")
        return
    try:
        error = check(path, root)
    except FileNotFoundError:
        if os.path.lexists(path):
            raise
        return  # a writer has removed it meanwhile
    except (RocketcError, OSError) as failure:
        error = failure.strerror or str(failure) if isinstance(failure, OSError) else str(failure)
        if isinstance(failure, OSError) and failure.errno in UNREADABLE:
            yield OtherFile(name, "not read", error)
            return
    yield OtherFile(name, "valid" if error is None else "damaged", error)


def _check_checkpoint(path: str, root: str) -> str | None:
    with BlockFile(path) as file:
        try:
            _checkpoint.decode(file.read(0, _checkpoint.FILE_BYTES))
        except ValueError as error:
            return f"{error}; opening the store for writing makes it again"
    return None


def _check_marker(path: str, root: str) -> str | None:
    with BlockFile(path):  # its content does not matter
        return None


def _check_table(path: str, root: str) -> str | None:
    """Read a table, and its `.bak` only if it is the file to check."""
    try:
        _check_marker(path, root)  # read_table() would take the .bak in place of a file that can't be read
    except StoreIOError as failure:
        if failure.errno in UNREADABLE:
            raise
    error = _table_error(path)
    for _ in range(_TRIES - 1):
        if error is None or not AbortFile(root).exists():
            break
        time.sleep(_PAUSE)
        error = _table_error(path)
    return error


def _table_error(path: str) -> str | None:
    try:
        table = read_table(path)
    except RocketcError as error:
        if isinstance(error, OSError):
            raise
        return f"{str(error).removeprefix(f'{path}: ')}; restore it from a copy"
    if table.load_error is not None:
        return f"{table.load_error.removeprefix(f'{path}: ')}; readers take {os.path.basename(table.file)} instead"
    part = _TABLES.get(os.path.basename(path).removesuffix(".bak"))
    if part is not None and not isinstance(table.data.get(part, {}), dict):
        return f"{part} is not an object; restore it from a copy"
    return None


def _timer_log(root: str, below: str) -> Iterator[OtherFile]:
    """Yield each file of the timer log."""
    for entry in _entries(os.path.join(root, below)):
        if entry.is_dir(follow_symlinks=False):
            yield OtherFile(below + entry.name + "/", "not checked", files=_count(entry.path))
        else:
            yield from _checked(root, below + entry.name, log_fault)


def _foreign(is_known: Callable[[str], bool], depth: int = 0) -> Callable[[str, str], Iterator[OtherFile]]:
    """Return a function that yields the entries of a folder whose names are not known; depth: of folders in between."""

    def others(root: str, below: str) -> Iterator[OtherFile]:
        folders = [below]
        for level in range(depth + 1):
            deeper: list[str] = []
            for folder in folders:
                entries: list[os.DirEntry[str]] = []
                with suppress(OSError):  # verify and info name it when they read what it should hold
                    entries = _entries(os.path.join(root, folder))
                for entry in entries:
                    if level < depth and entry.is_dir():
                        deeper.append(f"{folder}{entry.name}/")
                    elif level < depth or not is_known(entry.name):
                        yield OtherFile(folder + entry.name, "not checked")
            folders = deeper

    return others


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _count(folder: str) -> int:
    return sum(len(files) for _, _, files in os.walk(folder))


_CHECKS: dict[str, Check] = {
    "checkpoint": _check_checkpoint,
    "abort": _check_marker,
    "lock": _check_marker,
    "timerwheel": wheel_fault,
}
_IN_CONFIG: dict[str, Check] = {"config/timercheck": check_fault}
# Folders whose files are named one by one. Files inside of queues' folders are not listed: there may be millions.
_FOLDERS: dict[str, Callable[[str, str], Iterator[OtherFile]]] = {
    "commitlog": _foreign(lambda name: base_of(name) is not None),
    **dict.fromkeys(QUEUE_FOLDERS, _foreign(str.isdecimal, 1)),
    "index": _foreign(lambda name: _INDEX_NAME.fullmatch(name) is not None),
    "config": lambda root, below: _others(root, below, _IN_CONFIG),
    "timerlog": _timer_log,
}
