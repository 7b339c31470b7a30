"""A name server, a master and its slave on virtual time, for the tests of slaves."""

import asyncio
import contextlib
import random
import struct
import types

from simulation import virtual
from simulation.brokers import EPOCH, SMALL, Client, scene

import rocketc
from rocketc.broker.config import BrokerConfig
from rocketc.broker.controller import BrokerController
from rocketc.namesrv.config import NamesrvConfig
from rocketc.namesrv.name_server import NameServer

NAMES = "10.0.0.9:9876"
MASTER, HA, SLAVE = ("10.0.0.1", 10911), ("10.0.0.1", 10912), ("127.0.0.1", 10911)


class ScriptedHa(asyncio.Protocol):
    """The HA service of a master, as simple as can be: after a report, it sends all of a log from there on."""

    def __init__(self, log, net):
        self.log, self.net, self.at, self.rest = log, net, None, b""
        net.ha.append(self)

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        data = self.rest + data
        whole = len(data) // 8 * 8
        reports, self.rest = [offset for (offset,) in struct.iter_unpack(">q", data[:whole])], data[whole:]
        self.net.reports += reports
        if self.at is None and reports:
            self.at = reports[0]
        if self.at is not None:
            self.send()

    def send(self):
        data = b"" if self.net.is_held else self.log.read_log(self.at)
        self.transport.write(struct.pack(">qi", self.at, len(data)) + data)
        self.at += len(data)

    def connection_lost(self, error):
        self.net.ha.remove(self)


class Cluster:
    """A name server, a master, and its slave, which is the stage of a test."""

    def __init__(self, root, chance, store, of_master=None):
        self.root, self.chance, self.store, self.of_master = root, chance, store, of_master or {}
        self.ha, self.reports = [], []
        self.master = self.log = None
        self.is_up = {MASTER: True, HA: True}
        self.links = []
        self.is_held = False  # nothing of the log goes to the slave

    async def pump(self):
        """Send what comes into the log."""
        while True:
            await asyncio.sleep(0.1)
            for one in self.ha:
                if one.at is not None and one.at < self.log.max_phy_offset and not self.is_held:
                    one.send()

    async def start(self, stack):
        clock = lambda: EPOCH + int(asyncio.get_running_loop().time() * 1000)  # noqa: E731
        self.names = await stack.enter_async_context(NameServer(NamesrvConfig(), clock=clock, listens=False))
        await self.start_master(clock)

    async def start_master(self, clock):
        how = {**SMALL, **self.store}
        self.log = rocketc.open(self.root / "master", background=False, clock=clock, store_host=MASTER, **how)
        self.master = BrokerController(
            self.log,
            BrokerConfig(**self.of_master),
            MASTER,
            name_servers=[NAMES],
            clock=clock,
            chance=self.chance,
            connector=self.connector,
        )
        await self.master.start()
        self.pumping = asyncio.ensure_future(self.pump())

    async def stop_master(self):
        self.is_up = dict.fromkeys(self.is_up, False)
        for one in list(self.ha):
            one.transport.abort()
        self.pumping.cancel()
        await self.master.close()
        self.log.close()
        self.master = None

    def connector(self, host, port):
        async def connect(factory):
            place = (host, port)
            if not self.is_up.get(place, True):
                raise ConnectionRefusedError(111, "Connection refused")
            if place == HA:
                far = ScriptedHa(self.log, self)
            elif place == MASTER:
                far = self.master.server.connection()
            else:
                far = self.names.connection()
            self.links.append(virtual.link(factory(), far, self.chance)[0])

        return connect

    async def put(self, topic="orders", count=1, queue_id=0, **fields):
        """Put messages at the master, and wait until the slave has them in its queues."""
        self.master.topics.create_if_missing(topic, 4)
        for n in range(count):
            self.log.put(topic, b"m%d" % n, queue_id=queue_id, **fields)
        await asyncio.sleep(0.5)

    def client(self):
        """A client of the master."""
        return Client(types.SimpleNamespace(broker=self.master, chance=self.chance, delay=(0.0, 0.0)))

    def brokers(self):
        route = self.names.routes.route("TBW102")
        return {} if route is None else dict(route.brokers[0].addresses)


def play(root, test, *, with_master=True, store=None, of_master=None, **config):
    """Run test(stage, cluster) on virtual time. of_master: fields of the master's BrokerConfig; config: the slave's."""

    async def whole():
        chance = random.Random(1)
        async with contextlib.AsyncExitStack() as stack:
            cluster = Cluster(root, chance, store or {}, of_master)
            if with_master:
                await cluster.start(stack)
            config.setdefault("broker_id", 1)
            stage = await stack.enter_async_context(
                scene(
                    root / "slave",
                    store={"broker_role": "SLAVE", **(store or {})},
                    name_servers=[NAMES] if with_master else [],
                    connector=cluster.connector,
                    **config,
                )
            )
            await asyncio.sleep(0.5)
            try:
                await test(stage, cluster)
            finally:
                if cluster.master is not None:
                    await cluster.stop_master()

    virtual.run(whole())
