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
        """Set a value. Raises StoreIOError, or ValueError if the file would be too large; then nothing changes."""
        self._change({**self._table, namespace: {**self._table.get(namespace, {}), key: value}})

    def delete(self, namespace: str, key: str) -> None:
        """Delete a value; the namespace stays. Raises StoreIOError; then nothing changes."""
        if key in self._table.get(namespace, {}):
            rest = {name: value for name, value in self._table[namespace].items() if name != key}
            self._change({**self._table, namespace: rest})

    def _change(self, table: dict[str, dict[str, str]]) -> None:
        if self.path:
            make_folder(os.path.dirname(self.path) or ".")
            entries = {name: in_java_order(table[name], _BUCKETS) for name in in_java_order(table, _BUCKETS)}
            write_table(self.path, {"configTable": entries}, compact=True)
        self._table = table
