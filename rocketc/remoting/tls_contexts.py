"""What a server and a client need for TLS, made from files; the server's again when they change.

Source: RocketMQ TlsHelper, FileWatchService.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import subprocess
import tempfile
from collections.abc import Callable
from typing import Any

from rocketc.remoting.tls_faults import tls_fault
from rocketc.remoting.tls_settings import ClientAuth, Identity, TlsMode, TlsSettings

_log = logging.getLogger("rocketc.remoting")

POLL_SECONDS = 1.0
_MAKE_SECONDS = 60.0  # for the command openssl

Stamps = dict[str, "tuple[int, int, int, int] | None"]  # by path: what changes when a file changes; None: unreadable


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context of a server. Raises ValueError, which names the files.

    >>> server_context(TlsSettings(is_test=False))
    Traceback (most recent call last):
    ValueError: TLS needs tls.server.certPath and tls.server.keyPath, or tls.test.mode.enable=true
    """
    if settings.is_test:
        return _test_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    if not settings.server.cert_path or not settings.server.key_path:
        raise ValueError("TLS needs tls.server.certPath and tls.server.keyPath, or tls.test.mode.enable=true")
    _load_certificate(context, settings.server)
    if settings.client_auth is not ClientAuth.NONE and settings.server.is_checked:
        _load_trusted(context, settings.server, ssl.Purpose.CLIENT_AUTH)
        is_required = settings.client_auth is ClientAuth.REQUIRE
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
    return context


def client_context(settings: TlsSettings, *, check_host: bool = False) -> ssl.SSLContext:
    """Return the context of a client. Raises ValueError.

    check_host  the certificate must be for the host of the address. RocketMQ does not check that

    >>> client_context(TlsSettings()).verify_mode.name
    'CERT_NONE'
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    if settings.is_test or not settings.client.is_checked:
        context.verify_mode = ssl.CERT_NONE
    else:
        _load_trusted(context, settings.client, ssl.Purpose.SERVER_AUTH)
        context.check_hostname = check_host
    if not settings.is_test and settings.client.cert_path:
        _load_certificate(context, settings.client)
    return context


def _load_certificate(context: ssl.SSLContext, identity: Identity) -> None:
    cert, key = identity.cert_path, identity.key_path
    files = [cert, key] if key else [cert]
    try:
        # A function: without it, OpenSSL asks on the terminal for the password of an encrypted key.
        context.load_cert_chain(cert, key or None, lambda: identity.key_password)
    except ssl.SSLError as error:
        raise ValueError(f"{' and '.join(files)}: not a certificate in PEM with its key ({error.reason})") from None
    except OSError as error:
        raise ValueError(f"{' or '.join(files)}: {error.strerror}") from None


def _load_trusted(context: ssl.SSLContext, identity: Identity, purpose: ssl.Purpose) -> None:
    if not identity.trust_path:
        context.load_default_certs(purpose)
        return
    try:
        context.load_verify_locations(identity.trust_path)
    except ssl.SSLError as error:
        raise ValueError(f"{identity.trust_path}: not certificates in PEM ({error.reason})") from None
    except OSError as error:
        raise ValueError(f"{identity.trust_path}: {error.strerror}") from None


def _test_context() -> ssl.SSLContext:
    """A context with a certificate that no one knows: it keeps listeners out, but not a server in the middle."""
    with tempfile.TemporaryDirectory(prefix="rocketc-tls-") as folder:
        key, cert = os.path.join(folder, "key.pem"), os.path.join(folder, "cert.pem")
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert]
        try:
            subprocess.run(
                [*command, "-days", "36500", "-subj", "/CN=localhost"],
                check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=_MAKE_SECONDS,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError):
            raise ValueError("the command openssl cannot make a certificate for tls.test.mode.enable=true") from None
        identity = Identity(key, cert)
        return server_context(TlsSettings(is_test=False, server=identity))


class TlsContexts:
    """The context of the servers of one process. New files make a new one, for new connections.

    settings   whose mode is not disabled
    in_thread  files are read on a thread of the loop's pool; False: on the caller's
    Raises ValueError if the files are wrong. The certificate of the test mode is made for the first connection with
    TLS; at once if the mode is enforcing.
    """

    def __init__(self, settings: TlsSettings, *, in_thread: bool = True) -> None:
        self._settings, self._in_thread = settings, in_thread
        self._stamps = self._look()
        self._complaint = ""  # the last error that was logged
        self._making: asyncio.Future[ssl.SSLContext] | None = None
        at_once = not settings.is_test or settings.mode is TlsMode.ENFORCING
        self.server: ssl.SSLContext | None = server_context(settings) if at_once else None

    async def get(self) -> ssl.SSLContext:
        """Return the context; make the certificate of the test mode if this is the first connection.

        Raises ValueError if it cannot be made.
        """
        if self.server is None:
            if self._making is None:
                self._making = asyncio.ensure_future(self._make())
            try:
                self.server = await asyncio.shield(self._making)
            except (ValueError, OSError) as error:
                self._making = None  # the next connection tries again
                raise ValueError(str(error)) from None
        return self.server

    async def _make(self) -> ssl.SSLContext:
        if self._in_thread:
            return await asyncio.get_running_loop().run_in_executor(None, server_context, self._settings)
        return server_context(self._settings)

    async def run(self) -> None:
        """Use changed files, for as long as the servers run."""
        if self._settings.is_test or not self._settings.server.paths:
            return
        while True:
            await asyncio.sleep(POLL_SECONDS)
            if self._in_thread:
                await asyncio.get_running_loop().run_in_executor(None, self.poll)
            else:
                self.poll()

    def poll(self) -> None:
        """Look at the files, and use them if they have changed.

        On an error the old context stays. The error is logged once, and the next call tries again. While only one of
        certificate and key is new, they do not fit together: the old ones stay until the other comes.
        """
        stamps = self._look()
        if stamps == self._stamps:
            self._complaint = ""
            return
        try:
            context = server_context(self._settings)
        except (ValueError, OSError) as error:  # an SSLError is an OSError
            if str(error) != self._complaint:
                _log.warning("the changed files for TLS are not used, the old ones stay: %s", error)
            self._complaint = str(error)
            return
        if stamps == self._look():  # otherwise they are read again
            self.server, self._stamps, self._complaint = context, stamps, ""
            _log.info("new connections use the changed files for TLS")

    def _look(self) -> Stamps:
        found: Stamps = {}
        for path in self._settings.server.paths:
            try:
                of = os.stat(path)
                found[path] = of.st_mtime_ns, of.st_ctime_ns, of.st_size, of.st_ino
            except OSError:
                found[path] = None
        return found


def tls_connector(context: ssl.SSLContext) -> Callable[[str, int], Callable[[Callable[[], asyncio.Protocol]], Any]]:
    """Return a connector, see NameServers, whose connections use TLS.

    >>> connect = tls_connector(client_context(TlsSettings()))("127.0.0.1", 9876)
    """
    loop = asyncio.get_running_loop

    async def connect(host: str, port: int, protocol: Callable[[], asyncio.Protocol]) -> Any:
        try:
            return await loop().create_connection(protocol, host, port, ssl=context, ssl_handshake_timeout=10.0)
        except (ssl.SSLError, ConnectionResetError, BrokenPipeError, ConnectionAbortedError) as error:
            raise ConnectionError(tls_fault(error)) from None

    return lambda host, port: lambda protocol: connect(host, port, protocol)
