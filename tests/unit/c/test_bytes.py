"""bytes.h compared with struct and slices."""

import ctypes
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.native import Fence, in_child, native

WIDTHS = [(2, ">h", "i16"), (4, ">i", "i32"), (8, ">q", "i64")]


@pytest.mark.parametrize(("width", "code", "name"), WIDTHS)
@given(data=st.data())
def test_numbers_at_any_address(width, code, name, data):
    bits = 8 * width
    value = data.draw(st.integers(-(1 << bits - 1), (1 << bits - 1) - 1))
    at = data.draw(st.integers(0, 17))
    put = {"i16": native.rc_put_i16, "i32": native.rc_put_i32, "i64": native.rc_put_i64}[name]
    get = {"i16": native.rc_get_i16, "i32": native.rc_get_i32, "i64": native.rc_get_i64}[name]
    memory = ctypes.create_string_buffer(b"\xaa" * 32, 32)
    put(ctypes.addressof(memory) + at, value)
    assert memory.raw == b"\xaa" * at + struct.pack(code, value) + b"\xaa" * (32 - width - at)
    assert get(ctypes.addressof(memory) + at) == value


def test_functions_by_name():
    assert native.rc_get_i16(b"\xff\xfe") == -2
    assert native.rc_get_i32(b"\x80\0\0\0") == -(1 << 31)
    assert native.rc_get_i64(b"\x7f" + b"\xff" * 7) == (1 << 63) - 1
    memory = ctypes.create_string_buffer(8)
    native.rc_put_i16(memory, -2)
    native.rc_put_i32(ctypes.addressof(memory) + 2, 1)
    assert memory.raw == b"\xff\xfe\0\0\0\1\0\0"
    native.rc_put_i64(memory, -1)
    assert memory.raw == b"\xff" * 8


mostly_zeros = st.builds(
    lambda before, middle, behind: bytes(before) + middle + bytes(behind),
    st.integers(0, 100),
    st.binary(max_size=8),
    st.integers(0, 100),
)


@given(mostly_zeros)
def test_zeros_at_both_ends(data):
    assert native.rc_zero_prefix(data, len(data)) == len(data) - len(data.lstrip(b"\0"))
    assert native.rc_trim_zeros(data, len(data)) == len(data.rstrip(b"\0"))


@pytest.mark.parametrize("size", range(0, 100))
def test_one_byte_among_zeros(size):
    for at in range(size):
        data = bytes(at) + b"\x80" + bytes(size - at - 1)
        assert native.rc_zero_prefix(data, size) == at
        assert native.rc_trim_zeros(data, size) == at + 1
    assert native.rc_zero_prefix(bytes(size), size) == size
    assert native.rc_trim_zeros(bytes(size), size) == 0


@given(st.lists(st.sampled_from([b"\0" * 7, b"x" * 5, b"\xda", b"\xcb", b"\xff"]), max_size=20).map(b"".join))
def test_the_first_of_two_bytes(data):
    found = [i for i, byte in enumerate(data) if byte in b"\xda\xcb"]
    assert native.rc_find_either(data, len(data), 0xDA, 0xCB) == (found[0] if found else len(data))
    assert native.rc_find_either(data, len(data), 0x11, 0xFF) == (data.index(b"\xff") if b"\xff" in data else len(data))


def test_no_byte_outside_is_read_or_written():
    def check():
        fence = Fence()
        for size in range(130):
            for address in (fence.at_end(bytes(size)), fence.at_start(bytes(size))):
                assert native.rc_zero_prefix(address, size) == size
                assert native.rc_trim_zeros(address, size) == 0
                assert native.rc_find_either(address, size, 1, 2) == size
        for size, get in ((2, native.rc_get_i16), (4, native.rc_get_i32), (8, native.rc_get_i64)):
            assert get(fence.at_end(b"\0" * size)) == 0

    in_child(check)
