"""read_parts() and plan_parts(): the rows are those of a scan, in Spark 3.5 and in newer versions."""

import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from support import stores
from support.spark_frames import HAS_DATA_SOURCES, arrow_of, long_with_sources, sort, table_of

import rocketc
from rocketc.client import Producer
from rocketc.spark import (
    SCHEMA,
    Dropped,
    Parts,
    configured_options,
    dropped_accumulator,
    plan_parts,
    read_parts,
    schema,
)
from rocketc.spark.schema import KAFKA

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

Golden = Callable[[str], stores.GoldenStore]
COUNT = 200


@pytest.fixture(scope="module")
def broker() -> Iterator[rocketc.Broker]:
    with rocketc.Broker() as one:
        one.topics.create("orders", 4)
        one.topics.create("empty", 2)
        with Producer("shop", one.name_server) as producer:
            for i in range(COUNT):
                producer.send("orders", b"body %d" % i, tags="web" if i % 2 else "app", keys=f"k{i}")
        yield one


def batches(parts: Parts) -> Any:
    """The rows of all tasks, without Spark."""
    numbers = pa.record_batch({"id": pa.array(range(len(parts)), pa.int64())})
    return pa.Table.from_batches(list(parts.read_batches(iter([numbers]))))


# files


@pytest.mark.some(1)
@pytest.mark.parametrize("name", [name for name in stores.WHOLE if name != "flights-2013-01"])
def test_rows_are_those_of_a_scan(spark: SparkSession, golden: Golden, name: str) -> None:
    store = golden(name).path
    frame = read_parts(spark, store, minPartitions=3, mode="DROPMALFORMED")
    assert frame.schema == SCHEMA and frame.rdd.getNumPartitions() >= 2
    assert sort(table_of(frame)) == sort(rocketc.scan(store, errors="skip").to_arrow())


@long_with_sources
def test_options_are_those_of_the_source(spark: SparkSession, golden: Golden, tmp_path: Path) -> None:
    store = golden("v533-broker").path
    topic = next(iter(rocketc.scan(store))).topic
    few = read_parts(spark, store, Subscribe=topic, schema="queueOffset bigint, body binary")
    expected = rocketc.scan(store, topics=topic, columns=["queueOffset", "body"]).to_arrow()
    assert few.schema == schema(["queueOffset", "body"]) and table_of(few) == expected
    assert read_parts(spark, [store, golden("v533-store").path], columns="queueId").count() == sum(
        rocketc.scan(golden(name).path).count() for name in ("v533-broker", "v533-store")
    )
    kafka = read_parts(spark, store, columns="kafka", includeHeaders=True, subscribe=topic)
    assert kafka.schema == KAFKA
    assert arrow_of(kafka)["value"].to_pylist() == expected["body"].to_pylist()
    none = read_parts(spark, store, startingTimestamp="2100-01-01T00:00Z", columns="topic")
    assert none.schema == schema(["topic"]) and none.collect() == []
    damaged = read_parts(spark, golden("v533-bitrot").path, mode="PERMISSIVE").where("_error IS NOT NULL")
    assert [row._error for row in damaged.collect()] == ["bad_body_crc"]


def test_the_plan_does_not_change(spark: SparkSession, broker: rocketc.Broker, tmp_path: Path) -> None:
    with Producer("shop", broker.name_server) as producer:
        none = read_parts(spark, nameServer=broker.name_server, subscribe="empty", columns="body")
        producer.send("empty", b"one")
        one = read_parts(spark, nameServer=broker.name_server, subscribe="empty", columns="body")
        producer.send("empty", b"two")
    assert (none.count(), one.count()) == (0, 1)
    with rocketc.open(tmp_path, mapped_file_size_commit_log=1 << 20) as store:
        store.put("orders", b"one")
        growing = read_parts(spark, tmp_path, columns="body")
        store.put("orders", b"two")
    assert growing.count() == 2  # of the same file


def test_damage_reaches_the_driver(spark: SparkSession, golden: Golden) -> None:
    frame = read_parts(spark, golden("v533-bitrot").path)
    with pytest.raises(Exception, match=r"CorruptRecordError: .*: bad_body_crc; option mode=DROPMALFORMED skips it"):
        frame.count()


@long_with_sources
def test_dropped_ranges_are_counted(spark: SparkSession, golden: Golden) -> None:
    if HAS_DATA_SOURCES and spark.version < "4.1":
        pytest.skip("Spark 4.0 can't register the source")
    dropped = dropped_accumulator(spark)
    path = golden("v533-bitrot").path
    frame = read_parts(spark, path, mode="DROPMALFORMED", droppedAccumulator=dropped.aid)
    assert frame.count() == rocketc.scan(path, errors="skip").count()
    assert dropped.value == Dropped(1, 326)


# a cluster


def test_a_cluster_is_read(spark: SparkSession, broker: rocketc.Broker) -> None:
    columns = ",".join(name for name in rocketc.COLUMN_NAMES if name not in ("file", "brokerName"))
    frame = read_parts(
        spark, nameServer=broker.name_server, subscribe="orders", minPartitions=3, columns=columns, tags="web"
    )
    assert frame.rdd.getNumPartitions() >= 3
    expected = rocketc.scan(broker.path, topics="orders", tags="web", columns=columns.split(","))
    assert sort(table_of(frame)) == sort(expected.to_arrow())


def test_map_partitions(spark: SparkSession, broker: rocketc.Broker, golden: Golden) -> None:
    for parts, scan in (
        (
            plan_parts(nameServer=broker.name_server, subscribe="orders", schema=schema(["keys", "properties"])),
            rocketc.scan(broker.path, topics="orders"),
        ),
        (plan_parts(golden("v533-broker").path, columns="keys,properties"), rocketc.scan(golden("v533-broker").path)),
    ):
        tasks = spark.sparkContext.parallelize(range(len(parts)), len(parts))
        rows = tasks.mapPartitions(parts.read_rows).collect()
        wanted = [(message.keys, dict(message.properties)) for message in scan]
        assert sorted(rows, key=str) == sorted(wanted, key=str)
        assert list(rows[0].__fields__) == ["keys", "properties"]


def test_secrets_are_in_no_text(spark: SparkSession, broker: rocketc.Broker, capfd: pytest.CaptureFixture[str]) -> None:
    for name, value in (("nameServer", broker.name_server), ("accessKey", "me"), ("secretKey", "hidden")):
        spark.conf.set(f"spark.rocketmq.{name}", value)
    try:
        options = configured_options(spark)
        assert options == {"nameServer": broker.name_server, "accessKey": "me", "secretKey": "hidden"}
        spark.conf.set("spark.rocketmq.secretKye", "hidden")
        with pytest.raises(ValueError, match=r"unknown key spark.rocketmq.secretKye in .*did you mean secretKey"):
            configured_options(spark)
    finally:
        for name in ("nameServer", "accessKey", "secretKey", "secretKye"):
            spark.conf.unset(f"spark.rocketmq.{name}")
    frame = read_parts(spark, subscribe="orders", **options)
    assert frame.count() == COUNT
    frame.explain("extended")
    parts = plan_parts(subscribe="orders", columns="topic,body", **options)
    assert repr(parts) == f"Parts({len(parts)} tasks, columns topic, body)"
    out = capfd.readouterr()
    assert "hidden" not in out.out + out.err + repr(frame) + frame._jdf.queryExecution().toString()


# without Spark


def test_errors_of_options(broker: rocketc.Broker, golden: Golden, tmp_path: Path) -> None:
    store, live = golden("v533-store").path, {"nameServer": broker.name_server}
    for path, options, kind, text in (
        (store, {"subscibe": "t"}, ValueError, "unknown option subscibe (did you mean subscribe?); a read takes path"),
        (store, {"minPartitions": 0}, ValueError, "option minPartitions='0': it must be a whole number, 1 or more"),
        (store, {"tags": ["a"]}, TypeError, "rocketmq: option tags: list; give a text, a number or a Boolean"),
        (store, {"subscribe": "nowhere"}, ValueError, "option subscribe: no topic nowhere in this store"),
        (store, {"maxOffsetsPerTrigger": 5}, ValueError, "only for streams (spark.readStream)"),
        (store, {"mappedFileSizeCommitLog": "1m"}, ValueError, "is for writing"),
        (store, {"schema": schema(["body", "topic"]).add("price", "integer")}, ValueError, "unknown column 'price'"),
        (tmp_path / "no", {}, rocketc.StoreIOError, "No such file"),
        (None, {}, ValueError, "rocketmq: option path: missing"),
        (None, {**live}, ValueError, "option subscribe: missing; with nameServer, give"),
        (None, {**live, "subscribe": "order"}, ValueError, "no topic order in this cluster; did you mean orders?"),
        (
            None,
            {**live, "subscribe": "orders", "schema": schema([]).add("file", "integer")},
            ValueError,
            "file must be",
        ),
    ):
        with pytest.raises(kind, match=re.escape(text)):
            plan_parts(path, **options)


def test_parts_are_numbered(golden: Golden) -> None:
    parts = plan_parts(golden("v533-broker").path, columns="topic,queueOffset", minPartitions=4, subscribe=None)
    again = pickle.loads(pickle.dumps(parts))
    assert batches(again) == batches(parts) and len(again) == len(parts) >= 4
    assert batches(parts).num_rows == rocketc.scan(golden("v533-broker").path).count()
    for number in (len(parts), -1, None):
        with pytest.raises(ValueError, match=f"rocketc.spark: part {number}: the parts are 0 to {len(parts) - 1}"):
            list(parts.read_rows([number]))  # type: ignore[list-item]


@pytest.mark.skipif(HAS_DATA_SOURCES, reason="only for Spark 3.5")
def test_the_source_of_spark_4_is_refused(spark: SparkSession, golden: Golden) -> None:
    text = r'format\("rocketmq"\) needs Spark 4.0 or newer, and this is Spark 3\.5\.\d+: use rocketc.spark.read_parts\('
    for _ in range(2):
        with pytest.raises(ImportError, match=text):
            import pyspark_rocketmq  # noqa: F401
    with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
        spark.read.format("rocketmq").load(str(golden("v533-store").path))
