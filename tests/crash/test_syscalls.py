"""Processes killed at each system call: a writer that opens a store, rolls twice, flushes and closes; a recovery; the
writer of a table; a cleaning.

strace kills the process when one of its threads enters a call for the n-th time, before the call has done anything.
"""

import json
import shutil
from pathlib import Path

import pytest
from crash import remains
from crash.recoveries import SETTINGS, assert_same, damaged
from crash.tracing import every
from crash.written import assert_written
from crash.zygote import COUNT, body
from support import stores

import rocketc
from rocketc.tables.table_file import read_table

pytestmark = pytest.mark.promise(1, 5)


# Each run makes every eighth of the possible kills, the long run makes all of them.
SHARES = [16, pytest.param(1, marks=pytest.mark.long)]

# Arguments of the store whose process is killed.
MIXES = {
    "sync": {"flush": "sync"},
    "async": {"flush": "async", "lock": "spin"},
    "pool": {"flush": "async", "transient_store_pool_enable": True, "lock": "adaptive"},
}


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("mix", ["async", *(pytest.param(mix, marks=pytest.mark.long) for mix in ("sync", "pool"))])
def test_a_writer_killed_at_every_call(zygote, memory_path, mix, share):
    fields = {**SETTINGS, **MIXES[mix]}
    counts = zygote.counted(lambda: zygote.run("write", memory_path / "whole", fields), memory_path / "trace")
    assert_written(memory_path / "whole", fields, ["closed"], "not killed")
    assert {"openat", "fallocate", "mmap", "fsync", "write"} < counts.keys()
    deaths = 0
    for name, number in every(counts)[::share]:
        root = memory_path / f"{name}-{number}"
        with zygote.killed_at(name, number):
            killed, lines = zygote.run("write", root, fields)
        deaths += killed
        assert killed or lines[-1] == "closed"
        assert_written(root, fields, lines, (name, number))
        shutil.rmtree(root)
    assert deaths > 60 / share


# ---------------------------------------------------------------- a recovery
@pytest.fixture(scope="module")
def torn() -> remains.Files:
    """A record in the second file is damaged, and more records follow."""
    return damaged(COUNT)


def wanted_of(torn: remains.Files, folder: Path) -> remains.Files:
    """The result of a recovery that is not killed."""
    root = remains.lay(torn, folder / "wanted")
    rocketc.open(root, **SETTINGS).close()
    wanted = remains.take(root)
    assert [m["storedBody"] for m in remains.messages(wanted)] == [body(n) for n in range(4)]
    assert len(remains.kept(wanted)) == 2  # from the second file and from the third
    return wanted


@pytest.mark.parametrize("share", SHARES)
def test_a_recovery_killed_at_every_call(zygote, memory_path, torn, share):
    wanted = wanted_of(torn, memory_path)
    root = remains.lay(torn, memory_path / "whole")
    counts = zygote.counted(lambda: zygote.run("recover", root, SETTINGS), memory_path / "trace")
    assert_same(root, wanted, "not killed")
    assert {"openat", "fdatasync", "fsync", "pwrite64"} < counts.keys()
    deaths = 0
    for name, number in every(counts)[::share]:
        root = remains.lay(torn, memory_path / f"{name}-{number}")
        with zygote.killed_at(name, number):
            killed, _ = zygote.run("recover", root, SETTINGS)
        deaths += killed
        rocketc.open(root, **SETTINGS).close()
        assert_same(root, wanted, (name, number))
        shutil.rmtree(root)
    assert deaths > 60 / share


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["fsync", "pwrite64", *(pytest.param(n, marks=pytest.mark.long) for n in ("openat", "close"))]
)
def test_a_recovery_killed_until_it_gets_through(zygote, memory_path, torn, name):
    """Each recovery gets one call further than the one before."""
    wanted = wanted_of(torn, memory_path)
    root = remains.lay(torn, memory_path / "torn")
    for number in range(1, 200):
        with zygote.killed_at(name, number):
            killed, _ = zygote.run("recover", root, SETTINGS)
        if not killed:
            break
    assert not killed
    assert number > 3
    assert_same(root, wanted, name)


@pytest.mark.long
# ---------------------------------------------------------------- a deletion
def test_a_deletion_killed_at_every_call(zygote, memory_path):
    """The topic has all its messages, or is deleted and stays so; messages acknowledged afterwards are there."""
    fields = {**SETTINGS, "flush": "sync"}
    with rocketc.open(memory_path / "made", **fields) as store:
        for number in range(7):
            store.put("orders", b"old %d" % number, queue_id=number % 2)
        store.put("audit", b"stays")

    def lay(name: str) -> Path:
        return shutil.copytree(memory_path / "made", memory_path / name)

    root = lay("whole")
    counts = zygote.counted(lambda: zygote.run("delete", root, fields), memory_path / "trace")
    assert {"unlink", "rmdir", "rename", "fsync"} < counts.keys()
    deaths, states = 0, set()
    wanted = ("unlink", "rmdir", "rename", "fsync", "fdatasync", "mkdir", "link", "linkat", "ftruncate", "write")
    for name, number in every({call: counts[call] for call in wanted if call in counts}):
        root = lay(f"{name}-{number}")
        with zygote.killed_at(name, number):
            killed, lines = zygote.run("delete", root, fields)
        deaths += killed
        new = [line for line in lines if line not in ("deleted", "closed")]
        assert new == [f"{n} {n}" for n in range(len(new))], (name, number)
        for _ in range(2):
            with rocketc.open(root, **fields) as store:
                found = [m.body for m in store.get("orders")]
                if lines or store.max_offset("orders") < 4:
                    assert found in ([b"new %d" % n for n in range(len(new) + more)] for more in (0, 1)), (name, number)
                    assert store.get("orders", 1).messages == []
                else:
                    assert found == [b"old %d" % n for n in range(0, 7, 2)], (name, number)
                    assert [m.body for m in store.get("orders", 1)] == [b"old %d" % n for n in range(1, 7, 2)]
                assert [m.body for m in store.get("audit")] == [b"stays"]
            states.add(len(found))
        assert rocketc.verify(root).is_whole, (name, number)
        shutil.rmtree(root)
    assert deaths > 30 and {0, 1, 3, 4} <= states


# ---------------------------------------------------------------- a table
OLDEST, OLD, NEW = ({"topicConfigTable": {name: {"topicName": name}}} for name in ("oldest", "old", "new"))
TABLES = {  # the files that exist before: the file, its .bak
    "none": (None, None),
    "first": (json.dumps(OLD), None),
    "both": (json.dumps(OLD), json.dumps(OLDEST)),
    "damaged": ('{"topicConfigTable":{', json.dumps(OLD)),
}


@pytest.mark.parametrize("before", TABLES)
def test_a_table_killed_at_every_call(zygote, memory_path, before):
    """The old table is read, or the new one, and the next write succeeds."""

    def lay(name: str) -> Path:
        root = memory_path / name
        root.mkdir()
        for file, text in zip(("topics.json", "topics.json.bak"), TABLES[before], strict=True):
            if text is not None:
                (root / file).write_text(text)
        return root

    root = lay("whole")
    counts = zygote.counted(lambda: zygote.run("table", root, NEW), memory_path / "trace")
    assert {"openat", "write", "fsync", "rename"} < counts.keys()
    deaths = 0
    found = []
    for name, number in every(counts):
        path = lay(f"{name}-{number}") / "topics.json"
        with zygote.killed_at(name, number):
            killed, lines = zygote.run("table", path.parent, NEW)
        deaths += killed
        if before == "none" and not path.exists():
            found.append(None)
        else:
            found.append(read_table(path).data)
        assert found[-1] == NEW or (lines == [] and found[-1] == (None if before == "none" else OLD)), (name, number)
        assert zygote.run("table", path.parent, NEW)[0] is False
        assert read_table(path).data == NEW
        assert not list(path.parent.glob("*.tmp"))
        shutil.rmtree(path.parent)
    assert deaths > 8
    assert NEW in found and len({json.dumps(one) for one in found}) == 2


@pytest.mark.long
# ---------------------------------------------------------------- cleaning
def test_cleaning_killed_at_every_call(zygote, memory_path):
    """The log has all records of its consume queues and index, without a gap; the next run ends the cleaning."""
    stores.unpack("v533-broker", memory_path)
    options = {"options": ["--yes", "--older-than", "0s", "--json"]}
    made = memory_path / "v533-broker"

    def lay(name: str) -> Path:
        return shutil.copytree(made, memory_path / name, copy_function=shutil.copy2)

    root = lay("whole")
    counts = zygote.counted(lambda: zygote.run("clean", root, options), memory_path / "trace")
    assert {"unlink", "fsync"} < counts.keys()
    wanted = remains.take(root)
    before = remains.take(made)
    gone = before.keys() - wanted.keys()
    assert {name.split("/")[0] for name in gone} == {"commitlog", "index"}
    deaths, states = 0, set()
    for name, number in every({call: counts[call] for call in ("unlink", "fsync", "fcntl", "pwrite64")}):
        root = lay(f"{name}-{number}")
        with zygote.killed_at(name, number):
            killed, _ = zygote.run("clean", root, options)
        deaths += killed
        left = remains.take(root)
        lost = sorted(before.keys() - left.keys())
        log = [base for base, _ in remains.log(left)]
        assert log == list(range(log[0], log[-1] + 1, log[-1] - log[-2] if len(log) > 1 else 1)), (name, number)
        assert not [one for one in lost if one.startswith("index")] or log[0] == max(log), (name, number)
        states.add(tuple(lost))
        zygote.run("clean", root, options)
        assert remains.take(root) == wanted, (name, number)
        shutil.rmtree(root)
    assert deaths > 5 and len(states) == len(gone) + 1
