"""The name servers of a cluster: one of them is asked, all of them are changed.

Source: RocketMQ MQClientAPIImpl, NettyRemotingClient.getAndCreateNameserverChannel.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from rocketc.client.address_lookup import AddressLookup, check_url, is_url, split_addresses
from rocketc.client.bodies import Fields
from rocketc.client.changes import change_all
from rocketc.client.connections import UNREACHABLE, Connections, decoded
from rocketc.client.routes import ClusterInfo, TopicRoute, decode_cluster, decode_route
from rocketc.errors import AnswerError
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command

T = TypeVar("T")

NAMESRV_ADDR = "NAMESRV_ADDR"
LOCAL = "127.0.0.1:9876"
_ROUTE, _CLUSTER, _TOPICS = 105, 106, 206


def name_server_addresses(text: str | None = None) -> list[str]:
    """Return the addresses in a text such as 10.0.0.1:9876;10.0.0.2:9876.

    text  or the address of an HTTP server that knows them, such as http://10.0.0.9:8080/nsaddr; None: that of the
          environment variable NAMESRV_ADDR, or 127.0.0.1:9876
    Raises ValueError for an address without a port.

    >>> name_server_addresses("10.0.0.1:9876; [::1]:9876")
    ['10.0.0.1:9876', '[::1]:9876']
    """
    text = (os.environ.get(NAMESRV_ADDR) or LOCAL) if text is None else text
    if not isinstance(text, str):
        raise TypeError(f"name_server: expected str, got {type(text).__name__}; separate addresses by `;`")
    if is_url(text):
        check_url(text.strip())
        return [text.strip()]
    return split_addresses(text)


class NameServers:
    """Asks the name servers. One answers until it fails; then the next one is asked.

    addresses  host:port of each, at least one; or one address of an HTTP server that knows them
    """

    def __init__(self, addresses: Sequence[str], connections: Connections) -> None:
        self._addresses, self._connections = list(addresses), connections
        self._current = 0
        self._lookup = AddressLookup(self._addresses[0]) if is_url(self._addresses[0]) else None

    @property
    def address(self) -> str:
        """The one that is asked."""
        return self._addresses[self._current]

    async def call(
        self, code: int, values: Mapping[str, Any] | None = None, others: Sequence[int] = ()
    ) -> tuple[str, Command]:
        """Send a request to one name server after the other until one answers; return its address and answer.

        All of them together have the time of one request: one that is silent leaves time for the others.

        others  codes that do not raise an error, besides SUCCESS
        Raises AnswerError; the error of the last one if none is reached.
        """
        await self._look_up()
        first, count, loop = self._current, len(self._addresses), asyncio.get_running_loop()
        end = loop.time() + self._connections.timeout
        for i in range(count):
            self._current = (first + i) % count
            deadline = loop.time() + (end - loop.time()) / (count - i)
            try:
                answer = await self._connections.call(self.address, code, values, others=others, deadline=deadline)
                return self.address, answer
            except UNREACHABLE as error:
                last = error
            except AnswerError as error:
                if code not in (_ROUTE, _CLUSTER, _TOPICS) or error.code != Code.REQUEST_CODE_NOT_SUPPORTED:
                    raise
                text = f"{error.args[1]}; it may be a broker: give the address of a name server"
                raise AnswerError(error.address, text, error.code) from None
        raise last if self._connections.is_closed else type(last)(f"{last}; {self._advice()}")

    def _advice(self) -> str:
        """What to do if no name server is reached."""
        if len(self._addresses) > 1:
            return f"no name server is reached: check that one of {', '.join(self._addresses)} runs"
        text = "no name server is reached: check that it runs, and its address"
        if self.address == LOCAL:
            text += f"; {LOCAL} is the default without name_server (-n) and {NAMESRV_ADDR}"
        return text

    async def _look_up(self) -> None:
        """Take the addresses that an HTTP server knows, if there is one. Raises NotSentError."""
        if self._lookup is not None:
            found = await self._lookup.addresses()
            if found != self._addresses:
                self._addresses, self._current = list(found), 0

    def close(self) -> None:
        """End a question to an HTTP server."""
        if self._lookup is not None:
            self._lookup.close()

    async def ask(self, code: int, values: Mapping[str, Any], decode: Callable[[Fields], T]) -> T:
        """Send a request as call(), and return what `decode` makes of the body of the answer."""
        address, answer = await self.call(code, values)
        return decoded(address, code, answer, decode)

    async def tell(self, code: int, values: Mapping[str, Any]) -> dict[str, Command]:
        """Send a request to all name servers, because each keeps its own tables; return the answers by address.

        Raises ChangeError if some of them fail.
        """
        await self._look_up()
        return await change_all({one: self._connections.call(one, code, values) for one in self._addresses})

    async def route(self, topic: str) -> TopicRoute | None:
        """Return the route of a topic; None: no broker has it."""
        address, answer = await self.call(_ROUTE, {"topic": topic}, others=(Code.TOPIC_NOT_EXIST,))
        return None if answer.code != Code.SUCCESS else decoded(address, _ROUTE, answer, decode_route)

    async def cluster(self) -> ClusterInfo:
        """Return all clusters and brokers."""
        return await self.ask(_CLUSTER, {}, decode_cluster)

    async def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return sorted(await self.ask(_TOPICS, {}, lambda fields: fields.names("topicList")))
