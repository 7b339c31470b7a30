"""When the log becomes durable, and which threads wait for it.

No test depends on the speed of the machine. A test that something does not happen checks after a short time. A test
that something happens waits as long as necessary.
"""

import threading
import time

import pytest
from support import oracle

import rocketc
from rocketc.files import _checkpoint
from rocketc.status import PutStatus

pytestmark = pytest.mark.promise(1)

NEVER = 600_000  # ms
PAGE = 4096
T0 = 1_700_000_000_000


def wait_for(condition):
    """Wait until the condition is true; a minute is too long on any machine."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "the condition never became true"
        time.sleep(0.002)


def stays(condition, seconds=0.25):
    """Whether the condition is true now and stays true for a while."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not condition():
            return False
        time.sleep(0.01)
    return True


def is_durable(store):
    return store.flushed_phy_offset == store.max_phy_offset


@pytest.fixture
def async_store(open_store):
    """A store that flushes every 5 ms, and never flushes everything, unless a test changes the settings."""

    def make(**fields):
        settings = {
            "flush_interval_commit_log": 5,
            "flush_commit_log_least_pages": 4,
            "flush_commit_log_thorough_interval": NEVER,
        }
        return open_store(mapped_file_size_commit_log=1 << 20, **{**settings, **fields})

    return make


# ------------------------------------------------------------------------------------------------ async


def test_least_pages(async_store):
    """Fewer pages than flushCommitLogLeastPages are not flushed yet."""
    store = async_store()
    store.put("t", bytes(4 * PAGE - 100))
    assert stays(lambda: store.flushed_phy_offset == 0)
    end = store.put("t", bytes(100)).end
    wait_for(lambda: store.flushed_phy_offset == end)
    store.put("t", bytes(3 * PAGE))
    assert stays(lambda: store.flushed_phy_offset == end)


def test_least_pages_zero(async_store):
    store = async_store(flush_commit_log_least_pages=0)
    store.put("t", b"")
    wait_for(lambda: is_durable(store))
    flushes = store.stats()["flushes"]
    assert stays(lambda: store.stats()["flushes"] == flushes)  # no new messages, no flush


def test_thorough_interval(async_store):
    """From time to time everything is flushed, even if it is little."""
    store = async_store(flush_commit_log_least_pages=1000, flush_commit_log_thorough_interval=20)
    for _ in range(3):
        store.put("t", b"")
        wait_for(lambda: is_durable(store))


def test_interval(async_store):
    store = async_store(flush_interval_commit_log=NEVER, flush_commit_log_least_pages=0)
    store.put_many("t", [bytes(1000)] * 100)
    assert stays(lambda: store.flushed_phy_offset == 0)


@pytest.mark.parametrize(
    ("timed", "wake", "flushes"),
    [(True, True, False), (False, False, False), (True, False, False), (False, True, True)],
)
def test_wake_flush_when_put_message(async_store, timed, wake, flushes):
    """A put wakes the flush if wakeFlushWhenPutMessage is set, unless flushCommitLogTimed is set, too."""
    store = async_store(
        flush_interval_commit_log=NEVER,
        flush_commit_log_least_pages=0,
        flush_commit_log_timed=timed,
        wake_flush_when_put_message=wake,
    )
    for _ in range(3):
        store.put("t", b"")
        if flushes:
            wait_for(lambda: is_durable(store))
        else:
            assert stays(lambda: store.flushed_phy_offset == 0, 0.1)


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_flush(open_store, flush):
    """flush() makes everything put before durable, in all files, and returns the end of the durable part."""
    store = open_store(flush=flush, mapped_file_size_commit_log=PAGE, flush_interval_commit_log=NEVER)
    assert store.flush() == 0
    for _ in range(3):
        end = store.put_many("t", [bytes(900)] * 20).end
        assert store.flush() == end == store.flushed_phy_offset
    assert store.flush() == end
    assert store.stats()["flushed_bytes"] == end


def test_flush_of_several_threads(open_store):
    store = open_store(flush_interval_commit_log=NEVER)
    failed = []

    def run():
        for _ in range(50):
            end = store.put("t", bytes(100)).end
            if not store.flush() >= end:
                failed.append(end)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert is_durable(store)


def test_wait_flushed(open_store):
    store = open_store(flush_interval_commit_log=NEVER)
    assert store.wait_flushed(0)
    end = store.put("t", b"").end
    assert store.wait_flushed(end)  # in async mode, too: the waiting thread flushes
    assert store.flushed_phy_offset == end
    assert store.wait_flushed(end, 0)
    store._hook("slow_ns", 300_000_000)
    end = store.put("t", b"").end
    assert not store.wait_flushed(end, 0.01)
    assert store.wait_flushed(end, 60)


# ------------------------------------------------------------------------------------------------ sync


def test_a_put_returns_when_it_is_durable(open_store):
    """A single caller flushes on its own thread, once per call."""
    store = open_store(flush="sync")
    for _ in range(10):
        r = store.put("t", b"x")
        assert r.status is PutStatus.PUT_OK
        assert store.flushed_phy_offset == r.end
    assert store.stats()["flushes"] == 10
    store.put_many("t", [b"x"] * 1000)
    store.put_batch("t", [(0, b"x", None)] * 100)
    assert store.stats()["flushes"] <= 13
    assert is_durable(store)


@pytest.mark.parametrize("lock", ["spin", "reentrant", "adaptive"])
@pytest.mark.parametrize("pool", [False, True], ids=["", "pool"])
def test_group_commit(open_store, lock, pool):
    """Many threads wait and few flush: each flush covers everything that was appended before it began."""
    store = open_store(flush="sync", lock=lock, transient_store_pool_enable=pool, mapped_file_size_commit_log=1 << 18)
    store.put("t", b"first")
    before = store.stats()["flushes"]
    store._hook("slow_ns", 200_000_000)
    waiting = threading.Barrier(33)
    results = []

    def put():
        waiting.wait()
        r = store.put("t", b"x")
        results.append(r.status is PutStatus.PUT_OK and store.flushed_phy_offset >= r.end)

    threads = [threading.Thread(target=put) for _ in range(32)]
    for thread in threads:
        thread.start()
    waiting.wait()
    for thread in threads:
        thread.join()
    assert results == [True] * 32
    assert store.stats()["flushes"] - before <= 8


@pytest.mark.some(3)
@pytest.mark.parametrize(
    "message",
    [
        {"wait_store_ok": False},
        {"properties": {"WAIT": "false"}},
        {"properties": {"WAIT": "no"}},
        {"properties": b"a\x01b\x02WAIT\x01false\x02"},
        {"properties": {"WAIT": "true"}, "wait_store_ok": False},
        {"properties": {"WAIT": "false", "INNER_NUM": "2"}, "sys_flag": 0x80},
    ],
)
def test_a_put_that_does_not_wait(open_store, message):
    """WAIT: with any value except `true` the put returns at once. The message is durable soon without a waiter."""
    store = open_store(flush="sync")
    store.put("t", b"first")
    store._hook("slow_ns", 1_000_000_000)
    r = store.put("t", b"x", **message)
    assert r.status is PutStatus.PUT_OK
    assert store.flushed_phy_offset < r.end
    wait_for(lambda: store.flushed_phy_offset >= r.end)


@pytest.mark.parametrize(
    "message", [{}, {"properties": {"WAIT": "true"}}, {"properties": {"WAIT": "TRUE"}}, {"properties": b"WAIT\x01True"}]
)
def test_a_put_that_waits(open_store, message):
    store = open_store(flush="sync")
    store._hook("slow_ns", 50_000_000)
    r = store.put("t", b"x", **message)
    assert store.flushed_phy_offset >= r.end


def test_the_wait_property_is_stored(open_store):
    """RocketMQ 5 does the same."""
    store = open_store()
    store.put("t", b"", wait_store_ok=False)
    store.put("t", b"", properties={"WAIT": "true"}, wait_store_ok=False)
    store.put("t", b"", properties={"WAIT": "true"})
    assert [m.properties for m in rocketc.scan(store.path)] == [{"WAIT": "false"}, {"WAIT": "false"}, {"WAIT": "true"}]


def test_timeout_of_the_flushing_thread(open_store):
    """FlushDiskWatcherTest: FLUSH_DISK_TIMEOUT after the timeout, although the message is stored and durable."""
    store = open_store(flush="sync", sync_flush_timeout=20)
    store._hook("slow_ns", 100_000_000)
    r = store.put("t", b"late")
    assert r.status is PutStatus.FLUSH_DISK_TIMEOUT
    assert r.status.is_stored
    assert store.message(r.phy_offset).body == b"late"
    assert store.put_many("t", [b"x"] * 3).status is PutStatus.FLUSH_DISK_TIMEOUT
    assert store.put_batch("t", [(0, b"x", None)]).status is PutStatus.FLUSH_DISK_TIMEOUT
    store._hook("slow_ns", 0)
    assert store.failed is None
    assert store.put("t", b"x").queue_offset == 5


def test_timeout_of_a_waiting_thread(open_store):
    """The flush of another thread takes too long: the put returns before the end of the flush."""
    store = open_store(flush="sync", sync_flush_timeout=50)
    store.put("t", b"first")
    store._hook("slow_ns", 2_000_000_000)
    flushing = threading.Thread(target=store.flush)
    store.put("t", b"x", wait_store_ok=False)
    flushing.start()
    time.sleep(0.05)
    r = store.put("t", b"x")
    assert r.status is PutStatus.FLUSH_DISK_TIMEOUT
    assert store.flushed_phy_offset < r.end
    flushing.join()
    wait_for(lambda: store.flushed_phy_offset >= r.end)


def test_in_time(open_store):
    store = open_store(flush="sync", sync_flush_timeout=60_000)
    store._hook("slow_ns", 50_000_000)
    assert store.put("t", b"x").status is PutStatus.PUT_OK


# ------------------------------------------------------------------------------------------------ checkpoint


def checkpoint(store):
    return _checkpoint.read(f"{store.path}/checkpoint").physic_msg_timestamp


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_the_checkpoint_moves(open_store, flush):
    """After a flush it has the store timestamp of the last durable record. It never goes back."""
    store = open_store(flush=flush, flush_interval_commit_log=5, flush_commit_log_least_pages=0)
    assert checkpoint(store) == 0
    for step in (0, 1000, 5000):
        store._set_clock(T0 + step)
        store.put("t", b"x", wait_store_ok=False)
        if flush == "async":
            wait_for(lambda step=step: checkpoint(store) == T0 + step)
    store.flush()
    store._set_clock(T0)  # the clock was set back
    store.put("t", b"x")
    store.close()
    said = checkpoint(store)
    assert said == T0 + 5000 if flush == "async" else T0 <= said <= T0 + 5000  # it was not written in between


def test_the_checkpoint_is_not_ahead(open_store):
    """Records that are not durable do not count."""
    store = open_store(flush_interval_commit_log=5, flush_commit_log_least_pages=0)
    store._set_clock(T0)
    store.put("t", b"x")
    wait_for(lambda: checkpoint(store) == T0)
    store._hook("slow_ns", 400_000_000)
    store._set_clock(T0 + 10_000)
    store.put("t", b"x")
    while not is_durable(store):
        assert checkpoint(store) == T0 or is_durable(store)
        time.sleep(0.005)


def test_the_checkpoint_keeps_unknown_fields(open_store, tmp_path):
    _checkpoint.write(str(tmp_path / "checkpoint"), _checkpoint.Checkpoint(1, 2, 3, 4, 5))
    store = open_store()
    store._set_clock(T0)
    store.put("t", b"x")
    store.close()
    assert tuple(_checkpoint.read(str(tmp_path / "checkpoint"))) == (T0, T0, 3, 4, 5)


# ------------------------------------------------------------------------------------------------ bytes on the disk


def test_a_reader_sees_whole_records_only(open_store):
    """While two threads put, another process sees a prefix of whole records."""
    store = open_store(mapped_file_size_commit_log=1 << 18)
    stop = threading.Event()

    def put():
        while not stop.is_set():
            store.put("t", bytes(range(256)) * 4)
            time.sleep(0.0001)  # otherwise a slow reader never sees the end

    threads = [threading.Thread(target=put) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            end = store.max_phy_offset
            items = oracle.walk_log(oracle.read_log(f"{store.path}/commitlog")[: end // (1 << 18) + 1])
            whole = [item for item in oracle.records(items) if item["stop"] <= end]
            assert not whole or whole[-1]["stop"] in (end, *(b.start for b in oracle.blanks(items)))
            time.sleep(0.01)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_file_that_will_be_deleted_is_not_flushed(open_store):
    """It is cleaned before its flush while a view holds it: it cannot be deleted yet, and no new reader can use it."""
    never = {"flush_interval_commit_log": 600_000, "flush_commit_log_thorough_interval": 600_000}
    store = open_store(mapped_file_size_commit_log=4096, **never)
    for n in range(50):
        store.put("t", b"%d" % n * 100)
    assert store.wait_dispatched(10)
    found = store.get("t", max_count=1, views=True)
    assert store.delete_before(3 * 4096).log_files == 0
    assert store.flush() == store.flushed_phy_offset == store.max_phy_offset
    assert bytes(found.messages[0].body) == b"0" * 100
    del found
    assert store.delete_before(3 * 4096).log_files == 3
    store.put("t", b"next")
    assert store.flush() == store.max_phy_offset
