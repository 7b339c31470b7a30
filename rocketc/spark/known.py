"""What of a part of the log need not be read, because the store's consume queues know whose it is."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from rocketc._consume_queues import ConsumeQueues
from rocketc._known_records import KnownRecords
from rocketc.errors import RocketcError
from rocketc.paths import Log, LogFile
from rocketc.spark.assigned import is_asked

LEAST_BYTES = 16 << 20  # a smaller part is read sooner than its queues are looked at
_MOST_QUEUES = 2000
_RECORD_BYTES = 4 << 10  # of a record on average: smaller ones are passed over sooner than their units are read
_GAP_BYTES = 1 << 20  # less between two records is read with them: sooner done than to begin anew


def known_parts(parts: Iterable[LogFile], scan: Mapping[str, Any]) -> Iterator[Log | LogFile]:
    """The parts, those of a large file as the ranges that have to be read for the messages that a scan asks for.

    scan  arguments of rocketc.scan(): `topics`, `queues` and `offsets` are looked at
    That pays for rare messages among large ones: a part is read as it stands if few of them are farther than 1 MiB from
    the next, or if its records have less than 4 KiB on average.
    The queues are trusted where all of them together lie in the log without a gap. Each gap is read, and so is
    a part whose units contradict one another, or whose store has no queues beside its log.
    """
    kept: dict[str, ConsumeQueues | None] = {}
    for part in parts:
        asked = any(name in scan for name in ("topics", "queues", "offsets"))
        if not asked or part.base is None or part.end - part.begin < LEAST_BYTES:
            yield part
            continue
        folder = os.path.dirname(part.path)
        if folder not in kept:
            kept[folder] = _queues_of(folder)
        queues = kept[folder]
        found = _to_read(part, queues, scan) if queues is not None else None
        yield part if found is None else Log(tuple(found), ())


def _queues_of(folder: str) -> ConsumeQueues | None:
    root = os.path.dirname(folder)
    if os.path.basename(folder) != "commitlog" or not os.path.isdir(os.path.join(root, "consumequeue")):
        return None
    try:
        queues = ConsumeQueues(root, read_only=True)
        queues.load()
    except (RocketcError, OSError):
        return None
    return queues if len(queues) <= _MOST_QUEUES else None


def _to_read(part: LogFile, queues: ConsumeQueues, scan: Mapping[str, Any]) -> list[LogFile] | None:
    start, end = part.begin, part.end
    try:
        known = KnownRecords(queues, start, end, lambda topic, queue_id: _is_wanted(topic, queue_id, scan))
        if known.spread(_GAP_BYTES) > (end - start) // 4 or not known.take_others((end - start) // _RECORD_BYTES):
            return None  # reading all of it is faster
    except (RocketcError, OSError):
        return None
    ranges = known.to_read(part.exact or start == part.base, _GAP_BYTES)
    if ranges is None or sum(behind - first for first, behind in ranges) > (end - start) // 2:
        return None
    return [
        replace(part, start=first, stop=part.stop if behind == end else behind, exact=True) for first, behind in ranges
    ]


def _is_wanted(topic: str, queue_id: int, scan: Mapping[str, Any]) -> bool:
    if (queues := scan.get("queues")) is not None and queue_id not in queues:
        return False
    if not is_asked(topic, scan.get("topics")):
        return False
    ranges = (scan.get("offsets") or {}).get(topic)
    return ranges is None or queue_id in ranges or None in ranges
