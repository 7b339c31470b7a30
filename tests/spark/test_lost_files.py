"""format("rocketmq") and splits() of a log without one of its middle files: FAILFAST fails, PERMISSIVE has a row."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from support.spark_frames import needs_sources

import rocketc
from rocketc.files.paths import resolve
from rocketc.spark import splits
from rocketc.spark.partitions import plan, prune, with_lost
from rocketc.spark.source import RocketmqReader, RocketmqSource

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

SIZE = 200
GONE = 400


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Files of one message each, stored at their physical offset in ms; the third is lost."""
    for base in range(0, 6 * SIZE, SIZE):
        record = rocketc.encode("t", b"x", phy_offset=base, store_timestamp=base)
        (tmp_path / f"{base:020d}").write_bytes(record + rocketc.encode_blank(SIZE - len(record)))
    (tmp_path / f"{GONE:020d}").unlink()
    return tmp_path


def reader(path: Any, **options: str) -> RocketmqReader:
    source = RocketmqSource({"path": str(path), **options})
    return source.reader(source.schema())


def rows(path: Any, **options: str) -> list[dict[str, Any]]:
    asked = reader(path, **options)
    tasks = asked.partitions()
    return [row for task in tasks for batch in asked.read(task) for row in batch.to_pylist()]


def test_failfast(log: Path) -> None:
    with pytest.raises(rocketc.CorruptRecordError, match=r"00400: damage .* missing_file; .*PERMISSIVE.*partial=true"):
        rows(log)
    assert [row["physicalOffset"] for row in rows(log, partial="true")] == [0, 200, 600, 800, 1000]


@pytest.mark.parametrize("tasks", ["1", "5"])
def test_permissive_and_dropmalformed(log: Path, tasks: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(log, mode="PERMISSIVE", minPartitions=tasks)
    assert [row["physicalOffset"] for row in found] == [0, 200, None, 600, 800, 1000]
    assert {name: value for name, value in found[2].items() if value is not None} == {
        "file": str(log / f"{GONE:020d}"),
        "_corrupt_offset": GONE,
        "_corrupt_length": SIZE,
        "_error": "missing_file",
    }
    assert len(rows(log, mode="DROPMALFORMED", minPartitions=tasks)) == 5
    assert "200 bytes lost at physical offset 400: missing_file" in capsys.readouterr().err


def test_only_where_the_query_reads(log: Path) -> None:
    assert [row["physicalOffset"] for row in rows(log, startingTimestamp="700")] == [800, 1000]
    assert [row["physicalOffset"] for row in rows(log, endingTimestamp="200")] == [0]
    with pytest.raises(rocketc.CorruptRecordError, match="missing_file"):
        rows(log, startingTimestamp="300", endingTimestamp="500")  # the range is in the lost file
    logs = resolve(log)
    assert [one.lost for one in prune(logs, 700, None)] == [()]
    assert [one.lost for one in prune(logs, 600, None)] == [((400, 600),)]
    assert with_lost(plan(logs), logs, 600, None) == plan(logs)


def test_splits(log: Path) -> None:
    with pytest.raises(rocketc.CorruptRecordError, match="missing_file; restore the file; partial=True"):
        splits(log)
    assert [split.start for split in splits(log, partial=True)] == [0, 200, 600, 800, 1000]


def test_a_stream_has_its_own_option(log: Path) -> None:
    source = RocketmqSource({"path": str(log), "partial": "true"})
    with pytest.raises(ValueError, match="option partial: not for streams; use failOnDataLoss=false"):
        source.streamReader(source.schema())


@needs_sources
def test_spark_runs_such_a_plan(spark: SparkSession, log: Path) -> None:
    read = spark.read.format("rocketmq")
    with pytest.raises(PySparkException, match="missing_file"):
        read.load(str(log)).count()
    errors = read.option("mode", "PERMISSIVE").load(str(log)).where("_error IS NOT NULL")
    assert [tuple(row) for row in errors.select("_corrupt_offset", "_error").collect()] == [(GONE, "missing_file")]
