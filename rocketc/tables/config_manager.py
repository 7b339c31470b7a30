"""A table of the folder config, kept in memory, and written as a whole after changes."""

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
from functools import partial
from typing import Any, Generic, TypeVar

from rocketc.errors import ConfigTableError, StoreIOError
from rocketc.files.durable import make_folder, sync_folder
from rocketc.tables.fastjson import in_java_order
from rocketc.tables.growing_file import GrowingFile
from rocketc.tables.table_file import read_table, write_table

_log = logging.getLogger("rocketc.tables")

Clock = Callable[[], int]  # ms since 1970


def now_ms() -> int:
    """Return the current time as in RocketMQ: ms since 1970.

    >>> now_ms() > 1_700_000_000_000
    True
    """
    return time.time_ns() // 1_000_000


class ConfigManager(ABC):
    """A file of the folder config. Any thread may use it at any time; reads never wait for the disk.

    path   the file. If it does not exist, the table is empty; the file is created by the first write
    clock  gives the time for `dataVersion`
    If both the file and its `.bak` are damaged, the table is empty, and `load_error` and a warning say so. The first
    write then keeps the damaged file as `.bak`. Raises StoreIOError if an existing file can't be read.
    """

    NAME = ""  # of the file
    COMPACT = False  # whether the file is one line

    def __init__(self, path: str | os.PathLike[str], *, clock: Clock = now_ms) -> None:
        self.path = os.fspath(path)
        self.load_error: str | None = None  # what was wrong with the file, as text
        self._clock = clock
        self._lock = threading.RLock()  # guards the data in memory
        self._writing = threading.Lock()
        self._changed = False
        self._settled = False  # the file that was read is durable
        self._data = self._load()

    def _load(self) -> dict[Any, Any]:
        try:
            found = read_table(self.path)
        except ConfigTableError as error:
            self._warn(f"{error}; it is read as empty")
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
        """Return the object with this name from the file; an empty one if it is not an object."""
        part = self._data.get(key, {})
        if isinstance(part, dict):
            return part
        self._warn(f"{self.path}: {key} is not an object; it is read as empty")
        return {}

    @property
    def changed(self) -> bool:
        """Whether persist() has changes to write."""
        return self._changed

    @property
    def is_v4_format(self) -> bool:
        """Whether RocketMQ 4 wrote the file. Its files have fewer fields; new fields are not added to them."""
        version = self._data.get("dataVersion")
        return not isinstance(version, dict) or "stateVersion" not in version

    @property
    def version(self) -> tuple[int, int]:
        """(counter, timestamp) of `dataVersion`: both increase with each change. (0, 0) in files without it."""
        version = self._data.get("dataVersion")
        version = version if isinstance(version, dict) else {}
        found = [version.get("counter"), version.get("timestamp", version.get("timestatmp"))]
        counter, timestamp = (number if type(number) is int else 0 for number in found)
        return counter, timestamp

    def _next_version(self, changes: int = 1) -> None:
        """Increment the version as RocketMQ does, for each change. The caller holds the lock."""
        counter, _ = self.version
        version = self._data.get("dataVersion")
        if not isinstance(version, dict):
            version = self._data["dataVersion"] = {"counter": 0, "stateVersion": 0, "timestamp": 0}
        stamp = "timestatmp" if "timestatmp" in version else "timestamp"  # the spelling of RocketMQ 4.0
        self._data["dataVersion"] = {**version, "counter": counter + changes, stamp: self._clock()}

    def has_version(self, version: Mapping[str, int]) -> bool:
        """Whether `dataVersion` is equal to that of another broker's table: counter, timestamp and stateVersion."""
        own = self._data.get("dataVersion")
        state = own.get("stateVersion", 0) if isinstance(own, dict) else 0
        told = version.get("counter", 0), version.get("timestamp", 0)
        return (state, self.version) == (version.get("stateVersion", 0), told)

    def _take_version(self, version: Mapping[str, int] | None) -> None:
        """Have the `dataVersion` of another broker's table; None: it lacks one. The caller holds the lock."""
        self._changed = True
        if version is not None:
            self._data["dataVersion"] = dict(version)

    def change_version(self) -> None:
        """Increment `dataVersion`: others must read the table again, for another reason than a changed entry."""
        with self._lock:
            self._next_version()
            self._changed = True

    @abstractmethod
    def _to_write(self) -> dict[str, Any]:
        """Return the current object of the file, which must not be changed later. The caller holds the lock."""

    def persist(self) -> bool:
        """Write changes to the disk, durably. Returns False if there were none.

        Raises StoreIOError or StoreFullError; the changes are then still to be written.
        """
        with self._writing:
            if not self._settled:
                self._settle()
            with self._lock:
                if not self.changed:
                    return False
                write = self._take_changes()
                self._changed = False
            try:
                make_folder(os.path.dirname(self.path) or ".")
                write()
            except BaseException:
                self._changed = True
                raise
            return True

    def _take_changes(self) -> Callable[[], object]:
        """Return what writes the changes: it must not need the lock, which the caller holds now."""
        return partial(write_table, self.path, in_order(self._to_write()), compact=self.COMPACT)

    def _settle(self) -> None:
        """Make the names of the file and its folder durable: a killed process may not have synced them."""
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
    """An entry of a ConfigMap. Fields are snake_case here and camelCase in the file; None is not written."""

    @classmethod
    def from_file(cls: type[C], found: object) -> C:
        """Return the entry of an object in the file. Missing fields have their defaults. ValueError for wrong types.

        >>> ConfigEntry.from_file({})
        ConfigEntry()
        """
        if not isinstance(found, dict):
            raise ValueError("not an object")
        said = {name: found[key] for key, name in _keys(cls) if found.get(key) is not None}
        try:
            return cls(**said)
        except TypeError as error:
            raise ValueError(str(error)) from None

    def to_file(self) -> dict[str, Any]:
        """Return the object for the file.

        >>> ConfigEntry().to_file()
        {}
        """
        found = ((key, getattr(self, name)) for key, name in _keys(type(self)))
        return {key: value for key, value in found if value is not None}


class ConfigMap(ConfigManager, Mapping[str, C], Generic[C]):
    """A table of settings by name. As a Mapping it is the table in memory.

    on_change  called with each entry that is added or changed, on the thread that does it; it must not wait
    generation  a number that is greater after each change of an entry, for those who keep what they read
    """

    _KEY = ""  # key of the table in the file
    _NAME = ""  # key of the name in an entry
    _OF_5: tuple[str, ...] = ()  # keys of an entry that RocketMQ 4 does not write
    _type: type[C]

    def __init__(self, path: str | os.PathLike[str], *, clock: Clock = now_ms) -> None:
        super().__init__(path, clock=clock)
        self._entries: dict[str, C] = {}
        self.on_change: Callable[[C], object] = lambda entry: None
        self.generation = 0
        self._raw: dict[str, dict[str, Any]] = {}  # including fields that newer releases have added
        self._file: GrowingFile | None = None
        self._added: dict[str, dict[str, Any]] = {}  # new entries of _raw that the file lacks; _changed: others, too
        for name, found in self._part(self._KEY).items():
            try:
                self._entries[str(name)] = self._type.from_file(found)
                self._raw[str(name)] = found
            except ValueError as error:
                self._warn(f"{self.path}: {name}: {error}; it is skipped")

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
        """Add or change an entry. Returns False if it is equal already."""
        with self._lock:
            if self._entries.get(name) == entry:
                return False
            raw, kept = entry.to_file(), self._raw.get(name, {})
            if self.is_v4_format:
                usual = self._type.from_file({self._NAME: name}).to_file()
                raw = {k: v for k, v in raw.items() if k not in self._OF_5 or k in kept or v != usual.get(k)}
            found = in_order({**kept, **raw})
            if self._file is not None and (name not in self._raw or name in self._added):
                self._added[name] = found
            else:
                self._changed = True
            self._raw[name] = found
            self._entries[name] = entry
            self.generation += 1
            self._next_version()
        self.on_change(entry)
        return True

    def take(self, table: Mapping[str, object], version: Mapping[str, int]) -> tuple[bool, list[str]]:
        """Have the entries of another broker's table, only them, and its version; persist() writes it.

        table    objects as in the file, by name
        version  its `dataVersion`
        An entry that is not valid does not replace the one of this table. Returns whether an entry changed, and what is
        wrong with the entries that are not valid.
        """
        faults, changed = [], []
        with self._lock:
            for name, found in table.items():
                try:
                    entry = self._type.from_file(found)
                except ValueError as error:
                    faults.append(f"{name}: {error}")
                    continue
                assert isinstance(found, dict)
                self._raw[name] = in_order(found)
                if self._entries.get(name) != entry:
                    self._entries[name] = entry
                    changed.append(entry)
            gone = [name for name in self._entries if name not in table]
            for name in gone:
                del self._entries[name], self._raw[name]
            self.generation += len(changed) + len(gone)
            self._take_version(version)
        for entry in changed:
            self.on_change(entry)
        return bool(changed or gone), faults

    def delete(self, names: str | Iterable[str], *, persist: bool = True) -> list[str]:
        """Remove entries, in memory and on the disk. Returns the names that existed.

        persist  False: change memory only; call persist() later
        Raises StoreIOError or StoreFullError; the entries are then removed from memory only.
        """
        deleted = []
        with self._lock:
            for name in [names] if isinstance(names, str) else list(names):
                if self._entries.pop(name, None) is not None:
                    self.generation += 1
                    del self._raw[name]
                    deleted.append(name)
                    self._next_version()
                    self._changed = True
        if persist:
            self.persist()
        return deleted

    def grow(self) -> None:
        """From now on, write a new entry after those of the file, at a cost that does not depend on their number.

        See GrowingFile. The next persist() makes the file ready for it, if it is not.

        >>> import tempfile
        >>> from rocketc.tables.topics import Topics
        >>> topics = Topics(tempfile.mkdtemp())
        >>> topics.grow()
        >>> topics.create("orders").perm, topics.create("audit").perm
        (6, 6)
        """
        with self._writing, self._lock:
            self._file = GrowingFile(self.path, self._KEY)
            version = self._data.get("dataVersion")
            if self._entries and not (isinstance(version, dict) and self._file.adopt(version)):
                self._changed = True

    @property
    def changed(self) -> bool:
        return self._changed or bool(self._added)

    def _take_changes(self) -> Callable[[], object]:
        if self._file is None:
            return super()._take_changes()
        added, self._added = self._added, {}
        if self._changed:
            return partial(self._file.write, in_order(self._to_write()))
        return partial(self._append, self._file, added, self._data["dataVersion"])

    def _append(self, file: GrowingFile, added: dict[str, dict[str, Any]], version: dict[str, Any]) -> None:
        if not file.append(added, version):
            with self._lock:  # with what was added meanwhile
                table, self._added = in_order(self._to_write()), {}
            file.write(table)

    def _to_write(self) -> dict[str, Any]:
        return {**self._data, self._KEY: in_java_order(self._raw, 2048)}


_KEYS: dict[type[ConfigEntry], list[tuple[str, str]]] = {}


def _keys(kind: type[ConfigEntry]) -> list[tuple[str, str]]:
    """Return (key in the file, name of the field) of each field, in the order of the file."""
    if kind not in _KEYS:
        _KEYS[kind] = sorted((camel(field.name), field.name) for field in dataclasses.fields(kind))
    return _KEYS[kind]


def in_order(data: dict[Any, Any]) -> dict[Any, Any]:
    """Return an object of a file ordered by the text of its names; damaged files may mix integers and strings.

    >>> in_order({"b": 1, 0: 2, "a": 3})
    {0: 2, 'a': 3, 'b': 1}
    """
    return dict(sorted(data.items(), key=lambda entry: str(entry[0])))


def camel(name: str) -> str:
    """Return the name of a field in RocketMQ's spelling.

    >>> camel("read_queue_nums")
    'readQueueNums'
    """
    return re.sub(r"_(.)", lambda match: match[1].upper(), name)


def path_of(root: str | os.PathLike[str], name: str) -> str:
    """Return the path of a table of a store.

    >>> path_of("store", "topics.json")
    'store/config/topics.json'
    """
    return os.path.join(os.fspath(root), "config", name)
