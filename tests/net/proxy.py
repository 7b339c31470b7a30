"""A TCP proxy for tests: it records what passes, and delays, cuts, half-closes or resets connections by rules.

    async with Proxy(("127.0.0.1", 10911), rules=[Rule("reset", to_server=False, after=100)]) as proxy:
        ...                      # connect to proxy.address
    proxy.pieces                 # what passed, in order
    proxy.cut()                  # all connections that are open
    proxy.passes.clear()         # nothing passes until passes.set()

A rule of a connection acts in one direction, when `after` bytes have passed in it; the bytes before it do pass.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Piece(NamedTuple):
    """Bytes that passed: connections count from 0."""

    connection: int
    to_server: bool
    data: bytes


@dataclass(frozen=True)
class Rule:
    """What happens to a connection.

    what        "delay": wait `seconds`, then continue; "cut": close both sides; "half": pass on an end of the stream in
                this direction, and drop what follows; "reset": end both sides with RST
    to_server   the direction whose bytes are counted
    after       bytes
    connection  a number, or None for all
    """

    what: str
    to_server: bool = True
    after: int = 0
    seconds: float = 0.0
    connection: int | None = None


class Proxy:
    """Accepts connections on a free port, and makes one to the target for each."""

    def __init__(
        self, target: tuple[str, int], host: str = "127.0.0.1", port: int = 0, rules: Sequence[Rule] = ()
    ) -> None:
        self.target, self.rules = target, list(rules)
        self.pieces: list[Piece] = []
        self._listen, self._count = (host, port), 0
        self._open: list[list[asyncio.StreamWriter]] = []  # the two sides of each connection
        self.passes = asyncio.Event()
        self.passes.set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._accept, *self._listen)
        self.address: tuple[str, int] = self._server.sockets[0].getsockname()[:2]
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self, reset: bool = False) -> None:
        """End all connections. reset: with RST"""
        for sides in self._open:
            _abort(sides, reset)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        number, self._count = self._count, self._count + 1
        sides = [writer]
        self._open.append(sides)
        try:
            far_reader, far_writer = await asyncio.open_connection(*self.target)
            sides.append(far_writer)
            await asyncio.gather(
                self._pass(number, True, reader, far_writer, sides),
                self._pass(number, False, far_reader, writer, sides),
            )
        except (OSError, asyncio.CancelledError):
            pass  # a side has gone, the target is not there, or the proxy ends: each side sees its connection end
        finally:
            self._open.remove(sides)
            for side in sides:
                side.close()

    async def _pass(
        self,
        number: int,
        to_server: bool,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        sides: list[asyncio.StreamWriter],
    ) -> None:
        """Move bytes in one direction until it ends."""
        rules = [rule for rule in self.rules if rule.to_server == to_server and rule.connection in (None, number)]
        rules.sort(key=lambda rule: rule.after)
        passed = 0
        while True:
            while rules and rules[0].after == passed:
                rule = rules.pop(0)
                if rule.what == "delay":
                    await asyncio.sleep(rule.seconds)
                elif rule.what == "half":
                    writer.write_eof()
                    while await reader.read(1 << 16):
                        pass
                    return
                else:
                    _abort(sides, rule.what == "reset")
                    return
            data = await reader.read(min(1 << 16, rules[0].after - passed) if rules else 1 << 16)
            if not data:
                writer.write_eof()
                return
            passed += len(data)
            self.pieces.append(Piece(number, to_server, data))
            await self.passes.wait()
            writer.write(data)
            await writer.drain()


def _abort(sides: list[asyncio.StreamWriter], reset: bool) -> None:
    for side in sides:
        if side.is_closing():
            continue
        if reset:
            linger = struct.pack("ii", 1, 0)
            side.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        side.transport.abort()
