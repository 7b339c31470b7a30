"""Files and folders that are not a log, or not readable: a clear error that names the path, and no hang."""

import os
import socket

import pytest
from support import compare, oracle
from support.command import python

import rocketc

pytestmark = pytest.mark.promise(8)

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d4944415478da63f8ffff3f0005fe02fe"
)


def passes(path):
    """All ways to read a path with errors="raise"; each of them may raise."""
    for take in (list, lambda s: s.count(), lambda s: s.to_arrow(), lambda s: list(s.batches())):
        yield lambda take=take: take(rocketc.scan(path))


@pytest.mark.parametrize("name", ["picture.png", "00000000000000000000"])
def test_a_picture_is_damage(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(PNG)
    for take in passes(path):
        with pytest.raises(rocketc.CorruptRecordError, match="bad_") as caught:
            take()
        assert caught.value.file == str(path)
    scan = rocketc.scan(path, errors="skip")
    assert list(scan) == []
    assert [(d.file, d.start, d.stop) for d in scan.report.damage] == [(str(path), 0, len(PNG))]


@pytest.mark.parametrize("name", ["empty", "00000000000000000000"])
def test_an_empty_file_contains_no_messages(tmp_path, name):
    path = tmp_path / name
    path.touch()
    for take in passes(path):
        assert take() in ([], 0) or take().num_rows == 0
    assert rocketc.scan(path).to_arrow().schema.names == list(rocketc.COLUMN_NAMES)
    assert rocketc.decode(b"").count() == 0


def test_a_folder_without_a_log(tmp_path):
    with pytest.raises(rocketc.StoreIOError, match="no commit log here") as caught:
        rocketc.scan(tmp_path)
    assert caught.value.filename == str(tmp_path)
    (tmp_path / "commitlog").mkdir()
    assert list(rocketc.scan(tmp_path)) == []
    assert list(rocketc.scan(tmp_path / "commitlog")) == []


def errors_of(path):
    """Assert that every way to read the path raises StoreIOError; yield the errors."""
    for take in passes(path):
        with pytest.raises(rocketc.StoreIOError) as caught:
            take()
        yield caught.value


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(tmp_path):
    path = tmp_path / "00000000000000000000"
    path.write_bytes(oracle.encode("topic", b"body"))
    path.chmod(0)
    for error in errors_of(path):
        assert isinstance(error, OSError)
        assert (error.errno, error.filename) == (13, str(path))


def test_a_file_without_permission_as_another_user(tmp_path):
    """The same if the tests run as root: the file is read in a process of another user."""
    if os.geteuid() != 0:
        pytest.skip("only root can change the user")
    path = tmp_path / "00000000000000000000"
    path.write_bytes(oracle.encode("topic", b"body"))
    path.chmod(0)
    for folder in [tmp_path, *tmp_path.parents]:
        if not folder.stat().st_mode & 1:
            pytest.skip("a folder above the file is not accessible to others")
    code = f"""
import os, rocketc
os.setuid(65534)
try:
    rocketc.scan({str(path)!r}).count()
except rocketc.StoreIOError as error:
    print(error.errno, error.filename)
"""
    assert python(code).split() == ["13", str(path)]


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path)


@pytest.mark.parametrize("name", ["thing", "00000000000000000000"])
@pytest.mark.parametrize("whole_folder", [False, True])
def test_paths_that_are_not_regular_files(tmp_path, name, whole_folder):
    """A FIFO, a socket, a folder, a device, a dangling symlink: no hang, and an error that names it."""
    makers = {
        "fifo": os.mkfifo,
        "socket": make_socket,
        "folder": os.mkdir,
        "null": lambda path: os.symlink("/dev/null", path),
        "zero": lambda path: os.symlink("/dev/zero", path),
        "nowhere": lambda path: os.symlink("nowhere", path),
        "loop": lambda path: os.symlink(name, path),
    }
    here = os.getcwd()
    for kind, make in makers.items():
        folder = tmp_path / kind / "commitlog"
        folder.mkdir(parents=True)
        path = folder / name
        os.chdir(folder)  # the path of a socket must be short
        try:
            make(name)
        finally:
            os.chdir(here)
        if whole_folder and name == "thing":
            assert list(rocketc.scan(folder)) == [], kind  # its name is not that of a log file
            continue
        what = str(folder if whole_folder else path)
        code = f"import rocketc\ntry: rocketc.scan({what!r}).count()\nexcept rocketc.StoreIOError as e: print(e)"
        told = python(code, timeout=20)
        assert str(path) in told or (kind == "folder" and not whole_folder), (kind, told)


def test_a_device_in_the_way(tmp_path):
    for path in ("/dev/null", "/dev/zero"):
        for error in errors_of(path):
            assert error.filename == path
            assert "not a regular file" in str(error)


def test_a_bad_file_among_good_ones(tmp_path):
    """Files that end in blank records around a picture: only that file is lost."""
    size = 1024
    files = oracle.lay_out([{"topic": "t", "body": b"x" * 100}] * 20, size)
    files[1] = (files[1][0], PNG.ljust(size, b"\xff"))
    written = compare.write_log(tmp_path, files)
    walked = oracle.walk_log(written)
    scan = rocketc.scan(tmp_path, errors="skip")
    assert [m.phy_offset for m in scan] == [r["start"] for r in oracle.records(walked)]
    compare.check_report(scan.report, walked, walked)
    assert [d.start for d in scan.report.damage] == [size]


def test_a_file_that_vanishes(tmp_path):
    files = oracle.lay_out([{"topic": "t", "body": b"x" * 100}] * 20, 1024)
    written = compare.write_log(tmp_path, files)
    scan = rocketc.scan(tmp_path)
    os.unlink(written[2][2])
    found = []
    with pytest.raises(rocketc.StoreIOError) as caught:
        found.extend(m.phy_offset for m in scan)
    assert caught.value.filename == written[2][2]
    found = []
    with pytest.raises(rocketc.StoreIOError):
        for m in scan:
            found.append(m.phy_offset)
    assert found == [r["start"] for r in oracle.records(oracle.walk_log(written[:2]))]
