"""spark.readStream in Spark: growth, restarts, kills, progress. See test_stream.py for everything that does not need
Spark.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import psutil
import pyarrow.parquet as parquet
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from support.command import GrowingLog
from support.spark_frames import needs_sources

from rocketc.spark.stream import HAS_LIMITS

pytestmark = [pytest.mark.spark, needs_sources]


class Stream:
    """A query from a store to Parquet files, with a checkpoint, which can be started repeatedly."""

    def __init__(self, spark: SparkSession, path: Path | str, folder: Path, **options: str) -> None:
        self.spark = spark
        self.path = path
        self.folder = folder
        self.options = {"startingOffsets": "earliest", **options}

    def start(self, **trigger: Any) -> StreamingQuery:
        read = self.spark.readStream.format("rocketmq").options(columns="physicalOffset,body", **self.options)
        write = read.load(str(self.path)).writeStream.format("parquet").option("path", str(self.folder / "sink"))
        return write.option("checkpointLocation", str(self.folder / "checkpoint")).trigger(**trigger).start()

    def run(self) -> StreamingQuery:
        """Read everything that is available now."""
        query = self.start(availableNow=True)
        query.awaitTermination()
        return query

    def rows(self) -> list[int]:
        return rows_of(self.folder / "sink")


def rows_of(sink: Path) -> list[int]:
    """The rows that Spark reads in a sink: files named in its log; other files are of failed batches."""
    paths = set()
    for log in (sink / "_spark_metadata").glob("[0-9]*"):
        paths |= {json.loads(line)["path"] for line in log.read_text().splitlines()[1:]}
    tables = [parquet.read_table(unquote(urlparse(path).path), columns=["physicalOffset"]) for path in paths]
    return sorted(row for table in tables for row in table["physicalOffset"].to_pylist())


@pytest.fixture
def log(tmp_path: Path) -> GrowingLog:
    return GrowingLog(tmp_path / "store" / "commitlog")


@pytest.fixture
def stopping(spark: SparkSession) -> Iterator[None]:
    yield
    for query in spark.streams.active:
        query.stop()


def append(log: GrowingLog, count: int) -> list[int]:
    return [log.append("t", b"x" * 100) for _ in range(count)]


def wait_for(what: Callable[[], Any], seconds: float = 60) -> Any:
    until = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < until
        time.sleep(0.02)
    return found


def test_growth_limits_restart_and_loss(spark: SparkSession, log: GrowingLog, tmp_path: Path) -> None:
    wanted = append(log, 50)
    limits = {"maxOffsetsPerTrigger": "20"} if HAS_LIMITS else {}
    stream = Stream(spark, log.folder.parent, tmp_path, **limits)
    query = stream.run()
    done = [progress for progress in query.recentProgress if progress["numInputRows"]]
    assert [progress["numInputRows"] for progress in done] == ([20, 20, 10] if HAS_LIMITS else [50])
    [source] = done[0]["sources"]
    if HAS_LIMITS:
        assert json.loads(source["endOffset"])["physicalOffset"] == wanted[20]
        assert json.loads(source["latestOffset"])["physicalOffset"] == log.end
    assert stream.rows() == wanted
    wanted += append(log, 30)
    log.file_at(0).unlink()  # the file was read
    stream.run()
    assert stream.rows() == wanted
    [lost, *_] = append(log, 60)
    log.file_at(lost).unlink()
    with pytest.raises(PySparkException, match=rf"DataLossError: rocketmq: .* offsets {lost} to \d+ are lost: .*false"):
        stream.run()


def test_a_store_that_appears_while_the_query_runs(
    spark: SparkSession, log: GrowingLog, tmp_path: Path, stopping: None
) -> None:
    later = tmp_path / "later"
    stream = Stream(spark, later, tmp_path)
    query = stream.start(processingTime="0 seconds")
    wait_for(lambda: query.status["message"] == "Waiting for data to arrive" or query.exception())
    wanted = append(log, 10)
    log.folder.parent.rename(later)
    log.folder = later / "commitlog"
    wait_for(lambda: (tmp_path / "sink" / "_spark_metadata" / "0").exists() or query.exception())
    wanted += append(log, 10)
    query.processAllAvailable()
    log.write(b"\0\0\0\x77torn")
    query.processAllAvailable()
    assert query.exception() is None and stream.rows() == wanted


def test_damage_and_wrong_options_fail_the_query(spark: SparkSession, log: GrowingLog, tmp_path: Path) -> None:
    wanted = append(log, 10)
    with log.file_at(0).open("r+b") as file:
        file.seek(wanted[4] + 4)
        file.write(b"\0")
    stream = Stream(spark, log.folder, tmp_path)
    with pytest.raises(PySparkException, match=f"damage at physical offset {wanted[4]}: bad_magic; option mode="):
        stream.run()
    stream.options["mode"] = "DROPMALFORMED"
    stream.run()
    del wanted[4]
    assert stream.rows() == wanted
    with pytest.raises(PySparkException, match="hdfs://there/x"):
        Stream(spark, "hdfs://there/x", tmp_path).run()
    batch = spark.read.format("rocketmq").option("maxBytesPerTrigger", "1m").load(str(log.folder))
    with pytest.raises(PySparkException, match="option maxBytesPerTrigger: only for streams"):
        batch.collect()


# Kills


@pytest.mark.long
def test_a_worker_that_is_killed(spark: SparkSession, log: GrowingLog, tmp_path: Path, stopping: None) -> None:
    wanted = append(log, 300)
    stream = Stream(spark, log.folder, tmp_path, maxBytesPerPartition="300")
    query = stream.start(processingTime="0 seconds")
    wait_for(lambda: count(tmp_path / "checkpoint" / "offsets"))
    java = psutil.Process(spark.sparkContext._gateway.proc.pid)
    while query.isActive:
        with suppress(psutil.NoSuchProcess):  # workers start and end
            for daemon in java.children():
                for worker in daemon.children():
                    worker.kill()
        time.sleep(0.05)
    assert query.exception() is not None and count(tmp_path / "checkpoint" / "commits") == 0
    wanted += append(log, 10)
    stream.options["maxBytesPerPartition"] = "1m"
    stream.run()
    assert stream.rows() == wanted


DRIVER = """if True:
    import sys
    from pyspark.sql import SparkSession

    store, folder, limit = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for name in ("spark.driver.host", "spark.driver.bindAddress"):
        builder = builder.config(name, "127.0.0.1")
    builder = builder.config("spark.sql.streaming.pollingDelay", "10ms").config("spark.local.dir", folder)
    spark = builder.getOrCreate()
    if " " in sys.executable:
        import pyspark_rocketmq
        spark.dataSource.register(pyspark_rocketmq.DefaultSource)
    read = spark.readStream.format("rocketmq").option("startingOffsets", "earliest")
    read = read.option("columns", "physicalOffset,body").option("maxOffsetsPerTrigger", limit)
    write = read.option("maxBytesPerPartition", "3000").load(store).writeStream.format("parquet")
    write = write.option("path", folder + "/sink").option("checkpointLocation", folder + "/checkpoint")
    query = write.trigger(processingTime="0 seconds").start()
    sys.stdin.read()
    query.processAllAvailable()
    query.stop()
    print("done")
"""


class Driver:
    """A separate driver process, with its JVM and its workers."""

    def __init__(self, log: GrowingLog, folder: Path, limit: int) -> None:
        command = [sys.executable, "-c", DRIVER, str(log.folder), str(folder), str(limit)]
        env = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        with (folder / "stderr").open("ab") as stderr:
            self.process = subprocess.Popen(
                command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
            )

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def kill(self) -> None:
        family = [*self.family(), psutil.Process(self.process.pid)]
        for one in family:
            with suppress(psutil.NoSuchProcess):  # workers start and end
                one.kill()
        self.process.communicate()
        psutil.wait_procs(family, 30)

    def end(self) -> str:
        """Wait until everything is read; return the output."""
        return self.process.communicate(timeout=400)[0]


def has(folder: Path, number: int) -> bool:
    return count(folder) >= number


def count(folder: Path) -> int:
    return len(list(folder.glob("[0-9]*"))) if folder.is_dir() else 0


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_driver_that_is_killed(log: GrowingLog, tmp_path: Path) -> None:
    offsets, commits = tmp_path / "checkpoint" / "offsets", tmp_path / "checkpoint" / "commits"
    wanted = append(log, 60)
    for kill in range(3):
        driver = Driver(log, tmp_path, 20)
        try:
            enough = count(commits) + 2
            for _ in range(10):  # the log grows while it is read
                wanted += append(log, 30)
                time.sleep(0.02)
            wait_for(partial(has, commits, enough), 120)
            if kill % 2:
                wait_for(lambda: count(offsets) > count(commits), 120)  # in the middle of a batch
            else:
                time.sleep(0.15 * kill)
        finally:
            driver.kill()
    driver = Driver(log, tmp_path, 1000)
    assert driver.end() == "done\n"
    assert rows_of(tmp_path / "sink") == wanted
