"""A name server: its tables, its requests, and its listening socket.

Source: RocketMQ NamesrvController, BrokerHousekeepingService.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable

from rocketc.files.durable import make_folder
from rocketc.namesrv.config import NamesrvConfig
from rocketc.namesrv.kv_config import KvConfig
from rocketc.namesrv.processor import NamesrvProcessor
from rocketc.namesrv.routes import RouteTable
from rocketc.remoting.addresses import join_address
from rocketc.remoting.connection import Connection, Limits
from rocketc.remoting.disk_work import DiskWork
from rocketc.remoting.server import Server
from rocketc.remoting.tls import tls_gate
from rocketc.remoting.tls_settings import tls_settings
from rocketc.tables.table_file import replace_file

_log = logging.getLogger("rocketc.namesrv")


class NameServer:
    """Runs a name server on the current event loop. Use it as an async context manager; it listens while entered.

    config   its settings; requests may change them
    clock    wall time in ms
    listens  False: no socket; connection() makes the connections, for a test's network
    grace    seconds that requests in flight get at the end
    Raises OSError if it can't listen, StoreIOError if kv_config_path can't be read, and ValueError if settings or files
    of TLS are wrong.

    >>> from rocketc.tables.config_manager import now_ms
    >>> async def main():
    ...     async with NameServer(NamesrvConfig(bind_address="127.0.0.1", listen_port=0), clock=now_ms) as server:
    ...         return server.address.rpartition(":")[0]
    >>> asyncio.run(main())
    '127.0.0.1'
    """

    def __init__(
        self,
        config: NamesrvConfig | None = None,
        *,
        clock: Callable[[], int],
        listens: bool = True,
        grace: float = 5.0,
    ) -> None:
        self.config = NamesrvConfig() if config is None else config
        self.routes = RouteTable(self.config, clock)
        self.kv = KvConfig(self.config.kv_config_path)
        self.address = ""  # host:port, while it listens
        self._listens = listens
        self._grace = grace
        self._is_ending = False
        self._certificates: asyncio.Task[None] | None = None

    async def __aenter__(self) -> NameServer:
        self._loop = asyncio.get_running_loop()
        self._disk = DiskWork(in_thread=self._listens)  # virtual time does not wait for threads
        processor = NamesrvProcessor(self.routes, self.kv, self.config, self._now, self._save, self._disk)
        limits = Limits(idle=self.config.server_channel_max_idle_time_seconds)
        settings = tls_settings(self.config.tls_server_mode, None, self.config.tls_config_file)
        gate = tls_gate(settings)
        self._server = Server([processor], on_lost=self._lost, limits=limits, grace=self._grace, tls=gate)
        if self._listens:
            host, port = await self._server.listen(self.config.bind_address or None, self.config.listen_port)
            self.address = join_address(host, port)
        self._sweep = self._loop.call_later(self._interval(), self._expire)
        if gate is not None:
            self._certificates = asyncio.ensure_future(gate.contexts.run())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._is_ending = True
        self._sweep.cancel()
        if self._certificates is not None:
            self._certificates.cancel()
        await self._server.close()
        await self._disk.close()

    def connection(self) -> asyncio.Protocol:
        """Make the protocol of a new connection."""
        return self._server.connection()

    def _now(self) -> int:
        return int(self._loop.time() * 1000)

    def _interval(self) -> float:
        return self.config.scan_not_active_broker_interval / 1000

    def _expire(self) -> None:
        for address, connection in self.routes.expire(self._now()):
            _log.warning("%s: silent for too long; the broker is removed", address)
            assert isinstance(connection, Connection)
            connection.abort()
        self._sweep = self._loop.call_later(self._interval(), self._expire)

    def _lost(self, connection: Connection) -> None:
        for address in self.routes.lost(connection) if not self._is_ending else ():
            _log.warning("%s: the connection ended; the broker is removed", address)

    def _save(self, text: str) -> None:
        path = self.config.config_store_path
        if path:
            make_folder(os.path.dirname(path) or ".")
            replace_file(path, text.encode("iso-8859-1"))
