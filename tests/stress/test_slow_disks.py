"""Back-pressure: when the disk cannot keep up, puts wait or report it, as configured, and memory does not grow.

A library loaded before libc (slow.c) makes disk calls slow.
"""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.promise_counts import count

import rocketc

pytestmark = pytest.mark.promise(1)

PROLOGUE = """
import concurrent.futures, contextlib, json, sys, threading, time
from pathlib import Path
import rocketc
root, armed = sys.argv[1], Path(sys.argv[2])
told = {}

def anonymous():
    "Anonymous memory in MiB, without mapped files."
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) / 1024

def many(threads, work):
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, range(threads)))

def put_for(seconds, body=b"x" * 1000, pause=0):
    "Put repeatedly for some seconds; return the number of each status."
    said, until = {}, time.monotonic() + seconds
    while not said or time.monotonic() < until:
        try:
            status = store.put("t", body).status.name
        except rocketc.RocketcError as error:
            status = type(error).__name__
        time.sleep(pause)
        said[status] = said.get(status, 0) + 1
    return said

def added(several):
    return {name: sum(one.get(name, 0) for one in several) for one in several for name in one}
"""


@pytest.fixture(scope="session")
def slow_library(tmp_path_factory):
    if sys.platform != "linux" or not shutil.which("cc"):
        pytest.skip("needs Linux and a C compiler")
    path = tmp_path_factory.mktemp("shim") / "slow.so"
    source = Path(__file__).with_name("slow.c")
    subprocess.run(["cc", "-O1", "-fPIC", "-shared", str(source), "-o", str(path), "-ldl"], check=True)
    return path


@pytest.fixture
def slowly(slow_library, tmp_path):
    """slowly(script, calls, ms): run a script in which these calls take this time while the file `armed` exists."""

    def run(script, calls, ms):
        before = os.environ.get("LD_PRELOAD")
        env = {
            **os.environ,
            "LD_PRELOAD": f"{before} {slow_library}" if before else str(slow_library),
            "SLOW_CALLS": calls,
            "SLOW_MS": str(ms),
            "SLOW_ARMED": str(tmp_path / "armed"),
        }
        code = PROLOGUE + textwrap.dedent(script) + "\nprint(json.dumps(told))\n"
        command = [sys.executable, "-c", code, str(tmp_path / "store"), str(tmp_path / "armed")]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.mark.long
def test_sync_puts_wait(slowly, tmp_path):
    """Each put returns when its message is durable, many with one flush; nothing accumulates except waiting threads."""
    told = slowly(
        """
        store = rocketc.open(root, flush="sync", mapped_file_size_commit_log=1 << 24)
        store.put("t", b"first")
        armed.touch()
        before, flushes = anonymous(), store.stats()["flushes"]
        started = time.monotonic()
        told["said"] = added(many(16, lambda n: put_for(1.0)))
        told["seconds"] = time.monotonic() - started
        told["grown"], told["flushes"] = anonymous() - before, store.stats()["flushes"] - flushes
        armed.unlink()
        store.close()
        """,
        "msync,fdatasync",
        50,
    )
    assert set(told["said"]) == {"PUT_OK"}
    assert told["said"]["PUT_OK"] <= 16 * (told["flushes"] + 2), "one flush for all waiting threads"
    assert told["flushes"] <= told["seconds"] / 0.05 + 2
    assert told["grown"] < 8
    assert rocketc.scan(tmp_path / "store").count() == told["said"]["PUT_OK"] + 1
    count("acknowledged", told["said"]["PUT_OK"])


def test_sync_puts_report_a_timeout(slowly, tmp_path):
    """FLUSH_DISK_TIMEOUT after sync_flush_timeout: the message is stored, and later puts wait again."""
    told = slowly(
        """
        store = rocketc.open(root, flush="sync", sync_flush_timeout=100, mapped_file_size_commit_log=1 << 24)
        store.put("t", b"first")
        armed.touch()
        told["said"] = added(many(8, lambda n: put_for(0.5)))
        armed.unlink()
        told["then"] = {}
        while "PUT_OK" not in told["then"] and sum(told["then"].values()) < 100:  # the real disk may be slow, too
            told["then"] = added([told["then"], put_for(0)])
        store.close()
        """,
        "msync,fdatasync",
        400,
    )
    assert told["said"]["FLUSH_DISK_TIMEOUT"] >= 8
    assert "PUT_OK" in told["then"]
    stored = sum(told["said"].values()) + sum(told["then"].values()) + 1
    assert rocketc.scan(tmp_path / "store").count() == stored


def test_futures_wait(slowly, tmp_path):
    """20,000 futures while the disk is slow: each is done when its message is durable, and needs little memory."""
    told = slowly(
        """
        store = rocketc.open(root, flush="sync", mapped_file_size_commit_log=1 << 26)
        store.put("t", b"first")
        armed.touch()
        before = anonymous()
        futures = [store.put_async("t", b"x" * 1000) for _ in range(20000)]
        told["grown"] = anonymous() - before
        told["done"] = sum(future.done() for future in futures[-1000:])
        armed.unlink()
        told["said"] = sorted({future.result(60).status.name for future in futures})
        told["flushed"] = store.flushed_phy_offset == store.max_phy_offset
        del futures
        store.close()
        """,
        "msync,fdatasync",
        700,
    )
    assert told["done"] == 0, "a future is done before its flush"
    assert told["said"] == ["PUT_OK"] and told["flushed"]
    assert told["grown"] < 40, "MiB; the bodies need 19 more"
    assert rocketc.scan(tmp_path / "store").count() == 20001
    count("acknowledged", 20000)


@pytest.mark.long
def test_async_puts_do_not_wait(slowly, tmp_path):
    """Unflushed bytes are in the kernel's page cache; the memory of the process does not grow."""
    told = slowly(
        """
        store = rocketc.open(root, mapped_file_size_commit_log=1 << 24, flush_interval_commit_log=10)
        store.put("t", b"first")
        armed.touch()
        before, started = anonymous(), time.monotonic()
        told["said"] = sorted({store.put("t", b"x" * 1000).status.name for _ in range(20000)})
        told["seconds"] = time.monotonic() - started
        told["grown"] = anonymous() - before
        armed.unlink()
        store.close()
        """,
        "msync,fdatasync",
        300,
    )
    assert told["said"] == ["PUT_OK"]
    assert told["grown"] < 8
    assert rocketc.scan(tmp_path / "store").count() == 20001
    count("acknowledged", 20000)


@pytest.mark.some(1)
@pytest.mark.parametrize("lock", ["reentrant", "spin", "adaptive"])
def test_puts_report_a_busy_page_cache(slowly, tmp_path, lock):
    """The appending thread waits for the next file; others are refused after os_page_cache_busy_time_out_mills."""
    told = slowly(
        f"""
        store = rocketc.open(
            root, lock={lock!r}, mapped_file_size_commit_log=1 << 16, os_page_cache_busy_time_out_mills=100
        )
        store.put("t", b"first")
        armed.touch()
        before = anonymous()
        told["said"] = added(many(8, lambda n: put_for(2.0, pause=0.02 * n)))
        told["grown"] = anonymous() - before
        armed.unlink()
        time.sleep(0.7)
        told["then"] = put_for(0.05)
        store.close()
        """,
        "fallocate",
        600,
    )
    assert set(told["said"]) == {"PUT_OK", "PageCacheBusyError"}
    assert told["grown"] < 8
    assert set(told["then"]) == {"PUT_OK"}
    stored = told["said"]["PUT_OK"] + told["then"]["PUT_OK"] + 1
    assert rocketc.scan(tmp_path / "store").count() == stored, "a refused message must not be stored"
    count("acknowledged", stored)


@pytest.mark.long
@pytest.mark.parametrize("fail_fast", [True, False])
def test_a_full_pool(slowly, tmp_path, fail_fast):
    """The number of the pool's buffers is fixed, however slow commits are: then puts fail, or write to the map."""
    told = slowly(
        f"""
        size, buffers = 1 << 22, 2
        store = rocketc.open(
            root, transient_store_pool_enable=True, transient_store_pool_size=buffers, mapped_file_size_commit_log=size,
            fast_fail_if_no_buffer_in_store_pool={fail_fast},
        )
        store.put("t", b"first")
        armed.touch()
        before = anonymous()
        told["said"] = added(many(4, lambda n: put_for(1.0, body=bytes(50000))))
        told["grown"] = anonymous() - before - buffers * size / (1 << 20)
        armed.unlink()
        store.flush()
        time.sleep(0.5)
        told["then"] = put_for(0.05)
        store.close()
        """,
        "pwrite",
        30,
    )
    assert "PUT_OK" in told["said"]
    refused = set(told["said"]) - {"PUT_OK"}
    assert (refused != set()) == fail_fast, told["said"]
    assert told["grown"] < 8
    assert "PUT_OK" in told["then"]
    stored = told["said"]["PUT_OK"] + told["then"]["PUT_OK"] + 1
    assert rocketc.scan(tmp_path / "store").count() == stored
