"""spark.readStream.format("rocketmq") with the option nameServer: micro-batches of topics of a live cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rocketc.spark.cluster_options import Cluster
from rocketc.spark.cluster_plan import Losses, divide
from rocketc.spark.cluster_position import ClusterPosition, ClusterStream
from rocketc.spark.cluster_reader import ask, read_spans
from rocketc.spark.data_source_api import DataSourceStreamReader, InputPartition
from rocketc.spark.options import Options
from rocketc.spark.stream import HAS_LIMITS
from rocketc.spark.worker import FastStartup

if HAS_LIMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

if TYPE_CHECKING:
    import pyarrow

Offset = dict[str, Any]
_LIMITS = {"maxBytesPerTrigger": "max_bytes", "maxOffsetsPerTrigger": "max_records"}


class ClusterStreamBatches(FastStartup, DataSourceStreamReader):
    """The batches of a stream, for all versions of Spark. Offsets are those of ClusterPosition.

    It exists in a Python process beside the driver while the query runs. Tasks have a copy, for read() only.
    """

    def __init__(self, options: Options, cluster: Cluster, columns: Sequence[str]) -> None:
        stream, scan = options.stream, options.scan
        self._limits = {name: stream[option] for option, name in _LIMITS.items() if option in stream}
        self._cluster, self._columns, self._dropped = cluster, tuple(columns), options.dropped
        self._options = {name: value for name, value in scan.items() if name != "topics"}
        self._losses = Losses(stream.get("failOnDataLoss", True))
        self._begins = stream.get("startingOffsets", "latest"), scan.get("begin")
        self._least_tasks = options.plan.get("min_partitions")
        self._queues = ClusterStream(scan["topics"], options.bounds, options.fail_on_missing_topic, self._losses)

    def initialOffset(self) -> Offset:
        """Return where a query without a checkpoint begins."""
        return ask(self._cluster, lambda reader: self._queues.begin(reader, *self._begins)).to_json()

    def next_offset(self, start: Offset, upto: Offset | None = None, *, limited: bool = True) -> Offset:
        """Return the end of the batch that begins at `start`; `start` if nothing is new.

        upto     from end_offset(): later messages are not in the batch; None: those that are there now
        limited  use the limits of the options
        """
        place, stop = ClusterPosition.from_json(start), None if upto is None else ClusterPosition.from_json(upto)
        limits = self._limits if limited else {}
        end = ask(self._cluster, lambda reader: self._queues.next(reader, place, stop, **limits))
        return start if end is place else end.to_json()

    def end_offset(self) -> Offset:
        """Return the ends of the queues now."""
        return ask(self._cluster, self._queues.ends).to_json()

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the tasks of a batch. If a batch is repeated, its rows are the same."""
        spans = ClusterPosition.from_json(end).spans(ClusterPosition.from_json(start))
        return [InputPartition(spans) for spans in divide(spans, self._least_tasks)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Yield the messages of a task."""
        return read_spans(partition.value, self._columns, self._options, self._cluster, self._losses, self._dropped)


class ClusterStreamReader41(ClusterStreamBatches):
    """A stream in Spark 4.0 and 4.1, which do not pass the end of the last batch, so this object keeps it.

    After a restart the end is not known until a batch is planned. Then the first batch has all there is.
    """

    _planned: ClusterPosition | None = None

    def __init__(self, options: Options, cluster: Cluster, columns: Sequence[str]) -> None:
        for option in _LIMITS:
            if option in options.stream:
                raise ValueError(f"rocketmq: option {option}: with nameServer, it needs Spark 4.2 or newer")
        super().__init__(options, cluster, columns)

    def initialOffset(self) -> Offset:
        offset = super().initialOffset()
        self._planned = ClusterPosition.from_json(offset)
        return offset

    def latestOffset(self) -> Offset:  # type: ignore[override]
        if self._planned is None:
            return ask(self._cluster, self._queues.whole).to_json()
        return self.next_offset(self._planned.to_json())

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        out = super().partitions(start, end)
        place, last = ClusterPosition.from_json(end), ClusterPosition.from_json(start)
        self._planned = ClusterPosition(last.offsets | place.offsets)
        return out


if HAS_LIMITS:

    class ClusterStreamReader(ClusterStreamBatches, SupportsTriggerAvailableNow):
        """A stream in Spark 4.2 and newer."""

        _target: Offset | None = None

        def getDefaultReadLimit(self) -> ReadLimit:
            """Return the first limit of the options: Spark takes only one. latestOffset() applies all of them."""
            if "max_bytes" in self._limits:
                return ReadMaxBytes(self._limits["max_bytes"])
            return ReadMaxRows(self._limits["max_records"]) if "max_records" in self._limits else ReadAllAvailable()

        def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
            """Return the end of the next batch; `start` if nothing is new."""
            return self.next_offset(start, self._target, limited=not isinstance(limit, ReadAllAvailable))

        def reportLatestOffset(self) -> Offset | None:
            """Return the ends of the queues. The progress of the query shows how far the stream is behind."""
            end = self.end_offset()
            return end if end["offsets"] else None

        def prepareForTriggerAvailableNow(self) -> None:
            self._target = self.end_offset()

else:
    ClusterStreamReader = ClusterStreamReader41  # type: ignore[misc, assignment]
