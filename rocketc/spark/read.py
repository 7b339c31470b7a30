"""What a task of the source does: parts of files -> batches of columns. Runs in Spark's workers."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rocketc.errors import CorruptRecordError
from rocketc.paths import LogFile
from rocketc.scan import ScanReport, scan

if TYPE_CHECKING:
    import pyarrow


def read_parts(parts: Iterable[LogFile], options: Mapping[str, Any]) -> Iterator[pyarrow.RecordBatch]:
    """The messages of parts of files, one part after the other.

    options  keyword arguments of rocketc.scan()
    Raises what rocketc.scan() raises.
    """
    for part in parts:
        yield from _batches(part, options)


def _batches(file: LogFile, options: Mapping[str, Any]) -> Iterator[pyarrow.RecordBatch]:
    messages = scan(file, **options)
    try:
        yield from messages.batches()
    except CorruptRecordError as error:
        advice = "option mode=DROPMALFORMED leaves it out and goes on"
        raise CorruptRecordError(error.file, error.offset, error.reason, advice) from None
    finally:
        _tell(file, messages.report)


def _tell(file: LogFile, report: ScanReport) -> None:
    """One line about what mode=DROPMALFORMED has dropped; a worker's stderr goes to its executor's log."""
    if damage := report.damage:
        lost = sum(one.stop - one.start for one in damage)
        more = f", the first of {len(damage)} ranges; {lost} bytes in all" if len(damage) > 1 else ""
        print(f"rocketc: {damage[0]}{more}", file=sys.stderr)
