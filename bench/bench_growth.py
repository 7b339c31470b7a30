"""How much slower is a store with 10 and 100 log files, or with 20,000 queues?"""

import resource
from collections.abc import Callable
from functools import partial

from common import MIB, Bench, Point, clock, same, timed
from reading import numbers, opening_seconds, stores
from writing import TOPIC, QueuesStore, recycle_pages, scratch

import rocketc

bench = Bench("growth", __doc__)
bench.rounds = 5
FILE = (1 if bench.quick else 8) * MIB
FILES = (10, 100)
MOST_QUEUES = (resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 1000) // 4 * 4  # an open file per queue, and some others
QUEUES = (10, 1000) if bench.quick else (10, 100, 1000, min(20_000, MOST_QUEUES))
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


def main():
    if bench.args.goals:
        return  # the rows here are without a goal
    for count in FILES:
        by_files(count)
    recycle_pages(bench)
    for count in QUEUES:
        by_queues(count)


if __name__ == "__main__":
    main()
