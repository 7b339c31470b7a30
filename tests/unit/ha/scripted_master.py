"""A master on the virtual loop, as RocketMQ's sends: it has a log of bytes, and notes what slaves report."""

import asyncio
import random

from simulation import virtual

from rocketc.ha.protocol import ReportDecoder, encode_header

BATCH = 32 << 10
ADDRESS = ("10.0.0.1", 10912)


class ScriptedMaster:
    """A master that can be reached, or not.

    log        its bytes from physical offset 0 on
    start      the log begins here: the bytes before it were deleted
    file_size  of its log files
    heartbeat  seconds between heartbeats
    answer     called with (connection, report) for the first report instead of the default answer
    reports    (time, offset) of each report
    """

    def __init__(self, log=b"", file_size=1 << 20, start=0, seed=1, delay=(0.0, 0.01)):
        self.log, self.file_size, self.start = log, file_size, start
        self.chance, self.delay = random.Random(seed), delay
        self.answer, self.heartbeat = None, 5.0
        self.is_reachable = True
        self.reports, self.attempts, self.links = [], [], []

    def connector(self, host, port):
        async def connect(protocol):
            self.attempts.append((asyncio.get_running_loop().time(), host, port))
            if not self.is_reachable:
                raise ConnectionRefusedError(111, "Connection refused")
            link = Served(self)
            virtual.link(protocol(), link, self.chance, self.delay)
            self.links.append(link)

        return connect

    def grow(self, data):
        self.log += data
        for link in self.links:
            link.send_more()

    def cut(self):
        for link in self.links:
            link.transport.cut()
        self.links.clear()


class Served(asyncio.Protocol):
    """A connection of the master."""

    def __init__(self, master):
        self._master, self._reports, self._loop = master, ReportDecoder(), asyncio.get_running_loop()
        self.next = None
        self._timer = None

    def connection_made(self, transport):
        self.transport = transport

    def connection_lost(self, error):
        if self._timer is not None:
            self._timer.cancel()
        if self in self._master.links:
            self._master.links.remove(self)

    def data_received(self, data):
        report = self._reports.receive(data)
        if report is None:
            return
        self._master.reports.append((self._loop.time(), report))
        if self.next is not None:
            return
        end = len(self._master.log)
        self.next = report or end - end % self._master.file_size
        if self._master.answer is not None:
            self._master.answer(self, report)
        else:
            self._heartbeat()
            self.send_more()

    def _heartbeat(self):
        if self.next is not None and not self.transport.is_closing():
            self.transport.write(encode_header(self.next, 0))
            self._timer = self._loop.call_later(self._master.heartbeat, self._heartbeat)

    def send_more(self):
        log = self._master.log
        if self.next is None or self._master.answer is not None:
            return
        while self._master.start <= self.next < len(log):
            n = min(BATCH, self._master.file_size - self.next % self._master.file_size, len(log) - self.next)
            self.transport.write(encode_header(self.next, n) + log[self.next : self.next + n])
            self.next += n
