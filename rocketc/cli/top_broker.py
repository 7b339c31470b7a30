"""Read a broker, or those of a topic, for `top`: GET_BROKER_RUNTIME_INFO over connections of its own."""

from __future__ import annotations

import asyncio
import errno
import random
import threading
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from rocketc.cli.security_options import Security
from rocketc.client.access import access_to
from rocketc.client.cluster_state import decode_runtime
from rocketc.client.cluster_url import SCHEME, is_address, topic_url
from rocketc.client.connections import UNREACHABLE, Connections
from rocketc.client.routes import decode_cluster
from rocketc.client.security import tls_context
from rocketc.client.topic_reader import TopicReader
from rocketc.errors import AnswerError, RocketcError, StoreIOError, TopicNotFoundError
from rocketc.remoting.requests import CODES
from rocketc.remoting.signing import Signer
from rocketc.report.broker_rates import BrokerSnapshot, BrokersSnapshot

T = TypeVar("T")

SECONDS = 5.0  # for an answer, connecting included


def broker_address(url: str) -> str:
    """Return the host:port of a rocketmq:// URL. Raises ValueError.

    >>> broker_address("rocketmq://127.0.0.1:10911"), broker_address("rocketmq://[::1]:10911/")
    ('127.0.0.1:10911', '[::1]:10911')
    """
    address = url.removeprefix(SCHEME).rstrip("/")
    if not is_address(address):
        raise ValueError(f"{url}: give the address of a broker, as in rocketmq://127.0.0.1:10911")
    return address


class _Asking:
    """Asks servers again and again. It connects when it is first needed, and again after close().

    The connections are on an event loop in a thread of its own, because the screen of `top` runs a loop, too.
    """

    def __init__(self, security: Security) -> None:
        self._security = security
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connections: Connections | None = None

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop; Ctrl-C ends it."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
            self._thread.start()
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result()
        finally:
            running.cancel()  # after Ctrl-C

    async def _runtime(self, address: str) -> BrokerSnapshot:
        """Ask a broker. Raises AnswerError, or an error of the connection."""
        found = await self._opened().ask(address, CODES["GET_BROKER_RUNTIME_INFO"], {}, decode_runtime)
        if not found:
            raise AnswerError(address, "the answer is not a table of a broker")
        return BrokerSnapshot(time.time_ns() // 1_000_000, found)

    def _opened(self) -> Connections:
        if self._connections is None:
            account = self._security.credentials
            hook = None if account is None else Signer(account)
            tls = tls_context(self._security.tls)
            self._connections = Connections(random.Random(), SECONDS, hook=hook, tls=tls)
        return self._connections

    def close(self) -> None:
        """Close the connections and end the thread. A later read() begins again."""
        if self._loop is not None:
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._loop = None

    async def _end(self) -> None:
        if self._connections is not None:
            self._connections.close()
            self._connections = None
            await asyncio.sleep(0)  # the transport closes


class BrokerReader(_Asking):
    """Takes snapshots of one broker repeatedly. After an error, it connects again.

    url       rocketmq://host:port
    security  account and TLS; None: neither
    """

    def __init__(self, url: str, security: Security | None = None) -> None:
        super().__init__(security or Security())
        self._url, self._address = url, broker_address(url)

    def read(self) -> BrokerSnapshot:
        """Ask the broker. Raises StoreIOError, which names the brokers if the address is that of a name server."""
        try:
            return self._run(self._read())
        except (*UNREACHABLE, AnswerError) as error:
            self.close()
            text = str(error).removeprefix(f"{self._address}: ")
            raise StoreIOError(errno.EIO, text, self._url) from None

    async def _read(self) -> BrokerSnapshot:
        try:
            return await self._runtime(self._address)
        except AnswerError as refusal:  # name servers do not know the request, but know the brokers
            ask = self._opened().ask
            try:
                cluster = await ask(self._address, CODES["GET_BROKER_CLUSTER_INFO"], {}, decode_cluster)
            except (*UNREACHABLE, AnswerError):
                raise refusal from None
            known = [f"{one} ({name})" for name, data in cluster.brokers.items() for one in data.addresses.values()]
            if not known:
                raise
            text = f"it is a name server; give the address of a broker: {', '.join(known)}; or add /TOPIC"
            raise AnswerError(self._address, text, refusal.code) from None


class TopicBrokersReader(_Asking):
    """Takes snapshots of the brokers of a topic repeatedly: the masters, and a slave where there is no master.

    url       rocketmq://host:port/topic, with the address of a name server
    security  account and TLS; None: neither
    Raises ValueError for another URL.
    """

    def __init__(self, url: str, security: Security | None = None) -> None:
        super().__init__(security or Security())
        self._url = topic_url(url)
        self._routes = TopicReader(
            access_to(self._url.name_server, self._security.credentials, self._security.tls), timeout=SECONDS
        )
        self._has_begun = False

    def read(self) -> BrokersSnapshot:
        """Ask for the route, then the brokers. Raises TopicNotFoundError, or StoreIOError if none answers."""
        try:
            return self._run(self._read())
        except (*UNREACHABLE, AnswerError) as error:
            self.close()
            raise StoreIOError(errno.EIO, str(error), self._url.url) from None

    async def _read(self) -> BrokersSnapshot:
        if not self._has_begun:
            await self._routes.start()
            self._has_begun = True
        topic = self._url.topic or ""
        if await self._routes.find(topic) is None:
            raise TopicNotFoundError(await self._routes.missing(topic))
        found = self._routes.masters(topic)
        results = await asyncio.gather(*map(self._tried, found.values()))
        answers, errors = dict[str, BrokerSnapshot](), dict[str, str]()
        for name, result in zip(found, results, strict=True):
            if isinstance(result, BrokerSnapshot):
                answers[name] = result
            else:
                errors[name] = str(result)
        if not answers:
            raise next(one for one in results if isinstance(one, RocketcError))
        return BrokersSnapshot(found, answers, errors)

    async def _tried(self, address: str) -> BrokerSnapshot | RocketcError:
        try:
            return await self._runtime(address)
        except (*UNREACHABLE, AnswerError) as error:
            return error

    async def _end(self) -> None:
        if self._has_begun:
            self._has_begun = False
            await self._routes.close()
        await super()._end()
