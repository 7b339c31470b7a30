"""What the broker of a master says about its log. The HA protocol carries none of it.

Source: RocketMQ AdminBrokerProcessor.getBrokerConfig, getBrokerRuntimeInfo.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from rocketc.client.cluster_state import decode_runtime
from rocketc.client.connections import Connections, Connector
from rocketc.client.security import Credentials, Tls, tls_context
from rocketc.config import properties
from rocketc.errors import AnswerError
from rocketc.remoting.addresses import join_address, split_address
from rocketc.remoting.requests import CODES
from rocketc.remoting.signing import Signer

if TYPE_CHECKING:
    from typing_extensions import Self

DEFAULT_FILE_SIZE = 1 << 30
_SLAVE_TIMEOUT = 3000  # ms, RocketMQ's default


@dataclass(frozen=True)
class MasterSettings:
    """Settings of a master.

    file_size      bytes of its log files
    ha_port        its HA service listens on this port
    slave_timeout  ms that its producers wait for slaves
    """

    file_size: int
    ha_port: int | None
    slave_timeout: int


def broker_of(master: str) -> str:
    """Return the address of a master's broker, if both have the default ports.

    >>> broker_of("10.0.0.1:10912")
    '10.0.0.1:10911'
    """
    host, port = split_address(master)
    return join_address(host, port - 1)


class MasterBroker:
    """Asks the broker of a master.

    address      host:port of the broker
    timeout      seconds for one request
    credentials, tls  as those of client.admin.Admin
    connector    how to connect, for tests; None: TCP
    Methods raise NotSentError, ConnectionLostError, NoAnswerError and AnswerError. Use it on one event loop.

    >>> import asyncio, rocketc
    >>> async def main(address):
    ...     async with MasterBroker(address) as broker:
    ...         return await broker.log_range()
    >>> with rocketc.Broker() as broker:
    ...     asyncio.run(main(broker.address))
    (0, 0)
    """

    def __init__(
        self,
        address: str,
        *,
        timeout: float = 3.0,
        credentials: Credentials | None = None,
        tls: bool | Tls = False,
        connector: Connector | None = None,
    ) -> None:
        self.address = join_address(*split_address(address))
        self._timeout, self._connector = timeout, connector
        self._hook = None if credentials is None else Signer(credentials)
        self._tls = tls_context(tls)

    async def __aenter__(self) -> Self:
        self._connections = Connections(random.Random(), self._timeout, self._connector, hook=self._hook, tls=self._tls)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._connections.close()

    async def settings(self) -> MasterSettings:
        """Return the settings of the master."""
        answer = await self._connections.call(self.address, CODES["GET_BROKER_CONFIG"])
        try:
            found = dict(properties(answer.body.decode("utf-8", "replace")))
            size = found.get("mappedFileSizeCommitLog", found.get("mapedFileSizeCommitLog", str(DEFAULT_FILE_SIZE)))
            port = found.get("haListenPort")
            return MasterSettings(
                int(size), None if port is None else int(port), int(found.get("slaveTimeout", _SLAVE_TIMEOUT))
            )
        except ValueError as error:
            raise AnswerError(self.address, f"the broker's settings cannot be read: {error}") from None

    async def log_range(self) -> tuple[int, int]:
        """Return the physical offsets of the first byte of the master's log and of its end."""
        runtime = await self._connections.ask(self.address, CODES["GET_BROKER_RUNTIME_INFO"], {}, decode_runtime)
        try:
            return max(int(runtime["commitLogMinOffset"]), 0), max(int(runtime["commitLogMaxOffset"]), 0)
        except (KeyError, ValueError) as error:
            raise AnswerError(self.address, f"the broker does not say where its log begins and ends: {error}") from None
