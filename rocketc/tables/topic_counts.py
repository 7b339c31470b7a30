"""Numbers by topic: how many transactions are not ended, and how many timed messages wait.

Source: RocketMQ TransactionMetrics, TimerMetrics.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rocketc._arguments import whole_number
from rocketc.tables.config_manager import Clock, ConfigManager, in_order, now_ms, path_of
from rocketc.tables.fastjson import in_java_order

_INT64 = (-(1 << 63), (1 << 63) - 1)


class TopicCounts(ConfigManager):
    """A number for each topic. It may be negative, as in RocketMQ: what is repeated counts again.

    root  folder of the store; the file is in its folder config

    >>> import tempfile
    >>> counts = TransactionCounts(tempfile.mkdtemp())
    >>> counts.add("orders", 3)
    >>> counts.get("orders"), counts.get("other"), counts.persist()
    (3, 0, True)
    """

    COMPACT = True
    _KEY = ""  # of the table in the file

    def __init__(self, root: str | os.PathLike[str], *, clock: Clock = now_ms) -> None:
        super().__init__(path_of(root, self.NAME), clock=clock)
        self._table: dict[str, tuple[int, int]] = {}
        self._changes = 0  # since the last write
        for topic, found in self._part(self._KEY).items():
            values = (found.get("count"), found.get("timeStamp", 0)) if isinstance(found, dict) else (None, None)
            count, time = values
            if type(count) is not int or type(time) is not int or not isinstance(topic, str):
                self._warn(f"{self.path}: {topic}: not a count; it is skipped")
            else:
                self._table[topic] = (count, time)

    def get(self, topic: str) -> int:
        """Return the number of a topic, 0 if there is none."""
        return self._table.get(topic, (0, 0))[0]

    def add(self, topic: str, change: int) -> None:
        """Change the number of a topic; persist() writes it."""
        with self._lock:
            count = whole_number("count", self.get(topic) + change, *_INT64)
            self._table[topic] = (count, self._clock())
            self._changes += 1
            self._changed = True

    def take(self, table: Mapping[str, tuple[int, int]], version: Mapping[str, int] | None) -> None:
        """Have the counts of another broker, and its version; persist() writes them.

        table  (count, ms of its last change) by topic

        >>> import tempfile
        >>> counts = TimerCounts(tempfile.mkdtemp())
        >>> counts.take({"orders": (3, 1_700_000_000_000)}, None)
        >>> counts.items()
        [('orders', 3)]
        """
        with self._lock:
            self._table, self._changes = dict(table), 0
            self._take_version(version)

    def items(self) -> list[tuple[str, int]]:
        """Return (topic, count) of all topics.

        >>> TimerCounts("/nonexistent").items()
        []
        """
        with self._lock:
            return [(topic, count) for topic, (count, _) in self._table.items()]

    def whole(self) -> dict[str, Any]:
        """Return the table as the object of the file, with the version of the last write.

        >>> sorted(TimerCounts("/nonexistent").whole())
        ['dataVersion', 'timingCount']
        """
        with self._lock:
            return in_order({**self._data, self._KEY: self._counts()})

    def _counts(self) -> dict[str, dict[str, int]]:
        counts = {topic: {"count": count, "timeStamp": time} for topic, (count, time) in self._table.items()}
        return in_java_order(counts, 1024)

    def _to_write(self) -> dict[str, Any]:
        if self._changes:
            self._next_version(self._changes)
        self._changes = 0
        return {**self._data, self._KEY: self._counts()}


class TransactionCounts(TopicCounts):
    """How many transactions of each topic are not ended: config/transactionMetrics."""

    NAME, _KEY = "transactionMetrics", "transactionCount"


class TimerCounts(TopicCounts):
    """How many timed messages of each topic wait for their time: config/timermetrics."""

    NAME, _KEY = "timermetrics", "timingCount"
