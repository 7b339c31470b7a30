"""How fast are messages put when each put waits until its message is durable?"""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter_ns

import java_peer
from common import Bench, in_threads, same
from writing import (
    BATCH,
    QUANTILES,
    QUEUES,
    TAG,
    TOPIC,
    JavaSide,
    OurStore,
    Side,
    beside_peer,
    details,
    measured,
    peer,
    percentiles,
    scratch,
    text,
)

BODY = 128
THREADS, WINDOW = 64, 1000

bench = Bench("flush", __doc__)
bench.rounds = 3 if bench.quick else 9
ALONE = 1000 if bench.quick else 5000  # puts per round of one thread
TOGETHER = 6400 if bench.quick else 32_000  # puts per round of all threads
IN_FLIGHT = 50_000 if bench.quick else 300_000
BATCHES = 50 if bench.quick else 300  # put_many calls


# ---------------------------------------------------------------- our side
class Ours(OurStore):
    """A store in sync mode, and loops that put messages."""

    def __init__(self, folder: Path):
        super().__init__(folder, BODY, flush="sync")
        self.record = self.store.put(TOPIC, self.body, tags=TAG, keys="order-000000").size
        self.call = self.store.put_many(TOPIC, self._bodies, tags=TAG).size  # bytes in the log
        self.put_so_far += 1 + BATCH
        self.groups = 1  # number of flushes of the last round with shared flushes

    def put(self, times: int) -> dict[str, float]:
        put, body, first, now, took = self.store.put, self.body, self.put_so_far, perf_counter_ns, []
        for n in range(first, first + times):
            start = now()
            put(TOPIC, body, tags=TAG, keys=f"order-{n}", queue_id=n % QUEUES)
            took.append(now() - start)
        self.put_so_far += times
        return percentiles(took)

    def put_threads(self, times: int):
        """Put `times` messages with THREADS threads; each put waits for its flush."""
        put, body, each = self.store.put, self.body, times // THREADS

        def run(thread: int):
            for n in range(thread * each, (thread + 1) * each):
                put(TOPIC, body, tags=TAG, keys=f"order-{n}", queue_id=thread % QUEUES)

        before = self.store.stats()["flushes"]
        in_threads(THREADS, run)
        self.groups = max(1, self.store.stats()["flushes"] - before)
        self.put_so_far += each * THREADS

    def put_in_flight(self, times: int):
        """put_async, with at most WINDOW messages that are not durable yet."""
        put, body, first, waiting = self.store.put_async, self.body, self.put_so_far, deque()
        before = self.store.stats()["flushes"]
        for n in range(first, first + times):
            if len(waiting) == WINDOW:
                waiting.popleft().result()
            waiting.append(put(TOPIC, body, tags=TAG, keys=f"order-{n}", queue_id=n % QUEUES))
        while waiting:
            waiting.popleft().result()
        self.groups = max(1, self.store.stats()["flushes"] - before)
        self.put_so_far += times

    def put_calls(self, times: int):
        """Put `times` messages by put_many."""
        self.put_many(times // BATCH)

    def aput(self, times: int):
        """await store.aput(), in WINDOW tasks; each task puts one message after the other."""

        async def one(first: int, count: int):
            for n in range(first, first + count):
                await self.store.aput(TOPIC, self.body, tags=TAG, keys=f"order-{n}", queue_id=n % QUEUES)

        async def all_of_them():
            each = times // WINDOW
            await asyncio.gather(*(one(self.put_so_far + w * each, each) for w in range(WINDOW)))

        asyncio.run(all_of_them())
        self.put_so_far += times // WINDOW * WINDOW

    def side(self, work: Callable[[], object], count: int) -> Side:
        return Side(work, count, self.path)

    def check(self):
        """Check that the log has all messages with their bodies, and that the store reports them as durable."""
        same(self.store.flushed_phy_offset, self.store.max_phy_offset, "rocketc (flushed)")
        super().check()


class Growing:
    """Append with write and fdatasync to a growing file, as a log without allocated files does."""

    def __init__(self, path: Path):
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)

    def append(self, size: int, times: int) -> dict[str, float]:
        fd, data, write, sync, now, took = self._fd, b"x" * size, os.write, os.fdatasync, perf_counter_ns, []
        for _ in range(times):
            start = now()
            if write(fd, data) != size:
                raise SystemExit("bench: a short write")
            sync(fd)
            took.append(now() - start)
        return percentiles(took)

    def close(self):
        os.close(self._fd)


# ---------------------------------------------------------------- rows
def alone(mine: Ours, folder: Path):
    case, against = f"put, sync, 1 thread, {BODY} B", "write + fdatasync of the same bytes"
    growing = Growing(folder / "growing")

    def check():
        mine.put(100)
        mine.check()
        growing.append(mine.record, 100)
        same(os.path.getsize(folder / "growing"), 100 * mine.record, "write")

    ours = mine.side(partial(mine.put, ALONE), ALONE)
    theirs = Side(partial(growing.append, mine.record, ALONE), ALONE, folder)
    rounds = measured(bench, case, against, 0.95, ALONE, "k/s", ours, theirs, check=check)
    details(bench, rounds, case, against, ours, theirs, *QUANTILES, "max_us")
    growing.close()


def together(mine: Ours, folder: Path):
    case = f"put, sync, {THREADS} threads, {BODY} B"
    growing = Growing(folder / "growing")
    ours = mine.side(partial(mine.put_threads, TOGETHER), TOGETHER)

    def same_groups():
        """The same number of writes and syncs as in the store's last round, with all bytes."""
        return growing.append(TOGETHER * mine.record // mine.groups, mine.groups)

    def largest_groups():
        return growing.append(THREADS * mine.record, TOGETHER // THREADS)

    def check():
        mine.put_threads(THREADS * 10)
        mine.check()

    for against, goal, work in (
        ("write + fdatasync of the same groups", 0.8, same_groups),
        (f"write + fdatasync of groups of {THREADS}", None, largest_groups),
    ):
        theirs = Side(work, TOGETHER, folder)
        rounds = measured(bench, case, against, goal, TOGETHER, "k/s", ours, theirs, check=check)
        if rounds and goal:
            show_groups(case, TOGETHER / mine.groups, THREADS)
    growing.close()


def show_groups(case: str, size: float, most: int):
    """Show how many messages shared a flush, of the most that could."""
    bench.show(f"{case}: messages a group", f"{most}", size / most, None, [size], [most], "messages")


def against_the_disk(mine: Ours, folder: Path):
    """Many messages per flush, against the same bytes in the same number of writes and syncs."""
    growing = Growing(folder / "growing")

    for case, count, work, record, groups in (
        (f"put_async, sync, {WINDOW} in flight, {BODY} B", IN_FLIGHT, mine.put_in_flight, mine.record, 0),
        (f"put_many, sync, {BATCH} x {BODY} B a call", BATCHES * BATCH, mine.put_calls, mine.call / BATCH, BATCHES),
    ):

        def same_groups(count=count, record=record, groups=groups):
            groups = groups or mine.groups
            return growing.append(int(count * record / groups), groups)

        against = "write + fdatasync of the same groups"
        ours, theirs = mine.side(partial(work, count), count), Side(same_groups, count, folder)
        rounds = measured(bench, case, against, None, count, "k/s", ours, theirs, check=mine.check)
        if rounds and not groups:
            show_groups(case, count / mine.groups, WINDOW)
    growing.close()


def against_java(mine: Ours, folder: Path, release: str):
    for case, goal, count, work, options in (
        (f"put_async, sync, {WINDOW} in flight, {BODY} B", 3, IN_FLIGHT, mine.put_in_flight, {"window": WINDOW}),
        (f"aput (asyncio), sync, {WINDOW} tasks, {BODY} B", None, IN_FLIGHT, mine.aput, {"window": WINDOW}),
        (f"put, sync, 1 thread, {BODY} B", None, ALONE, mine.put, {}),
        (f"put, sync, {THREADS} threads, {BODY} B", None, TOGETHER, mine.put_threads, {"threads": THREADS}),
    ):
        against = f"Java {release} {'asyncPutMessage' if 'window' in options else 'putMessage'}"
        if not bench.wanted(case, against, goal) or (bench.quick and goal is None):
            continue
        with scratch(bench) as java_folder:
            java = java_peer.start(
                bench, "put", dir=java_folder, body=BODY, count=count, flush="sync", release=release, **options
            )
            if not java:
                return
            with java:

                def check(work=work):
                    work(WINDOW * 2)
                    mine.check()

                ours, theirs = mine.side(partial(work, count), count), JavaSide(java, folder)
                measured(bench, case, against, goal, count, "k/s", ours, theirs, check=check)


def against_peers(mine: Ours, folder: Path):
    for many, kind, goal in (
        *((True, kind, 3 if kind != "sqlite" else None) for kind in ("lmdb", "rocksdict", "sqlite")),
        *((False, kind, None) for kind in ("lmdb", "rocksdict", "sqlite")),
    ):
        case = f"put_many, sync, {BATCH} x {BODY} B a call" if many else f"put, sync, 1 thread, {BODY} B"
        against = {"lmdb": "LMDB, synced", "rocksdict": "rocksdict, synced", "sqlite": "SQLite WAL FULL"}[kind]
        if not bench.wanted(case, against, goal):
            continue
        other = peer(bench, kind, folder / ("many" if many else "one"), text(BODY), sync=True)
        if other is None:
            continue
        calls = BATCHES if many else ALONE
        beside_peer(bench, case, against, goal, "k/s", mine, other, many, calls, calls)


def main():
    for part in (
        alone,
        together,
        against_the_disk,
        *(partial(against_java, release=r) for r in (java_peer.RELEASES[-1:] if bench.quick else java_peer.RELEASES)),
        against_peers,
    ):
        with scratch(bench) as folder, Ours(folder) as mine:
            part(mine, folder)


if __name__ == "__main__":
    main()
