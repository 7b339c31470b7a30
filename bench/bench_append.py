"""How fast are messages put without a flush, and how even are the times?"""

import mmap
import os
import shutil
import statistics
import sys
from functools import partial
from pathlib import Path
from time import perf_counter_ns

import java_peer
from common import MIB, Bench, clock, same, timed
from writing import (
    BATCH,
    GIB,
    QUANTILES,
    QUEUES,
    TAG,
    TOPIC,
    JavaSide,
    OurStore,
    Side,
    beside_peer,
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

SIZES = {"128 B": 128, "1 KiB": 1024}
ROLL_GOAL = 1000.0  # us: allowed time of a put that begins a new file
COPY_ROOM = 256 * MIB  # target of memcpy, much larger than the caches

bench = Bench("append", __doc__)
bench.rounds = 3 if bench.quick else 7
PUTS = {128: 100_000, 1024: 40_000} if bench.quick else {128: 500_000, 1024: 200_000}  # per round
PEER_PUTS = {"lmdb": 40_000, "rocksdict": 40_000, "sqlite": 8000}
if not bench.quick:
    PEER_PUTS = {"lmdb": 200_000, "rocksdict": 200_000, "sqlite": 30_000}


# ---------------------------------------------------------------- our side
class Ours(OurStore):
    """A store, and loops as a user writes them in Python."""

    def __init__(self, folder: Path, body: int, **options):
        super().__init__(folder, body, flush="async", **options)

    def put(self, times: int):
        """Put messages as Java's Maker does: with different keys and one tag, into the queues in rotation."""
        put, body, first = self.store.put, self.body, self.put_so_far
        for n in range(first, first + times):
            put(TOPIC, body, tags=TAG, keys=f"order-{n}", queue_id=n % QUEUES)
        self.put_so_far += times

    def put_clocked(self, times: int) -> dict[str, float]:
        """Put messages and time each put; roll_us: the slowest put that began a new file."""
        put, body, first, now = self.store.put, self.body, self.put_so_far, perf_counter_ns
        file_size, took, roll, file = self.store.config.mapped_file_size_commit_log, [], 0, None
        for n in range(first, first + times):
            key = f"order-{n}"
            start = now()
            result = put(TOPIC, body, tags=TAG, keys=key, queue_id=n % QUEUES)
            took.append(now() - start)
            if result.phy_offset // file_size != file:
                if file is not None:
                    roll = max(roll, took[-1])
                file = result.phy_offset // file_size
        self.put_so_far += times
        return {**percentiles(took), "roll_us": roll / 1e3}


def check_java(java, folder: Path, body: bytes):
    """Check that Java has put the same number of messages in a round, with the same body, key and tag as ours."""
    done = java.round()
    messages = list(rocketc.scan(folder, start=max(0, done.checksum - 1_000_000)))  # only the last messages
    for m in messages:
        same((m.topic, m.body, m.tags, m.keys[:6]), (TOPIC, body, TAG, "order-"), "Java")
    same(messages[-1].phy_offset + messages[-1].store_size, done.checksum, "Java (end of the log)")


# ---------------------------------------------------------------- rows
def puts_against_java(name: str, body: int):
    case = f"put, {name}, tags and keys"
    for release in java_peer.RELEASES[:1] if bench.quick else java_peer.RELEASES:
        against = f"Java {release} putMessage"
        if not bench.wanted(case, against):
            continue
        with scratch(bench) as folder:
            java = java_peer.start(bench, "put", dir=folder / "java", body=body, count=PUTS[body], release=release)
            if not java:
                return
            with java, Ours(folder, body) as mine:

                def check(mine=mine, java=java, folder=folder):
                    mine.put(2000)
                    mine.check()
                    check_java(java, folder / "java", text(body))

                ours, theirs = mine.side(partial(mine.put, PUTS[body]), PUTS[body]), JavaSide(java, folder)
                rounds = measured(bench, case, against, 2, PUTS[body], "M/s", ours, theirs, check=check)
                until_dispatched(case, release, rounds, body, ours, theirs)


def until_dispatched(case: str, release: str, rounds: int, body: int, ours: Side, theirs: JavaSide):
    """Show both rates until all messages are dispatched, without a goal; see also bench_dispatch.py."""
    if rounds:
        ours, theirs = (figures(side, "dispatched_s")[-rounds:] for side in (ours, theirs))
        ratio = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
        rates = ([PUTS[body] / 1e6 / s for s in side] for side in (ours, theirs))
        bench.show(case, f"Java {release}, both until all is dispatched", ratio, None, *rates, "M/s")


def puts_against_peers(name: str, body: int):
    peers = (("rocksdict", False, 4), ("lmdb", False, None), ("sqlite", False, None), ("sqlite", True, None))
    for kind, sync, goal in peers:
        one_against_peer(f"put, {name}, tags and keys", kind, sync, goal, body, many=False)


def batches_against_peers(name: str, body: int):
    goals = {"lmdb": 2, "rocksdict": 2} if body == 128 else {}
    for kind in ("lmdb", "rocksdict", "sqlite"):
        case = f"put_many, {name}, {BATCH} a call"
        one_against_peer(case, kind, False, goals.get(kind), body, many=True)


def one_against_peer(case: str, kind: str, sync: bool, goal: float | None, body: int, many: bool):
    against = {
        "lmdb": "LMDB nosync",
        "rocksdict": "rocksdict with log",
        "sqlite": f"SQLite WAL {'FULL' if sync else 'NORMAL'}",
    }[kind]
    if not bench.wanted(case, against, goal) or (bench.quick and goal is None):
        return
    with scratch(bench) as folder:
        other = peer(bench, kind, folder, text(body), sync)
        if other is None:
            return
        calls = PUTS[body] // (BATCH if many else 1)
        their_calls = calls if many else PEER_PUTS[kind] // (10 if sync else 1)
        with Ours(folder, body) as mine:
            beside_peer(bench, case, against, goal, "M/s", mine, other, many, calls, their_calls, other.flush)


def against_memcpy():
    """put_many of 1 KiB bodies, against memcpy of the bytes into memory that stays, and into the map of a new file."""
    body, calls = text(1024), PUTS[1024] // BATCH
    room, at = memoryview(bytearray(COPY_ROOM)), 0
    block = b"".join([body] * BATCH)

    def copy():
        nonlocal at
        for _ in range(calls):
            if at + len(block) > len(room):
                at = 0
            room[at : at + len(block)] = block
            at += len(block)

    case = f"put_many, 1 KiB, {BATCH} a call"
    for against, goal in (("memcpy of the bodies", 0.5), ("memcpy of the bodies into the map of a new file", None)):
        if not bench.wanted(case, against, goal):
            continue
        with scratch(bench) as folder, Ours(folder, 1024) as mine:
            into_file = NewFile(folder / "copied", calls * len(block))

            def check(mine=mine, into_file=into_file):
                mine.put_many(20)
                mine.check()
                into_file.copy(block, calls)
                same(into_file.last(len(block)), block, "memcpy")

            bench.row(
                case,
                against=against,
                goal=goal,
                work=calls * len(block) / 1e9,
                unit="GB/s",
                check=check,
                ours=mine.side(partial(mine.put_many, calls), calls * BATCH),
                theirs=timed(copy) if goal else partial(into_file.seconds, block, calls),
            )
            into_file.close()


class NewFile:
    """A file that each round creates, allocates, maps and fills by memcpy: the least work of a log in a map."""

    def __init__(self, path: Path, size: int):
        self._path, self._size, self._map = path, size, None

    def make(self):
        self.close()
        with open(self._path, "w+b") as f:
            os.posix_fallocate(f.fileno(), 0, self._size)
            self._map = mmap.mmap(f.fileno(), self._size)
            self._map.madvise(mmap.MADV_RANDOM)  # small pages, as for a log

    def copy(self, block: bytes, times: int):
        if self._map is None:
            self.make()
        with memoryview(self._map) as room:
            for at in range(0, times * len(block), len(block)):
                room[at : at + len(block)] = block

    def seconds(self, block: bytes, times: int) -> float:
        self.make()
        start = clock()
        self.copy(block, times)
        return clock() - start

    def last(self, size: int) -> bytes:
        return self._map[-size:]

    def close(self):
        if self._map is not None:
            self._map.close()
            self._path.unlink()
            self._map = None


def evenness(name: str, body: int):
    """Time each put: percentiles, and the slowest put."""
    release = java_peer.RELEASES[0]
    case, against = f"put, {name}, each clocked", f"Java {release} putMessage"
    if not bench.wanted(case, against, None):
        return
    with scratch(bench) as folder, Ours(folder, body) as mine:
        count = PUTS[body]
        java = java_peer.start(bench, "put", dir=folder / "java", body=body, count=count, release=release, latency=True)
        if not java:
            return
        with java:
            ours = mine.side(partial(mine.put_clocked, count), count)
            theirs = JavaSide(java, folder)
            measured(bench, case, against, None, count, "M/s", ours, theirs, *QUANTILES, "max_us")


def rolls(file_size: int):
    """Measure the time of a put that begins a new file, and the longest pause before it."""
    release = java_peer.RELEASES[0]
    name = f"{file_size // MIB} MiB files"
    count = int(file_size * 1.3) // 1100  # with 1 KiB bodies, each round begins at least one new file
    case = f"put, 1 KiB, over a roll, {name}"
    if not bench.wanted(case, "1 ms Java"):
        return
    if shutil.disk_usage(bench.args.data).free < 16 * file_size:
        print(f"{bench.name}: {case}: left out, the disk does not have enough free space", file=sys.stderr)
        return
    with scratch(bench) as folder, Ours(folder, 1024, mapped_file_size_commit_log=file_size) as mine:
        ours = mine.side(partial(mine.put_clocked, count), count)
        java = None  # the rows against Java are without a goal
        if not bench.args.goals:
            options = {"body": 1024, "count": count, "filemib": file_size // MIB, "latency": True}
            java = java_peer.start(bench, "put", dir=folder / "java", release=release, **options)
        theirs = JavaSide(java, folder) if java else None
        rounds = 3 if bench.quick or file_size == GIB else 5
        for _ in range(rounds + 1):
            for side in (ours, theirs):
                if side:
                    bench.before_round()
                    side()
        mine.check()
        limit = [ROLL_GOAL] * rounds
        less_is_better(bench, rounds, f"{case}: that put", "1 ms", figures(ours, "roll_us"), limit, "us", goal=1)
        if theirs:
            for name in ("roll_us", "max_us"):
                what = {"roll_us": "that put", "max_us": "longest stall"}[name]
                pair = figures(ours, name), figures(theirs, name)
                less_is_better(bench, rounds, f"{case}: {what}", f"Java {release} putMessage", *pair, "us")
            java.close()


def main():
    recycle_pages(bench)
    for name, body in SIZES.items():
        puts_against_java(name, body)
    for name, body in SIZES.items():
        puts_against_peers(name, body)
        batches_against_peers(name, body)
    against_memcpy()
    for name, body in SIZES.items():
        evenness(name, body)
    for file_size in [64 * MIB] if bench.quick else [64 * MIB, GIB]:
        rolls(file_size)


if __name__ == "__main__":
    main()
