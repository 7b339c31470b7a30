"""rocketc.Queue: put one message, get and ack one, and 100 at a time; against embedded queues and databases.

Both sides have the same durability: "process" (messages survive the death of the process) or "power" (each commit is
synced before it returns). The databases are used as queues in a simple way: keys grow, the first entry is read, and an
ack deletes it; each put and each ack is a commit. Our queue writes its position once a second. After a crash it
returns messages again that were acked since then; the databases do not. No side loses messages. diskcache does not
support acks: an entry that it has returned is gone.

The rows "disk use" are KiB on the disk, as `du` counts them: of a queue with few messages, while it is open and after
it was closed. Their ratio is the peer's KiB over ours.
"""

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from common import MIB, Bench, same
from writing import GIB, Side, optional, pack_key, recycle_pages, scratch, text

import rocketc

BODY = 128
AT_ONCE = 100

bench = Bench("embedded", __doc__)
bench.rounds = 3 if bench.quick else 7
SHARE = 1 if bench.quick else 4  # divisor of the messages per round
OURS = {"process": 20_000, "power": 500}  # messages per round, one by one


# ---------------------------------------------------------------- the sides: classes with the same four methods
class Ours:
    def __init__(self, folder: Path, power: bool):
        self.body = text(BODY)
        self._queue = rocketc.Queue(folder, flush="sync" if power else "async")

    def put(self, body: bytes):
        self._queue.put(body)

    def take(self) -> bytes:
        item = self._queue.get_nowait()
        self._queue.ack(item)
        return item

    def put_many(self, bodies: list[bytes]):
        self._queue.put_many(bodies)

    def take_many(self, count: int) -> list[bytes]:
        items = self._queue.get_many(count, False)
        self._queue.ack(*items)
        return items

    def close(self):
        self._queue.close()


class Sqlite:
    def __init__(self, module, folder: Path, power: bool):
        folder.mkdir()
        self._db = sqlite3.connect(folder / "queue.db", isolation_level=None)
        self._db.execute("pragma journal_mode=WAL")
        self._db.execute(f"pragma synchronous={'FULL' if power else 'NORMAL'}")
        self._db.execute("create table queue(id integer primary key autoincrement, body blob)")

    def put(self, body: bytes):
        self._db.execute("insert into queue(body) values(?)", (body,))

    def take(self) -> bytes:
        key, body = self._db.execute("select id, body from queue order by id limit 1").fetchone()
        self._db.execute("delete from queue where id = ?", (key,))
        return body

    def put_many(self, bodies: list[bytes]):
        self._db.execute("begin")
        self._db.executemany("insert into queue(body) values(?)", [(body,) for body in bodies])
        self._db.execute("commit")

    def take_many(self, count: int) -> list[bytes]:
        rows = self._db.execute("select id, body from queue order by id limit ?", (count,)).fetchall()
        self._db.execute("delete from queue where id <= ?", (rows[-1][0],))
        return [body for _, body in rows]

    def close(self):
        self._db.close()


class Lmdb:
    def __init__(self, module, folder: Path, power: bool):
        self._env = module.open(
            str(folder), map_size=16 * GIB, sync=power, metasync=power, writemap=not power, map_async=not power
        )
        self._next = 0

    def put(self, body: bytes):
        with self._env.begin(write=True) as transaction:
            transaction.put(pack_key(self._next), body, append=True)
        self._next += 1

    def take(self) -> bytes:
        with self._env.begin() as transaction:
            cursor = transaction.cursor()
            cursor.first()
            key, body = cursor.item()
        with self._env.begin(write=True) as transaction:
            transaction.delete(key)
        return body

    def put_many(self, bodies: list[bytes]):
        with self._env.begin(write=True) as transaction:
            keys = map(pack_key, range(self._next, self._next + len(bodies)))
            transaction.cursor().putmulti(zip(keys, bodies, strict=True), append=True)
        self._next += len(bodies)

    def take_many(self, count: int) -> list[bytes]:
        with self._env.begin() as transaction:
            found = [item for item, _ in zip(transaction.cursor().iternext(), range(count), strict=False)]
        with self._env.begin(write=True) as transaction:
            for key, _ in found:
                transaction.delete(key)
        return [body for _, body in found]

    def close(self):
        self._env.close()


class Rocks:
    """RocksDB through rocksdict. It keeps the first key, because deleted entries stay before the remaining ones."""

    def __init__(self, module, folder: Path, power: bool):
        self._module = module
        self._db = module.Rdict(str(folder), module.Options(raw_mode=True))
        self._options = module.WriteOptions()
        self._options.sync = power
        self._db.set_write_options(self._options)
        self._first = self._next = 0

    def put(self, body: bytes):
        self._db[pack_key(self._next)] = body
        self._next += 1

    def take(self) -> bytes:
        key = pack_key(self._first)
        body = self._db[key]
        del self._db[key]
        self._first += 1
        return body

    def put_many(self, bodies: list[bytes]):
        batch = self._module.WriteBatch(raw_mode=True)
        for n, body in enumerate(bodies, self._next):
            batch.put(pack_key(n), body)
        self._db.write(batch, self._options)
        self._next += len(bodies)

    def take_many(self, count: int) -> list[bytes]:
        keys = [pack_key(n) for n in range(self._first, self._first + count)]
        bodies = self._db[keys]
        batch = self._module.WriteBatch(raw_mode=True)
        for key in keys:
            batch.delete(key)
        self._db.write(batch, self._options)
        self._first += count
        return bodies

    def close(self):
        self._db.close()


class PersistAck:
    """persist-queue's SQLiteAckQueue. It always uses SQLite's default, synchronous=FULL."""

    def __init__(self, module, folder: Path, power: bool):
        self._queue = module.SQLiteAckQueue(str(folder))

    def put(self, body: bytes):
        self._queue.put(body)

    def take(self) -> bytes:
        found = self._queue.get(block=False, raw=True)
        self._queue.ack(id=found["pqid"])
        return found["data"]

    def close(self):
        self._queue.close()


class PersistFile:
    """persist-queue's Queue of files, which saves its position after each call."""

    def __init__(self, module, folder: Path, power: bool):
        self._queue = module.Queue(str(folder), autosave=True)

    def put(self, body: bytes):
        self._queue.put(body)

    def take(self) -> bytes:
        body = self._queue.get(block=False)
        self._queue.task_done()
        return body

    def close(self):
        del self._queue


class Lite:
    """litequeue: text only; synchronous=NORMAL by default."""

    def __init__(self, module, folder: Path, power: bool):
        folder.mkdir()
        self._queue = module.LiteQueue(folder / "queue.db")
        self._queue.conn.execute(f"pragma synchronous={'FULL' if power else 'NORMAL'}")

    def put(self, body: bytes):
        self._queue.put(body.decode())

    def take(self) -> bytes:
        found = self._queue.pop()
        self._queue.done(found.message_id)
        return found.data.encode()

    def close(self):
        self._queue.close()


class DiskCache:
    """diskcache's Deque: popleft() reads and deletes an entry."""

    def __init__(self, module, folder: Path, power: bool):
        cache = module.Cache(str(folder), eviction_policy="none", sqlite_synchronous=2 if power else 1)
        self._cache, self._deque = cache, module.Deque.fromcache(cache)

    def put(self, body: bytes):
        self._deque.append(body)

    def take(self) -> bytes:
        return self._deque.popleft()

    def close(self):
        self._cache.close()


class Kind(NamedTuple):
    """A peer.

    name, module  of its package; None: part of Python
    make          (module, folder, power) -> a side
    messages      durability -> messages per round, one by one; only durabilities that the peer supports
    goal          ratio to reach with "process"; with "power" it is 1, because both sides wait for the disk
    """

    name: str
    module: str | None
    make: Callable
    messages: dict[str, int]
    goal: float


KINDS = [
    Kind("SQLite WAL", None, Sqlite, {"process": 2000, "power": 300}, 4),
    Kind("LMDB", "lmdb", Lmdb, {"process": 4000, "power": 300}, 1),
    Kind("rocksdict", "rocksdict", Rocks, {"process": 8000, "power": 300}, 1),
    Kind("persist-queue Queue", "persistqueue", PersistFile, {"process": 200}, 10),
    Kind("persist-queue SQLiteAckQueue", "persistqueue", PersistAck, {"power": 200}, 1),
    Kind("litequeue", "litequeue", Lite, {"process": 1000, "power": 200}, 4),
    Kind("diskcache Deque", "diskcache", DiskCache, {"process": 1000, "power": 200}, 10),
]


# ---------------------------------------------------------------- one round of a side
def fill(side, count: int):
    """Put `count` messages in large batches."""
    body = text(BODY)
    if hasattr(side, "put_many"):
        for _ in range(-(-count // 1000)):
            side.put_many([body] * 1000)
    else:
        for _ in range(count):
            side.put(body)


def put(side, count: int):
    work, body = side.put, text(BODY)
    for _ in range(count):
        work(body)


def take(side, count: int):
    work = side.take
    for _ in range(count):
        work()


def put_many(side, count: int):
    bodies = [text(BODY)] * AT_ONCE
    for _ in range(count // AT_ONCE):
        side.put_many(bodies)


def take_many(side, count: int):
    for _ in range(count // AT_ONCE):
        side.take_many(AT_ONCE)


CASES = {
    "put": (put, 1),
    "get + ack": (take, 1),
    f"put {AT_ONCE} at once": (put_many, 10),
    f"get + ack {AT_ONCE} at once": (take_many, 10),
}


def check(side):
    """Check that a side returns the messages in the order in which they were put."""
    bodies = [b"%05d" % n for n in range(2 * AT_ONCE)]
    for body in bodies[:AT_ONCE]:
        side.put(body)
    (side.put_many if hasattr(side, "put_many") else partial(map, side.put))(bodies[AT_ONCE:])
    got = [bytes(side.take()) for _ in range(AT_ONCE)]
    if hasattr(side, "put_many"):
        got += map(bytes, side.take_many(AT_ONCE))
        same(got, bodies, type(side).__name__)
    else:
        same(got, bodies[:AT_ONCE], type(side).__name__)


def row(case: str, durability: str, kind: Kind):
    work, factor = CASES[case]
    name = f"{case}, {durability}"
    if bench.quick and durability == "power" and work in (take, take_many):
        return  # the disk limits them as it limits put
    if durability not in kind.messages or (factor > 1 and not hasattr(kind.make, "put_many")):
        return
    if not bench.wanted(name, kind.name):
        return
    module = optional(bench, kind.module) if kind.module else True
    if module is None:
        return
    power = durability == "power"
    count, their_count = (SHARE * factor * n for n in (OURS[durability], kind.messages[durability]))
    with scratch(bench) as folder:
        ours, theirs = Ours(folder / "rocketc", power), kind.make(module, folder / "peer", power)
        check(ours)
        check(theirs)
        taking = work in (take, take_many)
        sides = []
        for side, n in ((ours, count), (theirs, their_count)):
            refill = partial(fill, side, n) if taking else lambda: None
            refill()
            sides.append(Side(partial(work, side, n), n, folder, refill))
        bench.row(
            name,
            against=kind.name,
            goal=1 if power else kind.goal,
            work=count / 1e6,
            their_work=their_count / 1e6,
            unit="M/s",
            ours=sides[0],
            theirs=sides[1],
        )
        ours.close()
        theirs.close()


# ---------------------------------------------------------------- disk use
DISK_PEERS = ("SQLite WAL", "LMDB")
MESSAGES = {"empty": 0, "1 message": 1, "1,000 messages": 1000, "100,000 messages": 100_000}


def kib(folder: Path) -> float:
    """Return the KiB of a folder on the disk."""
    return sum(path.lstat().st_blocks for path in (folder, *folder.rglob("*"))) / 2


def disk_row(case: str, count: int, kind: Kind):
    names = {state: f"disk use, {case}, {state}" for state in ("open", "closed")}
    if not any(bench.wanted(name, kind.name, None) for name in names.values()):
        return
    module = optional(bench, kind.module) if kind.module else True
    if module is None:
        return
    found: dict[str, list[float]] = {"open": [], "closed": []}
    with scratch(bench) as folder:
        ours, theirs = Ours(folder / "rocketc", False), kind.make(module, folder / "peer", False)
        for side, name in ((ours, "rocketc"), (theirs, "peer")):
            for at in range(0, count, AT_ONCE):
                side.put_many([text(BODY)] * min(AT_ONCE, count - at))
            found["open"].append(kib(folder / name))
            side.close()
            found["closed"].append(kib(folder / name))
    for state, (mine, yours) in found.items():
        if bench.wanted(names[state], kind.name, None):
            bench.show(names[state], kind.name, yours / mine, None, [mine], [yours], "KiB")


def main():
    for case, count in MESSAGES.items():
        for kind in KINDS:
            if kind.name in DISK_PEERS:
                disk_row(case, count, kind)
    recycle_pages(bench, (16 if bench.quick else 64) * MIB)
    for durability in ("process", "power"):
        for case in CASES:
            for kind in KINDS:
                row(case, durability, kind)


if __name__ == "__main__":
    main()
