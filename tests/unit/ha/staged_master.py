"""A master with a real store, and slaves on links of a network in memory."""

import asyncio
import random

from simulation import virtual
from simulation.slaves import Slave

from rocketc.ha.master import Master
from rocketc.status import PutStatus

FILE_SIZE = 64 << 10
OK, TIMEOUT, NOT_AVAILABLE = PutStatus.PUT_OK, PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.SLAVE_NOT_AVAILABLE


class Stage:
    """A master with its store, and slaves on links."""

    def __init__(self, store, settings):
        self.store, self.chance = store, random.Random(3)
        self.master = Master(store, FILE_SIZE, settings)
        self.answers = []

    def slave(self, start=0, reports=True, delay=(0.0, 0.01)):
        slave = Slave(start, reports)
        virtual.link(slave, self.master.connection(), self.chance, delay)
        return slave

    def put(self, count=1, size=100):
        for _ in range(count):
            self.store.put("orders", self.chance.randbytes(size))

    def log(self, start, end=None):
        out, end = b"", self.store.max_phy_offset if end is None else end
        while start + len(out) < end:
            out += self.store.read_log(start + len(out), end - start - len(out))
        return out

    def wait(self):
        """Wait for the whole log as a send does; the outcome goes to `answers`."""
        loop = asyncio.get_running_loop()
        self.master.transfer.add(
            self.store.max_phy_offset, lambda status: self.answers.append((status, round(loop.time(), 2)))
        )


def report(slave, offset):
    slave.report(offset)
    return asyncio.sleep(0.1)
