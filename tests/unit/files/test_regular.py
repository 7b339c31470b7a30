"""Opening a store's files: only regular files, without waiting, and for writing without following links."""

import errno
import os

import pytest

from rocketc.errors import StoreIOError
from rocketc.files.regular import open_regular, refuse_linked_folders

pytestmark = pytest.mark.promise(8)

CREATE = os.O_RDWR | os.O_CREAT


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR, CREATE, CREATE | os.O_TRUNC, os.O_WRONLY | os.O_APPEND])
def test_what_is_not_a_regular_file(tmp_path, flags):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "device").symlink_to("/dev/zero")
    for name, code in {".": errno.EISDIR, "fifo": errno.ENXIO, "/dev/null": errno.ENXIO}.items():
        with pytest.raises(OSError) as refused:
            open_regular(tmp_path / name, flags)
        assert (refused.value.errno, refused.value.filename) == (code, os.fspath(tmp_path / name))
    with pytest.raises(OSError, match="a symbolic link" if flags else "not a regular file"):
        open_regular(tmp_path / "device", flags)


@pytest.mark.parametrize("target", ["file", "none"])
def test_links_are_followed_for_reading_only(tmp_path, target):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to(target)
    for flags in (os.O_RDWR, os.O_WRONLY, CREATE, CREATE | os.O_TRUNC):
        with pytest.raises(OSError, match="a symbolic link, which a writer does not follow") as refused:
            open_regular(tmp_path / "link", flags)
        assert refused.value.errno == errno.ELOOP
    assert sorted(os.listdir(tmp_path)) == ["file", "link"]
    assert (tmp_path / "file").read_bytes() == b"content"
    if target == "none":
        with pytest.raises(FileNotFoundError):
            open_regular(tmp_path / "link")
    else:
        with open(tmp_path / "link", "rb", opener=open_regular) as file:
            assert file.read() == b"content"


def test_a_new_file_has_the_permissions_of_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        os.close(open_regular(tmp_path / "file", CREATE))
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_linked_folders(tmp_path):
    (tmp_path / "index").mkdir()
    (tmp_path / "config").symlink_to("index")
    refuse_linked_folders(str(tmp_path), ["index", "none"])
    with pytest.raises(StoreIOError, match=f"a symbolic link to {tmp_path}/index, .*; allow it with linked") as refused:
        refuse_linked_folders(str(tmp_path), ["index", "config"])
    assert refused.value.filename == str(tmp_path / "config")
