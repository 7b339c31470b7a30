"""PartStream: follow a store or a live cluster in a loop of the program, for Spark 3.5."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from rocketc.files.paths import local_of
from rocketc.files.remote import is_url, shown
from rocketc.spark.checkpoint import Checkpoint, Offset
from rocketc.spark.parts import Parts, option_texts
from rocketc.spark.worker_python import check_worker_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class PartStream:
    """The messages of a store or a live cluster in batches, each of which a function gets, as from foreachBatch.

    Before a batch is processed, its end is written to the checkpoint; after it, its number. No message is left out. If
    the program ends in a batch, the next run calls the function again, with the same number and the same rows. No other
    batch is repeated.

    checkpoint  a local folder for the offsets; it is created. A query of Spark 4 with the same source and options can
                continue with it as its checkpointLocation
    path        the store; None for a cluster (nameServer)
    schema      as in read_parts()
    options     those of a stream in docs/howto/spark.md: texts, numbers, Booleans; None: not given. The limits, such as
                maxOffsetsPerTrigger, work in all versions of Spark
    Raises ValueError for an option or a schema that is wrong, and ImportError if the workers of a local session run a
    Python without rocketc.
    """

    def __init__(
        self,
        spark: SparkSession,
        checkpoint: str | os.PathLike[str],
        path: str | os.PathLike[str] | None = None,
        *,
        schema: StructType | str | None = None,
        **options: Any,
    ) -> None:
        from rocketc.spark.source import RocketmqSource  # a slow import

        check_worker_python()
        if isinstance(schema, str):
            schema = spark.createDataFrame([], schema).schema
        source = RocketmqSource(option_texts(path, options), writing=False)
        self._spark, self._checkpoint = spark, _local_folder(os.fspath(checkpoint))
        self._schema = source.schema() if schema is None else schema
        self._batches = source.stream_batches(self._schema)
        self._stopping = threading.Event()

    def run(
        self, function: Callable[[DataFrame, int], Any], *, available_now: bool = False, interval: float = 1.0
    ) -> int:
        """Process batches, until stop() is called or an error is raised; return how many.

        function       called with the DataFrame and the number of a batch, in this thread
        available_now  end with the messages that are there now
        interval       seconds to wait if nothing is new
        Raises the errors of the function, of the source, and of the tasks; StoreLockedError if another run uses the
        checkpoint; ValueError for the checkpoint of another source; DataLossError. The next run repeats the batch.
        """
        kept = Checkpoint(self._checkpoint)
        try:
            return self._run(kept, function, available_now, interval)
        finally:
            self._stopping.clear()
            kept.close()

    def stop(self) -> None:
        """Let run() return after its batch; for another thread, a signal handler, or the function."""
        self._stopping.set()

    def _run(
        self, kept: Checkpoint, function: Callable[[DataFrame, int], Any], available_now: bool, interval: float
    ) -> int:
        number, at, is_done = kept.last()
        count = 0
        if at is None:
            at = kept.begin()
            if at is None:
                at = self._batches.initialOffset()
                kept.keep_begin(at)  # a stream with startingOffsets=latest begins there, whenever a message comes
        elif not is_done:
            start = kept.begin() or self._batches.initialOffset() if number == 0 else kept.end_of(number - 1)
            self._process(kept, number, start, at, function)
            count += 1
        upto = self._batches.end_offset() if available_now else None
        while not self._stopping.is_set():
            end = self._batches.next_offset(at, upto)
            if end == at:
                if available_now:
                    break
                self._stopping.wait(interval)
                continue
            number += 1
            kept.plan(number, end)
            self._process(kept, number, at, end, function)
            at = end
            count += 1
        return count

    def _process(
        self, kept: Checkpoint, number: int, start: Offset, end: Offset, function: Callable[[DataFrame, int], Any]
    ) -> None:
        tasks = self._batches.partitions(start, end)
        function(Parts(self._batches, self._schema, tasks).frame(self._spark), number)
        kept.commit(number)


def _local_folder(path: str) -> str:
    """Return the path of a checkpoint. Raises ValueError for the URL of another file system.

    >>> _local_folder("file:/data/checkpoint")
    '/data/checkpoint'
    >>> _local_folder("hdfs://server/checkpoint")
    Traceback (most recent call last):
        ...
    ValueError: rocketmq: checkpoint 'hdfs://server/checkpoint': it must be a local folder
    """
    path = local_of(path)
    if is_url(path):
        raise ValueError(f"rocketmq: checkpoint {shown(path)!r}: it must be a local folder")
    return path
