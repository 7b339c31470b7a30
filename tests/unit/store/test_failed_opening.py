"""An opening that fails leaves nothing behind: no file is mapped, and the next opening succeeds."""

import os
from pathlib import Path

import pytest

import rocketc
from rocketc.errors import StoreFullError
from rocketc.files.lock_file import AbortFile
from rocketc.store import opening

SMALL = {
    "mapped_file_size_commit_log": 1 << 16, "mapped_file_size_consume_queue": 600, "max_hash_slot_num": 100,
    "max_index_num": 400,
}  # fmt: skip


def mapped(root):
    """The files below a folder that this process has mapped or open."""
    links = (os.path.join("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd"))
    found = {os.readlink(link) for link in links if os.path.islink(link)}
    found |= {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    return sorted(one for one in found if one.startswith(str(root)))


@pytest.fixture
def root(tmp_path):
    with rocketc.open(tmp_path, **SMALL) as store:
        for n in range(10):
            store.put("orders", b"hello", keys=f"k{n}")
    assert mapped(tmp_path) == []
    return tmp_path


@pytest.mark.parametrize("how", [{}, {"read_only": True}], ids=["to write", "to read"])
@pytest.mark.parametrize("where", ["abort file", "index", "catch up"])
def test_a_full_disk_at_the_opening(root, monkeypatch, how, where):
    def fail(*given, **named):
        raise StoreFullError(28, "No space left on device", str(root / where))

    place = {"abort file": (AbortFile, "create"), "index": (opening, "index_below"), "catch up": (opening, "catch_up")}
    with monkeypatch.context() as broken:
        broken.setattr(*place[where], fail)
        if where != "index" and how:
            rocketc.open(root, **how).close()  # it does not do this
            return
        with pytest.raises(StoreFullError) as raised:
            rocketc.open(root, **(how or SMALL))
    assert mapped(root) == []  # while the error, and all that its frames hold, is alive
    assert raised.value.errno == 28
    with rocketc.open(root, **(how or SMALL)) as store:
        assert store.max_offset("orders", 0) > 0
