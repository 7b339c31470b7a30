"""Bytes cut off a log are kept unchanged, once, and readable. If that is impossible, the log is unchanged."""

import os
import resource
import shutil
import signal
import subprocess
import sys

import pytest
from crash import remains
from support import oracle
from support.damaged_logs import SIZE, T0, damage, log, messages, recover, write

import rocketc
from rocketc.files.durable import write_all
from rocketc.log import truncation

pytestmark = pytest.mark.promise(5)

BLOCK = 1 << 20  # cleared by one write


def bodies(items):
    return [m["storedBody"] for m in oracle.records(items)]


def kept(root):
    """Return the bodies of the records in the folder `cut`, in the order of the log."""
    return [m.stored_body for m in rocketc.scan(root / "cut", errors="skip")]


@pytest.mark.parametrize("fields", [{}, {"properties": {}}, {"topic": "", "properties": {}}])
def test_all_valid_records_after_the_cut_can_be_read(tmp_path, fields):
    """The last bytes of the last record may be zeros."""
    items = write(tmp_path, messages(60, **fields), checkpoint=T0 + 1)
    victim = oracle.records(items)[20]
    damage(tmp_path, victim["start"] + 100)
    found, _ = recover(tmp_path)
    assert found.cut == victim["start"]
    assert bodies(log(tmp_path)) == bodies(items)[:20]
    assert kept(tmp_path) == bodies(items)[21:]
    report = rocketc.scan(tmp_path / "cut", errors="report")
    with pytest.warns(rocketc.DamageWarning):
        report.count()
    assert [(d.start, d.stop) for d in report.report.damage] == [(victim["start"], victim["stop"])]
    assert report.report.missing == []


def test_files_that_are_cut_off_whole_are_not_copied(tmp_path):
    items = write(tmp_path, messages(60), checkpoint=T0 + 1)
    before = {path.name: path.stat() for path in (tmp_path / "commitlog").iterdir()}
    damage(tmp_path, oracle.records(items)[20]["start"] + 100)
    found, _ = recover(tmp_path)
    for path in found.saved[1:]:
        name = os.path.basename(path)
        assert os.stat(path).st_ino == before[name].st_ino
        assert os.stat(path).st_size == SIZE
        assert os.stat(path).st_mtime_ns == before[name].st_mtime_ns


def test_a_log_on_another_disk_is_copied(tmp_path, memory_path):
    if tmp_path.stat().st_dev == memory_path.stat().st_dev:
        pytest.skip("needs two file systems")
    items = write(tmp_path / "made", messages(60), checkpoint=T0 + 1)
    damage(tmp_path / "made", oracle.records(items)[20]["start"] + 100)
    shutil.move(tmp_path / "made" / "commitlog", memory_path / "log")
    with rocketc.open(tmp_path / "made", store_path_commit_log=str(memory_path / "log")) as store:
        assert store.max_phy_offset == oracle.records(items)[20]["start"]
    assert kept(tmp_path / "made") == bodies(items)[21:]
    assert all(path.stat().st_dev == tmp_path.stat().st_dev for path in (tmp_path / "made" / "cut").iterdir())


def test_bytes_that_cannot_be_kept_are_not_cut_off(tmp_path):
    """A limit on the size of files simulates a full disk."""
    items = write(tmp_path, messages(60), checkpoint=T0 + 1)
    damage(tmp_path, oracle.records(items)[16]["start"] + 100)
    before = remains.take(tmp_path)

    def limited():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    script = "import rocketc, sys; rocketc.open(sys.argv[1])"
    ended = subprocess.run([sys.executable, "-c", script, tmp_path], preexec_fn=limited, capture_output=True, text=True)
    assert "StoreIOError: [Errno 27] File too large" in ended.stderr
    assert f"{oracle.records(items)[16]['start']:020d}.tmp" in ended.stderr
    after = remains.take(tmp_path)
    assert remains.log(after) == remains.log(before)
    found, _ = recover(tmp_path)
    assert found.end == oracle.records(items)[16]["start"]
    assert sorted(os.listdir(tmp_path / "cut")) == sorted(map(os.path.basename, found.saved))
    assert kept(tmp_path) == bodies(items)[17:]


def test_a_link_at_the_path_of_the_copy_is_not_followed(tmp_path):
    items = write(tmp_path, messages(20), checkpoint=T0 + 1)
    last = oracle.records(items)[-1]
    damage(tmp_path, last["start"] + 100)
    (tmp_path / "cut").mkdir()
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / "cut" / f"{last['start']:020d}.tmp").symlink_to(tmp_path / "mine")
    recover(tmp_path)
    assert (tmp_path / "mine").read_bytes() == b"mine"
    assert os.listdir(tmp_path / "cut") == [f"{last['start']:020d}"]


@pytest.mark.some(3)
@pytest.mark.parametrize("policy", ["keep", "java"])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_long_cut_that_is_interrupted_is_kept_once(memory_path, monkeypatch, policy, steps):
    """The cut is longer than one write clears: when it is repeated, the remaining bytes differ from the kept ones."""
    root = memory_path / "store"
    with rocketc.open(root, mapped_file_size_commit_log=8 * BLOCK) as store:
        starts = [store.put("t", bytes([n]) * 100_000).phy_offset for n in range(40)]
        files = remains.take(root)
    remains.lay(files, root)
    with open(root / "commitlog" / ("0" * 20), "r+b") as file:
        file.seek(starts[3] + 200)
        file.write(b"damage")
    whole = (root / "commitlog" / ("0" * 20)).read_bytes()[starts[3] :]
    (root / "checkpoint").unlink()
    left = steps

    def stopping(fd, data, at):
        nonlocal left
        if not any(data):
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
        write_all(fd, data, at)

    with monkeypatch.context() as patch:
        patch.setattr(truncation, "write_all", stopping)
        with pytest.raises(KeyboardInterrupt):
            rocketc.open(root, recovery=policy)
    with open(root / "commitlog" / ("0" * 20), "rb") as file:
        left_behind = os.pread(file.fileno(), 1000, starts[3])
    assert left_behind == (whole[:1000] if policy == "keep" else bytes(8) + whole[8:1000])
    for again in (policy, "keep"):
        with rocketc.open(root, recovery=again) as store:
            assert store.max_phy_offset == starts[3]
    assert os.listdir(root / "cut") == [f"{starts[3]:020d}"]
    assert (root / "cut" / f"{starts[3]:020d}").read_bytes() == whole


def test_another_piece_from_the_same_offset_is_kept_too(tmp_path):
    """... if the piece is not the rest of the kept one."""
    items = write(tmp_path, messages(20), checkpoint=T0 + 1)
    last = oracle.records(items)[-1]
    name = f"{last['start']:020d}"
    damage(tmp_path, last["start"], b"torn\0\0\0\0" + b"first" * 200)
    for data, names in [
        (b"torn\0\0\0\0" + b"first" * 200, [name]),
        (bytes(8) + b"first" * 200, [name]),
        (bytes(8) + b"first" * 199 + b"other", [name, f"{name}.1"]),
        (b"torn\0\0\0\1" + b"first" * 200, [name, f"{name}.1", f"{name}.2"]),
    ]:
        damage(tmp_path, last["start"], data)
        assert recover(tmp_path)[0].end == last["start"]
        assert sorted(os.listdir(tmp_path / "cut")) == names
