"""A job for test_environments.py: reads a store, copies a topic of a cluster; says how and where, as one line of JSON.

environment_job.py STORE FOLDER NAME_SERVER [NAME=VALUE]...

The topic orders is copied to a topic with the name of FOLDER. The last arguments are settings of the session.
"""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

import rocketc


def place(_: Any = None) -> list[str]:
    return [sys.executable, rocketc.__file__]


def places(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow

    for batch in batches:
        yield pyarrow.record_batch([[one] * len(batch) for one in place()], ["python", "rocketc"])


def main(store: str, folder: str, name_server: str, *given: str) -> None:
    builder = SparkSession.builder
    for one in given:
        builder = builder.config(*one.split("=", 1))
    spark = builder.getOrCreate()
    context = spark.sparkContext
    found: dict[str, Any] = {"master": context.master, "driver": place()}
    found["store"] = spark.read.format("rocketmq").option("columns", "topic").load(store).count()

    copy = os.path.basename(folder)
    orders = {"nameServer": name_server, "subscribe": "orders", "columns": "body"}
    stream = spark.readStream.format("rocketmq").options(startingOffsets="earliest", **orders).load()
    writing = stream.writeStream.format("rocketmq").options(nameServer=name_server, topic=copy)
    writing = writing.option("checkpointLocation", os.path.join(folder, "checkpoint"))
    writing.trigger(availableNow=True).start().awaitTermination()
    copied = rocketc.scan(f"rocketmq://{name_server}/{copy}")
    found["streamed"] = len({message.body for message in copied})  # on a slow machine a send may be repeated

    rows = spark.range(0, 8, 1, 8).mapInArrow(places, "python string, rocketc string").collect()
    rows += context.parallelize(range(8), 8).map(place).collect()
    found["workers"] = sorted({tuple(row) for row in rows})
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
