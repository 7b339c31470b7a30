"""What does a put cost, and how late is its message durable, with each flush service?

The services side by side: a flush each 500 ms, group commit, and the transient store pool with its commits.
"""

import contextlib
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from time import perf_counter_ns
from typing import NamedTuple

from common import Bench, clock, in_threads
from writing import QUEUES, TAG, TOPIC, OurStore, Side, figures, less_is_better, percentiles, recycle_pages, scratch

import rocketc

BASE = "async flush"
SERVICES = {  # the first one is what the others are compared with
    BASE: {"flush": "async"},
    "sync flush": {"flush": "sync"},
    "transient pool": {"flush": "async", "transient_store_pool_enable": True},
}
BODY = 128
THREADS = (1, 16)

bench = Bench("services", __doc__)
bench.rounds = 3 if bench.quick else 7
PUTS = {"async": 20_000 if bench.quick else 200_000, "sync": 1600 if bench.quick else 16_000}  # per round
SLOWLY = 0.3 if bench.quick else 2.0  # seconds of puts, one each 2 ms
AFTER = 0.9  # seconds of further puts, which do not count: a flush waits until there are four pages
PAUSE = 0.002
LOOK = 0.0005  # seconds between two looks at what is durable
READER_LOOK = 0.005  # ... and at what another process sees, which costs 2 ms
DELAYS = ("durable", "visible to another process")
TIMES = (("p50_us", "p50"), ("p99_us", "p99"), ("p999_us", "p999"))


class Look(NamedTuple):
    at: int  # ns, by perf_counter_ns
    position: int  # physical offset


class Ours(OurStore):
    """A store with one flush service. Each thread puts into its own queue, and puts are timed."""

    def put(self, threads: int, times: int) -> dict[str, float]:
        """Put `times` messages in total as fast as possible."""
        put, body, each, now = self.store.put, self.body, times // threads, perf_counter_ns
        took: list[list[int]] = [[] for _ in range(threads)]

        def work(thread: int):
            mine = took[thread]
            for n in range(each):
                start = now()
                put(TOPIC, body, tags=TAG, keys=f"order-{n}", queue_id=thread)
                mine.append(now() - start)

        in_threads(threads, work)
        self.put_so_far += each * threads
        return percentiles([one for some in took for one in some])

    def put_slowly(self, what: str) -> dict[str, float]:
        """Put a message each 2 ms; return the delays of `what`, one of DELAYS, in us after the put began."""
        if what == "durable":
            return self._put_slowly(lambda: self.store.flushed_phy_offset, LOOK)
        with rocketc.open(self.path, read_only=True) as reader:
            return self._put_slowly(lambda: reader.max_phy_offset, READER_LOOK)

    def _put_slowly(self, position: Callable[[], int], pause: float) -> dict[str, float]:
        began, ends, looks, stop = [], [], [], threading.Event()

        def watch():
            while not stop.wait(pause):
                looks.append(Look(perf_counter_ns(), position()))

        watcher = threading.Thread(target=watch)
        watcher.start()
        count, until = None, clock() + SLOWLY
        while count is None or clock() < until:
            if count is None and clock() >= until:
                count, until = len(ends), until + AFTER
            began.append(perf_counter_ns())
            ends.append(self.store.put(TOPIC, self.body, tags=TAG, queue_id=len(ends) % QUEUES).end)
            if pause == LOOK:
                looks.append(Look(perf_counter_ns(), position()))
            time.sleep(PAUSE)
        stop.set()
        watcher.join()
        self.put_so_far += len(ends)
        return delays(began[:count], ends[:count], looks)


def delays(began: Sequence[int], ends: Sequence[int], looks: list[Look]) -> dict[str, float]:
    """Return percentiles of the us from the begin of each put until a look found the end of its message reached."""
    looks = sorted(looks)
    reached = list(accumulate((look.position for look in looks), max))
    if reached[-1] < ends[-1]:
        raise SystemExit(f"bench: {ends[-1] - reached[-1]} bytes are not durable or not visible after {AFTER} s")
    took = [looks[bisect_left(reached, end)].at - start for start, end in zip(began, ends, strict=True)]
    return percentiles(took)


def side(mine: Ours, threads: int, count: int) -> Side:
    return mine.side(partial(mine.put, threads, count), count)


def at_full_speed(name: str, threads: int):
    case = f"{name}, {threads} thread{'s' * (threads > 1)}, {BODY} B"
    if not bench.wanted(case, BASE, None):
        return
    counts = [
        PUTS[SERVICES[one]["flush"]] // (8 if threads == 1 and one == "sync flush" else 1) for one in (name, BASE)
    ]
    with two_stores(name) as (mine, other):

        def check():
            for one in (mine, other):
                one.put(threads, threads * 20)
                one.check()

        ours, theirs = side(mine, threads, counts[0]), side(other, threads, counts[1])
        rounds = bench.row(
            case, against=BASE, work=counts[0] / 1e3, their_work=counts[1] / 1e3, unit="k/s", check=check, ours=ours,
            theirs=theirs,
        )  # fmt: skip
        for figure, what in TIMES:
            pair = figures(ours, figure), figures(theirs, figure)
            less_is_better(bench, rounds, f"{case}: {what}", BASE, *pair, "us")


def slowly(name: str, what: str):
    case = f"{name}, a put each {PAUSE * 1e3:g} ms: {what} after"
    if not bench.wanted(case, BASE, None):
        return
    with two_stores(name) as (mine, other):
        rounds = [(mine.put_slowly(what), other.put_slowly(what)) for _ in range(bench.rounds + 1)]
        mine.check(), other.check()
        for figure, quantile in (("p50_us", "p50"), ("p99_us", "p99"), ("max_us", "max")):
            pair = ([one[figure] / 1e3 for one in found] for found in zip(*rounds, strict=True))
            less_is_better(bench, bench.rounds, f"{case}, {quantile}", BASE, *pair, "ms")


@contextlib.contextmanager
def two_stores(name: str) -> Iterator[tuple[Ours, Ours]]:
    """One store with a service, and one with the service that it is compared with."""
    with (
        scratch(bench) as folder,
        Ours(folder / "1", BODY, **SERVICES[name]) as mine,
        Ours(folder / "2", BODY, **SERVICES[BASE]) as other,
    ):
        yield mine, other


def main():
    recycle_pages(bench)
    for name in SERVICES:
        if name != BASE:
            for threads in THREADS:
                at_full_speed(name, threads)
            for what in DELAYS:
                slowly(name, what)


if __name__ == "__main__":
    main()
