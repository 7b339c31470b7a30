"""Background events are reported through logging; a program without logging prints nothing."""

import logging
import subprocess
import sys
import time
from pathlib import Path

import pytest

import rocketc


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


def test_a_program_without_logging_prints_nothing(tmp_path):
    """... and a program with logging gets the messages in its own handlers."""
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
        assert heard or found.stderr == ""


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
