"""GET /metrics over HTTP/1.1, on the event loop of a broker. It answers one request per connection."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from rocketc.broker.controller import BrokerController
from rocketc.errors import RocketcError
from rocketc.metrics.broker_measures import BrokerMetrics
from rocketc.metrics.exposition import CONTENT_TYPE
from rocketc.remoting.addresses import join_address
from rocketc.remoting.socket_faults import listen_error

_log = logging.getLogger("rocketc.metrics")

HEAD_MOST = 8192  # bytes of a request
REQUEST_SECONDS = 10.0  # for a request to arrive
ANSWER_SECONDS = 30.0  # for its answer to be made and sent
CONNECTIONS_MOST = 32  # at a time; more are closed at once
PATH = "/metrics"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    505: "HTTP Version Not Supported",
}


class HttpEndpoint:
    """Serves one text.

    text  makes it, for each request
    """

    def __init__(self, text: Callable[[], Awaitable[str]]) -> None:
        self._text = text
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.open: set[_Exchange] = set()

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Listen on an address; port 0 takes a free one. Return host and port. Raises the OSError of listen_error()."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(self.connection, host, port)
        except OSError as error:
            raise listen_error(error, host, port) from None
        name = self._server.sockets[0].getsockname()
        return name[0], name[1]

    def connection(self) -> asyncio.Protocol:
        """Make the protocol of a new connection."""
        return _Exchange(self)

    def answer(self, exchange: _Exchange, is_head: bool) -> None:
        """Send the text to a client, when it is made."""
        task = asyncio.ensure_future(self._answer(exchange, is_head))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, exchange: _Exchange, is_head: bool) -> None:
        try:
            body = (await self._text()).encode("utf-8", "replace")
        except (RocketcError, OSError) as error:
            _log.warning("the metrics cannot be read: %s", error)
            exchange.finish(500, f"the metrics cannot be read: {error}\n".encode(), is_head=is_head)
        except Exception:
            _log.exception("the metrics cannot be made")
            exchange.finish(500, b"the metrics cannot be made; the broker's log says why\n", is_head=is_head)
        else:
            exchange.finish(200, body, CONTENT_TYPE, is_head=is_head)

    async def close(self) -> None:
        """Stop to listen, and close the connections."""
        if self._server is not None:
            self._server.close()
        for exchange in list(self.open):
            exchange.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class _Exchange(asyncio.Protocol):
    """One connection, one request, one answer."""

    def __init__(self, endpoint: HttpEndpoint) -> None:
        self._endpoint = endpoint
        self._head = b""
        self._is_read = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:  # that of uvloop is not an asyncio.Transport
        self._transport = transport
        if len(self._endpoint.open) >= CONNECTIONS_MOST:
            _log.debug("%s: refused, there are %d connections", transport.get_extra_info("peername"), CONNECTIONS_MOST)
            transport.abort()
            return
        self._endpoint.open.add(self)
        self._restart(REQUEST_SECONDS, lambda: self.finish(408, b"the request did not arrive in time\n"))

    def _restart(self, seconds: float, then: Callable[[], object]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, then)

    def data_received(self, data: bytes) -> None:
        if self._is_read:
            return  # a body, or another request: neither is read
        self._head += data
        head, end, _ = self._head.partition(b"\r\n\r\n")
        if len(head) > HEAD_MOST:
            self.finish(431, b"the request is too large\n")
        elif end:
            self._process(head)

    def _process(self, head: bytes) -> None:
        self._is_read = True
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[0].isalpha() or not words[2].startswith(b"HTTP/"):
            self.finish(400, b"this is not an HTTP request\n")
            return
        method, target, version = words
        if version not in (b"HTTP/1.1", b"HTTP/1.0"):
            self.finish(505, b"HTTP/1.1 and 1.0 are supported\n")
        elif target.split(b"?", 1)[0] != PATH.encode():
            self.finish(404, f"there is only {PATH}\n".encode(), is_head=method == b"HEAD")
        elif method not in (b"GET", b"HEAD"):
            self.finish(405, b"only GET and HEAD are allowed\n")
        else:
            self._restart(ANSWER_SECONDS, self.abort)
            self._endpoint.answer(self, method == b"HEAD")

    def finish(
        self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8", *, is_head: bool = False
    ) -> None:
        """Send the answer and close the connection; a client that does not read it is cut off."""
        self._is_read = True
        if self._transport.is_closing():
            return
        lines = [
            f"HTTP/1.1 {status} {_REASONS[status]}",
            f"Content-Type: {kind}",
            f"Content-Length: {len(body)}",
            *(["Allow: GET, HEAD"] if status == 405 else []),
            "Connection: close",
        ]
        self._transport.write("\r\n".join(lines).encode() + b"\r\n\r\n" + (b"" if is_head else body))
        self._restart(ANSWER_SECONDS, self.abort)
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._endpoint.open.discard(self)
        if self._timer is not None:
            self._timer.cancel()


@contextlib.asynccontextmanager
async def serving_metrics(broker: BrokerController) -> AsyncIterator[str | None]:
    """Serve the metrics of a broker as its config says. Yields the URL; None: metricsExporterType does not ask for it.

    Raises OSError for a port in use.
    """
    config = broker.config
    kind = config.metrics_exporter_type.upper()
    if kind != "PROM":
        if kind != "DISABLE":
            _log.warning("metricsExporterType %s is not supported, only PROM; the metrics are not exported", kind)
        yield None
        return
    endpoint = HttpEndpoint(BrokerMetrics(broker).text)
    host, port = config.metrics_prom_exporter_host or config.bind_address, config.metrics_prom_exporter_port
    found, port = await endpoint.listen(host, port)
    try:
        yield f"http://{join_address(found, port)}{PATH}"
    finally:
        await endpoint.close()
