"""vm.h: maps give an errno and no crash, and let go of what they are told."""

import ctypes
import errno
import os
import re

import pytest
from native import native

PAGE = os.sysconf("SC_PAGESIZE")


@pytest.fixture
def base():
    return ctypes.c_void_p()


def test_a_file_is_mapped(tmp_path, base):
    path = tmp_path / "file"
    path.write_bytes(b"content" + bytes(PAGE))
    fd = os.open(path, os.O_RDONLY)
    assert native.rc_map_read(fd, PAGE + 7, ctypes.byref(base)) == 0
    os.close(fd)
    assert ctypes.string_at(base.value, 7) == b"content"
    native.rc_map_sequential(base, PAGE + 7)
    native.rc_map_random(base, PAGE + 7)
    native.rc_map_let_go(base, 0, PAGE + 7)
    native.rc_map_let_go(base, 1, 2)  # no whole page
    assert ctypes.string_at(base.value, 7) == b"content", "it is read again from the page cache"
    assert native.rc_unmap(base, PAGE + 7) == 0


def test_what_cannot_be_mapped(tmp_path, base):
    base.value = 4711
    assert native.rc_map_read(-1, 10, ctypes.byref(base)) == errno.EBADF
    fd = os.open(tmp_path, os.O_RDONLY)
    assert native.rc_map_read(fd, 10, ctypes.byref(base)) == errno.ENODEV
    os.close(fd)
    assert native.rc_map_own(1 << 62, ctypes.byref(base)) == errno.ENOMEM
    assert base.value == 4711, "a failure leaves it alone"
    assert native.rc_unmap(1, 10) == errno.EINVAL


def test_own_memory_grows_and_keeps_what_it_held(base):
    assert native.rc_map_own(PAGE, ctypes.byref(base)) == 0
    assert ctypes.string_at(base.value, PAGE) == bytes(PAGE)
    ctypes.memmove(base.value, b"kept", 4)
    assert native.rc_map_grow(ctypes.byref(base), PAGE, 100 * PAGE) == 0
    assert ctypes.string_at(base.value, 8) == b"kept\0\0\0\0"
    assert ctypes.string_at(base.value + 99 * PAGE, PAGE) == bytes(PAGE)
    before = base.value
    assert native.rc_map_grow(ctypes.byref(base), 100 * PAGE, 1 << 46) == errno.ENOMEM
    assert base.value == before
    assert ctypes.string_at(base.value, 4) == b"kept"
    assert native.rc_unmap(base, 100 * PAGE) == 0


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps"), reason="this system has no smaps")
def test_pages_let_go_are_no_longer_resident(tmp_path, base):
    size = 64 * PAGE
    path = tmp_path / "file"
    path.write_bytes(b"x" * size)
    fd = os.open(path, os.O_RDONLY)
    assert native.rc_map_read(fd, size, ctypes.byref(base)) == 0
    os.close(fd)

    def resident():
        with open("/proc/self/smaps") as maps:
            [entry] = re.findall(rf"^{base.value:x}-.*?^Rss:\s+(\d+) kB", maps.read(), re.S | re.M)
        return int(entry) * 1024

    assert ctypes.string_at(base.value, size) == b"x" * size
    assert resident() == size
    native.rc_map_let_go(base, 0, 48 * PAGE + 17)
    assert resident() == 16 * PAGE
    assert native.rc_unmap(base, size) == 0
