"""Readers in other threads and other processes, while a store is filled, its files roll, and it is cleaned."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from stress.readers import CONFIG, QUEUES, Reader, write

import rocketc

COUNT = 3000  # messages of each queue
HANGING = 240.0


class Crowd:
    """Threads that must end, and without an error."""

    def __init__(self):
        self.errors, self.threads = [], []

    def __call__(self, target, *args):
        def run():
            try:
                target(*args)
            except BaseException as error:
                self.errors.append(error)

        self.threads.append(threading.Thread(target=run, daemon=True))
        self.threads[-1].start()

    def join(self):
        until = time.monotonic() + HANGING
        for thread in self.threads:
            thread.join(max(until - time.monotonic(), 0))
        assert self.errors == []
        assert not any(thread.is_alive() for thread in self.threads), "threads hang"


@pytest.fixture
def crowd():
    crowd = Crowd()
    yield crowd
    crowd.join()


def process(root, seed, kind):
    paths = [*filter(None, [os.environ.get("PYTHONPATH")]), str(Path(__file__).parents[1])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "stress.readers", str(root), str(seed), kind]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(reader):
    said, errors = reader.communicate(timeout=HANGING)
    assert (reader.returncode, errors) == (0, "")
    counts = [list(map(int, text.split("+"))) for text in said.split()]
    assert [sum(count) for count in counts] == [COUNT] * QUEUES
    return counts


@pytest.mark.parametrize("flush", ["async", "sync"])
@pytest.mark.parametrize("memory", ["map", "pool"])
def test_threads(tmp_path, crowd, flush, memory):
    pool = memory == "pool"
    store = rocketc.open(tmp_path, flush=flush, **CONFIG, transient_store_pool_enable=pool)
    count = COUNT if flush == "async" else COUNT // 10
    readers = [Reader(store, queue, seed, cleaned=False) for queue in range(QUEUES) for seed in range(2)]
    with store:
        for reader in readers:
            crowd(reader.run)
        for queue in range(QUEUES):
            crowd(write, store, queue, count)
        crowd.join()
    assert [(reader.seen, reader.passed) for reader in readers] == [(count, 0)] * len(readers)


def test_processes(tmp_path, crowd):
    with rocketc.open(tmp_path, **CONFIG) as store:
        readers = [process(tmp_path, seed, "kept") for seed in range(2)]
        for queue in range(QUEUES):
            crowd(write, store, queue, COUNT)
        for reader in readers:
            assert finished(reader) == [[COUNT, 0]] * QUEUES
