"""Reads without a data source of Spark: plan_parts() plans the tasks, and mapInArrow or mapPartitions runs them.

So Spark 3.5 reads, too, which does not have data sources in Python. Options, tasks and rows are those of
format("rocketmq").
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql.types import MapType, StructType

from rocketc.spark.data_source_api import SERIALIZER
from rocketc.spark.worker import FastStartup
from rocketc.spark.worker_python import check_worker_python

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

Path = str | os.PathLike[str]


class Parts(FastStartup):
    """The tasks of a read, numbered from 0. plan_parts() makes it; Spark sends it to the workers.

    schema  of the rows
    No text of repr() contains an option.
    """

    def __init__(self, reader: Any, schema: StructType, partitions: Iterable[Any]) -> None:
        self.schema = schema
        self._reader = reader
        self._partitions = [SERIALIZER.dumps(one) for one in partitions]  # a task unpickles only its own

    def __len__(self) -> int:
        return len(self._partitions)

    def __repr__(self) -> str:
        return f"Parts({len(self)} tasks, columns {', '.join(self.schema.names)})"

    def read_batches(self, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        """Read the tasks that rows of a DataFrame name: df.mapInArrow(parts.read_batches, parts.schema).

        batches  their first column has the numbers of tasks, as from spark.range(len(parts))
        Raises ValueError for another number, and the errors of rocketc.scan(), which reach the driver as text.
        """
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._read(number)

    def read_rows(self, numbers: Iterable[int]) -> Iterator[Row]:
        """Read tasks as Python objects: rdd.mapPartitions(parts.read_rows).

        numbers  of tasks, as from sparkContext.parallelize(range(len(parts)), len(parts))
        Times are aware datetimes. Raises as read_batches() does.
        """
        row = Row(*self.schema.names)
        maps = [isinstance(field.dataType, MapType) for field in self.schema]
        for number in numbers:
            for batch in self._read(number):
                columns = [_values(one, is_map) for one, is_map in zip(batch.columns, maps, strict=True)]
                for values in zip(*columns, strict=True):
                    yield row(*values)

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return a DataFrame of all rows, with one task of Spark for each task here."""
        if not self._partitions:
            return spark.createDataFrame([], self.schema)
        numbers = spark.range(0, len(self), 1, len(self))
        return map_in_arrow(numbers, self.read_batches, self.schema)

    def _read(self, number: Any) -> Iterator[pyarrow.RecordBatch]:
        if not isinstance(number, int) or not 0 <= number < len(self):
            raise ValueError(f"rocketc.spark: part {number!r}: the parts are 0 to {len(self) - 1}")
        found: Iterator[pyarrow.RecordBatch] = self._reader.read(SERIALIZER.loads(self._partitions[number]))
        return found


def _values(column: pyarrow.Array, is_map: bool) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return [None if value is None else dict(value) for value in values] if is_map else values


def read_parts(
    spark: SparkSession,
    path: Path | Sequence[Path] | None = None,
    *,
    schema: StructType | str | None = None,
    **options: Any,
) -> DataFrame:
    """Return the messages of a store or of a live cluster as a DataFrame, in Spark 3.5 and newer.

    read_parts(spark, store, subscribe="orders") returns the rows of
    spark.read.format("rocketmq").option("subscribe", "orders").load(store). The difference: the tasks are planned here,
    once. So each query over the DataFrame reads the same offsets of a cluster, and the same files of a store.

    path     a store, a commit log folder, a file, a glob or a URL; several of them; None for a cluster (nameServer)
    schema   some of the columns, as of .schema(): a StructType or a text of DDL
    options  those of a read in docs/howto/spark.md: texts, numbers, Booleans; None: not given. A name with a dot, such
             as storage.key, is given as **{"storage.key": ...}
    Raises ValueError for an option or a schema that is wrong; ImportError if the workers of a local session run a
    Python without rocketc; StoreIOError; for a cluster the errors of its client.
    """
    if isinstance(schema, str):
        schema = spark.createDataFrame([], schema).schema  # StructType.fromDDL() is new in Spark 4.0
    return plan_parts(path, schema=schema, **options).frame(spark)


def plan_parts(path: Path | Sequence[Path] | None = None, *, schema: StructType | None = None, **options: Any) -> Parts:
    """Plan the tasks of a read, for your own mapInArrow or mapPartitions; read_parts() makes a DataFrame of them.

    Arguments and errors: see read_parts().

    >>> import tempfile, rocketc
    >>> root = tempfile.mkdtemp()
    >>> with rocketc.open(root, mapped_file_size_commit_log=1 << 20) as store:
    ...     _ = [store.put("orders", b"%d" % number) for number in range(3)]
    >>> parts = plan_parts(root, columns="queueOffset,body", subscribe="orders")
    >>> parts, [row.body for row in parts.read_rows(range(len(parts)))]
    (Parts(1 tasks, columns queueOffset, body), [b'0', b'1', b'2'])
    """
    from rocketc.spark.source import RocketmqSource  # a slow import

    check_worker_python()
    source = RocketmqSource(option_texts(path, options), writing=False)
    wanted = source.schema()  # an error of the path
    wanted = wanted if schema is None else schema
    reader = source.reader(wanted)
    return Parts(reader, wanted, reader.partitions())


def option_texts(path: Path | Sequence[Path] | None, options: dict[str, Any]) -> dict[str, str]:
    """Return options as Spark passes them to a source. Raises TypeError for a value of another type.

    >>> option_texts("store", {"includeHeaders": True, "minPartitions": 4, "tags": None})
    {'includeHeaders': 'true', 'minPartitions': '4', 'path': 'store'}
    >>> option_texts(["one", "two"], {})
    {'paths': '["one", "two"]'}
    """
    out = {name: _text(name, value) for name, value in options.items() if value is not None}
    if isinstance(path, (str, os.PathLike)):
        out["path"] = os.fspath(path)
    elif path is not None:
        out["paths"] = json.dumps([os.fspath(one) for one in path])
    return out


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        return str(value)
    raise TypeError(f"rocketmq: option {name}: {type(value).__name__}; give a text, a number or a Boolean")


def map_in_arrow(frame: DataFrame, function: Callable[..., Any], schema: StructType | str) -> DataFrame:
    """Return frame.mapInArrow(function, schema) without the warning that Spark does not know the installed pandas."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # pandas is not used here
        return frame.mapInArrow(function, schema)
