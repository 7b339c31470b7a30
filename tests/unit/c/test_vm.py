"""vm.h: maps return an errno instead of a crash, and release the given pages."""

import ctypes
import errno
import os
import re
import socket
import sys

import pytest
from support.native import native

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
    native.rc_map_release(base, 0, PAGE + 7)
    native.rc_map_release(base, 1, 2)  # less than a whole page
    assert ctypes.string_at(base.value, 7) == b"content", "it is read again from the page cache"
    assert native.rc_unmap(base, PAGE + 7) == 0


def test_files_that_cannot_be_mapped(tmp_path, base):
    base.value = 4711
    assert native.rc_map_read(-1, 10, ctypes.byref(base)) == errno.EBADF
    fd = os.open(tmp_path, os.O_RDONLY)
    assert native.rc_map_read(fd, 10, ctypes.byref(base)) == errno.ENODEV
    os.close(fd)
    assert native.rc_map_own(1 << 62, ctypes.byref(base)) == errno.ENOMEM
    assert base.value == 4711, "a failure leaves the pointer unchanged"
    assert native.rc_unmap(1, 10) == errno.EINVAL


def test_allocated_memory_grows_and_keeps_its_content(base):
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


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps"), reason="needs /proc/self/smaps")
def test_released_pages_are_no_longer_resident(tmp_path, base):
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
    native.rc_map_release(base, 0, 48 * PAGE + 17)
    assert resident() == 16 * PAGE
    assert native.rc_unmap(base, size) == 0


def test_disk_space_is_allocated_and_the_content_stays(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"held")
    fd = os.open(path, os.O_RDWR)
    assert native.rc_allocate(fd, 10 * PAGE) == 0
    assert path.read_bytes() == b"held" + bytes(10 * PAGE - 4)
    assert path.stat().st_blocks * 512 >= 10 * PAGE
    assert native.rc_allocate(fd, PAGE) == 0  # it never makes a file shorter
    assert path.stat().st_size == 10 * PAGE
    os.close(fd)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems write zeros")
def test_an_allocation_at_full_length_does_not_change_the_file(tmp_path):
    path = tmp_path / "file"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 10 * PAGE)
    os.utime(path, (1000, 2000))
    assert native.rc_allocate(fd, 10 * PAGE) == 0
    assert path.stat().st_blocks * 512 >= 10 * PAGE
    assert path.stat().st_mtime == 2000
    os.close(fd)


def test_a_full_disk_is_an_errno():
    assert native.rc_allocate(-1, PAGE) == errno.EBADF
    read, write = os.pipe()
    assert native.rc_allocate(write, PAGE) == errno.ESPIPE
    os.close(read)
    os.close(write)


def test_a_map_for_writing_reaches_the_file(tmp_path):
    path = tmp_path / "file"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    assert native.rc_allocate(fd, 4 * PAGE) == 0
    base = ctypes.c_void_p()
    assert native.rc_map_write(fd, 4 * PAGE, ctypes.byref(base)) == 0
    ctypes.memmove(base.value + PAGE, b"first", 5)
    assert native.rc_populate(base, PAGE, 3 * PAGE) == 0
    assert native.rc_populate(base, PAGE, PAGE) == 0
    assert ctypes.string_at(base.value + PAGE, 5) == b"first"
    assert native.rc_sync_map(base, PAGE + 3, PAGE + 5) == 0
    assert native.rc_sync_map(base, PAGE, PAGE) == 0
    assert native.rc_is_resident(base, PAGE, PAGE) == native.rc_is_resident(base, 0, 2 * PAGE) == 1
    native.rc_touch(base, 4 * PAGE)
    native.rc_touch(base, 0)
    assert native.rc_map_lock(base, 4 * PAGE) == 0
    native.rc_map_unlock(base, 4 * PAGE)
    assert native.rc_sync_file(fd) == 0
    assert path.read_bytes()[PAGE : PAGE + 5] == b"first"
    assert native.rc_unmap(base, 4 * PAGE) == 0
    assert native.rc_sync_map(base, 0, PAGE) == errno.ENOMEM
    assert native.rc_map_lock(base, PAGE) == errno.ENOMEM
    os.close(fd)
    assert native.rc_map_write(-1, PAGE, ctypes.byref(base)) == errno.EBADF
    assert native.rc_sync_file(-1) == errno.EBADF


def test_write_at_writes_everything_or_fails(tmp_path):
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    assert native.rc_write_at(fd, b"abc", 3, 5) == 0
    assert os.pread(fd, 8, 0) == b"\0\0\0\0\0abc"
    os.close(fd)
    assert native.rc_write_at(-1, b"abc", 3, 0) == errno.EBADF


def test_zeros_are_written_over_a_part(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10000)
    fd = os.open(path, os.O_RDWR)
    assert native.rc_write_zeros(fd, 3, 9000, 4096) == 0
    native.rc_forget_cache(fd, 0)
    assert path.read_bytes() == b"xxx" + bytes(8997) + b"x" * 1000
    os.close(fd)
    assert native.rc_write_zeros(-1, 0, 1, native.RC_ZERO_BLOCK_MAX) == errno.EBADF


def test_a_new_file_gets_its_name_when_it_is_ready(tmp_path):
    path = tmp_path / "file"
    fd = ctypes.c_int()
    names = os.fsencode(tmp_path), os.fsencode(path)
    assert native.rc_new_file(*names, ctypes.byref(fd)) == 0
    os.pwrite(fd.value, b"held", 0)
    assert native.rc_name_file(fd.value, names[1]) == 0
    assert path.read_bytes() == b"held"
    os.close(fd.value)
    assert native.rc_new_file(*names, ctypes.byref(fd)) == errno.EEXIST
    assert native.rc_new_file(names[0] + b"/none", names[0] + b"/none/file", ctypes.byref(fd)) == errno.ENOENT


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR])
def test_only_a_regular_file_is_opened(tmp_path, flags):
    """At once, whatever the path is: without O_NONBLOCK, opening a FIFO would wait."""
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "fifo")
    here = os.getcwd()
    os.chdir(tmp_path)  # the path of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("socket")
    finally:
        os.chdir(here)
    refused = {"none": errno.ENOENT, ".": errno.EISDIR, "fifo": errno.ENXIO, "socket": errno.ENXIO,
               "loop": errno.ELOOP, "/dev/zero": errno.ENXIO}  # fmt: skip
    if flags == os.O_RDWR:
        refused["link"] = errno.ELOOP
    for name, code in refused.items():
        assert native.rc_open_file(os.fsencode(tmp_path / name), flags) == -1, name
        assert ctypes.get_errno() == code, name
    for name in {"file", "link"} - set(refused):
        fd = native.rc_open_file(os.fsencode(tmp_path / name), flags)
        assert os.read(fd, 9) == b"content"
        assert not os.get_inheritable(fd)
        os.close(fd)


def test_a_file_created_in_the_meantime_is_not_replaced(tmp_path):
    path = tmp_path / "file"
    fd = ctypes.c_int()
    assert native.rc_new_file(os.fsencode(tmp_path), os.fsencode(path), ctypes.byref(fd)) == 0
    path.unlink(missing_ok=True)
    path.write_bytes(b"another")
    assert native.rc_name_file(fd.value, os.fsencode(path)) in (0, errno.EEXIST)  # 0: without unnamed files
    assert path.read_bytes() == b"another"
    os.close(fd.value)


def test_sync_of_a_folder(tmp_path):
    assert native.rc_sync_folder(os.fsencode(tmp_path)) == 0
    assert native.rc_sync_folder(os.fsencode(tmp_path / "none")) == errno.ENOENT


def test_sync_of_all(tmp_path):
    assert native.rc_sync_all(os.fsencode(tmp_path)) in (0, errno.ENOSYS)
    assert native.rc_sync_all(os.fsencode(tmp_path / "none")) in (errno.ENOENT, errno.ENOSYS)


def test_disk_space_for_a_part_of_a_sparse_file(tmp_path):
    path = tmp_path / "file"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 100 * PAGE)
    os.pwrite(fd, b"x", 20 * PAGE)
    before = os.fstat(fd).st_blocks
    assert native.rc_allocate_range(fd, 10 * PAGE, 30 * PAGE) == 0
    assert os.fstat(fd).st_blocks >= before + 19 * PAGE // 512
    assert os.pread(fd, 1, 20 * PAGE) == b"x", "the existing bytes stay"
    assert os.fstat(fd).st_size == 100 * PAGE
    assert native.rc_allocate_range(-1, 0, PAGE) == errno.EBADF
    os.close(fd)


def test_the_end_of_the_data_of_a_file(tmp_path):
    path = tmp_path / "file"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    assert native.rc_data_end(fd) == 0
    os.ftruncate(fd, 100 * PAGE)
    assert native.rc_data_end(fd) == 0, "one hole"
    os.pwrite(fd, b"x", 7 * PAGE + 5)
    assert 7 * PAGE + 6 <= native.rc_data_end(fd) <= 100 * PAGE
    os.pwrite(fd, b"x", 50 * PAGE)
    assert native.rc_data_end(fd) > 50 * PAGE
    assert native.rc_data_end(-1) == -errno.EBADF
    os.close(fd)


@pytest.mark.parametrize("pos", [0, 5, PAGE, 7 * PAGE + 100, 30 * PAGE, 100 * PAGE - 1])
def test_the_end_of_a_file_is_cleared(tmp_path, pos):
    path = tmp_path / "file"
    path.write_bytes(b"\xff" * (60 * PAGE))
    fd = os.open(path, os.O_RDWR)
    os.ftruncate(fd, 100 * PAGE)
    assert native.rc_clear_from(fd, pos, 100 * PAGE) == 0
    os.close(fd)
    kept = min(pos, 60 * PAGE)
    assert path.read_bytes() == b"\xff" * kept + bytes(100 * PAGE - kept)
    assert native.rc_clear_from(-1, 0, PAGE) == errno.EBADF


def blocks(path):
    return path.stat().st_blocks * 512


@pytest.mark.parametrize("start, stop", [(5, 100 * PAGE), (7 * PAGE, 100 * PAGE), (7 * PAGE - 1, 90 * PAGE + 1)])
def test_the_space_of_zeros_is_freed(tmp_path, start, stop):
    path = tmp_path / "file"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    assert native.rc_allocate(fd, 100 * PAGE) == 0
    os.pwrite(fd, b"x", 4)
    os.utime(path, ns=(1, 1))
    before = blocks(path)
    native.rc_free_space(fd, start, stop)
    whole = stop // PAGE - -(-start // PAGE)
    assert before - blocks(path) in (0, whole * PAGE), "0: the file system keeps it"
    assert path.read_bytes() == b"\0\0\0\0x" + bytes(100 * PAGE - 5)
    assert path.stat().st_mtime_ns == 1
    native.rc_free_space(fd, 8 * PAGE, 8 * PAGE)
    native.rc_free_space(-1, 0, PAGE)
    os.close(fd)


def test_unwritten_pages_are_freed_and_written_ones_stay(tmp_path):
    path = tmp_path / "file"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    assert native.rc_allocate(fd, 100 * PAGE) == 0
    for page in (0, 3, 50, 99):
        os.pwrite(fd, b"x", page * PAGE + 9)
    os.fsync(fd)
    before, content = blocks(path), path.read_bytes()
    native.rc_free_unwritten(fd, 40, 90 * PAGE)
    os.close(fd)
    assert path.read_bytes() == content
    assert before - blocks(path) in (0, 87 * PAGE)
    native.rc_free_unwritten(-1, 0, PAGE)
