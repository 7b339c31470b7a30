"""The tasks of the source: they read parts of files into batches of columns, in Spark's workers."""

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
from rocketc.read.scan import Scan, scan
from rocketc.read.scan_report import MISSING_FILE, Damage, ScanReport
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
LOG_APPEND_TIME = 1  # Kafka's timestampType of a time that the broker sets


def read_files(
    parts: Iterable[LogFile | Log],
    columns: Sequence[str],
    options: Mapping[str, Any],
    *,
    damage: bool = False,
    dropped: int | None = None,
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the messages of parts of files, one part after the other.

    parts    a Log without files is a lost file: see with_lost()
    columns  names of rocketc.spark.schema.FIELDS
    options  keyword arguments of rocketc.scan() except columns
    damage   return each damaged range of a part as a row after its messages; options must have errors="skip"
    dropped  without `damage`: the number of the accumulator that counts damaged ranges, see dropped_accumulator()
    Raises the errors of rocketc.scan().
    """
    spare_collections()
    for part in known_parts(parts, options):
        yield from _batches(part, columns, options, damage, dropped)


def source_of(column: str) -> str:
    """Return the column of a scan from which a column of a row is made.

    >>> source_of("partition"), source_of("tags")
    ('queueId', 'tags')
    """
    return _SOURCE.get(column, column)


def sources_of(columns: Iterable[str]) -> list[str]:
    """Return the columns of a scan from which these are made; at least one, so that rows can be counted.

    >>> sources_of(["key", "timestamp", "timestampType", "_error"]), sources_of(["_error"])
    (['keys', 'storeTimestamp'], ['queueId'])
    """
    return list(dict.fromkeys(source_of(name) for name in columns if name not in DAMAGE.names)) or ["queueId"]


def _batches(
    part: LogFile | Log, columns: Sequence[str], options: Mapping[str, Any], damage: bool, dropped: int | None
) -> Iterator[pyarrow.RecordBatch]:
    yield from rows_of(scan(part, columns=sources_of(columns), **options), columns, damage=damage, dropped=dropped)


def rows_of(
    messages: Scan, columns: Sequence[str], *, damage: bool = False, dropped: int | None = None
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows of a scan of sources_of(columns). Arguments and errors are those of read_files()."""
    sources = sources_of(columns)
    try:
        for batch in messages.batches():
            yield batch if sources == list(columns) else _shaped(batch, columns)
        if damage and messages.report.damage:
            yield _damage_rows(messages.report.damage, columns)
    except CorruptRecordError as error:
        advice = "option mode=DROPMALFORMED skips it, PERMISSIVE returns it as a row"
        if error.reason == MISSING_FILE:
            advice += "; option partial=true reads a part of a log"
        raise CorruptRecordError(error.file, error.offset, error.reason, advice) from None
    finally:
        if not damage:
            _report_dropped(messages.report)
            if dropped is not None and messages.report.damage:
                add_dropped(dropped, messages.report.damage)


def _shaped(batch: pyarrow.RecordBatch, columns: Sequence[str]) -> pyarrow.RecordBatch:
    """Make the columns of Spark's rows from those of a scan."""
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
    """Return a row per damaged range: its position and reason; the other columns are null."""
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


def _report_dropped(report: ScanReport) -> None:
    """Write one line about what mode=DROPMALFORMED dropped to stderr, which goes to the log of the executor."""
    if damage := report.damage:
        lost = sum(one.stop - one.start for one in damage)
        more = f", the first of {len(damage)} ranges; {lost} bytes in all" if len(damage) > 1 else ""
        print(f"rocketc: {damage[0]}{more}", file=sys.stderr)


LEAST_BYTES = 16 << 20  # reading a smaller part is faster than reading its queues
_MOST_QUEUES = 2000
_RECORD_BYTES = 4 << 10  # average size of a record: skipping smaller records is faster than reading their units
_GAP_BYTES = 1 << 20  # reading a smaller gap between two records is faster than starting a new read


def known_parts(parts: Iterable[LogFile | Log], scan: Mapping[str, Any]) -> Iterator[Log | LogFile]:
    """Yield the parts. A large part is replaced by the ranges that contain messages of the scan, found by the queues.

    scan  arguments of rocketc.scan(); `topics`, `queues` and `offsets` are used
    This is faster for rare messages among large ones. A part is read in full if few gaps between the wanted messages
    are larger than 1 MiB, or if its records have less than 4 KiB on average.
    The queues are trusted where the records of all queues together cover the log without a gap. Gaps are read. A part
    is also read in full if its units contradict one another, or if the store does not have consume queues.
    """
    kept: dict[str, ConsumeQueues | None] = {}
    for part in parts:
        asked = any(name in scan for name in ("topics", "queues", "offsets"))
        if not asked or isinstance(part, Log) or part.base is None or part.end - part.begin < LEAST_BYTES:
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
