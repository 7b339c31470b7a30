"""The name servers of a cluster: one of them is asked, all of them are changed.

Source: RocketMQ MQClientAPIImpl, NettyRemotingClient.getAndCreateNameserverChannel.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from rocketc.client.bodies import Fields
from rocketc.client.connections import UNREACHABLE, Connections, decoded
from rocketc.client.routes import ClusterInfo, TopicRoute, decode_cluster, decode_route
from rocketc.remoting.addresses import split_address
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command

T = TypeVar("T")

NAMESRV_ADDR = "NAMESRV_ADDR"
LOCAL = "127.0.0.1:9876"
_ROUTE, _CLUSTER, _TOPICS = 105, 106, 206


def name_server_addresses(text: str | None = None) -> list[str]:
    """Return the addresses in a text such as 10.0.0.1:9876;10.0.0.2:9876.

    text  None: that of the environment variable NAMESRV_ADDR, or 127.0.0.1:9876
    Raises ValueError for an address without a port.

    >>> name_server_addresses("10.0.0.1:9876; [::1]:9876")
    ['10.0.0.1:9876', '[::1]:9876']
    """
    text = (os.environ.get(NAMESRV_ADDR) or LOCAL) if text is None else text
    found = [one.strip() for one in text.replace(",", ";").split(";") if one.strip()]
    if not found:
        raise ValueError("give the address of a name server, such as 127.0.0.1:9876")
    for one in found:
        split_address(one)
    return list(dict.fromkeys(found))


class NameServers:
    """Asks the name servers. One answers until it fails; then the next one is asked.

    addresses  host:port of each, at least one
    """

    def __init__(self, addresses: Sequence[str], connections: Connections) -> None:
        self._addresses, self._connections = list(addresses), connections
        self._current = 0

    @property
    def address(self) -> str:
        """The one that is asked."""
        return self._addresses[self._current]

    async def call(
        self, code: int, values: Mapping[str, Any] | None = None, others: Sequence[int] = ()
    ) -> tuple[str, Command]:
        """Send a request to one name server after the other until one answers; return its address and answer.

        others  codes that do not raise an error, besides SUCCESS
        Raises AnswerError; the error of the last one if none is reached.
        """
        first = self._current
        for i in range(len(self._addresses)):
            self._current = (first + i) % len(self._addresses)
            try:
                return self.address, await self._connections.call(self.address, code, values, others=others)
            except UNREACHABLE as error:
                last = error
        raise last

    async def ask(self, code: int, values: Mapping[str, Any], decode: Callable[[Fields], T]) -> T:
        """Send a request as call(), and return what `decode` makes of the body of the answer."""
        address, answer = await self.call(code, values)
        return decoded(address, code, answer, decode)

    async def tell(self, code: int, values: Mapping[str, Any]) -> dict[str, Command]:
        """Send a request to all name servers, because each keeps its own tables; return the answers by address.

        Raises the first error, after all have been asked.
        """
        calls = [self._connections.call(one, code, values) for one in self._addresses]
        found = await asyncio.gather(*calls, return_exceptions=True)
        for one in found:
            if isinstance(one, BaseException):
                raise one
        return {address: one for address, one in zip(self._addresses, found, strict=True) if isinstance(one, Command)}

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
