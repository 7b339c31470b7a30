"""layout.h compared with records written by the specification, and with the oracle's numbers."""

import struct

import pytest
from support import oracle
from support.native import native

import rocketc

# Each field has a different value, so that a wrong offset is detected.
FIELDS = {
    "queue_id": 0x01020304,
    "flag": 0x11121314,
    "queue_offset": 0x2122232425262728,
    "phy_offset": 0x3132333435363738,
    "born_timestamp": 0x4142434445464748,
    "store_timestamp": 0x5152535455565758,
    "reconsume_times": 0x61626364,
    "prepared_transaction_offset": 0x7172737475767778,
}
V4 = ("1.2.3.4", 0x05060708)
V6 = ("a1a2:a3a4:a5a6:a7a8:a9aa:abac:adae:afb0", 0x31323334)


def number(record, at, width):
    return int.from_bytes(record[at : at + width], "big", signed=True)


@pytest.mark.parametrize("born", [V4, V6])
@pytest.mark.parametrize("store", [V4, V6])
@pytest.mark.parametrize("version", [1, 2])
def test_every_field_is_where_the_layout_says(born, store, version):
    record = oracle.encode(
        "topic",
        b"body",
        version=version,
        sys_flag=0x700,
        born_host=born,
        store_host=store,
        properties={"a": "b"},
        **FIELDS,
    )
    n = native
    widths = {V4: n.RC_HOST_V4_BYTES, V6: n.RC_HOST_V6_BYTES}
    bits = (n.RC_FLAG_BORN_HOST_V6 if born is V6 else 0) | (n.RC_FLAG_STORE_HOST_V6 if store is V6 else 0)
    assert number(record, n.RC_MSG_TOTAL_SIZE_AT, 4) == len(record)
    assert number(record, n.RC_MSG_MAGIC_AT, 4) == (n.RC_MAGIC_V1 if version == 1 else n.RC_MAGIC_V2)
    assert number(record, n.RC_MSG_BODY_CRC_AT, 4) == oracle.crc32(b"body")
    assert number(record, n.RC_MSG_QUEUE_ID_AT, 4) == FIELDS["queue_id"]
    assert number(record, n.RC_MSG_FLAG_AT, 4) == FIELDS["flag"]
    assert number(record, n.RC_MSG_QUEUE_OFFSET_AT, 8) == FIELDS["queue_offset"]
    assert number(record, n.RC_MSG_PHYSICAL_OFFSET_AT, 8) == FIELDS["phy_offset"]
    assert number(record, n.RC_MSG_SYS_FLAG_AT, 4) == 0x700 | bits
    assert number(record, n.RC_MSG_BORN_TIMESTAMP_AT, 8) == FIELDS["born_timestamp"]
    at = n.RC_MSG_BORN_HOST_AT
    assert record[at : at + widths[born]] == oracle.host_bytes(born)
    at += widths[born]
    assert number(record, at + n.RC_MSG_STORE_TIMESTAMP_PAST, 8) == FIELDS["store_timestamp"]
    if born is V4:
        assert at == n.RC_MSG_STORE_TIMESTAMP_V4_AT
    at += n.RC_MSG_STORE_HOST_PAST
    assert record[at : at + widths[store]] == oracle.host_bytes(store)
    at += widths[store]
    assert number(record, at + n.RC_MSG_RECONSUME_TIMES_PAST, 4) == FIELDS["reconsume_times"]
    assert number(record, at + n.RC_MSG_PREPARED_OFFSET_PAST, 8) == FIELDS["prepared_transaction_offset"]
    assert number(record, at + n.RC_MSG_BODY_LENGTH_PAST, 4) == 4
    at += n.RC_MSG_BODY_PAST
    assert record[at : at + 4] == b"body"
    if born is store is V4:
        assert at == n.RC_MSG_BODY_V4_AT
    assert len(record) == at + 4 + version + 5 + n.RC_PROPERTIES_LENGTH_BYTES + 4


def test_numbers():
    n = native
    assert [m & 0xFFFFFFFF for m in (n.RC_MAGIC_V1, n.RC_MAGIC_V2, n.RC_MAGIC_BLANK)] == [
        0xDAA320A7,
        0xDAA320AB,
        0xCBD43194,
    ]
    assert n.RC_MSG_MIN_BYTES == 91 == len(oracle.encode("", b""))
    assert n.RC_HOST_V6_EXTRA == 12
    assert n.RC_BLANK_BYTES == 8 == len(oracle.encode_blank(8))
    assert (n.RC_PROPERTIES_MAX_BYTES, n.RC_TOPIC_V1_MAX_BYTES, n.RC_TOPIC_V2_MAX_BYTES) == (32767, 127, 32767)
    assert n.RC_TOPIC_V1_MAX_CHARS == 127
    assert n.RC_FILE_NAME_DIGITS == 20


def test_property_crc():
    n = native
    crc = oracle.crc_property(65213358)
    assert n.RC_PROP_CRC_BYTES == len(crc) == 20
    assert crc[: n.RC_PROP_CRC_NAME_BYTES] == n.RC_PROPERTY_CRC32
    assert crc[n.RC_PROP_CRC_NAME_BYTES] == n.RC_NAME_VALUE_SEPARATOR == 1
    assert crc[n.RC_PROP_CRC_NAME_BYTES + 1 :][: n.RC_PROP_CRC_DIGITS] == b"8533125600"
    assert crc[-1] == n.RC_PROPERTY_SEPARATOR == 2


def test_bits_of_sys_flag():
    n = native
    bits = [n.RC_FLAG_COMPRESSED, n.RC_FLAG_MULTI_TAGS, n.RC_FLAG_PREPARED, n.RC_FLAG_COMMIT, n.RC_FLAG_BORN_HOST_V6]
    bits += [n.RC_FLAG_STORE_HOST_V6, n.RC_FLAG_NEED_UNWRAP, n.RC_FLAG_INNER_BATCH]
    assert bits == [1 << i for i in range(8)]
    assert n.RC_FLAG_TRANSACTION_MASK == n.RC_FLAG_ROLLBACK == 0xC
    assert n.RC_FLAG_COMPRESSION_MASK == 7 << n.RC_FLAG_COMPRESSION_SHIFT == 0x700
    kinds = [n.RC_COMPRESSION_OLD_ZLIB, n.RC_COMPRESSION_LZ4, n.RC_COMPRESSION_ZSTD, n.RC_COMPRESSION_ZLIB]
    assert kinds == [0, 1, 2, 3]


def test_batch_entry():
    n = native
    entry = oracle.encode_batch([(0x11121314, b"body", b"props")])
    assert number(entry, n.RC_ENTRY_TOTAL_SIZE_AT, 4) == len(entry) == n.RC_ENTRY_MIN_BYTES + 4 + 5
    assert (n.RC_ENTRY_MAGIC_AT, n.RC_ENTRY_BODY_CRC_AT) == (4, 8)
    assert number(entry, n.RC_ENTRY_FLAG_AT, 4) == 0x11121314
    assert number(entry, n.RC_ENTRY_BODY_LENGTH_AT, 4) == 4
    assert entry[n.RC_ENTRY_BODY_AT :][:4] == b"body"


def test_message_ids():
    n = native
    [v4] = rocketc.decode(oracle.encode("t", b"", store_host=V4))
    [v6] = rocketc.decode(oracle.encode("t", b"", store_host=V6))
    assert (len(v4.msg_id), len(v6.msg_id)) == (n.RC_MSG_ID_V4_CHARS, n.RC_MSG_ID_V6_CHARS) == (32, 56)


def test_checkpoint():
    n = native
    data = struct.pack(">5q", 1, 2, 3, 4, 5).ljust(n.RC_CHECKPOINT_BYTES, b"\0")
    assert len(data) == 4096
    at = [n.RC_CHECKPOINT_PHYSIC_TIMESTAMP_AT, n.RC_CHECKPOINT_LOGICS_TIMESTAMP_AT, n.RC_CHECKPOINT_INDEX_TIMESTAMP_AT]
    at += [n.RC_CHECKPOINT_MASTER_FLUSHED_OFFSET_AT, n.RC_CHECKPOINT_CONFIRM_PHY_OFFSET_AT]
    assert tuple(number(data, pos, 8) for pos in at) == oracle.checkpoint(data)


def test_consume_queue_unit():
    n = native
    unit = struct.pack(">qiq", 1, 2, 3)
    assert len(unit) == n.RC_CQ_UNIT_BYTES == 20
    assert number(unit, n.RC_CQ_PHY_OFFSET_AT, 8) == 1
    assert number(unit, n.RC_CQ_SIZE_AT, 4) == 2
    assert number(unit, n.RC_CQ_TAGS_CODE_AT, 8) == 3
    assert n.RC_CQ_PRE_BLANK_SIZE == 0x7FFFFFFF


def test_batch_consume_queue_unit():
    n = native
    unit = struct.pack(">qiqqqhii", 1, 2, 3, 4, 5, 6, 7, 8)
    assert len(unit) == n.RC_BCQ_UNIT_BYTES == 46
    at = [n.RC_BCQ_PHY_OFFSET_AT, n.RC_BCQ_SIZE_AT, n.RC_BCQ_TAGS_CODE_AT, n.RC_BCQ_STORE_TIMESTAMP_AT]
    at += [n.RC_BCQ_BASE_OFFSET_AT, n.RC_BCQ_BATCH_SIZE_AT, n.RC_BCQ_COMPACTED_OFFSET_AT, n.RC_BCQ_RESERVED_AT]
    widths = [8, 4, 8, 8, 8, 2, 4, 4]
    assert [number(unit, pos, width) for pos, width in zip(at, widths, strict=True)] == list(range(1, 9))


def test_ext_unit():
    n = native
    unit = struct.pack(">hqqh", 24, 3, 4, 4) + b"bits"
    assert number(unit, n.RC_EXT_SIZE_AT, 2) == len(unit)
    assert number(unit, n.RC_EXT_TAGS_CODE_AT, 8) == 3
    assert number(unit, n.RC_EXT_STORE_TIMESTAMP_AT, 8) == 4
    assert number(unit, n.RC_EXT_BIT_MAP_SIZE_AT, 2) == 4
    assert unit[n.RC_EXT_BIT_MAP_AT :] == b"bits"
    assert (n.RC_EXT_MIN_BYTES, n.RC_EXT_END_SIZE) == (20, -1)


def test_index_file():
    n = native
    header = struct.pack(">qqqqii", 1, 2, 3, 4, 5, 6)
    assert len(header) == n.RC_INDEX_HEADER_BYTES == 40
    at = [n.RC_INDEX_BEGIN_TIMESTAMP_AT, n.RC_INDEX_END_TIMESTAMP_AT, n.RC_INDEX_BEGIN_PHY_OFFSET_AT]
    at += [n.RC_INDEX_END_PHY_OFFSET_AT, n.RC_INDEX_SLOT_COUNT_AT, n.RC_INDEX_COUNT_AT]
    widths = [8, 8, 8, 8, 4, 4]
    assert [number(header, pos, width) for pos, width in zip(at, widths, strict=True)] == list(range(1, 7))
    unit = struct.pack(">iqii", 1, 2, 3, 4)
    assert len(unit) == n.RC_INDEX_UNIT_BYTES == 20
    at = [n.RC_INDEX_KEY_HASH_AT, n.RC_INDEX_PHY_OFFSET_AT, n.RC_INDEX_TIME_DIFF_AT, n.RC_INDEX_PREVIOUS_AT]
    assert [number(unit, pos, width) for pos, width in zip(at, [4, 8, 4, 4], strict=True)] == [1, 2, 3, 4]
    assert (n.RC_INDEX_SLOT_BYTES, n.RC_INDEX_DEFAULT_SLOTS) == (4, 5_000_000)
