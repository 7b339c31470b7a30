"""json.h compared with Python's encoder, and Message.to_json() with to_dict()."""

import base64
import ctypes
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import oracle
from support.native import Fence, in_child, native

import rocketc

texts = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=40).map(str.encode),
    st.binary(max_size=40),
    st.lists(st.sampled_from([b"plain text", b'"', b"\\", b"\x00", b"\n", b"\x1f", b"\x7f", b"\xc3"])).map(b"".join),
)


def made(room, function, *arguments):
    """Return the output of a function. No byte after `room` may be written."""
    dst = ctypes.create_string_buffer(b"\xaa" * (room + 8), room + 8)
    size = function(dst, *arguments)
    assert size <= room and dst.raw[room:] == b"\xaa" * 8
    return dst.raw[:size]


@given(texts)
def test_text(raw):
    expected = json.dumps(raw.decode("utf-8", "replace"), ensure_ascii=False).encode()
    assert made(native.RC_JSON_GROWTH * len(raw) + 2, native.rc_json_text, raw, len(raw)) == expected


@pytest.mark.parametrize("at", range(17))
def test_each_byte_at_each_position(at):
    for c in range(256):
        raw = b"x" * at + bytes([c]) + b"y" * (16 - at)
        expected = json.dumps(raw.decode("utf-8", "replace"), ensure_ascii=False).encode()
        assert made(native.RC_JSON_GROWTH * len(raw) + 2, native.rc_json_text, raw, len(raw)) == expected
    for c in range(128):
        assert made(6, native.rc_json_char, c) == json.dumps(chr(c))[1:-1].encode() or c == 127


@given(st.binary(max_size=100))
def test_base64(raw):
    expected = b'"%s"' % base64.b64encode(raw)
    assert made(len(expected), native.rc_json_base64, raw, len(raw)) == expected


@given(st.integers(-(1 << 63), (1 << 63) - 1) | st.sampled_from([0, -1, (1 << 63) - 1, -(1 << 63)]))
def test_number(number):
    assert made(native.RC_JSON_I64_MAX, native.rc_json_i64, number) == str(number).encode()


def test_written_bytes_are_counted():
    room = ctypes.create_string_buffer(native.RC_JSON_I64_MAX)
    assert (native.rc_json_char(room, 0), native.rc_json_char(room, 10), native.rc_json_char(room, 32)) == (6, 2, 1)
    assert (native.rc_json_i64(room, -(1 << 63)), native.rc_json_i64(room, 0)) == (20, 1)


def test_no_byte_after_the_text_is_read():
    def check():
        fence, room = Fence(), ctypes.create_string_buffer(1000)
        for n in range(40):
            for raw in (b"x" * n, b"\xff" * n, b'"' * n, "é".encode() * n, b"\xe6\x97" * n):
                native.rc_json_text(room, fence.at_end(raw), len(raw))
                native.rc_json_base64(room, fence.at_end(raw), len(raw))

    in_child(check)


PROPERTIES = [
    {},
    {"KEYS": "a b", "TAGS": "T", "x": 'quo"te\n'},
    b"a\x01first\x02b\x01x\x02a\x01last\x02",
    b"TAGS\x01\x02\x01none\x02KEYS\x01\x7f\x02",
    b"\xff\x01one\x02\xfe\x01two\x02",  # two names that are equal after decoding
    "schlüssel\x01wért漢🚀\x02".encode(),
]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("properties", PROPERTIES, ids=range(len(PROPERTIES)))
@pytest.mark.parametrize("body", [b"", b'text \xc3\xa9 "\\\n', b"\xff\x00", b"ab\xc3", b"x" * 100_000], ids=range(5))
def test_the_json_of_a_message_equals_its_dict(body, properties, version):
    hosts = {"born_host": ("2001:db8::1", 65535), "store_host": ("10.0.0.1", -1)} if version == 2 else {}
    record = oracle.encode(
        'to"pic',
        body,
        properties=properties,
        version=version,
        queue_id=-1,
        phy_offset=1 << 62,
        store_timestamp=-5,
        **hosts,
    )
    for file in (None, 'a "file" é', "no UTF-8: \udc80"):
        m = rocketc.Message.of(record, file)
        assert m.to_json() == json.dumps(m.to_dict(), ensure_ascii=False)


@given(st.text(st.characters(codec="utf-8"), max_size=40), texts, texts)
def test_the_json_of_any_message_equals_its_dict(topic, body, properties):
    m = rocketc.Message.of(oracle.encode(topic, body, properties=properties))
    assert m.to_json() == json.dumps(m.to_dict(), ensure_ascii=False)
