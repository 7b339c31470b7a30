"""Failing disks (promise 2 of the design), and full disks.

After the first msync, fdatasync or write that fails, the store has failed permanently. All waiting callers get the
error, puts are refused, reads continue, and the next open() recovers. A library loaded before libc makes real calls
fail: tests/support/failing.c.
"""

import asyncio
import contextlib
import errno
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support import oracle, preload

import rocketc
from rocketc.derived._key_index import KeyIndex
from rocketc.status import PutStatus

pytestmark = pytest.mark.promise(2, 3)

SHIM = Path(__file__).parents[2] / "support/failing.c"


@pytest.fixture
def child(tmp_path):
    """child(script, call, at, **environment): run a script whose n-th call fails after it has created the file `armed`.

    The script has the variables `root` and `armed`. It writes its results into the dict `told`, which child() returns.
    """

    def run(script, call, at=1, **environment):
        head = textwrap.dedent("""
            import asyncio, concurrent.futures, contextlib, errno, json, os, sys, threading, time
            from pathlib import Path
            import rocketc
            root, armed = sys.argv[1], Path(sys.argv[2])
            told = {}

            def error_of(call, *args, **kwargs):
                try:
                    call(*args, **kwargs)
                except Exception as error:
                    status = getattr(error, "status", None)
                    return [type(error).__name__, status.name if status is not None else None]
                return None
            """)
        tail = "\nprint(json.dumps(told))\n"
        env = {
            **os.environ,
            "LD_PRELOAD": preload.loading(preload.built(SHIM)),
            "FAIL_CALL": call,
            "FAIL_AT": str(at),
            "FAIL_ARMED": str(tmp_path / "armed"),
            "FAIL_LOG": str(tmp_path / "failed"),
            **environment,
        }
        arguments = [sys.executable, "-c", head + textwrap.dedent(script) + tail]
        done = subprocess.run(
            [*arguments, str(tmp_path / "store"), str(tmp_path / "armed")], env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        (tmp_path / "armed").unlink(missing_ok=True)
        told = json.loads(done.stdout)
        told["stderr"] = done.stderr
        return told

    return run


def bodies(root):
    return [m.body.decode() for m in rocketc.scan(root)]


def failed_calls(tmp_path):
    return (tmp_path / "failed").read_text().split()


FAIL = """
    store = rocketc.open(root, flush="sync", mapped_file_size_commit_log=1 << 16, prepare="allocate", **fields)
    for n in range(5):
        store.put("t", b"%d" % n)
    before = store.flushed_phy_offset
    armed.touch()
    waiting = threading.Barrier(8)

    def put(n):
        waiting.wait()
        return error_of(store.put, "t", b"waiter %d" % n)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        told["waiters"] = list(pool.map(put, range(8)))
    told["put"] = error_of(store.put, "t", b"later")
    told["put_many"] = error_of(store.put_many, "t", [b"later"])
    told["put_batch"] = error_of(store.put_batch, "t", [(0, b"later", None)])
    told["put_async"] = error_of(store.put_async, "t", b"later")
    told["flush"] = [error_of(store.flush) for _ in range(3)]
    told["wait_flushed"] = error_of(store.wait_flushed, store.max_phy_offset, 0.1)
    told["flushed"] = store.flushed_phy_offset == before
    told["failed"] = str(store.failed)
    told["read"] = [store.message(store.min_phy_offset).body.decode(), len(list(rocketc.scan(root))) >= 5]
    told["close"] = [error_of(store.close), error_of(store.close)]
"""


@pytest.mark.parametrize(
    ("call", "pool"), [("msync", False), ("fdatasync", True), ("pwrite", True)], ids=["msync", "fdatasync", "pwrite"]
)
def test_the_first_failure_is_permanent(child, tmp_path, call, pool):
    """Only one call fails and the disk works again afterwards; the store does not."""
    told = child(
        f"fields = dict(transient_store_pool_enable={pool})" + textwrap.dedent(FAIL),
        call,
        FAIL_COUNT="1",
        FAIL_PATH="/commitlog/",
    )
    refused = ["StoreFailedError", "SERVICE_NOT_AVAILABLE"]
    assert failed_calls(tmp_path) == [call]
    assert told["waiters"] == [refused] * 8
    for what in ("put", "put_many", "put_batch", "put_async", "wait_flushed"):
        assert told[what] == refused, what
    assert told["flush"] == [refused] * 3
    assert told["flushed"], "a flush succeeded after the failure"
    assert "Input/output error" in told["failed"]
    assert "close the store and open it again" in told["failed"]
    assert told["read"] == ["0", True]
    assert told["close"] == [refused, None]

    assert (tmp_path / "store" / "abort").exists()
    with rocketc.open(tmp_path / "store", flush="sync") as store:
        assert store.put("t", b"after").queue_offset >= 5
    found = bodies(tmp_path / "store")
    assert found[:5] == list("01234")
    assert set(found[5:-1]) <= {f"waiter {n}" for n in range(8)}
    assert found[-1] == "after"
    assert not (tmp_path / "store" / "abort").exists()


@pytest.mark.parametrize("pool", [False, True], ids=["", "pool"])
def test_a_failure_in_the_background(child, tmp_path, pool):
    """In async mode no caller waits for the flush that fails. The next put is refused, and close() raises the error."""
    told = child(
        f"""
        store = rocketc.open(
            root, mapped_file_size_commit_log=1 << 16, flush_interval_commit_log=10, flush_commit_log_least_pages=0,
            commit_commit_log_least_pages=0, commit_interval_commit_log=10, transient_store_pool_enable={pool},
        )
        armed.touch()
        store.put("t", b"stored")
        while store.failed is None:
            time.sleep(0.01)
        told["put"] = error_of(store.put, "t", b"later")
        told["close"] = error_of(store.close)
        """,
        "fdatasync" if pool else "msync",
    )
    refused = ["StoreFailedError", "SERVICE_NOT_AVAILABLE"]
    assert told["put"] == told["close"] == refused
    assert (tmp_path / "store" / "abort").exists()
    with rocketc.open(tmp_path / "store") as store:
        assert store.max_phy_offset in (0, 98)


def test_the_sync_of_a_prepared_window_fails(child, tmp_path):
    """The kernel reports a failed page once, possibly to the thread that syncs the next window of the file. The flush
    after that succeeds and must not count."""
    told = child(
        """
        store = rocketc.open(root, flush="sync", mapped_file_size_commit_log=32 << 20)
        store.put("t", b"before")
        armed.touch()
        stored = 0
        while (error := error_of(store.put, "t", bytes(50_000))) is None and stored < 300:
            stored += 1
        told["error"] = error
        with contextlib.suppress(rocketc.StoreFailedError):
            store.close()
        """,
        "msync",
        FAIL_SIZE=str(1 << 20),
    )
    assert "msync" in failed_calls(tmp_path)
    assert told["error"] == ["StoreFailedError", "SERVICE_NOT_AVAILABLE"]


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_failure_in_close(child, tmp_path, at):
    """close() flushes. If the flush fails, close() raises an error, and `abort` stays."""
    told = child(
        """
        store = rocketc.open(root, mapped_file_size_commit_log=4096, flush_interval_commit_log=600_000)
        store.put_many("t", [bytes(1000)] * 10)
        armed.touch()
        told["close"] = error_of(store.close)
        told["closed"] = store.closed
        told["put"] = error_of(store.put, "t", b"")
        """,
        "msync",
        at,
    )
    assert failed_calls(tmp_path) == ["msync"]
    assert told["close"] == ["StoreFailedError", "SERVICE_NOT_AVAILABLE"]
    assert told["closed"]
    assert told["put"] == ["ClosedError", "SERVICE_NOT_AVAILABLE"]
    assert (tmp_path / "store" / "abort").exists()
    with rocketc.open(tmp_path / "store") as store:
        assert store.put("t", b"").queue_offset == 10


@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
def test_a_checkpoint_that_cannot_be_written(child, tmp_path, call):
    """The checkpoint can be rebuilt from the log: the messages are safe, and close() names the file that failed."""
    told = child(
        """
        store = rocketc.open(root, flush="sync", mapped_file_size_commit_log=1 << 16)
        store.put("t", b"first")
        time.sleep(1.5)
        store.put("t", b"second")
        armed.touch()
        try:
            store.close()
        except rocketc.StoreFailedError as error:
            told["close"] = str(error)
        """,
        call,
    )
    assert failed_calls(tmp_path) == [call]
    assert "Input/output error" in told["close"]
    with rocketc.open(tmp_path / "store") as store:
        assert store.put("t", b"").queue_offset == 2


def test_futures_of_a_failed_store_have_the_error(child, tmp_path):
    """put_async and aput: every waiting caller gets the error, in each way to wait."""
    told = child(
        """
        store = rocketc.open(root, flush="sync", mapped_file_size_commit_log=1 << 16, prepare="allocate")
        store._hook("slow_ns", 300_000_000)
        armed.touch()
        futures = [store.put_async("t", b"x") for _ in range(5)]
        called = []
        futures[1].add_done_callback(lambda f: called.append(type(f.exception()).__name__))
        done, _ = concurrent.futures.wait(futures[:3], timeout=60)
        told["done"] = len(done)
        told["result"] = [error_of(f.result, 60)[0] for f in futures]
        while not called:
            time.sleep(0.01)
        told["called"] = called
        """,
        "msync",
    )
    assert told["done"] == 3
    assert told["result"] == ["StoreFailedError"] * 5
    assert told["called"] == ["StoreFailedError"]


def test_aput_of_a_failed_store_raises(child):
    told = child(
        """
        async def main():
            store = rocketc.open(root, flush="sync", mapped_file_size_commit_log=1 << 16, prepare="allocate")
            store._hook("slow_ns", 300_000_000)
            armed.touch()
            waiting = [store.aput("t", b"x") for _ in range(5)]
            told["found"] = [type(e).__name__ for e in await asyncio.gather(*waiting, return_exceptions=True)]
            with contextlib.suppress(rocketc.StoreFailedError):
                store.close()

        asyncio.run(asyncio.wait_for(main(), 60))
        """,
        "msync",
    )
    assert told["found"] == ["StoreFailedError"] * 5


# ------------------------------------------------------------------------------------------------ a full disk


def test_no_room_for_the_first_file(child, tmp_path):
    """StoreFullError, and no file is left; puts succeed again when there is room."""
    told = child(
        """
        armed.touch()
        store = rocketc.open(root, flush="sync", mapped_file_size_commit_log=1 << 16)
        told["put"] = [error_of(store.put, "t", b"x") for _ in range(3)]
        told["many"] = error_of(store.put_many, "t", [b"x"])
        told["left"] = os.listdir(root + "/commitlog")
        told["failed"] = store.failed is not None
        armed.unlink()
        told["offset"] = store.put("t", b"x").queue_offset
        store.close()
        """,
        "fallocate",
        FAIL_ERRNO=str(errno.ENOSPC),
    )
    full = ["StoreFullError", "CREATE_MAPPED_FILE_FAILED"]
    assert told["put"] == [full] * 3
    assert told["many"] == full
    assert told["left"] == []
    assert not told["failed"]
    assert told["offset"] == 0
    assert bodies(tmp_path / "store") == ["x"]


FILL = """
    store = rocketc.open(root, flush="sync", mapped_file_size_commit_log=1 << 16)
    stored = 0
    armed.touch()
    while (error := error_of(store.put, "t", b"%06d" % stored + bytes(5000))) is None:
        stored += 1
    told["error"] = error
    told["again"] = error_of(store.put, "t", bytes(5000))
    told["read"] = store.message(0).body[:6].decode()
    told["flush"] = error_of(store.flush)
    told["files"] = sorted(os.listdir(root + "/commitlog"))
    free()
    for n in range(20):
        store.put("t", b"%06d" % (stored + n))
    store.close()
    told["stored"] = stored
"""


def check_full(told, root):
    assert told["error"] == told["again"] == ["StoreFullError", "CREATE_MAPPED_FILE_FAILED"]
    assert told["read"] == "000000"
    assert told["flush"] is None
    assert told["files"] == [f"{n << 16:020d}" for n in range(len(told["files"]))]
    found = [m.body[:6].decode() for m in rocketc.scan(root)]
    assert found == [f"{n:06d}" for n in range(told["stored"] + 20)]
    items = oracle.walk_log(oracle.read_log(root / "commitlog"), crc="full")
    assert not oracle.damage(items)
    with rocketc.open(root) as store:
        assert store.put("t", b"").queue_offset == told["stored"] + 20


def test_no_room_for_the_next_file(child, tmp_path):
    script = "def free(): armed.unlink()\n" + textwrap.dedent(FILL)
    told = child(script, "fallocate", 3, FAIL_ERRNO=str(errno.ENOSPC))
    check_full(told, tmp_path / "store")


def test_a_small_disk(child, tmp_path):
    """A file system with room for some files, and later for more."""
    root = tmp_path / "store"
    root.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(root)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("may not mount a file system")
    try:
        script = f"""
            import subprocess

            def free():
                subprocess.run(["mount", "-o", "remount,size=8m", {str(root)!r}], check=True)
            """
        told = child(textwrap.dedent(script) + textwrap.dedent(FILL), "none")
        assert 0 < told["stored"] < 60
        check_full(told, root)
    finally:
        subprocess.run(["umount", "--lazy", str(root)], check=True)  # after a failed test the file is still mapped


def test_no_room_in_a_batch(child, tmp_path):
    """The error of put_many has the number of messages that were stored; the caller can put the rest again."""
    told = child(
        """
        store = rocketc.open(root, flush="sync", mapped_file_size_commit_log=4096)
        armed.touch()
        try:
            store.put_many("t", [b"%06d" % n + bytes(500) for n in range(100)])
        except rocketc.StoreFullError as error:
            told["count"] = error.count
        armed.unlink()
        store.put_many("t", [b"%06d" % n for n in range(told["count"], 100)])
        store.close()
        """,
        "fallocate",
        3,
        FAIL_ERRNO=str(errno.ENOSPC),
    )
    assert told["count"] > 0
    assert [m.body[:6].decode() for m in rocketc.scan(tmp_path / "store")] == [f"{n:06d}" for n in range(100)]


@pytest.mark.parametrize("call", ["fallocate", "fsync"])
def test_other_errors_when_a_file_is_created(child, tmp_path, call):
    told = child(
        """
        store = rocketc.open(root, flush="sync", mapped_file_size_commit_log=1 << 16)
        armed.touch()
        n = 0
        while (error := error_of(store.put, "t", b"%06d" % n + bytes(20000))) is None:
            n += 1
        told["put"] = error
        told["files"] = len(os.listdir(root + "/commitlog"))
        armed.unlink()
        store.put("t", b"%06d" % n)
        store.close()
        told["stored"] = n + 1
        """,
        call,
    )
    assert told["put"] == ["StoreIOError", "CREATE_MAPPED_FILE_FAILED"]
    assert told["files"] <= told["stored"] // 3 + 1
    assert [m.body[:6].decode() for m in rocketc.scan(tmp_path / "store")] == [
        f"{n:06d}" for n in range(told["stored"])
    ]


def test_a_store_that_cannot_be_opened(child, tmp_path):
    """open() raises an error whichever call fails, and leaks no descriptor; the next open() works."""
    told = child(
        """
        told["errors"], told["fds"] = [], []
        for n in range(30):
            os.environ["FAIL_AT"] = str(n + 1)
            error = error_of(lambda: rocketc.open(root, mapped_file_size_commit_log=1 << 16).close())
            told["errors"].append(error)
            told["fds"].append(len(os.listdir("/proc/self/fd")))
        """,
        "fsync",
        FAIL_COUNT="1",
        FAIL_ARMED="/",
    )
    failed = [error for error in told["errors"] if error is not None]
    assert failed
    assert all(error[0] in ("StoreIOError", "StoreFailedError") for error in failed)
    assert len(set(told["fds"])) == 1


# ------------------------------------------------------------------------------------------------ without a shim


def test_the_hook(open_store, tmp_path):
    store = open_store(flush="sync")
    store.put("t", b"stored")
    assert store.failed is None
    store._hook("fail", errno.EIO)
    store._hook("fail", errno.ENOSPC)  # the first error counts
    assert isinstance(store.failed, rocketc.StoreFailedError)
    assert isinstance(store.failed.__cause__, rocketc.StoreIOError)
    assert "Input/output error" in str(store.failed)
    with pytest.raises(rocketc.StoreFailedError) as caught:
        store.put("t", b"")
    assert caught.value.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert store.message(0).body == b"stored"
    with pytest.raises(rocketc.StoreFailedError):
        store.close()
    assert store.closed
    assert open_store().message(0).body == b"stored"


def test_a_failed_store_dispatches_nothing(open_store):
    """In sync mode messages that are not durable are in no queue: no caller waits for them, and no topic is deleted."""
    store = open_store(flush="sync")
    store.put("t", b"stored")
    assert store.wait_dispatched(10)
    store._hook("slow_ns", 500_000_000)
    store.put("t", b"in the log", wait_store_ok=False)
    store._hook("fail", errno.EIO)
    with pytest.raises(rocketc.StoreFailedError):
        store.wait_dispatched()
    with pytest.raises(rocketc.StoreFailedError):
        store.delete_topics("t")
    assert store.get("t").messages[0].body == b"stored"
    with pytest.raises(rocketc.StoreFailedError):
        store.close()


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_a_log_file_that_another_process_cuts_short(open_store, tmp_path, flush):
    """The messages in the lost part are lost: the store fails, and no signal ends the process."""
    store = open_store(flush=flush, flush_interval_commit_log=600_000)
    store.put("t", b"stored")
    [file] = sorted((tmp_path / "commitlog").glob("0" * 20))
    os.truncate(file, 0)
    with pytest.raises(rocketc.StoreFailedError):
        for _ in range(3):
            store.put("t", bytes(5000))
        store.flush()
    assert store.failed is not None
    with contextlib.suppress(rocketc.RocketcError):
        store.message(0)


def test_a_failed_store_wakes_the_event_loop(open_store):
    async def main():
        store = open_store(flush="sync", sync_flush_timeout=60_000)
        store._hook("slow_ns", 500_000_000)
        waiting = store.aput("t", b"x")
        store._hook("fail", errno.EIO)
        with pytest.raises(rocketc.StoreFailedError):
            await asyncio.wait_for(waiting, 50)

    asyncio.run(main())


# ------------------------------------------------------------------------------------------------ the index


@pytest.mark.parametrize(("call", "at"), [("fallocate", 1), ("fallocate", 2), ("pwrite", 1), ("pwrite", 2)])
def test_no_room_for_the_index(child, tmp_path, call, at):
    """A put that fails has changed nothing: it succeeds when there is room, and the files are as without errors."""
    script = """
        from rocketc.derived._key_index import KeyIndex

        def fill(index):
            for n in range(20_000):
                while (error := error_of(index.put_keys, "t", n, 1 + n, keys=f"k{n}")) is not None:
                    told["error"] = error
                    told["code"] = index.last_error
                    told["found"] = [list(index.offsets("t", f"k{m}")) for m in (0, n - 1, n)]
                    told["n"] = n
                    armed.unlink()

        indexes = [KeyIndex(f"{root}/{name}", 1000, 15_000) for name in "ab"]
        for index in indexes:
            index.load()
        armed.touch()
        for index in indexes:
            fill(index)
            index.flush()
        told["same"] = len({b"".join(open(path, "rb").read() for path in index.files) for index in indexes}) == 1
        """
    told = child(script, call, at, FAIL_ERRNO=str(errno.ENOSPC))
    assert failed_calls(tmp_path) == [call]
    assert told["error"] == ["StoreFullError", None]
    assert told["code"] == errno.ENOSPC
    n = told["n"]
    assert told["found"] == [[0] if n > 0 else [], [n - 1] if n > 0 else [], []]
    assert told["same"]


@pytest.mark.parametrize("at", [1, 5])
def test_no_room_for_an_index_that_is_rebuilt(child, tmp_path, at):
    """The thread that puts the keys gets the error, and open() raises it; the next open() puts the remaining keys."""
    script = """
        fields = dict(mapped_file_size_commit_log=1 << 20, max_hash_slot_num=1000, max_index_num=100_000)
        with rocketc.open(root, **fields) as store:
            store.put_many("t", [b"x"] * 5000, keys="a b c d")
        for path in Path(root, "index").iterdir():
            path.unlink()
        armed.touch()
        told["error"] = error_of(rocketc.open, root, **fields)
        armed.unlink()
        with rocketc.open(root, **fields) as store:
            told["found"] = [len(store.query("t", key, max_count=10_000)) for key in "ad"]
        """
    told = child(script, "pwrite", at, FAIL_PATH="/index/", FAIL_ERRNO=str(errno.ENOSPC))
    assert failed_calls(tmp_path)
    assert told["error"][0] == "StoreFullError"
    assert told["found"] == [5000, 5000]


def test_an_index_on_a_small_disk(tmp_path):
    """Units without room on the disk cause an errno, never a signal."""
    root = tmp_path / "small"
    root.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(root)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("may not mount a file system")
    try:
        index = KeyIndex(root / "index", 1000, 1_000_000)
        index.load()
        with pytest.raises(rocketc.StoreFullError):
            for n in range(100_000):
                index.put_keys("t", n, 1, keys=f"k{n}")
        assert 0 < n < 20_000
        with pytest.raises(rocketc.StoreFullError):
            index.put_keys("t", n, 1, keys=f"k{n}")
        assert [list(index.offsets("t", f"k{m}")) for m in (0, n - 1, n)] == [[0], [n - 1], []]
        subprocess.run(["mount", "-o", "remount,size=8m", str(root)], check=True)
        for m in range(n, n + 20_000):
            index.put_keys("t", m, 1, keys=f"k{m}")
        assert list(index.offsets("t", f"k{n}")) == [n]
        assert index.check() == []
        index.close()
    finally:
        subprocess.run(["umount", "--lazy", str(root)], check=True)  # after a failed test the file is still mapped


def test_the_index_when_a_sync_fails(child, tmp_path):
    told = child(
        """
        from rocketc.derived._key_index import KeyIndex

        index = KeyIndex(f"{root}/index", 10, 100)
        index.load()
        index.put_keys("t", 1, 1, keys="k")
        armed.touch()
        told["flush"] = [error_of(index.flush) for _ in range(2)]
        armed.unlink()
        told["again"] = error_of(index.flush)
        told["found"] = list(index.offsets("t", "k"))
        """,
        "msync",
    )
    assert told["flush"] == [["StoreIOError", None]] * 2
    assert told["again"] == ["StoreIOError", None]
    assert told["found"] == [1]
    assert failed_calls(tmp_path) == ["msync"]
