"""A table of config/ that is kept in memory, and written back whole when it changed."""

from __future__ import annotations

import dataclasses
import errno
import logging
import os
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from rocketc.errors import ConfigTableError, StoreIOError
from rocketc.files.durable import make_folder, sync_folder
from rocketc.tables.fastjson import in_java_order
from rocketc.tables.table_file import read_table, write_table

_log = logging.getLogger("rocketc.tables")

Clock = Callable[[], int]  # ms since 1970


def now_ms() -> int:
    """The time as RocketMQ keeps it: ms since 1970.

    >>> now_ms() > 1_700_000_000_000
    True
    """
    return time.time_ns() // 1_000_000


class ConfigManager(ABC):
    """A file of config/. Any thread may use it at any time; whoever only looks never waits for the disk.

    path   the file. Missing: the table is empty, and the file is made when something is kept
    clock  gives the time for `dataVersion`
    A file that is damaged, with a `.bak` that is no better, is an empty table too: `amiss` and a warning say so. What
    it held becomes the `.bak` of the first table that is written. Raises StoreIOError if a file that is there can't be
    read.
    """

    NAME = ""  # of the file

    def __init__(self, path: str | os.PathLike[str], *, clock: Clock = now_ms) -> None:
        self.path = os.fspath(path)
        self.load_error: str | None = None  # what was wrong with the file, in words
        self._clock = clock
        self._lock = threading.RLock()  # of what is in memory
        self._writing = threading.Lock()
        self._changed = False
        self._settled = False  # what was found is on the disk
        self._data = self._load()

    def _load(self) -> dict[Any, Any]:
        try:
            found = read_table(self.path)
        except ConfigTableError as error:
            self._warn(f"{error}; it is taken as empty")
        except StoreIOError as error:
            if error.errno != errno.ENOENT:
                raise
        else:
            if found.load_error is not None and os.path.exists(self.path):
                self._warn(f"{found.load_error}; {found.file} was read instead")
            return found.data
        return {"dataVersion": {"counter": 0, "stateVersion": 0, "timestamp": self._clock()}}

    def _warn(self, what: str) -> None:
        _log.warning("%s", what)
        self.load_error = what if self.load_error is None else f"{self.load_error}; {what}"

    def _part(self, key: str) -> dict[Any, Any]:
        """The object of that name in the file; an empty one where it is something else."""
        part = self._data.get(key, {})
        if isinstance(part, dict):
            return part
        self._warn(f"{self.path}: {key} is no object; it is taken as empty")
        return {}

    @property
    def changed(self) -> bool:
        """Whether persist() has something to write."""
        return self._changed

    @property
    def is_v4_format(self) -> bool:
        """Whether the file was written by RocketMQ 4, which has fewer fields; they stay as few."""
        version = self._data.get("dataVersion")
        return not isinstance(version, dict) or "stateVersion" not in version

    @property
    def version(self) -> tuple[int, int]:
        """(counter, timestamp) of `dataVersion`: they rise with each change. (0, 0) in files that have none."""
        version = self._data.get("dataVersion")
        version = version if isinstance(version, dict) else {}
        found = [version.get("counter"), version.get("timestamp", version.get("timestatmp"))]
        counter, timestamp = (number if type(number) is int else 0 for number in found)
        return counter, timestamp

    def _next_version(self) -> None:
        """Another version, as RocketMQ counts them. The caller has the lock."""
        counter, _ = self.version
        version = self._data.get("dataVersion")
        if not isinstance(version, dict):
            version = self._data["dataVersion"] = {"counter": 0, "stateVersion": 0, "timestamp": 0}
        stamp = "timestatmp" if "timestatmp" in version else "timestamp"  # so RocketMQ 4.0 spells it
        self._data["dataVersion"] = {**version, "counter": counter + 1, stamp: self._clock()}

    @abstractmethod
    def _to_write(self) -> dict[str, Any]:
        """The file's object as it is now; nobody changes it after that. The caller has the lock."""

    def persist(self) -> bool:
        """Write what changed to the disk, durably; False: there was nothing.

        Raises StoreIOError or StoreFullError, and then it is still to be written.
        """
        with self._writing:
            if not self._settled:
                self._settle()
            with self._lock:
                if not self._changed:
                    return False
                data = in_order(self._to_write())
                self._changed = False
            try:
                make_folder(os.path.dirname(self.path) or ".")
                write_table(self.path, data)
            except BaseException:
                self._changed = True
                raise
            return True

    def _settle(self) -> None:
        """A process that was killed may have left the file, or its folder, and not have synced its name."""
        folder = os.path.dirname(os.path.abspath(self.path))
        if os.path.exists(self.path):
            sync_folder(folder)
            sync_folder(os.path.dirname(folder))
        elif os.path.isdir(folder):
            sync_folder(os.path.dirname(folder))
        self._settled = True


C = TypeVar("C", bound="ConfigEntry")


@dataclasses.dataclass(frozen=True)
class ConfigEntry:
    """An entry of a ConfigMap: snake_case here is camelCase in the file, where fields that are None are left out."""

    @classmethod
    def from_file(cls: type[C], found: object) -> C:
        """The entry of a file's object; what that does not say has its default. Raises ValueError for what it is not.

        >>> ConfigEntry.from_file({})
        ConfigEntry()
        """
        if not isinstance(found, dict):
            raise ValueError("no object")
        said = {name: found[key] for key, name in _keys(cls) if found.get(key) is not None}
        try:
            return cls(**said)
        except TypeError as error:
            raise ValueError(str(error)) from None

    def to_file(self) -> dict[str, Any]:
        """The object of the file.

        >>> ConfigEntry().to_file()
        {}
        """
        found = ((key, getattr(self, name)) for key, name in _keys(type(self)))
        return {key: value for key, value in found if value is not None}


class ConfigMap(ConfigManager, Mapping[str, C], Generic[C]):
    """A table of settings by name; as a Mapping it is what is in memory."""

    _KEY = ""  # of the file's object that holds the table
    _NAME = ""  # the key of an entry's name in the entry
    _OF_5: tuple[str, ...] = ()  # keys of entries that RocketMQ 4 does not write
    _type: type[C]

    def __init__(self, path: str | os.PathLike[str], *, clock: Clock = now_ms) -> None:
        super().__init__(path, clock=clock)
        self._entries: dict[str, C] = {}
        self._raw: dict[str, dict[str, Any]] = {}  # with what newer releases have added
        for name, found in self._part(self._KEY).items():
            try:
                self._entries[str(name)] = self._type.from_file(found)
                self._raw[str(name)] = found
            except ValueError as error:
                self._warn(f"{self.path}: {name}: {error}; it is left out")

    def __getitem__(self, name: str) -> C:
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        with self._lock:
            return iter(list(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    def _put(self, name: str, entry: C) -> bool:
        """Add an entry, or change it; False if it is that already."""
        with self._lock:
            if self._entries.get(name) == entry:
                return False
            raw, kept = entry.to_file(), self._raw.get(name, {})
            if self.is_v4_format:
                usual = self._type.from_file({self._NAME: name}).to_file()
                raw = {k: v for k, v in raw.items() if k not in self._OF_5 or k in kept or v != usual.get(k)}
            self._raw[name] = in_order({**kept, **raw})
            self._entries[name] = entry
            self._next_version()
            self._changed = True
            return True

    def delete(self, names: str | Iterable[str]) -> list[str]:
        """Remove entries, in memory and on the disk; returns which of them there were.

        Raises StoreIOError or StoreFullError; then they are removed from memory only.
        """
        gone = []
        with self._lock:
            for name in [names] if isinstance(names, str) else list(names):
                if self._entries.pop(name, None) is not None:
                    del self._raw[name]
                    gone.append(name)
                    self._next_version()
                    self._changed = True
        self.persist()
        return gone

    def _to_write(self) -> dict[str, Any]:
        return {**self._data, self._KEY: in_java_order(self._raw, 2048)}


_KEYS: dict[type[ConfigEntry], list[tuple[str, str]]] = {}


def _keys(kind: type[ConfigEntry]) -> list[tuple[str, str]]:
    """(key in the file, name of the field), in the order of the file."""
    if kind not in _KEYS:
        _KEYS[kind] = sorted((camel(field.name), field.name) for field in dataclasses.fields(kind))
    return _KEYS[kind]


def in_order(data: dict[Any, Any]) -> dict[Any, Any]:
    """An object of a file with its names in the order of their texts; damaged files mix whole numbers with names.

    >>> in_order({"b": 1, 0: 2, "a": 3})
    {0: 2, 'a': 3, 'b': 1}
    """
    return dict(sorted(data.items(), key=lambda entry: str(entry[0])))


def camel(name: str) -> str:
    """A field's name as RocketMQ spells it.

    >>> camel("read_queue_nums")
    'readQueueNums'
    """
    return re.sub(r"_(.)", lambda match: match[1].upper(), name)


def path_of(root: str | os.PathLike[str], name: str) -> str:
    """The file of a table below a store's root.

    >>> path_of("store", "topics.json")
    'store/config/topics.json'
    """
    return os.path.join(os.fspath(root), "config", name)
