"""_queue_reader: get() from logs and queues that the oracle wrote."""

import gc
import os
import pickle
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import oracle
from support.oracle_stores import FILE, QUEUE_FILE, bodies, lay_down, reader

from rocketc import ClosedError, CorruptRecordError, CorruptUnitError, GetStatus, StoreIOError
from rocketc.store._queue_reader import QueueReader


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., QueueReader]:
    """read(messages, **fields): a QueueReader of a log of the messages."""

    def make(messages: Iterable[Mapping[str, Any]], *, base: int = 0, batch: Iterable[str] = (), **fields: Any) -> Any:
        lay_down(tmp_path, messages, base=base, batch=batch)
        return reader(tmp_path, **fields)

    return make


# 8.1: statuses and next offsets


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        (-1, "OFFSET_TOO_SMALL", 0),
        (0, "FOUND", 3),
        (2, "FOUND", 3),
        (3, "OFFSET_OVERFLOW_ONE", 3),
        (4, "OFFSET_OVERFLOW_BADLY", 3),
        (1 << 62, "OFFSET_OVERFLOW_BADLY", 3),
    ],
)
def test_status_and_next_offset(read, offset, status, next_offset):
    found = read(bodies(3)).get("orders", 1, offset)
    assert (found.status.name, found.next_offset) == (status, next_offset)
    assert (found.min_offset, found.max_offset) == (0, 3)
    assert [m.body for m in found] == [b"0", b"1", b"2"][max(offset, 0) :] * (status == "FOUND")
    assert bool(found) == (status == "FOUND")


def test_an_unknown_queue_is_empty(read):
    reader = read(bodies(1))
    for where in [("none", 1), ("orders", 0), ("orders", -1), ("\udcff", 1)]:
        found = reader.get(*where, 7)
        assert (found.status, found.next_offset, found.max_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0)
        assert list(found) == [] and found.buffer == b"" and not found


@pytest.mark.parametrize("check", [False, True])
def test_a_slave_keeps_the_offset_unless_configured(read, check):
    reader = read(bodies(3), broker_role="SLAVE", offset_check_in_slave=check)
    assert reader.get("orders", 1, 9).next_offset == (3 if check else 9)
    assert reader.get("orders", 1, -5).next_offset == (0 if check else -5)
    assert reader.get("none", 1, 5).next_offset == (0 if check else 5)


def test_a_message_has_the_stored_fields(read):
    reader = read(bodies(2, properties={"TAGS": "A", "KEYS": "k1 k2", "x": "y"}, born_host=("10.1.2.3", 5)))
    found = reader.get("orders", 1)
    [first, second] = found
    assert (first.topic, first.queue_id, first.queue_offset, first.phy_offset) == ("orders", 1, 0, 0)
    assert first.properties == {"TAGS": "A", "KEYS": "k1 k2", "x": "y"}
    assert (second.tags, second.keys, second.born_host) == ("A", "k1 k2", "10.1.2.3:5")
    assert first.record + second.record == found.buffer
    assert found.phy_offsets == [first.phy_offset, second.phy_offset] and found.queue_offsets == [0, 1]
    assert second.file.endswith("/commitlog/" + "0" * 20)
    assert found[1] == second and found[-2:] == [first, second] and len(found) == 2


def test_messages_have_the_path_of_their_log_file(read, tmp_path):
    found = read(bodies(150, properties={"x": "y" * 1000})).get("orders", 1, 0, 1000)
    assert [m.queue_offset for m in found] == list(range(150))
    assert {m.file for m in found} == {str(path) for path in (tmp_path / "commitlog").iterdir()}
    for m in found:
        assert int(os.path.basename(m.file)) == m.phy_offset // FILE * FILE


# damage


@pytest.mark.parametrize("to", [b"\0" * 8, b"\x7f" * 8, b"\0\0\0\0\0\0\0\x01"])
def test_a_unit_without_a_record_is_damage(read, tmp_path, to):
    read(bodies(3))
    path = tmp_path / "consumequeue/orders/1" / ("0" * 20)
    data = bytearray(path.read_bytes())
    data[20:28] = to
    path.write_bytes(data)
    again = reader(tmp_path)
    first = again.get("orders", 1)
    assert [m.queue_offset for m in first] == [0] and first.next_offset == 1
    assert first.buffer == first[0].record
    with pytest.raises(CorruptUnitError, match=r"damage at byte 20: .*rocketc rebuild") as caught:
        again.get("orders", 1, 1)
    assert (caught.value.file, caught.value.offset) == (str(path), 20)
    assert [m.queue_offset for m in again.get("orders", 1, 2)] == [2]


def test_a_damaged_body_is_reported(read, tmp_path):
    read(bodies(2))
    log = tmp_path / "commitlog" / ("0" * 20)
    data = bytearray(log.read_bytes())
    data[88] ^= 1
    log.write_bytes(data)
    again = reader(tmp_path)
    with pytest.raises(CorruptRecordError, match="bad_body_crc; crc='none'"):
        again.get("orders", 1)
    assert [m.body for m in again.get("orders", 1, crc="none")] == [b"1", b"1"]


# 8.1: what the loop scans


def test_a_filter_without_matches_stops_after_800_units(read):
    reader = read(bodies(1000, properties={"TAGS": "A"}))
    found = reader.get("orders", 1, 0, tags="B")
    assert (found.status.name, found.next_offset, found.filter_message_count) == ("NO_MATCHED_MESSAGE", 800, 800)
    found = reader.get("orders", 1, 800, tags="B")
    assert (found.status.name, found.next_offset, found.filter_message_count) == ("NO_MATCHED_MESSAGE", 1000, 200)


def test_a_larger_count_scans_more_units(read):
    assert read(bodies(1000)).get("orders", 1, 0, 900, tags="B").next_offset == 900


def test_the_scan_limit_is_configured(read):
    assert read(bodies(100), max_filter_message_size=20 * 50).get("orders", 1, 0, tags="B").next_offset == 50


def test_filtered_units_advance_the_next_offset(read):
    messages = [m | {"properties": {"TAGS": "AB"[n % 2]}} for n, m in enumerate(bodies(10))]
    found = read(messages).get("orders", 1, 1, 3, tags="A")
    assert [m.queue_offset for m in found] == [2, 4, 6]
    assert (found.next_offset, found.filter_message_count) == (7, 3)  # the count is checked before the filter


@pytest.mark.parametrize(("travel", "next_offset"), [(1, 100), (2, 200), (3, 250), (9, 250)])
def test_a_broker_scans_a_limited_number_of_queue_files(read, travel, next_offset):
    reader = read(bodies(250), travel_cq_file_num_when_get_message=travel)
    found = reader.get("orders", 1, 0, tags="B", broker_limits=True)
    assert (found.status.name, found.next_offset) == ("NO_MATCHED_MESSAGE", next_offset)
    assert reader.get("orders", 1, 0, tags="B").next_offset == 250


def test_a_broker_stops_at_the_end_of_a_queue_file(read):
    reader = read(bodies(250))
    assert [m.queue_offset for m in reader.get("orders", 1, 90, broker_limits=True)] == list(range(90, 100))
    assert [m.queue_offset for m in reader.get("orders", 1, 90)] == list(range(90, 122))
    assert len(reader.get("orders", 1, 0, 1000)) == 250


def test_messages_of_deleted_log_files_are_skipped(read, tmp_path):
    read(bodies(200, properties={"x": "y" * 1000}))
    files = sorted((tmp_path / "commitlog").iterdir())
    assert len(files) > 3
    files[0].unlink()
    files[2].unlink()
    again = reader(tmp_path)
    found = again.get("orders", 1, 0, 1000)
    lost = {0, 2}
    assert {m.phy_offset // FILE for m in found} == set(range(len(files))) - lost
    assert (found.status, found.next_offset) == (GetStatus.FOUND, 200)
    first = again.get("orders", 1, again.queues.range("orders", 1)[0], 1)
    assert first.status is GetStatus.FOUND or first.status is GetStatus.MESSAGE_WAS_REMOVING


def test_a_unit_of_a_lost_record_counts_as_removed(read, tmp_path):
    read(bodies(3))
    path = tmp_path / "consumequeue/orders/1" / ("0" * 20)
    data = bytearray(path.read_bytes())
    data[20:40] = (0).to_bytes(8, "big") + (0x7FFFFFFF).to_bytes(4, "big") + bytes(8)
    path.write_bytes(data)
    again = reader(tmp_path)
    assert [m.queue_offset for m in again.get("orders", 1)] == [0, 2]
    found = again.get("orders", 1, 1, 1)
    assert [m.queue_offset for m in found] == [2] and found.next_offset == 3


def test_a_missing_queue_file_is_skipped(read, tmp_path):
    reader = read(bodies(250))
    assert len(reader.get("orders", 1, 0, 250)) == 250
    found = read_without_second_file(tmp_path)
    assert (found.status, found.next_offset) == (GetStatus.OFFSET_FOUND_NULL, 200)


def read_without_second_file(root: Path) -> Any:
    again = reader(root)
    (root / "consumequeue/orders/1" / f"{QUEUE_FILE:020}").unlink()
    return again.get("orders", 1, 150)


# 8.2: limits


def test_a_caller_gets_the_requested_number_of_messages(read):
    reader = read(bodies(100))
    assert [len(reader.get("orders", 1, 0, n)) for n in (1, 32, 33, 100, 1000)] == [1, 32, 33, 100, 100]
    assert [len(reader.get("orders", 1, 0, n, broker_limits=True)) for n in (0, 1, 32, 33, 1000)] == [1, 1, 32, 32, 32]


def test_the_first_message_is_returned_whatever_its_size(read):
    reader = read(bodies(3, properties={"x": "y" * 5000}))
    assert len(reader.get("orders", 1, max_bytes=1)) == 1
    size = reader.get("orders", 1)[0].store_size
    assert [len(reader.get("orders", 1, max_bytes=n)) for n in (size, 2 * size - 1, 2 * size, 3 * size)] == [1, 1, 2, 3]


def test_the_smallest_byte_limit_of_a_broker_is_100(read):
    reader = read([m | {"topic": "t", "body": b""} for m in bodies(3)])
    [first, *_] = reader.get("t", 1)
    assert first.store_size < 100
    assert len(reader.get("t", 1, max_bytes=1, broker_limits=True)) == 1
    assert len(reader.get("t", 1, max_bytes=2 * first.store_size)) == 2


def test_limits_in_memory_and_on_disk(read):
    reader = read(bodies(60))
    assert len(reader.get("orders", 1, 0, 64, broker_limits=True)) == 32
    reader._set_memory(0)
    found = reader.get("orders", 1, 0, 64, broker_limits=True)
    assert len(found) == 8 and found.suggest_pulling_from_slave
    reader._set_memory(1 << 40)
    assert not reader.get("orders", 1, 0, 64).suggest_pulling_from_slave


def test_byte_limits_in_memory_and_on_disk(read):
    reader = read(bodies(60, properties={"x": "y" * 30000}))
    size = reader.get("orders", 1)[0].store_size
    assert len(reader.get("orders", 1, broker_limits=True)) == 262144 // size
    reader._set_memory(0)
    assert len(reader.get("orders", 1, broker_limits=True)) == 65536 // size


def test_the_limits_are_configured(read):
    limits = {"max_transfer_count_on_message_in_memory": 5, "max_transfer_count_on_message_in_disk": 3}
    reader = read(bodies(60), **limits, access_message_in_memory_max_ratio=100)
    assert len(reader.get("orders", 1, broker_limits=True)) == 5
    reader._set_memory(0)
    assert len(reader.get("orders", 1, broker_limits=True)) == 3


def test_pulling_32_20_and_10_from_32_messages(read):
    reader = read(bodies(32))
    for limits in (True, False):
        assert [len(reader.get("orders", 1, 0, n, broker_limits=limits)) for n in (32, 20, 10)] == [32, 20, 10]


# 8.3: tags


def tagged(*tags: str | None) -> list[dict[str, Any]]:
    return [m | {"properties": {"TAGS": tag} if tag else {}} for m, tag in zip(bodies(len(tags)), tags, strict=True)]


@pytest.mark.parametrize(
    ("tags", "offsets"),
    [
        (None, [0, 1, 2, 3]),
        ("*", [0, 1, 2, 3]),
        ("", [0, 1, 2, 3]),
        ("A", [0]),
        ("A||C", [0, 3]),
        (" A || C ", [0, 3]),
        (["A", "C"], [0, 3]),
        ({"A || B"}, [0, 1]),
        (["*", "A"], [0, 1, 2, 3]),
        ([], []),
        ("||", []),
        ("D", []),
    ],
)
def test_tags(read, tags, offsets):
    found = read(tagged("A", "B", None, "C")).get("orders", 1, tags=tags)
    assert [m.queue_offset for m in found] == offsets
    assert found.next_offset == 4


def test_tags_with_the_same_hash_are_distinguished(read):
    reader = read(tagged("Aa", "BB", "Aa", "\N{CJK UNIFIED IDEOGRAPH-9375}", ""))
    assert [m.tags for m in reader.get("orders", 1, tags="Aa")] == ["Aa", "Aa"]
    assert [m.tags for m in reader.get("orders", 1, tags="BB")] == ["BB"]
    assert [m.tags for m in reader.get("orders", 1, tags="BB", exact_tags=False)] == ["Aa", "BB", "Aa"]
    assert [m.tags for m in reader.get("orders", 1, tags="BB", max_count=1)] == ["BB"]
    assert len(reader.get("orders", 1, tags="\N{CJK UNIFIED IDEOGRAPH-9375}")) == 1


def test_delayed_messages_are_selected_by_tag_although_units_have_times(read):
    messages = [
        m | {"topic": "SCHEDULE_TOPIC_XXXX", "properties": {"TAGS": "AB"[n % 2], "DELAY": "3"}}
        for n, m in enumerate(bodies(4))
    ]
    reader = read(messages)
    assert [m.queue_offset for m in reader.get("SCHEDULE_TOPIC_XXXX", 1, tags="B")] == [1, 3]
    assert len(reader.get("SCHEDULE_TOPIC_XXXX", 1, tags="B", exact_tags=False)) == 0


# light queues and batch queues


def test_a_light_queue_has_its_own_offsets(read):
    messages = [
        m
        | {
            "properties": {
                "INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b" if n % 2 else "%LMQ%b",
                "INNER_MULTI_QUEUE_OFFSET": f"{n // 2},{n}" if n % 2 else f"{n}",
            }
        }
        for n, m in enumerate(bodies(6))
    ]
    reader = read(messages)
    found = reader.get("%LMQ%a", 0, 1)
    assert [m.queue_offset for m in found] == [3, 5] and found.queue_offsets == [1, 2]
    assert {m.topic for m in found} == {"orders"}
    assert reader.get("%LMQ%b").queue_offsets == list(range(6))
    assert reader.get("%LMQ%c").status is GetStatus.NO_MESSAGE_IN_QUEUE


def batches(*sizes: int, **fields: Any) -> list[dict[str, Any]]:
    """Inner batches of topic b; message n has body n and alternately tag A or B."""
    out: list[dict[str, Any]] = []
    at = 0
    for size in sizes:
        entries = [(n, b"%d" % n, {"TAGS": "AB"[n % 2]}) for n in range(at, at + size)]
        pairs = {"INNER_NUM": str(size), "INNER_BASE": str(at)}
        body = oracle.encode_batch(entries)
        out.append({"topic": "b", "body": body, "queue_offset": at, "sys_flag": 0xC0, "properties": pairs, **fields})
        at += size
    return out


def test_inner_batches_are_decoded(read):
    reader = read(batches(3, 1, 4), batch=["b"])
    found = reader.get("b")
    assert [(m.queue_offset, m.body, m.flag) for m in found] == [(n, b"%d" % n, n) for n in range(8)]
    assert (len(found), found.next_offset, found.max_offset, found.queue_offsets) == (8, 8, 8, [0, 3, 4])
    assert found[0].record == found[2].record == found.buffer[: found[0].store_size]
    assert [m.queue_offset for m in reader.get("b", 0, 5)] == [5, 6, 7]  # from inside a batch
    whole = reader.get("b", 0, 1, unwrap=False)
    assert [m.queue_offset for m in whole] == [0, 3, 4] and whole[0].body == whole[0].stored_body


def test_a_batch_counts_as_the_number_of_its_messages(read):
    reader = read(batches(3, 1, 4), batch=["b"])
    assert [len(reader.get("b", 0, 0, n)) for n in (1, 3, 4, 7, 8)] == [3, 3, 4, 4, 8]
    assert [reader.get("b", 0, 0, n).next_offset for n in (1, 4, 8)] == [3, 4, 8]


def test_tags_of_a_batch_are_those_of_its_messages(read):
    reader = read(batches(3, 1, 4), batch=["b"])
    found = reader.get("b", tags="B")
    assert [m.queue_offset for m in found] == [1, 3, 5, 7]
    assert reader.get("b", tags="C").filter_message_count == 8
    assert reader.get("b", tags="B", exact_tags=False).status is GetStatus.NO_MATCHED_MESSAGE  # no tags codes in units


def test_a_batch_that_cannot_be_decoded(read):
    [broken] = batches(2)
    reader = read([broken | {"body": broken["body"][:-1]}], batch=["b"])
    with pytest.raises(CorruptRecordError, match="bad_inner_batch; unwrap=False"):
        list(reader.get("b"))
    assert len(reader.get("b", unwrap=False)) == 1


def test_compressed_bodies(read):
    packed = zlib.compress(b"plain" * 100)
    reader = read([m | {"body": packed, "sys_flag": 0x301} for m in bodies(2)])
    assert [m.body for m in reader.get("orders", 1)] == [b"plain" * 100] * 2
    assert [m.body for m in reader.get("orders", 1, decompress=False)] == [packed] * 2
    assert reader.get("orders", 1)[0].stored_body == packed


def test_a_body_that_cannot_be_decompressed(read):
    reader = read([m | {"body": b"no zlib", "sys_flag": 0x301} for m in bodies(1)])
    with pytest.raises(CorruptRecordError, match="bad_compression; decompress=False"):
        reader.get("orders", 1).messages  # noqa: B018
    assert reader.get("orders", 1, decompress=False)[0].body == b"no zlib"


# views


def test_views_point_into_the_mapped_file(read):
    reader = read(bodies(3, properties={"TAGS": "A", "x": "y"}, topic="t"))
    with reader.get("t", 1, views=True) as found:
        copies = list(reader.get("t", 1))
        for m, copy in zip(found, copies, strict=True):
            assert isinstance(m.body, memoryview) and m.body.readonly and m.body == copy.body
            assert (m.topic, m.properties, m.msg_id, m.record) == (
                copy.topic,
                copy.properties,
                copy.msg_id,
                copy.record,
            )
            assert m == copy and m.stored_body == copy.body and m.to_json() == copy.to_json()
            assert pickle.loads(pickle.dumps(m)) == copy and repr(m) == repr(copy)
        kept = found[0].body
        with pytest.raises(BufferError, match="still in use"):
            found.release()
        kept.release()
    with pytest.raises(ClosedError):
        found[1].body  # noqa: B018
    assert found[1].topic == "t"


def test_views_outlive_the_result_and_the_reader(read):
    body = read(bodies(3)).get("orders", 1, views=True)[2].body
    gc.collect()
    assert bytes(body) == b"2"


def test_views_of_batched_and_compressed_bodies_are_copies(read):
    packed = zlib.compress(b"plain")
    messages = [m | ({"body": packed, "sys_flag": 0x301} if n == 1 else {}) for n, m in enumerate(bodies(3))]
    found = read(messages).get("orders", 1, views=True)
    assert [type(m.body) for m in found] == [memoryview, bytes, memoryview]
    assert [bytes(m.body) for m in found] == [b"0", b"plain", b"2"]
    found = read_again(found).get("orders", 1, views=True, decompress=False)
    assert [bytes(m.body) for m in found] == [b"0", packed, b"2"]


def read_again(found: Any) -> QueueReader:
    return reader(Path(found[0].file).parents[1])


def test_a_read_can_continue_after_a_damaged_unit(read, tmp_path):
    read(bodies(3))
    path = tmp_path / "consumequeue/orders/1" / ("0" * 20)
    data = bytearray(path.read_bytes())
    data[8:12] = (9999).to_bytes(4, "big")
    path.write_bytes(data)
    for views in (False, True):
        again = reader(tmp_path)
        with pytest.raises(CorruptUnitError):
            again.get("orders", 1, views=views)
        assert len(again.get("orders", 1, 1, views=views)) == 2


# a log file that another process cuts


def test_a_log_file_that_becomes_shorter_is_an_error_not_a_crash(read, tmp_path):
    reader = read(bodies(100, properties={"x": "y" * 500}))
    assert len(reader.get("orders", 1, 0, 100)) == 100
    os.truncate(tmp_path / "commitlog" / ("0" * 20), 8192)
    with pytest.raises(StoreIOError, match="became shorter"):
        reader.get("orders", 1, 50, 50)


# arguments


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"topic": b"orders"}, TypeError, "topic"),
        ({"topic": None}, TypeError, "topic"),
        ({"queue_id": "1"}, TypeError, "queue_id: expected int, got str"),
        ({"queue_id": 1 << 31}, ValueError, "queue_id is 2147483648; allowed are -2147483648 to 2147483647"),
        ({"offset": 1.0}, TypeError, "offset: expected int, got float"),
        ({"offset": 1 << 70}, ValueError, "offset is 1180591620717411303424; allowed are"),
        ({"max_count": 0}, ValueError, "max_count is 0; allowed are 1 to 2147483647"),
        ({"max_bytes": 0}, ValueError, "max_bytes is 0; allowed are 1 to"),
        ({"tags": 5}, TypeError, "'int' object is not iterable"),
        ({"tags": [b"A"]}, TypeError, "tags: expected str, got bytes"),
        ({"crc": "yes"}, ValueError, "crc is 'yes'; allowed are 'none', 'body', 'full'"),
    ],
)
def test_wrong_arguments_are_refused(read, given, error, text):
    with pytest.raises(error, match=text):
        read(bodies(1)).get(**{"topic": "orders", "queue_id": 1, **given})


# against a model


@given(data=st.data())
@settings(max_examples=60)
def test_random_puts_agree_with_a_model_in_python(tmp_path_factory, data):
    root = tmp_path_factory.mktemp("model")
    messages, next_offset = [], {}
    for n in range(data.draw(st.integers(1, 60), label="messages")):
        where = data.draw(st.sampled_from([("a", 0), ("a", 1), ("b", 0)]))
        tags = data.draw(st.sampled_from([None, "Aa", "BB", "C"]))
        size = data.draw(st.sampled_from([0, 10, 700, 9000]))
        messages.append(
            {
                "topic": where[0],
                "queue_id": where[1],
                "queue_offset": next_offset.get(where, 0),
                "body": b"%d" % n * size,
                "properties": {"TAGS": tags} if tags else {},
            }
        )
        next_offset[where] = next_offset.get(where, 0) + 1
    lay_down(root, messages)
    under_test = reader(root)
    records = oracle.records(oracle.walk_log(oracle.read_log(root / "commitlog")))
    for _ in range(8):
        topic, queue_id = data.draw(st.sampled_from([("a", 0), ("a", 1), ("b", 0)]))
        queue = [r for r in records if (r["topic"], r["queueId"]) == (topic, queue_id)]
        offset = data.draw(st.integers(-1, len(queue) + 1))
        count = data.draw(st.integers(1, 40))
        tags = data.draw(st.sampled_from([None, {"Aa"}, {"BB", "C"}, {"D"}]))
        limits, exact = data.draw(st.booleans()), data.draw(st.booleans())
        most = data.draw(st.sampled_from([None, 200, 5000, 100_000]))
        found = under_test.get(
            topic, queue_id, offset, count, tags=tags, max_bytes=most, broker_limits=limits, exact_tags=exact
        )
        wanted = specified(queue, offset, count, tags, most, limits, exact)
        assert (found.status.name, found.next_offset, found.phy_offsets) == wanted
        assert found.buffer == b"".join(m.record for m in found)
        raw = under_test.get_raw(
            topic, queue_id, offset, count, tags=tags, max_bytes=most, broker_limits=limits, exact_tags=exact
        )
        assert (raw.status.name, raw.next_offset, raw.phy_offsets) == wanted
        assert b"".join(raw) == b"".join(raw.views) == found.buffer
        assert (raw.queue_offsets, raw.filter_message_count) == (found.queue_offsets, found.filter_message_count)


def specified(
    queue: list[Any], offset: int, count: int, tags: set[str] | None, most: int | None, limits: bool, exact: bool
) -> tuple[str, int, list[int]]:
    """Return status, next offset and physical offsets as getMessage does."""
    if not queue:
        return "NO_MESSAGE_IN_QUEUE", 0, []
    if offset < 0:
        return "OFFSET_TOO_SMALL", 0, []
    if offset >= len(queue):
        return "OFFSET_OVERFLOW_ONE" if offset == len(queue) else "OFFSET_OVERFLOW_BADLY", len(queue), []
    most = max(min(most or 128 << 20, 128 << 20), 100) if limits else most or 128 << 20
    codes = {oracle.java_hash(tag) for tag in tags or ()}
    taken: list[int] = []
    total, next_offset = 0, offset
    for record in queue[offset : offset // 100 * 100 + 100 if limits else None]:
        size, tag = record["storeSize"], record["tags"]
        if taken:
            if len(taken) + 1 > count or total + size > most or total >= most:
                break
            if limits and (total + size > 262144 or len(taken) > 31):
                break
        next_offset += 1
        if tags is not None and (oracle.java_hash(tag) if tag else 0) not in codes:
            continue
        if tags is not None and exact and tag not in tags:
            continue
        taken.append(record["physicalOffset"])
        total += size
    return "FOUND" if taken else "NO_MATCHED_MESSAGE", next_offset, taken
