"""Offsets up to which queues are consumed: by group (consumerOffset.json), and by delay level (delayOffset.json)."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Mapping
from typing import Any

from rocketc._arguments import whole_number
from rocketc.tables.config_manager import Clock, ConfigManager, now_ms, path_of
from rocketc.tables.fastjson import in_java_order

_INT32, _INT64 = (-(1 << 31), (1 << 31) - 1), (-(1 << 63), (1 << 63) - 1)
_VERSION_STEP = 500  # consumerOffsetUpdateVersionStep: commits per version


def _offsets(found: object) -> dict[int, int] | None:
    """Convert a map of integers, whose names may have quotes in the file; None if it is not one."""
    if not isinstance(found, dict):
        return None
    out = {}
    for key, value in found.items():
        if isinstance(key, str) and key.isdecimal() and len(key) < 19:
            key = int(key)
        if type(key) is not int or type(value) is not int:
            return None
        out[key] = value
    return out


class ConsumerOffsets(ConfigManager):
    """The next offset of each topic, group and queue. A commit changes memory; persist() writes it.

    root  folder of the store; the file is config/consumerOffset.json
    As in RocketMQ, offsets are not checked and may decrease: the last commit counts.

    >>> import tempfile
    >>> root = tempfile.mkdtemp()
    >>> offsets = ConsumerOffsets(root)
    >>> offsets.commit("orders", "audit", 0, 12)
    >>> offsets.get("orders", "audit", 0), offsets.get("orders", "audit", 1)
    (12, -1)
    >>> offsets.persist(), ConsumerOffsets(root).get("orders", "audit", 0)
    (True, 12)
    """

    NAME = "consumerOffset.json"

    def __init__(self, root: str | os.PathLike[str], *, clock: Clock = now_ms) -> None:
        super().__init__(path_of(root, self.NAME), clock=clock)
        self._table: dict[str, dict[int, int]] = {}
        self._commits = 0
        for name, found in self._part("offsetTable").items():
            queues = _offsets(found)
            if queues is None or not isinstance(name, str):
                self._warn(f"{self.path}: {name}: not a map of offsets; it is skipped")
            else:
                self._table[name] = queues

    def get(self, topic: str, group: str, queue_id: int) -> int:
        """Return the next offset of a group in a queue; -1 if it was never committed."""
        return self._table.get(f"{topic}@{group}", {}).get(queue_id, -1)

    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Set the next offset; persist() writes it.

        Raises ValueError for a queue id of more than 32 bits, or an offset of more than 64.
        """
        queue_id = whole_number("queue_id", queue_id, *_INT32)
        offset = whole_number("offset", offset, *_INT64)
        with self._lock:
            self._table.setdefault(f"{topic}@{group}", {})[queue_id] = offset
            if self._commits % _VERSION_STEP == 0 and not self.is_v4_format:
                self._next_version()
            self._commits += 1
            self._changed = True

    def commit_all(self, topic: str, group: str, offsets: Mapping[int, int]) -> None:
        """Set the next offsets of some queues, by queue id, as as many calls of commit() do; persist() writes them.

        Raises ValueError as commit() does; then nothing is set.

        >>> import tempfile
        >>> offsets = ConsumerOffsets(tempfile.mkdtemp())
        >>> offsets.commit_all("orders", "audit", {0: 12, 1: 9})
        >>> offsets.queues("orders", "audit")
        {0: 12, 1: 9}
        """
        if not offsets:
            return
        for one in (min, max):
            whole_number("queue_id", one(offsets), *_INT32)
            whole_number("offset", one(offsets.values()), *_INT64)
        with self._lock:
            self._table.setdefault(f"{topic}@{group}", {}).update(offsets)
            before, self._commits = self._commits, self._commits + len(offsets)
            if not self.is_v4_format:
                for _ in range(-(-self._commits // _VERSION_STEP) - -(-before // _VERSION_STEP)):
                    self._next_version()
            self._changed = True

    def remove(self, topic: str, group: str, queue_id: int) -> None:
        """Remove the offset of a group in a queue, if it is there; persist() writes the change.

        >>> import tempfile
        >>> offsets = ConsumerOffsets(tempfile.mkdtemp())
        >>> offsets.commit("orders", "audit", 0, 12)
        >>> offsets.remove("orders", "audit", 0)
        >>> offsets.get("orders", "audit", 0)
        -1
        """
        with self._lock:
            queues = self._table.get(name := f"{topic}@{group}", {})
            if queues.pop(queue_id, None) is not None:
                self._changed = True
                if not queues:
                    del self._table[name]

    def take(self, table: Mapping[str, Mapping[int, int]], version: Mapping[str, int] | None) -> bool:
        """Have the offsets of another broker, and its version; persist() writes them. Returns False if they are equal.

        table    next offsets by queue id, by `topic@group`: each replaces all queues of this name. Other names stay
        version  its `dataVersion`; None: it lacks one, as RocketMQ 4

        >>> import tempfile
        >>> offsets = ConsumerOffsets(tempfile.mkdtemp())
        >>> offsets.take({"orders@audit": {0: 12}}, {"counter": 3, "stateVersion": 0, "timestamp": 9})
        True
        >>> offsets.get("orders", "audit", 0), offsets.version
        (12, (3, 9))
        """
        with self._lock:
            changed = {name: dict(queues) for name, queues in table.items() if self._table.get(name) != queues}
            if not changed and (version is None or self.has_version(version)):
                return False
            self._table |= changed
            self._take_version(version)
            return True

    def queues(self, topic: str, group: str) -> dict[int, int]:
        """Return a copy of a group's next offsets by queue id."""
        with self._lock:
            return dict(self._table.get(f"{topic}@{group}", {}))

    def topics_of(self, group: str) -> list[str]:
        """Return the topics in which a group has offsets."""
        with self._lock:
            return [name.partition("@")[0] for name in self._table if name.partition("@")[2] == group]

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have offsets in a topic."""
        with self._lock:
            return [name.partition("@")[2] for name in self._table if name.partition("@")[0] == topic]

    def items(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield (topic, group, queue id, next offset) of all current entries."""
        with self._lock:
            found = [(name, dict(queues)) for name, queues in self._table.items()]
        for name, queues in found:
            topic, _, group = name.partition("@")
            for queue_id, offset in queues.items():
                yield topic, group, queue_id, offset

    def forget(self, *, topic: str | None = None, group: str | None = None) -> int:
        """Remove the offsets of a topic, of a group, or of a group in a topic; persist() writes the change.

        Returns the number of removed pairs of topic and group. Raises TypeError if neither is given.
        """
        if topic is None and group is None:
            raise TypeError("forget() needs a topic, a group, or both")
        with self._lock:
            deleted = []
            for name in self._table:
                of_topic, _, of_group = name.partition("@")
                if topic in (None, of_topic) and group in (None, of_group):
                    deleted.append(name)
            for name in deleted:
                del self._table[name]
                self._changed = True
            return len(deleted)

    def drop(self, deleted: Container[Any]) -> None:
        """Remove topics, and queues as (topic, queue id), that are about to be deleted; durably.

        Raises StoreIOError or StoreFullError; then no offset is removed.

        >>> import tempfile
        >>> offsets = ConsumerOffsets(tempfile.mkdtemp())
        >>> for queue_id in (0, 1):
        ...     offsets.commit("orders", "audit", queue_id, 12)
        >>> offsets.drop({("orders", 1)})
        >>> list(offsets.items())
        [('orders', 'audit', 0, 12)]
        """
        dropped = [
            (name, queue_id, offset)
            for topic, group, queue_id, offset in self.items()
            if topic in deleted or (topic, queue_id) in deleted
            for name in [f"{topic}@{group}"]
        ]
        with self._lock:
            for name, queue_id, _ in dropped:
                self._table[name].pop(queue_id, None)
                if not self._table[name]:
                    del self._table[name]
                self._changed = True
        try:
            self.persist()
        except BaseException:
            with self._lock:
                for name, queue_id, offset in dropped:
                    self._table.setdefault(name, {}).setdefault(queue_id, offset)
            raise

    def _to_write(self) -> dict[str, Any]:
        table = in_java_order(self._table, 1024)
        data = {**self._data, "offsetTable": {name: in_java_order(queues, 64) for name, queues in table.items()}}
        if not self.is_v4_format:
            data["groupTopicMap"] = _topics_by_group(table)
        return data


def _topics_by_group(names: dict[str, Any]) -> dict[str, list[str]]:
    groups: dict[str, dict[str, None]] = {}
    for name in names:
        topic, _, group = name.partition("@")
        groups.setdefault(group, {})[topic] = None
    return {group: list(in_java_order(topics, 8)) for group, topics in in_java_order(groups, 128).items()}


class DelayOffsets(ConfigManager):
    """The next offset to deliver of each delay level from 1: queue `level - 1` of SCHEDULE_TOPIC_XXXX.

    root  folder of the store; the file is config/delayOffset.json

    >>> import tempfile
    >>> offsets = DelayOffsets(tempfile.mkdtemp())
    >>> offsets.commit(3, 51)
    >>> offsets.get(3), offsets.get(4), offsets.persist()
    (51, 0, True)
    """

    NAME = "delayOffset.json"

    def __init__(self, root: str | os.PathLike[str], *, clock: Clock = now_ms) -> None:
        super().__init__(path_of(root, self.NAME), clock=clock)
        table = _offsets(self._part("offsetTable"))
        if table is None:
            self._warn(f"{self.path}: offsetTable is not a map of offsets; it is read as empty")
        self._table = table or {}
        self._is_taken = False  # the table and its version are another broker's

    def get(self, level: int) -> int:
        """Return the next offset of a level; 0 if nothing was delivered."""
        return self._table.get(level, 0)

    def commit(self, level: int, offset: int) -> None:
        """Set the next offset; persist() writes it. Raises ValueError for a wrong level or offset."""
        level = whole_number("level", level, 1, _INT32[1])
        offset = whole_number("offset", offset, 0, _INT64[1])
        with self._lock:
            self._table[level] = offset
            self._changed, self._is_taken = True, False

    def take(self, table: Mapping[int, int], version: Mapping[str, int] | None) -> bool:
        """Have the offsets of another broker, and its version; persist() writes them. Returns False if they are equal.

        >>> import tempfile
        >>> offsets = DelayOffsets(tempfile.mkdtemp())
        >>> offsets.take({3: 51}, None), offsets.take({3: 51}, None)
        (True, False)
        """
        with self._lock:
            if self._table == table and (version is None or self.has_version(version)):
                return False
            self._table, self._is_taken = dict(table), True
            self._take_version(version)
            return True

    def items(self) -> list[tuple[int, int]]:
        """Return (level, next offset) of all current entries."""
        with self._lock:
            return list(self._table.items())

    def _to_write(self) -> dict[str, Any]:
        if not self.is_v4_format and not self._is_taken:
            self._next_version()
        return {**self._data, "offsetTable": in_java_order(self._table, 64)}
