"""Spark: decode commit log files in Spark's Python workers (extra `spark`).

    sc.parallelize(splits(store)).mapPartitions(decode_partition)             # an RDD of Row, Message, dict, batch
    spark.createDataFrame(splits(store)).mapInArrow(decode_batches, SCHEMA)   # a DataFrame
    spark.read.format("rocketmq").load(store)                                 # the same; docs/howto/spark.md
    spark.read.format("rocketmq").options(nameServer=..., subscribe=...).load()                # a live cluster
    read_parts(spark, store); read_parts(spark, nameServer=..., subscribe=...)                 # the same in Spark 3.5

Workers need rocketc too. They run `python3` unless PYSPARK_PYTHON or spark.pyspark.python is set. `import rocketc` sets
PYSPARK_PYTHON if it comes before the session; see worker_python.py for what the driver checks.

Knows: Spark's data sources, options, schemas and tasks; how a log, or the queues of a cluster, are divided among tasks.
Does not know: the format of records and files, and the protocol. For these it uses read, files, exports and client.
Others use: the names below, `archive`, and `source` (by Spark, for format("rocketmq")).
"""

try:
    import pyspark  # noqa: F401
except ImportError:
    raise ImportError("rocketc.spark needs pyspark: pip install 'rocketc[spark]'") from None

from rocketc.spark.batch_writer import batch_writer, write_parts
from rocketc.spark.configuration import configured_options
from rocketc.spark.decode import decode_batches, decode_partition
from rocketc.spark.dropped import Dropped
from rocketc.spark.dropped_accumulator import dropped_accumulator
from rocketc.spark.part_stream import PartStream
from rocketc.spark.partitions import Split, splits
from rocketc.spark.parts import Parts, plan_parts, read_parts
from rocketc.spark.schema import SCHEMA, schema

__all__ = [
    "SCHEMA",
    "Dropped",
    "PartStream",
    "Parts",
    "Split",
    "batch_writer",
    "configured_options",
    "decode_batches",
    "decode_partition",
    "dropped_accumulator",
    "plan_parts",
    "read_parts",
    "schema",
    "splits",
    "write_parts",
]
