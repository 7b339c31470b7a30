"""A slave for tests of masters: it keeps the bytes of the log in memory."""

from __future__ import annotations

import asyncio
import threading

from rocketc.ha.protocol import TransferDecoder, encode_report


class Slave(asyncio.Protocol):
    """A slave that keeps the bytes it gets. It reports when a test says so, or always."""

    def __init__(self, start, reports=False):
        self.decoder = TransferDecoder(capacity=1 << 20)
        self.start, self.reports, self.log, self.ended = start, reports, b"", False
        self.heartbeats_at, self.transport = [], None

    def connection_made(self, transport):
        self.transport = transport
        if self.start is not None:
            self.report(self.start)

    def report(self, offset):
        self.transport.write(encode_report(offset))

    def data_received(self, data):
        while data:
            room = self.decoder.room()
            n = min(len(room), len(data))
            room[:n] = data[:n]
            beats = self.decoder.heartbeats
            self.decoder.filled(n)
            data = data[n:]
            if self.decoder.heartbeats > beats:
                self.heartbeats_at.append(round(asyncio.get_running_loop().time(), 1))
            block = self.decoder.block
            self.log += block
            self.decoder.take(len(block))
        if self.reports and self.decoder.next_offset is not None:
            self.report(self.decoder.next_offset)

    @property
    def first_offset(self):
        return None if self.decoder.next_offset is None else self.decoder.next_offset - len(self.log)

    def connection_lost(self, error):
        self.ended = True


class SlaveThread:
    """A slave on real sockets, on a thread of its own."""

    def __init__(self, address, reports=True):
        self.address, self.slave, self._ready = address, Slave(0, reports), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        assert self._ready.wait(20)

    async def _run(self):
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        host, _, port = self.address.rpartition(":")
        transport, _ = await self._loop.create_connection(lambda: self.slave, host, int(port))
        self._ready.set()
        await self._end.wait()
        transport.abort()
        await asyncio.sleep(0)

    def close(self):
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
