"""What does it cost to prepare the pages of log files, and how even are puts meanwhile?

There are four ways. prepare="allocate" allocates only the space. "populate" populates the pages ahead of the writer.
"write", the default, writes zeros there. warm_maped_file_enable does the same for the whole file before it is used.
"""

import shutil
import statistics
import time
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns

from common import MIB, Bench, clock, same
from writing import (
    QUEUES,
    TAG,
    TOPIC,
    OurStore,
    figures,
    less_is_better,
    measured,
    percentiles,
    recycle_pages,
    scratch,
)

import rocketc

BASE = "allocate"
WAYS = {
    BASE: {"prepare": "allocate"},
    "populate": {"prepare": "populate"},
    "write": {"prepare": "write"},
    "warm": {"warm_maped_file_enable": True},
}
BODY, RECORD = 1024, 1140  # bytes of a body, and about those of its record

bench = Bench("prepare", __doc__)
bench.rounds = 3 if bench.quick else 7
FILE = 64 * MIB  # the default
SIZES = {"64 MiB": FILE} if bench.quick else {"64 MiB": FILE, "1 GiB": 1024 * MIB}
FILES = 1 if bench.quick else 3  # that a round fills
PUTS = FILES * FILE // RECORD
STEADY, BURST = 64 * MIB, 64  # bytes a second; messages without a pause
SYNCED = 500 if bench.quick else 4000


class Ours(OurStore):
    """A store, and puts that are timed one by one."""

    def put(self, times: int, rate: float = 0) -> dict[str, float]:
        """rate: messages a second, in bursts; 0: as fast as possible."""
        put, body, first, now, took = self.store.put, self.body, self.put_so_far, perf_counter_ns, []
        began = clock()
        for n in range(first, first + times):
            if rate and not n % BURST:
                time.sleep(max(0.0, began + (n - first) / rate - clock()))
            start = now()
            put(TOPIC, body, tags=TAG, queue_id=n % QUEUES)
            took.append(now() - start)
        self.put_so_far += times
        return percentiles(took)


def meanwhile(way: str, what: str, count: int, work: Callable[[Ours], object], **options):
    """Puts into files that are prepared in one way, against files with only their space."""
    case, against = f"put, 1 KiB, {what}, {way}", BASE
    if not bench.wanted(case, against, None):
        return
    with (
        scratch(bench) as folder,
        Ours(folder / "1", BODY, **WAYS[way], **options) as mine,
        Ours(folder / "2", BODY, **WAYS[BASE], **options) as other,
    ):

        def check():
            for one in (mine, other):
                one.put(100)
                one.check()

        ours, theirs = (one.side(partial(work, one), count) for one in (mine, other))
        costs = "cpu_us", "disk_bytes"
        rounds = measured(bench, case, against, None, count, "k/s", ours, theirs, *costs, check=check)
        for name in ("p50_us", "p99_us", "p999_us", "max_us"):
            pair = figures(ours, name), figures(theirs, name)
            less_is_better(bench, rounds, f"{case}: {name.removesuffix('_us')}", against, *pair, "us")


class FirstPut:
    """A round opens a new store and puts one message, which waits until the first file is ready."""

    def __init__(self, folder, way: str, size: int, flush: str):
        self._path, self.figures = folder / way, []
        self._config = rocketc.StoreConfig.of(mapped_file_size_commit_log=size, flush=flush, **WAYS[way])

    def __call__(self) -> float:
        start = clock()
        store = rocketc.open(self._path, config=self._config)
        result = store.put(TOPIC, b"x")
        seconds = clock() - start
        store.close()
        same(result.status.name, "PUT_OK", "rocketc (put)")
        shutil.rmtree(self._path)
        self.figures.append({"seconds": seconds})
        return seconds


def first_puts(name: str, size: int, flush: str):
    """A warmed file, from its creation until its first put, against a file with only its space."""
    case = f"warm, a file of {name}, {flush}"
    if not bench.wanted(case, BASE, None):
        return
    with scratch(bench) as folder:
        ours, theirs = (FirstPut(folder, way, size, flush) for way in ("warm", BASE))
        for _ in range(bench.rounds + 1):
            for side in (ours, theirs):
                bench.before_round()
                side()
        pair = [[seconds * 1e3 for seconds in figures(side, "seconds")[1:]] for side in (ours, theirs)]
        less_is_better(bench, bench.rounds, f"{case}: open and first put", BASE, *pair, "ms")
        rates = [[size / 1e3 / ms for ms in side] for side in pair]
        ratios = [mine / yours for mine, yours in zip(*rates, strict=True)]
        bench.show(f"{case}: rate", BASE, statistics.median(ratios), None, *rates, "MB/s", ratios)


def main():
    recycle_pages(bench)
    for name, size in SIZES.items():
        for flush in ("async", "sync"):
            first_puts(name, size, flush)
    for way in WAYS:
        if way != BASE:
            meanwhile(way, "full speed", PUTS, lambda one: one.put(PUTS))
            meanwhile(way, "64 MiB/s", PUTS, lambda one: one.put(PUTS, STEADY / RECORD))
            meanwhile(way, "sync", SYNCED, lambda one: one.put(SYNCED), flush="sync")


if __name__ == "__main__":
    main()
