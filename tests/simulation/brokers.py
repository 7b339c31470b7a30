"""A broker with its real store on virtual time, and clients on a network in memory."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from simulation import virtual

from rocketc.broker.config import BrokerConfig
from rocketc.broker.controller import BrokerController
from rocketc.config import StoreConfig
from rocketc.remoting.channel import Channel
from rocketc.remoting.command import Command
from rocketc.store.opening import open_master

EPOCH = 1_700_000_000_000  # ms: when the virtual time begins
HOST = ("127.0.0.1", 10911)
SMALL = {
    "mapped_file_size_commit_log": 1 << 20,
    "mapped_file_size_consume_queue": 20_000,
    "max_hash_slot_num": 1000,
    "max_index_num": 4000,
}


class Client:
    """A client of a broker: calls, and the requests that the broker sends to it."""

    def __init__(self, scene: Scene, vip: bool = False) -> None:
        self.pushed: list[Command] = []
        self.transport: virtual.MemoryTransport | None = None
        self._scene, self._vip = scene, vip
        self.channel = Channel(self._connect, scene.chance, lambda request, reply: self.pushed.append(request))

    async def _connect(self, factory):
        broker = self._scene.broker
        server = broker.vip_server if self._vip else broker.server
        self.transport, self.far = virtual.link(factory(), server.connection(), self._scene.chance, self._scene.delay)

    async def call(self, code: int, body: bytes = b"", timeout: float = 30.0, **values: Any) -> Command:
        return await self.channel.call(code, values, asyncio.get_running_loop().time() + timeout, body)

    async def send(self, topic="orders", body=b"body", code=310, properties="UNIQ_KEY\1K1\2", **values):
        told = {
            "producerGroup": "shop", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
            "queueId": 0, "sysFlag": 0, "bornTimestamp": EPOCH, "flag": 0, "properties": properties,
        }  # fmt: skip
        return await self.call(code, body, **{**told, **values})

    async def pull(self, topic="orders", queue_id=0, offset=0, group="audit", subscription="*", wait=0, **values):
        told = {
            "consumerGroup": group, "topic": topic, "queueId": queue_id, "queueOffset": offset, "maxMsgNums": 32,
            "sysFlag": 6 if wait else 4, "commitOffset": 0, "suspendTimeoutMillis": wait, "subscription": subscription,
            "subVersion": 1,
        }  # fmt: skip
        return await self.call(11, **{**told, **values})


class Scene:
    """One broker, its store and its clients."""

    def __init__(self, root: Path, seed: int, delay: tuple[float, float], config: BrokerConfig, store: dict[str, Any]):
        self.chance, self.delay = random.Random(seed), delay
        self._root, self._config, self._store = root, config, store

    def now(self) -> int:
        return EPOCH + int(asyncio.get_running_loop().time() * 1000)

    async def start(self, **controller: Any) -> None:
        config = StoreConfig.of(store_host=HOST, **{**SMALL, **self._store})
        self.store = open_master(self._root, config, background=False, clock=self.now)
        self.broker = BrokerController(
            self.store, self._config, HOST, clock=self.now, chance=random.Random(self.chance.random()), **controller
        )
        await self.broker.start()

    async def end(self) -> None:
        await self.broker.close()
        self.store.close()

    async def settle(self) -> None:
        """Let the store dispatch what it has."""
        while self.store.step():
            pass
        await asyncio.sleep(0.1)

    def client(self, **how: Any) -> Client:
        return Client(self, **how)


@contextlib.asynccontextmanager
async def scene(
    root: Path,
    seed: int = 1,
    delay: tuple[float, float] = (0.0, 0.01),
    store: dict[str, Any] | None = None,
    name_servers: list[str] | None = None,
    connector: Any = None,
    conf: Any = None,
    **config: Any,
) -> AsyncIterator[Scene]:
    made = Scene(root, seed, delay, BrokerConfig(**config), store or {})
    await made.start(name_servers=name_servers, connector=connector, conf=conf)
    try:
        yield made
    finally:
        await made.end()
