"""The cases of `rocketc bench`: the work of the store, and the same work without a store."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from rocketc._layout import PROPERTY_KEYS, PROPERTY_TAGS
from rocketc.files.durable import sync_data

if TYPE_CHECKING:
    from rocketc.store._store import MessageStore

MIB = 1 << 20
_PAGE = mmap.PAGESIZE
_GROUP = 1000  # messages of one put_many, which ends with one sync
_TOPIC = "bench"

Side = Callable[[], float]  # runs one round and returns its seconds
clock = time.perf_counter


@dataclass(frozen=True)
class Size:
    """How much work a round does.

    file    bytes of each log file
    log     bytes of the bodies that one put_many stores; recovery reads about two log files
    few     messages that are put one by one
    syncs   messages that are put one by one, each with a sync
    rounds  number of rounds; the median counts
    """

    file: int
    log: int
    few: int
    syncs: int
    rounds: int

    @property
    def room(self) -> int:
        """Free bytes that the disk needs."""
        rounds = self.rounds + 1
        return rounds * (self.few * 1024 + 2 * self.log) + 6 * self.file


QUICK = Size(64 * MIB, 32 * MIB, 10_000, 40, 9)
FULL = Size(256 * MIB, 256 * MIB, 100_000, 200, 25)


@dataclass(frozen=True)
class Work:
    """One case: a task of the store, and what the machine does with the same bytes.

    amount  work of one round, in `unit`
    """

    name: str
    against: str
    amount: int
    unit: str
    store: Side
    machine: Side


class Bench:
    """The stores and files of a measurement, in one folder. Call close() at the end."""

    def __init__(self, folder: str, size: Size) -> None:
        self._folder = folder
        self._size = size
        self._random = Random(5)
        self._open: list[Any] = []

    def close(self) -> None:
        """Close the stores and files, so that the folder can be removed."""
        while self._open:
            self._open.pop().close()

    def works(self) -> Iterator[Work]:
        """The cases, in the order of the table."""
        size = self._size
        yield self._one_by_one()
        yield self._many()
        for against, machine in (("write, fdatasync", self._written), ("map, msync", self._mapped)):
            body = self._bodies(128, 1)[0]
            yield self._work("put, sync", against, size.syncs, self._synced(body), machine(self._record(body)))
        yield self._groups()
        yield self._recovery()

    def _work(self, name: str, against: str, messages: int, store: Side, machine: Side) -> Work:
        return Work(name, against, messages, "message", store, machine)

    def _bodies(self, length: int, count: int) -> list[bytes]:
        return [self._random.randbytes(length) for _ in range(count)]

    def _record(self, body: bytes) -> bytes:
        """The record that a put of this body stores."""
        from rocketc.format._encoding import encode

        return encode(_TOPIC, body, properties={PROPERTY_TAGS: "tag", PROPERTY_KEYS: "key"})

    def _store(self, name: str, **fields: Any) -> MessageStore:
        from rocketc.store.opening import open as open_store

        opened = open_store(self._path(name), mapped_file_size_commit_log=self._size.file, **fields)
        self._open.append(opened)
        return opened

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _file(self, name: str, length: int = 0) -> int:
        """The descriptor of a new file with `length` allocated bytes."""
        file = open(self._path(name), "w+b", buffering=0)  # noqa: SIM115  closed by close()
        self._open.append(file)
        if length and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, length)
        elif length:
            os.ftruncate(file.fileno(), length)
        return file.fileno()

    def _one_by_one(self) -> Work:
        """One call per message, without a sync."""
        bodies = self._bodies(128, 100) * (self._size.few // 100)
        records = [self._record(body) for body in bodies[:100]] * (self._size.few // 100)
        store = self._store("one by one")
        fd = self._file("written")

        def put() -> float:
            start = clock()
            for body in bodies:
                store.put(_TOPIC, body, tags="tag", keys="key")
            return clock() - start

        def write() -> float:
            start = clock()
            for record in records:
                os.write(fd, record)
            return clock() - start

        return self._work("put", "write", len(bodies), put, write)

    def _many(self) -> Work:
        bodies = self._bodies(1024, self._size.log >> 10)
        store = self._store("many")
        target = memoryview(mmap.mmap(-1, 1024 * len(bodies)))

        def put() -> float:
            start = clock()
            store.put_many(_TOPIC, bodies, tags="tag", keys="key")
            return clock() - start

        whole = memoryview(b"".join(bodies))

        def copy() -> float:
            start = clock()
            target[:] = whole
            return clock() - start

        return self._work("put_many, 1 KiB", "memcpy", len(bodies), put, copy)

    def _synced(self, body: bytes) -> Side:
        store = self._store(f"synced {len(self._open)}", flush="sync")

        def put() -> float:
            start = clock()
            for _ in range(self._size.syncs):
                store.put(_TOPIC, body, tags="tag", keys="key")
            return clock() - start

        return put

    def _written(self, record: bytes, times: int = 0) -> Side:
        """Append a record and sync it, `times` times."""
        times = times or self._size.syncs
        fd = self._file(f"appended {len(self._open)}", self._size.file)

        def write() -> float:
            pos = 0
            start = clock()
            for _ in range(times):
                os.pwrite(fd, record, pos)
                sync_data(fd)
                pos += len(record)
            return clock() - start

        return write

    def _mapped(self, record: bytes) -> Side:
        """Append and sync a record as in _written(), in a mapped file."""
        fd = self._file("mapped", self._size.file)
        area = mmap.mmap(fd, self._size.file)

        def store() -> float:
            pos = 0
            start = clock()
            for _ in range(self._size.syncs):
                area[pos : pos + len(record)] = record
                first = pos - pos % _PAGE
                pos += len(record)
                area.flush(first, -(-(pos - first) // _PAGE) * _PAGE)
            return clock() - start

        return store

    def _groups(self) -> Work:
        """Many messages per sync."""
        bodies = self._bodies(128, _GROUP)
        groups = max(self._size.syncs // 10, 1)
        store = self._store("groups", flush="sync")

        def put() -> float:
            start = clock()
            for _ in range(groups):
                store.put_many(_TOPIC, bodies, tags="tag", keys="key")
            return clock() - start

        written = self._written(b"".join(map(self._record, bodies)), groups)
        return self._work("put_many of 1,000, sync", "write, fdatasync", _GROUP * groups, put, written)

    def _recovery(self) -> Work:
        """Open a store that was not closed and does not have a checkpoint, so that recovery reads the whole log."""
        from rocketc.files.lock_file import AbortFile
        from rocketc.format._encoding import crc32_by, crc32_ways

        root = self._path("crashed")
        store = self._store("crashed")
        bodies = self._bodies(1024, 500)
        while store.max_phy_offset < 2 * self._size.file - MIB:  # recovery also reads the empty rest of the file
            store.put_many(_TOPIC, bodies)
        end = store.max_phy_offset
        store.close()

        def recover() -> float:
            AbortFile(root).create()
            if os.path.exists(os.path.join(root, "checkpoint")):
                os.unlink(os.path.join(root, "checkpoint"))
            start = clock()
            opened = self._store("crashed")
            taken = clock() - start
            opened.close()
            self._open.remove(opened)
            assert opened.max_phy_offset == end
            return taken

        way = crc32_ways()[-1]
        log = os.path.join(root, "commitlog")

        def read() -> float:
            start = clock()
            for name in sorted(os.listdir(log)):
                with (
                    open(os.path.join(log, name), "rb") as file,
                    mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as area,
                ):
                    data = memoryview(area)[: max(end - int(name), 0)]
                    crc32_by(way, data)
                    data.release()
            return clock() - start

        return Work("recovery, 1 KiB", "CRC-32", end, "B", recover, read)
