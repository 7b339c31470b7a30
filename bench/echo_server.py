"""Floors for a broker: uvloop, the same bytes in and out, and no other work: `python echo_server.py KIND SIZE ARGUMENT`

sends SIZE FILE    SIZE: bytes of a request. Each gets the bytes of FILE; all answers of one read event in one write
lengths SIZE FILE  the same, but the length of each request is read from its frame
pulls SIZE BYTES   each request gets an answer of BYTES from a mapped file, by one sendmsg
held COUNT FILE    holds the first frame of each connection. A connection that sends COUNT frames in a row gets COUNT
                   times the answer FILE, and so does each connection that is held, once

It prints its port. The end of its input ends it.
"""

import asyncio
import collections
import mmap
import os
import socket
import struct
import sys
import tempfile
from pathlib import Path

import uvloop

MAPPED = 64 << 20


class Sends(asyncio.Protocol):
    """Requests have one size, so they are counted by a division."""

    size = 0
    answers = b""
    one = 0

    def connection_made(self, transport):
        self._transport, self._rest = transport, 0

    def data_received(self, data):
        frames, self._rest = divmod(self._rest + len(data), self.size)
        if frames:
            self._transport.write(self.answers[: frames * self.one])


class Lengths(Sends):
    def connection_made(self, transport):
        self._transport, self._rest = transport, b""

    def data_received(self, data):
        if self._rest:
            data = self._rest + data
        frames, at, end = 0, 0, len(data)
        while end - at >= 4:
            size = 4 + int.from_bytes(data[at : at + 4], "big")
            if end - at < size:
                break
            at += size
            frames += 1
        self._rest = data[at:]
        if frames:
            self._transport.write(self.answers[: frames * self.one])


class Held(asyncio.Protocol):
    """The first frame of a connection is a pull, unless many come at once: then it is the sender."""

    count = 0
    answer = b""
    waiting: list = []  # noqa: RUF012

    def connection_made(self, transport):
        self._transport, self._frames, self._is_sender, self._rest = transport, 0, False, b""

    def connection_lost(self, error):
        self.waiting[:] = [one for one in self.waiting if one is not self._transport]

    def data_received(self, data):
        self._rest += data
        frames = 0
        while len(self._rest) >= 4 and len(self._rest) >= (size := 4 + int.from_bytes(self._rest[:4], "big")):
            self._is_sender = self._is_sender or b'"code":310' in self._rest[:size]
            self._rest = self._rest[size:]
            frames += 1
        if not self._is_sender:
            self.waiting += [self._transport] * frames
            return
        self._transport.write(self.answer * frames)
        self._frames += frames
        if self._frames == self.count:
            self._frames, waiting = 0, self.waiting[:]
            self.waiting.clear()
            for transport in waiting:
                transport.write(self.answer)


class Pulls:
    """Answers by sendmsg(), on a socket that the loop watches."""

    def __init__(self, loop, accepted: socket.socket, size: int, total: int):
        self._loop, self._socket, self._size, self._rest = loop, accepted, size, 0
        file = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the map)
        file.truncate(MAPPED)
        self._map = mmap.mmap(file.fileno(), MAPPED)
        for at in range(0, MAPPED, 1 << 20):
            self._map[at : at + (1 << 20)] = b"x" * (1 << 20)
        head = b'{"code":0}'
        self._head = struct.pack(">II", total - 4, len(head)) + head
        self._view, self._body, self._at = memoryview(self._map), total - len(self._head), 0
        self._unsent: collections.deque = collections.deque()
        loop.add_reader(accepted, self._read)

    def _read(self):
        data = self._socket.recv(1 << 18)
        if not data:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            return
        frames, self._rest = divmod(self._rest + len(data), self._size)
        for _ in range(frames):
            self._at = 0 if self._at + 2 * self._body > MAPPED else self._at + self._body
            answer = [self._head, self._view[self._at : self._at + self._body]]
            if self._unsent or not self._send(answer):
                self._unsent.append(answer)

    def _send(self, answer) -> bool:
        """Send an answer; False, and what is left in `answer`, if the socket is full."""
        try:
            done = self._socket.sendmsg(answer)
        except BlockingIOError:
            done = 0
        head = len(answer[0])
        if done == head + len(answer[1]):
            return True
        answer[:] = [answer[0][done:], answer[1][max(0, done - head) :]]
        self._loop.add_writer(self._socket, self._write)
        return False

    def _write(self):
        while self._unsent:
            if not self._send(self._unsent[0]):
                return
            self._unsent.popleft()
        self._loop.remove_writer(self._socket)


async def main(kind: str, size: int, more: str):
    loop = asyncio.get_running_loop()
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    listening.setblocking(False)
    ended = asyncio.Event()
    loop.add_reader(sys.stdin, ended.set)
    if kind == "pulls":

        async def accept():
            while True:
                accepted, _ = await loop.sock_accept(listening)
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                Pulls(loop, accepted, size, int(more))

        task = asyncio.ensure_future(accept())
    else:
        answer = Path(more).read_bytes()
        protocol = {"sends": Sends, "lengths": Lengths, "held": Held}[kind]
        Sends.size, Sends.answers, Sends.one = size, answer * 4096, len(answer)
        Held.count, Held.answer = size, answer
        task = await loop.create_server(protocol, sock=listening)
    print(listening.getsockname()[1], flush=True)
    await ended.wait()
    del task
    os._exit(0)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
