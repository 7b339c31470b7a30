"""Durable files and folders: what is synced, and which path an error has."""

import errno
import os
from pathlib import Path

import pytest

from rocketc.errors import StoreIOError
from rocketc.files import durable
from rocketc.files.durable import make_folder, sync_folder, sync_tree, write_all


def test_make_folder(tmp_path, monkeypatch):
    done = []
    sync = durable.sync_folder
    monkeypatch.setattr(durable, "sync_folder", lambda path: (done.append(Path(path)), sync(path))[1])
    make_folder(tmp_path / "a" / "b")
    make_folder(str(tmp_path / "a" / "b"))
    assert (tmp_path / "a" / "b").is_dir()
    assert done == [tmp_path, tmp_path / "a"]
    monkeypatch.chdir(tmp_path)
    make_folder("c")
    assert (tmp_path / "c").is_dir()


def test_make_folder_at_the_path_of_a_file(tmp_path):
    (tmp_path / "a").touch()
    for path in (tmp_path / "a", tmp_path / "a" / "b"):
        with pytest.raises(StoreIOError) as refused:
            make_folder(path)
        assert refused.value.filename == str(tmp_path / "a")
        assert refused.value.errno == errno.EEXIST


def test_sync_folder(tmp_path):
    sync_folder(tmp_path)
    with pytest.raises(StoreIOError) as refused:
        sync_folder(tmp_path / "none")
    assert refused.value.filename == str(tmp_path / "none")


def test_sync_tree(tmp_path, monkeypatch):
    (tmp_path / "a" / "b").mkdir(parents=True)
    files = [tmp_path / "a" / "1", tmp_path / "a" / "b" / "2"]
    for path in files:
        path.touch()
    done = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (done.append(Path(os.readlink(f"/proc/self/fd/{fd}"))), sync(fd))[1])
    sync_tree(tmp_path)
    assert sorted(done) == sorted([tmp_path, tmp_path / "a", tmp_path / "a" / "b", *files])


@pytest.mark.parametrize("at", [None, 3])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_short_writes_are_continued(tmp_path, monkeypatch, kind, at):
    write, pwrite = os.write, os.pwrite
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:1]))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:1], at))
    with open(tmp_path / "file", "w+b", buffering=0) as file:
        write_all(file.fileno(), kind(b"whole"), at)
    assert (tmp_path / "file").read_bytes() == bytes(at or 0) + b"whole"
