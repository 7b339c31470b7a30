"""Rows of Arrow batches as messages for a cluster, without Spark and without a cluster."""

import datetime
from typing import Any

import pyarrow as pa
import pytest

from rocketc.client.batching import BulkMessage, NewMessage
from rocketc.spark.cluster_rows import CHUNK_ROWS, RowFault, Rows

pytestmark = pytest.mark.spark

MAP = pa.map_(pa.string(), pa.string())


def one(rows: Rows | None = None, **columns: Any) -> Any:
    """The message of a batch with one row."""
    columns = {"topic": ["t"], "body": [b"x"], **columns}
    [group] = (rows or Rows()).groups(pa.record_batch(columns))
    assert (group.topic, group.rows) == ("t", [0])
    return group.messages[0]


def test_plain_rows_are_bodies_or_new_messages() -> None:
    assert one() == b"x"
    found = one(tags=["a"], keys=["k"], flag=[7])
    assert type(found) is NewMessage and found == NewMessage(b"x", "a", "k", None, 7)
    assert one(tags=pa.array([None], pa.string()), keys=[""]) == NewMessage(b"x")
    assert one(storeHost=["h"], queueOffset=[7], msgId=["m"]) == b"x"  # columns that are read and not written


def test_all_columns() -> None:
    at = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
    found = one(
        Rows(None, "order"), order=[17], queueId=[3], shard=["c-7"], delayLevel=[2], delay=[1.5],
        deliverAt=pa.array([at], pa.timestamp("us", "America/St_Johns")), properties=pa.array([[("own", "v")]], MAP),
    )  # fmt: skip
    assert found == BulkMessage(b"x", None, None, {"own": "v"}, 0, "17", 3, "c-7", 2, 1.5, 1_767_225_600_000)
    nulls = {name: pa.array([None], pa.int32()) for name in ("queueId", "delayLevel", "flag")}
    nulls |= {"deliverAt": pa.array([None], pa.timestamp("us", "UTC")), "properties": pa.array([None], MAP)}
    assert one(**nulls) == BulkMessage(b"x")


def test_properties_of_a_message_that_was_read() -> None:
    read = [
        ("UNIQ_KEY", "7F"), ("WAIT", "true"), ("TAGS", "a"), ("KEYS", "k"), ("__SHARDINGKEY", "c-7"),
        ("MIN_OFFSET", "0"), ("own", "v"),
    ]  # fmt: skip
    properties = pa.array([read], MAP)
    assert one(properties=properties) == BulkMessage(b"x", "a", "k", {"own": "v"}, shard="c-7")
    assert one(properties=properties, tags=["b"], shard=["d"]) == BulkMessage(b"x", "b", "k", {"own": "v"}, shard="d")
    assert one(Rows(None, "msgId"), properties=properties, msgId=["7F"]).key == "7F"


def test_groups_of_topics_and_chunks() -> None:
    topics = ["a", "b"] * CHUNK_ROWS
    batch = pa.record_batch({"topic": topics, "body": [b"%d" % i for i in range(2 * CHUNK_ROWS)]})
    rows = Rows()
    groups = [*rows.groups(batch), *rows.groups(batch)]
    assert [(group.topic, group.rows[:2], len(group.rows)) for group in groups] == [
        ("a", [0, 2], 500), ("b", [1, 3], 500), ("a", [1000, 1002], 500), ("b", [1001, 1003], 500),
        ("a", [2000, 2002], 500), ("b", [2001, 2003], 500), ("a", [3000, 3002], 500), ("b", [3001, 3003], 500),
    ]  # fmt: skip
    assert groups[7].messages[0] == b"1001"
    [group] = Rows("own").groups(pa.record_batch({"topic": ["a", None], "body": [b"1", b"2"]}))
    assert group == ("own", [b"1", b"2"], [0, 1])  # the option wins


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"topic": ["t", None]}, "the column topic is null"),
        ({"body": [b"x", None]}, "the column body is null"),
        ({"id": ["x", None]}, "the column id is null"),
        ({"sysFlag": [0, 1], "bodyCRC": pa.array([0, None], pa.int32())}, "the body is compressed"),
    ],
)
def test_rows_that_cannot_be_messages(columns: dict[str, Any], text: str) -> None:
    batch = pa.record_batch({"topic": ["t", "t"], "body": [b"x", b"secret"], "id": ["o-1", "o-2"], **columns})
    rows = Rows(None, "id")
    with pytest.raises(RowFault, match=text) as caught:
        list(rows.groups(batch))
    assert caught.value.row == 1
    told = rows.describe(1)
    assert told.startswith("row 1 (id=") and "secret" not in told


def test_a_row_is_described_by_its_first_columns() -> None:
    rows = Rows()
    names = {name: ["x" * 500] for name in ("k1", "k2", "k3", "k4")}
    properties = pa.array([[("password", "secret")]], MAP)
    for i in range(100):
        list(rows.groups(pa.record_batch({"body": [b"secret"], "topic": ["t"], "properties": properties, **names})))
        assert rows.describe(i).startswith(f"row {i} (topic='t', k1='xxx")
        assert "secret" not in rows.describe(i) and len(rows.describe(i)) < 400 and "k4" not in rows.describe(i)
    assert rows.describe(0) == "row 0"  # it is not kept any more


def test_large_rows_become_python_objects_in_small_parts() -> None:
    batch = pa.record_batch({"body": [bytes(1 << 20)] * 20, "keys": ["k"] * 20})
    rows = Rows("t")
    assert [len(group.rows) for group in rows.groups(batch)] == [7, 7, 6]
    assert [len(group.rows) for group in rows.groups(pa.record_batch({"body": [bytes(20 << 20)] * 2}))] == [1, 1]
    assert all("body" not in chunk.schema.names for _, chunk in rows._chunks)  # bodies of sent rows are not kept
