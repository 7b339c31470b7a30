"""The addresses of name servers that an HTTP server knows. It is asked only if the user names it.

Source: RocketMQ TopAddressing, MQClientInstance (2 minutes). Java asks a public host if nothing is configured.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from rocketc.errors import NotSentError
from rocketc.remoting.addresses import join_address, split_address

_log = logging.getLogger("rocketc.client")

INTERVAL = 120.0  # seconds between two questions
_SECONDS = 3.0  # for one
_BYTES_MOST = 64 << 10  # of an answer
_PORT = 80

Fetch = Callable[[str], Awaitable[bytes]]


def is_url(text: str) -> bool:
    """Whether a name server is given as the address of an HTTP server.

    >>> is_url("http://10.0.0.9/nsaddr"), is_url("10.0.0.1:9876")
    (True, False)
    """
    return "://" in text


def check_url(url: str) -> tuple[str, int, str]:
    """Return host, port and path of an address such as http://host:port/path. Raises ValueError.

    >>> check_url("http://10.0.0.9:8080/rocketmq/nsaddr")
    ('10.0.0.9', 8080, '/rocketmq/nsaddr')
    """
    parts = urlsplit(url)
    is_plain = url.isascii() and url.isprintable() and " " not in url
    if parts.scheme != "http" or not parts.hostname or not is_plain or parts.username is not None:
        raise ValueError(f"{url!r} is not an address such as http://10.0.0.9:8080/rocketmq/nsaddr")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return parts.hostname, parts.port or _PORT, path


def split_addresses(text: str) -> list[str]:
    """Return the addresses in a text such as 10.0.0.1:9876;10.0.0.2:9876. Raises ValueError.

    >>> split_addresses("10.0.0.1:9876; [::1]:9876")
    ['10.0.0.1:9876', '[::1]:9876']
    """
    found = [one.strip() for one in text.replace(",", ";").split(";") if one.strip()]
    if not found:
        raise ValueError("give the address of a name server, such as 127.0.0.1:9876")
    for one in found:
        split_address(one)
    return list(dict.fromkeys(found))


def parse_answer(answer: bytes) -> list[str]:
    r"""Return the addresses in the answer of an HTTP server, all of its bytes. Raises ValueError.

    >>> parse_answer(b"HTTP/1.1 200 OK\r\n\r\n10.0.0.1:9876;10.0.0.2:9876\n")
    ['10.0.0.1:9876', '10.0.0.2:9876']
    """
    head, end, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(None, 2)
    if not end or len(words) < 2 or not words[0].startswith("HTTP/1."):
        raise ValueError("this is not an answer of an HTTP server")
    if words[1] != "200":
        raise ValueError(f"the HTTP server answers {' '.join(words[1:])[:80]!r}")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if "transfer-encoding" in headers:
        raise ValueError("the answer is in chunks; the HTTP server must accept HTTP/1.0")
    if len(body) < int(headers.get("content-length", "0")):
        raise ValueError("the answer is cut off")
    return split_addresses(body.decode("ascii", "replace").strip().replace("\n", ";"))


async def fetch(url: str) -> bytes:
    """Ask an HTTP server, and return all bytes of its answer. Raises OSError, ValueError.

    >>> asyncio.run(fetch("http://127.0.0.1:1/nsaddr"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ConnectionRefusedError: ...
    """
    host, port, path = check_url(url)
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {join_address(host, port)}\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while piece := await reader.read(_BYTES_MOST):
            answer += piece
            if len(answer) > _BYTES_MOST:
                raise ValueError(f"the answer has more than {_BYTES_MOST} bytes")
        return answer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


class AddressLookup:
    """Asks an HTTP server for the addresses of name servers, again every 2 minutes. Use it on one event loop.

    url    such as http://host:port/path
    fetch  returns the answer, for tests
    """

    def __init__(self, url: str, fetch: Fetch = fetch) -> None:
        self.url, self._fetch = url, fetch
        self._found: list[str] = []
        self._next = 0.0
        self._asking: asyncio.Task[list[str]] | None = None

    async def addresses(self) -> list[str]:
        """Return the addresses; wait for the answer only if none is known. Raises NotSentError."""
        loop = asyncio.get_running_loop()
        if self._found and loop.time() < self._next:
            return self._found
        if self._asking is None:
            self._asking = asyncio.ensure_future(self._ask())
            self._asking.add_done_callback(self._asked)
        if self._found:
            return self._found
        asking = self._asking
        await asyncio.wait({asking})
        if asking.cancelled():
            raise NotSentError("the client is closed")
        return asking.result()

    async def _ask(self) -> list[str]:
        try:
            return parse_answer(await asyncio.wait_for(self._fetch(self.url), _SECONDS))
        except asyncio.TimeoutError:
            raise NotSentError(
                f"{self.url}: no answer in {_SECONDS:.0f} s with the addresses of name servers"
            ) from None
        except (OSError, ValueError) as error:
            raise NotSentError(f"{self.url}: no addresses of name servers: {error}") from None

    def _asked(self, done: asyncio.Task[list[str]]) -> None:
        self._asking = None
        if done.cancelled():
            return
        self._next = done.get_loop().time() + INTERVAL
        error = done.exception()
        if error is None:
            self._found = done.result()
        elif self._found:
            _log.warning("%s; the known ones are used", error)

    def close(self) -> None:
        """End a question that is on its way."""
        if self._asking is not None:
            self._asking.cancel()
