"""Files that are locked in memory (mlock), and files that are warmed: RocketMQ's warmMappedFile, unlockMappedFile."""

import errno
import os
import re
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import rocketc

pytestmark = pytest.mark.skipif("ROCKETC_TEST_PACKAGE" in os.environ, reason="the sanitizers make mlock do nothing")

MIB = 1 << 20
T0 = 1_700_000_000_000
LOCKED = {"lock_files_in_memory": True, "mapped_file_size_commit_log": MIB}

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def locked_bytes():
    """What the kernel says that this process has locked in memory."""
    found = re.search(r"VmLck:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) << 10


@pytest.fixture
def may_lock():
    """Skip the test if this process may not lock the files of the tests."""
    resource = pytest.importorskip("resource")
    if os.geteuid() != 0 and 0 <= resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] < 16 * MIB:
        pytest.skip("RLIMIT_MEMLOCK is below 16 MiB")


@pytest.fixture
def stepped(tmp_path, may_lock):
    store = rocketc.open(tmp_path, clock=lambda: T0, background=False, **LOCKED)
    yield store
    store.close()


def fill(store, files=1):
    for _ in range(files):
        store.put_many("t", [bytes(100_000)] * 10)


@linux
@pytest.mark.parametrize("setting", ["lock_files_in_memory", "warm_maped_file_enable"])
def test_only_the_file_that_is_written_to_and_the_next_one_are_locked(tmp_path, may_lock, setting):
    before = locked_bytes()
    fields = {"mapped_file_size_commit_log": MIB, setting: True}
    with rocketc.open(tmp_path, clock=lambda: T0, background=False, **fields) as store:
        for n in range(6):
            fill(store)
            assert locked_bytes() - before == store.stats()["mlocked_bytes"] <= 3 * MIB
            store.step()
            assert store.stats()["rolls"] == n + 1
            assert locked_bytes() - before == store.stats()["mlocked_bytes"] == 2 * MIB
    assert locked_bytes() == before


@linux
def test_with_threads(tmp_path, may_lock):
    before = locked_bytes()
    with rocketc.open(tmp_path, **LOCKED) as store:
        fill(store, 5)
        end = time.monotonic() + 60
        while locked_bytes() - before != 2 * MIB:
            assert time.monotonic() < end
            time.sleep(0.002)
        assert store.stats()["mlocked_bytes"] == 2 * MIB
        assert store.stats()["mlock_failures"] == 0
    assert locked_bytes() == before


@linux
def test_a_view_does_not_keep_the_lock(stepped):
    """... neither once the next file is written to, nor after the store is closed."""
    before = locked_bytes() - stepped.stats()["mlocked_bytes"]
    fill(stepped)
    views = [stepped.read_raw(0, views=True)]
    fill(stepped)
    stepped.step()
    assert locked_bytes() - before == 2 * MIB
    views.append(stepped.read_raw(MIB, views=True))
    stepped.close()
    assert locked_bytes() == before
    for view in views:
        view.release()


@linux
def test_files_are_deleted_before_they_are_unlocked(stepped):
    before = locked_bytes() - stepped.stats()["mlocked_bytes"]
    fill(stepped, 4)
    stepped.wait_dispatched()
    assert stepped.delete_before(3 * MIB).log_files == 3
    assert locked_bytes() - before == stepped.stats()["mlocked_bytes"] == MIB
    stepped.step()
    assert locked_bytes() - before == stepped.stats()["mlocked_bytes"] == 2 * MIB


@linux
def test_the_pool_is_locked_and_counted(tmp_path, may_lock):
    before = locked_bytes()
    fields = {"transient_store_pool_enable": True, "transient_store_pool_size": 3, "mapped_file_size_commit_log": MIB}
    with rocketc.open(tmp_path, **fields) as store:
        assert locked_bytes() - before == store.stats()["mlocked_bytes"] == 3 * MIB
    del store
    assert locked_bytes() == before


def test_nothing_is_locked_by_default(open_store):
    store = open_store()
    store.put("t", b"x")
    assert store.stats()["mlocked_bytes"] == store.stats()["mlock_failures"] == 0


LIMITED = """
import ctypes, logging, resource, sys, rocketc
logging.basicConfig(format="%(levelname)s %(message)s")
root, limit, fields = sys.argv[1], int(sys.argv[2]), eval(sys.argv[3])
resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, limit))
libc = ctypes.CDLL(None)
header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
assert libc.capget(header, sets) == 0
for i in (0, 1):            # effective and permitted: without CAP_IPC_LOCK, which lifts the limit
    sets[i] &= ~(1 << 14)
assert libc.capset(header, sets) == 0
now = 1_700_000_000_000
with rocketc.open(root, clock=lambda: now, background=False, mapped_file_size_commit_log=1 << 20, **fields) as store:
    for _ in range(4):
        store.put_many("t", [bytes(100_000)] * 10)
        store.step()
        print(store.stats()["mlocked_bytes"] >> 10, store.stats()["mlock_failures"] > 0)
    print(store.max_offset("t"), store.failed)
"""


@linux
@pytest.mark.parametrize(
    ("limit", "fields", "locked"),
    [
        (0, {"lock_files_in_memory": True}, 0),
        (64 << 10, {"warm_maped_file_enable": True}, 0),
        (MIB + MIB // 2, {"lock_files_in_memory": True}, 1024),  # the file that is written to
        (MIB + MIB // 2, {"transient_store_pool_enable": True, "transient_store_pool_size": 2}, 1024),
    ],
)
def test_the_limit_for_locked_memory_is_one_warning(tmp_path, limit, fields, locked):
    """RLIMIT_MEMLOCK: the store works on, with less of it locked."""
    run = [sys.executable, "-c", LIMITED, tmp_path, str(limit), repr(fields)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:4] == [f"{locked} True"] * 4
    assert done.stdout.split("\n")[4] == "40 None"
    [line] = done.stderr.splitlines()
    reason = os.strerror(errno.EPERM if limit == 0 else errno.ENOMEM)
    assert line.startswith(f"WARNING {tmp_path}: 1048576 bytes can't be locked in memory: {reason}")
    assert "RLIMIT_MEMLOCK" in line


# ---------------------------------------------------------------------------------------------------------- warming

WARM = """
import sys, rocketc
now = 1_700_000_000_000
fields = eval(sys.argv[2])
with rocketc.open(sys.argv[1], clock=lambda: now, background=False, mapped_file_size_commit_log=1 << 20, **fields) as s:
    s.put("t", b"x", wait_store_ok=False)
    s.step()
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize(
    ("fields", "sizes"),
    [
        ({"flush": "sync"}, [MIB]),  # fewer pages than 4,096
        ({"flush": "sync", "flush_least_pages_when_warm_maped_file": 64}, [MIB // 4] * 4),
        ({"flush": "sync", "flush_least_pages_when_warm_maped_file": 100}, [409_600, 409_600, MIB - 819_200]),
        ({"flush_least_pages_when_warm_maped_file": 64}, []),
    ],
)
def test_a_file_is_flushed_while_it_is_warmed(tmp_path, fields, sizes):
    """Each flush covers flushLeastPagesWhenWarmMapedFile pages, only with SYNC_FLUSH."""
    trace = tmp_path / "trace"
    fields = {"warm_maped_file_enable": True, **fields}
    run = ["strace", "-f", "-qq", "-e", "trace=msync,mlock", "-o", trace, sys.executable, "-c", textwrap.dedent(WARM)]
    done = subprocess.run([*run, tmp_path / "store", repr(fields)], capture_output=True, text=True, timeout=100)
    if "ptrace" in done.stderr:
        pytest.skip("this process may not be traced")
    assert done.returncode == 0, done.stderr
    calls = re.findall(r"(msync|mlock)\(0x[0-9a-f]+, (\d+)", trace.read_text())
    end = calls.index(("mlock", str(MIB)))
    assert [int(size) for name, size in calls[:end] if name == "msync"] == sizes
