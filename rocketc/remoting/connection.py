"""One connection of a server: bytes in, answers out, and how much of each at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rocketc.remoting._frames import FrameDecoder

_log = logging.getLogger("rocketc.remoting")

Frame = tuple[int, bytes, bytes]  # form of the header, header, body


@dataclass(frozen=True)
class Limits:
    """The limits of a server.

    in_flight        requests of one connection that are not answered yet; at the limit its socket is not read
    bytes_in_flight  bytes of the unanswered requests of all connections; at the limit no socket is read
    unread           bytes of answers that a peer has not read; above it, its socket is not read
    unread_most      the same; above it, the connection is closed
    idle             seconds without a byte in either direction, after which a connection is closed (RocketMQ:
                     serverChannelMaxIdleTimeSeconds)
    half_frame       seconds that a peer may take for one frame
    connections      at a time; more are closed at once
    """

    in_flight: int = 1024
    bytes_in_flight: int = 256 << 20
    unread: int = 1 << 20
    unread_most: int = 64 << 20
    idle: float = 120.0
    half_frame: float = 60.0
    connections: int = 65_535


class Owner(Protocol):
    """What a connection needs from its server."""

    limits: Limits

    def opened(self, connection: Connection) -> bool:
        """Note a new connection. False: there are too many."""
        ...

    def lost(self, connection: Connection) -> None: ...

    def handle(self, connection: Connection, frame: Frame, reply: Callable[[bytes], None]) -> None:
        """Process a frame. Call `reply` once, now or later; with b"" if there is no answer."""
        ...

    def turn_away(self, connection: Connection, frame: Frame) -> bytes:
        """Return the answer to a request while the server ends; b"" for none."""
        ...

    def take(self, connection: Connection, size: int) -> bool:
        """Take room for a request of this size. False: there is none; resume() follows when there is."""
        ...

    def give_back(self, size: int) -> None: ...


class Connection(asyncio.Protocol):
    """The protocol of one accepted connection."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._limits = owner.limits
        self._decoder = FrameDecoder()
        self._frames: list[Frame] = []  # complete, and not passed to the server yet
        self._answers: list[bytes] = []  # of this turn of the loop: one writelines() for all
        self._size_in_flight = 0  # bytes of these requests
        self.in_flight = 0  # requests that the server has, and has not answered
        self._is_reading = True
        self._peer_reads = True  # False while it leaves too many answers unread
        self.is_closing = False
        self._drained: asyncio.Future[None] | None = None  # of close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.peer = transport.get_extra_info("peername")
        self._loop = asyncio.get_running_loop()
        self.last_active = self._loop.time()
        self._half_since: float | None = None  # when the incomplete frame began to arrive
        transport.set_write_buffer_limits(self._limits.unread)
        if not self._owner.opened(self):
            transport.abort()

    def data_received(self, data: bytes) -> None:
        self.last_active = self._loop.time()
        frames = self._decoder.receive(data)
        self._frames += frames
        if self._decoder.waiting == 0:
            self._half_since = None
        elif frames or self._half_since is None:
            self._half_since = self.last_active
        self._pass_on()
        if self._decoder.is_corrupt:
            _log.warning("%s: this is not RocketMQ's protocol; the connection is closed", self.peer)
            self._transport.abort()

    def _pass_on(self) -> None:
        """Pass frames to the server while the limits allow it; then decide whether the socket is read."""
        if self.is_closing:
            self._turn_away()
            return
        passed = 0
        while passed < len(self._frames) and self._may_take():
            frame = self._frames[passed]
            size = len(frame[1]) + len(frame[2])
            if not self._owner.take(self, size):
                break
            passed += 1
            self.in_flight += 1
            self._size_in_flight += size
            self._owner.handle(self, frame, self._replier(size))
        del self._frames[:passed]
        reading = self._may_take() and not self._frames
        if reading != self._is_reading and not self._transport.is_closing():
            self._is_reading = reading
            (self._transport.resume_reading if reading else self._transport.pause_reading)()

    def _may_take(self) -> bool:
        has_room = self._peer_reads and self.in_flight < self._limits.in_flight
        return has_room and not self._transport.is_closing()

    def _turn_away(self) -> None:
        """The server ends: it does not process the frames that arrive, but answers them."""
        frames, self._frames = self._frames, []
        for frame in frames:
            if (answer := self._owner.turn_away(self, frame)) and not self._transport.is_closing():
                self.write(answer)
        if not self._is_reading and self._peer_reads and not self._transport.is_closing():
            self._is_reading = True
            self._transport.resume_reading()

    def _replier(self, size: int) -> Callable[[bytes], None]:
        """Make the function that answers one request; a second call does nothing."""
        is_answered = False

        def reply(answer: bytes) -> None:
            nonlocal is_answered
            if is_answered:
                return
            is_answered = True
            self.in_flight -= 1
            if self._size_in_flight > 0:  # otherwise the connection is lost
                self._size_in_flight -= size
                self._owner.give_back(size)
            self.write(answer)

        return reply

    def write(self, frame: bytes) -> None:
        """Send a frame with the others of this turn of the loop; b"" only sends what waits."""
        if not self._answers:
            self._loop.call_soon(self._flush)
        self._answers.append(frame)

    def _flush(self) -> None:
        answers, self._answers = self._answers, []
        if not self._transport.is_closing():
            self.last_active = self._loop.time()
            self._transport.writelines([answer for answer in answers if answer])
            unread = self._transport.get_write_buffer_size()
            if unread > self._limits.unread_most:
                _log.warning("%s: %d bytes of answers are unread; the connection is closed", self.peer, unread)
                self._transport.abort()
            self._pass_on()  # no read event comes for frames that have waited
        self._note_drained()

    def resume(self) -> None:
        """There is room for requests again: pass on the frames that have waited."""
        self._pass_on()

    def pause_writing(self) -> None:
        self._peer_reads = False
        self._pass_on()

    def resume_writing(self) -> None:
        self._peer_reads = True
        self._pass_on()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closing = True
        self._frames.clear()
        self._owner.give_back(self._size_in_flight)
        self._size_in_flight = 0
        self._owner.lost(self)
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def check_times(self, now: float) -> None:
        """Close the connection if it was idle, or a frame is incomplete, for too long."""
        if now - self.last_active >= self._limits.idle and self.in_flight == 0:
            _log.info("%s: idle for %d s; the connection is closed", self.peer, now - self.last_active)
            self._transport.close()
        elif self._half_since is not None and now - self._half_since >= self._limits.half_frame:
            _log.warning("%s: half a frame for %d s; the connection is closed", self.peer, now - self._half_since)
            self._transport.abort()

    def abort(self) -> None:
        """Close the connection at once; answers that are not sent are lost."""
        self._transport.abort()

    def _note_drained(self) -> None:
        if self._drained is not None and not self._drained.done() and not self.in_flight and not self._answers:
            self._drained.set_result(None)

    async def close(self, grace: float) -> None:
        """Turn further requests away, answer those in flight for up to `grace` seconds, then close."""
        self.is_closing = True
        self._pass_on()
        self._drained = self._loop.create_future()
        self._note_drained()
        await asyncio.wait({self._drained}, timeout=grace)
        if not self._drained.done():
            _log.warning("%s: closed with %d unanswered requests", self.peer, self.in_flight)
        self._transport.close()  # sends what is buffered
