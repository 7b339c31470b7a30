"""atomic.h: the result and effect of each operation. Memory order between threads: tests/stress."""

import ctypes

from support.native import native


def number(value):
    return ctypes.c_int64(value)


def test_load_and_store():
    n = number(5)
    assert native.rc_load_i64(ctypes.byref(n)) == 5
    native.rc_store_i64(ctypes.byref(n), -7)
    assert n.value == -7


def test_bytes_and_pointers():
    byte, place = ctypes.c_uint8(5), ctypes.c_void_p(0x1234)
    assert native.rc_load_u8(ctypes.byref(byte)) == 5
    native.rc_store_u8(ctypes.byref(byte), 200)
    assert byte.value == 200
    assert native.rc_load_pointer(ctypes.byref(place)) == 0x1234
    native.rc_store_pointer(ctypes.byref(place), None)
    assert place.value is None


def test_big_endian_numbers():
    four = (ctypes.c_uint8 * 4)(0x81, 2, 3, 4)
    assert native.rc_load_be32(four) == 0x81020304 - (1 << 32)
    native.rc_store_be32(four, -2)
    assert bytes(four) == b"\xff\xff\xff\xfe"


def test_add_returns_the_new_value_and_count_adds():
    n = number(5)
    assert native.rc_add_i64(ctypes.byref(n), -2) == 3
    native.rc_count_i64(ctypes.byref(n), 10)
    assert n.value == 13


def test_raise_never_lowers():
    n = number(5)
    native.rc_raise_i64(ctypes.byref(n), 4)
    assert n.value == 5
    native.rc_raise_i64(ctypes.byref(n), 6)
    assert n.value == 6


def test_set_once_keeps_the_first():
    n = number(0)
    assert native.rc_set_once_i64(ctypes.byref(n), 3) == 0
    assert native.rc_set_once_i64(ctypes.byref(n), 4) == 3
    assert n.value == 3


def test_hold_counts_up_unless_it_is_closed():
    n = number(1)
    assert native.rc_hold_i64(ctypes.byref(n)) == 1
    assert n.value == 2
    n.value = 0
    assert native.rc_hold_i64(ctypes.byref(n)) == 0
    assert n.value == 0


def test_fence_and_touch_change_nothing():
    byte = ctypes.create_string_buffer(b"x", 1)
    native.rc_fence_release()
    native.rc_fence_full()
    native.rc_touch_for_writing(byte)
    assert byte.raw == b"x"
