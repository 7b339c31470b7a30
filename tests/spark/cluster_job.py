"""A job for test_cluster.py: all uses of a store in Spark, and where each ran, as one line of JSON.

spark-submit cluster_job.py STORE FOLDER       FOLDER has a store `damaged`; output is written there, too
SPARK_REMOTE=sc://... python cluster_job.py STORE FOLDER [ENVIRONMENT]    ENVIRONMENT: packed, for functions
"""

import json
import os
import sys
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")

import rocketc  # noqa: E402
from rocketc.spark import SCHEMA, decode_batches, decode_partition, dropped_accumulator, read_parts, splits  # noqa: E402
from rocketc.spark.archive import archive  # noqa: E402
from rocketc.spark.data_source_api import HAS_DATA_SOURCES  # noqa: E402


def where(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow

    for batch in batches:
        places = [[sys.executable] * len(batch), [rocketc.__file__] * len(batch)]
        yield pyarrow.record_batch(places, ["python", "rocketc"])


def functions(spark: SparkSession, store: str) -> dict[str, Any]:
    """User functions in Spark's workers. They need rocketc there, and nothing of the driver's Python."""
    rows = spark.range(0, 8, 1, 8).mapInArrow(where, "python string, rocketc string").distinct().collect()
    files = spark.createDataFrame(splits(store, 4 << 20))
    counted = files.mapInArrow(decode_batches, SCHEMA).count()
    parts = read_parts(spark, store, columns="topic", minPartitions=4).count()
    return {"driver": rocketc.__file__, "workers": sorted(map(list, rows)), "mapInArrow": counted, "parts": parts}


def sources(spark: SparkSession, store: str, folder: str) -> dict[str, Any]:
    found = {}
    read = spark.read.format("rocketmq").option("minPartitions", 4)
    found["source"] = read.load(store).count()
    few = read.option("tags", "HA").load(store)
    copy = os.path.join(folder, "copy")
    few.write.format("rocketmq").mode("append").option("mappedFileSizeCommitLog", "4m").save(copy)
    found["written"] = sum(1 for _ in rocketc.scan(copy))
    found["archived"] = archive(spark, store, os.path.join(folder, "lake")).messages
    stream = spark.readStream.format("rocketmq").options(startingOffsets="earliest", columns="topic,body")
    write = stream.load(store).writeStream.option("checkpointLocation", os.path.join(folder, "checkpoint"))
    write.trigger(availableNow=True).start(os.path.join(folder, "sink")).awaitTermination()
    found["streamed"] = spark.read.parquet(os.path.join(folder, "sink")).count()
    return found


def context(spark: SparkSession, store: str, folder: str) -> dict[str, Any]:
    """The functions that Spark Connect does not have."""
    found = {"master": spark.sparkContext.master}
    parts = spark.sparkContext.parallelize(splits(store, 4 << 20), 4)
    found["mapPartitions"] = parts.mapPartitions(partial(decode_partition, as_="row")).count()
    try:
        dropped = dropped_accumulator(spark)
    except NotImplementedError:  # Spark 4.0
        return found
    options = {"mode": "DROPMALFORMED", "droppedAccumulator": dropped.aid}
    damaged = os.path.join(folder, "damaged")
    if HAS_DATA_SOURCES:
        found["kept"] = spark.read.format("rocketmq").options(**options).load(damaged).count()
    else:
        found["kept"] = read_parts(spark, damaged, **options).count()
    found["dropped"] = dropped.value.ranges
    return found


def main(store: str, folder: str, environment: str | None = None) -> None:
    spark = SparkSession.builder.getOrCreate()
    if environment:
        spark.addArtifact(environment + "#environment", archive=True)
        spark.conf.set("spark.sql.execution.pyspark.python", "environment/bin/python")
    found = functions(spark, store)
    if not environment and HAS_DATA_SOURCES:
        found |= sources(spark, store, folder)
    if "SPARK_REMOTE" not in os.environ:
        found |= context(spark, store, folder)
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
