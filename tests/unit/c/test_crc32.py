"""crc32.h: each implementation that this processor supports, compared with zlib."""

import ctypes
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.native import Fence, in_child, native

import rocketc.format._encoding

WAYS = rocketc.format._encoding.crc32_ways()
NAMES = ["table", "pclmul", "vpclmul256", "vpclmul512", "arm64"]
crc32_by = rocketc.format._encoding.crc32_by
DATA = random.Random(1).randbytes(4096 + 64)


def function(way):
    address = native.rc_crc32_way(NAMES.index(way))
    return ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t)(address)


def test_the_table_is_always_supported_and_the_fastest_is_the_last():
    assert WAYS[0] == "table"
    assert native.rc_crc32_best() == NAMES.index(WAYS[-1])
    assert [name for number, name in enumerate(NAMES) if native.rc_crc32_way(number)] == WAYS
    numbers = [native.RC_CRC32_TABLE, native.RC_CRC32_PCLMUL, native.RC_CRC32_VPCLMUL256, native.RC_CRC32_VPCLMUL512]
    assert [*numbers, native.RC_CRC32_ARM64] == list(range(native.RC_CRC32_WAYS))
    assert not native.rc_crc32_way(native.RC_CRC32_WAYS)
    assert not native.rc_crc32_way(-1)


@pytest.mark.parametrize("way", WAYS)
def test_every_length_at_every_alignment(way):
    crc = function(way)
    memory = ctypes.create_string_buffer(4096 + 192)
    base = -(-ctypes.addressof(memory) // 64) * 64
    expected = [zlib.crc32(DATA[:size]) for size in range(4097)]
    for alignment in range(64):
        address = base + alignment
        ctypes.memmove(address, DATA, 4096)
        found = [crc(0, address, size) for size in range(4097)]
        assert found == expected, alignment


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 1_000_003, (16 << 20) + 5])
def test_large_sizes(way, size):
    data = random.Random(size).randbytes(size)
    assert crc32_by(way, data) == zlib.crc32(data)
    assert crc32_by(way, memoryview(data)[3:]) == zlib.crc32(memoryview(data)[3:])


@pytest.mark.parametrize("way", WAYS)
def test_a_start_value_is_used_at_every_length(way):
    """Any start value with each length; a text that is split anywhere has the same CRC as in one piece."""
    start = 0
    for size in range(0, 1200):
        start = (start * 2654435761 + size + 1) & 0xFFFFFFFF
        assert crc32_by(way, DATA[:size], start) == zlib.crc32(DATA[:size], start), size
    whole = zlib.crc32(DATA[:700])
    for cut in range(701):
        assert crc32_by(way, DATA[cut:700], crc32_by(way, DATA[:cut])) == whole, cut


@pytest.mark.parametrize("way", WAYS)
@given(st.lists(st.binary(max_size=300), max_size=6))
def test_pieces(way, pieces):
    value = 0
    for piece in pieces:
        value = crc32_by(way, piece, value)
    assert value == zlib.crc32(b"".join(pieces))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fill", [b"\0", b"\xff"])
def test_plain_bytes(way, fill):
    for size in (0, 1, 3, 4, 15, 16, 63, 64, 65, 255, 256, 4095, 4096, 100_000):
        assert crc32_by(way, fill * size) == zlib.crc32(fill * size)


@pytest.mark.parametrize("way", WAYS)
def test_single_bits_of_a_block(way):
    """Each bit of 512 bytes alone: a wrong fold constant would show at some position."""
    for bit in range(0, 4096):
        data = bytearray(512)
        data[bit >> 3] = 1 << (bit & 7)
        assert crc32_by(way, data) == zlib.crc32(data), bit


@pytest.mark.parametrize("way", WAYS)
def test_no_byte_outside_is_read(way):
    def check():
        crc, fence = function(way), Fence()
        assert crc(0, None, 0) == 0
        for size in [*range(1100), 4095, 4096]:
            expected = zlib.crc32(DATA[:size])
            assert crc(0, fence.at_end(DATA[:size]), size) == expected
            assert crc(0, fence.at_start(DATA[:size]), size) == expected

    in_child(check)


def test_the_top_bit_of_the_body_crc_is_0():
    best = native.rc_crc32_way(native.rc_crc32_best())
    seen = set()
    for n in range(50):
        body = b"body %d" % n
        assert native.rc_body_crc(best, body, len(body)) == zlib.crc32(body) & 0x7FFFFFFF
        seen.add(zlib.crc32(body) >> 31)
    assert seen == {0, 1}
    assert native.rc_body_crc(best, b"hello", 5) == 907060870


def test_an_unknown_implementation():
    with pytest.raises(ValueError):
        crc32_by("by hand", b"")
    for way in set(NAMES) - set(WAYS):
        with pytest.raises(ValueError, match=f"this processor does not support {way}"):
            crc32_by(way, b"")
