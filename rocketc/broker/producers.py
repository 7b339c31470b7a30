"""The registry of producers: the connections of each producer group, which are asked about transactions later.

Source: RocketMQ ProducerManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from dataclasses import replace

from rocketc.broker.consumers import IDLE_MS, ClientChannel

_log = logging.getLogger("rocketc.broker")


def _is_open(connection: Hashable) -> bool:
    return not getattr(connection, "is_closing", False)


class ProducerManager:
    """The producer groups of a broker. Connections are only keys. All times are ms of the caller's clock.

    is_open      whether a connection can be used
    is_writable  whether its peer reads what it is sent
    registers    whether register() does something; as in RocketMQ it does, unless transactions are refused
    on_gone      called with a group and the client id of each producer that leaves, and with a group and None when its
                 last producer has left

    >>> producers = ProducerManager()
    >>> producers.register("connection", "shop", ClientChannel("c", "JAVA", 479, 0))
    True
    >>> producers.available("shop"), producers.connection_of("c")
    ('connection', 'connection')
    """

    def __init__(
        self,
        *,
        is_open: Callable[[Hashable], bool] = _is_open,
        is_writable: Callable[[Hashable], bool] = lambda connection: True,
        registers: Callable[[], bool] = lambda: True,
        on_gone: Callable[[str, str | None], object] = lambda group, client_id: None,
        idle_ms: int = IDLE_MS,
    ) -> None:
        self._is_open = is_open
        self._is_writable = is_writable
        self._registers = registers
        self._on_gone = on_gone
        self._idle_ms = idle_ms
        self._groups: dict[str, dict[Hashable, ClientChannel]] = {}
        self._groups_of: dict[Hashable, list[str]] = {}  # by connection
        self._connections: dict[str, dict[Hashable, None]] = {}  # by client id, the latest last
        self._turn = 0

    def group(self, name: str) -> dict[Hashable, ClientChannel]:
        """Return a copy of a group: its channels by connection; empty if there are none."""
        return dict(self._groups.get(name, {}))

    def groups(self) -> list[str]:
        """Return the names of all groups with producers."""
        return list(self._groups)

    def groups_of(self, connection: Hashable) -> list[str]:
        """Return the names of the groups of a connection."""
        return list(self._groups_of.get(connection, ()))

    def connection_of(self, client_id: str) -> Hashable | None:
        """Return the latest connection of a client that is in a group."""
        return next(reversed(self._connections.get(client_id, {})), None)

    def available(self, group: str) -> Hashable | None:
        """Return a connection of a group, each in turn: an open one whose peer reads, or else an open one."""
        connections = list(self._groups.get(group, ()))
        if not connections:
            return None
        self._turn += 1
        start = self._turn % len(connections)
        opened = [one for one in connections[start:] + connections[:start] if self._is_open(one)]
        return next(filter(self._is_writable, opened), opened[-1] if opened else None)

    def register(self, connection: Hashable, group: str, client: ClientChannel) -> bool:
        """Register a producer. Return whether it is new in the group.

        A connection that is in the group already keeps its client id there.
        """
        if not self._registers():
            return False
        channels = self._groups.setdefault(group, {})
        known = channels.get(connection)
        if known is not None:
            known.last_update = client.last_update
            return False
        channels[connection] = replace(client)
        names = self._groups_of.setdefault(connection, [])
        if group not in names:
            names.append(group)
        self._connections.setdefault(client.client_id, {})[connection] = None
        return True

    def unregister(self, connection: Hashable, group: str) -> bool:
        """Remove a connection from a group. Return whether it was in it."""
        channels = self._groups.get(group, {})
        client = channels.pop(connection, None)
        if client is None:
            return False
        names = self._groups_of[connection]
        names.remove(group)
        if not names:
            del self._groups_of[connection]
        self._forget(connection, client.client_id)
        self._on_gone(group, client.client_id)
        if not channels:
            del self._groups[group]
            self._on_gone(group, None)
        return True

    def _forget(self, connection: Hashable, client_id: str) -> None:
        """Forget that a client has a connection, if no group of the connection has it."""
        for group in self._groups_of.get(connection, ()):
            if self._groups[group][connection].client_id == client_id:
                return
        connections = self._connections[client_id]
        connections.pop(connection, None)
        if not connections:
            del self._connections[client_id]

    def connection_lost(self, connection: Hashable) -> list[str]:
        """Remove a connection from all its groups. Return their names."""
        names = self.groups_of(connection)
        for name in names:
            self.unregister(connection, name)
        return names

    def expire(self, now: int) -> list[Hashable]:
        """Remove channels without a heartbeat for too long. Return their connections; the caller closes them."""
        idle: dict[Hashable, None] = {}
        for group, channels in list(self._groups.items()):
            for connection, client in list(channels.items()):
                if now - client.last_update > self._idle_ms:
                    _log.info("%s: no heartbeat of producer %s for too long", group, client.client_id)
                    self.unregister(connection, group)
                    idle[connection] = None
        return list(idle)
