"""Prepared records: one call from C that puts several records has the same result as a put() for each record."""

import itertools
import shutil
import tempfile
import threading
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import extension
from support.put_checks import bodies, records

import rocketc
from rocketc.status import PutStatus

KIB = 1 << 10
V4, V6 = bytes([10, 1, 2, 3]) + (10911).to_bytes(4, "big"), bytes(range(16)) + (10911).to_bytes(4, "big")
PREPARED, COMMIT, ROLLBACK, INNER_BATCH, BORN_V6 = 4, 8, 12, 0x80, 0x10


@pytest.fixture(scope="module")
def native():
    return extension.load("puts")


def log_of(store):
    """The bytes of the log up to its end."""
    store.flush()
    folder = Path(store.path) / "commitlog"
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))[: store.max_phy_offset]


def test_each_record_has_its_position(open_store, native):
    store = open_store()
    topics = [b"orders", b"audit", b"orders", b"orders"]
    rows = [{"topic": t, "body": b"b" * n, "queue_id": n % 2} for n, t in enumerate(topics)]
    found = native.put(store, rows)
    assert [status for status, *_ in found] == [PutStatus.PUT_OK] * 4
    assert [queue_offset for *_, queue_offset, _ in found] == [0, 0, 1, 1 - 1]
    assert [(m["physicalOffset"], m["queueOffset"], m["storeTimestamp"]) for m in records(store)] == [
        (at, queue_offset, ms) for _, at, _, queue_offset, ms in found
    ]
    assert [end for _, _, end, *_ in found] == [*(at for _, at, *_ in found[1:]), store.max_phy_offset]


def test_all_fields(open_store, native):
    store = open_store(store_host=("10.9.9.9", 1))
    row = {"topic": b"t", "body": b"body", "queue_id": 7, "flag": 3, "reconsume_times": 2, "prepared_offset": 99}
    native.put(store, [row | {"props": b"KEYS\1k\2TAGS\1a", "born_timestamp": 5, "born_host": V6, "sys_flag": BORN_V6}])
    native.put(store, [row | {"store_host": V4, "born_host": V4}, row])
    first, second, third = rocketc.scan(store.path)
    assert (first.queue_id, first.flag, first.reconsume_times, first.prepared_transaction_offset) == (7, 3, 2, 99)
    assert (first.properties, first.born_timestamp) == ({"KEYS": "k", "TAGS": "a"}, 5)
    assert (first.born_host, first.store_host) == ("[1:203:405:607:809:a0b:c0d:e0f]:10911", "10.9.9.9:1")
    assert (second.born_host, second.store_host) == ("10.1.2.3:10911", "10.1.2.3:10911")
    assert (third.born_host, third.store_host) == ("10.9.9.9:1", "10.9.9.9:1")
    assert third.born_timestamp == third.store_timestamp


def test_a_refused_record_does_not_stop_the_others(open_store, native):
    store = open_store(max_message_size=100, auto_create_topic_enable=False)
    store.create_topic("t")
    rows = [
        {"topic": b"t", "body": b"1"},
        {"topic": b"t", "body": bytes(101)},
        {"topic": b"t", "body": b"2", "props": bytes(32768)},
        {"topic": b"a/b", "body": b"3"},
        {"topic": b"\xff", "body": b"4"},
        {"topic": b"t" * 128, "body": b"5"},
        {"topic": b"unknown", "body": b"6"},
        {"topic": b"t", "body": b"7", "props": b"INNER_NUM\0012\2"},
        {"topic": b"t", "body": b"8", "expected": 9},
        {"topic": b"t", "body": b"9"},
    ]
    statuses = [status for status, *_ in native.put(store, rows)]
    illegal = PutStatus.MESSAGE_ILLEGAL
    assert statuses == [
        *(PutStatus.PUT_OK, illegal, PutStatus.PROPERTIES_SIZE_EXCEEDED, illegal, illegal, illegal, illegal, illegal),
        *(PutStatus.UNKNOWN_ERROR, PutStatus.PUT_OK),
    ]
    assert bodies(store.path) == [b"1", b"9"]
    assert [m["queueOffset"] for m in records(store)] == [0, 1]


def test_in_order_stops_at_the_first_refused_record(open_store, native):
    store = open_store(max_message_size=100)
    native.put(store, [{"topic": b"t", "body": body} for body in (b"1", bytes(101), b"2")], in_order=True)
    assert bodies(store.path) == [b"1"]


def test_a_batch_is_stored_whole_or_not_at_all(open_store, native):
    store = open_store(max_message_size=100)
    batch = [
        {"topic": b"t", "body": b"a", "batch": 3},
        {"topic": b"t", "body": bytes(101)},
        {"topic": b"u", "body": b""},
    ]
    found = native.put(store, [{"topic": b"t", "body": b"before"}, *batch, {"topic": b"t", "body": b"behind"}])
    assert [status.is_stored for status, *_ in found] == [True, False, False, False, True]
    for broken in ({"topic": b"a/b", "body": b""}, {"topic": b"t", "body": b"", "props": b"INNER_NUM\0012\2"}):
        found = native.put(store, [{"topic": b"t", "body": b"a", "batch": 2}, broken])
        assert [status.is_stored for status, *_ in found] == [False, False]
    assert bodies(store.path) == [b"before", b"behind"]


def test_a_batch_with_a_record_without_queue_offsets_is_refused_whole(open_store, native):
    """Such a record is put alone, so the batch would be split."""
    store = open_store(enable_lmq=True, enable_multi_dispatch=True)
    inner = {"topic": b"t", "body": b"", "props": b"INNER_NUM\0012\2", "sys_flag": INNER_BATCH}
    light = {"topic": b"t", "body": b"", "props": b"INNER_MULTI_DISPATCH\1%LMQ%a\2"}
    for row in (inner, light):
        batch = [{"topic": b"t", "body": b"first", "batch": 3}, row, {"topic": b"t", "body": b"last"}]
        found = native.put(store, [*batch, {"topic": b"t", "body": b"behind"}])
        assert [status for status, *_ in found] == [PutStatus.MESSAGE_ILLEGAL] * 3 + [PutStatus.PUT_OK]
    assert bodies(store.path) == [b"behind"] * 2
    with pytest.raises(rocketc.IllegalMessageError, match="lacks queue offsets"):
        store.put_batch("t", [(0, b"a", None), (0, b"b", b"INNER_NUM\0012\2")], sys_flag=INNER_BATCH)
    assert bodies(store.path) == [b"behind"] * 2


def test_a_batch_is_stored_in_one_file(open_store, native):
    store = open_store(mapped_file_size_commit_log=4 * KIB)
    for _ in range(5):
        found = native.put(
            store, [{"topic": b"t", "body": bytes(500), "batch": 3}, *[{"topic": b"t", "body": bytes(500)}] * 2]
        )
        assert len({at // (4 * KIB) for _, at, *_ in found}) == 1
        assert found[0][2] == found[1][1]
        assert found[1][2] == found[2][1]
    found = native.put(store, [{"topic": b"t", "body": bytes(2000), "batch": 2}, {"topic": b"t", "body": bytes(2000)}])
    assert [status for status, *_ in found] == [PutStatus.MESSAGE_ILLEGAL] * 2


def test_more_records_than_are_put_under_one_lock(open_store, native):
    store = open_store(mapped_file_size_commit_log=64 * KIB)
    rows = [{"topic": b"t%d" % (n % 100), "body": b"%d" % n} for n in range(3000)]
    found = native.put(store, rows)
    assert [m.body for m in rocketc.scan(store.path)] == [row["body"] for row in rows]
    assert [queue_offset for *_, queue_offset, _ in found] == [n // 100 for n in range(3000)]


def test_topics_are_created_as_by_put(open_store, native):
    store = open_store()
    store.create_topic("first")
    native.put(store, [{"topic": b"second", "body": b""}])
    assert set(store.topics()) == {"first", "second"}
    store.delete_topics(["second"])
    assert native.put(store, [{"topic": b"second", "body": b""}])[0][3] == 0
    assert set(store.topics()) == {"first", "second"}


def test_a_topic_that_is_deleted_while_a_put_waits_is_created_again(open_store):
    """The waiting put has found that the topic exists; it and later puts must check again."""
    store = open_store()
    store.create_topic("t")
    ended = threading.Event()

    def puts():
        while not ended.is_set():
            store.put("t", bytes(5000))

    thread = threading.Thread(target=puts)
    thread.start()
    for _ in range(20):
        store.delete_topics("t")
    ended.set()
    thread.join(60)
    store.put("t", b"")
    assert set(store.topics()) == {"t"}


def test_queue_offsets_in_the_properties(open_store, native):
    """INNER_BASE and the offsets of light queues are added, also among records that do not need them."""
    store = open_store(enable_lmq=True, enable_multi_dispatch=True)
    light = {"topic": b"t", "body": b"", "props": b"INNER_MULTI_DISPATCH\1%LMQ%a,%LMQ%b\2"}
    batch = {"topic": b"b", "body": b"", "props": b"INNER_NUM\0013\2", "sys_flag": INNER_BATCH}
    found = native.put(store, [{"topic": b"t", "body": b""}, light, light, batch, {"topic": b"t", "body": b""}, batch])
    assert [(status.name, offset) for status, *_, offset, _ in found] == [
        ("PUT_OK", n) for n in (0, 1, 2, 0, 3, 3)
    ]  # fmt: skip
    properties = [m["properties"] for m in records(store)]
    assert [p.get("INNER_MULTI_QUEUE_OFFSET") for p in properties[1:3]] == ["0,0", "1,1"]
    assert [p.get("INNER_BASE") for p in (properties[3], properties[5])] == ["0", "3"]


def test_a_store_that_refuses_puts(open_store, native, tmp_path):
    row = {"topic": b"t", "body": b""}
    slave = open_store(broker_role="SLAVE")
    with pytest.raises(rocketc.ClosedError, match="slave"):
        native.put(slave, [row])
    slave.close()
    with pytest.raises(rocketc.ClosedError, match="closed"):
        native.put(slave, [row])
    with rocketc.open(slave.path, read_only=True) as reader, pytest.raises(rocketc.ClosedError, match="reading"):
        native.put(reader, [row])


def test_a_failed_store_reports_each_record(open_store, native):
    store = open_store()
    store._hook("fail", 5)
    assert [status for status, *_ in native.put(store, [{"topic": b"t", "body": b""}] * 2)] == [
        PutStatus.SERVICE_NOT_AVAILABLE
    ] * 2
    with pytest.raises(rocketc.StoreFailedError):
        store.close()


def test_threads_that_put_into_queues_in_any_order(open_store, native):
    """Each call locks several queues: there is no deadlock, and no offset is used twice."""
    store = open_store(mapped_file_size_commit_log=256 * KIB)
    names = [b"t%d" % n for n in range(40)]

    def work(seed):
        for round_ in range(30):
            order = names[seed * 7 % 40 :] + names[: seed * 7 % 40]
            order = order[::-1] if (seed + round_) % 2 else order
            native.put(store, [{"topic": name, "body": b"%d" % seed * 200} for name in order])
            store.put("t3", b"one")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    by_queue = Counter()
    for m in rocketc.scan(store.path):
        assert m.queue_offset == by_queue[m.topic]
        by_queue[m.topic] += 1
    assert by_queue.total() == 6 * 30 * 41


def test_a_call_waits_while_one_of_its_topics_is_deleted(open_store, native):
    """A later record of another topic stays after the record that waits."""
    store = open_store()
    native.put(store, [{"topic": b"gone", "body": b"old"}])
    offsets = native.offsets_of(store)
    offsets.hold({b"gone"})
    done = threading.Event()

    def put():
        native.put(store, [{"topic": b"gone", "body": b"1"}, {"topic": b"other", "body": b"2"}])
        done.set()

    thread = threading.Thread(target=put)
    thread.start()
    assert not done.wait(0.1)
    offsets.release()
    thread.join(30)
    assert bodies(store.path) == [b"old", b"1", b"2"]


# ------------------------------------------------------------------------------- one call against put() one by one

ROW = st.fixed_dictionaries(
    {
        "topic": st.sampled_from([b"orders", b"audit", b"\xc3\xa9", b"a/b", b"", b"x" * 127, b"x" * 128, b"new\n"]),
        "body": st.sampled_from([b"", b"b", bytes(100), bytes(700), bytes(1100), bytes(5000)]),
        "queue_id": st.integers(0, 2),
        "sys_flag": st.sampled_from([0, 0, 0, PREPARED, COMMIT, ROLLBACK, INNER_BATCH]),
        "flag": st.integers(-(2**31), 2**31 - 1),
        "props": st.sampled_from([b"", b"KEYS\1k\2", b"TAGS\1a", b"I\1\2", b"INNER_NUM\0013\2", b"W\1" + bytes(33000)]),
        "born_timestamp": st.integers(-(2**63) + 1, 2**63 - 1),
    }
)


def one_by_one(store, row):
    try:
        r = store.put(
            row["topic"].decode(),
            row["body"],
            queue_id=row["queue_id"],
            sys_flag=row["sys_flag"],
            flag=row["flag"],
            properties=row["props"],
            born_timestamp=row["born_timestamp"],
        )
    except rocketc.IllegalMessageError as error:
        return error.status, -1
    return r.status, r.queue_offset


@given(st.lists(st.lists(ROW, max_size=12), max_size=6), st.booleans())
@settings(max_examples=40)
def test_one_call_equals_single_puts(calls, property_crc):
    native = extension.load("puts")
    config = {
        "mapped_file_size_commit_log": 4 * KIB,
        "max_message_size": 1000,
        "enabled_append_prop_crc": property_crc,
    }
    folders = [tempfile.mkdtemp() for _ in range(2)]
    try:
        with rocketc.open(folders[0], **config) as at_once, rocketc.open(folders[1], **config) as single:
            for ms, rows in zip(itertools.count(1_700_000_000_000), calls, strict=False):
                at_once._set_clock(ms)
                single._set_clock(ms)
                found = [(status, queue_offset) for status, _, _, queue_offset, _ in native.put(at_once, rows)]
                assert found == [one_by_one(single, row) for row in rows]
            assert log_of(at_once) == log_of(single)
    finally:
        for folder in folders:
            shutil.rmtree(folder)
