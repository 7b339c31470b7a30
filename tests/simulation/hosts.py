"""The servers of a simulated cluster: they start, stop in order, are killed, and lose their power."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from crash import remains
from crash.disk import Disk, Event, Recorder, lay
from simulation.history import DELAYS, History
from simulation.network import Network

import rocketc
from rocketc.broker.config import BrokerConfig
from rocketc.broker.controller import BrokerController
from rocketc.namesrv.name_server import NameServer

EPOCH = 1_700_000_000_000  # ms: when the virtual time begins
NAME_SERVER = ("10.0.0.1", 9876)
PERSIST_SECONDS = 5.0
SMALL = {
    "mapped_file_size_commit_log": 1 << 16,
    "mapped_file_size_consume_queue": 2000,
    "max_hash_slot_num": 20,
    "max_index_num": 80,
    "max_message_size": 1 << 14,
    "message_delay_level": " ".join(f"{seconds:.0f}s" for seconds in DELAYS),
}


def wall_clock() -> int:
    return EPOCH + int(asyncio.get_running_loop().time() * 1000)


class NameServerHost:
    """The only name server, on the host `names`."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.up_since: float | None = None

    async def start(self) -> None:
        self.server = NameServer(clock=wall_clock, listens=False)
        await self.server.__aenter__()
        self._network.listen(NAME_SERVER, "names", self.server.connection)
        self.up_since = self._network.now()

    async def stop(self) -> None:
        self.up_since = None
        self._network.deaf(NAME_SERVER)
        for link in self._network.open_links("names"):
            self._network.trouble(link)
        await self.server.__aexit__()


class BrokerHost:
    """A broker, its store, and all of its lives.

    recorder  notes what the store does to its files, so that the machine may lose its power; None: it can't
    settings  of the broker
    """

    settings: Mapping[str, Any] = {}

    def __init__(
        self,
        name: str,
        root: Path,
        network: Network,
        history: History,
        store: dict[str, Any],
        recorder: Recorder | None,
    ) -> None:
        self.name, self._root, self._network, self._history = name, root, network, history
        self._fields, self._recorder = store, recorder
        self.address = (f"10.0.1.{ord(name[-1])}", 10911)
        self.life = 0
        self.up_since: float | None = None
        self.starts = self.down_since = 0.0
        self.offsets: deque[tuple[float, dict[Any, int]]] = deque(maxlen=16)  # of each second
        self._disk = Disk()
        self._events: list[Event] = []
        self._commits: list[tuple[float, Any, int]] = []  # between the samples too: offsets may go back and forth
        self._promised: dict[Any, list[int]] | None = None  # offsets that the next life must have, by key
        root.mkdir(parents=True)

    def clock(self) -> int:
        """The wall clock of the machine, in ms."""
        return wall_clock()

    async def start(self) -> None:
        self.life += 1
        self.starts = self._network.now()
        if self._recorder is not None:
            self._recorder.watch(self._root)
        self.store = rocketc.open(
            self._root, background=False, clock=self.clock, store_host=self.address, **{**SMALL, **self._fields}
        )
        config = BrokerConfig(
            broker_name=self.name, broker_ip1=self.address[0], listen_port=self.address[1], **self.settings
        )
        self.broker = BrokerController(
            self.store,
            config,
            self.address,
            name_servers=["%s:%d" % NAME_SERVER],
            clock=self.clock,
            chance=random.Random(self._network.chance.random()),
            connector=self._network.connector(self.name),
        )
        self._check_tables()
        self._watch_commits()
        await self.broker.start()
        self._network.listen(self.address, self.name, self.broker.server.connection)
        self.up_since = self._network.now()

    def _watch_commits(self) -> None:
        commit = self.broker.offsets.commit

        def watched(group: str, topic: str, queue_id: int, offset: int) -> None:
            self._commits.append((self._network.now(), (topic, group, queue_id), offset))
            commit(group, topic, queue_id, offset)

        self.broker.offsets.commit = watched  # type: ignore[method-assign]

    def _check_tables(self) -> None:
        table = self._table()
        for key, values in (self._promised or {}).items():
            if not min(values) <= table.get(key, -1) <= max(values):
                self._history.fault(f"{self.name}: the offset of {key} was {values}, now it is {table.get(key)}")
        for (topic, group, queue_id), offset in table.items():
            self._history.committed(group, (self.name, topic, queue_id), offset, f"life {self.life} of {self.name}")
        for topic in {one.queue[1] for one in self._history.acknowledged if one.queue[0] == self.name}:
            if topic not in self.broker.topics.table:
                self._history.fault(f"{self.name}: topic {topic} is gone")

    def _table(self) -> dict[Any, int]:
        return {(topic, group, queue): offset for topic, group, queue, offset in self.broker.offsets.table.items()}

    def look(self) -> None:
        """Look at the offsets, once a second."""
        if self.up_since is not None:
            self.offsets.append((self._network.now(), self._table()))
            for (topic, group, queue_id), offset in self.offsets[-1][1].items():
                self._history.committed(group, (self.name, topic, queue_id), offset, self.name)

    def _down(self, died: bool = True) -> None:
        now = self._network.now()
        self._history.downs.append((self.name, now))
        if died:
            self._history.deaths.append((self.name, now))
        self.look()
        since = max((at for at, _ in self.offsets if at <= now - PERSIST_SECONDS - 0.5), default=None)
        self._promised = {}
        if since is not None:
            first = next(table for at, table in self.offsets if at == since)
            late = [table for at, table in self.offsets if at >= since]
            self._promised = {key: [table[key] for table in late if key in table] for key in first}
            for at, key, offset in self._commits:
                if at >= since and key in self._promised:
                    self._promised[key].append(offset)
        self.offsets.clear()
        self._commits.clear()
        self.up_since, self.down_since = None, now
        self._network.deaf(self.address)

    async def stop(self) -> None:
        """End in order: nothing may be lost."""
        self._down(died=False)
        await self.broker.close()
        for link in self._network.open_links(self.name):
            self._history.fault(f"{self.name} ended, but its connection with {link.client} is open")
        self._promised = {key: [offset] for key, offset in self._table().items()}
        self.store.close()
        if self._recorder is not None:
            self._take()
            self._disk.go_on()

    def kill(self) -> None:
        """Nothing that was written is lost: the page cache stays."""
        self._down()
        self._network.kill(self.name)
        files: Callable[[], object]
        if self._recorder is not None:
            self._take()
            image = self._disk.latest()
            files = lambda: lay(image, self._root)  # noqa: E731
            self._disk.go_on()
        else:
            left = remains.take(self._root)
            files = lambda: remains.lay(left, self._root)  # noqa: E731
        self._bury()
        files()

    def lose_power(self) -> None:
        """Any of what was not synced may be lost."""
        assert self._recorder is not None
        self._down()
        self._network.silence(self.name)
        self._take()
        image = self._disk.image(self._network.chance)
        self._disk = Disk()
        self._bury()
        lay(image, self._root)

    def note_dead_letters(self, group: str) -> None:
        """Note all dead letters of a group."""
        topic = f"%DLQ%{group}"
        for message in self.store.get(topic, 0, self.store.min_offset(topic), 100_000).messages:
            self._history.dead.add((group, bytes(message.body).partition(b"|")[0], self.name))

    def _take(self) -> None:
        assert self._recorder is not None
        for event in self._recorder.take():
            self._disk.follow(event)

    def _bury(self) -> None:
        """Stop everything left of a broker that was killed."""
        broker = self.broker
        assert broker._services is not None and broker._changes is not None
        for task in broker._services._tasks:
            task.cancel()
        broker._changes.close()
        if broker.waits is not None:
            broker.waits.close()
        broker.name_servers.close()
        timers = broker.pulls.held._timer, broker.server._sweep, broker.vip_server._sweep, broker.op_marks._timer
        for timer in timers:
            if timer is not None:
                timer.cancel()
        self.store.close()
