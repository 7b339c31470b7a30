"""Shared by the benchmarks that write: recycled memory, the sides, the peers, CPU and disk bytes per message.

The main functions:

    recycle_pages(bench)        each round of bench.row() gets free memory that was just in use
    scratch(bench)              while entered, a temporary folder
    Side(work, count, ...)      one round: work(); then settle(), outside the clock
    details(bench, ...)         CPU and disk bytes of the rounds that bench.row() measured
"""

import contextlib
import gc
import mmap
import os
import random
import shutil
import sqlite3
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from common import MIB, Bench, Point, clock, same

import rocketc

TOPIC, TAG, QUEUES = "BenchTopic", "TagA", 4
BATCH = 1000  # messages per put_many, entries per transaction of a peer
GIB = 1024 * MIB
QUANTILES = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "p999_us": 0.999, "p9999_us": 0.9999}


def text(size: int) -> bytes:
    """Return the body that the Java peer (Maker) also uses."""
    return bytes(ord("a") + i % 23 for i in range(size))


class OurStore:
    """A store for messages with the same body. `with` closes it. Benchmarks add their loops in subclasses.

    body        bytes of a body
    put_so_far  number of messages; methods that put must count them
    """

    def __init__(self, folder: Path, body: int, **options):
        self.body, self.put_so_far = text(body), 0
        self.path = folder / "rocketc"
        self.store = rocketc.open(self.path, **options)
        self._bodies = [self.body] * BATCH

    def put_many(self, times: int):
        put_many, bodies, first = self.store.put_many, self._bodies, self.put_so_far
        for n in range(first, first + times):
            put_many(TOPIC, bodies, tags=TAG, queue_id=n % QUEUES)
        self.put_so_far += times * BATCH

    def side(self, work: Callable[[], object], count: int) -> "Side":
        return Side(work, count, self.path, self.store.flush, drain=self.store.wait_dispatched)

    def check(self):
        """Check that the log has all messages that were put, with their bodies."""
        self.store.flush()
        found = [0, 0]
        for m in rocketc.scan(self.path, crc="body"):
            found[0] += 1
            found[1] += m.body == self.body
        same(found, [self.put_so_far] * 2, "rocketc (messages, bodies as put)")

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.store.close()


# ---------------------------------------------------------------- memory
def use_and_free(size: int):
    """Use and free `size` bytes of memory, so that the next allocations get these pages."""
    with mmap.mmap(-1, size) as memory:
        if hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
        for at in range(0, size, mmap.PAGESIZE):
            memory[at] = 1


def recycle_pages(bench: Bench, size: int = 0):
    """From now on, each round of each side gets free memory that was just in use, as on a busy machine.

    If a virtual machine returns free memory to its host, the first use of such a page takes 8-11 us instead of 1 us. A
    store that fills new files would then measure mostly these page faults, and all sides would look alike.
    """
    bench.before_round = partial(use_and_free, size or (64 if bench.quick else 512) * MIB)


@contextlib.contextmanager
def scratch(bench: Bench) -> Iterator[Path]:
    Path(bench.args.data).mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=bench.args.data, prefix=f"{bench.name}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ---------------------------------------------------------------- sides
def disk_bytes(folder) -> int:
    """Return the bytes that all processes wrote to the disk of a folder since boot; 0 if the system can't report it."""
    device = os.stat(folder).st_dev
    try:
        sectors = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text().split()[6]
    except OSError:
        return 0
    return int(sectors) * 512


class Side:
    """One side of a row: work() is one round of `count` messages in `folder`; settle() ends it outside the clock.

    drain    waits for the other threads after work(). The clock has stopped; CPU and `dispatched_s` include it
    settle   flushes, so that write-back does not disturb the other side, and all disk bytes are counted
    figures  the figures of each round so far, by name
    """

    def __init__(
        self,
        work: Callable[[], object],
        count: int,
        folder,
        settle: Callable[[], object] = lambda: None,
        drain: Callable[[], object] = lambda: None,
    ):
        self._work, self._count, self._folder, self._settle, self._drain = work, count, folder, settle, drain
        self.figures: list[dict[str, float]] = []

    def __call__(self) -> float:
        gc.collect()
        gc.disable()
        disk, cpu, start = disk_bytes(self._folder), time.process_time(), clock()
        try:
            more = self._work()
            seconds = clock() - start
            self._drain()
        finally:
            gc.enable()
        dispatched, cpu = clock() - start, time.process_time() - cpu
        self._settle()
        self.figures.append(
            {
                "seconds": seconds,
                "dispatched_s": dispatched,
                "cpu_us": cpu * 1e6 / self._count,
                "disk_bytes": (disk_bytes(self._folder) - disk) / self._count,
                **(more if isinstance(more, dict) else {}),
            }
        )
        return seconds


class Dispatched:
    """A side whose round ends when all messages are dispatched."""

    def __init__(self, side: Side):
        self._side, self.figures = side, side.figures

    def __call__(self) -> float:
        self._side()
        return self.figures[-1]["dispatched_s"]


class QueuesStore(OurStore):
    """A store that a loop fills, with many queues. Topics and queues have the names that Java's Maker uses."""

    def __init__(self, folder: Path, body: int, topics: int = 1, queues: int = 4, **options):
        super().__init__(folder, body, flush="async", **options)
        names = [TOPIC] if topics == 1 else [f"{TOPIC}-{n:05d}" for n in range(topics)]
        self.places = [(name, queue) for name in names for queue in range(queues)]

    def put(self, times: int):
        """Put messages with different keys and one tag, into the queues in rotation."""
        put, body, first, places, n_places = self.store.put, self.body, self.put_so_far, self.places, len(self.places)
        for n in range(first, first + times):
            topic, queue = places[n % n_places]
            put(topic, body, tags=TAG, keys=f"order-{n}", queue_id=queue)
        self.put_so_far += times

    def queued(self) -> int:
        """Return the number of messages in all queues."""
        return sum(self.store.max_offset(*place) for place in self.store.queues())

    def check(self):
        """Check that messages are in their queues with their tags, found by their keys, and have the right bodies."""
        self.store.wait_dispatched()
        same(self.queued(), self.put_so_far, "rocketc (messages in queues)")
        for n in random.Random(3).sample(range(self.put_so_far), 50):
            topic, queue = self.places[n % len(self.places)]
            got = self.store.get(topic, queue, n // len(self.places), 1, tags=TAG).messages[0]
            same((got.keys, got.body, got.tags), (f"order-{n}", self.body, TAG), "rocketc (message by queue offset)")
            same([m.phy_offset for m in self.store.query(topic, f"order-{n}")], [got.phy_offset], "rocketc (by key)")
        super().check()


class JavaSide:
    """The rounds of a Java peer, with its own clock and other figures.

    until    the figure that is the time of a round: "seconds", or "dispatched_s" of a put
    settle   called after each round, outside the clock
    """

    def __init__(self, java, folder, until: str = "seconds", settle: Callable[[], object] = lambda: None):
        self._java, self._folder, self._until, self._settle = java, folder, until, settle
        self.figures: list[dict[str, float]] = []

    def __call__(self) -> float:
        disk = disk_bytes(self._folder)
        done = self._java.round()
        self._settle()
        self.figures.append(
            {
                "seconds": done.seconds,
                **done.more,
                "disk_bytes": (disk_bytes(self._folder) - disk) / max(1, done.records),
            }
        )
        return self.figures[-1][self._until]


def less_is_better(
    bench: Bench, rounds: int, case: str, against: str, ours, theirs, unit: str, goal=None, point=None, curve=(),
):  # fmt: skip
    """Print a row of figures, one per round; its ratio is theirs over ours."""
    ours, theirs = list(ours)[-rounds:], list(theirs)[-rounds:]
    if all(ours):
        ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
        bench.show(case, against, statistics.median(ratios), goal, ours, theirs, unit, ratios, point, curve)


def figures(side, name: str) -> list[float]:
    return [figure[name] for figure in side.figures if name in figure]


def details(bench: Bench, rounds: int, case: str, against: str, ours, theirs, *names: str):
    """Print further rows for a row: the costs per message. Prints nothing if that row was left out."""
    units = {"cpu_us": "us of CPU a message", "disk_bytes": "bytes to the disk a message"}
    for name in names or units:
        a, b = figures(ours, name), figures(theirs, name)
        if rounds and a and b:
            what = name.removesuffix("_us") if name not in units else {"cpu_us": "CPU", "disk_bytes": "disk"}[name]
            point = Point("latency", case, QUANTILES[name]) if name in QUANTILES else None
            less_is_better(bench, rounds, f"{case}: {what}", against, a, b, units.get(name, "us"), point=point)


def measured(
    bench: Bench, case: str, against: str, goal: float | None, count: int, unit: str, ours, theirs, *costs: str,
    check: Callable[[], object] | None = None, their_count: int = 0,
) -> int:  # fmt: skip
    """Measure a row of `count` messages per round, and the rows of costs per message; return the number of rounds.

    unit   "M/s" or "k/s"
    costs  names of figures of both sides; default: all figures of details()
    """
    per = {"M/s": 1e6, "k/s": 1e3}[unit]
    work, their_work = count / per, (their_count or count) / per
    rounds = bench.row(
        case, against=against, goal=goal, work=work, their_work=their_work, unit=unit, check=check, ours=ours,
        theirs=theirs,
    )  # fmt: skip
    details(bench, rounds, case, against, ours, theirs, *costs)
    return rounds


def percentiles(took: Sequence[int]) -> dict[str, float]:
    """Return the percentiles of times in ns, by the names that the Java peer also uses."""
    took = sorted(took)
    return {**{name: took[int(len(took) * at)] / 1e3 for name, at in QUANTILES.items()}, "max_us": took[-1] / 1e3}


# ---------------------------------------------------------------- peers without Java
def optional(bench: Bench, module: str):
    """Import a package of the group `bench`; if it is missing, report it on stderr and return None."""
    try:
        return __import__(module)
    except ImportError:
        print(f"{bench.name}: {module} is not installed (tools/setup.sh peers): its rows are left out", file=sys.stderr)
        return None


class Peer:
    """The store of a peer. put(times) puts one body per call, put_many(times) a batch per call; each call commits."""

    def check(self, count: int):
        """Check that the store has `count` entries, and that it returns the last one."""
        if self.entries() != count or self.last() != self.body:
            raise SystemExit(f"bench: {self.name} holds {self.entries()} entries, not {count}; nothing was measured")


pack_key = struct.Struct(">Q").pack


def beside_peer(
    bench: Bench, case: str, against: str, goal: float | None, unit: str, mine: OurStore, other: Peer, many: bool,
    calls: int, their_calls: int, settle: Callable[[], object] = lambda: None,
):  # fmt: skip
    """Measure a row against a peer: calls of put() or of put_many(); settle: ends a round of the peer."""
    each = BATCH if many else 1
    put, their_put = (mine.put_many, other.put_many) if many else (mine.put, other.put)

    def check():
        put(20)
        mine.check()
        their_put(20)
        other.check(20 * each)

    ours = mine.side(partial(put, calls), calls * each)
    theirs = Side(partial(their_put, their_calls), their_calls * each, mine.path, settle)
    measured(
        bench, case, against, goal, calls * each, unit, ours, theirs, check=check, their_count=their_calls * each
    )  # fmt: skip
    other.close()


class Lmdb(Peer):
    def __init__(self, module, folder: Path, body: bytes, sync: bool):
        self.name, self.body, self._next = f"LMDB {'sync' if sync else 'nosync'}", body, 0
        self._bodies = [body] * BATCH
        self._env = module.open(
            str(folder), map_size=64 * GIB, sync=sync, metasync=sync, writemap=not sync, map_async=not sync
        )

    def put(self, times: int):
        begin, body = self._env.begin, self.body
        for n in range(self._next, self._next + times):
            with begin(write=True) as transaction:
                transaction.put(pack_key(n), body, append=True)
        self._next += times

    def put_many(self, times: int):
        for first in range(self._next, self._next + times * BATCH, BATCH):
            with self._env.begin(write=True) as transaction:
                keys = map(pack_key, range(first, first + BATCH))
                transaction.cursor().putmulti(zip(keys, self._bodies, strict=True), append=True)
        self._next += times * BATCH

    def flush(self):
        self._env.sync(True)

    def entries(self) -> int:
        return self._env.stat()["entries"]

    def last(self) -> bytes:
        with self._env.begin() as transaction:
            return transaction.get(pack_key(self._next - 1))

    def close(self):
        self._env.close()


class Rocks(Peer):
    """RocksDB with its write-ahead log, through rocksdict."""

    def __init__(self, module, folder: Path, body: bytes, sync: bool):
        self.name, self.body, self._next = f"rocksdict {'synced' if sync else 'with log'}", body, 0
        self._batch = module.WriteBatch
        self._db = module.Rdict(str(folder), module.Options(raw_mode=True))
        self._options = module.WriteOptions()
        self._options.sync = sync
        self._db.set_write_options(self._options)

    def put(self, times: int):
        db, body = self._db, self.body
        for n in range(self._next, self._next + times):
            db[pack_key(n)] = body
        self._next += times

    def put_many(self, times: int):
        body = self.body
        for first in range(self._next, self._next + times * BATCH, BATCH):
            batch = self._batch(raw_mode=True)
            for n in range(first, first + BATCH):
                batch.put(pack_key(n), body)
            self._db.write(batch, self._options)
        self._next += times * BATCH

    def flush(self):
        self._db.flush_wal(True)

    def entries(self) -> int:
        return sum(1 for _ in self._db.keys())  # noqa: SIM118 (no dict)

    def last(self) -> bytes:
        return self._db[pack_key(self._next - 1)]

    def close(self):
        self._db.close()


class Sqlite(Peer):
    """SQLite with its write-ahead log."""

    def __init__(self, folder: Path, body: bytes, synchronous: str):
        folder.mkdir()
        self.name, self.body = f"SQLite WAL {synchronous}", body
        self._db = sqlite3.connect(folder / "log.db", isolation_level=None)
        self._db.execute("pragma journal_mode=WAL")
        self._db.execute(f"pragma synchronous={synchronous}")
        self._db.execute("create table log(id integer primary key, body blob)")

    def put(self, times: int):
        execute, row = self._db.execute, (self.body,)
        for _ in range(times):
            execute("insert into log(body) values(?)", row)

    def put_many(self, times: int):
        rows = [(self.body,)] * BATCH
        for _ in range(times):
            self._db.execute("begin")
            self._db.executemany("insert into log(body) values(?)", rows)
            self._db.execute("commit")

    def flush(self):
        pass

    def entries(self) -> int:
        return self._db.execute("select count(*) from log").fetchone()[0]

    def last(self) -> bytes:
        return self._db.execute("select body from log order by id desc limit 1").fetchone()[0]

    def close(self):
        self._db.close()


def peer(bench: Bench, kind: str, folder: Path, body: bytes, sync: bool) -> Peer | None:
    """Open the store of a peer: lmdb, rocksdict or sqlite. If its package is missing, report it and return None."""
    folder.mkdir(exist_ok=True)
    if kind == "sqlite":
        return Sqlite(folder / kind, body, "FULL" if sync else "NORMAL")
    module = optional(bench, kind)
    return module and {"lmdb": Lmdb, "rocksdict": Rocks}[kind](module, folder / kind, body, sync)
