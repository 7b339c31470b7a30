"""Eight threads use one store: they put, read, flush, roll, fork, and one closes it; nothing is lost, nothing hangs.

The tests do not measure time: each thread has a fixed number of operations, and a watchdog ends a thread that hangs.
"""

import faulthandler
import gc
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from crash import remains
from crash.small import SMALL
from support.native import in_child

import rocketc
from rocketc import ClosedError

pytestmark = pytest.mark.promise(1, 7)

LOCKS = ["spin", "reentrant", "adaptive"]
MIXES = [("sync", "map"), ("async", "map"), ("async", "pool"), ("sync", "pool")]
FILE_SIZE = 64 << 10
HANGING = 240.0  # seconds; the machine may be busy
PUTTERS = 5


@pytest.fixture
def watch() -> Iterator[None]:
    """Print where the threads are if the test hangs."""
    faulthandler.dump_traceback_later(HANGING - 30, file=sys.__stderr__)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def memory_path() -> Iterator[Path]:
    with remains.memory() as folder:
        yield Path(folder)


class Crowd:
    """Threads at one store.

    acknowledged  body -> (topic, queue id, queue offset, physical offset or None), as the put returned it
    """

    def __init__(self, root: Path, lock: str, flush: str, memory: str) -> None:
        self.root = root
        self.fields = {**SMALL, "mapped_file_size_commit_log": FILE_SIZE, "lock": lock, "flush": flush}
        self.fields |= {"flush_interval_commit_log": 5, "commit_interval_commit_log": 5}
        self.fields |= {"transient_store_pool_enable": memory == "pool"}
        self.pool = memory == "pool"
        self.store = rocketc.open(root, **self.fields)
        self.acknowledged: dict[bytes, tuple[str, int, int, int | None]] = {}
        self.errors: list[BaseException] = []
        self.done = threading.Event()
        self.putting = 0

    def run(self, putters: int, count: int, others: list[Callable[[], None]]) -> None:
        """Run `putters` threads that put `count` times each; the others repeat their operation meanwhile."""
        threads = [threading.Thread(target=self._watched, args=(self.put, i, count)) for i in range(putters)]
        self.putting = putters
        threads += [threading.Thread(target=self._watched, args=(self.repeat, other)) for other in others]
        for thread in threads:
            thread.daemon = True
            thread.start()
        until = time.monotonic() + HANGING
        for thread in threads:
            thread.join(max(until - time.monotonic(), 0))
        if any(thread.is_alive() for thread in threads):
            faulthandler.dump_traceback(file=sys.__stderr__)
            pytest.fail("threads hang: see stderr")
        if self.errors:
            self.store.close()  # so that this test fails, and no later one
        assert self.errors == []

    def _watched(self, run: Callable[..., None], *arguments: object) -> None:
        try:
            run(*arguments)
        except BaseException as error:
            self.errors.append(error)
            self.done.set()

    def put(self, thread: int, count: int) -> None:
        """Put in all ways, until `count` is reached or the store is closed."""
        chance = random.Random(thread)
        number = 0
        try:
            for _ in range(count):
                topic, queue_id = chance.choice(["orders", "a"]), chance.randrange(2)
                kind = chance.choice(["put", "put", "put_async", "put_many", "put_batch"])
                n = 1 if kind in ("put", "put_async") else chance.choice([2, 5, 300 if kind == "put_many" else 6])
                bodies = [self.body(thread, number + i, chance) for i in range(n)]
                if kind == "put":
                    r = self.store.put(topic, bodies[0], queue_id=queue_id, tags="A", keys="k")
                elif kind == "put_async":
                    r = self.store.put_async(topic, bodies[0], queue_id=queue_id).result()
                elif kind == "put_many":
                    r = self.store.put_many(topic, bodies, queue_id=queue_id)
                else:
                    r = self.store.put_batch(topic, [(0, body, None) for body in bodies], queue_id=queue_id)
                assert r.count == n
                for i, body in enumerate(bodies):
                    place = r.phy_offset if i == 0 else None
                    self.acknowledged[body] = (topic, queue_id, r.queue_offset + i, place)
                number += n
        except ClosedError:
            pass
        finally:
            self.putting -= 1  # under the GIL; close() below is allowed to overtake
            if self.putting == 0:
                self.done.set()

    @staticmethod
    def body(thread: int, number: int, chance: random.Random) -> bytes:
        return b"%d.%d." % (thread, number) + bytes([97 + thread]) * chance.choice([0, 10, 100, 1000])

    def repeat(self, act: Callable[[], None]) -> None:
        while not self.done.is_set():
            try:
                act()
            except ClosedError:
                return

    # operations of the other threads

    def look(self) -> None:
        """Get messages by physical offset, as far as they were acknowledged."""
        for body, (topic, queue_id, queue_offset, place) in list(self.acknowledged.copy().items())[-20:]:
            if place is not None:
                m = self.store.message(place)
                if m is None:
                    assert self.pool
                else:
                    assert (m.body, m.topic, m.queue_id, m.queue_offset) == (body, topic, queue_id, queue_offset)

    def scan(self) -> None:
        """A scan returns a prefix of whole records, consecutive in each queue, with all earlier acknowledged ones."""
        before = len(self.acknowledged)
        lengths: Counter[tuple[str, int]] = Counter()
        found = 0
        for m in rocketc.scan(self.root):
            thread = int(m.body.split(b".")[0])
            assert m.body.rstrip(bytes([97 + thread])).count(b".") == 2, m
            assert m.queue_offset == lengths[m.topic, m.queue_id], m
            lengths[m.topic, m.queue_id] += 1
            found += 1
        assert found >= before or self.pool

    def flush(self) -> None:
        end = self.store.max_phy_offset
        assert self.store.flush() >= end
        assert self.store.flushed_phy_offset >= end

    def roll(self) -> None:
        self.store._roll()
        time.sleep(0.02)

    def fork(self) -> None:
        """A child process cannot write, and its end affects no other process."""

        def check() -> None:
            with pytest.raises(ClosedError):
                self.store.put("orders", b"from a child")
            self.store.close()

        in_child(check)
        time.sleep(0.05)

    def stats(self) -> None:
        assert self.store.stats()["records"] >= 0
        time.sleep(0.001)

    def check(self) -> None:
        """After the close: every acknowledged message is there once, and nothing else."""
        files = remains.take(self.root)
        assert "abort" not in files
        found = {}
        lengths: Counter[tuple[str, int]] = Counter()
        numbers: dict[bytes, int] = {}
        for m in remains.messages(files):
            queue = m["topic"], m["queueId"]
            assert m["queueOffset"] == lengths[queue]
            lengths[queue] += 1
            thread, number, _ = m["storedBody"].split(b".", 2)
            assert int(number) == numbers.get(thread, 0), "a thread's messages are out of order"
            numbers[thread] = int(number) + 1
            assert m["storedBody"] not in found
            found[m["storedBody"]] = (*queue, m["queueOffset"], m["physicalOffset"])
        assert found.keys() == self.acknowledged.keys()
        for body, (topic, queue_id, queue_offset, place) in self.acknowledged.items():
            assert found[body][:3] == (topic, queue_id, queue_offset)
            assert place is None or found[body][3] == place


def work(root: Path, lock: str, mix: tuple[str, str], count: int) -> None:
    crowd = Crowd(root, lock, *mix)
    crowd.run(PUTTERS, count, [crowd.look, crowd.scan, lambda: (crowd.flush(), crowd.roll(), crowd.stats())])  # type: ignore[func-returns-value]
    crowd.store.close()
    crowd.check()


@pytest.mark.some(6)
@pytest.mark.parametrize("mix", MIXES, ids="-".join)
@pytest.mark.parametrize("lock", LOCKS)
def test_eight_threads(watch, memory_path, lock, mix):
    work(memory_path, lock, mix, 60)


@pytest.mark.long
@pytest.mark.parametrize("mix", MIXES, ids="-".join)
@pytest.mark.parametrize("lock", LOCKS)
def test_eight_threads_for_long(watch, memory_path, lock, mix):
    work(memory_path, lock, mix, 1000)


@pytest.mark.parametrize("mix", MIXES, ids="-".join)
@pytest.mark.parametrize("lock", LOCKS)
def test_closed_while_others_put(watch, memory_path, lock, mix):
    """Each message is in the store, or its put raised ClosedError."""
    crowd = Crowd(memory_path, lock, *mix)

    def close() -> None:
        while len(crowd.acknowledged) < 100:
            time.sleep(0.001)
        crowd.store.close()
        crowd.done.set()

    crowd.run(7, 1_000_000, [close])
    crowd.check()


@pytest.mark.parametrize("lock", LOCKS)
def test_closed_by_many(watch, memory_path, lock):
    crowd = Crowd(memory_path, lock, "sync", "map")
    crowd.run(2, 20, [])
    threads = [threading.Thread(target=crowd.store.close) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    crowd.check()


@pytest.mark.some(6)
@pytest.mark.parametrize("mix", MIXES, ids="-".join)
@pytest.mark.parametrize("lock", LOCKS)
def test_forks_while_others_put(watch, memory_path, lock, mix):
    crowd = Crowd(memory_path, lock, *mix)
    crowd.run(PUTTERS, 60, [crowd.fork, crowd.flush])
    crowd.store.close()
    crowd.check()


@pytest.mark.some(2)
@pytest.mark.parametrize("mix", MIXES, ids="-".join)
def test_a_child_drops_the_store(watch, memory_path, mix):
    """The store's threads do not exist in the child: nothing there may wait for them."""
    stores = [Crowd(memory_path, "spin", *mix).store]
    stores[0].put("orders", b"0.0.")
    time.sleep(0.02)  # time for its threads to sleep

    def check() -> None:
        signal.alarm(120)
        stores.clear()
        gc.collect()

    in_child(check)
    stores[0].put("orders", b"0.1.")
    stores[0].close()
    assert len(remains.messages(remains.take(memory_path))) == 2
