"""The end of a store: exit of the interpreter, immediate exit, exit during a wait, signals."""

import subprocess
import sys

import pytest
from support import oracle
from support.put_checks import bodies
from support.scripts import closed_at_a_signal, run_script, told

import rocketc

FILE = 1 << 16


PUTS = """
import rocketc, signal, sys, threading, time
later = {"flush_interval_commit_log": 600_000}
store = rocketc.open(sys.argv[1], flush=sys.argv[2], mapped_file_size_commit_log=1 << 16, **later)
for n in range(100):
    store.put("t", b"%d" % n)
"""


@pytest.mark.parametrize("flush", ["sync", "async"])
@pytest.mark.parametrize(
    "end", ["", "raise SystemExit(0)", "threading.Thread(target=time.sleep, args=(0.1,)).start()", "del store"]
)
def test_the_interpreter_ends_with_an_open_store(tmp_path, flush, end):
    """No acknowledged message is lost, and the store is closed."""
    run_script(PUTS + end, tmp_path, flush)
    assert bodies(tmp_path) == [b"%d" % n for n in range(100)]
    assert not (tmp_path / "abort").exists()


@pytest.mark.parametrize("flush", ["sync", "async"])
@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)", "os.abort()"])
def test_the_process_ends_at_once(tmp_path, flush, end):
    """The messages survive in the page cache. The next start finds the file `abort`."""
    done = subprocess.run(
        [sys.executable, "-c", PUTS + f"import os; {end}", tmp_path, flush], stderr=subprocess.DEVNULL, check=False
    )
    assert done.returncode in (0, -9, -6)
    assert (tmp_path / "abort").exists()
    with rocketc.open(tmp_path) as store:
        assert store.put("t", b"100").queue_offset == 100
    assert bodies(tmp_path) == [b"%d" % n for n in range(101)]


def test_the_interpreter_ends_while_threads_put(tmp_path):
    """Daemon threads are in the middle of a put: no crash, no torn record."""
    run_script(
        PUTS
        + """
def put():
    while True:
        store.put("t", b"more")
for _ in range(4):
    threading.Thread(target=put, daemon=True).start()
time.sleep(0.2)
""",
        tmp_path,
        "async",
    )
    items = oracle.walk_log(oracle.read_log(tmp_path / "commitlog"), crc="full")
    assert not oracle.damage(items)
    assert len(oracle.records(items)) >= 100
    assert not (tmp_path / "abort").exists()


@pytest.mark.parametrize(
    "wait",
    [
        'store.put("t", b"x")',
        pytest.param("store.wait_flushed(store.max_phy_offset)", marks=pytest.mark.long),
        pytest.param('store.put_async("t", b"x").result()', marks=pytest.mark.long),
    ],
)
def test_ctrl_c_ends_a_wait(tmp_path, wait):
    """A wait for a flush releases the GIL and handles signals."""
    script = f"""
import _thread, rocketc, signal, sys, threading, time, os
store = rocketc.open(sys.argv[1], flush="sync", mapped_file_size_commit_log=1 << 16, sync_flush_timeout=100_000)
store.put("t", b"first")
store._hook("slow_ns", 4_000_000_000)
flushing = threading.Thread(target=lambda: store.put("t", b"other"))  # it flushes, the main thread waits for it
flushing.start()
while store.max_phy_offset < 190:
    time.sleep(0.001)
time.sleep(0.3)  # it has appended, and flushes now
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
begin = time.monotonic()
try:
    {wait}
except KeyboardInterrupt:
    print("interrupted", store.flushed_phy_offset < store.max_phy_offset)
store._hook("slow_ns", 0)
flushing.join()
store.close()
"""
    out, _ = run_script(script, tmp_path)
    assert out.split() == ["interrupted", "True"]


@pytest.mark.parametrize(
    "handler", ["signal.default_int_handler", "lambda *_: store.close()", "lambda *_: sys.exit(0)"]
)
def test_a_signal_during_close(tmp_path, handler):
    """The signal is ignored, or its exception is raised after the store is closed. The process ends."""
    script = """
import rocketc, sys
store = rocketc.open(sys.argv[1], mapped_file_size_commit_log=1 << 16, flush_interval_commit_log=600_000)
store.put("t", b"x")
store._hook("slow_ns", 1_000_000_000)
"""
    out, _ = run_script(script + closed_at_a_signal("store", handler), tmp_path, timeout=20)
    assert out.split() == told(handler)
    assert not (tmp_path / "abort").exists()
    with rocketc.open(tmp_path) as store:
        assert store.put("t", b"y").queue_offset == 1


@pytest.mark.parametrize(
    "call",
    [
        'store.get("t", 0, 1, wait=60)',
        'store.put("t", b"x")',
        pytest.param("store.wait_flushed(store.max_phy_offset)", marks=pytest.mark.long),
    ],
)
def test_a_signal_that_closes_the_store_during_a_call(tmp_path, call):
    """close() would wait for the call, which waits for the handler: close() ends the call instead."""
    script = f"""
import os, rocketc, signal, sys, threading, time
store = rocketc.open(sys.argv[1], flush="sync", mapped_file_size_commit_log=1 << 16, sync_flush_timeout=100_000)
store.put("t", b"0")
signal.signal(signal.SIGTERM, lambda *_: store.close())
flushing = None
if "get" not in {call!r}:
    store._hook("slow_ns", 2_000_000_000)
    flushing = threading.Thread(target=lambda: store.put("t", b"other"))  # it flushes, the main thread waits for it
    flushing.start()
    while store.max_phy_offset < 190:
        time.sleep(0.001)
    time.sleep(0.2)
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
try:
    {call}
except rocketc.ClosedError as error:
    print("inside a call of" in str(error), store.closed)
if flushing is not None:
    store._hook("slow_ns", 0)
    flushing.join()
print(store.put("t", b"still open").queue_offset > 0)
os.kill(os.getpid(), signal.SIGTERM)
print(store.closed)
"""
    out, _ = run_script(script, tmp_path, timeout=60)
    assert out.split() == ["True", "False", "True", "True"]
    assert not (tmp_path / "abort").exists()


def test_a_failed_store_does_not_keep_others_open(tmp_path):
    """At its exit the interpreter closes stores in no particular order."""
    script = """
import atexit, os
atexit.register(os._exit, 0)  # last of all: __del__ would close them too
import errno, rocketc, sys
stores = [rocketc.open(f"{sys.argv[1]}/{n}", mapped_file_size_commit_log=1 << 16) for n in range(6)]
for n, store in enumerate(stores):
    store.put("t", b"x")
    if n:
        store._hook("fail", errno.EIO)
"""
    _, told = run_script(script, tmp_path, timeout=60)
    assert "StoreFailedError" in told
    assert [(tmp_path / str(n) / "abort").exists() for n in range(6)] == [False] + [True] * 5


def interrupt_at(n):
    """Raise a KeyboardInterrupt in this thread at the start of the n-th call of a function of rocketc."""

    def trace(frame, event, argument):
        nonlocal n
        n -= frame.f_globals.get("__name__", "").startswith("rocketc.")
        if n == 0:
            raise KeyboardInterrupt

    sys.settrace(trace)


@pytest.mark.parametrize("fields", [{}, {"read_only": True}], ids=["writing", "reading"])
def test_an_interrupt_anywhere_in_close(tmp_path, fields):
    """close() completes, and then raises the exception."""
    rocketc.open(tmp_path, mapped_file_size_commit_log=FILE).close()
    former = sys.gettrace()
    for n in range(1, 100):
        store = rocketc.open(tmp_path, **fields)
        if not fields:
            store.create_topic(f"t{n}")  # a table to write, and a thread to end
            assert store.put("t", b"x").queue_offset == n - 1
        interrupted = False
        interrupt_at(n)
        try:
            store.close()
        except KeyboardInterrupt:
            interrupted = True
        finally:
            sys.settrace(former)
        assert store.closed
        store.close()
        assert not (tmp_path / "abort").exists()
        if not interrupted:
            break
    assert n > (10 if not fields else 0)
