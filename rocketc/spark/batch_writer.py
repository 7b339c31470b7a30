"""Writes without a data source of Spark: write_parts() for a DataFrame, batch_writer() for foreachBatch.

So Spark 3.5 writes, too. The tasks and the commit are those of df.write.format("rocketmq"): sink.py, cluster_sink.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from rocketc.spark.data_source_api import SERIALIZER
from rocketc.spark.parts import map_in_arrow, option_texts
from rocketc.spark.worker_python import check_worker_python

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

_DONE = "partition int, done binary"


def write_parts(frame: DataFrame, path: str | os.PathLike[str] | None = None, **options: Any) -> None:
    """Append the rows of a DataFrame to a store or to a live cluster, in Spark 3.5 and newer.

    write_parts(frame, nameServer=..., topic="orders") does what
    frame.write.format("rocketmq").mode("append").options(nameServer=..., topic="orders").save() does.

    path     of the store, as the driver and the workers see it; None for a cluster (nameServer)
    options  those of a write in docs/howto/spark.md: texts, numbers, Booleans; None: not given
    A store gets all rows or none. A cluster gets each row at least once; rows of a task that failed may be there.
    Raises ValueError for an option or a column that is wrong, and for a frame of a stream; ImportError if the workers
    of a local session run a Python without rocketc. Errors of the store and of the cluster are raised before a task
    runs if they are known then; those of a task are raised as Spark's.
    """
    from rocketc.spark.source import RocketmqSource  # a slow import

    check_worker_python()
    source = RocketmqSource(option_texts(path, options), writing=True)
    if frame.isStreaming:
        raise ValueError("rocketmq: this is the frame of a stream: use writeStream.foreachBatch(batch_writer(...))")
    writer = source.writer(frame.schema, overwrite=False)
    done: list[Any] = []
    try:
        rows = map_in_arrow(frame, partial(_write_task, writer=writer), _DONE).collect()
        done = [SERIALIZER.loads(row.done) for row in sorted(rows, key=lambda row: row.partition)]
        writer.commit(done)
    except BaseException:
        writer.abort(done)
        raise


def batch_writer(path: str | os.PathLike[str] | None = None, **options: Any) -> Callable[[DataFrame, int], None]:
    """Return a function for foreachBatch that writes each batch with write_parts().

    Spark runs a batch again if it was killed in it. Then its rows are there twice; with the option idColumn, both
    copies in a cluster have the same id.
    Arguments: see write_parts(). Raises ValueError for a wrong option at once.

    >>> write = batch_writer(nameServer="127.0.0.1:9876", topic="orders", idColumn="id")
    >>> batch_writer(nameServer="127.0.0.1:9876", topik="orders")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ValueError: rocketmq: unknown option topik (did you mean topic?); a write takes nameServer, producerGroup, ...
    """
    from rocketc.spark.options import check_use, parse_options

    check_use(parse_options(option_texts(path, options), writing=True), "write")

    def write(frame: DataFrame, batch_id: int) -> None:
        write_parts(frame, path, **options)

    return write


def _write_task(batches: Iterable[pyarrow.RecordBatch], writer: Any) -> Iterator[pyarrow.RecordBatch]:
    """For mapInArrow: write the rows of a task, and yield its number and what it has to say to the commit."""
    import pyarrow as pa

    done = writer.write(iter(batches))
    context = TaskContext.get()
    number = 0 if context is None else context.partitionId()
    yield pa.record_batch(
        {"partition": pa.array([number], pa.int32()), "done": pa.array([SERIALIZER.dumps(done)], pa.binary())}
    )
