"""One connection of a server: bytes in, answers out, and how much of each at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from rocketc.remoting._connection import ConnectionCore, Reply
from rocketc.remoting._fair_queue import FairQueue

Frame = tuple[int, bytes, bytes]  # form of the header, header, body


@dataclass(frozen=True)
class Limits:
    """The limits of a server.

    in_flight        requests of one connection that are not answered yet; at the limit its socket is not read
    held             requests of one connection that wait for something, such as pulls; they are not in in_flight
    bytes_in_flight  bytes of the unanswered requests of all connections; at the limit no socket is read
    unread           bytes of answers that a peer has not read, or that wait for the end of this turn of the loop; above
                     it, its socket is not read
    unread_most      bytes of answers that a peer has not read, but for views of mapped files that wait; above it, the
                     connection is closed
    idle             seconds without a byte in either direction, after which a connection is closed (RocketMQ:
                     serverChannelMaxIdleTimeSeconds)
    half_frame       seconds that a peer may take for one frame
    connections      at a time; more are closed at once
    """

    in_flight: int = 1024
    held: int = 65_536
    bytes_in_flight: int = 256 << 20
    unread: int = 256 << 10
    unread_most: int = 64 << 20
    idle: float = 120.0
    half_frame: float = 60.0
    connections: int = 65_535


class Owner(Protocol):
    """What a connection needs from its server."""

    limits: Limits
    queue: FairQueue  # of connections whose requests wait
    patience: Mapping[int, float]  # seconds that a request may wait, by its code
    overdue: int  # requests that have waited for longer

    def opened(self, connection: Connection) -> bool:
        """Note a new connection. False: there are too many."""
        ...

    def lost(self, connection: Connection) -> None: ...

    def handle(self, connection: Connection, frame: Frame, reply: Reply) -> None:
        """Process a frame. Call `reply` once, now or later; with b"" if there is no answer."""
        ...

    def turn_away(self, connection: Connection, frame: Frame) -> bytes:
        """Return the answer to a request while the server ends; b"" for none."""
        ...

    def take(self, connection: Connection, size: int) -> bool:
        """Take room for a request of this size. False: there is none; resume() follows when there is."""
        ...

    def give_back(self, size: int) -> None: ...


class Connection(ConnectionCore, asyncio.Protocol):
    """The protocol of one accepted connection."""

    __slots__ = ()
