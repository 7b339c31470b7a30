"""format("rocketmq"): files and records skipped because of options and filters are only those that Spark would drop."""

import operator
import os
import random
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta, timezone
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from support import stores
from support.spark_frames import NO_SOURCES, sort

import rocketc
from rocketc.spark.filters import Narrowing
from rocketc.spark.partitions import prune, times_of
from rocketc.spark.source import PushingReader, RocketmqReader, RocketmqSource

datasource = pytest.importorskip("pyspark.sql.datasource", reason=NO_SOURCES)
if not hasattr(datasource, "EqualTo"):
    pytest.skip("this Spark does not push filters", allow_module_level=True)
from pyspark.sql.datasource import (  # noqa: E402
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

Golden = Callable[[str], stores.GoldenStore]
COLUMNS = "topic,queueId,queueOffset,physicalOffset,storeTimestamp,keys,tags,msgId,storeSize"
DAY, HOUR = 1_700_000_000_000, 3_600_000
COMPARED = {
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}


def says(filter: Filter, row: dict[str, Any]) -> bool:
    """Evaluate a filter for a row as Spark does."""
    if isinstance(filter, Not):
        inner = filter.child
        return row[inner.attribute[0]] is not None and not says(inner, row)
    value = row[filter.attribute[0]]
    if isinstance(filter, IsNull):
        return value is None
    if isinstance(filter, EqualNullSafe):
        return value == filter.value
    if value is None:
        return False
    if isinstance(filter, IsNotNull):
        return True
    if isinstance(filter, EqualTo):
        return value == filter.value
    if isinstance(filter, In):
        return value in filter.value
    if isinstance(filter, StringStartsWith):
        return value.startswith(filter.value)
    return COMPARED[type(filter)](value, filter.value)


def source(path: Any, **options: str) -> RocketmqSource:
    return RocketmqSource({"path": str(path), "columns": COLUMNS, "mode": "DROPMALFORMED", **options})


def rows_of(reader: RocketmqReader) -> list[dict[str, Any]]:
    tables = [pa.Table.from_batches([batch]) for part in reader.partitions() for batch in reader.read(part)]
    return sort(pa.concat_tables(tables)).to_pylist() if tables else []


@cache
def all_rows(path: str) -> list[dict[str, Any]]:
    asked = source(path)
    return rows_of(asked.reader(asked.schema()))


def filters_over(rows: Sequence[dict[str, Any]]) -> st.SearchStrategy[Filter]:
    """Filters with values of some row, or close to them."""

    @st.composite
    def draw_one(draw: st.DrawFn) -> Filter:
        column = draw(st.sampled_from(COLUMNS.split(",")))
        values = [row[column] for row in (draw(st.sampled_from(rows)), draw(st.sampled_from(rows)))]
        values = [value for value in values if value is not None]
        if not values:
            return draw(st.sampled_from([IsNull, IsNotNull]))((column,))
        if isinstance(values[0], int):
            values[0] += draw(st.integers(-1, 1))
        elif isinstance(values[0], datetime):
            values[0] += timedelta(microseconds=draw(st.sampled_from([-1000, -1, 0, 1, 1000])))
        elif draw(st.integers(0, 9)) == 0:
            values[0] += draw(st.sampled_from(["", " ", "||A", "*", "x"]))
        kind = draw(st.sampled_from([EqualTo, EqualNullSafe, In, IsNotNull, *COMPARED, StringStartsWith]))
        if kind is In:
            made = In((column,), tuple([*values, None][: draw(st.integers(1, 3))]))
        elif kind is IsNotNull:
            made = IsNotNull((column,))
        elif kind is StringStartsWith and not isinstance(values[0], str):
            made = EqualTo((column,), values[0])
        else:
            made = kind((column,), values[0])
        return Not(made) if draw(st.integers(0, 7)) == 0 and kind is not EqualNullSafe else made

    return draw_one()


@pytest.mark.some(3)
@pytest.mark.parametrize("name", stores.NAMES)
def test_pushed_filters_skip_only_rows_that_spark_would_drop(golden: Golden, name: str) -> None:
    path = str(golden(name).path)
    rows = all_rows(path)

    @settings(deadline=None, max_examples=12 if len(rows) > 5000 else 40)
    @given(st.lists(filters_over(rows), min_size=1, max_size=3), st.sampled_from(["1", "5"]))
    def check(filters: list[Filter], parts: str) -> None:
        asked = source(path, filterPushdown="true", minPartitions=parts)
        reader = PushingReader(asked._asked, asked.schema())
        again = list(reader.pushFilters(filters))
        assert all(any(one is filter for filter in filters) for one in again)
        left = [row for row in rows_of(reader) if all(says(filter, row) for filter in again)]
        assert left == [row for row in rows if all(says(filter, row) for filter in filters)]

    check()


@pytest.mark.parametrize("name", ["v533-store", "v497-broker", "flights-2013-01"])
def test_options_and_filters_give_the_same_rows(golden: Golden, name: str) -> None:
    path = str(golden(name).path)
    rows = all_rows(path)
    chance = random.Random(7)
    for _ in range(8):
        one, two = chance.choice(rows), chance.choice(rows)
        begin, end = sorted([one["storeTimestamp"], two["storeTimestamp"]])
        options = {"subscribe": one["topic"], "startingTimestamp": str(ms(begin)), "endingTimestamp": str(ms(end) + 1)}
        filters: list[Filter] = [
            EqualTo(("topic",), one["topic"]),
            GreaterThanOrEqual(("storeTimestamp",), begin),
            LessThanOrEqual(("storeTimestamp",), end),
        ]
        if one["tags"]:
            options["tags"] = one["tags"]
            filters.append(EqualTo(("tags",), one["tags"]))
        asked = source(path, **options)
        wanted = [row for row in rows if all(says(filter, row) for filter in filters)]
        assert rows_of(asked.reader(asked.schema())) == wanted


@pytest.mark.parametrize("parts", ["1", "6"])
def test_queue_offsets_as_options(golden: Golden, parts: str) -> None:
    path = str(golden("flights-2013-01").path)
    asked = source(
        path,
        assign='{"flights": [1, 3]}',
        startingOffsets='{"flights": {"1": 4000}}',
        endingOffsets='{"flights": {"1": -1, "3": 7}}',
        minPartitions=parts,
    )
    wanted = [
        row
        for row in all_rows(path)
        if (row["queueId"] == 1 and row["queueOffset"] >= 4000) or (row["queueId"] == 3 and row["queueOffset"] < 7)
    ]
    assert rows_of(asked.reader(asked.schema())) == wanted != []


def ms(when: datetime) -> int:
    return (when - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1)


def test_filters_and_options_are_combined() -> None:
    narrowing = Narrowing()
    for filter in (In(("topic",), ("a", "b")), EqualTo(("topic",), "b"), LessThan(("physicalOffset",), 9)):
        narrowing.take(filter)
    assert narrowing.of({"topics": ["b", "c"], "stop": 5}) == {"topics": ["b"], "stop": 5}
    assert narrowing.of({"topics": ["a"]}) == {"topics": [], "stop": 9}


def test_filters_that_a_scan_does_not_support_are_left_to_spark() -> None:
    narrowing = Narrowing()
    for filter in (
        EqualTo(("properties", "x"), "1"),
        EqualNullSafe(("topic",), None),
        EqualTo(("topic",), "\ufffd"),
        EqualTo(("storeTimestamp",), datetime(2026, 1, 1)),
        EqualTo(("tags",), "A||B"),
        EqualTo(("keys",), " "),
        EqualTo(("keys",), "k\ufffd"),
        GreaterThan(("queueOffset",), 1),
        GreaterThan(("physicalOffset",), 1 << 70),
        EqualTo(("msgId",), "no id"),
        Not(EqualTo(("topic",), "a")),
    ):
        assert not narrowing.take(filter)
    assert narrowing.of({}) == {}


# Whole files


@pytest.fixture(scope="module")
def hours(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A log of six files, one hour of messages each; in the third the clock was set back for a while."""
    root = tmp_path_factory.mktemp("hours")
    folder = root / "commitlog"
    folder.mkdir()
    size, record = 65536, 0
    for hour in range(6):
        base, data = hour * size, b""
        while len(data) < size - 2048:
            when = DAY + hour * HOUR + len(data)
            if hour == 2 and 20_000 < len(data) < 30_000:
                when -= 2 * HOUR
            body = b"%d" % record + bytes(700)
            data += rocketc.encode("t", body, phy_offset=base + len(data), queue_offset=record, store_timestamp=when)
            record += 1
        blank = (size - len(data)).to_bytes(4, "big") + (0xCBD43194).to_bytes(4, "big")
        (folder / f"{base:020d}").write_bytes((data + blank).ljust(size, b"\0"))
    return str(root)


@pytest.mark.parametrize("large", [False, True])
def test_files_are_skipped_by_time(hours: str, large: bool, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    if large:  # as if the files were large: only a part is read
        monkeypatch.setattr("rocketc.spark.partitions._WHOLE_BYTES", 1 << 14)
        monkeypatch.setattr("rocketc.spark.partitions._LOOK_BYTES", 1 << 12)
    [log] = rocketc.files.paths.resolve(hours)
    assert times_of(log.files[1])[0] == DAY + HOUR
    assert (times_of(log.files[2]) is None) == large
    [kept] = prune([log], DAY + 4 * HOUR)
    assert [file.base // 65536 for file in kept.files] == ([2, 4, 5] if large else [4, 5])
    [kept] = prune([log], None, DAY + HOUR)
    assert [file.base // 65536 for file in kept.files] == [0, 2]
    begin, end = DAY + 4 * HOUR, DAY + 5 * HOUR
    asked = source(hours, startingTimestamp=str(begin), endingTimestamp=str(end))
    wanted = [row for row in all_rows(hours) if begin <= ms(row["storeTimestamp"]) < end]
    assert rows_of(asked.reader(asked.schema())) == wanted != []
    told = capfd.readouterr().err
    assert f"{4 if large else 5} of 6 files left out" in told
    assert f"begin={begin}" in told


def test_an_unreadable_file_is_left_to_its_task(golden: Golden, tmp_path: Any) -> None:
    folder = tmp_path / "commitlog"
    folder.mkdir()
    path = folder / f"{0:020d}"
    path.write_bytes(bytes(range(256)) * 64)
    [log] = prune(rocketc.files.paths.resolve(tmp_path), 1, 2)
    assert [file.path for file in log.files] == [os.fspath(path)]


# In Spark


@pytest.fixture
def pushing(spark: SparkSession) -> Iterable[SparkSession]:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield spark
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_setting_of_the_session_enables_filters(spark: SparkSession, golden: Golden) -> None:
    path = str(golden("flights-2013-01").path)
    read = spark.read.format("rocketmq").option("filterPushdown", "true").load(path)
    assert read.where("topic = 'flights' and queueId = 1").count() > 0


def test_spark_pushes_its_filters(pushing: SparkSession, golden: Golden, capfd: Any) -> None:
    path = str(golden("flights-2013-01").path)
    plain = pushing.read.format("rocketmq").load(path)
    read = pushing.read.format("rocketmq").option("filterPushdown", "true").load(path)
    half = plain.selectExpr("percentile_approx(storeTimestamp, 0.5)").first()[0]
    for where in (
        "queueId = 1 and tags = 'UA'",
        "topic in ('flights', 'x') and physicalOffset between 1000000 and 2000000",
        f"storeTimestamp >= timestamp '{half}' and queueOffset % 2 = 0",
        "keys = 'HA51-2013-01-01'",
        "topic = 'nothing'",
        "tags <> 'UA' and queueId <=> 0",
    ):
        wanted = plain.where(where).selectExpr("count(*)", "bit_xor(xxhash64(physicalOffset, body))").first()
        assert read.where(where).selectExpr("count(*)", "bit_xor(xxhash64(physicalOffset, body))").first() == wanted
    read.where("topic = 'flights' and queueId = 1 and tags = 'UA'").explain("formatted")
    told = capfd.readouterr().out
    assert "EqualTo(topic,flights), EqualTo(queueId,1)]" in told
    assert "Condition : (isnotnull(tags" in told
