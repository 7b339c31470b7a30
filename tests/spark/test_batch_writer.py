"""write_parts() and batch_writer(): rows go into stores and clusters as with df.write, in Spark 3.5, too."""

import re
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from support.spark_frames import long_with_sources

import rocketc
from rocketc.spark import batch_writer, read_parts, write_parts
from rocketc.spark.sink import FOLDER

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]
SMALL = {"mappedFileSizeCommitLog": "1m"}


@pytest.fixture(scope="module")
def broker() -> Iterator[rocketc.Broker]:
    with rocketc.Broker(max_message_size=1 << 20) as one:
        yield one


def numbered(spark: SparkSession, count: int, tasks: int = 3) -> DataFrame:
    made = spark.range(0, count, 1, tasks)
    return made.selectExpr("id", "'t' topic", "binary(string(id)) body", "map('n', string(id)) properties")


def sent(broker: rocketc.Broker, topic: str) -> list[Any]:
    return list(rocketc.scan(f"rocketmq://{broker.name_server}/{topic}"))


def test_a_store_gets_the_rows_in_the_order_of_the_tasks(spark: SparkSession, tmp_path: Path) -> None:
    when = datetime(2026, 1, 31, 9, 30, tzinfo=timezone.utc)
    rows = numbered(spark, 300).selectExpr("*", f"timestamp_seconds({int(when.timestamp())}) bornTimestamp")
    assert write_parts(rows.drop("id"), tmp_path / "store", **SMALL) is None
    found = list(rocketc.scan(tmp_path / "store"))
    assert [m.body for m in found] == [b"%d" % i for i in range(300)]
    assert found[7].properties == {"n": "7"} and found[7].born_time == when
    write_parts(rows.where("id > 297"), tmp_path / "store", idColumn="id", **SMALL)
    assert [m.properties["UNIQ_KEY"] for m in rocketc.scan(tmp_path / "store", keys=["298", "299"])] == ["298", "299"]
    write_parts(rows.where("id < 0").drop("id"), tmp_path / "none", **SMALL)
    assert not (tmp_path / "none").exists() and not (tmp_path / "store" / FOLDER).exists()


@long_with_sources
def test_a_write_that_fails_leaves_the_store_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    write_parts(numbered(spark, 3).drop("id"), tmp_path / "store", **SMALL)
    null = numbered(spark, 300).selectExpr("topic", "case when id < 250 then body end body")
    with pytest.raises(Exception, match=r"IllegalMessageError: rocketmq: body is null in row 50 of a partition"):
        write_parts(null, tmp_path / "store", **SMALL)
    long = numbered(spark, 300).selectExpr(
        "case when id = 250 then repeat('t', 300) when 1 = 1 then topic end topic", "body"
    )
    with pytest.raises(rocketc.IllegalMessageError, match=r"^rocketmq: message 250 of the write: topic"):
        write_parts(long, tmp_path / "store", **SMALL)
    assert rocketc.scan(tmp_path / "store").count() == 3 and not (tmp_path / "store" / FOLDER).exists()


def test_a_cluster_gets_the_rows(spark: SparkSession, broker: rocketc.Broker) -> None:
    rows = numbered(spark, 500).drop("topic")
    write_parts(rows, nameServer=broker.name_server, topic="rows", idColumn="id", producerGroup=None)
    found = sent(broker, "rows")
    assert sorted(int(m.body) for m in found) == list(range(500))
    assert all(m.properties["UNIQ_KEY"] == m.properties["n"] == m.body.decode() for m in found)
    back = read_parts(spark, nameServer=broker.name_server, subscribe="rows")
    write_parts(back.drop("queueId"), nameServer=broker.name_server, topic="again", idColumn="msgId")
    assert sorted(m.body for m in sent(broker, "again")) == sorted(m.body for m in found)
    large = rows.selectExpr("id", "case when id = 499 then binary(repeat('x', 2000000)) when 1 = 1 then body end body")
    with pytest.raises(Exception, match=r"rocketmq: row \d+ \(id=499\) of a partition: not stored: .*"):
        write_parts(large, nameServer=broker.name_server, topic="rows", idColumn="id")


@long_with_sources
def test_each_batch_of_a_stream_is_written(spark: SparkSession, broker: rocketc.Broker, tmp_path: Path) -> None:
    for _ in range(2):
        numbered(spark, 50, 1).write.mode("append").parquet(str(tmp_path / "source"))
    stream = spark.readStream.schema(numbered(spark, 0).schema).option("maxFilesPerTrigger", "1")
    frame = stream.parquet(str(tmp_path / "source"))
    to_cluster = batch_writer(nameServer=broker.name_server, topic="stream", idColumn="id")
    to_store = batch_writer(tmp_path / "store", **SMALL)
    seen: list[int] = []

    def both(batch: DataFrame, number: int) -> None:
        to_cluster(batch.drop("topic"), number)
        to_store(batch.drop("id"), number)
        seen.append(number)

    query = frame.writeStream.foreachBatch(both).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert seen == [0, 1]
    for found in (sent(broker, "stream"), list(rocketc.scan(tmp_path / "store"))):
        assert sorted(int(m.body) for m in found) == sorted([*range(50)] * 2)
    with pytest.raises(ValueError, match=r"^rocketmq: this is the frame of a stream: use writeStream.foreachBatch\("):
        write_parts(frame.drop("id"), tmp_path / "store")


def test_errors_before_a_task_runs(spark: SparkSession, broker: rocketc.Broker, tmp_path: Path) -> None:
    live = {"nameServer": broker.name_server}
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    rows = numbered(spark, 3)
    for frame, path, options, text in (
        (rows, tmp_path / "store", {}, "unknown column 'id': drop it; a message has topic"),
        (rows.drop("body"), tmp_path / "store", {"idColumn": "id"}, "column body is missing"),
        (rows.drop("id"), tmp_path / "taken", {}, "not a store, and not empty"),
        (
            rows.drop("id"),
            tmp_path / "store",
            {"subscribe": "t"},
            "option subscribe is for reading; a write takes",
        ),
        (rows.drop("id"), tmp_path / "store", {"mappedFileSize": "1m"}, "did you mean mappedFileSizeCommitLog?"),
        (rows.drop("id"), None, {}, "option path: missing"),
        (rows.drop("id"), None, {**live, "topic": "a/b"}, "option topic='a/b'"),
        (rows.drop("topic"), None, live, "unknown column 'id'"),
        (rows.drop("id"), None, {"nameServer": "127.0.0.1:1"}, "127.0.0.1:1: the cluster is not reached"),
    ):
        with pytest.raises((ValueError, rocketc.RocketcError), match=re.escape(text)):
            write_parts(frame, path, **options)
    for options in ({"topik": "x", **live}, {"subscribe": "x", **live}):
        with pytest.raises(ValueError, match=r"rocketmq: (unknown )?option"):
            batch_writer(**options)
    assert not (tmp_path / "store").exists()
