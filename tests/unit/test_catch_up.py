"""catch_up: whatever the files of the index say, they say what the log says once the store is open."""

import oracle
import pytest
from derived import FOLDERS, files_of, from_log, same_files, without_names

SMALL = {
    "mapped_file_size_commit_log": 8 << 10,
    "mapped_file_size_consume_queue": 200,
    "max_hash_slot_num": 20,
    "max_index_num": 40,
}
CONFIG = {"mappedFileSizeConsumeQueue": 200, "maxHashSlotNum": 20, "maxIndexNum": 40}
UNITS_AT = 40 + 4 * SMALL["max_hash_slot_num"]


def fill(store):
    for n in range(300):
        store.put(f"T{n % 3}", bytes(n), queue_id=n % 2, tags=f"t{n}", keys=f"k{n % 50} l{n}")
    store.close()


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
