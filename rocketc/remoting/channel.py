"""Requests to one address: a connection that is made when it is needed, answers by their number, and deadlines.

Source: RocketMQ NettyRemotingAbstract.invokeImpl.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from rocketc.errors import ConnectionLostError, FrameError, NoAnswerError, NotSentError
from rocketc.remoting._channel import Call, ChannelCore, LinkCore
from rocketc.remoting.codes import Code
from rocketc.remoting.command import LARGEST, Command, Flag
from rocketc.remoting.requests import REQUESTS
from rocketc.remoting.socket_faults import connection_fault
from rocketc.remoting.tls_faults import tls_fault

_log = logging.getLogger("rocketc.remoting")

_CLOSED = "the server closed it before it answered"
_SILENT = "the server closed it without any answer; it may accept only TLS, or be a proxy whose server is down"
_SILENT_TLS = "the server closed it without any answer; it may want another certificate of this client"

RECONNECT_SECONDS = 2.0  # at most, between two attempts to connect

Connect = Callable[[Callable[[], asyncio.Protocol]], Awaitable[Any]]
Reply = Callable[[Command], None]
OnRequest = Callable[[Command, Reply], object]


def backoff(failures: int, chance: random.Random, first: float = 0.1, most: float = RECONNECT_SECONDS) -> float:
    """Return the seconds before the next attempt, half of them random.

    failures  how many attempts in a row have failed, at least 1

    >>> import random
    >>> [0.5 * bound <= backoff(n, random.Random(1)) <= bound for n, bound in [(1, 0.1), (2, 0.2), (99, 2.0)]]
    [True, True, True]
    """
    bound = min(most, first * 2.0 ** min(failures - 1, 30))
    return bound / 2 + chance.random() * bound / 2


class Channel(ChannelCore):
    """The connection to one address. It connects when it is first needed, and again after it was lost.

    connect     connects a protocol: functools.partial(loop.create_connection, host=..., port=...), or a test's network
    chance      random numbers for the pauses between attempts
    on_request  called with a request that the peer sends, for example NOTIFY_CONSUMER_IDS_CHANGED, and with a function
                that sends its answer
    hook        called with each request before it is sent; it may add fields, as a Signer does
    on_connect  called when there is a new connection
    on_lost     called when there is none any more, or its server goes away
    is_known    the server has answered over an earlier channel, so it accepts connections as this client makes them
    """

    def __init__(
        self,
        connect: Connect,
        chance: random.Random,
        on_request: OnRequest = lambda command, reply: None,
        hook: Callable[[Command], object] | None = None,
        on_connect: Callable[[], object] = lambda: None,
        on_lost: Callable[[], object] = lambda: None,
        is_known: bool = False,
    ) -> None:
        super().__init__()
        self.is_known = is_known
        self._connect, self._chance, self._on_request, self._hook = connect, chance, on_request, hook
        self._on_connect, self._on_lost = on_connect, on_lost
        self.link: _Link | None = None
        self._links: set[_Link] = set()  # with those of servers that go away, until their last answer
        self._connecting: asyncio.Task[None] | None = None
        self._failures, self._next_try = 0, 0.0
        self._fault = "no connection"  # why the last attempt failed
        self._is_closed = False
        self.late_answers = 0  # answers to calls that had ended

    async def call(self, code: int, values: Mapping[str, Any], deadline: float, body: bytes = b"") -> Command:
        """Send a request and return its answer, whatever its code.

        values    fields of the table of requests, by name
        deadline  loop.time() at which the call ends; it includes connecting
        Raises NotSentError (nothing was sent), ConnectionLostError and NoAnswerError (the request may have been carried
        out).
        """
        return await self.call_frame(lambda opaque: self._request(code, values, body, opaque), deadline)

    async def call_frame(self, encode: Callable[[int], bytes], deadline: float, begun: Call | None = None) -> Command:
        """Send a request that the caller has encoded, and return its answer as call() does.

        encode  returns the frame with this opaque; it is called again if the server goes away
        begun   the call was sent already, and this waits for its answer
        """
        while True:
            call = begun or Call(deadline, self._loop.create_future(), self.link or await self._linked(deadline))
            try:
                if begun is None:
                    call.link.send(encode(self._begin(call)))
                found: Command = await call.answer
            finally:  # answered, late, lost or canceled: the entry ends
                self.forget(call)
            begun, link = None, call.link
            if found.code != Code.GO_AWAY:
                return found
            self._go_away(link)  # the server ends: it did not carry out the request
            if self._loop.time() >= deadline:
                raise NotSentError("the server is shutting down")

    def forget(self, call: Call) -> None:
        """End a call that has its answer, or does not wait for it any more."""
        self._end(call)
        if call.link is not self.link:
            self.close_if_idle(call.link)

    async def send(
        self, code: int, values: Mapping[str, Any], deadline: float, body: bytes = b"", remark: str | None = None
    ) -> None:
        """Send a request that is not answered (oneway); wait while the server does not read. Raises NotSentError."""
        link = await self._linked(deadline)
        while not link.may_write.is_set():
            await link.wait_room(deadline - self._loop.time())
            link = await self._linked(deadline)  # the other one may be lost
        link.send(self._request(code, values, body, self._next_opaque(), Flag.ONEWAY, remark))

    async def connect(self, deadline: float) -> None:
        """Have a connection, and send nothing. Raises NotSentError."""
        await self._linked(deadline)

    def leave(self) -> None:
        """Use another connection for later calls: this one may be dead. Calls that wait still get their answers."""
        if (link := self.link) is not None:
            self._leave(link)
            self.close_if_idle(link)

    @property
    def is_idle(self) -> bool:
        """Whether there is no connection, no attempt and no pause before the next one, and no call that waits."""
        return not (self._links or self._connecting or self._waiting) and self._loop.time() >= self._next_try

    @property
    def has_hook(self) -> bool:
        """Whether requests must not be encoded before a hook has seen them."""
        return self._hook is not None

    def _request(
        self, code: int, values: Mapping[str, Any], body: bytes, opaque: int, flag: int = 0, remark: str | None = None
    ) -> bytes:
        return self.command(code, values, body, opaque, flag, remark).encode()

    def command(
        self, code: int, values: Mapping[str, Any], body: bytes, opaque: int, flag: int = 0, remark: str | None = None
    ) -> Command:
        """Return a request after the hook has changed it."""
        command = Command(code, REQUESTS[code].encode(values), body, opaque, flag, remark)
        if self._hook is not None:
            self._hook(command)
        return command

    def close(self) -> None:
        """Close the connection. Calls that wait end with ConnectionLostError, later ones with NotSentError."""
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        self.link = None
        for link in list(self._links):
            link.close()
            self.lost(link, None)

    # connecting

    async def _linked(self, deadline: float) -> _Link:
        """Return the connection. All callers wait for the same attempt, and it continues if one of them ends."""
        if self.link is None and not self._is_closed:
            if self._connecting is None:
                self._connecting = asyncio.create_task(self._reconnect())
                self._connecting.add_done_callback(self._connected)
            done, _ = await asyncio.wait({self._connecting}, timeout=max(0.0, deadline - self._loop.time()))
            if not done:
                raise NotSentError("no connection in time")
        if self.link is None:
            raise NotSentError("the channel is closed" if self._is_closed else self._fault)
        return self.link

    async def _reconnect(self) -> None:
        await asyncio.sleep(self._next_try - self._loop.time())
        await self._connect(lambda: _Link(self))

    def _connected(self, task: asyncio.Task[None]) -> None:
        self._connecting = None
        error = None if task.cancelled() else task.exception()
        if error is None:
            self._failures, self._next_try = 0, 0.0
            return
        self._failures += 1
        self._fault = f"no connection: {connection_fault(error)}"
        pause = backoff(self._failures, self._chance)
        self._next_try = self._loop.time() + pause
        _log.debug("%s; next attempt in %d ms", self._fault, 1000 * pause)

    # what a link reports

    def linked(self, link: _Link) -> None:
        self.link = link
        self._links.add(link)
        if self._is_closed:
            link.close()
        else:
            self._on_connect()

    def received(self, link: _Link, command: Command) -> None:
        if not command.is_answer:
            self._on_request(command, lambda answer: link.answer(command, answer))
            return
        call = self._waiting.get(command.opaque)
        if call is None or call.answer.done():
            self.late_answers += 1
        else:
            call.answer.set_result(command)

    def _leave(self, link: _Link) -> None:
        """Connect again for later calls. The calls that wait at the old connection still get their answers."""
        if self.link is link:
            self.link = None
            self._on_lost()

    def _go_away(self, link: _Link) -> None:
        if self.link is link:
            self._next_try = self._loop.time() + backoff(1, self._chance)
            self._leave(link)
            self.close_if_idle(link)

    def close_if_idle(self, link: _Link) -> None:
        """Close a connection that was left, after its last answer: the server may keep it for ever."""
        if link in self._links and not any(call.link is link for call in self._waiting.values()):
            self._links.discard(link)
            link.close()

    def lost(self, link: _Link, error: Exception | None) -> None:
        self._leave(link)
        self._links.discard(link)
        fault = "it was closed" if error is None else connection_fault(error)
        for call in self._waiting.values():
            if call.link is link and not call.answer.done():
                call.answer.set_exception(ConnectionLostError(f"the connection ended: {fault}"))

    def _expire(self) -> None:
        """End the calls that are due."""
        now = self._loop.time()
        for call in self._waiting.values():
            if call.deadline <= now and not call.answer.done():
                call.answer.set_exception(NoAnswerError("no answer in time; the request may have been carried out"))
        self._start_timer()


class _Link(LinkCore, asyncio.Protocol):
    """One connection of a channel."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel, LARGEST)
        self._fault: FrameError | None = None
        self._is_silent = True  # nothing was received
        self._is_closing = False
        self.may_write = asyncio.Event()  # not set while too much waits for the server to read it
        self.may_write.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not derive from it
        self._is_tls = transport.get_extra_info("ssl_object") is not None
        self.channel.linked(self)

    def pause_writing(self) -> None:
        self.may_write.clear()

    def resume_writing(self) -> None:
        self.may_write.set()

    async def wait_room(self, seconds: float) -> None:
        """Wait until the server reads again, or the connection ends. Raises NotSentError after this time."""
        waiting = asyncio.ensure_future(self.may_write.wait())
        try:
            await asyncio.wait({waiting}, timeout=max(0.0, seconds))
        finally:
            waiting.cancel()
        if not self.may_write.is_set():
            raise NotSentError("the server does not read what it is sent")

    def answer(self, request: Command, answer: Command) -> None:
        """Send the answer to a request of the peer; nothing if it does not expect one, or is gone."""
        if not request.is_oneway and not self._transport.is_closing():
            answer.opaque, answer.flag = request.opaque, Flag.ANSWER
            self.send(answer.encode())

    def close(self) -> None:
        self._is_closing = True
        self._flush()
        if not self._is_tls:
            self._transport.close()
        else:  # close() would wait for the peer, maybe until after the end of the loop
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        is_first, self._is_silent = self._is_silent, False
        try:
            self._decode(data)
            if self._decoder.is_corrupt:
                raise FrameError(_fault_of(data) if is_first else "a length in a frame is impossible")
            self.channel.is_known = True
        except FrameError as error:
            _log.warning("%s: %s; the connection is closed", self._transport.get_extra_info("peername"), error)
            self._fault = error
            self._transport.abort()

    def _received(self, form: int, header: bytes, body: bytes) -> None:
        self.channel.received(self, Command.decode(form, header, body))

    def connection_lost(self, error: Exception | None) -> None:
        if isinstance(error, ssl.SSLError):
            error = ConnectionError(tls_fault(error))
        elif not self._is_closing and isinstance(error, ConnectionResetError | None):
            error = ConnectionError(_CLOSED if self.channel.is_known else _SILENT_TLS if self._is_tls else _SILENT)
        self.channel.lost(self, self._fault or error)
        self.may_write.set()


def _fault_of(data: bytes) -> str:
    """What is wrong with the first bytes of a server, which are not a frame."""
    if data.startswith(b"HTTP/"):
        return "the server on this port speaks HTTP, and not RocketMQ's protocol"
    if data.startswith(b"\x15\x03"):  # an alert of TLS
        return "the server on this port accepts only TLS"
    return "what the server on this port sends is not RocketMQ's protocol"
