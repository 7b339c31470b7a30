"""A network in memory between hosts by name. It delays and splits what is sent, cuts connections, and parts hosts.

A connection is in trouble from the moment when something is done to it. Tests that promise an answer in time leave out
what was in trouble meanwhile.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import random
from collections.abc import Callable
from typing import Any

from simulation.processes import own_context
from simulation.virtual import MemoryTransport

Address = tuple[str, int]
SILENT_SECONDS = 3.0  # an attempt to connect to a host that does not answer


class Wire(MemoryTransport):
    """One end of a connection. While it is blocked, nothing reaches it, neither bytes nor the end."""

    is_blocked = False
    late_end: tuple[Exception | None] | None = None

    def _deliver(self):
        if not self.is_blocked:
            super()._deliver()

    def _end(self, error):
        if self.is_blocked:
            self.late_end = (error,)
        elif self.context is None:
            super()._end(error)
        else:
            self._loop.call_soon(super()._end, error, context=self.context)

    def free(self):
        self.is_blocked = False
        self._loop.call_soon(self._deliver, context=self.context)
        if self.late_end is not None:
            self._loop.call_soon(self._end, *self.late_end, context=self.context)

    def vanish(self):
        """The process of this end is gone, and its protocol hears nothing more."""
        self._closing = True


class Link:
    """A connection of a client to a server."""

    def __init__(self, client: str, server: str, near: Wire, far: Wire, number: int) -> None:
        self.client, self.server, self.near, self.far = client, server, near, far
        self.number = number
        self.troubles: list[tuple[float, float]] = []  # from, to
        self.blocked_since: float | None = None

    @property
    def is_open(self) -> bool:
        return not (self.near.is_closing() or self.far.is_closing())

    def was_in_trouble(self, since: float, until: float) -> bool:
        now = [] if self.blocked_since is None else [(self.blocked_since, until)]
        return any(begin <= until and end >= since for begin, end in self.troubles + now)

    @property
    def blocked(self) -> bool:
        return self.blocked_since is not None


class Network:
    """Hosts and connections. The seed decides all that happens on them."""

    def __init__(self, chance: random.Random, delay: tuple[float, float]) -> None:
        self.chance, self.delay = chance, delay
        self.links: list[Link] = []
        self._listening: dict[Address, tuple[str, Callable[[], Any], contextvars.Context | None]] = {}
        self._parted: set[frozenset[str]] = set()
        self._silent: set[str] = set()
        self._numbers = itertools.count()
        self.newest: dict[tuple[str, str], Link] = {}  # by client and server
        self.troubled: dict[tuple[str, str], float] = {}  # the same: when something was done to their connections

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def listen(self, address: Address, host: str, factory: Callable[[], Any]) -> None:
        self._listening[address] = host, factory, own_context()

    def deaf(self, address: Address) -> None:
        """An address does not accept connections any more."""
        self._listening.pop(address, None)

    def connector(self, client: str) -> Callable[[str, int], Callable[[Callable[[], Any]], Any]]:
        """What NameServers and Channel need to connect from a host."""
        return lambda host, port: lambda protocol: self._connect(client, (host, port), protocol)

    def _parts(self, one: str, other: str) -> bool:
        return frozenset({one, other}) in self._parted or one in self._silent or other in self._silent

    async def _connect(self, client: str, address: Address, protocol: Callable[[], Any]) -> None:
        await asyncio.sleep(self.chance.uniform(*self.delay))
        found = self._listening.get(address)
        if found is None or self._parts(client, found[0]):
            await asyncio.sleep(SILENT_SECONDS if found is not None else 0.0)
            raise ConnectionRefusedError(111, "nobody listens")
        host, factory, served = found
        serve = contextvars.copy_context() if served is None else served.copy()
        first, second = protocol(), serve.run(factory)
        near = Wire(first, self.chance, self.delay, (client, 1))
        far = Wire(second, self.chance, self.delay, ("10.0.0.9", 1))
        near.other, far.other = far, near
        near.context, far.context = own_context(), served
        link = Link(client, host, near, far, next(self._numbers))
        self.links = [one for one in self.links if one.is_open or one.blocked] + [link]
        self.newest[client, host] = link
        serve.run(second.connection_made, far)  # the system accepts connections of a process that hangs
        first.connection_made(near)

    # what goes wrong

    def slow(self, link: Link, delay: tuple[float, float]) -> None:
        """A connection gets another delay in both directions."""
        self.trouble(link)
        link.near._delay = link.far._delay = delay

    def trouble(self, link: Link) -> None:
        """Something is done to a connection now."""
        since = self.now() if link.blocked_since is None else link.blocked_since
        link.troubles.append((since, self.now()))
        self._note(link.client, link.server)

    def open_links(self, *hosts: str) -> list[Link]:
        """The open connections that have all these hosts at their ends."""
        return [link for link in self.links if link.is_open and {*hosts} <= {link.client, link.server}]

    def cut(self, link: Link) -> None:
        """Both ends hear of it at once; what is on its way is lost."""
        self.trouble(link)
        link.blocked_since, link.near.is_blocked, link.far.is_blocked = None, False, False
        link.near.cut()

    def part(self, one: str, other: str) -> None:
        """Two hosts do not reach each other until heal()."""
        self._parted.add(frozenset({one, other}))
        self._note(one, other)
        for link in self.open_links(one, other):
            self._block(link)

    def _note(self, one: str, other: str) -> None:
        self.troubled[one, other] = self.troubled[other, one] = self.now()

    def _block(self, link: Link) -> None:
        self.trouble(link)
        link.near.is_blocked = link.far.is_blocked = True
        link.blocked_since = self.now() if link.blocked_since is None else link.blocked_since

    def heal(self, one: str, other: str) -> None:
        """What was sent meanwhile arrives."""
        self._parted.discard(frozenset({one, other}))
        self._note(one, other)
        self._free()

    def _free(self) -> None:
        for link in self.links:
            if link.blocked and not self._parts(link.client, link.server):
                self.trouble(link)
                link.blocked_since = None
                link.near.free()
                link.far.free()

    def silence(self, host: str) -> None:
        """A machine loses its power: its peers hear nothing."""
        self._silent.add(host)
        for link in self.open_links(host):
            self._block(link)
            (link.near if link.client == host else link.far).vanish()

    def wake(self, host: str) -> None:
        """The machine runs again; it does not know its connections."""
        self._silent.discard(host)
        for link in self.links:
            if host in (link.client, link.server) and link.blocked:
                self.trouble(link)
                link.blocked_since, link.near.is_blocked, link.far.is_blocked = None, False, False
                for end in (link.near, link.far):
                    end._end(ConnectionResetError("the machine was restarted"))

    def kill(self, host: str) -> None:
        """A process dies: its peers get a reset for each connection."""
        for link in self.open_links(host):
            self.trouble(link)
            mine, other = (link.near, link.far) if link.client == host else (link.far, link.near)
            mine.vanish()
            mine._loop.call_later(self.chance.uniform(*self.delay), other._end, ConnectionResetError("killed"))
