"""Valid paths, and the errors for all others. Adjacent files: test_neighbors.py."""

import bz2
import gzip
import lzma
import os

import pytest
from support import oracle

import rocketc
from rocketc import StoreIOError
from rocketc.files import paths
from rocketc.files.paths import resolve

RECORD = oracle.encode("t", b"body")
# Only the first bytes count; these two libraries may be missing.
ZSTD, ZIP = b"\x28\xb5\x2f\xfd" + bytes(20), b"PK\3\4" + bytes(20)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("gzip", gzip.compress(RECORD)),
        ("xz", lzma.compress(RECORD)),
        ("bzip2", bz2.compress(RECORD)),
        ("zstd", ZSTD),
        ("zip", ZIP),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # gzip files contain the time
)
def test_a_compressed_file_is_reported(tmp_path, name, data):
    path = tmp_path / "log"
    path.write_bytes(data)
    with pytest.raises(StoreIOError, match=f"compressed with {name}; unpack it first") as caught:
        rocketc.scan(path)
    assert caught.value.filename == str(path)


def test_the_position_of_a_file_in_the_log(tmp_path):
    for base, size in ((100, 60), (200, 100), (300, 100)):
        (tmp_path / f"{base:020d}").write_bytes(b"x" * size)
    (tmp_path / "copy").write_bytes(RECORD)
    [log] = resolve(tmp_path)
    assert [(file.origin, file.next_base) for file in log.files] == [(100, 200), (200, 300), (300, 400)]
    [log] = resolve(tmp_path / "copy")
    assert [(file.base, file.origin, file.next_base) for file in log.files] == [(None, 0, len(RECORD))]


def test_a_file_named_like_a_log_file_is_read_as_one(tmp_path):
    """This holds whatever its first bytes are: damage is skipped there."""
    (tmp_path / f"{0:020d}").write_bytes(gzip.compress(b"")[:10].ljust(10, b"x") + RECORD)
    assert rocketc.scan(tmp_path, errors="skip").count() == 0  # the record belongs to offset 0
    (tmp_path / "short").write_bytes(b"\x1f")
    assert rocketc.scan(tmp_path / "short", errors="skip").count() == 0


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("s3://bucket/store", "Install s3fs to access S3"),
        ("nothing-here", os.strerror(2)),
        ("nothing-*", "no file matches"),
        (".", "no commit log here"),
    ],
)
def test_paths_that_are_not_logs(tmp_path, monkeypatch, path, says):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreIOError, match=says) as caught:
        resolve(path)
    assert caught.value.filename == path


def test_an_empty_list():
    with pytest.raises(ValueError, match="path: an empty list"):
        resolve([])


def test_a_file_that_is_deleted_after_it_was_listed(tmp_path, monkeypatch):
    """A running store deletes its oldest files while a reader lists them."""
    log = tmp_path / "commitlog"
    log.mkdir()
    for start in (0, 4096, 8192):
        (log / f"{start:020d}").write_bytes(b"x" * 4096)
    size_of = paths._size

    def size_after_cleaning(path, storage):
        if os.path.basename(path) == f"{0:020d}":
            os.unlink(path)
        return size_of(path, storage)

    monkeypatch.setattr(paths, "_size", size_after_cleaning)
    (found,) = paths.resolve(tmp_path)
    assert [file.base for file in found.files] == [4096, 8192]
    with pytest.raises(StoreIOError, match="No such file"):
        paths.resolve([log / f"{0:020d}", log / f"{4096:020d}"])
