"""What put, put_batch and put_many refuse: limits, each status of a put, wrong arguments."""

import io
import re

import pytest
from support.put_checks import records, refused

import rocketc
from rocketc import StoreConfig
from rocketc.status import PutStatus

KIB, MIB = 1 << 10, 1 << 20


# ------------------------------------------------------------------------------------------------ limits


@pytest.fixture
def roomy(open_store):
    """A store whose files have room for the longest records."""
    return lambda **fields: open_store(mapped_file_size_commit_log=8 * MIB, prepare="allocate", **fields)


def test_longest_body(roomy):
    store = roomy()
    store.put("t", bytes(4 * MIB))
    for more in (1, 64 * KIB):
        error = refused(PutStatus.MESSAGE_ILLEGAL, store.put, "t", bytes(4 * MIB + more))
        assert str(4 * MIB + more) in str(error)
        assert "max_message_size" in str(error)
    assert [m["storedBodyLen"] for m in records(store)] == [4 * MIB]


def test_longest_record(roomy):
    """A record may be 64 KiB longer than the longest body."""
    store = roomy(check_before_put_message=False)
    store.put("t" * 127, bytes(4 * MIB), properties=b"p" * 32767)
    spare = 64 * KIB - 92 - 32767
    store.put("t" * spare, bytes(4 * MIB), properties=b"p" * 32767)
    assert [m["storeSize"] for m in records(store)][1] == 4 * MIB + 64 * KIB
    refused(PutStatus.MESSAGE_ILLEGAL, store.put, "t" * (spare + 1), bytes(4 * MIB), properties=b"p" * 32767)
    refused(PutStatus.MESSAGE_ILLEGAL, store.put, "t" * 32767, bytes(4 * MIB), properties=b"p" * 32767)
    assert len(records(store)) == 2


def test_max_message_size(open_store):
    store = open_store(max_message_size=100)
    store.put("t", bytes(100))
    refused(PutStatus.MESSAGE_ILLEGAL, store.put, "t", bytes(101))
    refused(PutStatus.MESSAGE_ILLEGAL, store.put_batch, "t", [(0, b"fine", None), (0, bytes(101), None)])
    assert len(records(store)) == 1
    with pytest.raises(rocketc.IllegalMessageError, match="a body of 101 bytes") as caught:
        store.put_many("t", [b"fine", bytes(101), b"fine"])
    assert caught.value.count == 1
    assert len(records(store)) == 2


@pytest.mark.parametrize("property_crc", [False, True], ids=["", "crc"])
def test_longest_properties(open_store, property_crc):
    """The limit is for the stored length, including the CRC. Refused messages do not use queue offsets."""
    store = open_store(enabled_append_prop_crc=property_crc)
    most = 32767 - (20 if property_crc else 0)
    longest = b"a\x01" + b"b" * (most - 3) + b"\x02"
    refused(PutStatus.PROPERTIES_SIZE_EXCEEDED, store.put, "t", b"", properties=longest + b"x")
    refused(PutStatus.PROPERTIES_SIZE_EXCEEDED, store.put, "t", b"", properties=longest, tags="A")
    refused(PutStatus.PROPERTIES_SIZE_EXCEEDED, store.put, "t", b"", properties={"a": "b" * (most - 2)})
    refused(PutStatus.PROPERTIES_SIZE_EXCEEDED, store.put_many, "t", [b""], properties=longest, tags="A")
    refused(PutStatus.PROPERTIES_SIZE_EXCEEDED, store.put_batch, "t", [(0, b"", None), (0, b"", longest + b"x")])
    assert store.put("t", b"", properties=longest).queue_offset == 0
    assert store.put("t", b"", properties={"a": "b" * (most - 3)}).queue_offset == 1
    assert [m["propertiesLen"] for m in records(store)] == [32767, 32767]


@pytest.mark.parametrize("topic", ["t" * 127, "é" * 63, "%RETRY%" + "g" * 248])
def test_topics_a_broker_takes(open_store, topic):
    store = open_store()
    store.put(topic, b"")
    [m] = records(store)
    assert m["topic"] == topic
    assert m["magic"] == ("V1" if len(topic.encode()) <= 127 else "V2")


@pytest.mark.parametrize("topic", ["t" * 128, "é" * 64, "%RETRY%" + "g" * 249, "", "a/b", "a\0b", ".", ".."])
def test_topics_a_broker_refuses(open_store, topic):
    store = open_store()
    refused(PutStatus.MESSAGE_ILLEGAL, store.put, topic, b"")
    refused(PutStatus.MESSAGE_ILLEGAL, store.put_many, topic, [b""])
    refused(PutStatus.MESSAGE_ILLEGAL, store.put_batch, topic, [(0, b"", None)])
    assert store.max_phy_offset == 0


def test_alternating_topics(open_store):
    """A topic name is not checked again for the same string object, but for an equal one or after another topic."""
    store = open_store(check_before_put_message=False)
    long, short, bad = "t" * 200, "s", "s/"
    for topic in (long, short, bad, short, bad, bad[:1], long, bad, short):
        if topic is bad:
            refused(PutStatus.MESSAGE_ILLEGAL, store.put, topic, b"")
        else:
            store.put(topic, b"")
            store.put_many(topic, [b""])
    told = [(m["topic"], m["magic"]) for m in records(store)]
    version = {long: "V2", short: "V1"}
    assert told == [(topic, version[topic]) for topic in (long, short, short, short, long, short) for _ in range(2)]


def test_topics_without_the_broker(open_store):
    """A store without a broker accepts what a V2 record can hold, or V1 if V2 is off."""
    store = open_store(check_before_put_message=False)
    store.put("t" * 32767, b"")
    refused(PutStatus.MESSAGE_ILLEGAL, store.put, "t" * 32768, b"")
    refused(PutStatus.MESSAGE_ILLEGAL, store.put, "a/b", b"")  # a folder has this name: always checked
    store.close()
    store = open_store(check_before_put_message=False, auto_message_version_on_topic_len=False)
    store.put("t" * 127, b"")
    refused(PutStatus.MESSAGE_ILLEGAL, store.put, "t" * 128, b"")
    assert [m["magic"] for m in records(store)] == ["V2", "V1"]


# ------------------------------------------------------------------------------------------------ statuses


def test_page_cache_busy(open_store):
    """Another thread has held the put lock longer than the timeout. A much longer time means that the clock jumped."""
    store = open_store(os_page_cache_busy_time_out_mills=60_000)
    store._hook("busy_ms", 61_000)
    refused(PutStatus.OS_PAGE_CACHE_BUSY, store.put, "t", b"")
    refused(PutStatus.OS_PAGE_CACHE_BUSY, store.put_batch, "t", [(0, b"", None)])
    store._hook("busy_ms", 10_000_001)
    assert store.put("t", b"").queue_offset == 0
    store._hook("busy_ms", 10_000)
    store.put("t", b"")
    store._hook("busy_ms", 0)
    store.put("t", b"")


def test_closed(open_store):
    store = open_store()
    store.close()
    for call in (lambda: store.put("t", b""), lambda: store.put_many("t", [b""]), lambda: store.put_async("t", b"")):
        assert "closed" in str(refused(PutStatus.SERVICE_NOT_AVAILABLE, call))
    refused(PutStatus.SERVICE_NOT_AVAILABLE, store.put_batch, "t", [(0, b"", None)])


def test_failed(open_store):
    store = open_store()
    store._hook("fail", 5)
    error = refused(PutStatus.SERVICE_NOT_AVAILABLE, store.put, "t", b"")
    assert isinstance(error, rocketc.StoreFailedError)


def test_a_slave_refuses_messages(open_store, tmp_path):
    store = open_store(broker_role="SLAVE")
    refused(PutStatus.SERVICE_NOT_AVAILABLE, store.put, "t", b"")
    refused(PutStatus.SERVICE_NOT_AVAILABLE, store.put_batch, "t", [(0, b"", None)])
    assert store.max_phy_offset == 0


def test_a_sync_master_is_refused(tmp_path):
    """Its puts would have to wait for a replica. Nothing is created; what only reads takes the setting."""
    for config in (
        StoreConfig(broker_role="SYNC_MASTER"),
        StoreConfig.from_properties(io.StringIO("brokerRole = SYNC_MASTER")),
    ):
        with pytest.raises(ValueError, match=r"broker_role is SYNC_MASTER, .*replication.*; use ASYNC_MASTER") as told:
            rocketc.open(tmp_path / "store", config=config)
        assert str(told.value).startswith(f"{tmp_path}/store: ")
        with pytest.raises(ValueError, match="use ASYNC_MASTER"):
            rocketc.Queue(tmp_path / "store", config=config)
        assert not (tmp_path / "store").exists()
    with rocketc.open(tmp_path / "there", mapped_file_size_commit_log=1 << 16) as store:
        store.put("t", b"hello")
    with rocketc.open(tmp_path / "there", read_only=True, config=config) as store:
        assert [m.body for m in store.get("t")] == [b"hello"]


def test_a_file_that_is_not_created_in_time(open_store):
    """CREATE_MAPPED_FILE_FAILED: the put waits this long for the file. Puts succeed again when the file exists."""
    store = open_store()
    store._hook("create_ns", 0)

    def fill():
        for _ in range(1000):  # the allocator is faster than one put, but not faster than these
            store.put_many("t", [bytes(store.config.mapped_file_size_commit_log - 200)] * 10)

    refused(PutStatus.CREATE_MAPPED_FILE_FAILED, fill)
    store._hook("create_ns", 60_000_000_000)
    store.put("t", b"")
    assert store.failed is None


def test_statuses():
    """RocketMQ's names in RocketMQ's order, and which of them mean that the message is stored."""
    assert [status.name for status in PutStatus if status.is_stored] == [
        "PUT_OK",
        "FLUSH_DISK_TIMEOUT",
        "FLUSH_SLAVE_TIMEOUT",
        "SLAVE_NOT_AVAILABLE",
    ]
    assert PutStatus.OS_PAGE_CACHE_BUSY == 8
    assert PutStatus.WHEEL_TIMER_NOT_ENABLE == 15 == max(PutStatus)


# ------------------------------------------------------------------------------------------------ wrong arguments


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (TypeError, lambda s: s.put()),
        (TypeError, lambda s: s.put("t")),
        (TypeError, lambda s: s.put(None, b"")),
        (TypeError, lambda s: s.put(b"t", b"")),
        (TypeError, lambda s: s.put("t", "text")),
        (TypeError, lambda s: s.put("t", None)),
        (TypeError, lambda s: s.put("t", 5)),
        (TypeError, lambda s: s.put("t", [b"x"])),
        (TypeError, lambda s: s.put("t", b"", b"too many")),
        (TypeError, lambda s: s.put("t", b"", tag="A")),
        (TypeError, lambda s: s.put("t", b"", tags=b"A")),
        (TypeError, lambda s: s.put("t", b"", tags=["A"])),
        (TypeError, lambda s: s.put("t", b"", keys=5)),
        (TypeError, lambda s: s.put("t", b"", keys=[1])),
        (TypeError, lambda s: s.put("t", b"", keys=b"k")),
        (TypeError, lambda s: s.put("t", b"", properties={"a": 1})),
        (TypeError, lambda s: s.put("t", b"", properties={1: "a"})),
        (TypeError, lambda s: s.put("t", b"", properties={**{str(n): "" for n in range(40)}, "a": 1})),
        (TypeError, lambda s: s.put("t", b"", properties=5)),
        (ValueError, lambda s: s.put("t", b"", properties="a=b")),
        (rocketc.IllegalMessageError, lambda s: s.put("t", b"", properties={"": "a"})),
        (rocketc.IllegalMessageError, lambda s: s.put("t", b"", properties={"a\x01": "a"})),
        (rocketc.IllegalMessageError, lambda s: s.put("t", b"", properties={"a": "a\x02"})),
        (rocketc.IllegalMessageError, lambda s: s.put("t", b"", tags="a\x02")),
        (rocketc.IllegalMessageError, lambda s: s.put("t", b"", keys="a\x02")),
        (TypeError, lambda s: s.put("t", b"", queue_id="0")),
        (TypeError, lambda s: s.put("t", b"", queue_id=None)),
        (rocketc.IllegalMessageError, lambda s: s.put("t", b"", queue_id=1 << 31)),
        (rocketc.IllegalMessageError, lambda s: s.put("t", b"", flag=-(1 << 31) - 1)),
        (rocketc.IllegalMessageError, lambda s: s.put("t", b"", born_timestamp=1 << 63)),
        (rocketc.IllegalMessageError, lambda s: s.put("t", b"", prepared_transaction_offset=1 << 63)),
        (TypeError, lambda s: s.put("t", b"", born_timestamp="now")),
        (ValueError, lambda s: s.put("t", b"", born_host=("no address", 1))),
        (ValueError, lambda s: s.put("t", b"", store_host=("10.1.1.1",))),
        (TypeError, lambda s: s.put("t", b"", born_host=5)),
        (UnicodeEncodeError, lambda s: s.put("\ud800", b"")),
        (UnicodeEncodeError, lambda s: s.put("t", b"", tags="\ud800")),
        (UnicodeEncodeError, lambda s: s.put("t", b"", properties={"a": "\ud800"})),
        (BufferError, lambda s: s.put("t", memoryview(b"abcdef")[::2])),
        (TypeError, lambda s: s.put_many("t", b"bytes instead of a list")),
        (TypeError, lambda s: s.put_many("t", 5)),
        (TypeError, lambda s: s.put_many("t", [b"x", "text"])),
        (rocketc.IllegalMessageError, lambda s: s.put_many("t", [])),
        (TypeError, lambda s: s.put_batch("t", [(0, "text", None)])),
        (TypeError, lambda s: s.put_batch("t", [(0, b"", {"a": 1})])),
        (ValueError, lambda s: s.put_batch("t", [b"x"])),
        (ValueError, lambda s: s.put_batch("t", [(0, b"")])),
        (TypeError, lambda s: s.put_batch("t", b"x")),
        (rocketc.IllegalMessageError, lambda s: s.put_batch("t", [(1 << 31, b"", None)])),
        (rocketc.IllegalMessageError, lambda s: s.put_batch("t", [])),
    ],
)
def test_wrong_arguments(open_store, error, call):
    """Python's own exceptions; nothing is stored, and the store stays usable."""
    store = open_store()
    with pytest.raises(error):
        call(store)
    assert store.put("t", b"").phy_offset == 0


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("body must be bytes-like, not str; encode text with .encode()", lambda s: s.put("t", "text")),
        ("body must be bytes-like, not str; encode text with .encode()", lambda s: s.put_async("t", "text")),
        ("body must be bytes-like, not NoneType", lambda s: s.put("t", None)),
        (
            "keys must be str or a list of str, not bytes; decode them: keys.decode()",
            lambda s: s.put("t", b"", keys=b"k"),
        ),
        (
            "bodies must be a list of bytes-like objects, not one bytes; for one message call put()",
            lambda s: s.put_many("t", b"abc"),
        ),
        (
            "bodies must be a list of bytes-like objects, not one str; for one message call put()",
            lambda s: s.put_many("t", "abc"),
        ),
        ("bodies must be a list of bytes-like objects, not int", lambda s: s.put_many("t", 5)),
        (
            "bodies[1] must be bytes-like, not str; encode text with .encode()",
            lambda s: s.put_many("t", [b"x", "text"]),
        ),
        (
            "messages must be a list of (flag, body, properties), not one bytes; for one message call put()",
            lambda s: s.put_batch("t", b"abc"),
        ),
        ("messages[1] must be (flag, body, properties), not int", lambda s: s.put_batch("t", [(0, b"", None), 5])),
        (
            "the body in messages[0] must be bytes-like, not str; encode text with .encode()",
            lambda s: s.put_batch("t", [(0, "text", None)]),
        ),
    ],
)
def test_the_error_names_the_argument(open_store, text, call):
    with pytest.raises(TypeError, match=f"^{re.escape(text)}$"):
        call(open_store())


def test_a_late_body_that_is_text(open_store):
    """put_many stores 1,024 messages at a time; the error says how many are stored."""
    store = open_store()
    with pytest.raises(TypeError, match=r"^bodies\[1500\] must be bytes-like, not str") as refused:
        store.put_many("t", [b"x"] * 1500 + ["text"])
    assert refused.value.count == store.max_offset("t", 0) == 1024
