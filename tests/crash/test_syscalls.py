"""Killed at each system call: of a writer that opens a store, puts over two rolls, flushes and closes; of a recovery;
of the writer of a table; of a cleaning.

strace kills the process when one of its threads enters a call for the n-th time, before the call has done anything.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import stores
from counted import count
from crash import remains
from crash.zygote import COUNT, body
from native import ROOT
from reopened import assert_answers, assert_files, opened, records_of

import rocketc
from rocketc.config_tables import read_table

pytestmark = pytest.mark.promise(1, 5)

FILE_SIZE = 4096
# What a store does to files and maps; the `?` is for systems that do not have all of them.
SET = (
    "?openat,?mkdir,?mkdirat,?fcntl,?fallocate,?ftruncate,?lseek,?mmap,?munmap,?madvise,?mlock,?msync,?fdatasync,?fsync,"
    "?pread64,?pwrite64,?write,?rename,?renameat,?renameat2,?link,?linkat,?unlink,?unlinkat,?rmdir,?close"
)

# Fields of the store that is killed.
MIXES = {
    "sync": {"flush": "sync"},
    "async": {"flush": "async", "lock": "spin"},
    "pool": {"flush": "async", "transient_store_pool_enable": True, "lock": "adaptive"},
}
SETTINGS = {  # queues and index go over several files too
    "mapped_file_size_commit_log": FILE_SIZE,
    "mapped_file_size_consume_queue": 60,
    "max_hash_slot_num": 4,
    "max_index_num": 8,
}


class Zygote:
    """A process to be traced: run() lets it fork one that does a job, and returns how that ended and what it said."""

    def __init__(self, folder: Path) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lines, lines = os.pipe()
        os.set_blocking(self._lines, False)
        self._errors = folder / "errors"
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *filter(None, sys.path)])}
        with theirs, open(self._errors, "wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "crash.zygote", str(theirs.fileno())],
                stdout=lines,
                stderr=errors,
                pass_fds=[theirs.fileno()],
                env=env,
            )
        os.close(lines)
        assert self._ours.recv(100) == b"ready", self._errors.read_text()

    def close(self) -> None:
        self._ours.close()
        self.process.wait()
        os.close(self._lines)

    def run(self, job: str, root: Path, fields: dict[str, object]) -> tuple[bool, list[str]]:
        """(was it killed, the lines that it wrote)"""
        self._ours.send(json.dumps({"job": job, "root": str(root), "fields": fields}).encode())
        status = int(self._ours.recv(100))
        said = b""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._lines, 65536):
                said += data
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        assert killed or status == 0, (status, self._errors.read_text())
        count("kills", int(killed))
        return killed, said.decode().splitlines()

    @contextlib.contextmanager
    def traced(self, *options: str) -> Iterator[None]:
        """strace looks at the process and at all that it forks."""
        command = ["strace", "-f", "-p", str(self.process.pid), *options]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as tracer:
            assert tracer.stderr is not None
            line = tracer.stderr.readline()
            if "attached" not in line:
                tracer.kill()
                pytest.skip(f"strace can't trace here: {line.strip()}")
            try:
                yield
            finally:
                tracer.terminate()
                tracer.stderr.read()

    def counted(self, run: Callable[[], object], report: Path) -> dict[str, int]:
        """How often run() makes each call, at most, in one thread."""
        with self.traced("-e", f"trace={SET}", "-o", str(report)):
            run()
        counts = Counter(re.findall(r"^(\d+) +(\w+)\(", report.read_text(), re.M))
        most: dict[str, int] = {}
        for (_, name), times in counts.items():
            most[name] = max(most.get(name, 0), times)
        return most

    def killed_at(self, name: str, number: int) -> contextlib.AbstractContextManager[None]:
        return self.traced(
            "-e", f"trace={name}", "-e", f"inject={name}:signal=SIGKILL:when={number}", "-o", "/dev/null"
        )


@pytest.fixture(scope="module")
def zygote(tmp_path_factory):
    if not shutil.which("strace"):
        pytest.skip("strace is missing; tools/setup.sh strace installs it")
    made = Zygote(tmp_path_factory.mktemp("zygote"))
    yield made
    made.close()


def every(counts: dict[str, int]) -> list[tuple[str, int]]:
    """(call, number) of the kills: once more than were counted too, for a run may make a call more than another."""
    return [(name, n) for name, count in sorted(counts.items()) for n in range(1, count + 2)]


# ---------------------------------------------------------------- a writer
def assert_written(root: Path, fields: dict[str, object], lines: list[str], says: object) -> None:
    """A store whose writer was killed holds what it acknowledged, perhaps a message more, and goes on."""
    closed = lines[-1:] == ["closed"]
    if closed:
        lines = lines[:-1]
        assert not (root / "abort").exists(), says
    with opened(root, **fields) as one:
        assert one.told == [] or not closed, (says, one.told)
        assert_answers(one.store, records_of(root), says)
        end = one.store.max_phy_offset
    assert_files(root, fields)
    found = remains.messages(remains.take(root))
    assert len(lines) <= len(found) <= (COUNT if closed else min(len(lines) + 1, COUNT)), says
    assert [m["storedBody"] for m in found] == [body(n) for n in range(len(found))], says
    for line, m in zip(lines, found, strict=False):
        assert line == f"{m['queueOffset']} {m['physicalOffset']} {m['queueOffset']}", says
    with rocketc.open(root, **fields) as store:
        assert store.max_phy_offset == end, says
        result = store.put("orders", b"next")
        assert (result.phy_offset >= end, result.queue_offset) == (True, len(found)), says
    assert [m["storedBody"] for m in remains.messages(remains.take(root))][len(found) :] == [b"next"], says
    assert_files(root, fields)


@pytest.mark.parametrize("mix", [pytest.param(mix, marks=pytest.mark.long) if mix == "pool" else mix for mix in MIXES])
def test_a_writer_killed_at_every_call(zygote, memory_path, mix):
    fields = {**SETTINGS, **MIXES[mix]}
    counts = zygote.counted(lambda: zygote.run("write", memory_path / "whole", fields), memory_path / "trace")
    assert_written(memory_path / "whole", fields, ["closed"], "not killed")
    assert {"openat", "fallocate", "mmap", "fsync", "write"} < counts.keys()
    deaths = 0
    for name, number in every(counts):
        root = memory_path / f"{name}-{number}"
        with zygote.killed_at(name, number):
            killed, lines = zygote.run("write", root, fields)
        deaths += killed
        assert killed or lines[-1] == "closed"
        assert_written(root, fields, lines, (name, number))
        shutil.rmtree(root)
    assert deaths > 60


# ---------------------------------------------------------------- a recovery
@pytest.fixture(scope="module")
def torn() -> remains.Files:
    """A store of three files whose writer died; a record in the second one is damaged, and there are more behind it."""
    with remains.memory() as folder:
        root = Path(folder, "store")
        with rocketc.open(root, **SETTINGS) as store:
            ends = [store.put("orders", body(number), tags="A").end for number in range(COUNT)]
            files = remains.take(root)
    assert len(remains.log(files)) >= 3
    return remains.zeroed(files, ends[4] - 100, ends[4] - 50)


def wanted_of(torn: remains.Files, folder: Path) -> remains.Files:
    """What recovery makes of it if nobody kills it."""
    root = remains.lay(torn, folder / "wanted")
    rocketc.open(root, **SETTINGS).close()
    wanted = remains.take(root)
    assert [m["storedBody"] for m in remains.messages(wanted)] == [body(n) for n in range(4)]
    assert len(remains.kept(wanted)) == 2  # of the second file and of the third
    return wanted


def assert_same(root: Path, wanted: remains.Files, says: object) -> None:
    files = remains.take(root)
    assert remains.log(files) == remains.log(wanted), says
    assert remains.kept(files) == remains.kept(wanted), says
    assert files.keys() == wanted.keys(), says


def test_a_recovery_killed_at_every_call(zygote, memory_path, torn):
    wanted = wanted_of(torn, memory_path)
    root = remains.lay(torn, memory_path / "whole")
    counts = zygote.counted(lambda: zygote.run("recover", root, SETTINGS), memory_path / "trace")
    assert_same(root, wanted, "not killed")
    assert {"openat", "fdatasync", "fsync", "pwrite64"} < counts.keys()
    deaths = 0
    for name, number in every(counts):
        root = remains.lay(torn, memory_path / f"{name}-{number}")
        with zygote.killed_at(name, number):
            killed, _ = zygote.run("recover", root, SETTINGS)
        deaths += killed
        rocketc.open(root, **SETTINGS).close()
        assert_same(root, wanted, (name, number))
        shutil.rmtree(root)
    assert deaths > 60


@pytest.mark.parametrize("name", ["openat", "close", "fsync", "pwrite64"])
def test_a_recovery_killed_until_it_gets_through(zygote, memory_path, torn, name):
    """Each time it comes a call further."""
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


# ---------------------------------------------------------------- a deletion
def test_a_deletion_killed_at_every_call(zygote, memory_path):
    """The topic is there with all it had, or gone and stays so; what is acknowledged afterwards is there."""
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
TABLES = {  # what is there before: the file, its .bak
    "none": (None, None),
    "first": (json.dumps(OLD), None),
    "both": (json.dumps(OLD), json.dumps(OLDEST)),
    "damaged": ('{"topicConfigTable":{', json.dumps(OLD)),
}


@pytest.mark.parametrize("before", TABLES)
def test_a_table_killed_at_every_call(zygote, memory_path, before):
    """The old table is read, or the new one; and the next one is written as ever."""

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


# ---------------------------------------------------------------- cleaning
def test_cleaning_killed_at_every_call(zygote, memory_path):
    """What is left is a log without a gap, with all that its queues and its index need; the next run ends it."""
    stores.unpack("v533-broker", memory_path)
    options = {"options": ["--older-than", "0s", "--json"]}
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
