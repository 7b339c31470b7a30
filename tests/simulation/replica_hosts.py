"""A master and its slaves in a simulation: they start, are killed, and are started again with older files."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from crash import remains
from simulation.hosts import SMALL, wall_clock
from simulation.network import Network

import rocketc
from rocketc.errors import ReplicaError
from rocketc.ha.master import Master, MasterSettings
from rocketc.ha.slave import Slave
from rocketc.status import PutStatus

MASTER = ("10.0.2.1", 10912)
STEP_SECONDS = 0.02
QUEUES = 3


class Sent(NamedTuple):
    """A message that the master has stored, and how its wait for the slaves ended."""

    at: float
    queue_id: int
    queue_offset: int
    start: int
    end: int
    body: bytes
    status: PutStatus


class Report:
    """What a run finds."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.sent: list[Sent] = []
        self.counts: Counter[str] = Counter()

    def fault(self, text: str) -> None:
        self.wrong.append(text)

    @property
    def acknowledged(self) -> list[Sent]:
        return [one for one in self.sent if one.status == PutStatus.PUT_OK]


class Host:
    """A machine with a store. A kill loses nothing that was written: the page cache stays."""

    def __init__(self, name: str, root: Path, network: Network, report: Report, **store: Any) -> None:
        self.name, self.root, self._network, self._report = name, root, network, report
        self._fields = store
        self.is_up = False
        self.older: list[remains.Files] = []  # copies of its files, made while it ran
        self.rolled_back = -1.0  # when it was started with an older copy, or without its files
        self.log = b""  # of its last life
        self.first = 0  # physical offset of the log's first byte
        self._tasks: list[asyncio.Task[Any]] = []
        root.mkdir(parents=True)

    def _open(self) -> None:
        self.store = rocketc.open(self.root, background=False, clock=wall_clock, **{**SMALL, **self._fields})
        self._run(self._step())
        self.is_up = True

    def _run(self, work: Any) -> None:
        self._tasks.append(asyncio.ensure_future(work))

    async def _step(self) -> None:
        while True:
            while self.store.step():
                pass
            await asyncio.sleep(STEP_SECONDS)

    @property
    def end(self) -> int:
        """Where its log ends, or ended when it died."""
        return self.store.max_phy_offset if self.is_up else self.first + len(self.log)

    def read(self) -> bytes:
        """Return its whole log, from `first` on."""
        if not self.is_up:
            return self.log
        out, at = [], self.store.min_phy_offset
        self.first = at
        while data := self.store.read_log(at, 1 << 30):
            out.append(bytes(data))
            at += len(data)
        return b"".join(out)

    def has(self, sent: Sent) -> bool:
        """Whether its log has a message at its place: the body, not just as many bytes."""
        if self.end < sent.end:
            return False
        if not self.is_up:
            record = self.log[max(sent.start - self.first, 0) : sent.end - self.first]
        elif sent.start < self.store.min_phy_offset:
            return False
        else:
            record = bytes(self.store.read_log(sent.start, sent.end - sent.start))
        return sent.body in record

    def copy(self) -> None:
        """Keep a copy of the files, as a backup does."""
        self.older.append(remains.take(self.root))

    def _die(self) -> remains.Files:
        self._network.kill(self.name)
        files, self.log, self.is_up = remains.take(self.root), self.read(), False
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        return files

    def roll_back(self, files: remains.Files) -> None:
        """The next life begins with these files."""
        assert not self.is_up
        remains.lay(files, self.root)
        self.root.mkdir(exist_ok=True)
        self.rolled_back = self._network.now()


class MasterHost(Host):
    """The master and its producers."""

    def __init__(self, acks: int, *where: Any, **store: Any) -> None:
        super().__init__("master", *where, **store)
        self._acks = acks
        self._are_equal = self._network.chance.random() < 0.5  # all records have one size: logs fit by their offsets
        self.logs: list[tuple[int, bytes]] = []  # of all earlier lives
        self._numbers = iter(range(1 << 30))

    async def start(self) -> None:
        self._open()
        settings = MasterSettings(in_sync_replicas=self._acks)
        self.master = Master(self.store, SMALL["mapped_file_size_commit_log"], settings)
        self._network.listen(MASTER, self.name, self.master.connection)

    def produce(self, pause: float, largest: int) -> None:
        self._run(self._produce(pause, largest))

    async def _produce(self, pause: float, largest: int) -> None:
        chance = self._network.chance
        while True:
            await asyncio.sleep(chance.expovariate(1 / pause))
            for _ in range(chance.choice([1, 1, 1, 20])):
                size = largest if self._are_equal else chance.randint(0, largest)
                self._put(b"%08d|" % next(self._numbers) + chance.randbytes(size))

    def _put(self, body: bytes) -> None:
        at, queue_id = self._network.now(), self._network.chance.randrange(QUEUES)
        put = self.store.put("orders", body, queue_id=queue_id)

        def done(status: PutStatus) -> None:
            sent = Sent(at, queue_id, put.queue_offset, put.phy_offset, put.end, body, status)
            self._report.sent.append(sent)
            self.answered(sent)

        self.master.transfer.add(put.end, done)

    def answered(self, sent: Sent) -> None:
        """The wait of a send has ended. Replaced by the cluster."""

    def kill(self) -> None:
        files = self._die()
        self._network.deaf(MASTER)
        self.logs.append((self.first, self.log))
        self.master._loop.remove_reader(self.master._read)
        self.master.transfer._waiting.clear()  # a dead master answers no one
        self.master.transfer.close()
        for connection in list(self.master.connections):
            connection._forget()
        self.master._written.end()
        self.store.close()
        remains.lay(files, self.root)

    async def stop(self) -> None:
        self._network.deaf(MASTER)
        await self.master.close()
        self.log, self.is_up = self.read(), False
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        self.store.close()


class SlaveHost(Host):
    """A slave, or a copy that acknowledges nothing."""

    def __init__(self, name: str, is_copy: bool, *where: Any, **store: Any) -> None:
        super().__init__(name, *where, broker_role="SLAVE", **store)
        self.is_copy = is_copy
        self.has_ended = False  # with a ReplicaError
        self.ends: list[tuple[float, int]] = []  # where its log ended in lives before it was rolled back

    async def start(self) -> None:
        self._open()
        self.has_ended = False
        chance = random.Random(self._network.chance.random())
        self.slave = Slave(
            self.store, MASTER, chance=chance, acknowledge=not self.is_copy, connect=self._network.connector(self.name)
        )
        self._run(self._copy())

    async def _copy(self) -> None:
        try:
            await self.slave.run()
        except ReplicaError as error:
            self.has_ended = True
            self._report.counts["replica errors"] += 1
            self.refused(error)

    def refused(self, error: ReplicaError) -> None:
        """The replication has stopped permanently. Replaced by the cluster."""

    async def kill(self) -> None:
        files = self._die()
        await asyncio.sleep(0)  # the canceled slave ends its connection
        with contextlib.suppress(asyncio.InvalidStateError):
            self.store.close()
        remains.lay(files, self.root)

    async def stop(self) -> None:
        self.log, self.is_up = self.read(), False
        for task in self._tasks:
            task.cancel()
        await asyncio.sleep(0)
        self._tasks.clear()
        self.store.close()
