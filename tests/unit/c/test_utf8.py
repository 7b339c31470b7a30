"""utf8.h compared with Python's decoder, which uses U+FFFD where Java does."""

import ctypes
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.native import Fence, in_child, native

# The first and the last of each kind of byte: each sequence of four is one of these, or similar to one.
EDGES = bytes.fromhex("00 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 ff")

mixed = st.lists(
    st.one_of(
        st.binary(max_size=5),
        st.text(max_size=4).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.text(st.characters(codec="utf-8"), max_size=20).map(str.encode),
        st.just(b"plain ascii, sixteen bytes and more"),
    ),
    max_size=6,
).map(b"".join)


def is_valid(raw):
    try:
        raw.decode()
    except UnicodeDecodeError:
        return 0
    return 1


def repaired(raw):
    room = ctypes.create_string_buffer(b"\xaa" * (3 * len(raw) + 1), 3 * len(raw) + 1)
    size = native.rc_utf8_repair(room, raw, len(raw))
    assert room.raw[size:].strip(b"\xaa") == b"", "it wrote after the returned end"
    assert native.rc_utf8_repair(None, raw, len(raw)) == size
    return room.raw[:size]


@given(mixed)
def test_any_bytes(raw):
    assert native.rc_is_ascii(raw, len(raw)) == raw.isascii()
    assert native.rc_utf8_valid(raw, len(raw)) == is_valid(raw)
    assert repaired(raw) == raw.decode("utf-8", "replace").encode()


@pytest.mark.parametrize("before", [b"", b"x" * 13])
def test_every_sequence_of_boundary_bytes(before):
    for length in range(1, 5):
        for edges in itertools.product(EDGES, repeat=length):
            raw = before + bytes(edges)
            if native.rc_utf8_valid(raw, len(raw)) != is_valid(raw):
                raise AssertionError(raw)
            if length < 4 and repaired(raw) != raw.decode("utf-8", "replace").encode():
                raise AssertionError(raw)


def test_surrogates_are_three_errors_each():
    assert repaired("\ud800".encode("utf-8", "surrogatepass")) == "���".encode()
    assert repaired(b"\xed\xa0\x80\xed\xb0\x80") == ("�" * 6).encode(), "a pair is invalid, too, as in Java"


@pytest.mark.parametrize("size", range(0, 70))
def test_one_byte_that_is_not_ascii(size):
    for at in range(size):
        raw = bytearray(b"a" * size)
        raw[at] = 0x80
        assert native.rc_is_ascii(bytes(raw), size) == 0
        assert native.rc_utf8_valid(bytes(raw), size) == 0
    assert native.rc_is_ascii(b"\x7f" * size, size) == 1


def test_no_byte_outside_is_read_or_written():
    def check():
        fence = Fence()
        for raw in [b"a" * size for size in range(80)] + [("é€𝄞" * 9).encode()[:size] for size in range(80)]:
            for address in (fence.at_end(raw), fence.at_start(raw)):
                assert native.rc_is_ascii(address, len(raw)) == raw.isascii()
                assert native.rc_utf8_valid(address, len(raw)) == is_valid(raw)
                assert native.rc_utf8_repair(None, address, len(raw)) == len(raw.decode("utf-8", "replace").encode())

    in_child(check)
