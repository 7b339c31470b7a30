"""text.h: hex and decimal numbers, and hosts formatted as by ipaddress."""

import ctypes
import ipaddress
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import oracle
from support.native import Fence, in_child, native


def made(size, function, *arguments):
    """Return the bytes that a function writes into `size` bytes, by the returned length or all of them."""
    room = ctypes.create_string_buffer(b"\xaa" * (size + 8), size + 8)
    length = function(room, *arguments)
    assert room.raw[size:] == b"\xaa" * 8
    return room.raw[: size if length is None else length]


@given(st.binary(max_size=40))
def test_hex(raw):
    assert made(2 * len(raw), native.rc_hex, raw, len(raw)) == raw.hex().upper().encode()
    native.rc_hex(ctypes.create_string_buffer(2 * len(raw) + 1), raw, len(raw))


@given(st.integers(0, (1 << 32) - 1) | st.integers(0, 10).map(lambda n: 10**n - 1 if n < 10 else 10**9))
def test_decimal(number):
    assert made(10, native.rc_decimal, number) == b"%d" % number


def test_decimal_at_its_limits():
    for number in [0, (1 << 32) - 1, *(10**n for n in range(10)), *(10**n - 1 for n in range(10))]:
        assert native.rc_decimal(ctypes.create_string_buffer(10), number) == len(str(number))


@given(st.binary(min_size=4, max_size=4))
def test_ipv4(raw):
    assert made(15, native.rc_ipv4_text, raw) == str(ipaddress.IPv4Address(raw)).encode()
    assert native.rc_ipv4_text(ctypes.create_string_buffer(15), raw) == len(str(ipaddress.IPv4Address(raw)))


group = st.one_of(st.just(0), st.sampled_from([1, 0xF, 0x10, 0xFF0, 0xFFFF]), st.integers(0, 0xFFFF))
addresses = st.lists(group, min_size=8, max_size=8).map(lambda numbers: struct.pack(">8H", *numbers))


@given(addresses)
def test_ipv6(raw):
    found = made(39, native.rc_ipv6_text, raw).decode()
    assert found == oracle.ipv6_text(raw)
    if ipaddress.IPv6Address(raw).ipv4_mapped is None:  # since Python 3.13 these have a dotted part
        assert found == str(ipaddress.IPv6Address(raw))


def test_ipv6_with_every_set_of_zero_groups():
    """All 256 combinations of zero groups: which run becomes `::`."""
    for zeros in range(256):
        raw = b"".join(b"\0\0" if zeros >> i & 1 else b"\x0a\xbc" for i in range(8))
        room = ctypes.create_string_buffer(39)
        size = native.rc_ipv6_text(room, raw)
        assert room.raw[:size].decode() == str(ipaddress.IPv6Address(raw))


@given(st.binary(min_size=4, max_size=4) | addresses, st.integers(-(1 << 31), (1 << 31) - 1))
def test_host(address, port):
    host = address + struct.pack(">i", port)
    assert made(native.RC_HOST_TEXT_MAX, native.rc_host_text, host, len(host)).decode() == oracle.host_text(host)


def test_the_longest_host_fits():
    host = bytes.fromhex("ff" * 16 + "80000000")
    room = ctypes.create_string_buffer(native.RC_HOST_TEXT_MAX)
    assert native.rc_host_text(room, host, 20) == len("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:-2147483648")


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 100])
@pytest.mark.parametrize("behind", [0, 1, 31, 32, 40])
def test_a_short_copy(size, behind):
    text = bytes(range(1, size + 1)) + b"\xbb" * behind
    memory = ctypes.create_string_buffer(text, len(text) + 1)
    end = ctypes.addressof(memory) + len(text)
    room = ctypes.create_string_buffer(size + native.RC_COPY_SLACK)
    native.rc_copy_short(room, memory, size, end)
    assert room.raw[:size] == text[:size]
    if behind >= native.RC_COPY_SLACK:
        room = ctypes.create_string_buffer(size + native.RC_COPY_SLACK)
        native.rc_copy_slack(room, memory, size)
        assert room.raw[:size] == text[:size]


@given(st.integers(0, 1500), st.integers(0, 200), st.integers(0, 64))
def test_a_copy_past_the_cache(size, at, shift):
    text = bytes(range(256)) * 6
    memory = ctypes.create_string_buffer(text, len(text))
    room = ctypes.create_string_buffer(b"\xaa" * 2000, 2000)
    native.rc_copy_stream(ctypes.addressof(room) + at, ctypes.addressof(memory) + shift % 36, size)
    native.rc_stream_end()
    expected = text[shift % 36 :][:size]
    assert room.raw == b"\xaa" * at + expected + b"\xaa" * (2000 - at - len(expected))


def test_copies_write_no_byte_outside():
    def check():
        source, target = Fence(), Fence()
        for size in [*range(0, 700), 4095, 4096]:
            text = bytes(i & 0xFF for i in range(size))
            for src in (source.at_start(text), source.at_end(text)):
                for dst in (target.start, target.end - size):
                    native.rc_copy_stream(dst, src, size)
                    assert ctypes.string_at(dst, size) == text
        native.rc_stream_end()

    in_child(check)


def test_a_short_copy_reads_nothing_after_the_end():
    def check():
        fence = Fence()
        room = ctypes.create_string_buffer(200 + native.RC_COPY_SLACK)
        for size in range(100):
            for tail in range(40):
                text = b"t" * size + b"x" * tail
                native.rc_copy_short(room, fence.at_end(text), size, fence.end)
                assert room.raw[:size] == text[:size]
            native.rc_copy_short(room, fence.at_end(b"u" * size), size, None)  # the end is not known
            assert room.raw[:size] == b"u" * size

    in_child(check)
