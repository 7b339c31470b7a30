"""_record: records are encoded to the same bytes as by the oracle; batches; errors of the public functions."""

import array
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support import oracle, strategies

import rocketc
from rocketc.format import _encoding

pytestmark = pytest.mark.promise(4)

PLAIN = {"topic": "orders", "body": b"hello", "properties": {"TAGS": "A", "KEYS": "k1 k2"}}
VECTORS = {
    "a": {"properties": {"TAGS": "TagA", "KEYS": "k1", "WAIT": "true"}},
    "b": {"properties": {"TAGS": "TagA", "KEYS": "k1", "WAIT": "true"}, "property_crc": True},
    "c": {"born_host": ("1050::5:600:300c:326b", 123), "store_host": ("::1", 124), "version": 2},
}
SCALARS = {
    "queue_id": 3,
    "flag": 7,
    "queue_offset": 5,
    "born_timestamp": 1700000000000,
    "born_host": ("127.0.0.1", 54321),
    "store_timestamp": 1700000000123,
    "store_host": ("192.168.1.10", 10911),
}
BYTES = {
    "a": """00000085daa320a73610a686000000030000000700000000000000050000000000000000000000000000018bcfe568007f
        0000010000d4310000018bcfe5687bc0a8010a00002a9f0000000000000000000000000000000568656c6c6f09546f70696354657374001c
        544147530154616741024b455953016b310257414954017472756502""",
    "b": """00000099daa320a73610a686000000030000000700000000000000050000000000000000000000000000018bcfe568007f
        0000010000d4310000018bcfe5687bc0a8010a00002a9f0000000000000000000000000000000568656c6c6f09546f706963546573740030
        544147530154616741024b455953016b3102574149540174727565025f5f435243333223013835333331323536303002""",
    "c": """00000082daa320ab3610a686000000030000000700000000000000050000000000000000000000300000018bcfe5680010
        5000000000000000050600300c326b0000007b0000018bcfe5687b000000000000000000000000000000010000007c000000000000000000
        0000000000000568656c6c6f0009546f706963546573740000""",
}


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_of_the_specification(name):
    record = rocketc.encode("TopicTest", b"hello", **{**SCALARS, **VECTORS[name]})
    assert record == bytes.fromhex(BYTES[name])


@given(strategies.messages(), strategies.INT64, strategies.INT64)
def test_encodes_as_the_oracle(message, queue_offset, phy_offset):
    fields = {**message, "queue_offset": queue_offset, "phy_offset": phy_offset}
    assert rocketc.encode(**fields) == oracle.encode(**fields)


@pytest.mark.parametrize("born", ["10.1.2.3", "fe80::1"])
@pytest.mark.parametrize("store", ["10.1.2.3", "fe80::1"])
@pytest.mark.parametrize("version", [1, 2, None])
@pytest.mark.parametrize("sys_flag", [0, -1, 0x10, 0x20, 0x30, 0xC1])
def test_the_host_bits_depend_on_the_hosts(born, store, version, sys_flag):
    fields = {
        **PLAIN,
        "born_host": (born, -1),
        "store_host": (store, 1 << 30),
        "version": version,
        "sys_flag": sys_flag,
    }
    assert rocketc.encode(**fields) == oracle.encode(**fields)


@pytest.mark.parametrize(
    "properties",
    [
        None,
        {},
        b"",
        {"a": "1", "gone": None, "b": "2"},
        {"gone": None},
        {"a": "\x01with a separator\x01"},
        b"a\x01b",
        b"a\x01b\x02",
        b"__CRC32#\x011\x02a\x01b",
        b"a\x01b\x02__CRC32#\x010123456789\x02",
        b"a\x01b\x02__CRC32#\x010123456789",
        b"x__CRC32#\x01b\x02y\x01__CRC32#\x02__CRC32#\x02",
        b"__CRC32#\x01a\x02__CRC32#\x01b\x02",
        b"\x02\x02",
    ],
)
@pytest.mark.parametrize("property_crc", [False, True])
@pytest.mark.parametrize("trailing", [False, True])
def test_properties(properties, property_crc, trailing):
    fields = {"properties": properties, "property_crc": property_crc, "trailing_separator": trailing}
    assert rocketc.encode("t", b"b", **fields) == oracle.encode("t", b"b", **fields)


def test_an_old_crc_among_the_properties_is_replaced():
    record = rocketc.encode("t", b"b", properties={"__CRC32#": "1", "a": "b"}, property_crc=True)
    assert record == rocketc.encode("t", b"b", properties={"a": "b"}, property_crc=True)
    assert [m.properties["a"] for m in rocketc.decode(record, crc="full")] == ["b"]


@pytest.mark.parametrize("count", [0, 1, 5])
def test_longest_values_that_fit(count):
    """Topics of 127 and 32767 bytes and properties of 32767 bytes fit; one byte more is refused."""
    for version, longest in ((1, 127), (2, 32767)):
        record = rocketc.encode("t" * longest, b"x" * count, version=version)
        assert record == oracle.encode("t" * longest, b"x" * count, version=version)
        with pytest.raises(rocketc.IllegalMessageError, match="topic"):
            rocketc.encode("t" * (longest + 1), b"x" * count, version=version)
    for property_crc, longest in ((False, 32767), (True, 32747)):
        fields = {"properties": b"p" * (longest - 1) + b"\x02", "property_crc": property_crc}
        assert rocketc.encode("t", b"", **fields) == oracle.encode("t", b"", **fields)
        fields["properties"] = b"p" * longest + b"\x02"
        with pytest.raises(rocketc.IllegalMessageError, match="properties"):
            rocketc.encode("t", b"", **fields)


def test_the_version_depends_on_the_topic():
    def version(topic):
        return struct.unpack_from(">i", rocketc.encode(topic), 4)[0]

    assert version("t" * 127) == oracle.MAGIC_V1
    assert version("t" * 128) == oracle.MAGIC_V2
    assert version("𝄞" * 64) == oracle.MAGIC_V2, "two UTF-16 units each"
    with pytest.raises(rocketc.IllegalMessageError, match="topic"):
        rocketc.encode("é" * 64)  # 64 characters, but 128 bytes
    assert version("é" * 63) == oracle.MAGIC_V1


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda b: array.array("B", b)])
@pytest.mark.parametrize("body", [b"", b"body"])
def test_kinds_of_body(kind, body):
    assert rocketc.encode("t", kind(body)) == oracle.encode("t", body)
    assert rocketc.encode_batch([(1, kind(body), None)]) == oracle.encode_batch([(1, body, None)])


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"topic": b"t"}, TypeError),
        ({"topic": "\ud800"}, ValueError),
        ({"body": "text"}, TypeError),
        ({"body": None}, TypeError),
        ({"body": memoryview(b"body")[::2]}, (ValueError, BufferError)),
        ({"version": 0}, ValueError),
        ({"version": 3}, ValueError),
        ({"queue_id": 1 << 31}, rocketc.IllegalMessageError),
        ({"phy_offset": 1 << 63}, rocketc.IllegalMessageError),
        ({"queue_id": "1"}, TypeError),
        ({"born_host": ("no address", 1)}, ValueError),
        ({"born_host": ("1.2.3.4", 1 << 31)}, rocketc.IllegalMessageError),
        ({"born_host": "1.2.3.4"}, (TypeError, ValueError)),
        ({"properties": {"": "v"}}, rocketc.IllegalMessageError),
        ({"properties": {"a\x01": "v"}}, rocketc.IllegalMessageError),
        ({"properties": {"a\x02": "v"}}, rocketc.IllegalMessageError),
        ({"properties": {"a": "v\x02"}}, rocketc.IllegalMessageError),
        ({"properties": 5}, (TypeError, AttributeError)),
    ],
)
def test_wrong_arguments(fields, error):
    with pytest.raises(error):
        rocketc.encode(**{"topic": "t", **fields})


@given(st.integers(8, 3000))
@example(8)
def test_blank(size):
    assert rocketc.encode_blank(size) == oracle.encode_blank(size)


@pytest.mark.parametrize("size", [0, 1, 7])
def test_a_blank_too_small(size):
    with pytest.raises(ValueError, match=f"size is {size}; allowed are 8 to"):
        rocketc.encode_blank(size)


def test_wrong_sizes_of_blanks():
    with pytest.raises(ValueError, match="size is -1"):
        rocketc.encode_blank(-1)
    with pytest.raises(rocketc.IllegalMessageError):
        rocketc.encode_blank(1 << 31)


# ---------------------------------------------------------------------------------------------- batches

VECTOR_D = """00000037000000000000000000000007000000026869001f4b455953016b31206b3202574149540174727565025441475301546167
    4102"""


def test_batch_vector_of_the_specification():
    wire = rocketc.encode_batch([(7, b"hi", {"KEYS": "k1 k2", "WAIT": "true", "TAGS": "TagA"})])
    assert wire == bytes.fromhex(VECTOR_D)
    assert rocketc.decode_batch(wire) == oracle.decode_batch(wire)


@given(strategies.batch_entries())
def test_batches_as_the_oracle(entries):
    wire = rocketc.encode_batch(entries)
    assert wire == oracle.encode_batch(entries)
    assert rocketc.decode_batch(wire) == entries == oracle.decode_batch(wire)


@given(strategies.batch_entries(), st.data())
def test_damaged_batches_as_the_oracle(entries, data):
    """The result has the same entries as the oracle's, or is an error where the oracle has one."""
    wire, _, _ = data.draw(strategies.damaged_bytes(oracle.encode_batch(entries)))
    try:
        expected = oracle.decode_batch(wire)
    except oracle.Invalid:
        with pytest.raises(ValueError, match="not a batch"):
            rocketc.decode_batch(wire)
    else:
        assert rocketc.decode_batch(wire) == expected


def test_every_cut_of_a_batch():
    wire = oracle.encode_batch([(1, b"one", {"a": "b"}), (2, b"", None), (3, b"three", b"\xff")])
    ends = [0, 29, 51, len(wire)]
    for cut in range(len(wire)):
        if cut in ends:
            assert len(rocketc.decode_batch(wire[:cut])) == ends.index(cut)
        else:
            with pytest.raises(ValueError, match=r"not a batch: the entry at byte (0|29|51) of"):
                rocketc.decode_batch(wire[:cut])


NUMBERS = [-(1 << 31), -1, 0, 21, 22, 23, 0x7FFF, (1 << 31) - 1]


@pytest.mark.parametrize(("at", "code"), [(0, ">i"), (16, ">i"), (24, ">h")])
@pytest.mark.parametrize("number", NUMBERS)
def test_wrong_lengths(at, code, number):
    if code == ">h" and not -(1 << 15) <= number < 1 << 15:
        return
    wire = bytearray(oracle.encode_batch([(0, b"body", {"a": "b"})]) * 2)
    struct.pack_into(code, wire, at, number)
    try:
        expected = oracle.decode_batch(bytes(wire))
    except oracle.Invalid:
        with pytest.raises(ValueError, match="not a batch"):
            rocketc.decode_batch(wire)
    else:
        assert rocketc.decode_batch(wire) == expected


def test_wrong_entries():
    with pytest.raises(rocketc.IllegalMessageError, match="properties"):
        rocketc.encode_batch([(0, b"", b"p" * 32768)])
    with pytest.raises(rocketc.IllegalMessageError, match="flag is"):
        rocketc.encode_batch([(1 << 31, b"", None)])
    with pytest.raises(TypeError):
        rocketc.encode_batch([(0, "text", None)])
    with pytest.raises(ValueError):
        rocketc.encode_batch([(0, b"")])
    with pytest.raises(TypeError):
        rocketc.decode_batch(None)
    assert rocketc.encode_batch([]) == b""
    assert rocketc.decode_batch(b"") == []


def test_java_hash_refuses_what_java_cannot_store():
    with pytest.raises(UnicodeEncodeError):
        _encoding.java_hash("\ud800")
