"""Requests to any server by its address. There is one connection to each, made when it is needed.

Source: RocketMQ NettyRemotingClient.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from rocketc.client.bodies import Fields, parse_fields
from rocketc.errors import AnswerError, ConnectionLostError, NoAnswerError, NotSentError
from rocketc.remoting.addresses import split_address
from rocketc.remoting.channel import Channel, Connect
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command
from rocketc.remoting.requests import REQUESTS

T = TypeVar("T")
Connector = Callable[[str, int], Connect]

UNREACHABLE = (NotSentError, ConnectionLostError, NoAnswerError)  # another server may answer


class Connections:
    """The connections of one client. Use it on one event loop.

    chance     random numbers for the pauses between attempts
    timeout    seconds for a request, connecting included
    connector  returns how to connect to (host, port): see Channel; None: TCP
    """

    def __init__(self, chance: random.Random, timeout: float, connector: Connector | None = None) -> None:
        self._chance, self._timeout = chance, timeout
        self._loop = asyncio.get_running_loop()
        self._connector = self._tcp if connector is None else connector
        self._channels: dict[str, Channel] = {}
        self._is_closed = False

    async def call(
        self,
        address: str,
        code: int,
        values: Mapping[str, Any] | None = None,
        body: bytes = b"",
        *,
        others: Collection[int] = (),
    ) -> Command:
        """Send a request, and return its answer.

        others  codes that do not raise an error, besides SUCCESS
        Raises AnswerError for another code. NotSentError, ConnectionLostError and NoAnswerError name the address.
        """
        channel = self._channel(address)
        try:
            answer = await channel.call(code, values or {}, self._loop.time() + self._timeout, body)
        except UNREACHABLE as error:
            raise type(error)(f"{address}: {error}") from None
        if answer.code != Code.SUCCESS and answer.code not in others:
            raise AnswerError(address, _refusal(code, answer), answer.code)
        return answer

    async def ask(
        self, address: str, code: int, values: Mapping[str, Any], decode: Callable[[Fields], T], body: bytes = b""
    ) -> T:
        """Send a request, and return what `decode` makes of the body of its answer. Raises as call()."""
        return decoded(address, code, await self.call(address, code, values, body), decode)

    def close(self) -> None:
        """Close all connections. Requests that wait end with ConnectionLostError."""
        self._is_closed = True
        for channel in self._channels.values():
            channel.close()

    def _channel(self, address: str) -> Channel:
        if self._is_closed:
            raise NotSentError(f"{address}: the client is closed")
        if address not in self._channels:
            try:
                host, port = split_address(address)
            except ValueError as error:
                raise NotSentError(str(error)) from None
            self._channels[address] = Channel(self._connector(host, port), self._chance)
        return self._channels[address]

    def _tcp(self, host: str, port: int) -> Connect:
        return lambda protocol: self._loop.create_connection(protocol, host, port)


def decoded(address: str, code: int, answer: Command, decode: Callable[[Fields], T]) -> T:
    """Return what `decode` makes of the body of an answer. Raises AnswerError if that fails.

    >>> decoded("10.0.0.1:9876", 206, Command(0, body=b"{}"), lambda fields: fields.names("topicList"))
    []
    """
    try:
        return decode(parse_fields(answer.body))
    except ValueError as error:
        raise AnswerError(address, f"the answer to {_name(code)} cannot be read: {error}") from None


def _refusal(code: int, answer: Command) -> str:
    try:
        name = f"{answer.code} ({Code(answer.code).name})"
    except ValueError:
        name = str(answer.code)
    remark = ((answer.remark or "").strip() or "without a remark").splitlines()[0]
    return f"{_name(code)} was answered with {name}: {remark}"


def _name(code: int) -> str:
    return REQUESTS[code].name
