"""The base of producers and consumers: connections, routes, heartbeats, and the requests that brokers send.

Source: RocketMQ MQClientInstance, ClientRemotingProcessor.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import os
import random
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from rocketc.client.access import Access
from rocketc.client.connections import UNREACHABLE, Connections
from rocketc.client.heartbeats import Heartbeats
from rocketc.client.name_servers import NameServers
from rocketc.client.route_table import RouteTable
from rocketc.client.settings import ClientSettings
from rocketc.client.unique_ids import UniqueIds, client_id
from rocketc.errors import AnswerError, ClosedError
from rocketc.remoting.addresses import own_address
from rocketc.remoting.channel import Reply
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command
from rocketc.remoting.requests import CODES
from rocketc.tables.fastjson import to_bytes

_log = logging.getLogger("rocketc.client")
_numbers = itertools.count(1)  # of the clients of this process

Handler = Callable[[Command], Awaitable[Command | None] | Command | None]  # answers a request of a broker
AddressHandler = Callable[[str, Command], Awaitable[None] | None]  # gets the address of the broker, too


class ClientInstance:
    """One client of a cluster. Use it on one event loop: start(), then close().

    access     the way to the cluster
    heartbeat  returns the groups of this client: members of HeartbeatData by name
    groups     (member of UNREGISTER_CLIENT, group) for each group that leaves at the end
    has_consumers  slaves get heartbeats, too
    has_stable_id  the client id of the next process is the same: see client_id()
    handlers   by request code: what to do with requests of brokers; others are answered "not supported"
    address_handlers  the same for requests that are answered by another request to that broker
    """

    def __init__(
        self,
        access: Access,
        settings: ClientSettings,
        heartbeat: Callable[[], Mapping[str, Any]],
        groups: Callable[[], list[tuple[str, str]]],
        *,
        create_topic: str = "",
        queue_nums: int = 4,
        handlers: Mapping[int, Handler] | None = None,
        address_handlers: Mapping[int, AddressHandler] | None = None,
        has_consumers: bool = False,
        has_stable_id: bool = False,
    ) -> None:
        self._settings, self._heartbeat, self._groups = settings, heartbeat, groups
        self._handlers = {} if handlers is None else handlers
        self._address_handlers = {} if address_handlers is None else address_handlers
        self._loop = asyncio.get_running_loop()
        self.chance = random.Random() if access.chance is None else access.chance
        ip = settings.client_ip or own_address()
        self.client_id = client_id(
            ip, os.getpid(), next(_numbers), settings.instance_name, settings.unit_name, is_stable=has_stable_id
        )
        self.unique_ids = UniqueIds(ip, os.getpid(), self.chance.getrandbits(32), access.clock)
        timeout = settings.mq_client_api_timeout / 1000
        self.connections = Connections(
            self.chance, timeout, access.connector, self._requested, hook=access.hook, tls=access.tls,
            rpc_hooks=access.rpc_hooks,
            on_connect=lambda address: self.heartbeats.connected(address),
            on_lost=lambda address: self.heartbeats.lost(address),
        )  # fmt: skip
        self.heartbeats = Heartbeats(self.connections, self.chance, self._heartbeat_body, self.begin, self._registered)
        self.brokers = self.heartbeats.brokers  # by address, those that get heartbeats
        self.registration_handlers: list[Callable[[str], object]] = []
        self.name_servers = NameServers(access.addresses, self.connections)
        self.routes = RouteTable(self.name_servers, create_topic, queue_nums)
        self._has_consumers = has_consumers
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_member = False
        self._is_closed = False

    def start(self) -> None:
        """Begin to refresh routes and to send heartbeats.

        Raises ValueError if a client of this process has the same id and group: brokers could not tell them apart.
        """
        for member, group in self._groups():
            other = _members.get((self.client_id, member, group))
            if other is not None and other.is_member:
                raise ValueError(
                    f"the group {group!r} has the client {self.client_id} already: give each another instance_name"
                )
            _members[self.client_id, member, group] = self
        self._is_member = True
        self.begin(self._every(self._settings.poll_name_server_interval, self._refresh))
        self.begin(self._every(self._settings.heartbeat_broker_interval, self.heartbeat))

    async def close(self) -> None:
        """Leave the groups, and close everything. A broker that does not answer is not waited for longer than 1 s."""
        if self._is_closed:
            return
        self._is_closed = True
        self.heartbeats.end()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        leaving: list[asyncio.Task[None]] = []
        try:
            if tasks:
                await asyncio.wait(tasks)
            leaving += [
                asyncio.create_task(self._leave(address, *one))
                for address, broker in self.brokers.items()
                if broker.since is not None
                for one in self._groups()
            ]
            if leaving:
                await asyncio.wait(leaving, timeout=1.0)
        finally:  # also if this is canceled
            self.routes.close()
            self.name_servers.close()
            self.connections.close()
            self._is_member = False
        if leaving:
            await asyncio.wait(leaving)  # they end with the connections
        await asyncio.sleep(0)  # the transports close

    @property
    def is_member(self) -> bool:
        """Whether it has started, and has not left its groups."""
        return self._is_member and not self._loop.is_closed()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def check_open(self) -> None:
        """Raise ClosedError after close()."""
        if self._is_closed:
            raise ClosedError("the client is closed")

    # brokers

    async def heartbeat(self) -> None:
        """Send a heartbeat to the brokers of all topics that are used."""
        brokers = self.routes.brokers(slaves=self._has_consumers)
        self.connections.forget_idle()
        await self.heartbeats.heartbeat(brokers)

    def _heartbeat_body(self) -> bytes:
        return to_bytes({"clientID": self.client_id, **self._heartbeat()}, compact=True)

    def _registered(self, address: str) -> None:
        for handler in self.registration_handlers:
            handler(address)

    async def _leave(self, address: str, member: str, group: str) -> None:
        values = {"clientID": self.client_id, member: group}
        try:
            await self.connections.call(address, CODES["UNREGISTER_CLIENT"], values)
        except (*UNREACHABLE, AnswerError) as error:
            _log.debug("%s: cannot leave the group %s: %s", address, group, error)

    # requests of brokers

    def _requested(self, address: str, command: Command, reply: Reply) -> None:
        handler = self._handlers.get(command.code)
        if command.code in self._address_handlers:
            handler = functools.partial(self._address_handlers[command.code], address)
        if handler is None:
            remark = f" request type {command.code} not supported"
            reply(Command(Code.REQUEST_CODE_NOT_SUPPORTED, remark=remark))
            return
        self.begin(self._handle(address, handler, command, reply))

    async def _handle(self, address: str, handler: Handler, command: Command, reply: Reply) -> None:
        try:
            answer = handler(command)
            if answer is not None and not isinstance(answer, Command):
                answer = await answer
        except Exception as error:
            _log.warning("%s: request %d of the broker failed", address, command.code, exc_info=True)
            answer = Command(Code.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")
        if answer is not None:
            reply(answer)

    # tasks

    def begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine as a task, which ends with this client."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _every(self, interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                await work()
            except Exception:
                text = "%s: a periodic task of the client failed; it runs again"
                _log.warning(text, self.client_id, exc_info=True)

    async def _refresh(self) -> None:
        await self.routes.refresh(self._settings.mq_client_api_timeout / 1000)


# by (client id, kind, group), of this process
_members: weakref.WeakValueDictionary[tuple[str, str, str], ClientInstance] = weakref.WeakValueDictionary()
os.register_at_fork(after_in_child=_members.clear)
