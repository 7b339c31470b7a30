"""put, put_batch, put_many: the bytes that they write, and each rule of RocketMQ's CommitLog."""

import array
import itertools
import sys
import threading
import time

import psutil
import pytest
from support import oracle
from support.put_checks import items, records, refused, stored

import rocketc
from rocketc.errors import IllegalMessageError
from rocketc.status import PutStatus

V4, V6 = ("10.1.2.3", 54321), ("1050::5:600:300c:326b", 123)
CLOCK = 1_700_000_000_123
KIB, MIB = 1 << 10, 1 << 20


# ------------------------------------------------------------------------------------------------ the bytes


@pytest.mark.parametrize("property_crc", [False, True], ids=["", "crc"])
@pytest.mark.parametrize("topic", ["TopicTest", "t" * 127, "t" * 128, "é" * 100, "é" * 64])
@pytest.mark.parametrize(("born", "host"), [*itertools.product([V4, V6], repeat=2)])
def test_bytes_are_the_oracles(open_store, topic, born, host, property_crc):
    """V1 and V2, all combinations of hosts, with and without the property CRC."""
    store = open_store(enabled_append_prop_crc=property_crc, check_before_put_message=False)
    store._set_clock(CLOCK)
    fields = {
        "queue_id": 3,
        "flag": 7,
        "sys_flag": 0x2,
        "born_timestamp": CLOCK - 5,
        "born_host": born,
        "store_host": host,
        "reconsume_times": 2,
        "prepared_transaction_offset": 1 << 40,
        "properties": {"TAGS": "TagA", "KEYS": "k1 k2", "WAIT": "true", "ключ": "значение"},
    }
    for n in range(3):
        r = store.put(topic, b"hello" * n, **fields)
        assert stored(store, r) == oracle.encode(
            topic,
            b"hello" * n,
            **fields,
            queue_offset=n,
            phy_offset=r.phy_offset,
            store_timestamp=CLOCK,
            version=1
            if len(topic.encode()) <= 127
            else 2,  # Java counts chars, and writes a length that no reader can use
            property_crc=property_crc,
        )
        assert r.msg_id == oracle.message_id(oracle.host_bytes(host), r.phy_offset)


def test_other_threads_run_during_puts(open_store):
    """Small records are written with the GIL. Every 16th put releases it, long before the switch interval ends."""
    store = open_store(mapped_file_size_commit_log=1 << 26)
    done = threading.Event()

    def puts():
        while not done.is_set():
            store.put("orders", b"small")

    before = sys.getswitchinterval()
    sys.setswitchinterval(30)
    putter = threading.Thread(target=puts)
    try:
        putter.start()
        began = time.monotonic()
        for _ in range(20):
            time.sleep(0.001)
        assert time.monotonic() - began < 15
    finally:
        sys.setswitchinterval(before)
        done.set()
        putter.join()


def test_result(open_store):
    store = open_store()
    store._set_clock(CLOCK)
    store.put("t", b"")
    r = store.put("t", b"hello")
    assert (r.status, r.phy_offset, r.queue_offset, r.size, r.count) == (PutStatus.PUT_OK, 92, 1, 97, 1)
    assert (r.store_timestamp, r.end) == (CLOCK, 189)
    assert repr(r) == "PutResult(PUT_OK, phy_offset=92, queue_offset=1, size=97)"
    assert store.max_phy_offset == 189


def test_tags_and_keys(open_store):
    store = open_store()
    store.put("t", b"", tags="A", keys="k1 k2")
    store.put("t", b"", tags="A", keys=["k1", "k2"], properties={"TAGS": "x", "KEYS": "y", "a": "b", "none": None})
    store.put("t", b"", tags="", keys=(), properties={})
    store.put("t", b"", tags="A", properties=b"a\x01b")
    found = [m["storedProperties"] for m in records(store)]
    assert found[0] == b"KEYS\x01k1 k2\x02TAGS\x01A\x02"
    assert found[1] == b"a\x01b\x02KEYS\x01k1 k2\x02TAGS\x01A\x02"
    assert found[2] == b""
    assert found[3] == b"a\x01b\x02TAGS\x01A\x02"


def test_several_keys_are_one_key_each(open_store):
    store = open_store()
    with pytest.raises(IllegalMessageError, match="keys: 'order 7' contains a blank, which separates keys") as raised:
        store.put("t", b"", keys=["a", "order 7"])
    assert raised.value.status is PutStatus.MESSAGE_ILLEGAL
    with pytest.raises(IllegalMessageError, match="keys: one of them is empty; leave it out"):
        store.put_many("t", [b""], keys=["a", ""])
    with pytest.raises(TypeError, match="keys: expected str, got int"):
        store.put("t", b"", keys=[1])


@pytest.mark.parametrize(
    "properties", [b"", b"a\x01b", b"a\x01b\x02", b"\x02\x02", b"a\x01", b"no pair at all", b"a\x01b\x01c\x02"]
)
def test_stored_properties_stay_unchanged(open_store, properties):
    store = open_store()
    store.put("t", b"", properties=properties)
    assert [m["storedProperties"] for m in records(store)] == [properties]


def test_more_properties_than_fit_without_a_copy(open_store):
    store = open_store()
    many = {f"name{n}": f"value{n}" for n in range(100)}
    store.put("t", b"", properties=many, tags="A")
    assert [m["properties"] for m in records(store)] == [{**many, "TAGS": "A"}]


@pytest.mark.parametrize(
    "kind", [bytes, bytearray, memoryview, lambda b: memoryview(b"x" + b + b"y")[1:-1], lambda b: array.array("B", b)]
)
def test_bodies_are_bytes_like(open_store, kind):
    store = open_store()
    store.put("t", kind(b"hello"))
    store.put_many("t", [kind(b"hello"), b"", kind(b"world")])
    store.put_batch("t", [(0, kind(b"hello"), None)])
    assert [m["storedBody"] for m in records(store)] == [b"hello", b"hello", b"", b"world", b"hello"]


def test_born_timestamp(open_store):
    """None means the store timestamp; any other number is stored, including negative ones."""
    store = open_store()
    store._set_clock(CLOCK)
    for born in (None, 0, -1, 5, -(1 << 60)):
        store.put("t", b"", born_timestamp=born)
    assert [m["bornTimestamp"] for m in records(store)] == [CLOCK, 0, -1, 5, -(1 << 60)]


def test_store_timestamps_do_not_go_back(open_store):
    store = open_store()
    stamps = [store.put("t", b"").store_timestamp for _ in range(50)]
    assert stamps == sorted(stamps)
    assert all(m["bornTimestamp"] == m["storeTimestamp"] for m in records(store))


def test_queue_ids(open_store):
    store = open_store()
    ids = [0, 65535, 2**31 - 1]
    assert [store.put("t", b"", queue_id=n).queue_offset for n in ids] == [0] * 3
    assert [m["queueId"] for m in records(store)] == ids


# ------------------------------------------------------------------------------------------------ property CRC


def test_append_prop_crc(open_store):
    """AppendPropCRCTest: single messages and a batch of 10 are valid; a changed byte in the properties is found."""
    store = open_store(enabled_append_prop_crc=True)
    properties = {f"k{n}": f"v{n}" for n in range(6)}
    for _ in range(10):
        store.put("topic", b"body", tags="abc", properties=properties)
    r = store.put_batch("topic", [(0, b"abc", {"TAGS": "abc"})] * 10)
    assert (r.count, r.queue_offset) == (10, 10)
    found = oracle.records(
        oracle.walk_log(oracle.read_log(f"{store.path}/commitlog"), crc="full", need_property_crc=True)
    )
    assert len(found) == 20
    data = bytearray(stored(store, r))
    data[-25] ^= 1
    with pytest.raises(oracle.Invalid, match="bad_property_crc"):
        oracle.valid_at(bytes(data[-r.size // 10 :]), 0, None, crc="full")


STALE = b"__CRC32#\x010123456789\x02"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (b"a\x01b\x02" + STALE, b"a\x01b\x02"),
        (STALE + b"a\x01b\x02", b"a\x01b\x02"),
        (b"a\x01b\x02" + STALE[:-1], b"a\x01b\x02"),
        (STALE + b"a\x01b\x02" + STALE, b"a\x01b\x02"),
        (b"a\x01b" + STALE, b"a\x01b" + STALE),  # in a value
        (b"__CRC32#\x02a\x01b\x02", b"__CRC32#\x02a\x01b\x02"),  # without a value
        (b"x__CRC32#\x01b\x02", b"x__CRC32#\x01b\x02"),
        (b"a\x01b", b"a\x01b\x02"),
        (STALE, b""),
        (b"", b""),
    ],
)
def test_a_stale_crc_is_dropped(open_store, given, kept):
    """MessageExtBrokerInnerTest: all properties of that name are removed, and no others."""
    store = open_store(enabled_append_prop_crc=True)
    store.put("t", b"body", properties=given)
    [m] = records(store)
    assert m["storedProperties"][: -oracle.CRC_BYTES] == kept
    assert oracle.delete_property(given, "__CRC32#") in (kept, kept[:-1])


def test_a_stale_crc_of_a_mapping_is_dropped(open_store):
    store = open_store(enabled_append_prop_crc=True)
    store.put("t", b"body", properties={"__CRC32#": "0123456789", "a": "b"})
    store.put("t", b"body", properties={**{f"n{n}": "v" for n in range(50)}, "__CRC32#": "0123456789"})
    for m in records(store):
        assert m["storedProperties"].count(b"__CRC32#") == 1


def test_without_the_feature_the_crc_is_the_users(open_store):
    store = open_store()
    store.put("t", b"body", properties={"__CRC32#": "x"})
    assert [m["properties"] for m in records(store)] == [{"__CRC32#": "x"}]


# ------------------------------------------------------------------------------------------------ rolling


@pytest.mark.parametrize("left", [8, 9, 12, 99, 100])
def test_a_file_ends_with_a_blank_record(open_store, left):
    """A record fits if at least 8 bytes remain after it. The blank record has the size of the remaining bytes."""
    store = open_store(mapped_file_size_commit_log=4096)
    store.put("t", bytes(4096 - left - 92))
    r = store.put("t", bytes(9))  # 101 bytes
    assert r.phy_offset == 4096
    assert oracle.blanks(items(store))[0][:2] == (4096 - left, 4096)
    data = oracle.read_log(f"{store.path}/commitlog")[0][1]
    assert data[4096 - left :] == oracle.encode_blank(left)


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_the_last_record_of_a_file(open_store, more):
    """It fits if it is at least 8 bytes shorter than the remaining bytes."""
    store = open_store(mapped_file_size_commit_log=4096)
    end = store.put("t", bytes(1000)).end
    r = store.put("t", bytes(4096 - 8 - end - 92 + more))
    assert r.phy_offset == (4096 if more > 0 else end)
    many = store.put_many("t", [bytes(1000), bytes(4096 - 8 - end - 92 + more)])
    assert many.phy_offset == (4096 if more <= 0 else r.end if r.end + 1100 <= 4096 else 2 * 4096)
    assert not oracle.damage(items(store))


def test_a_record_as_long_as_a_file(open_store):
    """A record that leaves 8 bytes fits. A longer one is refused; RocketMQ uses up a whole file and stores nothing."""
    store = open_store(mapped_file_size_commit_log=4096)
    store.put("t", b"")
    r = store.put("t", bytes(4096 - 8 - 92))
    assert (r.phy_offset, r.end) == (4096, 2 * 4096 - 8)
    error = refused(PutStatus.MESSAGE_ILLEGAL, store.put, "t", bytes(4096 - 8 - 91))
    assert "4096" in str(error)
    assert store.put("t", b"").phy_offset == 2 * 4096
    assert len(oracle.blanks(items(store))) == 2


def test_a_batch_is_in_one_file(open_store):
    """AppendCallbackTest, BatchPutMessageTest: all or none, consecutive, in one file."""
    store = open_store(mapped_file_size_commit_log=8 * KIB)
    store._set_clock(CLOCK)
    store.put("t", bytes(8 * KIB - 1000 - 92))
    rows = [(n, b"body", {"TAGS": "abc", "n": str(n)}) for n in range(10)]
    r = store.put_batch("t", rows, born_host=V4, born_timestamp=5)
    assert (r.phy_offset, r.queue_offset, r.count) == (8 * KIB, 1, 10)
    assert [blank[:2] for blank in oracle.blanks(items(store))] == [(7 * KIB + 24, 8 * KIB)]
    data, at = stored(store, r), 0
    for n, (flag, body, properties) in enumerate(rows):
        record = oracle.encode(
            "t",
            body,
            flag=flag,
            properties=properties,
            queue_offset=1 + n,
            phy_offset=r.phy_offset + at,
            store_timestamp=CLOCK,
            born_timestamp=5,
            born_host=V4,
            store_host=("127.0.0.1", 10911),
        )
        assert len(record) == 91 + len("t") + len(body) + len(oracle.encode_properties(properties))
        assert data[at : at + len(record)] == record
        at += len(record)
    assert at == r.size == len(data)


def test_a_batch_with_v6_hosts(open_store):
    store = open_store()
    r4 = store.put_batch("t", [(0, b"body", None)] * 10, born_host=V4, store_host=V4)
    r6 = store.put_batch("t", [(0, b"body", None)] * 10, born_host=V6, store_host=V6)
    assert r6.size == r4.size + 10 * 24
    assert len(r4.msg_id) == 32
    assert len(r6.msg_id) == 56
    assert [m["queueOffset"] for m in records(store)] == list(range(20))


def test_a_batch_as_long_as_a_file(open_store):
    store = open_store(mapped_file_size_commit_log=4096)
    each = (4096 - 8) // 8
    assert store.put_batch("t", [(0, bytes(each - 92), None)] * 8).end == 4096 - 8
    refused(
        PutStatus.MESSAGE_ILLEGAL, store.put_batch, "t", [(0, bytes(each - 92), None)] * 7 + [(0, bytes(each), None)]
    )
    assert len(records(store)) == 8


def test_messages_that_a_batch_must_not_contain(open_store):
    """CommitLog.putMessages: no transaction, no delay, no retry topic; encoded not longer than a message may be."""
    store = open_store(max_message_size=1000)
    row = (0, b"", None)
    for kind in (0x4, 0x8, 0xC):
        refused(PutStatus.MESSAGE_ILLEGAL, store.put_batch, "t", [row], sys_flag=kind)
    refused(PutStatus.MESSAGE_ILLEGAL, store.put_batch, "%RETRY%g", [row])
    refused(PutStatus.MESSAGE_ILLEGAL, store.put_batch, "t", [row, (0, b"", {"DELAY": "3"})])
    refused(PutStatus.MESSAGE_ILLEGAL, store.put_batch, "t", [(0, bytes(478), None), (0, bytes(479), None)])
    assert store.max_phy_offset == 0
    assert store.put_batch("t", [(0, bytes(478), None), (0, bytes(478), None)]).count == 2
    assert store.put_batch("t", [(0, b"", {"DELAY": "0"})]).count == 1


def test_put_many_over_files(open_store):
    store = open_store(mapped_file_size_commit_log=4096)
    bodies = [bytes([n]) * (n * 7 % 300) for n in range(200)]
    r = store.put_many("t", iter(bodies), tags="A")
    found = records(store)
    assert [m["storedBody"] for m in found] == bodies
    assert [m["queueOffset"] for m in found] == list(range(200))
    assert r.size == sum(m["storeSize"] for m in found)
    assert (r.phy_offset, r.count, r.end) == (0, 200, found[-1]["stop"])
    assert not oracle.damage(items(store))


def test_put_many_arrow(open_store):
    pa = pytest.importorskip("pyarrow")
    store = open_store()
    store.put_many("t", pa.array(["a", None, "ç"]))
    store.put_many("t", pa.array([b"\0", b"x"], pa.large_binary()))
    assert [m["storedBody"] for m in records(store)] == [b"a", b"", "ç".encode(), b"\0", b"x"]


# ------------------------------------------------------------------------------------------------ queue offsets


@pytest.mark.parametrize(
    ("kind", "counts"),
    [(0x0, True), (0x4, False), (0x8, True), (0xC, False)],
    ids=["not", "prepared", "commit", "rollback"],
)
def test_transaction_types(open_store, kind, counts):
    """A PREPARED or ROLLBACK message has queue offset 0 and does not use one. Source: RocketMQ CommitLog."""
    store = open_store()
    store.put("t", b"")
    r = store.put("t", b"", sys_flag=kind, prepared_transaction_offset=92)
    assert r.queue_offset == (1 if counts else 0)
    many = store.put_many("t", [b"", b""], sys_flag=kind)
    assert many.queue_offset == (2 if counts else 0)
    assert store.put("t", b"").queue_offset == (4 if counts else 1)
    assert [m["queueOffset"] for m in records(store)] == ([0, 1, 2, 3, 4] if counts else [0, 0, 0, 0, 1])
    assert records(store)[1]["preparedTransactionOffset"] == 92


def test_each_queue_counts_by_itself(open_store):
    store = open_store()
    for n in range(5):
        for topic, queue_id in itertools.product(["a", "b", "a-1"], [0, 1]):
            assert store.put(topic, b"", queue_id=queue_id).queue_offset == n


def test_inner_batch(open_store):
    """An inner batch uses INNER_NUM queue offsets, but at least one."""
    store = open_store()
    inner = oracle.INNER_BATCH | oracle.NEED_UNWRAP
    assert store.put("t", b"", sys_flag=inner, properties={"INNER_NUM": "5"}).queue_offset == 0
    assert store.put("t", b"", sys_flag=inner, properties=b"INNER_NUM\x013\x02").queue_offset == 5
    assert store.put("t", b"", sys_flag=inner, properties={"INNER_NUM": "-4"}).queue_offset == 8
    for number in ("32768", "70000", "2147483647"):
        refused(PutStatus.MESSAGE_ILLEGAL, store.put, "t", b"", sys_flag=inner, properties={"INNER_NUM": number})
    assert store.put("t", b"").queue_offset == 9
    refused(PutStatus.MESSAGE_ILLEGAL, store.put, "t", b"", properties={"INNER_NUM": "5"})
    refused(PutStatus.MESSAGE_ILLEGAL, store.put, "t", b"", properties=b"INNER_NUM\x015")
    assert store.put("t", b"").queue_offset == 10


def test_v6_flags_follow_the_hosts(open_store):
    store = open_store()
    store.put("t", b"", sys_flag=0x30)
    store.put("t", b"", born_host=V6)
    store.close()
    store = open_store(store_host=("::1", 10911))
    store.put("t", b"", born_host=V4)
    assert [m["sysFlag"] & 0x30 for m in records(store)] == [0, 0x10, 0x20]
    assert records(store)[2]["storeHost"] == "[::1]:10911"


def test_message(open_store):
    """Only the first byte of a record is the offset of a message."""
    store = open_store(mapped_file_size_commit_log=4096)
    r = store.put("t", b"hello", tags="A")
    assert (store.message(0).body, store.message(0).tags, store.message(0).msg_id) == (b"hello", "A", r.msg_id)
    assert [store.message(n) for n in (1, r.end, 4095, 4096, 1 << 40, -1)] == [None] * 6
    store._roll()
    assert store.message(r.end) is None  # a blank record
    assert store.message(store.put("t", b"next").phy_offset).body == b"next"


def test_a_put_opens_no_further_files(open_store, tmp_path):
    def files():  # of the store
        return sum(file.path.startswith(str(tmp_path)) for file in psutil.Process().open_files())

    store = open_store(mapped_file_size_commit_log=4096)
    store.put_many("t", [bytes(1000)] * 30)
    assert store.wait_dispatched(10)
    before = files()
    store.put_many("t", [bytes(1000)] * 3)
    store.message(0)
    assert store.wait_dispatched(10)
    assert files() <= before + 2


def test_a_store_whose_messages_have_preset_offsets_is_refused(tmp_path):
    with pytest.raises(ValueError, match="duplication_enable is True"):
        rocketc.open(tmp_path, duplication_enable=True)


# ------------------------------------------------------------------------------------------------ offsets in properties


def test_light_queues_get_their_offsets(open_store):
    """Each named queue has its own count, which continues after the store is reopened."""
    light = {"enable_lmq": True, "enable_multi_dispatch": True, "mapped_file_size_commit_log": 4096}
    store = open_store(**light)
    for n, names in enumerate(["%LMQ%a,%LMQ%b", "%LMQ%b", "%LMQ%b,other,%LMQ%a", "%LMQ%a,%LMQ%a"]):
        store.put("t", b"%d" % n, tags="A", properties={"INNER_MULTI_DISPATCH": names})
    store.put("t", b"4", properties=b"INNER_MULTI_DISPATCH\x01%LMQ%b")
    store.close()
    store = open_store(**light)
    store.put("t", b"5", properties={"INNER_MULTI_DISPATCH": "%LMQ%a"}, keys="k")
    offsets = [m["properties"]["INNER_MULTI_QUEUE_OFFSET"] for m in records(store)]
    assert offsets == ["0,0", "1", "2,,1", "2,3", "3", "4"], "a queue that is named twice gets two offsets"
    assert store.wait_dispatched(5)
    assert [m.body for m in store.get("%LMQ%a")] == [b"0", b"2", b"3", b"3", b"5"]
    assert [m.body for m in store.get("%LMQ%b")] == [b"0", b"1", b"2", b"4"]
    assert [m.body for m in store.get("t", tags="A")] == [b"0", b"1", b"2", b"3"]


def test_refused_messages_use_no_offsets_of_light_queues(open_store):
    store = open_store(enable_lmq=True, enable_multi_dispatch=True, max_message_size=100)
    named = {"INNER_MULTI_DISPATCH": "%LMQ%a"}
    refused(PutStatus.MESSAGE_ILLEGAL, store.put, "t", bytes(101), properties=named)
    refused(PutStatus.MESSAGE_ILLEGAL, store.put_many, "t", [b""], properties=named)
    refused(PutStatus.MESSAGE_ILLEGAL, store.put_batch, "t", [(0, b"", named)])
    store.put("t", b"x", properties=named)
    assert [m["properties"]["INNER_MULTI_QUEUE_OFFSET"] for m in records(store)] == ["0"]


def test_light_queues_that_are_not_enabled(open_store):
    store = open_store()
    store.put("t", b"", properties={"INNER_MULTI_DISPATCH": "%LMQ%a"})
    assert records(store)[0]["properties"] == {"INNER_MULTI_DISPATCH": "%LMQ%a"}


# As RocketMQ 5.3.3 answered; tests/interop/test_other_queues.py asks it again.
WITHOUT_LIGHT_QUEUES = ["%RETRY%g", "%RETRY%", "rmq_sys_x", "rmq_sys_", "SCHEDULE_TOPIC_XXXX"]
WITH_LIGHT_QUEUES = [
    "t",
    "x%RETRY%g",
    "%retry%g",
    "%DLQ%g",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "SCHEDULE_TOPIC_XXXXX",
    "rmq_sys",
]


@pytest.mark.parametrize("given", [{}, {"INNER_MULTI_QUEUE_OFFSET": "0"}], ids=["", "given"])
@pytest.mark.parametrize("topic", [*WITHOUT_LIGHT_QUEUES, *WITH_LIGHT_QUEUES])
def test_topics_without_light_queues(open_store, topic, given):
    """Messages of retry topics, system topics and the topic of delayed messages go to no light queue."""
    light = {"enable_lmq": True, "enable_multi_dispatch": True}
    store = open_store(**light)
    store.put(topic, b"1", properties={"INNER_MULTI_DISPATCH": "%LMQ%a", **given})
    store.wait_dispatched()
    goes = topic in WITH_LIGHT_QUEUES
    assert records(store)[0]["properties"].get("INNER_MULTI_QUEUE_OFFSET") == ("0" if goes or given else None)
    assert store.queues() == sorted([(topic, 0), *[("%LMQ%a", 0)] * goes])
    if not (goes and given):
        store.put("t", b"2", properties={"INNER_MULTI_DISPATCH": "%LMQ%a"})
    assert [m.body for m in store.get("%LMQ%a")] == [b"1"] * goes + [b"2"] * (not (goes and given))
    store.close()
    assert rocketc.verify(store.path).derived.findings == []


def test_a_batch_of_a_topic_without_light_queues(open_store):
    store = open_store(enable_lmq=True, enable_multi_dispatch=True)
    store.put_batch("rmq_sys_x", [(0, b"x", {"INNER_MULTI_DISPATCH": "%LMQ%a"})])
    store.put_many("rmq_sys_x", [b"y"], properties={"INNER_MULTI_DISPATCH": "%LMQ%a"})
    assert [m["properties"] for m in records(store)] == [{"INNER_MULTI_DISPATCH": "%LMQ%a"}] * 2
    assert store.queues() == [("rmq_sys_x", 0)]


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_offsets_in_properties_are_correct_with_several_threads(open_store, flush):
    """Inner batches and plain messages of one queue, and light queues, put by several threads."""
    store = open_store(flush=flush, enable_lmq=True, enable_multi_dispatch=True)
    inner = oracle.INNER_BATCH | oracle.NEED_UNWRAP

    def put(n):
        for _ in range(50):
            named = {"INNER_NUM": "3"} if n % 2 else {}
            named["INNER_MULTI_DISPATCH"] = f"%LMQ%{n % 3}"
            store.put("t", b"", sys_flag=inner if n % 2 else 0, properties=named)
            store.put("t", b"")

    threads = [threading.Thread(target=put, args=[n]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = records(store)
    light = {f"%LMQ%{n}": 0 for n in range(3)}
    next_offset = 0
    for m in found:
        assert m["queueOffset"] == next_offset
        next_offset += int(m["properties"].get("INNER_NUM", 1))
        if "INNER_NUM" in m["properties"]:
            assert m["properties"]["INNER_BASE"] == str(m["queueOffset"])
        if (name := m["properties"].get("INNER_MULTI_DISPATCH")) is not None:
            assert m["properties"]["INNER_MULTI_QUEUE_OFFSET"] == str(light[name])
            light[name] += 1
    assert len(found) == 400 and sum(light.values()) == 200
