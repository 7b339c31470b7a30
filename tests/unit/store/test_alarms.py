"""Background events are reported through logging; a program without logging prints nothing."""

import asyncio
import logging
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import rocketc
from rocketc.metrics import measures


@pytest.fixture
def told(caplog):
    """Return a function that returns a logger's new messages, as (level, text without the path of the store)."""
    caplog.set_level(logging.INFO, "rocketc")

    def texts(name="rocketc.store"):
        found = [(r.levelname, r.getMessage().partition(": ")[2]) for r in caplog.records if r.name == name]
        caplog.clear()
        return found

    return texts


def until(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def measured(store, name):
    [found] = [one for one in measures(store) if one.name == name]
    return found.samples[0].value


def flush_slowly(store, slow_ns):
    store._hook("slow_ns", slow_ns)
    store.put("t", b"x")
    store.flush()


def test_slow_flushes(open_store, told):
    store = open_store()
    flush_slowly(store, 0)
    assert told() == []
    flush_slowly(store, 510_000_000)
    [(level, text)] = told()
    assert level == "WARNING" and text.startswith("a flush of the log took more than 0.5 s, the longest so far 0.")
    assert store.stats()["slow_flushes"] == 1
    store._hook("slow_ns", 0)


@pytest.mark.long
def test_slow_flushes_are_logged_once_a_minute(open_store, told, monkeypatch):
    store = open_store()
    for _ in range(3):
        flush_slowly(store, 510_000_000)
    assert len(told()) == 1
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    flush_slowly(store, 510_000_000)
    assert told()[0][1].startswith("3 flushes of the log took more than 0.5 s")


def is_soon(condition):
    until(condition)
    return True


def test_a_put_that_holds_the_put_lock_for_long(open_store, told):
    """It waits for the next file. Each hold is counted; one line a minute says which put it was."""
    store = open_store(mapped_file_size_commit_log=1 << 16)
    put = store.put("first", bytes(40_000))
    assert is_soon(lambda: Path(store.path, "commitlog", f"{1 << 16:020}").exists())
    store._hook("make_ns", 700_000_000)
    store.put("second", bytes(40_000))
    assert store.stats()["slow_holds"] == 0
    slow = store.put("third", bytes(40_000))
    assert store.stats()["slow_holds"] == 1
    store._hook("make_ns", 0)
    store.put("fourth", b"x")
    found = [line for line in told() if "put lock" in line[1]]
    pattern = (
        r"a put held the put lock for more than 0.5 s; the last one: 0\.\d s for %d bytes of topic third, "
        "waiting for the next log file" % slow.size
    )
    [(level, text)] = found
    assert level == "WARNING" and re.fullmatch(pattern, text)
    assert put.size and measured(store, "rocketc_slow_put_lock_holds_total") == 1


def test_a_put_that_fails_after_a_long_hold(open_store, told):
    store = open_store(mapped_file_size_commit_log=1 << 16)
    store.put("first", bytes(40_000))
    assert is_soon(lambda: Path(store.path, "commitlog", f"{1 << 16:020}").exists())
    store._hook("make_ns", 1_500_000_000)
    store._hook("create_ns", 700_000_000)
    store.put("second", bytes(40_000))
    with pytest.raises(rocketc.StoreIOError):
        store.put("third", bytes(40_000))
    store._hook("make_ns", 0)
    assert store.stats()["slow_holds"] == 1
    store.flush()
    [(_, text)] = [line for line in told() if "put lock" in line[1]]
    assert "of topic third, waiting for the next log file" in text


def test_a_replica_that_holds_the_put_lock_for_long(open_store, told, tmp_path):
    master = open_store(mapped_file_size_commit_log=1 << 16)
    blocks = [master.put("orders", bytes(40_000)) for _ in range(3)] and []
    at = 0
    while block := master.read_raw(at):
        blocks.append((at, block))
        at += len(block)
    replica = open_store(tmp_path / "replica", mapped_file_size_commit_log=1 << 16, broker_role="SLAVE")
    told()
    replica.append_raw(*blocks[0])
    assert is_soon(lambda: Path(replica.path, "commitlog", f"{1 << 16:020}").exists())
    replica._hook("make_ns", 700_000_000)
    for one in blocks[1:]:
        replica.append_raw(*one)
    replica._hook("make_ns", 0)
    assert replica.stats()["slow_holds"] == 1
    replica.flush()
    [(_, text)] = [line for line in told() if "put lock" in line[1]]
    assert "bytes of topic orders, waiting for the next log file" in text


def test_a_commit_that_takes_long(open_store, told):
    store = open_store(transient_store_pool_enable=True, wake_commit_when_put_message=False)
    store._hook("commit_ns", 510_000_000)
    put = store.put("t", bytes(5000))
    store.wait_dispatched()
    store._hook("commit_ns", 0)
    assert store.stats()["slow_commits"] == 1
    assert measured(store, "rocketc_slow_commits_total") == 1
    store.put("t", b"x")
    [(level, text)] = [line for line in told() if "commit" in line[1]]
    assert level == "WARNING"
    pattern = (
        r"a commit of the transient store pool took more than 0.5 s; the last one: 0\.\d s for %d bytes up to physical "
        r"offset %d, waiting for the write to the log file" % (put.size, put.end)
    )
    assert re.fullmatch(pattern, text)


def test_puts_that_are_not_durable_in_time(open_store, told, monkeypatch):
    store = open_store(flush="sync", sync_flush_timeout=20)
    store._hook("slow_ns", 60_000_000)
    r = store.put("orders", b"late")
    assert r.status.name == "FLUSH_DISK_TIMEOUT"
    assert store.stats()["flush_timeouts"] == measured(store, "rocketc_flush_disk_timeouts_total") == 1
    [(level, text)] = told()
    assert level == "WARNING"
    pattern = (
        r"a put returned FLUSH_DISK_TIMEOUT after 20 ms; the last one: %d bytes of topic orders up to physical offset "
        r"%d, waiting for the flush of \d+ bytes" % (r.size, r.end)
    )
    assert re.fullmatch(pattern, text)
    assert store.put_many("many", [b"x"] * 3).status.name == "FLUSH_DISK_TIMEOUT"
    assert store.put_batch("batch", [(0, b"x", None)]).status.name == "FLUSH_DISK_TIMEOUT"
    assert told() == []
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    assert store.put("orders", b"again").status.name == "FLUSH_DISK_TIMEOUT"
    [(_, text)] = told()
    assert text.startswith("3 puts returned FLUSH_DISK_TIMEOUT after 20 ms; the last one: ")
    assert store.stats()["flush_timeouts"] == 4
    store._hook("slow_ns", 0)


def test_futures_that_are_not_durable_in_time(open_store, told):
    """Each is counted once, however often it is asked."""
    store = open_store(flush="sync", sync_flush_timeout=20)
    store._hook("slow_ns", 500_000_000)
    future = store.put_async("async", b"x")
    time.sleep(0.01)  # the thread of the store flushes
    for _ in range(3):
        assert future.result().status.name == "FLUSH_DISK_TIMEOUT"
    [(_, text)] = told()
    size = future.result().size
    assert text.startswith(f"a put returned FLUSH_DISK_TIMEOUT after 20 ms; the last one: {size} bytes of topic async ")

    async def put():
        return await store.aput("loop", b"x")

    assert asyncio.run(put()).status.name == "FLUSH_DISK_TIMEOUT"
    assert store.stats()["flush_timeouts"] == 2
    store._hook("slow_ns", 0)


def test_quick_puts_are_not_counted(open_store):
    store = open_store(flush="sync", transient_store_pool_enable=True)
    for _ in range(50):
        store.put("t", b"x")
    stats = store.stats()
    assert stats["slow_holds"] == stats["slow_commits"] == stats["flush_timeouts"] == 0
    names = ("slow_put_lock_holds", "slow_commits", "flush_disk_timeouts", "mlock_failures")
    for name in names[:3]:
        assert measured(store, f"rocketc_{name}_total") == 0
    assert measured(store, "rocketc_mlocked_bytes") == stats["mlocked_bytes"]
    assert measured(store, "rocketc_mlock_failures_total") == stats["mlock_failures"]


def test_a_failure_in_the_background(open_store, told):
    """No caller waits for the flush: the next call of any kind raises the error."""
    store = open_store()
    store.put("t", b"x")
    store._hook("fail", 5)
    with pytest.raises(rocketc.StoreFailedError):
        store.put("t", b"x")
    [(level, text)] = told()
    assert level == "ERROR" and text.startswith("the store has failed: [Errno 5]")
    with pytest.raises(rocketc.StoreFailedError):
        store.put("t", b"x")
    assert told() == []


def test_a_failure_in_close_is_logged(open_store, told):
    store = open_store()
    store.put("t", b"x")
    store._hook("fail", 5)
    with pytest.raises(rocketc.StoreFailedError):
        store.close()
    assert any("the store has failed" in text for _, text in told())


def test_dispatching_that_fails_and_lags_behind(open_store, told):
    """A file has the name of a topic's folder; after its removal dispatching continues."""
    store = open_store()
    store._hook("most_behind", 5000)
    store.put("a", b"x")
    store.wait_dispatched()
    wall = Path(store.path, "consumequeue", "b")
    wall.touch()
    store.put("b", bytes(8000))
    found = []
    until(lambda: store.put("a", b"x") and (found.extend(told()) or len(found) == 2))
    [(level, text), (_, behind)] = found
    assert level == "ERROR" and text.startswith("messages can't be dispatched to the queues: ") and str(wall) in text
    assert int(behind.removesuffix(" bytes of the log are not in the queues yet")) > 5000
    wall.unlink()
    until(lambda: store.dispatch_behind_bytes == 0)
    until(lambda: store.put("a", b"x") and (found.extend(told()) or len(found) == 4))
    assert found[2:] == [
        ("INFO", "messages are dispatched to the queues again"),
        ("INFO", "the queues have caught up with the log"),
    ]


def test_a_program_without_logging_sees_warnings(tmp_path):
    """... and a program with logging gets the messages in its own handlers only."""
    code = """
import sys, rocketc
{}
store = rocketc.open(sys.argv[1])
store._hook("fail", 5)
try:
    store.close()
except rocketc.StoreFailedError:
    pass
"""
    for setting, heard in (("", False), ("import logging; logging.basicConfig()", True)):
        run = [sys.executable, "-c", code.format(setting), tmp_path]
        found = subprocess.run(run, capture_output=True, text=True)
        assert found.returncode == 0 and found.stdout == ""
        assert ("ERROR:rocketc.store:" in found.stderr) is heard
        assert ("WARNING rocketc.store: " in found.stderr) is not heard


def test_reporting_costs_a_put_nothing(open_store, monkeypatch):
    """A put calls the reporting function only when there is something to report."""
    calls = []
    monkeypatch.setattr("rocketc.store.alarms.Alarms.__call__", lambda self, failed: calls.append(failed))
    store = open_store()
    for _ in range(100):
        store.put("t", b"x")
    assert calls == []
    store._hook("fail", 5)
    for _ in range(3):
        with pytest.raises(rocketc.StoreFailedError):
            store.put("t", b"x")
    assert len(calls) == 1
