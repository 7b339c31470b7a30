"""Golden stores in Spark: the rows are those that rocketc.scan() and RocketMQ read."""

import hashlib
import ipaddress
import time
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import DataFrame, SparkSession
from support import stores
from support.spark_frames import arrow_of, ddl, sort, table_of

import rocketc
from rocketc.spark import SCHEMA, decode_batches, decode_partition, schema, splits

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

Golden = Callable[[str], stores.GoldenStore]

NAMES = """topic queue_id broker_name queue_offset phy_offset store_time born_time keys tags body properties msg_id flag
    sys_flag reconsume_times body_crc born_host store_host prepared_transaction_offset store_size file"""
VALUES = attrgetter(*NAMES.split())


def decode_rdd(spark: SparkSession, store: stores.GoldenStore, source: str, **options: Any) -> Any:
    """Read the store with mapPartitions."""
    sc = spark.sparkContext
    if source == "splits":
        items = sc.parallelize(splits(store.path, 100_000), 2)
    elif source == "paths":
        items = sc.parallelize([str(path) for path in store.log_files], 2)
    else:
        items = sc.binaryFiles(str(store.path / "commitlog"))
    return items.mapPartitions(partial(decode_partition, **options))


def decode_df(spark: SparkSession, store: stores.GoldenStore, source: str, **options: Any) -> DataFrame:
    """Read the store with mapInArrow."""
    if source == "splits":
        items = spark.createDataFrame(splits(store.path, 1_000_000))
    elif source == "paths":
        items = spark.createDataFrame([(str(path),) for path in store.log_files], "path string")
    else:
        items = spark.read.format("binaryFile").load(str(store.path / "commitlog"))
    return items.mapInArrow(partial(decode_batches, **options), schema(options.get("columns")))


def in_order(messages: list[rocketc.Message]) -> list[rocketc.Message]:
    """binaryFiles groups files in any order."""
    return sorted(messages, key=lambda m: (m.phy_offset, m.queue_offset))


def in_order_rows(rdd: Any) -> Any:
    return sorted(rdd.collect(), key=lambda row: (row.physicalOffset, row.queueOffset))


# What RocketMQ read


def host(text: str) -> tuple[Any, int]:
    address, port = text.rsplit(":", 1)
    return ipaddress.ip_address(address.strip("[]")), int(port)


def expected_of(row: Any, keys: Any) -> dict[str, Any]:
    """A row with the field names of expected.jsonl."""
    body = bytes(row["body"])
    out = {
        **{name: row[name] for name in ("topic", "queueId", "queueOffset", "flag", "sysFlag", "reconsumeTimes")},
        **{name: row[name] for name in ("preparedTransactionOffset", "bodyCRC", "msgId")},
        "phyOffset": row["physicalOffset"],
        "size": row["storeSize"],
        "storeTimestamp": round(row["storeTimestamp"].timestamp() * 1000),
        "bornTimestamp": round(row["bornTimestamp"].timestamp() * 1000),
        "storeHost": host(row["storeHost"]),
        "bornHost": host(row["bornHost"]),
        "properties": dict(row["properties"]),
        "plainBodyLen": len(body),
        "plainBodySha256": hashlib.sha256(body).hexdigest(),
    }
    assert row["keys"] == out["properties"].get("KEYS") and row["tags"] == out["properties"].get("TAGS")
    return {name: value for name, value in out.items() if name in keys}


@pytest.mark.some(4)
@pytest.mark.parametrize("name", stores.WHOLE)
@pytest.mark.parametrize("way", ["mapPartitions", "mapInArrow"])
def test_every_record_is_what_rocketmq_reads(spark: SparkSession, golden: Golden, name: str, way: str) -> None:
    store = golden(name)
    if way == "mapPartitions":
        rows = decode_rdd(spark, store, "splits", unwrap=False).collect()
    else:
        rows = table_of(decode_df(spark, store, "splits", unwrap=False)).to_pylist()
    assert len(rows) == len(store.messages)
    for row, wanted in zip(rows, store.messages, strict=True):
        wanted = {**wanted, "storeHost": host(wanted["storeHost"]), "bornHost": host(wanted["bornHost"])}
        wanted = {
            key: value for key, value in wanted.items() if key not in ("magic", "body", "storedBodyLen", "bodySha256")
        }
        del wanted["propertiesLen"]
        assert expected_of(row, wanted.keys()) == wanted


# What rocketc.scan() reads


@pytest.mark.some(1)
@pytest.mark.parametrize("name", stores.some(stores.NAMES))
def test_map_partitions_gives_what_a_scan_gives(spark: SparkSession, golden: Golden, name: str) -> None:
    store = golden(name)
    scan = rocketc.scan(store.path, errors="skip")
    whole = in_order(list(scan))
    for source in ["splits", "paths", "binaryFiles"]:
        decoded = partial(decode_rdd, spark, store, source, errors="skip")
        if name == "flights-2013-01" and source != "splits":  # large
            assert decoded(as_="message", columns=["topic"]).count() == len(whole)
            continue
        assert [tuple(row) for row in in_order_rows(decoded())] == [VALUES(m) for m in whole], source
        if name == "flights-2013-01":
            continue
        messages = in_order(decoded(as_="message").collect())
        assert messages == whole and [m.file for m in messages] == [m.file for m in whole], source
        dicts = sorted(decoded(as_="dict").collect(), key=lambda d: (d["physicalOffset"], d["queueOffset"]))
        assert dicts == [m.to_dict() for m in whole], source
        batches = decoded(as_="batch").collect()
        assert sort(pa.Table.from_batches(batches)) == sort(scan.to_arrow()), source


@pytest.mark.some(2)
@pytest.mark.parametrize("name", stores.some(stores.NAMES))
def test_map_in_arrow_gives_what_a_scan_gives(spark: SparkSession, golden: Golden, name: str) -> None:
    store = golden(name)
    wanted = sort(rocketc.scan(store.path, errors="skip").to_arrow())
    for source in ("splits", "paths", "binaryFiles"):
        df = decode_df(spark, store, source, errors="skip")
        assert df.schema == SCHEMA
        assert sort(table_of(df)) == wanted, source


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu"])
def test_instants_do_not_depend_on_the_session_time_zone(spark: SparkSession, golden: Golden, zone: str) -> None:
    store = golden("v533-store")
    wanted = [m.store_timestamp for m in rocketc.scan(store.path)]
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        rows = decode_rdd(spark, store, "splits")
        for df in (decode_df(spark, store, "splits"), spark.createDataFrame(rows, SCHEMA)):
            got = df.selectExpr("unix_millis(storeTimestamp) ms", "physicalOffset").orderBy("physicalOffset").collect()
            assert [row.ms for row in got] == wanted
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_rows_make_a_data_frame(spark: SparkSession, golden: Golden) -> None:
    store = golden("v533-broker")
    df = spark.createDataFrame(decode_rdd(spark, store, "splits"), SCHEMA)
    got, wanted = table_of(df).to_pylist(), rocketc.scan(store.path).to_arrow().to_pylist()
    for row in got + wanted:
        row["properties"] = dict(row["properties"])  # Spark does not keep the order of a dict's items
    assert got == wanted


@pytest.mark.some(2)
@pytest.mark.parametrize("large", ["true", "false"])
@pytest.mark.parametrize("rows", ["1", "10000"])
def test_settings_of_spark_that_change_its_batches(spark: SparkSession, golden: Golden, large: str, rows: str) -> None:
    settings = {
        "spark.sql.execution.arrow.useLargeVarTypes": large,
        "spark.sql.execution.arrow.maxRecordsPerBatch": rows,
    }
    before = {name: spark.conf.get(name, None) for name in settings}
    store = golden("v533-broker")
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        for source in ("splits", "binaryFiles"):
            df = decode_df(spark, store, source)
            assert sort(df_rows(df)) == sort(rocketc.scan(store.path).to_arrow())
    finally:
        for name, value in before.items():
            if value is None:  # Spark 3.5 does not have the first one
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def df_rows(df: DataFrame) -> pa.Table:
    """Like table_of(), for any Arrow types of the driver."""
    return arrow_of(df).cast(pa.schema(rocketc.decode(b"")))


# Options


def test_options_are_those_of_a_scan(spark: SparkSession, golden: Golden) -> None:
    store = golden("v533-broker")
    offset = 300_000
    topic = max(store.about["counts"]["by topic"], key=store.about["counts"]["by topic"].get)
    options = {
        "topics": topic,
        "start": offset,
        "where": lambda message: message.queue_id != 1,  # Spark can pickle a lambda too
        "crc": "full",
        "columns": ["queueId", "body", "storeTimestamp"],
    }
    wanted = rocketc.scan(store.path, **options).to_arrow()
    assert 0 < wanted.num_rows < 1000
    df = decode_df(spark, store, "splits", **options)
    assert df.schema == schema(options["columns"]) and df.columns == options["columns"]
    assert table_of(df).combine_chunks() == wanted.combine_chunks()
    rows = decode_rdd(spark, store, "splits", **options).collect()
    assert [row.asDict() for row in rows] == wanted.to_pylist()


def test_a_schema_other_than_the_columns_is_refused(spark: SparkSession, golden: Golden) -> None:
    items = spark.createDataFrame(splits(golden("v533-store").path))
    for wrong in (SCHEMA, schema(["body", "topic"]), ddl("topic binary, body binary")):
        with pytest.raises((PySparkException, Py4JJavaError)):
            items.mapInArrow(partial(decode_batches, columns=["topic", "body"]), wrong).collect()


# Errors


@pytest.mark.some(2)
@pytest.mark.parametrize("way", ["mapPartitions", "mapInArrow"])
@pytest.mark.parametrize("source", ["splits", "paths", "binaryFiles"])
def test_damage_reaches_the_driver_with_file_and_offset(
    spark: SparkSession, golden: Golden, way: str, source: str
) -> None:
    store = golden("v533-bitrot")
    scan = rocketc.scan(store.path, errors="skip")
    scan.count()
    [damage] = scan.report.damage
    with pytest.raises(Exception) as caught:
        if way == "mapPartitions":
            decode_rdd(spark, store, source).count()
        else:
            decode_df(spark, store, source).collect()
    assert f"CorruptRecordError: {damage.file}: damage at physical offset {damage.start}: bad_body_crc" in str(
        caught.value
    )
    assert len(in_order(decode_rdd(spark, store, source, as_="message", errors="skip").collect())) == scan.count()


def test_damage_that_is_reported_does_not_stop_a_task(spark: SparkSession, golden: Golden) -> None:
    store = golden("v533-bitrot")
    assert decode_df(spark, store, "splits", errors="report").count() == rocketc.scan(store.path, errors="skip").count()


@pytest.mark.parametrize(
    "ddl", ["id int", "path string, start long", "path string, start long, stop long, content binary"]
)
def test_other_columns_are_named(spark: SparkSession, ddl: str) -> None:
    df = spark.createDataFrame([(None,) * len(ddl.split(", "))], ddl)
    names = ", ".join(field.split()[0] for field in ddl.split(", "))
    with pytest.raises(PythonException, match=rf"columns {names}; use .path, start, stop., .path, content. or"):
        df.mapInArrow(decode_batches, SCHEMA).collect()


def test_wrong_items_and_nulls_reach_the_driver_as_text(spark: SparkSession) -> None:
    with pytest.raises(Exception, match=r"\('a', 7\) \(tuple\) is not a split \(file, start, stop\)"):
        spark.sparkContext.parallelize([("a", 7)]).mapPartitions(decode_partition).collect()
    for columns in ("path string", "path string, content binary"):
        row = (None,) if "content" not in columns else ("a", None)
        with pytest.raises(PythonException, match=r"(path|content) is null"):
            spark.createDataFrame([row], columns).mapInArrow(decode_batches, SCHEMA).collect()
    with pytest.raises(PythonException, match=r"StoreIOError.*No such file.*/nowhere"):
        spark.createDataFrame([("/nowhere",)], "path string").mapInArrow(decode_batches, SCHEMA).collect()


def test_empty_input_returns_zero_rows(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert splits(tmp_path) == []
    empty = spark.createDataFrame([], "path string, start long, stop long")
    assert empty.mapInArrow(decode_batches, SCHEMA).collect() == []
    assert spark.sparkContext.parallelize([], 2).mapPartitions(decode_partition).collect() == []
    df = spark.createDataFrame([(str(tmp_path),)], "path string").mapInArrow(decode_batches, SCHEMA)
    assert df.collect() == [] and df.schema == SCHEMA


def test_a_task_that_needs_only_some_rows_stops_early(spark: SparkSession, golden: Golden) -> None:
    store = golden("flights-2013-01")
    started = time.monotonic()
    assert len(decode_df(spark, store, "splits", batch_bytes=4096).limit(3).collect()) == 3
    assert len(decode_rdd(spark, store, "splits").take(3)) == 3
    assert time.monotonic() - started < 60


# decode_batches() in this process


def batches_of(**columns: Any) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_pydict(columns)])


def test_columns_of_the_binary_file_source_may_be_left_out(golden: Golden) -> None:
    path = golden("v533-store").log_files[0]
    wanted = rocketc.scan(path).to_arrow().combine_chunks()
    content = path.read_bytes()
    for columns in (
        {"path": [str(path)]},
        {"path": [str(path)], "length": [1], "modificationTime": [None]},
        {"content": [content], "path": [f"file:{path}"]},
        {"content": pa.array([content], pa.large_binary()), "path": [str(path)], "length": [1]},
        {"content": pa.array([content], pa.binary_view()), "path": pa.array([str(path)], pa.string_view())},
        {"stop": [len(content)], "start": pa.array([0], pa.int32()), "path": [str(path)]},
        {"stop": [None], "start": [None], "path": [str(path)]},
    ):
        got = pa.Table.from_batches(list(decode_batches(batches_of(**columns))))
        assert got.combine_chunks() == wanted


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"path": [1]}, "path"),
        ({"path": ["a"], "content": ["text"]}, "content is string, not binary"),
        ({"path": ["a"], "start": [0.5], "stop": [1.5]}, "not a split"),
        ({"path": ["a"], "content": [b""], "when": [1]}, "columns path, content, when;"),
        ({}, r"columns \(none\);"),
    ],
)
def test_other_columns_are_an_error(columns: dict[str, Any], text: str) -> None:
    with pytest.raises((ValueError, TypeError), match=text):
        list(decode_batches(batches_of(**columns)))
