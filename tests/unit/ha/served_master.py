"""A scripted master on a real socket, and its broker, which answers what `rocketc replicate` asks."""

import asyncio
import contextlib
from unittest import mock

from unit.cli.scripted_server import Server, table
from unit.ha.scripted_master import ScriptedMaster, Served

import rocketc
from rocketc.client.loop_thread import LoopThread
from rocketc.remoting.command import Command
from rocketc.remoting.requests import CODES

FILE = 1 << 16
SMALL = {"mapped_file_size_commit_log": FILE, "max_hash_slot_num": 100, "max_index_num": 1000}
NO_PERMISSION, SYSTEM_ERROR = 16, 1


def make_log(path, count, **settings):
    """The bytes of a log of messages."""
    with rocketc.open(path, **{**SMALL, **settings}) as store:
        for n in range(count):
            store.put("orders", b"%05d" % n * 40, keys=f"k{n}")
        at, log = 0, b""
        while block := store.read_log(at, 1 << 20):
            at, log = at + len(block), log + block
    return log


class ServedMaster(ScriptedMaster):
    """Use it in a `with` block.

    address   of the HA service
    broker    of the broker
    refuses   the broker refuses all requests
    faults    the number of its next answers about the log that are SYSTEM_ERROR
    settings  of the broker, as GET_BROKER_CONFIG shows them
    """

    def __init__(self, log, file_size=FILE, start=0, **settings):
        super().__init__(log, file_size, start)
        self.settings = {"mappedFileSizeCommitLog": file_size, "slaveTimeout": 1, **settings}
        self.refuses, self.heartbeat, self.faults = False, 0.1, 0

    def _answer(self, code):
        if self.refuses:
            return Command(NO_PERMISSION, remark="no permission")
        if code == CODES["GET_BROKER_CONFIG"]:
            return Command(0, body="".join(f"{name}={value}\n" for name, value in self.settings.items()).encode())
        self.faults -= 1
        if self.faults >= 0:
            return Command(SYSTEM_ERROR, remark="java.util.NoSuchElementException")
        return table(commitLogMinOffset=str(self.start), commitLogMaxOffset=str(len(self.log)))

    async def _listen(self):
        def serve():
            self.links.append(Served(self))
            return self.links[-1]

        self._listening = await asyncio.get_running_loop().create_server(serve, "127.0.0.1", 0)
        return self._listening.sockets[0].getsockname()[1]

    async def _close(self):
        self._listening.close()
        for link in list(self.links):
            link.transport.abort()
        await asyncio.sleep(0)

    def later(self, call, *arguments):
        """Call a method on the loop, and wait for it."""

        async def work():
            call(*arguments)

        self._thread.run(work())

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self._thread = stack.enter_context(LoopThread())
            self.port = self._thread.run(self._listen())
            stack.callback(lambda: self._thread.run(self._close()))
            server = Server(self._answer)
            stack.callback(server.close)
            stack.enter_context(mock.patch("rocketc.jobs.replicate.LEAST_SETTLE", 0.0))
            stack.enter_context(mock.patch("rocketc.jobs.replicate.MORE_SETTLE", 0.0))
            stack.enter_context(mock.patch("rocketc.jobs.replicate.AGAIN_SECONDS", 0.0))
            self._ending = stack.pop_all()
        self.address, self.broker = f"127.0.0.1:{self.port}", server.url.removeprefix("rocketmq://")
        return self

    def __exit__(self, *error):
        self._ending.close()
