"""Read a broker for `top`: GET_BROKER_RUNTIME_INFO over a connection of its own."""

from __future__ import annotations

import errno
import json
import re
import socket
import time

from rocketc.errors import FrameError, StoreIOError
from rocketc.remoting._frames import FrameDecoder
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command
from rocketc.report.broker_rates import BrokerSnapshot

SCHEME = "rocketmq://"
RUNTIME_INFO, CLUSTER_INFO = 28, 106
SECONDS = 5.0  # for a connection, and for an answer
_BARE_NUMBER = re.compile(rb"([{,])\s*(-?\d+)\s*:")  # fastjson writes the ids of brokers without quotes


def split_address(url: str) -> tuple[str, int]:
    """Return host and port of a rocketmq:// URL. Raises ValueError.

    >>> split_address("rocketmq://127.0.0.1:10911"), split_address("rocketmq://[::1]:10911")
    (('127.0.0.1', 10911), ('::1', 10911))
    """
    host, colon, port = url.removeprefix(SCHEME).rstrip("/").rpartition(":")
    if not host or not colon or not port.isdecimal() or not 0 < int(port) < 65536 or "/" in host:
        raise ValueError(f"{url}: give the address of a broker, as in rocketmq://127.0.0.1:10911")
    return host.removeprefix("[").removesuffix("]"), int(port)


class BrokerReader:
    """Takes snapshots of one broker repeatedly. It connects when it is first needed, and again after an error.

    url  rocketmq://host:port
    """

    def __init__(self, url: str) -> None:
        self._url, self._address = url, split_address(url)
        self._socket: socket.socket | None = None
        self._opaque = 0

    def read(self) -> BrokerSnapshot:
        """Ask the broker. Raises StoreIOError, which names the brokers if the address is that of a name server."""
        try:
            answer = self._call(RUNTIME_INFO)
            if answer.code != Code.SUCCESS:
                raise self._error(self._refusal(answer))
            table = json.loads(answer.body)["table"]
            found = {str(name): str(value) for name, value in table.items()}
        except (OSError, FrameError) as error:
            self.close()
            if isinstance(error, StoreIOError):
                raise
            raise self._error(error.strerror or "no answer" if isinstance(error, OSError) else str(error)) from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self.close()
            raise self._error("the answer is not a table of a broker") from None
        return BrokerSnapshot(time.time_ns() // 1_000_000, found)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _error(self, text: str) -> StoreIOError:
        return StoreIOError(errno.EIO, text, self._url)

    def _refusal(self, answer: Command) -> str:
        """Say why there is no table: name servers do not know the request, but know the brokers."""
        brokers = self._brokers()
        if not brokers:
            return f"the answer is code {answer.code}: {answer.remark or 'no remark'}"
        return f"it is a name server; give the address of a broker: {', '.join(brokers)}"

    def _brokers(self) -> list[str]:
        try:
            answer = self._call(CLUSTER_INFO)
            table = json.loads(_BARE_NUMBER.sub(rb'\1"\2":', answer.body))["brokerAddrTable"]
            return [f"{address} ({name})" for name, data in table.items() for address in data["brokerAddrs"].values()]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return []

    def _call(self, code: int) -> Command:
        """Send a request without fields, and return its answer. Raises OSError, FrameError."""
        deadline = time.monotonic() + SECONDS
        if self._socket is None:
            self._socket = socket.create_connection(self._address, SECONDS)
        self._opaque += 1
        self._socket.sendall(Command(code, opaque=self._opaque).encode())
        decoder = FrameDecoder()
        while True:
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionResetError(errno.ECONNRESET, "the connection was closed")
            for frame in decoder.receive(data):
                command = Command.decode(*frame)
                if command.is_answer and command.opaque == self._opaque:
                    return command
            if decoder.is_corrupt:
                raise FrameError("it does not speak RocketMQ's protocol")
