"""recovery="java", killed at each of its system calls.

A second recovery comes to the same end. If it has the other policy, it comes to an end that has lost nothing. The cut
bytes are kept, once.
"""

import os
import shutil
from pathlib import Path

import pytest
from crash import remains
from crash.recoveries import SETTINGS, assert_same, damaged
from crash.tracing import every
from crash.zygote import body
from support import oracle

import rocketc

pytestmark = pytest.mark.promise(5)

JAVA = {**SETTINGS, "recovery": "java"}
COUNT = 12


@pytest.fixture(scope="module")
def spoilt() -> remains.Files:
    """A record of the second file is damaged, two valid files follow; there is no checkpoint."""
    files = damaged(COUNT)
    del files["checkpoint"]
    assert len(remains.log(files)) >= 4
    return files


@pytest.fixture(scope="module")
def wanted(spoilt) -> remains.Files:
    """The result of a recovery that is not killed."""
    with remains.memory() as folder:
        root = remains.lay(spoilt, Path(folder, "wanted"))
        rocketc.open(root, **JAVA).close()
        files = remains.take(root)
    assert [m["storedBody"] for m in remains.messages(files)] == [body(n) for n in range(4)]
    assert len(remains.kept(files)) == len(remains.log(spoilt)) - 1
    return files


def assert_nothing_lost(root: Path, says: object) -> None:
    """Assert that each valid record is in the log or among the kept bytes, and that the log can continue."""
    files = remains.take(root)
    found = [m["storedBody"] for m in remains.messages(files)]
    names = [(int(os.path.basename(name).split(".")[0]), data) for name, data in remains.kept(files).items()]
    kept = {m["storedBody"] for item in names for m in oracle.records(oracle.walk_log([item]))}
    assert found[:4] == [body(n) for n in range(4)], says
    assert {*found} | kept >= {body(n) for n in range(COUNT) if n != 4}, says


PARTS = 8
CALLS = [pytest.param(part, marks=[] if part == 0 else pytest.mark.long) for part in range(PARTS)]


@pytest.mark.long
@pytest.mark.parametrize("part", CALLS)
def test_killed_at_every_call(zygote, memory_path, spoilt, wanted, part):
    """One part of the calls; every third store is then recovered with the other policy."""
    root = remains.lay(spoilt, memory_path / "whole")
    counts = zygote.counted(lambda: zygote.run("recover", root, JAVA), memory_path / "trace")
    assert_same(root, wanted, "not killed")
    assert {"linkat", "link"} & counts.keys() and {"unlink", "fdatasync", "fsync", "pwrite64"} < counts.keys()
    deaths = 0
    for name, number in every(counts)[part::PARTS]:
        root = remains.lay(spoilt, memory_path / f"{name}-{number}")
        with zygote.killed_at(name, number):
            killed, _ = zygote.run("recover", root, JAVA)
        deaths += killed
        if number % 3 == 2:
            rocketc.open(root, **SETTINGS).close()
            assert_nothing_lost(root, (name, number))
        else:
            rocketc.open(root, **JAVA).close()
            assert_same(root, wanted, (name, number))
        shutil.rmtree(root)
    assert deaths > 8


@pytest.mark.some(1)
@pytest.mark.parametrize("name", ["link", "unlink", "openat", "close", "fsync", "fdatasync", "pwrite64"])
def test_killed_until_it_gets_through(zygote, memory_path, spoilt, wanted, name):
    """Each recovery gets one call further than the one before."""
    root = remains.lay(spoilt, memory_path / "store")
    for number in range(1, 200):
        with zygote.killed_at(f"?{name}" if name != "link" else "?link,?linkat", number):
            killed, _ = zygote.run("recover", root, JAVA)
        if not killed:
            break
    assert not killed
    assert_same(root, wanted, name)
