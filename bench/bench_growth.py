"""How much slower is a store with 10 and 100 log files, or with up to a million queues?"""

import os
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from common import MIB, Bench, Point, clock, same, timed
from reading import numbers, opening_seconds, stores
from writing import TOPIC, QueuesStore, less_is_better, recycle_pages, scratch

import rocketc

bench = Bench("growth", __doc__)
bench.rounds = 5
FILE = (1 if bench.quick else 8) * MIB
FILES = (10, 100)
QUEUES = (10, 1000) if bench.quick else (10, 100, 1000, 20_000)
HOT = 1000  # queues that get messages in a store with many
MANY = (20_000,) if bench.quick else (20_000, 100_000, 1_000_000)
OPEN_US = 30  # a queue
IDLE_BYTES = 300  # of memory, for a queue that is not open
LOOKUPS = 2000 if bench.quick else 20_000  # per round
PUTS = 20_000 if bench.quick else 200_000


def seconds(work: Callable[[], object]) -> float:
    start = clock()
    work()
    return clock() - start


class Grown:
    """Random look-ups in a store; each round continues with the next look-ups."""

    def __init__(self, store, total: int, places: list[tuple[str, int]]):
        self.store, self._total, self._places, self._next = store, total, places, 0

    def _asked(self, count: int) -> list[int]:
        """The numbers of the messages to look up."""
        self._next += count
        return list(numbers(self._next - count, count, self._total))

    def get(self) -> float:
        """Get 32 messages from random offsets of a queue, as Message; their bodies are not read."""
        get, places = self.store.get, self._places
        asked = [(*places[n % len(places)], n // len(places)) for n in self._asked(LOOKUPS)]
        return seconds(lambda: [len(get(*place, 32)) for place in asked])

    def query(self) -> float:
        query, places = self.store.query, self._places
        asked = [(places[n % len(places)][0], f"order-{n}") for n in self._asked(LOOKUPS)]
        found: list[int] = []
        took = seconds(lambda: found.extend(len(list(query(*place, max_count=1))) for place in asked))
        same(sum(found), LOOKUPS, "rocketc (messages by key)")
        return took

    def by_time(self) -> float:
        look, places = self.store.offset_by_time, self._places
        asked = [(*places[n % len(places)], 1_700_000_000_000 + n) for n in self._asked(LOOKUPS)]
        return seconds(lambda: [look(*place) for place in asked])


def row(case: str, n: int, unit: str, work: float, figure: str, against: str, ours, theirs, check=None):
    bench.row(
        f"{case}, {n:,} {figure}",
        against=against,
        work=work,
        unit=unit,
        ours=ours,
        theirs=theirs,
        check=check,
        point=Point(f"growth, {figure}", case, n),
    )


# ---------------------------------------------------------------- files
def by_files(count: int):
    """The same look-ups in a log of one file and of many; queues and index are complete and in the page cache."""
    with (
        stores(bench, body=1024, size=FILE) as small,
        stores(bench, body=1024, size=count * FILE, files=count) as large,
    ):
        for pair in (small, large):
            with pair.open() as store:
                store.wait_dispatched()
                same(sum(store.max_offset(*place) for place in store.queues()), pair.log.sum.records, "rocketc")
        sides = [partial(opening_seconds, pair.ours, mapped_file_size_commit_log=FILE) for pair in (large, small)]
        row("open", count, "opens/s", 1, "files", "1 file", *sides)
        with small.open() as few, large.open() as many:
            sides = [
                Grown(store, pair.log.sum.records, [(TOPIC, q) for q in range(4)])
                for store, pair in ((many, large), (few, small))
            ]
            for case, name in (("get 32", "get"), ("query by key", "query"), ("offset_by_time", "by_time")):
                row(case, count, "k/s", LOOKUPS / 1e3, "files", "1 file", *(getattr(side, name) for side in sides))
        bench.row(
            f"scan, all columns; CRC, {count:,} files",
            against="1 file",
            work=large.log.bytes / 1e9,
            their_work=small.log.bytes / 1e9,
            unit="GB/s",
            ours=timed(partial(scan, large.log.path)),
            theirs=timed(partial(scan, small.log.path)),
            point=Point("growth, files", "scan", count),
        )


def scan(path: str):
    for _ in rocketc.scan(path).batches():
        pass


# ---------------------------------------------------------------- queues
def by_queues(count: int):
    """Put the same messages into one queue and into many, look them up, and open the store again."""
    against = "1 queue"
    with scratch(bench) as folder:
        with (
            QueuesStore(folder / "many", 128, *((count // 4, 4) if count >= 100 else (1, count))) as many,
            QueuesStore(folder / "one", 128, 1, 1) as one,
        ):

            def check():
                for store in (many, one):
                    store.put(max(2 * count, 2000))
                    store.check()

            put = [mine.side(partial(mine.put, PUTS), PUTS) for mine in (many, one)]
            check()
            row("put", count, "M/s", PUTS / 1e6, "queues", against, *put)
            sides = [Grown(mine.store, mine.put_so_far, mine.places) for mine in (many, one)]
            for case, name in (("get 32", "get"), ("query by key", "query")):
                row(case, count, "k/s", LOOKUPS / 1e3, "queues", against, *(getattr(side, name) for side in sides))
        sides = [partial(opening_seconds, mine.path) for mine in (many, one)]
        row("open", count, "opens/s", 1, "queues", against, *sides)


# ---------------------------------------------------------------- very many queues
class ManyQueues:
    """A store in memory with many queues, of which each has a message, and some get more."""

    def __init__(self, count: int):
        above = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self.folder, self.count = tempfile.mkdtemp(dir=above), count
        self.path = Path(self.folder) / "store"
        self.store = self.open()
        most = 2 * rocketc.StoreConfig().max_open_consume_queues  # so many that the later ones are idle
        before = self._fill(0, min(most, count))
        self.idle_bytes = (self._fill(most, count) - before) / max(count - most, 1)
        self.total = count

    def open(self):
        return rocketc.open(self.path, message_index_enable=False, mapped_file_size_commit_log=256 * MIB)

    def _fill(self, start: int, stop: int) -> int:
        """Put a message into each of these queues; return the memory afterwards."""
        for n in range(start, stop):
            self.put_one(n)
        self.store.wait_dispatched()
        self.store.flush()
        return memory()

    def put_one(self, n: int):
        self.store.put(f"t{n // 10:06d}", b"x" * 100, queue_id=n % 10)

    def put(self) -> float:
        """Put messages into HOT queues, until they are in the queues."""
        start = clock()
        for n in range(PUTS):
            self.put_one(n * 7919 % HOT)
        self.store.wait_dispatched()
        self.total += PUTS
        return clock() - start

    def check(self):
        same(sum(self.store.max_offset(*place) for place in self.store.queues()), self.total, "rocketc (in queues)")
        with open("/proc/self/maps") as file:
            maps = sum(f"{self.path}/consumequeue/" in line for line in file)
        assert maps <= 2 * rocketc.StoreConfig().max_open_consume_queues, maps

    def opening(self) -> float:
        """Open the store again; return us for each queue."""
        self.store.close()
        start = clock()
        self.store = self.open()
        return (clock() - start) / self.count * 1e6

    def close(self):
        self.store.close()
        shutil.rmtree(self.folder)


def memory() -> int:
    """The bytes of memory of this process that are not pages of files."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon"))


def by_many_queues(count: int):
    few, many = ManyQueues(HOT), ManyQueues(count)
    try:
        case = f"put into {HOT:,} of {count:,} queues"
        against = f"{HOT:,} queues"
        work, point = PUTS / 1e6, Point("growth, many queues", "put", count)
        goal = 0.77 if count == max(MANY) else None
        bench.row(
            case, against=against, goal=goal, work=work, unit="M/s", ours=many.put, theirs=few.put, check=many.check,
            point=point,
        )  # fmt: skip
        memory_row = f"memory of an idle queue, {count:,} queues", "300 bytes"
        less_is_better(bench, 1, *memory_row, [many.idle_bytes], [IDLE_BYTES], "bytes", goal=1)
        took = [many.opening() for _ in range(3)]
        opening_row = f"open, a queue of {count:,}", "30 us"
        less_is_better(bench, 3, *opening_row, took, [OPEN_US] * 3, "us", goal=1)
        many.check()
    finally:
        few.close()
        many.close()


def main():
    for count in MANY:
        by_many_queues(count)
    if bench.args.goals:
        return  # the other rows are without a goal
    for count in FILES:
        by_files(count)
    recycle_pages(bench)
    for count in QUEUES:
        by_queues(count)


if __name__ == "__main__":
    main()
