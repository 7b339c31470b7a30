"""A server of the remoting protocol: connections, and the processors of their requests.

Source: RocketMQ NettyRemotingServer, NettyRemotingAbstract.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from rocketc.errors import BadRequestError, FrameError, NotSentError
from rocketc.remoting._busy import busy_remark
from rocketc.remoting._connection import FastPath, Reply
from rocketc.remoting._fair_queue import FairQueue
from rocketc.remoting.calls import Calls
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command, Flag
from rocketc.remoting.connection import Connection, Frame, Limits
from rocketc.remoting.requests import REQUESTS
from rocketc.remoting.rpc_times import UNKNOWN, RpcTimes
from rocketc.remoting.socket_faults import listen_error
from rocketc.remoting.tls import TlsGate

if TYPE_CHECKING:
    from typing_extensions import Buffer

_log = logging.getLogger("rocketc.remoting")

_KNOWS_GO_AWAY = 475  # V5_3_1: later clients know GO_AWAY
_SWEEP_SECONDS = 5.0
_ACCEPTED_A_TURN = 16  # connections of a socket
_REMARK_MOST = 1000  # characters of an error that a peer gets


@dataclass
class Answer:
    """What a processor returns.

    code    of the answer
    values  fields of the table of requests, by name
    fields  other fields, as texts
    body    bytes, or several buffers, which are sent without a copy
    frame   the whole frame or its buffers, if the processor has encoded it; then only the code is used besides
    """

    code: int = Code.SUCCESS
    values: Mapping[str, Any] = field(default_factory=dict)
    body: bytes | Sequence[Buffer] = b""
    remark: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    frame: bytes | list[Buffer] | None = field(default=None, repr=False)


@dataclass
class Call:
    """One request on its way through a processor.

    values      its fields, as the table of requests decodes them
    connection  where it came from; processors use it only as a name, and for its `peer`
    later       answers a request for which process() returned None; a second call does nothing
    hold        tells that the answer may take long: the client may have any number of such requests
    """

    command: Command
    values: dict[str, Any]
    connection: Connection
    later: Callable[[Answer], None]
    hold: Callable[[], object] = lambda: None


def failed(connection: Connection, command: Command, error: Exception) -> Answer:
    """Return the answer to a request whose processor raised an error; log it, unless it is a BadRequestError.

    >>> failed(None, Command(30), BadRequestError("GET_MAX_OFFSET lacks the field topic"))
    Answer(code=<Code.SYSTEM_ERROR: 1>, values={}, body=b'', remark='GET_MAX_OFFSET lacks the field topic', fields={})
    """
    if isinstance(error, BadRequestError):
        return Answer(Code.SYSTEM_ERROR, remark=str(error))
    _log.exception("%s: request %d failed", connection.peer, command.code, exc_info=error)
    return Answer(Code.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}"[:_REMARK_MOST])


class Processor(Protocol):
    """Processes requests of some codes. Frames and sockets are outside of it."""

    @property
    def codes(self) -> Iterable[int]: ...

    def process(self, call: Call) -> Answer | None:
        """Return the answer; None: call.later() answers."""
        ...


Check = Callable[[Command, Any], Answer | None]


class Server:
    """Accepts connections and answers their requests.

    processors   of this server; each code has one
    on_lost      called with each connection that ended
    limits       see Limits
    fast         gets the frames first; with a check it is not used, because it would not check them
    tls          decides whether a new connection is plain; None: all are
    patience     seconds that a request may wait for its turn, by its code; after that it is answered SYSTEM_BUSY. Its
                 time in the socket counts from when the loop has seen it there
    queue        of connections whose requests wait for their turn; servers of one loop may share it
    check        called with each request and the peer of its connection, before its processor; it returns None, or the
                 answer that refuses the request
    Use it as an async context manager; it ends in order: no new connections, GO_AWAY to requests that wait, answers to
    those in flight for up to `grace` seconds.
    """

    def __init__(
        self,
        processors: Iterable[Processor],
        *,
        on_lost: Callable[[Connection], object] = lambda connection: None,
        limits: Limits | None = None,
        grace: float = 5.0,
        fast: FastPath | None = None,
        check: Check | None = None,
        tls: TlsGate | None = None,
        patience: Mapping[int, float] | None = None,
        queue: FairQueue | None = None,
    ) -> None:
        self.queue = FairQueue() if queue is None else queue
        self.patience = {} if patience is None else patience
        self.overdue = 0  # requests that have waited for longer
        self._tls = tls
        self._fast = fast if check is None else None
        self._check = check
        self.limits = Limits() if limits is None else limits
        self.connections: dict[Connection, None] = {}  # in the order in which they came
        self._processors = {code: processor for processor in processors for code in processor.codes}
        self._on_lost = on_lost
        self._grace = grace
        self._listening: list[asyncio.Server] = []
        self._is_ending = False
        self._bytes_in_flight = 0
        self._without_room: dict[Connection, None] = {}  # in the order in which they came
        self._sweep: asyncio.TimerHandle | None = None
        self.refused = 0  # connections beyond the limit
        self._calls = Calls()  # requests to peers
        self.times = RpcTimes()

    # connections

    def connection(self) -> asyncio.Protocol:
        """Make the protocol of a new connection: the factory for a listening socket, or for a test's network."""
        connection = Connection(self, self._fast)
        return connection if self._tls is None else self._tls.protocol(connection)

    async def listen(self, host: str | None, port: int) -> tuple[str, int]:
        """Listen on an address; port 0 takes a free one. Return the host and port of the first socket.

        host  None: all addresses, IPv6 and IPv4
        Raises the OSError of listen_error(), for example if the port is in use.
        """
        try:
            server = await asyncio.get_running_loop().create_server(self.connection, host, port, backlog=1024)
        except OSError as error:
            raise listen_error(error, host, port) from None
        self._listening.append(server)
        name = server.sockets[0].getsockname()
        return name[0], name[1]

    async def serve(self, listening: socket.socket) -> None:
        """Accept the connections of a socket that listens; close() closes it.

        uvloop accepts one connection of a listening socket in each turn of the loop. While turns are long, that is too
        slow for 1,000 clients that connect again, so several copies of the socket listen.
        """
        copies = [listening.dup() for _ in range(_ACCEPTED_A_TURN - 1)]
        for one in (listening, *copies):
            self._listening.append(
                await asyncio.get_running_loop().create_server(self.connection, sock=one, backlog=1024)
            )

    def opened(self, connection: Connection) -> bool:
        if self._is_ending or len(self.connections) >= self.limits.connections:
            self.refused += 1
            _log.log(
                logging.WARNING if self.refused == 1 else logging.DEBUG,
                "%s: refused, there are %d connections", connection.peer, len(self.connections),
            )  # fmt: skip
            return False
        self.connections[connection] = None
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self._check_times)
        return True

    def lost(self, connection: Connection) -> None:
        self._without_room.pop(connection, None)
        self._calls.lost(connection)
        if connection in self.connections:
            del self.connections[connection]
            self._on_lost(connection)

    def _check_times(self) -> None:
        loop = asyncio.get_running_loop()
        for connection in list(self.connections):
            connection.check_times(loop.time())
        self._sweep = loop.call_later(_SWEEP_SECONDS, self._check_times) if self.connections else None

    # room for requests

    def take(self, connection: Connection, size: int) -> bool:
        if self._bytes_in_flight > 0 and self._bytes_in_flight + size > self.limits.bytes_in_flight:
            self._without_room[connection] = None
            return False
        self._bytes_in_flight += size
        return True

    def give_back(self, size: int) -> None:
        self._bytes_in_flight -= size
        waiting, self._without_room = self._without_room, {}
        for connection in waiting:
            asyncio.get_running_loop().call_soon(connection.resume)

    # requests

    def handle(self, connection: Connection, frame: Frame, reply: Reply) -> None:
        try:
            command = Command.decode(*frame)
        except FrameError as error:
            _log.warning("%s: %s; the connection is closed", connection.peer, error)
            reply(b"")
            connection.abort()
            return
        if command.is_answer:
            self.answered(connection, command)
            reply(b"")
            return

        time = asyncio.get_running_loop().time
        began, is_late = time(), False

        def later(answer: Answer) -> None:
            nonlocal began
            if began >= 0.0:  # a second answer is not sent
                code = command.code if command.code in REQUESTS else UNKNOWN
                self.times.add(code, answer.code, time() - began, is_late)
                began = -1.0
            reply(b"" if command.is_oneway else self._encode_any(connection, command, answer))

        answer = self._process(connection, command, later, reply.hold)
        is_late = answer is None
        if answer is not None:
            later(answer)

    def answered(self, connection: Connection, command: Command) -> None:
        """An answer to a request of this server arrived."""
        if not self._calls.answered(connection, command):
            _log.debug("%s: answer %d to no request", connection.peer, command.opaque)

    def _process(
        self, connection: Connection, command: Command, later: Callable[[Answer], None], hold: Callable[[], object]
    ) -> Answer | None:
        processor = self._processors.get(command.code)
        if 0.0 < connection.waited > self.patience.get(command.code, float("inf")):
            self.overdue += 1
            return Answer(Code.SYSTEM_BUSY, remark=busy_remark(connection.waited))
        try:
            if self._check is not None:
                refused = self._check(command, connection.peer)
                if refused is not None:
                    return refused
            if processor is None:
                return Answer(Code.REQUEST_CODE_NOT_SUPPORTED, remark=f" request type {command.code} not supported")
            request = REQUESTS.get(command.code)
            values = request.decode(command.fields) if request is not None else {}
            return processor.process(Call(command, values, connection, later, hold))
        except Exception as error:
            return failed(connection, command, error)

    def _encode_any(self, connection: Connection, command: Command, answer: Answer) -> bytes | list[Any]:
        """Return the frame of an answer, or of an error if it can't be sent, for example because it is too large."""
        try:
            return self._encode(command, answer)
        except ValueError as error:
            _log.warning("%s: the answer to request %d is not sent: %s", connection.peer, command.code, error)
            return self._encode(command, Answer(Code.SYSTEM_ERROR, remark=str(error)[:_REMARK_MOST]))

    def _encode(self, command: Command, answer: Answer) -> bytes | list[Any]:
        """Return the frame of an answer, or its buffers."""
        if answer.frame is not None:
            return answer.frame
        request = REQUESTS.get(command.code)
        fields = request.encode_answer(answer.values) if request is not None else {}
        out = Command(answer.code, {**fields, **answer.fields}, b"", command.opaque, Flag.ANSWER, answer.remark)
        if isinstance(answer.body, bytes):
            out.body = answer.body
            return out.encode()
        return [out.encode_head(sum(memoryview(piece).nbytes for piece in answer.body)), *answer.body]

    # requests to peers

    def send(self, connection: Connection, code: int, values: Mapping[str, Any], body: bytes = b"") -> None:
        """Send a request that is not answered (oneway) to the peer of a connection; a connection that ends drops it."""
        opaque = self._calls.next_opaque()
        connection.write(Command(code, REQUESTS[code].encode(values), body, opaque, Flag.ONEWAY).encode())

    def call(
        self, connection: Connection, code: int, values: Mapping[str, Any], body: bytes, timeout: float
    ) -> asyncio.Future[Command]:
        """Send a request to the peer of a connection. Return its answer, whatever its code.

        values   fields of the table of requests, by name
        timeout  seconds until the call ends
        The future raises NotSentError (nothing was sent), ConnectionLostError or NoAnswerError (the request may have
        been carried out). Raises ValueError if the frame is larger than a peer accepts.
        """
        if connection not in self.connections or connection.is_lost:
            answer: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
            answer.set_exception(NotSentError("the connection ended"))
            return answer
        opaque, answer = self._calls.begin(connection, asyncio.get_running_loop().time() + timeout)
        try:
            frame = Command(code, REQUESTS[code].encode(values), body, opaque).encode()
        except ValueError:
            answer.cancel()
            raise
        connection.write(frame)
        return answer

    # the end

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the server in order."""
        self._is_ending = True
        for listening in self._listening:
            listening.close()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        ends = [asyncio.ensure_future(connection.close(self._grace)) for connection in self.connections]
        if ends:
            await asyncio.wait(ends)
        self._calls.close()

    def turn_away(self, connection: Connection, frame: Frame) -> bytes | list[Any]:
        """Answer a request that is not processed: the peer may send it to another server."""
        try:
            command = Command.decode(*frame)
        except FrameError:
            return b""
        if command.is_answer:
            self.answered(connection, command)
        if command.is_answer or command.is_oneway:
            return b""
        code = Code.GO_AWAY if command.version > _KNOWS_GO_AWAY else Code.SYSTEM_BUSY
        return self._encode(command, Answer(code, remark="the server ends; connect again"))
