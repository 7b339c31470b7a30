"""pulled_messages: the records of an answer to a pull, each from anywhere in the log."""

import zlib

import pytest

import rocketc
from rocketc._layout import (
    COMPRESSION_ZLIB,
    FLAG_COMPRESSED,
    FLAG_COMPRESSION_SHIFT,
    FLAG_INNER_BATCH,
    FLAG_NEED_UNWRAP,
)
from rocketc.read._opened_records import pulled_messages

PACKED = FLAG_COMPRESSED | COMPRESSION_ZLIB << FLAG_COMPRESSION_SHIFT


def record(body, offset, **fields):
    return rocketc.encode("orders", body, phy_offset=1000 * offset, queue_offset=offset, queue_id=3, **fields)


def batch(offset, *bodies):
    body = rocketc.encode_batch([(0, one, {"TAGS": "t"}) for one in bodies])
    properties = {"INNER_NUM": str(len(bodies)), "INNER_BASE": str(offset)}
    return record(body, offset, sys_flag=FLAG_INNER_BATCH | FLAG_NEED_UNWRAP, properties=properties)


def test_plain_compressed_and_batched_records():
    body = b"".join(
        [record(b"5", 5), record(zlib.compress(b"x" * 9000), 6, sys_flag=PACKED), batch(7, b"7", b"8"), record(b"", 9)]
    )
    messages, errors, _ = pulled_messages(body)
    assert errors == []
    assert [(m.queue_offset, m.body) for m in messages] == [
        (5, b"5"), (6, b"x" * 9000), (7, b"7"), (8, b"8"), (9, b""),
    ]  # fmt: skip
    assert [m.phy_offset for m in messages] == [5000, 6000, 7000, 7000, 9000]
    assert [m.queue_offset for m in pulled_messages(body, 8)[0]] == [5, 6, 8, 9]


def test_no_records():
    assert pulled_messages(b"") == ([], [], 0)
    with pytest.raises(TypeError):
        pulled_messages(None)
    with pytest.raises(TypeError):
        pulled_messages(bytearray(record(b"1", 1)))


def test_a_damaged_record_is_left_out():
    one = bytearray(record(b"abc", 2))
    one[one.index(b"abc")] ^= 1
    messages, [error], _ = pulled_messages(record(b"1", 1) + bytes(one) + record(b"3", 3))
    assert [m.queue_offset for m in messages] == [1, 3]
    assert (error.reason, error.offset) == ("bad_body_crc", 2000)


def test_a_blank_record_ends_the_messages():
    blank = bytearray(record(b"2", 2))
    blank[4:8] = b"\xcb\xd4\x31\x94"  # the magic code of a blank record
    messages, [error], _ = pulled_messages(record(b"1", 1) + bytes(blank) + record(b"3", 3))
    assert [m.queue_offset for m in messages] == [1]
    assert (error.reason, error.offset) == ("bad_magic", len(record(b"1", 1)))


def test_a_damaged_record_with_a_negative_offset():
    messages, [error], _ = pulled_messages(
        record(b"1", 1) + rocketc.encode("orders", b"abc", phy_offset=-5).replace(b"abc", b"abd")
    )
    assert [m.queue_offset for m in messages] == [1]
    assert (error.reason, error.offset) == ("bad_body_crc", len(record(b"1", 1)))


@pytest.mark.parametrize("sys_flag", [PACKED, FLAG_INNER_BATCH | FLAG_NEED_UNWRAP])
def test_a_body_that_cannot_be_opened(sys_flag):
    properties = {"INNER_NUM": "1", "INNER_BASE": "2"} if sys_flag & FLAG_INNER_BATCH else None
    bad = record(b"not packed", 2, sys_flag=sys_flag, properties=properties)
    messages, [error], _ = pulled_messages(record(b"1", 1) + bad + record(b"3", 3))
    assert [m.queue_offset for m in messages] == [1, 3]
    assert error.reason in ("bad_compression", "bad_inner_batch")


def test_every_cut():
    whole = record(b"1", 1, properties={"TAGS": "t"})
    for cut in range(1, len(whole)):
        messages, [error], _ = pulled_messages(whole + whole[:cut])
        assert [m.queue_offset for m in messages] == [1] and isinstance(error, rocketc.CorruptRecordError)


def test_every_byte_changed():
    whole = record(b"one", 1, properties={"TAGS": "t"})
    for at in range(len(whole)):
        for bit in (1, 0x80):
            damaged = bytearray(whole)
            damaged[at] ^= bit
            messages, errors, _ = pulled_messages(bytes(damaged) + whole)
            assert len(messages) + len(errors) >= 1
            assert all(m.topic and m.body is not None and m.properties is not None for m in messages)


def test_the_first_topic_of_a_message_in_a_retry_topic():
    def retried(properties):
        return rocketc.encode("%RETRY%g", b"x", phy_offset=7, properties=properties)

    for properties, topic in [
        ({"RETRY_TOPIC": "orders"}, "orders"),
        ({"RETRY_TOPIC": ""}, "%RETRY%g"),
        ({}, "%RETRY%g"),
    ]:
        [message] = pulled_messages(retried(properties), retry_topic=b"%RETRY%g")[0]
        assert (message.topic, message.body) == (topic, b"x")
        assert pulled_messages(retried(properties), retry_topic=b"%RETRY%h")[0][0].topic == "%RETRY%g"
