"""How fast are look-ups: by key, by unique key, by time, and of keys that do not exist?"""

from collections.abc import Callable
from functools import partial

import java_peer
from common import same
from reading import FIRST_TIME, Pair, numbers, stores, unique_key
from writing import TOPIC, Bench, JavaSide, Side, measured

bench = Bench("query", __doc__)
bench.rounds = 3 if bench.quick else 9
COUNT = 20_000 if bench.quick else 100_000  # look-ups per round
KEYS: dict[str, Callable[[int], str]] = {"key": "order-{}".format, "unique": unique_key, "miss": "nobody-{}".format}
NAMES = {
    "key": "query by key",
    "unique": "query by unique key",
    "miss": "query, there is none",
    "lower": "offset_by_time",
    "nearest": "offset_by_time, nearest (the rule of 4.9)",
}
GOALS = {"key": 1, "unique": 1, "miss": 1}


class Ours:
    """Look-ups in one store, different ones in each round. The result is the number and the sum of the offsets."""

    def __init__(self, store, total: int):
        self._store, self._total, self._next = store, total, 0
        self._asked: list = []

    def prepare(self, what: str, first: int | None = None):
        """Make the keys or times of a round, outside the clock; without `first`, the next ones."""
        if first is None:
            first, self._next = self._next, self._next + COUNT
        made = KEYS.get(what, FIRST_TIME.__add__)
        self._asked = [made(n) for n in numbers(first, COUNT, self._total)]

    def round(self, what: str, exact: bool = True) -> tuple[int, int]:
        """Query by keys; exact=False also returns messages of other keys with the same hash, as RocketMQ does."""
        return self._offsets(what) if what in ("lower", "nearest") else self._messages(exact)

    def _messages(self, exact: bool) -> tuple[int, int]:
        query, found, total = self._store.query, 0, 0
        for key in self._asked:
            for m in query(TOPIC, key, max_count=32, exact_keys=exact):
                found += 1
                total += m.phy_offset
        return found, total

    def _offsets(self, boundary: str) -> tuple[int, int]:
        look, found, total = self._store.offset_by_time, 0, 0
        for time in self._asked:
            found += 1
            total += look(TOPIC, 0, time, boundary)
        return found, total


def against_java(pair: Pair, mine: Ours, what: str, release: str):
    against = f"Java {release} {'getOffsetInQueueByTime' if what in ('lower', 'nearest') else 'queryMessage'}"
    if not bench.wanted(NAMES[what], against):
        return
    options = {"what": what if what in KEYS else "time", "total": pair.log.sum.records, "filemib": pair.file_size >> 20}
    java = java_peer.start(bench, "query", dir=pair.java, count=COUNT, release=release, **options)
    if not java:
        return

    def check():
        theirs = java.round()
        mine.prepare(what, int(theirs.more["first"]))
        same((theirs.records, theirs.checksum), mine.round(what, exact=False), f"Java {release}")
        found = mine.round(what)
        same(found[0], 0 if what == "miss" else COUNT, "rocketc (found)")
        mine.prepare(what)

    with java:
        ours = Side(partial(mine.round, what), COUNT, pair.ours, settle=partial(mine.prepare, what))
        theirs = JavaSide(java, pair.java)
        measured(bench, NAMES[what], against, GOALS.get(what), COUNT, "M/s", ours, theirs, "cpu_us", check=check)


def main():
    with stores(bench, body=128) as pair, pair.open() as store:
        store.wait_dispatched()
        mine = Ours(store, pair.log.sum.records)
        for what in KEYS:
            for release in java_peer.RELEASES[:1] if bench.quick else java_peer.RELEASES:
                against_java(pair, mine, what, release)
        against_java(pair, mine, "lower", "5.3.3")
        against_java(pair, mine, "nearest", "4.9.7")


if __name__ == "__main__":
    main()
