"""A store whose recovery is killed: the files that it starts with, and a check that the end result is the same."""

from pathlib import Path

from crash import remains
from crash.zygote import body
from support.store_checks import assert_files

import rocketc

FILE_SIZE = 4096
SETTINGS = {  # consume queues and index have several files too
    "mapped_file_size_commit_log": FILE_SIZE,
    "mapped_file_size_consume_queue": 60,
    "max_hash_slot_num": 4,
    "max_index_num": 8,
}


def damaged(count: int) -> remains.Files:
    """A store with `count` messages whose writer died; a record in the second file is damaged."""
    with remains.memory() as folder:
        root = Path(folder, "store")
        with rocketc.open(root, **SETTINGS) as store:
            ends = [store.put("orders", body(number), tags="A").end for number in range(count)]
            files = remains.take(root)
    assert len(remains.log(files)) >= 3
    return remains.zeroed(files, ends[4] - 100, ends[4] - 50)


def assert_same(root: Path, wanted: remains.Files, says: object) -> None:
    files = remains.take(root)
    assert remains.log(files) == remains.log(wanted), says
    assert remains.kept(files) == remains.kept(wanted), says
    assert files.keys() == wanted.keys(), says
    assert_files(root, SETTINGS)
