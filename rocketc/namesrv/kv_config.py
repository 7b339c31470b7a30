"""Key-value settings by namespace, and their file kvConfig.json.

RocketMQ keeps the file in the folder `namesrv` of the user's home. It has one line:
{"configTable":{NAMESPACE:{KEY:VALUE}}}. The previous version is kept as `.bak`. RocketMQ writes the file before it
answers (observed on 4.9.7 and 5.3.3).
Source: RocketMQ KVConfigManager.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Mapping

from rocketc.errors import ConfigTableError, StoreIOError
from rocketc.files.durable import make_folder
from rocketc.namesrv.limits import KV_BYTES_MOST, VALUES_MOST, size_of
from rocketc.tables.fastjson import in_java_order
from rocketc.tables.table_file import read_table, write_table

_log = logging.getLogger("rocketc.namesrv")

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"  # the namespace of order topics: topic -> "broker-a:4;broker-b:4"
_BUCKETS = 16  # of an empty HashMap


class KvConfig:
    """The key-value settings of a name server.

    path  the file; "" keeps the settings in memory only
    If both the file and its `.bak` are damaged, the settings are empty, and a warning says so; the first change then
    keeps the damaged file as `.bak`. Raises StoreIOError if an existing file can't be read.
    A change is durable when its method returns: it waits for the disk. One thread changes settings, all may read them.

    >>> settings = KvConfig("")
    >>> settings.put("ORDER_TOPIC_CONFIG", "orders", "broker-a:4")
    >>> settings.get("ORDER_TOPIC_CONFIG", "orders")
    'broker-a:4'
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._table: dict[str, dict[str, str]] = self._load() if self.path else {}
        texts = [text for entries in self._table.values() for pair in entries.items() for text in pair]
        self._size = sum(map(size_of, [*self._table, *texts]))  # bytes of all namespaces, keys and values

    def _load(self) -> dict[str, dict[str, str]]:
        try:
            found = read_table(self.path)
        except ConfigTableError as error:
            _log.warning("%s; the key-value settings are read as empty", error)
            return {}
        except StoreIOError as error:
            if error.errno != errno.ENOENT:
                raise
            return {}
        if found.load_error is not None and os.path.exists(self.path):
            _log.warning("%s; %s was read instead", found.load_error, found.file)
        table = found.data.get("configTable")
        return {
            str(namespace): {str(key): str(value) for key, value in entries.items() if value is not None}
            for namespace, entries in (table.items() if isinstance(table, dict) else ())
            if isinstance(entries, dict)
        }

    def get(self, namespace: str, key: str) -> str | None:
        """Return a value; None if it is not set."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, name: str) -> Mapping[str, str] | None:
        """Return the settings of a namespace; None if it never had one."""
        return self._table.get(name)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value. Raises StoreIOError, or ValueError if there would be too much; then nothing changes."""
        entries = self._table.get(namespace)
        before = None if entries is None else entries.get(key)
        table = {**self._table, namespace: {**(entries or {}), key: value}}
        if before is None and len(table) + sum(map(len, table.values())) > VALUES_MOST:
            raise ValueError(f"there would be more than {VALUES_MOST} key-value settings and namespaces")
        size = self._size + size_of(value) - size_of(before or "")
        size += 0 if before is not None else size_of(key)
        size += 0 if entries is not None else size_of(namespace)
        if size > max(self._size, KV_BYTES_MOST):
            raise ValueError(f"the key-value settings would have more than {KV_BYTES_MOST} bytes; delete some")
        self._change(table, size)

    def delete(self, namespace: str, key: str) -> None:
        """Delete a value; the namespace stays. Raises StoreIOError; then nothing changes."""
        value = self._table.get(namespace, {}).get(key)
        if value is not None:
            rest = {name: other for name, other in self._table[namespace].items() if name != key}
            self._change({**self._table, namespace: rest}, self._size - size_of(key) - size_of(value))

    def _change(self, table: dict[str, dict[str, str]], size: int) -> None:
        if self.path:
            make_folder(os.path.dirname(self.path) or ".")
            entries = {name: in_java_order(table[name], _BUCKETS) for name in in_java_order(table, _BUCKETS)}
            write_table(self.path, {"configTable": entries}, compact=True)
        self._table, self._size = table, size
