"""A client of the remoting protocol for tests on virtual time: it asks, and waits for the answer."""

from __future__ import annotations

import asyncio
from typing import Any

from rocketc.remoting._frames import FrameDecoder
from rocketc.remoting.command import LARGEST, VERSION, Command
from rocketc.remoting.requests import CODES, REQUESTS


class Asking(asyncio.Protocol):
    """One connection. `requests` has the requests that the server sent by itself."""

    def __init__(self):
        self.requests: list[Command] = []
        self.lost = False
        self._decoder = FrameDecoder(LARGEST)
        self._waiting: dict[int, asyncio.Future[Command]] = {}
        self._opaque = 0

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        for frame in self._decoder.receive(data):
            command = Command.decode(*frame)
            if command.is_answer:
                self._waiting.pop(command.opaque).set_result(command)
            else:
                self.requests.append(command)

    def connection_lost(self, error):
        self.lost = True
        for answer in self._waiting.values():
            answer.set_exception(error or ConnectionResetError("the server closed the connection"))

    async def send(self, code: int, fields: dict[str, str], body: bytes = b"", version: int = VERSION) -> Command:
        """Send a request with these fields as they are; return the answer."""
        if self.lost:
            raise ConnectionResetError("the connection is closed")
        self._opaque += 1
        self.transport.write(Command(code, fields, body, self._opaque, version=version).encode())
        answer = self._waiting[self._opaque] = asyncio.get_running_loop().create_future()
        return await answer

    async def ask(self, name: str, body: bytes = b"", version: int = VERSION, **values: Any) -> Command:
        """Send a request of the table of requests, by its name and values."""
        request = REQUESTS[CODES[name]]
        return await self.send(request.code, request.encode(values), body, version)
