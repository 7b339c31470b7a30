"""Messages counted by group in plain Python: what Tally and `rocketc stats` are compared with.

A message is a dict with the oracle's keys; a group is [messages, bytes, first, last, smallest, largest].
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from support.compare import INT64_US
from support.oracle import INNER_BATCH

Group = list[Any]
Groups = dict[tuple[Any, ...], Group]

MINUTE = 60_000


def _time(record: Any) -> int | None:
    """A store timestamp, or None where a column cannot hold it."""
    ms: int = record["storeTimestamp"]
    return ms if -INT64_US < ms < INT64_US else None


def _begin(record: Any, width: int) -> int | None:
    ms = _time(record)
    return None if ms is None else ms // width * width


DIMENSIONS: dict[str, Callable[[Any], Any]] = {
    "topic": lambda r: r["topic"],
    "queue": lambda r: r["queueId"],
    "broker": lambda r: None,
    "tag": lambda r: r.get("tags"),
    "key": lambda r: r.get("keys"),
    "host": lambda r: r["bornHost"],
    "store-host": lambda r: r["storeHost"],
    "second": lambda r: _begin(r, 1000),
    "minute": lambda r: _begin(r, MINUTE),
    "hour": lambda r: _begin(r, 60 * MINUTE),
    "day": lambda r: _begin(r, 24 * 60 * MINUTE),
    "size": lambda r: 1 << (r["storeSize"].bit_length() - 1),
}


def count(records: Iterable[Any], by: Sequence[str]) -> Groups:
    """The groups of these messages, in the order of their first messages."""
    out: Groups = {}
    last = None
    for r in records:
        again = bool(r["sysFlag"] & INNER_BATCH) and r["physicalOffset"] == last
        last = r["physicalOffset"]
        group = out.setdefault(tuple(DIMENSIONS[name](r) for name in by), [0, 0, None, None, 1 << 31, 0])
        group[0] += 1
        group[1] += 0 if again else r["storeSize"]
        when = _time(r)
        if when is not None:
            group[2] = when if group[2] is None else min(group[2], when)
            group[3] = when if group[3] is None else max(group[3], when)
        group[4] = min(group[4], r["storeSize"])
        group[5] = max(group[5], r["storeSize"])
    return out


def sizes(records: Iterable[Any]) -> list[int]:
    """Stored bytes of each record, an inner batch once; sorted."""
    out = []
    last = None
    for r in records:
        if not (r["sysFlag"] & INNER_BATCH and r["physicalOffset"] == last):
            out.append(r["storeSize"])
        last = r["physicalOffset"]
    return sorted(out)
