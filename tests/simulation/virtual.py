"""Virtual time and a network in memory: an hour of retries takes milliseconds, and the same seed gives the same run."""

from __future__ import annotations

import asyncio
import contextvars
import random
import selectors
from collections import deque
from typing import Any


class _Jump(selectors.DefaultSelector):
    """If nothing is ready, go to the time of the next timer instead of waiting for it."""

    loop: VirtualLoop

    def select(self, timeout=None):
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("deadlock: there is neither a timer nor a ready socket, so nothing will happen")
        if not ready and timeout > 0:
            self.loop.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time moves only when all tasks wait."""

    def __init__(self):
        self.now = 0.0
        selector = _Jump()
        selector.loop = self
        super().__init__(selector)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self.now


def run(main: Any, kind: type[VirtualLoop] = VirtualLoop) -> Any:
    """Run a coroutine on a new loop."""
    loop = kind()
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(main)
    finally:
        asyncio.set_event_loop(None)
        loop.close()


class MemoryTransport(asyncio.Transport):
    """One end of a link. Bytes arrive in order, in pieces, each after a delay. cut() loses what is on its way."""

    other: MemoryTransport
    context: contextvars.Context | None = None  # of the process at this end; None: of the caller

    def __init__(self, protocol, chance: random.Random, delay=(0.0, 0.01), name=("memory", 0)):
        super().__init__({"peername": name})
        self._loop = asyncio.get_running_loop()
        self._protocol, self._chance, self._delay = protocol, chance, delay
        self._inbox: deque[bytes] = deque()  # arrived or on the way, oldest first
        self._size = 0  # bytes of the inbox
        self._arrived = 0  # the number of pieces that have arrived
        self._last = 0.0  # when the newest piece arrives
        self._closing, self.reading = False, True
        self._high, self._is_paused = 64 << 10, False

    def write(self, data):
        other, data = self.other, bytes(data)
        while data and not self._closing:
            n = self._chance.randint(1, len(data)) if len(data) < 1 << 16 else len(data)
            other._inbox.append(data[:n])
            other._size += n
            other._last = max(other._last, self._loop.time() + self._chance.uniform(*self._delay))
            self._loop.call_at(
                other._last, other._arrive, context=other.context
            )  # timers of one time run in any order: the inbox keeps it
            data = data[n:]
        self._control()

    def writelines(self, pieces):
        self.write(b"".join(pieces))

    def set_protocol(self, protocol):
        self._protocol = protocol

    def set_write_buffer_limits(self, high=None, low=None):
        self._high = high if high is not None else 64 << 10

    def get_write_buffer_size(self):
        return self.other._size

    def _control(self):
        """Tell the protocol when its peer leaves too much unread, and when that ends."""
        size = self.get_write_buffer_size()
        if size > self._high and not self._is_paused:
            self._is_paused = True
            self._protocol.pause_writing()
        elif size <= self._high // 4 and self._is_paused:
            self._is_paused = False
            self._protocol.resume_writing()

    def _arrive(self):
        self._arrived += 1
        self._deliver()

    def _deliver(self):
        while self._arrived and self.reading and not self._closing:
            self._arrived -= 1
            data = self._inbox.popleft()
            self._size -= len(data)
            self._give(data)
        if not self.other._closing:
            self.other._control()

    def _give(self, data):
        """Give a piece to the protocol, as a transport of sockets does."""
        if not isinstance(self._protocol, asyncio.BufferedProtocol):
            self._protocol.data_received(data)
            return
        while data and self.reading and not self._closing:
            room = self._protocol.get_buffer(-1)
            n = min(len(room), len(data))
            room[:n] = data[:n]
            self._protocol.buffer_updated(n)
            data = data[n:]
        if data:  # the protocol has paused
            self._inbox.appendleft(data)
            self._size += len(data)
            self._arrived += 1

    def pause_reading(self):
        self.reading = False

    def resume_reading(self):
        self.reading = True
        self._loop.call_soon(self._deliver)

    def is_closing(self):
        return self._closing

    def close(self):
        if not self._closing:
            self._closing = True
            end = max(self.other._last, self._loop.time()) + 1e-6
            self._loop.call_at(end, self.other._end, None, context=self.other.context)
            self._loop.call_soon(self._protocol.connection_lost, None)

    def abort(self):
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._protocol.connection_lost, None)
            self._loop.call_soon(self.other._end, ConnectionResetError("aborted"), context=self.other.context)

    def _end(self, error):
        if not self._closing:
            self._closing = True
            self._protocol.connection_lost(error)

    def cut(self):
        for end in (self, self.other):
            end._end(ConnectionResetError("cut"))


def link(first, second, chance: random.Random, delay=(0.0, 0.01)) -> tuple[MemoryTransport, MemoryTransport]:
    """Connect two protocols; return the transport of each."""
    one, two = MemoryTransport(first, chance, delay, ("one", 1)), MemoryTransport(second, chance, delay, ("two", 2))
    one.other, two.other = two, one
    first.connection_made(one)
    second.connection_made(two)
    return one, two
