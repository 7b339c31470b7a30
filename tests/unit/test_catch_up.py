"""catch_up: whatever the files of the index say, they say what the log says once the store is open."""

import oracle
import pytest
from derived import CONFIG, FOLDERS, SMALL, files_of, fill, from_log, same_files, without_names

UNITS_AT = 40 + 4 * SMALL["max_hash_slot_num"]


def same_as_from_log(root):
    records = oracle.records(oracle.walk_log(oracle.read_log(root / "commitlog")))
    same_files(without_names(files_of(root, *FOLDERS)), from_log(records, CONFIG))


@pytest.mark.parametrize("log", ["small", "large"])
@pytest.mark.parametrize("number", [0, 7, -1])
@pytest.mark.parametrize("at", [8, 36, 40, UNITS_AT + 20, UNITS_AT + 9 * 20 + 4, UNITS_AT + 9 * 20 + 16])
def test_an_index_file_that_says_else_is_written_anew(open_store, tmp_path, monkeypatch, log, number, at):
    """at: the end time, the count, a slot, the first unit, the offset of another, its chain."""
    if log == "large":
        monkeypatch.setattr("rocketc.catch_up.SMALL_BYTES", 0)
    fill(open_store(**SMALL))
    path = sorted((tmp_path / "index").iterdir())[number]
    data = bytearray(path.read_bytes())
    data[at : at + 4] = b"\x01\x02\x03\x04"
    path.write_bytes(data)
    if log == "large":  # the end of a large log is compared, not all of it: only that nothing fails
        open_store(**SMALL).close()
        return
    open_store(**SMALL).close()
    same_as_from_log(tmp_path)


@pytest.mark.parametrize("folder", FOLDERS[::2])
def test_files_that_are_gone_are_written_anew(open_store, tmp_path, folder):
    fill(open_store(**SMALL))
    files = sorted(path for path in (tmp_path / folder).rglob("*") if path.is_file())
    for path in files[1::2]:
        path.unlink()
    open_store(**SMALL).close()
    same_as_from_log(tmp_path)


MANY = {"mapped_file_size_commit_log": 1 << 20, "max_hash_slot_num": 1000, "max_index_num": 7000}


@pytest.fixture
def many_keys(open_store, tmp_path):
    """A store of 20,000 keys, so that a thread of their own puts them anew; and its files of the index."""
    store = open_store(**MANY)
    store.put_many("a", [b"x"] * 5000, keys="all of them")
    for n in range(5000):
        store.put("b", b"x", keys=f"k{n}")
    store.close()
    return files_of(tmp_path, "index")


def test_many_keys_are_put_anew(open_store, tmp_path, many_keys):
    for path in (tmp_path / "index").iterdir():
        path.unlink()
    store = open_store(**MANY)
    assert store.query("a", "them", max_count=1 << 20).phy_offsets == store.get("a", max_count=5000).phy_offsets
    store.close()
    same_files(without_names(files_of(tmp_path, "index")), without_names(many_keys))


@pytest.mark.parametrize("unit", [1, 4095, 4096, 4097, 6999])
@pytest.mark.parametrize("number", [0, 1])
def test_damage_among_many_keys_is_mended(open_store, tmp_path, many_keys, number, unit):
    path = sorted((tmp_path / "index").iterdir())[number]
    data = bytearray(path.read_bytes())
    data[40 + 4 * 1000 + 20 * unit + 4] ^= 1
    path.write_bytes(data)
    open_store(**MANY).close()
    same_files(without_names(files_of(tmp_path, "index")), without_names(many_keys))
