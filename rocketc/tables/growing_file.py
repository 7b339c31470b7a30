"""A table's file that takes new entries at its end: a new entry costs the same in a large table as in a small one.

The file is a whole table at any time, and RocketMQ reads it as one. Its `dataVersion` comes last, after the map with
the entries. New entries replace this end, and a new one follows them. A write that is cut damages the file. Therefore
the `.bak` is a second copy here, not the previous version, and the entries are written to it first. If the file is
damaged, a reader takes the `.bak`, as RocketMQ does, and finds at least what the file had before.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rocketc.files.durable import errors_named, sync_data, write_all
from rocketc.files.regular import open_regular
from rocketc.tables.fastjson import LARGEST, to_bytes
from rocketc.tables.table_file import replace_without_bak

_VERSION = "dataVersion"
_TAIL = b"\n\t}\n}"  # of a table whose last map has entries


class GrowingFile:
    """The file of one table. One thread at a time.

    path  the file; its folder exists when a method writes
    key   of the map of entries in the table

    >>> import pathlib, tempfile
    >>> from rocketc.tables.table_file import read_table
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "topics.json"
    >>> file = GrowingFile(path, "topicConfigTable")
    >>> file.write({"dataVersion": {"counter": 1}, "topicConfigTable": {"orders": {"perm": 6}}})
    >>> file.append({"audit": {"perm": 4}}, {"counter": 2})
    True
    >>> read_table(path).data
    {'topicConfigTable': {'orders': {'perm': 6}, 'audit': {'perm': 4}}, 'dataVersion': {'counter': 2}}
    """

    def __init__(self, path: str | os.PathLike[str], key: str) -> None:
        self.path, self._key = os.fspath(path), key
        self._bak = f"{self.path}.bak"
        self._at = -1  # where the entries end; < 0: append() is not possible
        self._end = b""  # the bytes from there on

    def adopt(self, version: Mapping[str, Any]) -> bool:
        """Whether file and `.bak` of an earlier GrowingFile are complete: then append() continues them.

        version  the `dataVersion` that was read from the file
        """
        end = _end_of(version)
        try:
            with open(self.path, "rb", opener=open_regular) as one, open(self._bak, "rb", opener=open_regular) as other:
                raw = one.read(LARGEST + 1)
                is_same = raw == other.read(LARGEST + 1)
        except OSError:
            return False
        if not is_same or not raw.endswith(b"}" + end):
            return False
        self._at, self._end = len(raw) - len(end), end
        return True

    def write(self, table: dict[str, Any]) -> None:
        """Write a table as a whole, durably, and its copy. Raises as write_table()."""
        self._at = -1
        entries, version = table.get(self._key), table.get(_VERSION)
        others = {name: value for name, value in table.items() if name not in (self._key, _VERSION)}
        raw = to_bytes({**others, self._key: entries, _VERSION: version})
        if len(raw) > LARGEST:
            raise ValueError(f"{self.path}: the data has {len(raw)} bytes; a table is an object of at most {LARGEST}")
        for path in (self.path, self._bak):  # in this order: the file may be damaged, and the `.bak` good
            replace_without_bak(path, raw)
        if entries and isinstance(version, dict):  # an empty map ends in another way
            self._end = _end_of(version)
            self._at = len(raw) - len(self._end)

    def append(self, entries: Mapping[str, Any], version: Mapping[str, Any]) -> bool:
        """Write new entries after those of the file, durably. False: nothing is written, and write() is necessary.

        Raises StoreIOError or StoreFullError; the file or its `.bak` then has the entries of before, perhaps also some
        new ones, and the next call returns False.
        """
        if self._at < 0:
            return False
        added = to_bytes({self._key: dict(entries)})
        added = b"," + added[added.index(b":{") + 2 : -len(_TAIL)] if entries else b""
        end = _end_of(version)
        raw = added + end
        at, before = self._at, self._end
        if len(raw) < len(before) or at + len(raw) > LARGEST:
            return False
        self._at = -1
        for path in (self._bak, self.path):
            if not _overwrite(path, at, before, raw):
                return False
        self._at, self._end = at + len(added), end
        return True


def _end_of(version: Mapping[str, Any]) -> bytes:
    """Return the end of a file, after its last entry."""
    return b"\n\t}," + to_bytes({_VERSION: dict(version)})[1:]


def _overwrite(path: str, at: int, before: bytes, raw: bytes) -> bool:
    """Write bytes over the end of a file, durably. False if it does not end as it should: another program wrote it."""
    with errors_named(path):
        try:
            fd = open_regular(path, os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            if os.fstat(fd).st_size != at + len(before) or os.pread(fd, len(before), at) != before:
                return False
            write_all(fd, raw, at)
            sync_data(fd)
        finally:
            os.close(fd)
    return True
