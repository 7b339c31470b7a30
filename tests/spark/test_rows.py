"""format("rocketmq"): damage as rows (mode=PERMISSIVE), and the columns of Kafka's source."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from support import stores
from support.spark_frames import needs_sources, sort

import rocketc
from rocketc.spark import Dropped, dropped_accumulator
from rocketc.spark.schema import DAMAGE, FIELDS, KAFKA
from rocketc.spark.source import RocketmqSource

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

Golden = Callable[[str], stores.GoldenStore]


def rows(path: Any, fields: Sequence[str] | None = None, **options: str) -> pa.Table:
    """The rows that tasks pass to Spark, read without Spark."""
    source = RocketmqSource({"path": str(path), **options})
    schema = source.schema() if fields is None else StructType([FIELDS[name] for name in fields])
    reader = source.reader(schema)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return pa.Table.from_batches(batches) if batches else pa.table({name: [] for name in schema.names})


def damage_of(table: pa.Table) -> list[tuple[int, int, str]]:
    bad = table.filter(pc.is_valid(table["_error"]))
    return sorted(zip(*(bad[name].to_pylist() for name in DAMAGE.names), strict=True))


@pytest.mark.parametrize("name", stores.NAMES)
@pytest.mark.parametrize("parts", ["1", "7"])
def test_damage_is_rows(golden: Golden, name: str, parts: str) -> None:
    store = golden(name)
    scan = rocketc.scan(store.path, errors="skip")
    whole = scan.to_arrow()
    table = rows(store.path, mode="PERMISSIVE", minPartitions=parts)
    wanted = sorted((one.start, one.stop - one.start, one.reason) for one in scan.report.damage)
    assert damage_of(table) == wanted
    good = table.filter(pc.is_null(table["_error"])).drop_columns(DAMAGE.names)
    assert sort(good) == sort(whole)
    bad = table.filter(pc.is_valid(table["_error"])).drop_columns([*DAMAGE.names, "file"])
    assert all(column.null_count == len(column) for column in bad.columns)


def test_a_row_of_damage_has_its_file(golden: Golden) -> None:
    table = rows(golden("v533-bitrot").path, columns="_error,file,_corrupt_offset,topic", mode="PERMISSIVE")
    [bad] = table.filter(pc.is_valid(table["_error"])).to_pylist()
    assert bad == {"_error": "bad_body_crc", "file": bad["file"], "_corrupt_offset": 361670, "topic": None}
    assert Path(bad["file"]).parent.name == "commitlog"


def test_columns_of_damage_are_null_unless_damage_is_a_row(golden: Golden) -> None:
    table = rows(golden("v533-bitrot").path, ["_error", "queueId"], mode="DROPMALFORMED")
    assert len(table) == 1499
    assert table["_error"].null_count == 1499


def test_a_query_for_damage_only(golden: Golden) -> None:
    table = rows(golden("v533-bitrot").path, ["_error"], mode="PERMISSIVE")
    assert pc.value_counts(table["_error"].drop_null()).to_pylist() == [{"values": "bad_body_crc", "counts": 1}]
    assert len(table) == 1500


@pytest.mark.parametrize("name", stores.NAMES)
def test_columns_of_kafka(golden: Golden, name: str) -> None:
    store = golden(name)
    ours = rows(store.path, mode="DROPMALFORMED")
    table = rows(store.path, columns="kafka", includeHeaders="true", mode="DROPMALFORMED")
    assert table.schema.names == KAFKA.names
    assert table["key"].to_pylist() == [None if key is None else key.encode() for key in ours["keys"].to_pylist()]
    for theirs, name_ in (("value", "body"), ("partition", "queueId"), ("offset", "queueOffset"), ("topic", "topic")):
        assert table[theirs] == ours[name_]
    assert table["timestamp"] == ours["storeTimestamp"]
    assert set(table["timestampType"].to_pylist()) <= {1}
    wanted = [
        None if pairs is None else [{"key": key, "value": value.encode()} for key, value in pairs]
        for pairs in ours["properties"].to_pylist()
    ]
    assert table["headers"].to_pylist() == wanted


def test_columns_of_kafka_with_damage(golden: Golden) -> None:
    table = rows(golden("v533-bitrot").path, columns="Kafka", mode="PERMISSIVE")
    assert table.schema.names == [*KAFKA.names[:-1], *DAMAGE.names]
    assert len(damage_of(table)) == 1


@needs_sources
def test_spark_accepts_these_rows(spark: SparkSession, golden: Golden) -> None:
    damaged = golden("v533-bitrot").path
    read = spark.read.format("rocketmq").option("mode", "PERMISSIVE").load(str(damaged))
    [bad] = read.where("_error is not null").select(*DAMAGE.names, "topic").collect()
    assert tuple(bad) == (361670, 326, "bad_body_crc", None)
    kafka = spark.read.format("rocketmq").options(columns="kafka", includeHeaders="true", mode="permissive")
    assert kafka.load(str(damaged)).where("size(headers) > 0 and timestampType = 1").count() == 1499
    some = kafka.schema("value binary, `offset` long, _error string").load(str(damaged))
    assert some.where("_error is null").selectExpr("max(offset)").first()[0] > 0


@needs_sources
def test_dropped_ranges_are_counted(spark: SparkSession, golden: Golden, caplog: pytest.LogCaptureFixture) -> None:
    if spark.version.startswith("4.0."):
        with pytest.raises(NotImplementedError, match=f"Spark {spark.version} does not return accumulators"):
            dropped_accumulator(spark)
        return
    dropped = dropped_accumulator(spark)
    read = spark.read.format("rocketmq").options(mode="DROPMALFORMED", droppedAccumulator=str(dropped.aid))
    frame = read.load([str(golden("v533-bitrot").path), str(golden("flights-2013-01").path)])
    assert dropped.value == Dropped(0, 0)
    assert frame.count() == 1499 + 27004
    assert dropped.value == Dropped(1, 326)
    assert "dropped 1 damaged ranges, 326 bytes, so far 1, 326" in caplog.text
    with pytest.raises(ValueError, match="droppedAccumulator='0': only with mode=DROPMALFORMED"):
        RocketmqSource({"path": "s", "droppedAccumulator": "0"})
