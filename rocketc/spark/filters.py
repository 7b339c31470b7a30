"""Spark's filters (WHERE ...) as arguments of rocketc.scan(): filtered messages are not decoded or sent to the JVM."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Collection
from typing import Any

from rocketc.format.ids import decode_offset_id
from rocketc.spark.offset_options import is_asked
from rocketc.spark.partition_reader import source_of

_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_US = datetime.timedelta(microseconds=1)
_INT64 = range(-(1 << 63), 1 << 63)
_NEVER_NULL = ("topic", "queueId", "queueOffset", "physicalOffset", "storeSize")


def session_pushes() -> bool:
    """Whether this is the process in which Spark calls pushFilters().

    Spark calls it only if spark.sql.python.filterPushdown.enabled is true. If the setting is false, queries of a reader
    with pushFilters() fail. A source can't read the setting, but the process for pushFilters() has its own module.

    >>> session_pushes()
    False
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _WORKER in sys.modules or (main is not None and main.name == _WORKER)


class Narrowing:
    """The arguments of a scan that is narrowed by filters. A message must match all of them.

    >>> from pyspark.sql.datasource import EqualTo, GreaterThan
    >>> narrowing = Narrowing()
    >>> narrowing.take(EqualTo(("topic",), "orders")), narrowing.take(GreaterThan(("queueOffset",), 7))
    (True, False)
    >>> narrowing.of({"errors": "raise"})
    {'errors': 'raise', 'topics': ['orders']}
    """

    def __init__(self) -> None:
        self._texts: dict[str, set[str]] = {}  # topics, tags, keys -> allowed
        self._queues: set[int] | None = None
        self._bounds: dict[str, int] = {}  # begin, end, start, stop

    def take(self, filter: Any) -> bool:
        """Narrow the scan by a filter as far as possible. True: Spark does not have to apply the filter again."""
        attribute: tuple[str, ...] = getattr(filter, "attribute", ())
        value = getattr(filter, "value", None)
        if len(attribute) != 1:
            return False
        column, kind = source_of(attribute[0]), type(filter).__name__
        if kind == "IsNotNull":
            return column in _NEVER_NULL
        if value is None:  # EqualNullSafe with null: IS NULL
            return False
        if kind in ("EqualTo", "EqualNullSafe"):
            kind, value = "In", (value,)
        if kind == "In":
            return self._take_in(column, {one for one in value if one is not None})
        if kind in _COMPARED and column in _COLUMNS:
            self._take_bound(column, kind, value)
        return False

    def of(self, scan: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a scan, narrowed by the filters."""
        out = dict(scan)
        for name, texts in self._texts.items():
            mine = sorted(texts)
            if name == "topics" and name in out:
                mine = [text for text in mine if is_asked(text, out[name])]
            elif name in out:  # Spark applies the filter again, so the tags or keys of the options are enough
                continue
            out[name] = mine
        if self._queues is not None:
            given = out.get("queues")
            out["queues"] = sorted(self._queues if given is None else self._queues & set(given))
        for name, value in self._bounds.items():
            best = max if name in ("begin", "start") else min
            out[name] = best(value, out.get(name, value))
        return out

    def _take_in(self, column: str, values: set[Any]) -> bool:
        if column == "queueId" and _all(int, values):
            self._queues = values if self._queues is None else self._queues & values
            return True
        if column == "physicalOffset" and _all(int, values) and values:
            self._bound("start", min(values))
            self._bound("stop", max(values) + 1)
        elif column == "storeTimestamp" and values:
            self._take_bound(column, "GreaterThanOrEqual", min(values))
            self._take_bound(column, "LessThanOrEqual", max(values))
        elif column == "msgId" and _all(str, values):
            self._take_ids(values)
        elif column in ("topic", "keys") and _all(str, values) and any("\ufffd" in text for text in values):
            return False  # U+FFFD may replace bytes that are not UTF-8
        elif column == "topic" and _all(str, values):
            self._keep("topics", values)
            return True
        elif column == "tags" and _all(str, values) and all(_is_plain_tag(text) for text in values):
            self._keep("tags", values)
        elif column == "keys" and _all(str, values) and all(text.split(" ")[0] for text in values):
            self._keep("keys", {text.split(" ")[0] for text in values})
        return False

    def _keep(self, name: str, texts: set[str]) -> None:
        if name != "keys":
            self._texts[name] = self._texts.get(name, texts) & texts
        else:  # a message can have several keys
            self._texts.setdefault(name, texts)

    def _take_ids(self, ids: Collection[str]) -> None:
        try:
            offsets = [decode_offset_id(text).phy_offset for text in ids]
        except ValueError:
            return
        if offsets:
            self._bound("start", min(offsets))
            self._bound("stop", max(offsets) + 1)

    def _take_bound(self, column: str, kind: str, value: Any) -> None:
        lower, more = _COMPARED[kind]
        if column == "storeTimestamp":
            if not isinstance(value, datetime.datetime) or value.tzinfo is None:
                return
            us = (value - _EPOCH) // _US
            value = (us // 1000 + 1) if more else -(-us // 1000)
        elif not isinstance(value, int):
            return
        else:
            value += more
        self._bound(_COLUMNS[column][0 if lower else 1], value)

    def _bound(self, name: str, value: int) -> None:
        if value in _INT64:
            best = max if name in ("begin", "start") else min
            self._bounds[name] = best(value, self._bounds.get(name, value))


_COLUMNS = {"storeTimestamp": ("begin", "end"), "physicalOffset": ("start", "stop")}
# Class of a filter -> (it is a lower bound, the bound of the half-open range is its value + 1).
_COMPARED = {
    "GreaterThanOrEqual": (True, False),
    "GreaterThan": (True, True),
    "LessThan": (False, False),
    "LessThanOrEqual": (False, True),
}


def _all(kind: type, values: Collection[Any]) -> bool:
    return all(isinstance(value, kind) and not isinstance(value, bool) for value in values)


def _is_plain_tag(text: str) -> bool:
    """Whether rocketc.scan(tags=) reads the text as exactly this one tag."""
    return text not in ("", "*") and "||" not in text and text == text.strip() and "\ufffd" not in text
