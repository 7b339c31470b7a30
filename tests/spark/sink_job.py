"""A job for test_killed_writes.py: write rows to a cluster, on executors that are killed meanwhile.

sink_job.py NAME_SERVER TOPIC ROWS PARTITIONS FOLDER WAY      WAY: format, or write_parts
"""

import sys
import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession


def slowly(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        for at in range(0, batch.num_rows, 200):
            time.sleep(0.05)
            yield batch.slice(at, 200)


def main(name_server: str, topic: str, rows: str, partitions: str, folder: str, way: str) -> None:
    options = {
        "spark.ui.enabled": "false",
        "spark.local.dir": folder,
        "spark.task.maxFailures": "100",
        "spark.executor.maxNumFailures": "100",
        "spark.excludeOnFailure.enabled": "false",
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "200",  # rows are sent while a task makes more
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    builder = SparkSession.builder.master("local-cluster[2,1,1024]")
    for name, value in options.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    made = spark.range(0, int(rows), 1, int(partitions)).selectExpr("id", "binary(string(id)) body")
    made = made.mapInArrow(slowly, "id long, body binary")
    options = {"nameServer": name_server, "topic": topic, "idColumn": "id"}
    if way == "format":
        made.write.format("rocketmq").mode("append").options(**options).save()
    else:
        from rocketc.spark import write_parts

        write_parts(made, **options)
    print("written", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
