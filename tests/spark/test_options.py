"""The options of format("rocketmq"), without Spark."""

import json
import pickle
import re
import shutil
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)
from support.spark_frames import HAS_DATA_SOURCES

import rocketc
from rocketc.read.sql import compile_sql
from rocketc.spark import SCHEMA, schema
from rocketc.spark.options import Options, Use, check_use, parse_options
from rocketc.spark.source import RocketmqSource, check_schema

W = (None, None)  # the whole queue
COMMON = (
    "path, columns, includeHeaders, assign, subscribe, subscribePattern, tags, keys, sql, startingTimestamp, "
    "endingTimestamp, verifyCrc, decompress, "
)
OF_STREAM = "maxBytesPerTrigger, maxOffsetsPerTrigger, maxFilesPerTrigger, failOnDataLoss"
PLAN = "minPartitions, maxBytesPerPartition, startingOffsets"
HOW = "partial, endingOffsets, mode, droppedAccumulator, filterPushdown, failOnMissingTopic"
OF_READ = f"{COMMON}{HOW}, {PLAN}, storage.NAME"


def scan_of(**given: str) -> dict[str, Any]:
    return parse_options({"path": "store", **given}).scan


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, {}),
        ({"subscribe": "orders"}, {"topics": ["orders"]}),
        ({"subscribe": " orders ,%RETRY%g, 注文"}, {"topics": ["orders", "%RETRY%g", "注文"]}),
        ({"subscribePattern": "a,b|c"}, {"topics": [re.compile("a,b|c")]}),
        ({"tags": "A||B, C"}, {"tags": ["A||B", "C"]}),
        ({"keys": "k1,k2"}, {"keys": ["k1", "k2"]}),
        ({"sql": "a IN ('x', 'y')"}, {"sql": compile_sql("a IN ('x', 'y')")}),
        ({"startingTimestamp": "1700000000123"}, {"begin": 1700000000123}),
        ({"endingTimestamp": "0"}, {"end": 0}),
        ({"verifyCrc": "TRUE"}, {"crc": "body"}),
        ({"verifyCrc": "false"}, {"crc": "none"}),
        ({"verifyCrc": "Full"}, {"crc": "full"}),
        ({"decompress": "true"}, {"decompress": True}),
        ({"decompress": "False"}, {"decompress": False}),
        ({"partial": "true"}, {"partial": True}),
        ({"mode": "failFast"}, {}),
        ({"mode": "dropMalformed"}, {"errors": "skip"}),
        ({"mode": "permissive"}, {"errors": "skip"}),
    ],
)
def test_options_become_arguments_of_a_scan(given: Mapping[str, str], wanted: dict[str, Any]) -> None:
    wanted = {"errors": "raise", **wanted}
    assert scan_of(**given) == wanted
    assert parse_options({name.upper(): value for name, value in {"path": "s", **given}.items()}).scan == wanted
    rocketc.decode(b"", **{name: value for name, value in wanted.items() if name != "partial"})
    asked = parse_options({"path": "s", **given})
    assert pickle.loads(pickle.dumps(asked)) == asked


def test_paths() -> None:
    assert parse_options({"path": "a,b"}).paths == ("a,b",)
    assert parse_options({"paths": '["a", "b c*"]'}).paths == ("a", "b c*")
    assert parse_options({"path": "a", "paths": '["b"]'}).paths == ("a", "b")  # spark.sql.legacy.pathOptionBehavior
    for wrong in ("a", '"a"', "[1]", "{}", "[" * 50):
        with pytest.raises(ValueError, match=f"^rocketmq: option paths={re.escape(repr(wrong))}: not a JSON list"):
            parse_options({"paths": wrong})
    for nothing in ({}, {"paths": "[]"}):
        with pytest.raises(ValueError, match=r"^rocketmq: option path: missing; .*use CREATE TEMPORARY VIEW"):
            parse_options(nothing)
    with pytest.raises(ValueError, match=r"^rocketmq: Spark does not keep options of permanent tables"):
        parse_options({"provider": "rocketmq", "path": "a", "owner": "me"})
    for empty in ({"path": ""}, {"paths": json.dumps(["a", ""])}):
        with pytest.raises(ValueError, match=r"^rocketmq: option path='': it must be a store"):
            parse_options(empty)
    with pytest.raises(ValueError, match="with the options nameServer and subscribe, without a path"):
        parse_options({"path": "rocketmq://127.0.0.1:9876/orders"})


def test_columns() -> None:
    assert parse_options({"path": "s"}).columns is None
    assert parse_options({"path": "s", "columns": "body, topic"}).columns == ("body", "topic")
    whole = ",".join(rocketc.COLUMN_NAMES)
    assert parse_options({"path": "s", "columns": whole}).columns == rocketc.COLUMN_NAMES


@given(
    when=st.datetimes(datetime(1970, 1, 2), datetime(9999, 12, 1)),
    minutes=st.integers(-14 * 60, 14 * 60),
    spec=st.sampled_from(["minutes", "seconds", "milliseconds", "microseconds"]),
    zone=st.sampled_from(["", ":", "Z"]),
    between=st.sampled_from("T t"),
)
def test_times_as_iso_8601(when: datetime, minutes: int, spec: str, zone: str, between: str) -> None:
    when = when.replace(tzinfo=timezone.utc if zone == "Z" else timezone(timedelta(minutes=minutes)))
    text = when.isoformat(between, spec)
    day, clock = text[:10], text[11:]
    clock = clock.replace("+00:00", "Z") if zone == "Z" else clock[:-6] + clock[-6:].replace(":", zone)
    exact = datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=timezone.utc)
    us = exact // timedelta(microseconds=1)
    assert scan_of(startingTimestamp=f"{day}{between}{clock}") == {"errors": "raise", "begin": -(-us // 1000)}


def test_a_time_without_a_zone_is_refused() -> None:
    for text in ("2026-01-31T09:30", "2026-01-31 09:30:15.123", "2026-01-31"):
        with pytest.raises(ValueError, match=f"option startingTimestamp='{text}': missing time zone; .*09:30:00Z"):
            scan_of(startingTimestamp=text)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        (
            "columns",
            "topic,bdoy",
            "unknown column 'bdoy' (did you mean body?); use topic, queueId, brokerName, queueOffset",
        ),
        ("columns", "Topic", "unknown column 'Topic' (did you mean topic?)"),
        ("columns", "topic,body,topic", "topic is given twice"),
        ("columns", "", "it has an empty item"),
        ("subscribe", "a,,b", "it has an empty item; items are separated by commas"),
        ("subscribe", "", "it has an empty item"),
        ("subscribePattern", "a(", "not a regular expression: missing ), unterminated subpattern"),
        ("tags", ",", "it has an empty item"),
        ("keys", " ", "it has an empty item"),
        (
            "sql",
            "a > ",
            "SQL filter, column 5: expected a property, a number, a text in single quotes, '(', NULL or NOT;",
        ),
        ("sql", "a LIKE 'x'", "SQL filter, column 3: RocketMQ ignores this and what follows"),
        ("startingTimestamp", "yesterday", "not a time; use epoch milliseconds, 2026-01-31T09:30:00Z or"),
        ("startingTimestamp", "1700000000", "this looks like seconds; in epoch milliseconds it is 1700000000000"),
        ("endingTimestamp", "20260131", "write a date with dashes and a time: 2026-01-31T00:00Z"),
        ("endingTimestamp", "2026-02-30T00:00Z", "day is out of range for month"),
        ("endingTimestamp", "2026-01-30T00:00+99:00", "offset must be a timedelta strictly between"),
        ("endingTimestamp", "-1", "not a time; "),
        ("endingTimestamp", "1" * 30, "not a time; "),
        ("mode", "skip", "it must be one of FAILFAST, PERMISSIVE, DROPMALFORMED"),
        ("includeHeaders", "true", "only with columns=kafka"),
        ("droppedAccumulator", "0", "only with mode=DROPMALFORMED"),
        ("verifyCrc", "yes", "it must be one of true, false, full"),
        ("decompress", "", "it must be one of true, false"),
        ("startingOffsets", "-2", "it must be one of earliest, latest"),
        ("failOnDataLoss", "no", "it must be one of true, false"),
        ("failOnMissingTopic", "no", "it must be one of true, false"),
        ("maxBytesPerTrigger", "0", "it must be a number of bytes, 1 or more"),
        ("maxOffsetsPerTrigger", "0", "it must be a whole number, 1 or more"),
        ("maxFilesPerTrigger", "1k", "it must be a whole number, 1 or more"),
        ("minPartitions", "0", "it must be a whole number, 1 or more"),
        ("minPartitions", "many", "it must be a whole number, 1 or more"),
        ("maxBytesPerPartition", "0", "it must be a number of bytes, 1 or more: 134217728, 128m, 1g"),
        ("maxBytesPerPartition", "128 megabytes", "it must be a number of bytes, 1 or more"),
        ("maxBytesPerPartition", "-1", "it must be a number of bytes, 1 or more"),
    ],
)
def test_a_wrong_value_is_reported_with_its_option(name: str, value: str, why: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(f"rocketmq: option {name}={value!r}: {why}")):
        scan_of(**{name.lower(): value})


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, {}),
        ({"minPartitions": "8"}, {"min_partitions": 8}),
        ({"maxBytesPerPartition": "1000"}, {"max_bytes": 1000}),
        ({"maxBytesPerPartition": "128m"}, {"max_bytes": 128 << 20}),
        ({"maxBytesPerPartition": " 2 GiB "}, {"max_bytes": 2 << 30}),
        ({"maxBytesPerPartition": "64KB"}, {"max_bytes": 64 << 10}),
        ({"maxBytesPerPartition": "999999999999t"}, {"max_bytes": 1 << 62}),
    ],
)
def test_options_of_the_plan(given: Mapping[str, str], wanted: Mapping[str, int]) -> None:
    assert parse_options({"path": "store", **given}).plan == wanted


def test_options_of_a_stream() -> None:
    for asked, wanted in (
        ({}, {}),
        ({"startingOffsets": " Earliest"}, {"startingOffsets": "earliest"}),
        (
            {"maxBytesPerTrigger": "1g", "failOnDataLoss": "FALSE"},
            {"maxBytesPerTrigger": 1 << 30, "failOnDataLoss": False},
        ),
        (
            {"maxOffsetsPerTrigger": "9", "maxFilesPerTrigger": "2"},
            {"maxOffsetsPerTrigger": 9, "maxFilesPerTrigger": 2},
        ),
    ):
        assert parse_options({"path": "store", **asked}).stream == wanted


def test_contradictions() -> None:
    with pytest.raises(ValueError, match="options startingOffsets and startingTimestamp: give one of them"):
        parse_options({"path": "s", "startingOffsets": "latest", "startingTimestamp": "2026-01-31T09:30Z"})
    with pytest.raises(ValueError, match="options subscribe and subscribePattern: give one of them"):
        scan_of(subscribe="a", subscribePattern="b")
    times = {"startingTimestamp": "2026-01-31T09:30+01:00", "endingTimestamp": "2026-01-31T08:30Z"}
    assert scan_of(**times)["begin"] == scan_of(**times)["end"]  # an empty range of times
    times["startingTimestamp"] = "2026-01-31T09:31+01:00"
    with pytest.raises(
        ValueError, match=r"option startingTimestamp='.*09:31.*': later than endingTimestamp='.*08:30Z'"
    ):
        scan_of(**times)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("subscibe", " (did you mean subscribe?)"),
        ("ending_timestamp", " (did you mean endingTimestamp?)"),
    ],
)
def test_an_unknown_option_is_reported_with_those_of_a_read(name: str, hint: str) -> None:
    with pytest.raises(ValueError) as caught:
        scan_of(**{name: "x"})
    takes = f"a read takes {OF_READ}; a stream also takes {OF_STREAM}"
    assert str(caught.value) == f"rocketmq: unknown option {name}{hint}; {takes}"


def test_an_unknown_option_of_a_write_is_reported_with_those_of_a_write() -> None:
    for name, hint in (("mappedFileSize", " (did you mean mappedFileSizeCommitLog?)"), ("subscibe", "")):
        with pytest.raises(ValueError) as caught:
            parse_options({"path": "store", name: "x"}, writing=True)
        takes = "a write takes path, mappedFileSizeCommitLog, idColumn"
        assert str(caught.value) == f"rocketmq: unknown option {name}{hint}; {takes}"


@pytest.mark.parametrize(
    ("use", "name", "value", "error"),
    [
        ("write", "subscribe", "a", "subscribe is for reading"),
        ("read", "mappedFileSizeCommitLog", "1g", "mappedFileSizeCommitLog is for writing"),
        ("read", "failOnDataLoss", "true", "failOnDataLoss: only for streams (spark.readStream)"),
        ("stream", "filterPushdown", "true", "filterPushdown: not for streams; use options such as subscribe and tags"),
        ("stream", "endingOffsets", "latest", "endingOffsets: not for streams, which do not end"),
    ],
)
def test_an_option_of_another_use_is_reported_with_those_of_this_one(
    use: Use, name: str, value: str, error: str
) -> None:
    takes = {
        "read": OF_READ,
        "stream": f"{COMMON}mode, droppedAccumulator, failOnMissingTopic, {PLAN}, {OF_STREAM}",
        "write": "path, mappedFileSizeCommitLog, idColumn",
    }
    with pytest.raises(ValueError) as caught:
        check_use(parse_options({"path": "store", name: value}), use)
    assert str(caught.value) == f"rocketmq: option {error}; a {use} takes {takes[use]}"


@pytest.mark.parametrize(
    ("use", "given"),
    [
        ("write", {"mappedFileSizeCommitLog": "1g"}),
        ("read", {"startingOffsets": "earliest", "filterPushdown": "true", "storage.key": "x"}),
        ("stream", {"startingOffsets": "latest", "filterPushdown": "false", "maxFilesPerTrigger": "1"}),
    ],
)
def test_options_of_this_use_are_accepted(use: Use, given: Mapping[str, str]) -> None:
    check_use(parse_options({"path": "store", **given}, writing=use == "write"), use)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"assign": '{"a": [1, 0]}'}, {"topics": ["a"], "offsets": {"a": {1: (None, None), 0: (None, None)}}}),
        ({"startingOffsets": '{"a": {"0": 5, "1": -2}}'}, {"offsets": {"a": {0: (5, None), 1: W, None: W}}}),
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, {}),
        (
            {"startingOffsets": '{"a": {"0": 5}}', "endingOffsets": '{"a": {"0": 9, "3": -1}, "b": {"0": 1}}'},
            {"offsets": {"a": {0: (5, 9), 3: W, None: W}, "b": {0: (None, 1), None: W}}},
        ),
        (
            {"subscribePattern": "a.*", "endingOffsets": '{"ab": {"0": 9}}'},
            {"topics": [re.compile("a.*")], "offsets": {"ab": {0: (None, 9), None: W}}},
        ),
        (
            {"assign": '{"a": [0, 1]}', "startingOffsets": '{"a": {"1": 9}}'},
            {"topics": ["a"], "offsets": {"a": {0: W, 1: (9, None)}}},
        ),
    ],
)
def test_queues_and_their_offsets(given: Mapping[str, str], wanted: dict[str, Any]) -> None:
    assert scan_of(**given) == {"errors": "raise", **wanted}
    rocketc.decode(b"", **wanted)


@pytest.mark.parametrize(
    ("name", "value", "why", "more"),
    [
        ("assign", "orders", "not JSON: ", {}),
        ("assign", '["orders"]', 'it must be a JSON object of topics, such as {"orders": ...}', {}),
        ("assign", '{"a": 1}', "the value of 'a' must be a list of queue ids", {}),
        ("assign", '{"a": [true]}', "the value of 'a' must be a list of queue ids", {}),
        ("assign", '{"a": [-1]}', "the value of 'a' must be a list of queue ids", {}),
        ("startingOffsets", '{"a": ', "not JSON: ", {}),
        ("startingOffsets", '{"a": [1]}', "the value of 'a' must map queue ids to offsets, such as {\"0\": 70}", {}),
        ("startingOffsets", '{"a": {"x": 1}}', "of 'a': 'x' is not a queue id", {}),
        ("startingOffsets", '{"a": {"0": -1}}', "'a', queue 0: it must be a queue offset, or -2 for earliest", {}),
        ("endingOffsets", '{"a": {"0": -2}}', "'a', queue 0: it must be a queue offset, or -1 for latest", {}),
        ("endingOffsets", "earliest", "it must be one of latest", {}),
        ("endingOffsets", '{"a": {"0": 1e3}}', "'a', queue 0: it must be a queue offset, or -1 for latest", {}),
        ("endingOffsets", '{"b": {"0": 1}}', "topic 'b' is not selected by ", {"subscribe": "a"}),
        ("endingOffsets", '{"a": {"7": 1}}', "queue 7 of 'a' is not in option assign", {"assign": '{"a": [0]}'}),
    ],
)
def test_invalid_queues(name: str, value: str, why: str, more: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=re.escape(f"rocketmq: option {name}={value!r}: {why}")):
        scan_of(**{name: value}, **more)


def test_topics_are_named_in_one_way_only() -> None:
    with pytest.raises(ValueError, match="options subscribe and assign: give one of them"):
        scan_of(subscribe="a", assign='{"a": [0]}')
    source = RocketmqSource({"path": "s", "endingOffsets": '{"a": {"0": 1}}'})
    with pytest.raises(ValueError, match="endingOffsets: not for streams"):
        source.streamReader(SCHEMA)
    with pytest.raises(ValueError, match="startingOffsets: only for streams"):
        RocketmqSource({"path": "s", "startingOffsets": "latest"}).reader(SCHEMA)


# The schema that a user gives


def struct(*fields: tuple[str, DataType]) -> StructType:
    return StructType([StructField(name, type_) for name, type_ in fields])


def test_a_schema_may_have_any_columns_in_any_order() -> None:
    check_schema(SCHEMA)
    texts = MapType(StringType(), StringType())
    check_schema(struct(("body", BinaryType()), ("properties", texts), ("storeTimestamp", TimestampType())))
    check_schema(schema(["body", "topic"]), Options(("s",), ("body", "topic")))


COLLATED = (
    [(struct(("topic", StringType("UTF8_LCASE"))), "schema: topic must be string, not string collate UTF8_LCASE")]
    if HAS_DATA_SOURCES  # Spark 3.5 does not have collations
    else []
)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (struct(("topic", BinaryType())), "schema: topic must be string, not binary"),
        (struct(("topic", StringType()), ("queueId", LongType())), "schema: queueId must be int, not bigint"),
        (struct(("bornTimestamp", TimestampNTZType())), "schema: bornTimestamp must be timestamp, not timestamp_ntz"),
        (struct(("properties", StringType())), "schema: properties must be map<string,string>, not string"),
        (struct(("topic", VarcharType(9))), "schema: topic must be string, not varchar(9)"),
        *COLLATED,
        (StructType().add("tags", "string", nullable=False), "schema: tags must be a nullable string, not NOT NULL"),
        (struct(("Topic", StringType())), "schema: unknown column 'Topic' (did you mean topic?); use topic, "),
        (struct(("price", StringType())), "schema: unknown column 'price'; use topic, queueId, "),
        (struct(*[("topic", StringType())] * 2), "schema: topic exists twice"),
        (struct(), "a schema without columns; to count rows, use one column, such as queueId int"),
        (schema(["body", "topic"]), "option columns='topic,body': the schema has body,topic; give one of them"),
    ],
)
def test_a_wrong_schema_is_reported(asked: StructType, why: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(f"rocketmq: {why}")):
        check_schema(asked, Options(("s",), ("topic", "body")))


# Topics that do not exist


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    with rocketc.open(tmp_path / "store", mapped_file_size_commit_log=1 << 16) as store:
        store.put("Orders", b"x")
    return tmp_path / "store"


def read(path: Path, **options: str) -> None:
    source = RocketmqSource({"path": str(path), **options})
    source.reader(source.schema())


def follow(path: Path, **options: str) -> None:
    source = RocketmqSource({"path": str(path), **options})
    source.streamReader(source.schema())


OF_TOPICS = [{"subscribe": "Order"}, {"subscribe": "Orders,Order"}, {"assign": '{"Order": [0]}'}]


@pytest.mark.parametrize("use", [read, follow])
@pytest.mark.parametrize("option", OF_TOPICS)
def test_a_topic_that_does_not_exist(orders: Path, use: Any, option: dict[str, str]) -> None:
    where = "no topic Order in this store; did you mean Orders? set failOnMissingTopic=false to read what is there"
    for path in (orders, orders / "commitlog"):
        with pytest.raises(ValueError, match=f"^rocketmq: option {next(iter(option))}: {re.escape(where)}$"):
            use(path, **option)
    use(orders, **option, failOnMissingTopic="false")
    shutil.copytree(orders / "commitlog", orders.parent / "copy")  # without queues, the driver reads the log
    with pytest.raises(ValueError, match="no topic Order in this store; did you mean Orders"):
        use(orders.parent / "copy", **option)
    use(orders.parent / "copy", **option, failOnMissingTopic="FALSE")


@pytest.mark.parametrize("use", [read, follow])
def test_topics_that_are_not_missing(orders: Path, use: Any) -> None:
    use(orders, subscribe="Orders")
    use(orders, subscribePattern="Bills.*")  # as in Kafka, a pattern may match nothing yet
    (orders.parent / "new" / "commitlog").mkdir(parents=True)
    use(orders.parent / "new", subscribe="Order")
