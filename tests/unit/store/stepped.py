"""A store without threads on a clock that a test sets: its files, and calls of many kinds."""

import os
import threading

import rocketc

T0 = 1_700_000_000_000
FILE = 1 << 14
SMALL = {
    "mapped_file_size_commit_log": FILE,
    "max_hash_slot_num": 64,
    "max_index_num": 40,
    "mapped_file_size_consume_queue": 20 * 50,
}
HOUR = 3_600_000


class Times:
    """A clock that only changes when a test sets it."""

    def __init__(self, now=T0):
        self.now = now
        self.readings = 0

    def __call__(self):
        self.readings += 1
        return self.now


def open_stepped(path, times, **fields):
    return rocketc.open(path, clock=times, background=False, **{**SMALL, **fields})


def files_of(root):
    """{path relative to root: bytes} of all files of a store."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, root)] = file.read()
    return found


def threads():
    tasks = "/proc/self/task"
    return threading.active_count(), len(os.listdir(tasks)) if os.path.isdir(tasks) else 0


def put_some(store, times, steps=True):
    """Put messages of several kinds, with rolls of log and index; the clock advances, and goes back once."""
    futures = []
    store.create_topic("orders", queues=2)
    for n in range(60):
        times.now += -2000 if n == 40 else 20 * n
        topic = ("orders", "audit", "logs")[n % 3]
        store.put(topic, bytes([n]) * (n * 5), keys=f"k{n} k{n % 7}", tags="A", queue_id=n % 2)
        if n % 10 == 0:
            futures.append(store.put_async(topic, b"async", keys="later"))
            store.put_many("many", [b"x" * 90] * 12, keys="m")
        if n % 11 == 0:
            store.put_batch("batch", [(0, b"one", {"KEYS": "b"}), (0, b"two", None)])
        if n % 25 == 0:
            store.get("orders", 0, max(store.max_offset("orders") - 3, 0))
        if steps and n % 4 == 0:
            store.step()
    for future in futures:
        future.result()


MODES = {
    "async": {},
    "sync": {"flush": "sync"},
    "pool": {"transient_store_pool_enable": True, "transient_store_pool_size": 3},
    "ext": {"enable_consume_queue_ext": True, "lock": "adaptive", "flush_commit_log_timed": False},
}
