"""The broker of a message: each broker of a topic has a queue 0 of its own, and a column tells them apart."""

import asyncio
import csv
import io
import json
import pickle

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rocketc
from rocketc.client import MessageQueue, Producer, PullConsumer
from rocketc.client.access import access_to
from rocketc.client.topic_lookup import TopicLookup
from rocketc.client.topic_reader import TopicReader
from rocketc.format.ids import decode_offset_id
from rocketc.read.record_block import RecordBlock, block_of, joined_blocks
from rocketc.read.record_stream import RecordStream

KEY = ("brokerName", "topic", "queueId", "queueOffset")
NAMES = ("broker-a", "broker-b")
EACH = 8  # messages of a broker


@pytest.fixture(scope="module")
def cluster():
    """The name server of two brokers with a topic of one queue each, whose messages go to both in turn."""
    with (
        rocketc.Broker() as one,
        rocketc.Broker(broker_name="broker-b", namesrv_addr=one.name_server) as two,
        Producer("shop", one.name_server) as producer,
    ):
        one.topics.create("orders", 1)
        two.topics.create("orders", 1)
        for i in range(2 * EACH):
            name = NAMES[i % 2]
            where = MessageQueue("orders", name, 0)
            producer.send("orders", b"%d" % i, keys=f"k{i // 2}", properties={"of": name}, queue=where)
        yield one.name_server


@pytest.fixture(params=["direct", "general"])
def scan(cluster, request, monkeypatch):
    if request.param == "general":
        monkeypatch.setattr(TopicReader, "direct_pulls", lambda *_, **__: None)
    return rocketc.scan(f"rocketmq://{cluster}/orders")


def test_the_messages_of_two_brokers_differ_in_their_key(scan):
    rows = scan.to_arrow().to_pylist()
    assert len({tuple(row[name] for name in KEY) for row in rows}) == len(rows) == 2 * EACH
    assert all(row["brokerName"] == dict(row["properties"])["of"] for row in rows)
    messages = list(scan)
    assert {(m.broker_name, m.queue_offset) for m in messages} == {(name, i) for name in NAMES for i in range(EACH)}
    assert all(m.broker_name == m.properties["of"] for m in messages)
    assert all(m.broker_name == m.properties["of"] for m in pickle.loads(pickle.dumps(messages)))
    of_b = rocketc.scan(str(scan.path), where=lambda m: m.broker_name == "broker-b")
    assert of_b.count() == EACH


def test_live_messages_have_it(cluster):
    with PullConsumer("audit", cluster, topics=["orders"], consume_from_where="CONSUME_FROM_FIRST_OFFSET") as consumer:
        found = []
        while len(found) < 2 * EACH:
            found += consumer.poll()
    assert {(m.broker_name, m.queue_offset) for m in found} == {(name, i) for name in NAMES for i in range(EACH)}


def test_messages_that_are_found_by_key_have_it(cluster):
    async def main():
        async with TopicLookup(access_to(cluster)) as lookup:
            found = await lookup.with_key("orders", ["k3", "k3"])
            return found, [*await lookup.at(decode_offset_id(found[0].msg_id), "orders")]

    found, [same] = asyncio.run(main())
    assert sorted((m.broker_name, m.queue_offset) for m in found) == [(name, 3) for name in NAMES]
    assert (same, same.broker_name) == (found[0], found[0].broker_name)


def test_followers_have_it(cluster):
    found = []
    for message in rocketc.scan(f"rocketmq://{cluster}/orders").follow():
        found.append(message.broker_name)
        if len(found) == 2 * EACH:
            break
    assert sorted(found) == sorted(NAMES * EACH)


def test_every_form_of_an_export_has_it(cluster, tmp_path):
    url = f"rocketmq://{cluster}/orders"
    for form in ("parquet", "jsonl", "csv"):
        rocketc.export(rocketc.scan(url), tmp_path / f"orders.{form}")
    table = pa.parquet.read_table(tmp_path / "orders.parquet")
    assert table.schema.names[:4] == ["topic", "queueId", "brokerName", "queueOffset"]
    lines = [json.loads(line) for line in (tmp_path / "orders.jsonl").read_text().splitlines()]
    rows = list(csv.DictReader(io.StringIO((tmp_path / "orders.csv").read_text())))
    assert all(row["brokerName"] == dict(row["properties"])["of"] for row in table.to_pylist())
    assert all(row["brokerName"] == row["properties"]["of"] for row in lines)
    assert all(row["brokerName"] == json.loads(row["properties"])["of"] for row in rows)
    assert [len(found) for found in (table, lines, rows)] == [2 * EACH] * 3
    assert {list(line)[2] for line in lines} == {"brokerName"}


def test_messages_of_files_lack_it(broker, producer):
    producer.send("orders", b"one")
    scan = rocketc.scan(broker.path, topics="orders")
    [row] = scan.to_arrow().to_pylist()
    [message] = scan
    assert row["brokerName"] is None and message.broker_name is None and "brokerName" not in message.to_dict()


def record(i):
    return rocketc.encode("orders", b"x" * (i % 3), queue_offset=i, phy_offset=100 * i)


@given(st.lists(st.sampled_from(["a", "b", "broker \u00e9", '"'])))
def test_every_record_of_a_block_has_its_broker(names):
    block = block_of((name, record(i)) for i, name in enumerate(names))
    scan = RecordStream("a block", lambda idle: [block, record(99), block])
    expected = [*names, None, *names]
    assert scan.to_arrow().column("brokerName").to_pylist() == expected
    messages = list(scan)
    assert [m.broker_name for m in messages] == expected
    assert [json.loads(m.to_json()) for m in messages] == [m.to_dict() for m in messages]
    for at in range(len(names)):
        parts = [
            block_of((name, record(i)) for i, name in list(enumerate(names))[slice(*cut)])
            for cut in ((at,), (at, None))
        ]
        assert (
            list(RecordStream("two blocks", lambda idle, parts=parts: [joined_blocks(parts)])) == messages[: len(names)]
        )
        found = RecordStream("two blocks", lambda idle, parts=parts: [joined_blocks(parts)])
        assert [m.broker_name for m in found] == names


def test_a_block_with_damage_and_an_inner_batch():
    bad = bytearray(record(2))
    bad[-3] ^= 1  # the topic
    bad[88] ^= 1  # the body
    block = block_of([("a", record(1)), ("b", bytes(bad)), ("c", record(3))])
    scan = RecordStream("a block", lambda idle: [block], errors="skip")
    assert scan.to_arrow().column("brokerName").to_pylist() == ["a", "c"]
    assert [one.reason for one in scan.report.damage] == ["bad_body_crc"]


def test_wrong_runs_are_refused():
    for runs, text in ((b"123", "3 bytes are not pairs"), (bytes([9, 0, 0, 0, 2, 0, 0, 0]), "broker 2 of 1")):
        with pytest.raises(ValueError, match=text):
            list(RecordStream("a block", lambda idle, runs=runs: [RecordBlock(record(1), ("a",), runs)]))
    with pytest.raises(ValueError, match="more than 1024 characters"):
        list(RecordStream("a block", lambda idle: [RecordBlock(record(1), ("a" * 1025,))]))
