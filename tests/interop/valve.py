"""A TCP proxy that a test opens, slows and shuts while connections are open."""

from __future__ import annotations

import asyncio
import threading


class Valve:
    """Passes bytes between clients and a server, on a thread of its own.

    host, port  where it listens; port 0: a free one

    state  "open", "slow" (0.2 s for each piece), or "shut" (nothing passes, and nothing is lost)
    """

    def __init__(self, target: tuple[str, int], host: str = "127.0.0.1", port: int = 0) -> None:
        self.target, self.state = target, "open"
        self._listens = host, port
        self._ready, self._end = threading.Event(), asyncio.Event()
        self._sides: list[asyncio.StreamWriter] = []
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        self._ready.wait()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._accept, *self._listens)
        self.address: tuple[str, int] = server.sockets[0].getsockname()[:2]
        self._ready.set()
        await self._end.wait()
        server.close()
        self._reset()
        await asyncio.sleep(0.05)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sides = [writer]
        try:
            far_reader, far_writer = await asyncio.open_connection(*self.target)
            sides.append(far_writer)
            self._sides += sides
            await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))
        except OSError:
            pass  # the server has gone: the client sees the end
        finally:
            for side in sides:
                side.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            while self.state == "shut":
                await asyncio.sleep(0.02)
            if self.state == "slow":
                await asyncio.sleep(0.2)
            writer.write(data)
            await writer.drain()
        writer.close()

    def cut(self) -> None:
        """Reset all connections."""
        self._loop.call_soon_threadsafe(self._reset)

    def _reset(self) -> None:
        for side in self._sides:
            side.transport.abort()
        self._sides.clear()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
