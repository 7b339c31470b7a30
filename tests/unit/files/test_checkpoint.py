"""_checkpoint compared with the oracle, and with RocketMQ's own output for its files."""

import errno
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import oracle, stores

from rocketc.errors import StoreFullError, StoreIOError
from rocketc.files import _checkpoint


@pytest.mark.parametrize("name", stores.NAMES)
def test_golden_checkpoints(golden, name):
    store = golden(name)
    data = (store.path / "checkpoint").read_bytes()
    assert len(data) == _checkpoint.FILE_BYTES
    mine = _checkpoint.decode(data)
    assert mine == oracle.checkpoint(data)
    assert mine.physic_msg_timestamp > 1_700_000_000_000
    if name in stores.DAMAGED:
        told = (store.recovered.get("clean start") or store.recovered)["diskBefore"]["checkpoint"]
        assert list(mine) == told


@given(st.lists(st.integers(-1 << 63, (1 << 63) - 1), min_size=5, max_size=5), st.binary(max_size=50))
def test_any_checkpoint(fields, rest):
    data = struct.pack(">5q", *fields) + rest
    mine = _checkpoint.decode(data)
    assert mine == tuple(fields) == oracle.checkpoint(data)
    assert mine._fields == oracle.Checkpoint._fields


def test_a_flush_is_recorded_with_its_checkpoint(open_store, tmp_path):
    store = open_store()
    end = store.put("orders", b"hello").end
    store.flush()
    store.close()
    path = tmp_path / "checkpoint"
    told = _checkpoint.read(path)
    assert _checkpoint.flushed_offset(path, told) == _checkpoint.queued_offset(path, told) == end
    assert _checkpoint.indexed_offset(path, told) == 0, "no record has a key"
    other = told._replace(physic_msg_timestamp=told.physic_msg_timestamp + 1)
    _checkpoint.write(path, other)  # like a broker that flushes later
    assert _checkpoint.flushed_offset(path, other) == -1
    assert _checkpoint.queued_offset(path, other) == end
    _checkpoint.write(path, other, flushed=end - 1)
    assert _checkpoint.flushed_offset(path, other) == end - 1
    other = told._replace(logics_msg_timestamp=told.logics_msg_timestamp + 1)
    _checkpoint.write(path, other)
    assert _checkpoint.queued_offset(path, other) == -1


def test_bytes_after_the_fields_are_kept(tmp_path):
    """A later RocketMQ may add fields."""
    path = tmp_path / "checkpoint"
    path.write_bytes(bytes(40) + b"more" * 1014)
    _checkpoint.write(path, MEANT, flushed=7)
    data = path.read_bytes()
    assert data[40:488] == b"more" * 112
    assert data[488:496] == b"rcflushd"
    assert data[512:] == b"more" * 896


@pytest.mark.parametrize("size", [0, 40, 488, 511])
def test_a_checkpoint_without_a_recorded_flush(tmp_path, size):
    path = tmp_path / "checkpoint"
    assert _checkpoint.flushed_offset(path, _checkpoint.NOTHING) == -1
    path.write_bytes(bytes(size))
    assert _checkpoint.flushed_offset(path, _checkpoint.NOTHING) == -1
    path.write_bytes(bytes(488) + b"rcflushd" + struct.pack(">qq", 0, -5))
    assert _checkpoint.flushed_offset(path, _checkpoint.NOTHING) == -1
    path.write_bytes(bytes(488) + b"rcflushd" + struct.pack(">qq", 1, 5))
    assert _checkpoint.flushed_offset(path, _checkpoint.NOTHING) == -1


@pytest.mark.parametrize("length", range(40))
def test_a_torn_checkpoint(length):
    with pytest.raises(ValueError, match=f"a checkpoint has at least 40 bytes, not {length}"):
        _checkpoint.decode(bytes(length))


# Writing

FIELDS = st.lists(st.integers(-1 << 63, (1 << 63) - 1), min_size=5, max_size=5)
MEANT = _checkpoint.Checkpoint(1_763_740_000_123, 1_763_740_000_100, 1_763_739_000_000, 4096, 1 << 40)


@pytest.mark.parametrize("name", stores.NAMES)
def test_golden_checkpoints_are_written_unchanged(golden, tmp_path, name):
    data = (golden(name).path / "checkpoint").read_bytes()
    assert _checkpoint.encode(_checkpoint.decode(data)) == data
    path = tmp_path / "checkpoint"
    _checkpoint.write(path, _checkpoint.read(golden(name).path / "checkpoint"))
    assert path.read_bytes() == data


@given(FIELDS)
def test_encode_any(fields):
    data = _checkpoint.encode(fields)
    assert data == struct.pack(">5q", *fields) + bytes(4096 - 40)
    assert _checkpoint.encode(_checkpoint.decode(data)) == data


@pytest.mark.parametrize("fields", [[1 << 63, 0, 0, 0, 0], [0, 0, 0, 0, (-1 << 63) - 1]])
def test_encode_a_number_that_is_too_large(tmp_path, fields):
    with pytest.raises(OverflowError):
        _checkpoint.encode(fields)
    with pytest.raises(OverflowError):
        _checkpoint.write(tmp_path / "checkpoint", fields)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fields", [[], [0] * 4, [0] * 6])
def test_encode_a_wrong_number_of_fields(fields):
    with pytest.raises(ValueError, match=f"a checkpoint has 5 fields, not {len(fields)}"):
        _checkpoint.encode(fields)


def test_times(tmp_path):
    """RocketMQ's StoreCheckpointTest."""
    path = tmp_path / "checkpoint"
    _checkpoint.write(path, [0xAABB, 0xCCDD, 0, 0, 0])
    made = _checkpoint.read(path)
    assert (made.physic_msg_timestamp, made.logics_msg_timestamp) == (0xAABB, 0xCCDD)
    assert made.min_timestamp == 0xAABB - 3000
    assert made.min_timestamp_index == 0
    assert made._replace(index_msg_timestamp=0xAABB - 3001).min_timestamp_index == 0xAABB - 3001
    assert made._replace(index_msg_timestamp=0xAABB).min_timestamp_index == 0xAABB - 3000
    assert made._replace(logics_msg_timestamp=2999).min_timestamp == 0
    assert _checkpoint.NOTHING.min_timestamp == _checkpoint.NOTHING.min_timestamp_index == 0


def test_write_in_place(tmp_path):
    path = tmp_path / "checkpoint"
    _checkpoint.write(path, MEANT)
    with path.open("r+b") as file:
        file.seek(40)
        file.write(b"rest")
    inode = path.stat().st_ino
    _checkpoint.write(str(path), MEANT._replace(physic_msg_timestamp=5))
    assert path.stat().st_ino == inode
    data = path.read_bytes()
    assert data == struct.pack(">5q", 5, *MEANT[1:]) + b"rest" + bytes(4096 - 44)
    assert _checkpoint.read(path) == (5, *MEANT[1:])


def test_write_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _checkpoint.write("checkpoint", MEANT)
    assert _checkpoint.read("checkpoint") == MEANT


@pytest.mark.parametrize("length", [0, 1, 8, 39, 40, 41, 4095, 4096, 5000])
def test_open_file_extends_it_to_its_full_size(tmp_path, length):
    path = tmp_path / "checkpoint"
    path.write_bytes((_checkpoint.encode(MEANT) + bytes(904))[:length])
    fd = _checkpoint.open_file(path)
    assert not os.get_inheritable(fd)
    os.close(fd)
    assert path.stat().st_size == max(length, 4096)
    assert _checkpoint.read(path) == (MEANT if length >= 40 else _checkpoint.NOTHING)


def test_the_order_of_syncs(tmp_path, monkeypatch):
    """For a new file: first the file, then the folder, then the fields as in each write."""
    done = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (done.append(os.readlink(f"/proc/self/fd/{fd}")), sync(fd))[1])
    path = tmp_path / "checkpoint"
    for _ in range(2):
        _checkpoint.write(path, MEANT)
        assert done == [str(path), str(tmp_path)]


def test_one_write_and_one_sync(tmp_path):
    """The system calls for an existing checkpoint."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("there is no strace")
    path = tmp_path / "checkpoint"
    _checkpoint.write(path, MEANT)
    code = "import sys; from rocketc.files import _checkpoint; _checkpoint.write(sys.argv[1], range(5))"
    calls = "trace=pwrite64,write,fdatasync,fsync,rename,ftruncate"
    told = subprocess.run([strace, "-e", calls, "-o", tmp_path / "calls", sys.executable, "-c", code, path])
    if told.returncode != 0:
        pytest.skip("strace may not trace here")
    lines = (tmp_path / "calls").read_text().splitlines()
    assert [line.split("(")[0] for line in lines if "(" in line] == ["pwrite64", "fdatasync"]
    assert ", 512, 0)" in lines[0]


# Reading arbitrary bytes


@pytest.mark.parametrize("length", range(40))
def test_read_a_torn_checkpoint(tmp_path, length):
    path = tmp_path / "checkpoint"
    path.write_bytes(_checkpoint.encode(MEANT)[:length])
    assert _checkpoint.read(path) == _checkpoint.NOTHING == (0, 0, 0, 0, 0)


@pytest.mark.parametrize("field", range(3))
@pytest.mark.parametrize("value", [-1, -1 << 63, 253_402_300_800_000, (1 << 63) - 1, 0x6C6F636B << 32])
def test_read_an_impossible_time(tmp_path, field, value):
    path = tmp_path / "checkpoint"
    fields = list(MEANT)
    fields[field] = value
    path.write_bytes(_checkpoint.encode(fields))
    assert _checkpoint.read(path) == _checkpoint.NOTHING


@pytest.mark.parametrize("field", [3, 4])
def test_read_an_impossible_offset(tmp_path, field):
    path = tmp_path / "checkpoint"
    for value, meant in ((-1, True), (-2, False), (-1 << 63, False)):
        fields = list(MEANT)
        fields[field] = value
        path.write_bytes(_checkpoint.encode(fields))
        assert _checkpoint.read(path) == (tuple(fields) if meant else _checkpoint.NOTHING)


def test_read_a_path_that_is_not_a_file(tmp_path):
    assert _checkpoint.read(tmp_path / "none") == _checkpoint.NOTHING
    assert _checkpoint.read(tmp_path) == _checkpoint.NOTHING
    os.mkfifo(tmp_path / "pipe")
    assert _checkpoint.read(tmp_path / "pipe") == _checkpoint.NOTHING


# Errors


def test_write_to_an_impossible_path(tmp_path):
    (tmp_path / "checkpoint").mkdir()
    with pytest.raises(StoreIOError) as refused:
        _checkpoint.write(tmp_path / "checkpoint", MEANT)
    assert (refused.value.errno, refused.value.filename) == (errno.EISDIR, str(tmp_path / "checkpoint"))
    with pytest.raises(StoreIOError) as refused:
        _checkpoint.write(tmp_path / "none" / "checkpoint", MEANT)
    assert (refused.value.errno, refused.value.filename) == (errno.ENOENT, str(tmp_path / "none" / "checkpoint"))


@pytest.fixture
def limited(tmp_path):
    """Run in a child process in which no file may grow: a write fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda limit: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, ignored)


@pytest.mark.parametrize(("limit", "number"), [(0, errno.EFBIG), (20, errno.EIO)])
def test_a_write_that_fails(tmp_path, limited, limit, number):
    path = tmp_path / "checkpoint"
    _checkpoint.write(path, MEANT)
    open_files = psutil.Process().num_fds()
    limited(limit)
    try:
        with pytest.raises(StoreIOError) as refused:
            _checkpoint.write(path, MEANT._replace(physic_msg_timestamp=5))
    finally:
        limited(resource.RLIM_INFINITY)
    assert (refused.value.errno, refused.value.filename) == (number, str(path))
    assert psutil.Process().num_fds() == open_files


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk(tmp_path, monkeypatch, number):
    def full(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StoreFullError, match="checkpoint"):
        _checkpoint.open_file(tmp_path / "checkpoint")
