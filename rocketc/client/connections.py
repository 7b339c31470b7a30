"""Requests to any server by its address. There is one connection to each, made when it is needed.

Source: RocketMQ NettyRemotingClient.
"""

from __future__ import annotations

import asyncio
import functools
import random
import ssl
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar, cast

from rocketc.client.bodies import Fields, parse_fields
from rocketc.client.hooks import Hooks
from rocketc.client.recent import Recent
from rocketc.errors import AnswerError, ConnectionLostError, NoAnswerError, NotSentError
from rocketc.remoting._channel import Call
from rocketc.remoting.addresses import split_address
from rocketc.remoting.channel import Channel, Connect, Reply
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command
from rocketc.remoting.requests import REQUESTS
from rocketc.remoting.tls_contexts import tls_connector

T = TypeVar("T")
Connector = Callable[[str, int], Connect]

_KNOWN_MOST = 1_000

UNREACHABLE = (NotSentError, ConnectionLostError, NoAnswerError)  # another server may answer


class Connections:
    """The connections of one client. Use it on one event loop.

    chance     random numbers for the pauses between attempts
    timeout    seconds for a request, connecting included
    connector  returns how to connect to (host, port): see Channel; None: TCP, with TLS if `tls` is set
    on_request  called with the address of a server, its request and what answers it: see Channel
    hook       changes each request before it is sent, as a Signer does
    tls        for TLS; None: plain
    on_connect  called with the address of each new connection
    on_lost     called with the address of each connection that is lost
    rpc_hooks  called with (address, request) before each request, and with (address, request, answer) after it
    """

    def __init__(
        self,
        chance: random.Random,
        timeout: float,
        connector: Connector | None = None,
        on_request: Callable[[str, Command, Reply], object] = lambda address, command, reply: None,
        *,
        hook: Callable[[Command], object] | None = None,
        tls: ssl.SSLContext | None = None,
        rpc_hooks: Hooks | None = None,
        on_connect: Callable[[str], object] = lambda address: None,
        on_lost: Callable[[str], object] = lambda address: None,
    ) -> None:
        self._on_connect, self._on_lost = on_connect, on_lost
        self._rpc_hooks = rpc_hooks if rpc_hooks is not None and rpc_hooks.all else None
        self._chance, self.timeout, self._on_request, self._hook = chance, timeout, on_request, hook
        self._loop = asyncio.get_running_loop()
        if connector is None:
            connector = self._tcp if tls is None else tls_connector(tls)
        self._connector = connector
        self._channels: dict[str, Channel] = {}
        self._known: Recent[str, bool] = Recent(_KNOWN_MOST)  # addresses of forgotten channels that have answered
        self.is_closed = False

    async def call(
        self,
        address: str,
        code: int,
        values: Mapping[str, Any] | None = None,
        body: bytes = b"",
        *,
        others: Collection[int] = (),
        deadline: float | None = None,
    ) -> Command:
        """Send a request, and return its answer.

        others    codes that do not raise an error, besides SUCCESS
        deadline  loop.time() at which the call ends; None: after `timeout`
        Raises AnswerError for another code. NotSentError, ConnectionLostError and NoAnswerError name the address.
        """
        if deadline is None:
            deadline = self._loop.time() + self.timeout
        try:
            if self._rpc_hooks is None:
                answer = await self._channel(address).call(code, values or {}, deadline, body)
            else:
                answer = await self._hooked(self._rpc_hooks, address, code, values or {}, deadline, body)
        except UNREACHABLE as error:
            raise type(error)(f"{address}: {error}") from None
        if answer.code != Code.SUCCESS and answer.code not in others:
            raise AnswerError(address, _refusal(code, answer), answer.code)
        return answer

    async def _hooked(
        self, hooks: Hooks, address: str, code: int, values: Mapping[str, Any], deadline: float, body: bytes
    ) -> Command:
        channel, sent = self._channel(address), list[Command]()

        def encode(opaque: int) -> bytes:
            sent.append(channel.command(code, values, body, opaque))
            return sent[-1].encode()

        answer = await channel.call_frame(encode, deadline)
        hooks.after(address, sent[-1], answer)
        return answer

    def _before(self, address: str, command: Command) -> None:
        """The hook of a channel: the hooks of the program, then the signature."""
        if self._rpc_hooks is not None:
            self._rpc_hooks.before(address, command)
        if self._hook is not None:
            self._hook(command)

    async def call_frame(
        self,
        address: str,
        code: int,
        encode: Callable[[int], bytes],
        values: Callable[[], Mapping[str, Any]],
        body: bytes,
        *,
        others: Collection[int],
        deadline: float,
        begun: Call | None = None,
    ) -> Command:
        """Send a request that the caller encodes faster than the table of requests, and return its answer as call().

        encode  returns the frame with this opaque
        values  returns the same request for the table: a request that is signed is encoded from it
        begun   the request was sent already, over a channel without a hook, and this waits for its answer
        """
        channel = self._channel(address) if begun is None else cast(Channel, begun.channel)
        if channel.has_hook:
            return await self.call(address, code, values(), body, others=others, deadline=deadline)
        try:
            answer = await channel.call_frame(encode, deadline, begun)
        except UNREACHABLE as error:
            raise type(error)(f"{address}: {error}") from None
        if answer.code not in others:
            raise AnswerError(address, _refusal(code, answer), answer.code)
        return answer

    async def ask(
        self, address: str, code: int, values: Mapping[str, Any], decode: Callable[[Fields], T], body: bytes = b""
    ) -> T:
        """Send a request, and return what `decode` makes of the body of its answer. Raises as call()."""
        return decoded(address, code, await self.call(address, code, values, body), decode)

    async def send(
        self,
        address: str,
        code: int,
        values: Mapping[str, Any] | None = None,
        body: bytes = b"",
        remark: str | None = None,
    ) -> None:
        """Send a request that is not answered (oneway). Raises NotSentError."""
        try:
            await self._channel(address).send(code, values or {}, self._loop.time() + self.timeout, body, remark)
        except NotSentError as error:
            raise NotSentError(f"{address}: {error}") from None

    async def connect(self, address: str, deadline: float) -> None:
        """Have a connection, and send nothing. Raises NotSentError.

        deadline  loop.time()
        """
        try:
            await self._channel(address).connect(deadline)
        except NotSentError as error:
            raise NotSentError(f"{address}: {error}") from None

    def leave(self, address: str) -> None:
        """Use another connection for later requests: this one may be dead."""
        if (channel := self._channels.get(address)) is not None:
            channel.leave()

    def close(self) -> None:
        """Close all connections. Requests that wait end with ConnectionLostError."""
        self.is_closed = True
        for channel in self._channels.values():
            channel.close()

    def forget_idle(self) -> None:
        """Forget the addresses without a connection that no call waits for: brokers move, and new ones come."""
        for address in [address for address, channel in self._channels.items() if channel.is_idle]:
            channel = self._channels.pop(address)
            channel.close()
            if channel.is_known:
                self._known[address] = True

    def _channel(self, address: str) -> Channel:
        if self.is_closed:
            raise NotSentError(f"{address}: the client is closed")
        if address not in self._channels:
            try:
                host, port = split_address(address)
            except ValueError as error:
                raise NotSentError(str(error)) from None
            hook = self._hook if self._rpc_hooks is None else functools.partial(self._before, address)
            self._channels[address] = Channel(
                self._connector(host, port), self._chance, functools.partial(self._on_request, address), hook,
                functools.partial(self._on_connect, address), functools.partial(self._on_lost, address),
                self._known.get(address) or False,
            )  # fmt: skip
        return self._channels[address]

    def plain_channel(self, address: str) -> Channel | None:
        """Return the channel to an address if there is one, and no hook has to see what is sent over it."""
        channel = None if self.is_closed else self._channels.get(address)
        return None if channel is None or channel.has_hook else channel

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
