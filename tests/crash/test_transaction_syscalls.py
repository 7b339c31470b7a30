"""A broker with transactions is killed at each system call of a short script, and the next broker ends what is open.

A message whose commit was answered is delivered. One that is rolled back or not decided never is. No half message and
no mark is lost, and a commit is repeated only if the producer was asked again: see crash.transacting.
"""

import shutil

import pytest
from crash.faults import FIELDS, MODES
from crash.tracing import SET, Zygote, every
from crash.transacting import FIRST, LAST, LATER, assert_survives

import rocketc

pytestmark = pytest.mark.promise(1, 11)

# The event loop's wait: a kill there is between two steps of the broker. There are many: fewer of them are enough.
TURNS = ("epoll_wait", "epoll_pwait")
RUNS = {"compiled": ("async", True), "python": ("async", False), "sync": ("sync", True)}


def kills_of(counts: dict[str, int], share: int) -> list[tuple[str, int]]:
    of_files = {name: count for name, count in counts.items() if name not in TURNS}
    of_loop = {name: count for name, count in counts.items() if name in TURNS}
    return every(of_files)[::share] + every(of_loop)[:: 1 if share == 1 else 3 * share]


@pytest.fixture(scope="module")
def zygote(tmp_path_factory):
    if not shutil.which("strace"):
        pytest.skip("strace is missing; tools/setup.sh strace installs it")
    made = Zygote(tmp_path_factory.mktemp("zygote"), ZYGOTE_IMPORTS="crash.transacting")
    yield made
    made.close()


@pytest.mark.parametrize("share", [60, pytest.param(1, marks=[pytest.mark.long, pytest.mark.timeout(1800)])])
@pytest.mark.parametrize("run", ["compiled", "python", pytest.param("sync", marks=pytest.mark.long)])
def test_a_broker_killed_at_every_call(zygote, memory_path, run, share):
    mode, is_compiled = RUNS[run]
    fields = {**FIELDS, **MODES[mode], "is_compiled": is_compiled}
    root = memory_path / "whole"
    lines: list[str] = []
    calls = ",".join([SET, *(f"?{name}" for name in TURNS)])
    counts = zygote.counted(lambda: lines.extend(zygote.run("transact", root, fields)[1]), memory_path / "trace", calls)
    assert [line for line in lines if line.startswith("half")] == [f"half {name}" for name in FIRST + LATER + LAST]
    assert lines[-1] == "closed"
    assert_survives(root, fields, lines, "not killed")
    with rocketc.open(root, read_only=True) as store:  # so there are calls before a commit is stored
        assert any(message.phy_offset % FIELDS["mapped_file_size_commit_log"] == 0 for message in store.get("orders"))
    assert {"openat", "fallocate", "mmap", "fsync", "rename", "write"} < counts.keys()
    deaths = 0
    for name, number in kills_of(counts, share):
        root = memory_path / f"{name}-{number}"
        with zygote.killed_at(name, number):
            killed, lines = zygote.run("transact", root, fields)
        deaths += killed
        assert killed or lines[-1] == "closed"
        assert_survives(root, fields, lines, (name, number))
        shutil.rmtree(root)
    assert deaths > 400 / share
