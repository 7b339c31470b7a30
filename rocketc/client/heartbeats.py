"""The heartbeats of a client, by which brokers know its groups and its connection.

A broker knows a client on the connection of its last heartbeat only, and forgets it with this connection. So each new
connection gets a heartbeat at once, and a connection that is lost is made again, until the routes forget the broker.
Source: RocketMQ MQClientInstance.sendHeartbeatToBroker, onChannelActive.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from rocketc.client.connections import UNREACHABLE, Connections
from rocketc.errors import AnswerError, NoAnswerError
from rocketc.remoting.channel import RECONNECT_SECONDS, backoff
from rocketc.remoting.requests import CODES

_log = logging.getLogger("rocketc.client")

SETTLE_SECONDS = RECONNECT_SECONDS + 1.0  # until all clients are back at a broker that has restarted

Start = Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]


class Registration:
    """What one broker knows of this client.

    name     of the broker, for messages
    since    loop.time() of the answer to the first heartbeat on the present connection; None: it does not know it
    is_back  the broker did not know this client for some time, as after a restart
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.since: float | None = None
        self.is_back = False
        self.connection = 0  # greater after each connection and each loss
        self.connecting = 0  # heartbeats that go out with the next connection
        self.failures = 0  # heartbeats that failed, in a row
        self.task: asyncio.Task[None] | None = None  # sends heartbeats until the broker knows this client

    def lose(self) -> None:
        """The broker does not know this client: the connection is another one, or is lost."""
        self.connection += 1
        self.is_back |= self.since is not None
        self.since = None


class Heartbeats:
    """Sends the heartbeats of one client. Use it on one event loop.

    body        returns the body of a heartbeat
    start       starts a task that ends with the client
    registered  called with the address of a broker that knows this client again
    brokers     what each broker knows that gets heartbeats, by address
    versions    of brokers that have answered a heartbeat, by address
    """

    def __init__(
        self,
        connections: Connections,
        rng: random.Random,
        body: Callable[[], bytes],
        start: Start,
        registered: Callable[[str], object],
    ) -> None:
        self._connections, self._rng, self._body, self._start = connections, rng, body, start
        self._registered = registered
        self._loop = asyncio.get_running_loop()
        self.brokers: dict[str, Registration] = {}
        self.versions: dict[str, int] = {}
        self._is_ended = False

    def end(self) -> None:
        """Send no heartbeats any more; `brokers` stay."""
        self._is_ended = True

    def settled_at(self, address: str) -> float:
        """Return the loop.time() from which on a broker knows all its clients again; 0: it has forgotten none.

        Clients come back one after the other to a broker that has restarted.
        """
        broker = self.brokers.get(address)
        if broker is None or not broker.is_back:
            return 0.0
        return SETTLE_SECONDS + (self._loop.time() if broker.since is None else broker.since)

    # sending

    def heartbeat_to(self, broker_name: str, address: str) -> None:
        """Make this client known to a broker that does not know it yet, and do not wait for its answer."""
        if address not in self.brokers:
            self._repeat(address, self._broker(broker_name, address))

    def repeat_heartbeat(self, broker_name: str, address: str) -> None:
        """Make this client known again to a broker that has answered that it does not know it."""
        broker = self._broker(broker_name, address)
        broker.lose()
        self._repeat(address, broker)

    async def heartbeat_and_wait(self, address: str, broker_name: str = "") -> None:
        """Send a heartbeat to a broker. Raises NotSentError, ConnectionLostError, NoAnswerError, AnswerError."""
        broker = self._broker(broker_name or address, address)
        try:
            deadline = self._loop.time() + self._connections.timeout
            broker.connecting += 1
            try:
                await self._connections.connect(address, deadline)
            finally:
                broker.connecting -= 1
            connection = broker.connection
            answer = await self._connections.call(address, CODES["HEART_BEAT"], body=self._body(), deadline=deadline)
        except UNREACHABLE as error:
            if isinstance(error, NoAnswerError):  # after a cut, a connection may be dead without a word
                self._connections.leave(address)
            broker.failures += 1
            broker.is_back = True  # it does not know others, either
            self._repeat(address, broker)
            raise
        broker.failures = 0
        self.versions[address] = answer.version
        if broker.since is None and connection == broker.connection:
            broker.since = self._loop.time()
            if broker.is_back:
                self._registered(address)

    async def heartbeat(self, brokers: Mapping[str, str]) -> None:
        """Send a heartbeat to these brokers, and forget all others.

        brokers  names by address
        """
        for address in self.brokers.keys() - brokers.keys():
            self._forget(address)
        await asyncio.gather(*[self._heartbeat(address, name) for address, name in brokers.items()])

    async def wait_for_heartbeats(self, brokers: Mapping[str, str], deadline: float) -> None:
        """Send the first heartbeat to these brokers, and wait until they answer, or until the deadline.

        brokers   names by address
        deadline  loop.time()
        """
        new = {address: name for address, name in brokers.items() if address not in self.versions}
        tasks = [self._start(self._heartbeat(address, name)) for address, name in new.items()]
        if tasks:
            await asyncio.wait(tasks, timeout=max(0.0, deadline - self._loop.time()))

    async def version(self, broker_name: str, address: str, deadline: float) -> int | None:
        """Return the version of a broker, an ordinal of RocketMQ's MQVersion; None: it does not answer.

        deadline  loop.time()
        """
        await self.wait_for_heartbeats({address: broker_name}, deadline)
        return self.versions.get(address)

    async def _heartbeat(self, address: str, broker_name: str) -> bool:
        """Send a heartbeat; return False if the broker refuses it, as it will refuse the next one.

        A broker that is not reached gets others until it knows this client.
        """
        try:
            await self.heartbeat_and_wait(address, broker_name)
        except (*UNREACHABLE, AnswerError) as error:
            level = logging.WARNING if self._broker(broker_name, address).failures < 2 else logging.DEBUG
            _log.log(level, "broker %s does not accept the heartbeat: %s", broker_name, error)
            return not isinstance(error, AnswerError)
        return True

    def _forget(self, address: str) -> None:
        self.versions.pop(address, None)
        task = self.brokers.pop(address).task
        if task is not None:
            task.cancel()

    def _broker(self, name: str, address: str) -> Registration:
        return self.brokers.setdefault(address, Registration(name))

    # connections

    def connected(self, address: str) -> None:
        """There is a new connection: a broker does not know this client on it."""
        broker = self.brokers.get(address)
        if broker is not None:
            broker.lose()
            if not broker.connecting:
                self._repeat(address, broker)

    def lost(self, address: str) -> None:
        """There is no connection any more. Clients without other work to do there connect again, too."""
        broker = self.brokers.get(address)
        if broker is not None:
            broker.lose()
            self._repeat(address, broker)

    def _repeat(self, address: str, broker: Registration) -> None:
        if not self._is_ended and (broker.task is None or broker.task.done()):
            broker.task = self._start(self._keep_registered(address, broker))

    async def _keep_registered(self, address: str, broker: Registration) -> None:
        """Send heartbeats until the broker knows this client on the present connection."""
        while broker.since is None and self.brokers.get(address) is broker:
            if broker.failures:
                await asyncio.sleep(backoff(broker.failures, self._rng))
            if not await self._heartbeat(address, broker.name):
                return
