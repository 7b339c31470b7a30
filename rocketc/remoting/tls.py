"""TLS and plain connections on one port: the first byte of a connection decides.

The bytes go through ssl's objects in memory, so it works on every event loop, and a slow or hostile handshake costs
only its own connection.
Source: RocketMQ NettyRemotingServer.TlsModeHandler.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from rocketc.remoting.connection import Connection
from rocketc.remoting.tls_contexts import TlsContexts
from rocketc.remoting.tls_settings import TlsMode, TlsSettings

if TYPE_CHECKING:
    from typing_extensions import Buffer

_log = logging.getLogger("rocketc.remoting")

HANDSHAKE = 0x16  # the first byte of TLS; the length of a frame cannot begin with it
HANDSHAKE_SECONDS = 10.0
_CHUNK = 256 << 10  # bytes that are encrypted or decrypted at a time


class TlsGate:
    """Lets connections in, with TLS or plain.

    contexts      for TLS
    is_enforcing  plain connections are closed
    seconds       that a handshake may take
    """

    def __init__(
        self, contexts: TlsContexts, *, is_enforcing: bool = False, seconds: float = HANDSHAKE_SECONDS
    ) -> None:
        self.contexts, self.is_enforcing, self.seconds = contexts, is_enforcing, seconds
        self.failures = 0  # connections that were closed before they could be used

    def protocol(self, connection: Connection) -> asyncio.Protocol:
        """Return the protocol of a new connection until its first byte."""
        return _FirstByte(self, connection)

    def failed(self, peer: Any, why: object) -> None:
        """Note that a connection is closed; only the first one is logged as a warning."""
        self.failures += 1
        level = logging.WARNING if self.failures == 1 else logging.DEBUG
        _log.log(level, "%s: no TLS connection, it is closed (later ones are logged as DEBUG): %s", peer, why)


def tls_gate(settings: TlsSettings, *, in_thread: bool = True) -> TlsGate | None:
    """Return the gate of a server; None if its mode is disabled.

    in_thread  see TlsContexts
    Raises ValueError if the settings or their files are wrong.

    >>> tls_gate(TlsSettings(TlsMode.DISABLED)) is None
    True
    """
    if settings.mode is TlsMode.DISABLED:
        return None
    contexts = TlsContexts(settings, in_thread=in_thread)
    return TlsGate(contexts, is_enforcing=settings.mode is TlsMode.ENFORCING)


class _FirstByte(asyncio.Protocol):
    """A connection of which no byte has come. The connection above knows its transport already, with its limits."""

    __slots__ = ("_connection", "_early", "_gate", "_task", "_transport")  # thousands may be idle

    def __init__(self, gate: TlsGate, connection: Connection) -> None:
        self._gate, self._connection = gate, connection
        self._early = b""  # while the certificate is made
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not derive from it
        self._connection.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._task is not None:
            self._early += data
        elif data[:1] == bytes((HANDSHAKE,)):
            context = self._gate.contexts.server
            if context is not None:
                self._begin(context, data)
            else:
                self._early = data
                self._transport.pause_reading()
                self._task = asyncio.ensure_future(self._begin_later())
        elif self._gate.is_enforcing:
            self._gate.failed(self._connection.peer, "it is plain, and tls.server.mode is enforcing")
            self._connection.abort()
        elif data:
            self._transport.set_protocol(self._connection)
            self._connection.data_received(data)

    async def _begin_later(self) -> None:
        try:
            context = await self._gate.contexts.get()
        except ValueError as error:
            self._gate.failed(self._connection.peer, error)
            self._connection.abort()
            return
        if not self._connection.is_lost:
            self._transport.resume_reading()
            self._begin(context, self._early)

    def _begin(self, context: ssl.SSLContext, data: bytes) -> None:
        session = TlsSession(self._gate, context, self._connection, self._transport)
        self._transport.set_protocol(session)
        self._connection.use_transport(session.transport)
        session.data_received(data)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._connection.connection_lost(error)


class TlsSession(asyncio.Protocol):
    """The server's side of one TLS connection: bytes of TLS below it, bytes of the connection above it."""

    def __init__(
        self, gate: TlsGate, context: ssl.SSLContext, connection: Connection, transport: asyncio.Transport
    ) -> None:
        self._gate, self._connection, self.below = gate, connection, transport
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._loop = asyncio.get_running_loop()
        self._is_open = False  # the handshake is complete
        self._is_failed = False
        self._is_reading = True
        self._timer = self._loop.call_later(gate.seconds, self._too_slow)
        self.transport = _TlsTransport(self)

    @property
    def object(self) -> ssl.SSLObject:
        return self._tls

    # from below

    def data_received(self, data: bytes) -> None:
        self._in.write(data)
        self._connection.look_back(len(data))
        if self._is_open or self._shake_hands():
            self._read()

    def _shake_hands(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
            return False
        except (ssl.SSLError, ValueError) as error:
            self._fail(error)
            return False
        self._timer.cancel()
        self._is_open = True
        self._send()
        return True

    def _read(self) -> None:
        try:
            while self._is_reading and not self.below.is_closing():
                data = self._tls.read(_CHUNK)
                if not data:  # the peer has ended it
                    self.close()
                    break
                self._connection.data_received(data)
        except ssl.SSLWantReadError:
            self._send()  # the answer to a change of keys
        except ssl.SSLZeroReturnError:
            self.close()
        except ssl.SSLError as error:
            self._fail(error)

    def _too_slow(self) -> None:
        self._is_failed = True
        self._gate.failed(self._connection.peer, f"no handshake within {self._gate.seconds:g} s")
        self._connection.abort()

    def _fail(self, error: Exception) -> None:
        self._is_failed = True
        self._timer.cancel()
        reason = getattr(error, "verify_message", None) or getattr(error, "reason", None) or type(error).__name__
        self._gate.failed(self._connection.peer, reason)
        self._send()  # an alert says why
        self.below.close()

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._is_open and not self._is_failed:
            self._gate.failed(self._connection.peer, "the peer ended it during the handshake")
        self._timer.cancel()
        self._connection.connection_lost(error)

    # from above

    def write(self, data: bytes) -> None:
        """Encrypt and send. Before the handshake there is no request, so there is nothing to send."""
        if not self._is_open or self.below.is_closing():
            return
        view = memoryview(data)
        try:
            while view:
                view = view[self._tls.write(view[:_CHUNK]) :]
                self._send()
        except ssl.SSLError as error:
            self._fail(error)

    def _send(self) -> None:
        data = self._out.read()
        if data and not self.below.is_closing():
            self.below.write(data)

    def set_reading(self, is_reading: bool) -> None:
        if is_reading == self._is_reading:
            return
        self._is_reading = is_reading
        if is_reading:
            self.below.resume_reading()
            self._loop.call_soon(self._read_on)
        else:
            self.below.pause_reading()

    def _read_on(self) -> None:
        """Pass on what was decrypted, or could be, before reading was paused: no event from below comes for it."""
        if self._is_open and not self.below.is_closing():
            self._read()

    def close(self) -> None:
        """Say that it ends, then close the transport when everything is sent."""
        if self._is_open and not self.below.is_closing():
            try:
                self._tls.unwrap()
            except ssl.SSLError:  # the peer has not said it yet, and may never do
                pass
            self._send()
        self.below.close()


class _TlsTransport(asyncio.Transport):
    """What the connection above has as its transport."""

    def __init__(self, session: TlsSession) -> None:
        super().__init__()
        self._session, self._below = session, session.below

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._session.object if name == "ssl_object" else self._below.get_extra_info(name, default)

    def write(self, data: Any) -> None:
        self._session.write(data)

    def writelines(self, pieces: Iterable[Buffer]) -> None:
        self._session.write(b"".join(pieces))

    def pause_reading(self) -> None:
        self._session.set_reading(False)

    def resume_reading(self) -> None:
        self._session.set_reading(True)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._below.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._below.get_write_buffer_size()

    def is_closing(self) -> bool:
        return self._below.is_closing()

    def close(self) -> None:
        self._session.close()

    def abort(self) -> None:
        self._below.abort()
