"""The life of a store: open, close, locks, forks, statistics. Its end with the process: test_store_end.py."""

import asyncio
import errno
import gc
import logging
import os
import pickle
import sys
import threading
import time
import warnings

import psutil
import pytest
from support import oracle
from support.put_checks import bodies
from support.scripts import run_script

import rocketc
from rocketc.metrics import Watch
from rocketc.store.futures import close_in_thread

FILE = 1 << 16


# ------------------------------------------------------------------------------------------------ open and close


def test_open_creates_the_store(tmp_path):
    root = tmp_path / "a" / "b"
    with rocketc.open(root, mapped_file_size_commit_log=FILE) as store:
        assert sorted(os.listdir(root)) == ["abort", "checkpoint", "commitlog", "index", "lock"]
        assert (root / "abort").read_text() == str(os.getpid())
        assert (root / "lock").read_bytes() == b"lock"
        assert (root / "checkpoint").stat().st_size == 4096
        assert (store.max_phy_offset, store.min_phy_offset, store.flushed_phy_offset) == (0, 0, 0)
        assert not store.closed
        assert not store.read_only
        assert store.failed is None
        assert store.path == str(root)
    assert store.closed
    assert sorted(os.listdir(root)) == ["checkpoint", "commitlog", "index", "lock"]
    assert os.listdir(root / "commitlog") == []  # a file created in advance is deleted


def test_paths(tmp_path, monkeypatch):
    """A path is a string or a PathLike. A relative path is resolved when the store is opened."""
    monkeypatch.chdir(tmp_path)
    with rocketc.open("store", mapped_file_size_commit_log=FILE) as store:
        os.mkdir("other")
        monkeypatch.chdir(tmp_path / "other")
        store.put_many("t", [bytes(5000)] * 30)
        assert store.path == str(tmp_path / "store")
    assert len(bodies(tmp_path / "store")) == 30
    for wrong in (None, 5):
        with pytest.raises(TypeError):
            rocketc.open(wrong)
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "store"):
        for read_only in (False, True):
            with pytest.raises(rocketc.StoreIOError, match="this is a file, not a folder; give the store's root") as e:
                rocketc.open(path, read_only=read_only)
            assert (e.value.errno, e.value.filename) == (errno.ENOTDIR, str(tmp_path / "file"))


def test_wrong_settings(tmp_path):
    with pytest.raises(TypeError, match="did you mean flush_interval_commit_log"):
        rocketc.open(tmp_path / "no", flush_interval=5)
    for given, near in (("flsh", "flush"), ("lok", "lock"), ("readonly", "read_only"), ("confg", "config")):
        with pytest.raises(TypeError, match=rf"^open\(\): unknown keyword {given}; did you mean {near}\?$"):
            rocketc.open(tmp_path / "no", **{given: 5})
    with pytest.raises(TypeError, match=r"^open\(\): unknown keyword qqqqqq$"):
        rocketc.open(tmp_path / "no", qqqqqq=5)
    with pytest.raises(TypeError, match=r"^open\(\): unknown keyword useABSLock; use its name use_abs_lock$"):
        rocketc.open(tmp_path / "no", useABSLock=True)
    with pytest.raises(ValueError, match="flush"):
        rocketc.open(tmp_path / "no", flush="always")
    with pytest.raises(ValueError, match="lock"):
        rocketc.open(tmp_path / "no", lock="none")
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("lock", ["spin", "reentrant", "adaptive"])
@pytest.mark.parametrize("flush", ["sync", "async"])
def test_rounds(tmp_path, lock, flush):
    """Each open() continues where the last one ended: positions, queue offsets, the abort file."""
    for n in range(5):
        with rocketc.open(tmp_path, flush=flush, lock=lock, mapped_file_size_commit_log=FILE) as store:
            assert store.max_phy_offset == store.flushed_phy_offset
            r = store.put("t", b"%d" % n)
            assert r.queue_offset == n
            store.put_many("u", [bytes(1000)] * 20)
            if flush == "sync":
                assert store.flushed_phy_offset == store.max_phy_offset
        assert not (tmp_path / "abort").exists()
    items = oracle.walk_log(oracle.read_log(tmp_path / "commitlog"), crc="full")
    assert not oracle.damage(items)
    assert [m["storedBody"] for m in oracle.records(items) if m["topic"] == "t"] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_size_with_a_unit(tmp_path):
    with rocketc.open(tmp_path / "store", mapped_file_size_commit_log="64KiB") as store:
        store.put("orders", b"hello")
        assert store.config.mapped_file_size_commit_log == FILE
    assert os.path.getsize(tmp_path / "store" / "commitlog" / f"{0:020d}") == FILE


@pytest.mark.parametrize("background", [True, False])
def test_async_with(tmp_path, background):
    async def main():
        async with rocketc.open(tmp_path, mapped_file_size_commit_log=FILE, background=background) as store:
            assert store.put("orders", b"hello").status.name == "PUT_OK"
        assert store.closed
        with pytest.raises(KeyError):
            async with rocketc.open(tmp_path) as store:
                raise KeyError
        assert store.closed

    asyncio.run(main())
    assert bodies(tmp_path) == [b"hello"]


def test_async_with_answers_the_puts_of_its_block(tmp_path):
    async def main():
        async with rocketc.open(tmp_path, flush="sync", mapped_file_size_commit_log=FILE) as store:
            answers = [store.aput("orders", b"hello") for _ in range(3)]
        return [put.queue_offset for put in await asyncio.gather(*answers)]

    assert asyncio.run(main()) == [0, 1, 2]


def test_closing_does_not_block_the_event_loop():
    """A canceled task ends when close() has returned."""

    async def main():
        ended = []
        release = threading.Event()

        def close():
            release.wait(10)
            ended.append(True)

        task = asyncio.create_task(close_in_thread(close))
        await asyncio.sleep(0.01)  # would not return before close()
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == [True]

    asyncio.run(main())


def test_close_is_safe_twice(open_store):
    store = open_store()
    store.put("t", b"x")
    store.close()
    store.close()
    with store:
        pass
    assert repr(store).endswith("closed>")
    for call in (store.flush, lambda: store.message(0), lambda: store.wait_flushed(0)):
        with pytest.raises(rocketc.ClosedError, match="the store is closed"):
            call()


def test_close_from_several_threads(tmp_path):
    """Each call returns when the store is closed."""
    for _ in range(5):
        store = rocketc.open(tmp_path, mapped_file_size_commit_log=FILE)
        store.put("t", b"x")
        seen = []

        def close(store=store, seen=seen):
            store.close()
            seen.append(store.closed and not (tmp_path / "abort").exists())

        threads = [threading.Thread(target=close) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == [True] * 4


@pytest.mark.parametrize("lock", ["spin", "reentrant", "adaptive"])
@pytest.mark.parametrize("flush", ["sync", "async"])
def test_close_while_others_put(tmp_path, flush, lock):
    """Messages whose put has returned are in the log. The other puts raised ClosedError, and their messages are not."""
    store = rocketc.open(tmp_path, flush=flush, lock=lock, mapped_file_size_commit_log=FILE)
    stored, refused = [], []
    started = threading.Barrier(5)

    def put(name):
        started.wait()
        n = 0
        while True:
            body = b"%d %d" % (name, n)
            n += 1
            try:
                store.put("t", body)
            except rocketc.ClosedError:
                refused.append(body)
                return
            stored.append(body)

    threads = [threading.Thread(target=put, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    started.wait()
    while len(stored) < 20:
        time.sleep(0.001)
    store.close()
    for thread in threads:
        thread.join()
    assert len(refused) == 4
    assert sorted(bodies(tmp_path)) == sorted(stored)
    assert not (tmp_path / "abort").exists()


def test_close_waits_for_a_running_put(open_store, tmp_path):
    """close() waits for calls that have started; a put in sync mode gets its result."""
    store = open_store(flush="sync")
    store.put("t", b"first")
    store._hook("slow_ns", 300_000_000)
    results = []
    thread = threading.Thread(target=lambda: results.append(store.put("t", b"under way")))
    thread.start()
    while store.max_phy_offset < 190:
        time.sleep(0.001)
    store.close()
    thread.join()
    assert results[0].status.name == "PUT_OK"
    assert bodies(tmp_path) == [b"first", b"under way"]


def test_a_store_that_was_not_closed(tmp_path):
    """A ResourceWarning is shown, and the store is closed."""
    store = rocketc.open(tmp_path, mapped_file_size_commit_log=FILE)
    store.put("t", b"x")
    with pytest.warns(ResourceWarning, match="never closed"):
        del store
        gc.collect()
    assert not (tmp_path / "abort").exists()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rocketc.open(tmp_path).close()


def test_a_store_is_created_by_open_only(open_store):
    store = open_store()
    with pytest.raises(TypeError, match="can't be created directly"):
        type(store)()
    with pytest.raises(TypeError, match="belongs to its process"):
        pickle.dumps(store)
    assert repr(store) == f"<rocketc.MessageStore {store.path!r}, async>"


# ------------------------------------------------------------------------------------------------ writer locks


def test_locked_twice(open_store, tmp_path):
    """DefaultMessageStoreTest: a second start in one process fails and does not affect the first store."""
    store = open_store()
    with pytest.raises(rocketc.StoreLockedError, match="in this process"):
        open_store()
    assert (tmp_path / "abort").exists()
    store.put("t", b"x")
    store.close()
    open_store().put("t", b"y")


def test_locked_by_another_process(open_store, tmp_path):
    store = open_store()
    out, _ = run_script(
        "import rocketc, sys\ntry:\n    rocketc.open(sys.argv[1])\nexcept rocketc.StoreLockedError as e:\n    print(e)",
        tmp_path,
    )
    assert f"by process {os.getpid()}" in out
    store.put("t", b"x")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.some(1)
@pytest.mark.parametrize("flush", ["sync", "async"])
def test_a_forked_child_cannot_write(open_store, tmp_path, flush):
    """Each call raises ClosedError in the child. Neither its exit nor its destructors affect the parent's store."""
    store = open_store(flush=flush)
    store.put("t", b"parent 1")
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        told = []
        try:
            for call in (
                lambda: store.put("t", b"child"),
                lambda: store.put_many("t", [b"child"]),
                store.flush,
                lambda: store.message(0),
                lambda: rocketc.open(tmp_path),
            ):
                try:
                    call()
                    told.append("nothing")
                except Exception as error:
                    told.append(type(error).__name__)
            store.close()
            told.append(str(store.closed))
            del store
            gc.collect()
        finally:
            os.write(write, " ".join(told).encode())
            os._exit(0)
    os.waitpid(pid, 0)
    told = os.read(read, 1000).decode().split()
    os.close(read)
    os.close(write)
    assert told == ["ClosedError"] * 4 + ["StoreLockedError", "True"]
    store.put("t", b"parent 2")
    store.flush()
    assert (tmp_path / "abort").exists()
    store.close()
    assert bodies(tmp_path) == [b"parent 1", b"parent 2"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_may_open_its_own_store(open_store, tmp_path):
    store = open_store(tmp_path / "parents")
    store.put("t", b"parent")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with rocketc.open(tmp_path / "childs", flush="sync", mapped_file_size_commit_log=FILE) as mine:
                mine.put("t", b"child")
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    store.close()
    assert (bodies(tmp_path / "parents"), bodies(tmp_path / "childs")) == ([b"parent"], [b"child"])


def test_read_only(open_store, tmp_path):
    """No lock, no abort file and no writes. Puts are refused; messages of the writer are read."""
    with pytest.raises(OSError):
        rocketc.open(tmp_path / "no", read_only=True)
    assert not (tmp_path / "no").exists()
    store = open_store(tmp_path / "store")
    end = store.put("t", b"one").end
    before = sorted({*os.listdir(tmp_path / "store"), "consumequeue"})
    with rocketc.open(tmp_path / "store", read_only=True) as reader:
        assert reader.read_only
        assert repr(reader).endswith("read-only>")
        assert reader.message(0).body == b"one"
        assert reader.message(1) is None
        assert (reader.min_phy_offset, reader.max_phy_offset) == (0, end)
        with pytest.raises(rocketc.ClosedError, match="reading only"):
            reader.put("t", b"")
        with pytest.raises(rocketc.ClosedError, match="reading only"):
            reader.flush()
        assert reader.failed is None
        assert reader.stats() == {}
        store.put("t", b"two")
        assert reader.message(end).body == b"two"
    assert sorted({*os.listdir(tmp_path / "store"), "consumequeue"}) == before
    with pytest.raises(rocketc.ClosedError):
        reader.message(0)


# ------------------------------------------------------------------------------------------------ sizes of files


def test_the_file_size_is_kept(tmp_path):
    """An existing log keeps its file size, unless the settings have another one; a wrong size is refused."""
    rocketc.open(tmp_path, mapped_file_size_commit_log=FILE).close()
    with rocketc.open(tmp_path, mapped_file_size_commit_log=FILE) as store:
        store.put("t", b"x")
    with rocketc.open(tmp_path) as store:
        assert store.config.mapped_file_size_commit_log == FILE
        store.put_many("t", [bytes(5000)] * 30)
    assert {path.stat().st_size for path in (tmp_path / "commitlog").iterdir()} == {FILE}
    with pytest.raises(rocketc.StoreIOError, match=f"it has {FILE} bytes"):
        rocketc.open(tmp_path, mapped_file_size_commit_log=2 * FILE)
    with pytest.raises(rocketc.StoreIOError, match="check the file size setting"):
        rocketc.open(tmp_path, config=rocketc.StoreConfig(mapped_file_size_commit_log=2 * FILE))
    assert not (tmp_path / "abort").exists()


def test_the_error_names_the_file_of_another_size(tmp_path):
    with rocketc.open(tmp_path, mapped_file_size_commit_log=FILE) as store:
        store.put_many("t", [bytes(5000)] * 60)
    path = sorted((tmp_path / "commitlog").iterdir())[1]
    os.truncate(path, FILE + 4096)
    with pytest.raises(rocketc.StoreIOError, match=f"it has {FILE + 4096} bytes, .* have {FILE};") as told:
        rocketc.open(tmp_path)
    assert told.value.filename == str(path)


@pytest.mark.parametrize("killed", [False, True])
def test_a_log_that_is_not_mounted(tmp_path, killed):
    """A new log would delete the queues, and reuse the queue offsets of messages on the missing disk."""
    with rocketc.open(tmp_path / "store", store_path_commit_log=str(tmp_path / "disk")) as store:
        store.put_many("t", [b"one", b"two"])
    if killed:
        (tmp_path / "store" / "abort").touch()
    for paths in (tmp_path / "other", None):  # a wrong path, and no path
        with pytest.raises(rocketc.StoreIOError, match="refer to 2 messages: is a disk missing"):
            rocketc.open(tmp_path / "store", store_path_commit_log=None if paths is None else str(paths))
        assert not (tmp_path / "other").exists() and (tmp_path / "store" / "abort").exists() == killed
    with rocketc.open(tmp_path / "store", store_path_commit_log=str(tmp_path / "disk")) as store:
        assert store.put("t", b"three").queue_offset == 2
    for name in ("disk", "store/consumequeue"):
        (tmp_path / name).rename(tmp_path / "moved").rename(tmp_path / ("old " + name.replace("/", " ")))
    with rocketc.open(tmp_path / "store", store_path_commit_log=str(tmp_path / "disk")) as store:
        assert store.put("t", b"anew").queue_offset == 0


def test_several_commit_log_folders(tmp_path):
    disks = [tmp_path / name for name in ("disk1", "disk2", "disk3")]
    paths = ",".join(map(str, disks))
    with rocketc.open(tmp_path / "store", store_path_commit_log=paths, mapped_file_size_commit_log=4096) as store:
        store.put_many("t", [b"%d" % n + bytes(900) for n in range(30)])
    assert [
        sorted(int(p.name) // 4096 % 3 for p in disk.iterdir()) == [n] * len(list(disk.iterdir()))
        for n, disk in enumerate(disks)
    ] == [True] * 3
    with rocketc.open(
        tmp_path / "store",
        store_path_commit_log=",".join(map(str, disks[1:])),
        read_only_commit_log_store_paths=str(disks[0]),
    ) as store:
        assert store.put("t", b"next").queue_offset == 30
        assert store.message(0).body[:1] == b"0"
        assert store.wait_dispatched()
        end = store.max_phy_offset
    for fields in ({"store_path_commit_log": paths}, {"read_only_commit_log_store_paths": paths}):
        with rocketc.open(tmp_path / "store", read_only=True, **fields) as store:
            assert (store.min_phy_offset, store.max_phy_offset, store.max_offset("t")) == (0, end, 31)
            assert [m.body[:4] for m in store.get("t", 0, 29)] == [b"29\0\0", b"next"]
            look = Watch(store).look()
            assert (look.end, look.topics["t"].messages) == (end, 31)


# ---------------------------------------------------------------------------------------------- statistics and logging


def test_stats(open_store):
    store = open_store(flush="sync", mapped_file_size_commit_log=4096)
    for _ in range(10):
        store.put("t", bytes(900))
    stats = store.stats()
    assert stats["records"] == 10
    assert stats["bytes"] == 10 * 992
    assert stats["rolls"] == 3  # the first file counts
    assert stats["flushes"] == stats["flush_time"]["count"] == 10
    assert stats["flushed_bytes"] == store.flushed_phy_offset
    assert stats["roll_time"]["count"] == 3
    assert stats["lock_waits"] == stats["lock_time"]["count"] == 0
    time_of = stats["flush_time"]
    assert 0 < time_of["p50"] <= time_of["p99"] <= time_of["p999"] <= 1.125 * time_of["max"]


def test_a_recovery_is_logged(tmp_path, caplog):
    with rocketc.open(tmp_path, mapped_file_size_commit_log=FILE) as store:
        store.put("t", b"x")
    (tmp_path / "abort").touch()
    with caplog.at_level(logging.INFO, "rocketc.store"):
        rocketc.open(tmp_path).close()
    assert "recovered; the log continues at physical offset 93" in caplog.text


def test_abort_stays_while_consume_queues_lag(tmp_path, caplog):
    """dispatchBehindBytes: RocketMQ reads the log at its next start. Source: RocketMQ DefaultMessageStore."""
    with rocketc.open(tmp_path, mapped_file_size_commit_log=FILE) as store:
        (tmp_path / "consumequeue").touch()  # no folder can be created here
        store.put("t", b"x")
    assert (tmp_path / "abort").exists()
    assert "abort" in caplog.text
    (tmp_path / "consumequeue").unlink()
    with rocketc.open(tmp_path) as store:
        assert store.put("t", b"y").queue_offset == 1
    assert not (tmp_path / "abort").exists()
    units = (tmp_path / "consumequeue" / "t" / "0" / ("0" * 20)).read_bytes()
    assert [units[n : n + 8] for n in (0, 20, 40)] == [bytes(8), (93).to_bytes(8, "big"), bytes(8)]


@pytest.mark.skipif(sys.platform != "linux", reason="counts maps")
@pytest.mark.parametrize("pool", [False, True], ids=["", "pool"])
def test_close_closes_files_and_maps(tmp_path, pool):
    """This is the case even while the store object lives; messages that were read stay valid."""
    me = psutil.Process()
    before = me.num_fds()
    store = rocketc.open(tmp_path, mapped_file_size_commit_log=4096, transient_store_pool_enable=pool)
    store.put_many("t", [b"body %d" % n + bytes(1000) for n in range(20)])
    store.flush()
    message = store.message(0)
    store.close()
    assert me.num_fds() == before
    assert not [m.path for m in me.memory_maps(grouped=False) if str(tmp_path) in m.path]
    assert message.body[:6] == b"body 0"
    assert store.max_phy_offset > 20_000
    assert store.min_phy_offset == 0
    assert store.stats()["records"] == 20


def cycles(tmp_path, count, **fields):
    """Open, put and close repeatedly. Return what is left in the process."""
    me = psutil.Process()

    def held():
        gc.collect()
        return me.num_fds(), me.num_threads(), len(me.memory_maps(grouped=False))

    def once(n):
        with rocketc.open(tmp_path, mapped_file_size_commit_log=4096, **fields) as store:
            assert store.put("t", bytes(1000)).queue_offset == n

    for n in range(20):
        once(n)
        if n % 4 == 3:
            for path in sorted((tmp_path / "commitlog").iterdir())[:-1]:
                path.unlink()
    before = held()
    for n in range(20, count):
        once(n)
        if n % 4 == 3:
            for path in sorted((tmp_path / "commitlog").iterdir())[:-1]:
                path.unlink()
    fds, threads, maps = held()
    assert (fds, threads) == before[:2]
    assert maps <= before[2] + 5


@pytest.mark.measure
@pytest.mark.some(1)
@pytest.mark.skipif(sys.platform != "linux", reason="counts maps")
@pytest.mark.parametrize(
    "fields",
    [{}, {"flush": "sync"}, {"transient_store_pool_enable": True, "transient_store_pool_size": 2}],
    ids=["async", "sync", "pool"],
)
def test_cycles(tmp_path, fields):
    cycles(tmp_path, 100, **fields)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.skipif(sys.platform != "linux", reason="counts maps")
def test_ten_thousand_cycles(tmp_path):
    cycles(tmp_path / "a", 4000)
    cycles(tmp_path / "b", 3000, flush="sync", lock="adaptive")
    cycles(tmp_path / "c", 3000, transient_store_pool_enable=True, transient_store_pool_size=2, lock="spin")
