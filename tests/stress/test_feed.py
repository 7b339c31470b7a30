"""The change feed with threads: subscribers start and end, some never fetch, while messages are put and a topic is
deleted.

No wake-up is lost, every reported change has a put, and nothing is left at the end. The numbers of rounds are fixed;
the tests do not measure time.
"""

import asyncio
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from crash.small import SMALL
from support import extension

import rocketc

pytestmark = pytest.mark.promise(7)

SOON = 60.0
QUEUES = 5
CODES = {65, 66, 67}  # of the tags A, B, C


class Watcher:
    """A subscriber: the last change of each queue, and its way to wait.

    quits  end after a random number of fetches; otherwise at the end of the puts
    """

    def __init__(self, store: Any, seed: int, quits: bool) -> None:
        self.store = store
        self.chance = random.Random(seed)
        self.subscription = store.subscribe()
        self.before = dict(offsets(store))  # read after subscribe(): earlier messages are in it
        self.told: dict[tuple[str, int], int] = {}
        self.left = self.chance.randrange(1, 30) if quits else -1
        self.error: BaseException | None = None

    def note(self, changes: list[rocketc.QueueChange]) -> bool:
        """Check changes; return False when the subscriber has seen enough."""
        for topic, queue_id, max_offset, codes in changes:
            assert topic in ("T", "D", "end")
            assert codes is None or set(codes) <= CODES | {0}
            last = self.told.get((topic, queue_id), 0)
            if topic == "T":
                assert max_offset >= last, "the max offset decreased"
                if max_offset > 0:  # the messages can be read
                    assert self.store.max_offset(topic, queue_id) >= max_offset
            self.told[topic, queue_id] = max_offset
        self.left -= 1
        return self.left != 0 and ("end", 0) not in self.told

    def run(self) -> None:
        try:
            way = self.chance.choice([self.by_thread, self.by_descriptor, self.by_loop])
            way()
        except BaseException as error:
            self.error = error
        finally:
            self.subscription.close()

    def by_thread(self) -> None:
        while self.subscription.wait(SOON):
            if not self.note(self.subscription.changes()):
                return
            if self.chance.random() < 0.1:
                time.sleep(0.01)
        raise AssertionError("a wake-up was lost")

    def by_descriptor(self) -> None:
        import select

        poll = select.poll()
        poll.register(self.subscription.fileno(), select.POLLIN)
        while poll.poll(SOON * 1000):
            if not self.note(self.subscription.changes()):
                return
        raise AssertionError("a wake-up was lost")

    def by_loop(self) -> None:
        async def main() -> None:
            async for changes in self.subscription:
                if not self.note(changes):
                    return

        asyncio.run(asyncio.wait_for(main(), SOON))


def offsets(store: Any) -> dict[tuple[str, int], int]:
    return {("T", n): store.max_offset("T", n) for n in range(QUEUES)}


def hammer(store: Any, puts: int, watchers: int, generations: int) -> None:
    """Put, delete a topic, start and end subscribers; each remaining one must see the end of each queue."""
    failures: list[BaseException] = []

    def doing(act: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                act()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def putting(seed: int) -> None:
        chance = random.Random(seed)
        for n in range(puts):
            tags = chance.choice([None, "A", "B", "C"])
            if chance.random() < 0.02:
                store.put_many("T", [b"x"] * 50, queue_id=chance.randrange(QUEUES), tags=tags)
            else:
                store.put(chance.choice("TTTD"), b"x", queue_id=chance.randrange(QUEUES), tags=tags)
            if n % 50 == 0:
                time.sleep(0.001)

    def deleting() -> None:
        for _ in range(5):
            time.sleep(0.02)
            store.delete_topics("D")

    sleepers = [store.subscribe() for _ in range(4)]  # they never fetch
    for sleeper in sleepers[:2]:
        sleeper.fileno()
        sleeper.changes()
    stay = [Watcher(store, n, quits=False) for n in range(watchers // 2)]
    threads = [(one, threading.Thread(target=one.run)) for one in stay]
    for _, thread in threads:
        thread.start()
    workers = [doing(lambda seed=seed: putting(seed)) for seed in range(3)] + [doing(deleting)]
    for generation in range(generations):
        come = [Watcher(store, 1000 * generation + n, quits=True) for n in range(watchers - watchers // 2)]
        more = [(one, threading.Thread(target=one.run)) for one in come]
        for _, thread in more:
            thread.start()
        threads += more
        time.sleep(0.02)
    for worker in workers:
        worker.join()
    assert failures == []
    store.wait_dispatched(SOON)
    ends = offsets(store)
    store.put("end", b"x")
    for _, thread in threads:
        thread.join(SOON)
    assert [one.error for one, _ in threads if one.error is not None] == []
    for one in stay:
        changed = {key: end for key, end in ends.items() if end > one.before[key]}
        assert {key: one.told.get(key) for key in changed} == changed
    for sleeper in sleepers:
        changes = []
        while found := sleeper.changes():
            changes += found
        assert {(c.topic, c.queue_id): c.max_offset for c in changes if c.topic == "T"} == {
            key: end for key, end in ends.items() if end
        }
        sleeper.close()
    assert store.feed.subscriber_count == 0


@pytest.mark.parametrize("entries", [16, 16_384])
def test_subscribers_start_and_end(open_store, entries):
    store = open_store(**{**SMALL, "mapped_file_size_commit_log": 1 << 18})
    store._hook("feed_entries", entries)
    hammer(store, puts=200, watchers=16, generations=2)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("entries", [16, 256, 16_384])
def test_64_subscribers_start_and_end_for_long(open_store, entries):
    store = open_store(**{**SMALL, "mapped_file_size_commit_log": 1 << 18})
    store._hook("feed_entries", entries)
    hammer(store, puts=4000, watchers=64, generations=20)


@pytest.mark.long
def test_readers_in_c_while_the_ring_is_overwritten(open_store):
    """Without the GIL: entries that are overwritten while they are read are rejected."""
    feed = extension.load("feed")
    store = open_store(mapped_file_size_commit_log=1 << 24)
    store._hook("feed_entries", 8)
    several = [feed.Follower(store.feed) for _ in range(2)]

    def put(count: int) -> None:
        for n in range(count):
            store.put("T", b"x", queue_id=n % 7, tags=str(n % 7))

    put(200)  # many times the ring before the first fetch: both followers miss entries, whatever the scheduler does
    assert store.wait_dispatched(SOON)
    threads = [threading.Thread(target=one.spin) for one in several]
    for thread in threads:
        thread.start()
    for _ in range(5):
        put(2000)
        if all(one.changes > one.missed * 7 for one in several):  # some changes came from the ring
            break
    assert store.wait_dispatched(SOON)
    store.close()
    for thread in threads:
        thread.join(SOON)
    assert [one.torn for one in several] == [0, 0]
    assert all(one.missed > 0 for one in several)


def test_a_store_that_is_closed_under_subscribers(open_store, tmp_path):
    """Subscribers get ClosedError, whatever they are doing."""
    for n in range(5):
        store = open_store(tmp_path / str(n), **SMALL)
        several = [Watcher(store, seed, quits=False) for seed in range(8)]
        threads = [threading.Thread(target=one.run) for one in several]
        for thread in threads:
            thread.start()
        for _ in range(20):
            store.put("T", b"x")
        store.close()
        for thread in threads:
            thread.join(SOON)
        assert [type(one.error) for one in several] == [rocketc.ClosedError] * 8
