"""Readers in other threads and processes, while a store is filled, rolls and is cleaned."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from stress.readers import CONFIG, HANGING, QUEUES, WAITING, Crowd, Reader, clean, hold, write

import rocketc

pytestmark = pytest.mark.promise(7)

COUNT = 3000  # messages of each queue
KEPT = 3 * CONFIG["mapped_file_size_commit_log"]


@pytest.fixture
def crowd():
    crowd = Crowd()
    yield crowd
    crowd.join()


@pytest.fixture
def together():
    return threading.Barrier(QUEUES)


def process(root, seed, kind, threads="one"):
    paths = [*filter(None, [os.environ.get("PYTHONPATH")]), str(Path(__file__).parents[1])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "stress.readers", str(root), str(seed), kind, threads]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(reader):
    said, errors = reader.communicate(timeout=HANGING)
    assert (reader.returncode, errors) == (0, ""), errors
    counts = [list(map(int, text.split("+"))) for text in said.split()]
    assert [sum(count) for count in counts] == [COUNT] * QUEUES
    return counts


@pytest.mark.parametrize("flush", ["async", "sync"])
@pytest.mark.parametrize("memory", ["map", "pool"])
def test_threads(tmp_path, crowd, together, flush, memory):
    pool = memory == "pool"
    store = rocketc.open(tmp_path, flush=flush, **CONFIG, transient_store_pool_enable=pool)
    count = COUNT if flush == "async" else COUNT // 10
    readers = [Reader(store, queue, seed, cleaned=False) for queue in range(QUEUES) for seed in range(2)]
    with store:
        for reader in readers:
            crowd(reader.run)
        for queue in range(QUEUES):
            crowd(write, store, queue, count, together)
        crowd.join()
    assert [(reader.seen, reader.passed) for reader in readers] == [(count, 0)] * len(readers)


@pytest.mark.parametrize("threads", ["one", "many"])
def test_processes(tmp_path, crowd, together, threads):
    with rocketc.open(tmp_path, **CONFIG) as store:
        readers = [process(tmp_path, seed, "kept", threads) for seed in range(2)]
        for queue in range(QUEUES):
            crowd(write, store, queue, COUNT, together)
        for reader in readers:
            assert finished(reader) == [[COUNT, 0]] * QUEUES


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_threads_while_it_is_cleaned(tmp_path, crowd, together, flush):
    """No reader gets a message twice or in part; views that a reader holds stay valid."""
    count = COUNT if flush == "async" else COUNT // 10
    done = threading.Event()
    with rocketc.open(tmp_path, flush=flush, **CONFIG) as store:
        readers = [Reader(store, queue, seed, cleaned=True) for queue in range(QUEUES) for seed in range(2)]
        for queue in range(QUEUES):
            crowd(write, store, queue, count, together)
        for reader in readers:
            crowd(reader.run)
        try:
            for queue in range(QUEUES):
                crowd(hold, store, queue, done)
            crowd(clean, store, KEPT, done)
            crowd.join(QUEUES + len(readers))
        finally:
            done.set()
        crowd.join()
        until = time.monotonic() + WAITING
        while store.max_phy_offset - store.min_phy_offset > KEPT + CONFIG["mapped_file_size_commit_log"]:
            store.delete_before(store.max_phy_offset - KEPT)  # a file that is being flushed stays
            assert time.monotonic() < until
        assert 0 < store.max_phy_offset - store.min_phy_offset <= KEPT + CONFIG["mapped_file_size_commit_log"]
    assert [reader.seen + reader.passed for reader in readers] == [count] * len(readers)
    assert len(list((tmp_path / "commitlog").iterdir())) < 10


@pytest.mark.parametrize("threads", ["one", "many"])
def test_processes_while_it_is_cleaned(tmp_path, crowd, together, threads):
    done = threading.Event()
    with rocketc.open(tmp_path, **CONFIG) as store:
        readers = [process(tmp_path, seed, "cleaned", threads) for seed in range(2)]
        for queue in range(QUEUES):
            crowd(write, store, queue, COUNT, together, lambda number: number % 10 or time.sleep(0.001))
        crowd(clean, store, KEPT, done)
        try:
            for reader in readers:
                finished(reader)
        finally:
            done.set()
        crowd.join()
        log = sorted(tmp_path.glob("commitlog/*"))
        assert [int(path.name) for path in log] == [
            int(log[0].name) + n * CONFIG["mapped_file_size_commit_log"] for n in range(len(log))
        ], "readers must not delete files"
        assert store.min_phy_offset == int(log[0].name) > 0
