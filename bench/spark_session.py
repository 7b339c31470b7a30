"""Spark on two cores, for benches: its session, and what they do with a frame."""

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

from common import Bench, make_sum

HERE = Path(__file__).resolve().parent
CORES = 2


def temporary(bench: Bench, name: str) -> Path:
    """A folder in the data folder that is removed at the end."""
    Path(bench.args.data).mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=bench.args.data))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def start_spark(bench: Bench):
    """Start Spark on two cores. Its workers run this Python and can import the peer; its stderr goes to a file."""
    from pyspark.sql import SparkSession
    from spark_peer import MemorySource

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    folder = temporary(bench, "spark")
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("bench")
    for name, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.local.dir": str(folder),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(name, value)
    for setting in os.environ.get("ROCKETC_BENCH_SPARK", "").split():
        builder = builder.config(*setting.split("=", 1))
    kept = os.dup(2)
    with open(Path(folder, "stderr"), "wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        spark = builder.getOrCreate()
    finally:
        os.dup2(kept, 2)
        os.close(kept)
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(MemorySource)
    if " " in sys.executable:  # then Spark does not search for data sources
        from pyspark_rocketmq import DefaultSource

        spark.dataSource.register(DefaultSource)
    return spark


def drop_all(frame):
    """Send every row to the JVM and discard it."""
    frame.write.format("noop").mode("overwrite").save()


def sum_frame(frame):
    """Compute common.sum_batches() with Spark."""
    numbers = "queueId + queueOffset + physicalOffset + unix_millis(bornTimestamp) + unix_millis(storeTimestamp)"
    records, total = frame.selectExpr("count(*)", f"sum({numbers} + length(topic) + length(body))").first()
    return make_sum(records, total)
