"""How much does a put cost with subscribers of the change feed? They are asleep or awake, in C threads.

Rows for bench_interfaces: each is a loop of puts with subscribers, against the same loop without subscribers.
"""

import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from common import MIB, Bench, clock

import rocketc

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support import extension

PUTS = {True: 20_000, False: 50_000}  # per round; True: with --quick
BODY = b"x" * 128
COUNTS = (1, 8, 64)
GOAL_NS = 100  # allowed ns per put for each subscriber that is awake


class Feeds:
    """A store in memory with `count` subscribers: asleep (woken once, they do not fetch again), or awake."""

    def __init__(self, folder: str, count: int, awake: bool) -> None:
        self.store = rocketc.open(
            tempfile.mkdtemp(dir=folder), mapped_file_size_commit_log=256 * MIB, flush_interval_commit_log=60_000
        )
        follower = extension.load("feed").Follower
        self.followers = [follower(self.store.feed) for _ in range(count)]
        self.threads = [threading.Thread(target=one.run) for one in self.followers] if awake else []
        for thread in self.threads:
            thread.start()
        if not awake:
            for one in self.followers:
                one.arm()
        self.put(2000)

    def put(self, count: int) -> None:
        put = self.store.put
        for _ in range(count):
            put("BenchTopic", BODY, tags="TagA")
        self.store.wait_dispatched()

    def close(self) -> None:
        self.store.close()
        for thread in self.threads:
            thread.join()


def side(folder: str, count: int, awake: bool, puts: int) -> Callable[[], float]:
    """Return the seconds of `puts` puts on the calling thread; the dispatch at the end is not timed."""

    def once() -> float:
        feeds = Feeds(folder, count, awake)
        put = feeds.store.put
        try:
            start = clock()
            for _ in range(puts):
                put("BenchTopic", BODY, tags="TagA")
            return clock() - start
        finally:
            feeds.close()

    return once


def add_feed_rows(bench: Bench, folder: str) -> None:
    """Measure the rows; ratio 1: subscribers do not make puts slower."""
    puts = PUTS[bench.quick]
    for awake in (False, True):
        for count in COUNTS:
            bench.row(
                f"put, {count} subscriber{'s' * (count > 1)} {'awake' if awake else 'asleep'}",
                against="put, none",
                work=puts,
                unit="ns/put",
                ours=side(folder, count, awake, puts),
                theirs=side(folder, 0, False, puts),
            )
