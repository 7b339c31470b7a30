"""Spark reads the files that rocketc exports: the same rows, types and partitions."""

import pytest
from support.spark_frames import arrow_of

import rocketc

pytestmark = pytest.mark.spark

TOPICS = [
    "%RETRY%group", "100%25", "a/b", "..", "a=b", "支付-топик", "\U0001f680", " blanks ", "a+b", "null", "007", "12",
    "true", "2024-01-01", "\x01\x1f\x7f", "\"'*?:#[]{}^\\<>|&;`$!~", "\u2028", "%", "%zz", "{}",
]  # fmt: skip


def test_spark_reads_a_file(spark, golden, tmp_path):
    store = golden("v533-broker").path
    rocketc.export(rocketc.scan(store), tmp_path / "x.parquet")
    frame = spark.read.parquet(str(tmp_path / "x.parquet"))
    types = {name: kind for name, kind in frame.dtypes if kind not in ("string", "int", "bigint")}
    instants = dict.fromkeys(("storeTimestamp", "bornTimestamp"), "timestamp")
    assert types == {**instants, "body": "binary", "properties": "map<string,string>"}
    assert frame.columns == list(rocketc.COLUMN_NAMES)
    order = [("physicalOffset", "ascending"), ("queueOffset", "ascending")]
    found = arrow_of(frame).sort_by(order)
    meant = rocketc.scan(store).to_arrow().sort_by(order)
    for name in rocketc.COLUMN_NAMES:
        same = found.column(name).cast(meant.column(name).type)
        assert same.to_pylist() == meant.column(name).to_pylist(), name


def test_spark_reads_partitions_with_their_values(spark, tmp_path):
    data = b""
    for topic in TOPICS:
        data += rocketc.encode(topic, topic.encode(), phy_offset=len(data), store_timestamp=1_700_000_000_000)
    rocketc.export(rocketc.decode(data), tmp_path / "lake", partition_by=("topic", "date"))
    reader = spark.read.schema("topic string, date date, body string, queueOffset bigint")
    rows = reader.parquet(str(tmp_path / "lake")).collect()
    assert {row.body: row.topic for row in rows} == {topic: topic for topic in TOPICS}
    assert {str(row.date) for row in rows} == {"2023-11-14"}
