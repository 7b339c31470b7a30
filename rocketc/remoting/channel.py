"""Requests to one address: a connection that is made when it is needed, answers by their number, and deadlines.

Source: RocketMQ NettyRemotingAbstract.invokeImpl.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from rocketc.errors import ConnectionLostError, FrameError, NoAnswerError, NotSentError
from rocketc.remoting._frames import FrameDecoder
from rocketc.remoting.command import Command, Flag
from rocketc.remoting.requests import REQUESTS

_log = logging.getLogger("rocketc.remoting")

_SWEEP_SECONDS = 0.1  # a call ends at most this late
_OPAQUE_MOST = 0x7FFFFFFF

Connect = Callable[[Callable[[], asyncio.Protocol]], Awaitable[Any]]


def backoff(failures: int, chance: random.Random, first: float = 0.1, most: float = 10.0) -> float:
    """Return the seconds before the next attempt, half of them random.

    failures  how many attempts in a row have failed, at least 1

    >>> import random
    >>> [0.5 * bound <= backoff(n, random.Random(1)) <= bound for n, bound in [(1, 0.1), (2, 0.2), (99, 10.0)]]
    [True, True, True]
    """
    bound = min(most, first * 2.0 ** min(failures - 1, 30))
    return bound / 2 + chance.random() * bound / 2


class Channel:
    """The connection to one address. It connects when it is first needed, and again after it was lost.

    connect     connects a protocol: functools.partial(loop.create_connection, host=..., port=...), or a test's network
    chance      random numbers for the pauses between attempts
    on_request  called with requests that the peer sends, for example NOTIFY_CONSUMER_IDS_CHANGED
    hook        called with each request before it is sent; it may add fields, as a Signer does
    """

    def __init__(
        self,
        connect: Connect,
        chance: random.Random,
        on_request: Callable[[Command], object] = lambda command: None,
        hook: Callable[[Command], object] | None = None,
    ) -> None:
        self._connect, self._chance, self._on_request, self._hook = connect, chance, on_request, hook
        self._loop = asyncio.get_running_loop()
        self._link: _Link | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._opaque = itertools.count()
        self._waiting: dict[int, tuple[float, asyncio.Future[Command]]] = {}
        self._sweep: asyncio.TimerHandle | None = None
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
        link = await self._linked(deadline)
        opaque = next(self._opaque) & _OPAQUE_MOST
        answer: asyncio.Future[Command] = self._loop.create_future()
        self._waiting[opaque] = deadline, answer
        if self._sweep is None:
            self._sweep = self._loop.call_later(_SWEEP_SECONDS, self._expire)
        try:
            link.send(self._request(code, values, body, opaque))
            return await answer
        finally:  # answered, late, lost or canceled: the entry ends
            self._waiting.pop(opaque, None)

    async def send(self, code: int, values: Mapping[str, Any], deadline: float, body: bytes = b"") -> None:
        """Send a request that is not answered (oneway). Raises NotSentError."""
        link = await self._linked(deadline)
        opaque = next(self._opaque) & _OPAQUE_MOST
        link.send(self._request(code, values, body, opaque, Flag.ONEWAY))

    def _request(self, code: int, values: Mapping[str, Any], body: bytes, opaque: int, flag: int = 0) -> Command:
        command = Command(code, REQUESTS[code].encode(values), body, opaque, flag)
        if self._hook is not None:
            self._hook(command)
        return command

    def close(self) -> None:
        """Close the connection. Calls that wait end with ConnectionLostError, later ones with NotSentError."""
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._link is not None:
            self._link.close()
            self.lost(self._link, None)

    # connecting

    async def _linked(self, deadline: float) -> _Link:
        """Return the connection. All callers wait for the same attempt, and it continues if one of them ends."""
        if self._link is None and not self._is_closed:
            if self._connecting is None:
                self._connecting = asyncio.create_task(self._reconnect())
                self._connecting.add_done_callback(self._connected)
            done, _ = await asyncio.wait({self._connecting}, timeout=max(0.0, deadline - self._loop.time()))
            if not done:
                raise NotSentError("no connection in time")
        if self._link is None:
            raise NotSentError("the channel is closed" if self._is_closed else self._fault)
        return self._link

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
        self._fault = f"no connection: {_reason(error)}"
        pause = backoff(self._failures, self._chance)
        self._next_try = self._loop.time() + pause
        _log.debug("%s; next attempt in %d ms", self._fault, 1000 * pause)

    # what a link reports

    def linked(self, link: _Link) -> None:
        self._link = link
        if self._is_closed:
            link.close()

    def received(self, command: Command) -> None:
        if not command.is_answer:
            self._on_request(command)
            return
        _, answer = self._waiting.get(command.opaque, (0.0, None))
        if answer is None or answer.done():
            self.late_answers += 1
        else:
            answer.set_result(command)

    def lost(self, link: _Link, error: Exception | None) -> None:
        if self._link is not link:
            return
        self._link = None
        for _, answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionLostError(f"the connection ended: {error or 'it was closed'}"))

    def _expire(self) -> None:
        """End the calls that are due. There is one timer for all, because a timer each costs more than a call."""
        now = self._loop.time()
        for deadline, answer in self._waiting.values():
            if deadline <= now and not answer.done():
                answer.set_exception(NoAnswerError("no answer in time; the request may have been carried out"))
        self._sweep = self._loop.call_later(_SWEEP_SECONDS, self._expire) if self._waiting else None


class _Link(asyncio.Protocol):
    """One connection of a channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._decoder = FrameDecoder()
        self._fault: FrameError | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not derive from it
        self._channel.linked(self)

    def send(self, command: Command) -> None:
        self._transport.write(command.encode())

    def close(self) -> None:
        if self._transport.get_extra_info("ssl_object") is None:
            self._transport.close()
        else:  # close() would wait for the peer, maybe until after the end of the loop
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._decoder.receive(data):
                self._channel.received(Command.decode(*frame))
            if self._decoder.is_corrupt:
                raise FrameError("a length in a frame is impossible")
        except FrameError as error:
            _log.warning("%s: %s; the connection is closed", self._transport.get_extra_info("peername"), error)
            self._fault = error
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._channel.lost(self, error or self._fault)


def _reason(error: BaseException) -> str:
    """Why a connection failed, without the address and the function that asyncio and uvloop add."""
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__
