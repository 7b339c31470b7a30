"""The transient store pool: RocketMQ's TransientStorePool."""

import logging
import os
import shutil
import subprocess
import sys
import time

import pytest
from support import oracle

import rocketc
from rocketc.status import PutStatus

NEVER = 600_000  # ms
SIZE = 1 << 14
PAGE = 4096


def wait_for(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "the condition never became true"
        time.sleep(0.002)


@pytest.fixture
def pooled(open_store):
    """A store with a pool that commits and flushes only when a test calls for it."""

    def make(**fields):
        settings = {
            "transient_store_pool_enable": True,
            "transient_store_pool_size": 3,
            "mapped_file_size_commit_log": SIZE,
            "flush_interval_commit_log": NEVER,
            "commit_interval_commit_log": NEVER,
            "wake_commit_when_put_message": False,
        }
        return open_store(**{**settings, **fields})

    return make


def log(store):
    return oracle.walk_log(oracle.read_log(f"{store.path}/commitlog"), crc="full")


def test_messages_go_to_memory_first(pooled):
    """A commit writes them to the file, where other processes can read them. So do a flush and a read in this store."""
    for commit in (lambda store: store.flush(), lambda store: store.message(0)):
        store = pooled()
        r = store.put("t", b"hello")
        assert r.status is PutStatus.PUT_OK
        assert store.max_phy_offset == r.end
        assert log(store) == []
        assert store.read_raw(0) == b""
        commit(store)
        assert [m["storedBody"] for m in oracle.records(log(store))] == [b"hello"]
        assert store.message(0).body == b"hello"
        store.close()
        shutil.rmtree(store.path)


def test_bytes_are_those_without_a_pool(pooled, open_store, tmp_path):
    """Also after blank records: a buffer is used again, and its old bytes are not written to the disk."""
    for name, enabled in (("with", True), ("without", False)):
        store = pooled(path=tmp_path / name, transient_store_pool_enable=enabled, flush_interval_commit_log=5)
        store._set_clock(1_700_000_000_000)
        for n in range(400):
            store.put("t", bytes([1 + n % 255]) * (n * 37 % 1000), tags="A")
        store.close()
    ours, plain = (oracle.read_log(tmp_path / name / "commitlog") for name in ("with", "without"))
    assert [entry[:2] for entry in ours] == [entry[:2] for entry in plain]
    assert len(ours) > 6


def test_commit_least_pages(pooled):
    """Fewer pages than commitCommitLogLeastPages stay in memory. A put wakes the commit when there are enough."""
    store = pooled(
        wake_commit_when_put_message=True, commit_commit_log_least_pages=2, commit_commit_log_thorough_interval=NEVER
    )
    store.put("t", bytes(PAGE))
    time.sleep(0.2)
    assert log(store) == []
    store.put("t", bytes(PAGE))
    wait_for(lambda: len(log(store)) == 2)
    assert store.stats()["commits"] >= 1


def test_commit_thorough_interval(pooled):
    store = pooled(
        commit_interval_commit_log=5, commit_commit_log_least_pages=1000, commit_commit_log_thorough_interval=20
    )
    for n in range(3):
        store.put("t", b"x")
        wait_for(lambda n=n: len(log(store)) == n + 1)


def test_a_commit_wakes_the_flush(pooled):
    store = pooled(
        commit_interval_commit_log=5,
        commit_commit_log_least_pages=0,
        flush_commit_log_timed=False,
        flush_commit_log_least_pages=0,
    )
    end = store.put("t", b"x").end
    wait_for(lambda: store.flushed_phy_offset == end)


def test_without_the_pool_nothing_is_committed(pooled):
    store = pooled(transient_store_pool_enable=False)
    store.put("t", b"x")
    assert len(log(store)) == 1
    store.flush()
    assert store.stats()["commits"] == 0


def test_sync_mode(pooled):
    store = pooled(flush="sync", transient_store_pool_size=2)
    for n in range(200):
        r = store.put("t", b"%03d" % n + bytes(500))
        assert store.flushed_phy_offset == r.end
    assert [m["storedBody"][:3] for m in oracle.records(log(store))] == [b"%03d" % n for n in range(200)]


def test_sync_mode_is_one_warning(pooled, caplog):
    """Allowed as in RocketMQ 5: a put waits for the commit and the flush, so the pool does not make it faster."""
    with caplog.at_level(logging.WARNING, "rocketc.store"):
        store = pooled(flush="sync")
        store.put_many("t", [b"x"] * 10)
        assert [r.getMessage() for r in caplog.records] == [
            f"{store.path}: transient_store_pool_enable with SYNC_FLUSH: each put waits until its bytes are copied "
            "from the pool to the log file and flushed; turn one of them off"
        ]
        caplog.clear()
        store.close()
        pooled(flush="sync", broker_role="SLAVE").close()
        pooled().close()
        assert caplog.records == []


def test_a_slave_does_not_use_the_pool(pooled, open_store, tmp_path):
    """RocketMQ isTransientStorePoolEnable(): other processes see what a slave got, without a commit."""
    master = open_store(tmp_path / "master", mapped_file_size_commit_log=SIZE)
    master.put_many("t", [bytes(1000)] * 30)
    slave = pooled(broker_role="SLAVE")
    at = 0
    while block := master.read_raw(at):
        slave.append_raw(at, block)
        at += len(block)
    assert len(oracle.records(log(slave))) == 30
    stats = slave.stats()
    assert stats["commits"] == stats["mlocked_bytes"] == 0


def test_buffers_are_returned(pooled):
    """A full and durable file returns its buffer: a small pool is enough for many files."""
    store = pooled(transient_store_pool_size=2, fast_fail_if_no_buffer_in_store_pool=True)
    for n in range(40):
        store.put("t", b"%02d" % n + bytes(3000))
        store.flush()
        assert store.stats()["rolls"] <= n // 5 + 2
    assert len(oracle.records(log(store))) == 40
    assert len(os.listdir(f"{store.path}/commitlog")) >= 8


def fill_file(store):
    """Put one more record than fits."""
    for _ in range(6):
        store.put("t", bytes(3000))


def test_a_put_without_a_free_buffer_fails_if_configured(pooled):
    """fastFailIfNoBufferInStorePool: CREATE_MAPPED_FILE_FAILED, until a flush returns a buffer."""
    store = pooled(transient_store_pool_size=1, fast_fail_if_no_buffer_in_store_pool=True)
    with pytest.raises(rocketc.StoreIOError) as caught:
        fill_file(store)
    assert caught.value.status is PutStatus.CREATE_MAPPED_FILE_FAILED
    assert store.failed is None
    store.flush()
    r = store.put("t", b"again")
    assert (r.queue_offset, r.phy_offset) == (5, SIZE)


def test_a_put_without_a_free_buffer_succeeds_by_default(pooled):
    """The file is written through its map instead."""
    store = pooled(transient_store_pool_size=1)
    fill_file(store)
    store.put("t", b"last")
    found = oracle.records(oracle.walk(oracle.read_log(f"{store.path}/commitlog")[1][1], SIZE))
    assert [m["storedBodyLen"] for m in found] == [3000, 4]
    store.close()
    assert len(oracle.records(log(store))) == 7


def test_close_writes_the_remaining_messages(pooled):
    store = pooled()
    store.put_many("t", [b"x"] * 10)
    store.close()
    assert len(log(store)) == 10


def test_rounds(pooled):
    """A file started before the store was opened is written through its map: a buffer would lack its content."""
    for n in range(4):
        store = pooled()
        assert store.put("t", b"%d" % n).queue_offset == n
        store.close()
    assert [m["storedBody"] for m in oracle.records(log(store))] == [b"0", b"1", b"2", b"3"]


def test_a_process_that_exits_at_once(tmp_path):
    """Messages that were not committed are lost. The others are whole, and the queue continues after them."""
    script = """
import os, rocketc, sys
pool = dict(transient_store_pool_enable=True, transient_store_pool_size=2)
never = dict(flush_interval_commit_log=600_000, commit_interval_commit_log=600_000, wake_commit_when_put_message=False)
store = rocketc.open(sys.argv[1], mapped_file_size_commit_log=1 << 14, **pool, **never)
store.put_many("t", [b"kept"] * 10)
store.flush()
store.put_many("t", [b"lost"] * 10)
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", script, tmp_path], check=True)
    with rocketc.open(tmp_path) as store:
        assert store.put("t", b"next").queue_offset == 10
    assert [m.body for m in rocketc.scan(tmp_path)] == [b"kept"] * 10 + [b"next"]


def test_the_dispatcher_sleeps_until_the_buffers_are_committed(tmp_path):
    """Records in a buffer can't be dispatched yet. The thread of the dispatcher does not try in a loop."""
    with rocketc.open(
        tmp_path,
        mapped_file_size_commit_log=1 << 20,
        transient_store_pool_enable=True,
        commit_interval_commit_log=60_000,
        commit_commit_log_thorough_interval=60_000,
    ) as store:
        store.put("t", b"x")
        time.sleep(0.1)
        before = time.process_time()
        time.sleep(0.5)
        assert time.process_time() - before < 0.25
        assert len(store.get("t")) == 1
