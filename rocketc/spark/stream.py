"""spark.readStream.format("rocketmq"): micro-batches of a commit log that grows."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rocketc.errors import StoreIOError
from rocketc.files.paths import Log
from rocketc.spark.data_source_api import DataSourceStreamReader, InputPartition
from rocketc.spark.growing_log import GrowingLog, LogPosition
from rocketc.spark.options import Options
from rocketc.spark.partition_reader import read_files
from rocketc.spark.partitions import plan
from rocketc.spark.worker import FastStartup

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxFiles,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # Spark before 4.2 does not support limits
    HAS_LIMITS = False
else:
    HAS_LIMITS = True

if TYPE_CHECKING:
    import pyarrow

Offset = dict[str, Any]


class StreamBatches(FastStartup, DataSourceStreamReader):
    """The batches of a stream, for all versions of Spark. Offsets are those of LogPosition.

    It exists in a Python process beside the driver while the query runs. Tasks have a copy, for read() only.
    """

    def __init__(self, paths: list[str], options: Options, columns: Sequence[str]) -> None:
        stream = options.stream
        self._options = options
        self._columns = tuple(columns)
        self._fail_on_loss: bool = stream.get("failOnDataLoss", True)
        self._limits = {name: stream[option] for option, name in _LIMITS.items() if option in stream}
        self._log = GrowingLog(paths, options.scan, self._fail_on_loss)

    def initialOffset(self) -> Offset:
        """Return where a query without a checkpoint begins."""
        begin = self._options.scan.get("begin")
        if begin is not None:
            return self._log.begin_at(begin).to_json()
        if self._options.stream.get("startingOffsets", "latest") == "earliest":
            return self._log.begin().to_json()
        end = self._log.end()
        return replace(end, initial=end.offset).to_json()

    def next_offset(self, start: Offset, upto: Offset | None = None, *, limited: bool = True) -> Offset:
        """Return the end of the batch that begins at `start`; `start` if nothing is new.

        upto     from end_offset(): later records are not in the batch; None: those that are there now
        limited  use the limits of the options
        """
        place, stop = LogPosition.from_json(start), None if upto is None else LogPosition.from_json(upto)
        if stop is not None and stop.offset is None:
            return start
        end = self._log.next(place, None if stop is None else stop.offset, **(self._limits if limited else {}))
        return start if end == place else end.to_json()

    def end_offset(self) -> Offset:
        """Return the end of the log now."""
        return self._log.end().to_json()

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the tasks of a batch. If a batch is repeated, its rows are the same."""
        files = self._log.parts(LogPosition.from_json(start), LogPosition.from_json(end))
        return [InputPartition(parts) for parts in plan([Log(tuple(files), ())], **self._options.plan)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Yield the messages of a task."""
        for part in partition.value:
            try:
                asked = self._options
                yield from read_files([part], self._columns, asked.scan, damage=asked.damage, dropped=asked.dropped)
            except StoreIOError as error:
                if self._fail_on_loss or error.errno != errno.ENOENT:
                    raise
                print(f"rocketc: {part.path}: deleted after the batch was planned", file=sys.stderr)


_LIMITS = {"maxBytesPerTrigger": "max_bytes", "maxOffsetsPerTrigger": "max_records", "maxFilesPerTrigger": "max_files"}

if HAS_LIMITS:

    class RocketmqStreamReader(StreamBatches, SupportsTriggerAvailableNow):
        """A stream in Spark 4.2 and newer."""

        _target: Offset | None = None

        def getDefaultReadLimit(self) -> ReadLimit:
            """Return the first limit of the options: Spark takes only one. latestOffset() applies all of them."""
            for name, kind in _KINDS.items():
                if name in self._limits:
                    return kind(self._limits[name])
            return ReadAllAvailable()

        def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
            """Return the end of the next batch; `start` if nothing is new."""
            return self.next_offset(start, self._target, limited=not isinstance(limit, ReadAllAvailable))

        def reportLatestOffset(self) -> Offset | None:
            """Return the end of the log. The progress of the query shows how far the stream is behind."""
            end = self._log.end()
            return None if end.offset is None else end.to_json()

        def prepareForTriggerAvailableNow(self) -> None:
            self._target = self.end_offset()

    _KINDS = {"max_bytes": ReadMaxBytes, "max_records": ReadMaxRows, "max_files": ReadMaxFiles}

else:

    class RocketmqStreamReader(StreamBatches):  # type: ignore[no-redef]
        """A stream in Spark 4.0 and 4.1, which do not pass the end of the last batch, so this object keeps it.

        After a restart the end is not known until a batch is planned, so the first batch does not have limits.
        """

        _planned: LogPosition | None = None

        def initialOffset(self) -> Offset:
            offset = super().initialOffset()
            self._planned = LogPosition.from_json(offset)
            return offset

        def latestOffset(self) -> Offset:  # type: ignore[override]
            if self._planned is None:
                return self.end_offset()
            return self._log.next(self._planned, **self._limits).to_json()

        def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
            out = super().partitions(start, end)
            self._planned = LogPosition.from_json(end)
            return out
