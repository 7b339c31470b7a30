"""How fast are messages dispatched to queues and index, and how soon does a put wake a waiting or polling reader?"""

import asyncio
import contextlib
import filecmp
import random
import resource
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter_ns

import java_peer
from common import same
from reading import Pair, copy_store, opening_seconds, remove_derived, stores, unique_key
from writing import (
    BATCH,
    QUANTILES,
    TAG,
    TOPIC,
    Bench,
    Dispatched,
    JavaSide,
    QueuesStore,
    Side,
    clock,
    details,
    figures,
    less_is_better,
    measured,
    peer,
    percentiles,
    recycle_pages,
    scratch,
    text,
)

import rocketc

bench = Bench("dispatch", __doc__)
bench.rounds = 3 if bench.quick else 7
PUTS = {128: 100_000, 1024: 40_000} if bench.quick else {128: 500_000, 1024: 200_000}  # per round
SIZES = {"128 B": 128} if bench.quick else {"128 B": 128, "1 KiB": 1024}
RELEASES = java_peer.RELEASES[:1] if bench.quick else java_peer.RELEASES
GOALS = {"4.9.7": 2, "5.3.3": 5}  # 4.9 dispatches as fast as it puts, 5.3 at half the rate
QUEUES = {100: (25, 4)} if bench.quick else {1: (1, 1), 100: (25, 4), 2000: (500, 4)}  # -> (topics, queues per topic)
OPEN_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # Java keeps one file of each queue open
MANY = 2000 if bench.quick else min(20_000, (OPEN_FILES - 1000) // 4 * 4)
LOADED = min(MANY, (OPEN_FILES - 1000) // 12 * 4)  # Java closes the files of a round only when it collects garbage
WAKES = 200 if bench.quick else 1000  # per round
WAKE_GOAL = 1000.0  # us
POLLS = (0.001,) if bench.quick else (0.001, 0.010)  # seconds between two looks of a reader that polls
POLLED = 100 if bench.quick else 500  # messages per round
WAITED = (("p50_us", "p50", "us"), ("p99_us", "p99", "us"), ("cpu_us", "CPU", "us of CPU a message"))
IDLE = 0.3 if bench.quick else 2.0  # seconds without messages


# ---------------------------------------------------------------- while putting
def putting(name: str, body: int, places: str = "4 queues", topics: int = 1, queues: int = 4):
    """Time puts until all messages are in queues and index; the puts alone are a second row."""
    case = f"put, {name}, tags and keys, {places}, until dispatched"
    for release in RELEASES if places == "4 queues" else RELEASES[:1]:
        against = f"Java {release} putMessage"
        if not bench.wanted(case, against):
            continue
        with scratch(bench) as folder:
            options = {"body": body, "count": PUTS[body], "topics": topics, "queues": queues}
            java = java_peer.start(bench, "put", dir=folder / "java", release=release, **options)
            if not java:
                return
            with java, QueuesStore(folder, body, topics, queues) as mine:

                def check(mine=mine, java=java, release=release):
                    mine.put(4000)
                    mine.check()
                    before = java.round().more["queued"]
                    same(java.round().more["queued"] - before, PUTS[body], f"Java {release} (messages in queues)")

                ours = Dispatched(mine.side(partial(mine.put, PUTS[body]), PUTS[body]))
                theirs = JavaSide(java, folder, "dispatched_s")
                rounds = measured(bench, case, against, GOALS[release], PUTS[body], "M/s", ours, theirs, check=check)
                if rounds:
                    while_putting(f"put, {name}, tags and keys, {places}", against, rounds, PUTS[body], ours, theirs)
                    same(mine.queued(), mine.put_so_far, "rocketc (messages in queues)")


def while_putting(case: str, against: str, rounds: int, count: int, ours, theirs):
    """A row of the same rounds until the last put has returned: the goal of put while messages are dispatched."""
    mine, yours = figures(ours, "seconds")[-rounds:], figures(theirs, "seconds")[-rounds:]
    ratio = sorted(b / a for a, b in zip(mine, yours, strict=True))[rounds // 2]
    bench.show(case, against, ratio, 2, *([count / 1e6 / s for s in side] for side in (mine, yours)), "M/s")


def against_rocksdict():
    case, against = "put, 128 B, tags and keys, 4 queues, until dispatched", "rocksdict with log"
    if not bench.wanted(case, against):
        return
    count = PUTS[128]
    with scratch(bench) as folder:
        other = peer(bench, "rocksdict", folder, text(128), False)
        if other is None:
            return
        with QueuesStore(folder, 128) as mine:

            def check():
                mine.put(2000)
                mine.check()
                other.put(20)
                other.check(20)

            ours = Dispatched(mine.side(partial(mine.put, count), count))
            theirs = Side(partial(other.put, count // 4), count // 4, folder, other.flush)
            them = {"check": check, "their_count": count // 4}
            measured(bench, case, against, 4, count, "M/s", ours, theirs, "cpu_us", **them)
        other.close()


def batches():
    """Puts that are far ahead of the dispatcher: its rate when it has to catch up. Messages have a tag, but no key."""
    case = f"put_many, 128 B, {BATCH} a call, tags, until dispatched"
    for release in RELEASES:
        against = f"Java {release} putMessages, {BATCH} a call"
        if not bench.wanted(case, against):
            continue
        with scratch(bench) as folder:
            count = PUTS[128]
            java = java_peer.start(bench, "put", dir=folder / "java", count=count, batch=BATCH, release=release)
            if not java:
                return
            with java, QueuesStore(folder, 128) as mine:

                def check(mine=mine, java=java, release=release):
                    mine.put_many(20)
                    mine.store.wait_dispatched()
                    same(mine.queued(), mine.put_so_far, "rocketc (messages in queues)")
                    before = java.round().more["queued"]
                    same(java.round().more["queued"] - before, PUTS[128], f"Java {release} (messages in queues)")

                ours = Dispatched(mine.side(partial(mine.put_many, count // BATCH), count))
                theirs = JavaSide(java, folder, "dispatched_s")
                measured(bench, case, against, 5, count, "M/s", ours, theirs, "cpu_us", check=check)


def many_queues():
    """Many queues, without Java: its queue files are sparse, and the first use of a page can take milliseconds."""
    case, against = f"put, 128 B, tags and keys, {MANY:,} queues, until dispatched", "rocketc with 4 queues"
    if not bench.wanted(case, against):
        return
    count = PUTS[128]
    with (
        scratch(bench) as folder,
        QueuesStore(folder / "many", 128, MANY // 4) as many,
        QueuesStore(folder / "few", 128) as few,
    ):

        def check():
            many.put(2 * MANY)
            few.put(2000)
            many.check()
            few.check()

        sides = [Dispatched(mine.side(partial(mine.put, count), count)) for mine in (many, few)]
        measured(bench, case, against, 0.5, count, "M/s", *sides, "cpu_us", check=check)


# ---------------------------------------------------------------- catching up
class Rebuilding:
    """Open a store with only a log, until queues and index are complete."""

    def __init__(self, pair: Pair):
        self._pair, self.figures = pair, []

    def __call__(self) -> float:
        remove_derived(self._pair.ours)
        cpu, start = time.process_time(), clock()
        with self._pair.open() as store:
            store.wait_dispatched()
            seconds, cpu = clock() - start, time.process_time() - cpu
            self.figures.append({"cpu_us": cpu * 1e6 / self._pair.log.sum.records})
        return seconds


def rebuilding(name: str, body: int):
    case = f"open, queues and index from the log, {name}"
    for release in RELEASES:
        against = f"Java {release} load() and start()"
        if not bench.wanted(case, against):
            continue
        with stores(bench, body=body) as pair:
            mib, warm = pair.file_size >> 20, None if bench.quick else 6
            java = java_peer.start(bench, "rebuild", dir=pair.java, filemib=mib, release=release, warm=warm)
            if not java:
                return
            with java:
                records = pair.log.sum.records

                def check(pair=pair, java=java, records=records, release=release):
                    same(java.round().records, records, f"Java {release} (messages in queues)")
                    Rebuilding(pair)()
                    with pair.open() as store:
                        queued = sum(store.max_offset(*place) for place in store.queues())
                        same(queued, records, "rocketc (messages in queues)")
                        for n in range(0, records, records // 50):
                            found = [m.keys for m in store.query(TOPIC, unique_key(n))]
                            same(found, [f"order-{n}"], "rocketc (message by unique key)")
                    same_files(pair.ours, pair.java)

                ours, theirs = Rebuilding(pair), JavaSide(java, pair.java)
                measured(bench, case, against, 4, records, "M/s", ours, theirs, "cpu_us", check=check)


def same_files(ours: Path, theirs: Path):
    """Check that Java's queues and index files have the same bytes as ours; names of index files are times."""
    for folder in ("consumequeue", "index"):
        mine, yours = (sorted(f for f in (root / folder).rglob("*") if f.is_file()) for root in (ours, theirs))
        same(len(mine), len(yours), f"rocketc (files in {folder})")
        for a, b in zip(mine, yours, strict=True):
            if folder == "consumequeue":
                same(a.relative_to(ours), b.relative_to(theirs), "rocketc")
            same(filecmp.cmp(a, b, shallow=False), True, f"rocketc ({a.relative_to(ours)} as Java's)")


# ---------------------------------------------------------------- from put to get
def pauses(count: int) -> list[float]:
    """Pauses between two puts, in seconds: 1 to 3 ms, so that puts hit any moment of a thread that wakes each ms."""
    rnd = random.Random(17)
    return [rnd.uniform(0.001, 0.003) for _ in range(count)]


def wake_by_get(store, count: int) -> dict[str, float]:
    """One thread waits in get(), another puts; the time from before the put until get returns the message."""
    first, got = store.max_offset(TOPIC, 0), []

    def wait():
        while len(got) < count:
            found = store.get(TOPIC, 0, first + len(got), wait=1.0)
            now = perf_counter_ns()
            got.extend([now] * len(found))

    reader = threading.Thread(target=wait)
    reader.start()
    began = put_slowly(store, count)
    reader.join()
    return percentiles([b - a for a, b in zip(began, got, strict=True)])


def put_slowly(store, count: int) -> list[int]:
    """Put after pauses in which the reader goes back to sleep; return the ns of each put."""
    body, began = text(128), []
    for n, pause in enumerate(pauses(count)):
        time.sleep(pause)
        began.append(perf_counter_ns())
        store.put(TOPIC, body, tags=TAG, keys=f"order-{n}")
    return began


def wake_by_follow(store, count: int) -> dict[str, float]:
    """Like wake_by_get(), with `async for m in store.follow(...)`."""
    first, got = store.max_offset(TOPIC, 0), []

    async def wait():
        async for _ in store.follow(TOPIC, 0, first):
            got.append(perf_counter_ns())
            if len(got) == count:
                break

    reader = threading.Thread(target=lambda: asyncio.run(wait()))
    reader.start()
    began = put_slowly(store, count)
    reader.join()
    return percentiles([b - a for a, b in zip(began, got, strict=True)])


def waking():
    release = RELEASES[0]
    against = f"Java {release} MessageArrivingListener"
    cases = {"put to get(wait=)": wake_by_get, "put to follow()": wake_by_follow}
    if bench.quick:
        del cases["put to follow()"]
    for case, work in cases.items():
        if not bench.wanted(case, against):
            continue
        with scratch(bench) as folder, rocketc.open(folder / "rocketc") as store:
            java = None  # the rows against Java are without a goal
            if not bench.args.goals:
                java = java_peer.start(bench, "wake", dir=folder / "java", queues=1, count=WAKES, release=release)
            theirs = JavaSide(java, folder) if java else None
            ours = Side(partial(work, store, WAKES), WAKES, folder)
            rounds = 3 if bench.quick else 5
            for _ in range(rounds + 1):
                ours(), theirs and theirs()
            same(store.max_offset(TOPIC, 0), WAKES * (rounds + 1), "rocketc (messages in the queue)")
            limit = [WAKE_GOAL] * rounds
            less_is_better(bench, rounds, f"{case}: p99", "1 ms", figures(ours, "p99_us"), limit, "us", goal=1)
            if theirs:
                details(bench, rounds, case, against, ours, theirs, *QUANTILES, "max_us")
            if java:
                java.close()


# ---------------------------------------------------------------- waiting or polling
def polled(store, count: int, pause: float) -> dict[str, float]:
    """Like wake_by_get(), with a reader that looks for new messages after each pause."""
    first, got = store.max_offset(TOPIC, 0), []

    def poll():
        while len(got) < count:
            found = store.get(TOPIC, 0, first + len(got))
            now = perf_counter_ns()
            got.extend([now] * len(found))
            if not found:
                time.sleep(pause)

    reader = threading.Thread(target=poll)
    reader.start()
    began = put_slowly(store, count)
    reader.join()
    return percentiles([b - a for a, b in zip(began, got, strict=True)])


class Idle:
    """A reader in a queue without messages, for IDLE seconds: the CPU time of the process in ms per second."""

    def __init__(self, store, read: Callable):
        self._store, self._read, self.figures = store, read, []

    def __call__(self) -> float:
        first = self._store.max_offset(TOPIC, 1)
        cpu, start = time.process_time(), clock()
        self._read(self._store, first)
        seconds = clock() - start
        self.figures.append({"idle_ms": (time.process_time() - cpu) * 1e3 / seconds})
        return seconds


def idle_get(store, first: int):
    same(len(store.get(TOPIC, 1, first, wait=IDLE)), 0, "rocketc (messages)")


def idle_follow(store, first: int):
    async def wait():
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(anext(store.follow(TOPIC, 1, first)), IDLE)

    asyncio.run(wait())


def idle_polls(pause: float, store, first: int):
    until = clock() + IDLE
    while clock() < until:
        same(len(store.get(TOPIC, 1, first)), 0, "rocketc (messages)")
        time.sleep(pause)


def waiting_or_polling():
    """Readers that wait until a put wakes them, against readers that poll: how late they are, and CPU time."""
    for name, work, idle in (("get(wait=)", wake_by_get, idle_get), ("follow()", wake_by_follow, idle_follow)):
        for pause in POLLS:
            case = f"put to {name}"
            against = f"a reader that polls each {pause * 1e3:g} ms"
            if not bench.wanted(case, against, None):
                continue
            with scratch(bench) as folder, rocketc.open(folder / "rocketc") as store:
                store.put(TOPIC, text(128), queue_id=1)  # creates the topic
                ours = Side(partial(work, store, POLLED), POLLED, folder)
                theirs = Side(partial(polled, store, POLLED, pause), POLLED, folder)
                rounds = alternately(ours, theirs)
                same(store.max_offset(TOPIC, 0), 2 * POLLED * (rounds + 1), "rocketc (messages in the queue)")
                for figure, what, unit in WAITED:
                    pair = figures(ours, figure), figures(theirs, figure)
                    less_is_better(bench, rounds, f"{case}: {what}", against, *pair, unit)
                ours, theirs = Idle(store, idle), Idle(store, partial(idle_polls, pause))
                rounds = alternately(ours, theirs)
                pair = figures(ours, "idle_ms"), figures(theirs, "idle_ms")
                less_is_better(bench, rounds, f"{name}, no messages: CPU", against, *pair, "ms of CPU a second")


def alternately(ours, theirs) -> int:
    """Run both sides alternately; return the number of rounds that count, which come last."""
    rounds = 3 if bench.quick else 7
    for _ in range(rounds + 1):
        ours(), theirs()
    return rounds


# ---------------------------------------------------------------- opening
def opening():
    """Open a store with many queues that was closed; Java opens a copy of ours."""
    case, release = f"open, {LOADED:,} queues, closed in good order", RELEASES[0]
    against = f"Java {release} load()"
    if not bench.wanted(case, against):
        return
    with scratch(bench) as folder:
        sizes = rocketc.StoreConfig.rocketmq()  # those that Java expects
        with QueuesStore(folder, 128, LOADED // 4, config=sizes) as mine:
            mine.put(10 * LOADED)
            mine.check()
            count, end = mine.put_so_far, mine.store.max_phy_offset
        copy_store(mine.path, folder / "java")
        java = java_peer.start(bench, "load", dir=folder / "java", release=release, warm=None if bench.quick else 8)
        if not java:
            return

        def check():
            done = java.round()
            same((done.checksum, done.more["queued"]), (end, count), f"Java {release}")
            with rocketc.open(mine.path) as store:
                same(sum(store.max_offset(*place) for place in store.queues()), count, "rocketc (messages in queues)")

        ours = partial(opening_seconds, mine.path)
        with java:
            theirs = JavaSide(java, folder)
            bench.row(
                case, against=against, work=LOADED / 1e3, unit="k queues/s", check=check, ours=ours, theirs=theirs
            )


def main():
    recycle_pages(bench)
    for name, body in SIZES.items():
        putting(name, body)
    against_rocksdict()
    batches()
    for count, (topics, queues) in QUEUES.items():
        putting("128 B", 128, f"{count:,} queue{'s' * (count > 1)}", topics, queues)
    for name, body in SIZES.items():
        rebuilding(name, body)
    waking()
    waiting_or_polling()
    many_queues()
    opening()


if __name__ == "__main__":
    main()
