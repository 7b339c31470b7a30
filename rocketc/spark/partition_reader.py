"""What a task of the source does: parts of files -> batches of columns. Runs in Spark's workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rocketc.derived._consume_queues import ConsumeQueues
from rocketc.errors import CorruptRecordError, RocketcError
from rocketc.files.paths import Log, LogFile
from rocketc.jobs._known_records import KnownRecords
from rocketc.read._arrow import Schema
from rocketc.read.arrow_interop import import_pyarrow
from rocketc.read.scan import Damage, ScanReport, scan
from rocketc.spark.dropped import add_dropped
from rocketc.spark.offset_options import is_asked
from rocketc.spark.schema import DAMAGE
from rocketc.spark.worker import spare_collections

if TYPE_CHECKING:
    import pyarrow

# Column of Spark's Kafka source -> ours.
_SOURCE = {
    "key": "keys",
    "value": "body",
    "partition": "queueId",
    "offset": "queueOffset",
    "timestamp": "storeTimestamp",
    "timestampType": "storeTimestamp",
    "headers": "properties",
}
LOG_APPEND_TIME = 1  # Kafka's timestampType of a time that the broker has set


def read_parts(
    parts: Iterable[LogFile],
    columns: Sequence[str],
    options: Mapping[str, Any],
    *,
    damage: bool = False,
    dropped: int | None = None,
) -> Iterator[pyarrow.RecordBatch]:
    """The messages of parts of files, one part after the other.

    columns  names of rocketc.spark.schema.FIELDS
    options  keyword arguments of rocketc.scan() but for columns
    damage   each damaged range of a part is a row behind its messages; options must say errors="skip"
    dropped  otherwise the number of the accumulator that counts them, accumulator.dropped_accumulator()
    Raises what rocketc.scan() raises.
    """
    spare_collections()
    for part in known_parts(parts, options):
        yield from _batches(part, columns, options, damage, dropped)


def source_of(column: str) -> str:
    """The column of a scan that a column of a row is made from.

    >>> source_of("partition"), source_of("tags")
    ('queueId', 'tags')
    """
    return _SOURCE.get(column, column)


def sources_of(columns: Iterable[str]) -> list[str]:
    """The columns of a scan that these are made from; at least one, to count.

    >>> sources_of(["key", "timestamp", "timestampType", "_error"]), sources_of(["_error"])
    (['keys', 'storeTimestamp'], ['queueId'])
    """
    return list(dict.fromkeys(source_of(name) for name in columns if name not in DAMAGE.names)) or ["queueId"]


def _batches(
    part: LogFile | Log, columns: Sequence[str], options: Mapping[str, Any], damage: bool, dropped: int | None
) -> Iterator[pyarrow.RecordBatch]:
    sources = sources_of(columns)
    messages = scan(part, columns=sources, **options)
    try:
        for batch in messages.batches():
            yield batch if sources == list(columns) else _shaped(batch, columns)
        if damage and messages.report.damage:
            yield _damage_rows(messages.report.damage, columns)
    except CorruptRecordError as error:
        advice = "option mode=DROPMALFORMED leaves it out and goes on, PERMISSIVE makes a row of it"
        raise CorruptRecordError(error.file, error.offset, error.reason, advice) from None
    finally:
        if not damage:
            _tell(messages.report)
            if dropped is not None and messages.report.damage:
                add_dropped(dropped, messages.report.damage)


def _shaped(batch: pyarrow.RecordBatch, columns: Sequence[str]) -> pyarrow.RecordBatch:
    """The columns of Spark's rows from those of a scan."""
    pa = import_pyarrow()
    arrays = []
    for name in columns:
        if name in DAMAGE.names:
            arrays.append(pa.nulls(batch.num_rows, pa.string() if name == "_error" else pa.int64()))
        else:
            array = batch.column(source_of(name))
            arrays.append(_MADE[name](array) if name in _MADE else array)
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _damage_rows(damage: Sequence[Damage], columns: Sequence[str]) -> pyarrow.RecordBatch:
    """A row for each damaged range: null but for where it is, and why."""
    pa = import_pyarrow()
    fields = pa.schema(Schema(sources_of(columns)))
    empty = pa.RecordBatch.from_arrays([pa.nulls(len(damage), field.type) for field in fields], schema=fields)
    known = {
        "file": pa.array([one.file for one in damage], pa.string()),
        "_corrupt_offset": pa.array([one.start for one in damage], pa.int64()),
        "_corrupt_length": pa.array([one.stop - one.start for one in damage], pa.int64()),
        "_error": pa.array([one.reason for one in damage], pa.string()),
    }
    rows = _shaped(empty, columns)
    return pa.RecordBatch.from_arrays([known.get(name, rows.column(name)) for name in columns], names=list(columns))


def _binary(array: pyarrow.Array) -> pyarrow.Array:
    return array.cast("binary")


def _append_time(array: pyarrow.Array) -> pyarrow.Array:
    pa = import_pyarrow()
    return pa.array([LOG_APPEND_TIME], pa.int32()).take(pa.nulls(len(array), pa.int32()).fill_null(0))


def _headers(array: pyarrow.MapArray) -> pyarrow.ListArray:
    """map<string, string> -> list<struct<key: string, value: binary>>"""
    pa = import_pyarrow()
    entries = pa.StructArray.from_arrays([array.keys, _binary(array.items)], names=["key", "value"])
    return pa.ListArray.from_arrays(array.offsets, entries, mask=array.is_null())


_MADE: dict[str, Callable[[Any], Any]] = {"key": _binary, "timestampType": _append_time, "headers": _headers}


def _tell(report: ScanReport) -> None:
    """One line about what mode=DROPMALFORMED has dropped; a worker's stderr goes to its executor's log."""
    if damage := report.damage:
        lost = sum(one.stop - one.start for one in damage)
        more = f", the first of {len(damage)} ranges; {lost} bytes in all" if len(damage) > 1 else ""
        print(f"rocketc: {damage[0]}{more}", file=sys.stderr)


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
