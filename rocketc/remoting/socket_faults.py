"""Why a connection failed, or a server cannot listen, in words."""

from __future__ import annotations

import errno
import os
import socket

from rocketc.remoting.addresses import join_address


def connection_fault(error: BaseException) -> str:
    """Return why a connection failed, without the number, the address and the function that asyncio and uvloop add.

    >>> connection_fault(ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)"))
    'Connection refused'
    """
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    if isinstance(error, socket.gaierror):
        return f"the host name is not known ({error.strerror})"
    return str(error) or type(error).__name__


def listen_error(error: OSError, host: str | None, port: int) -> OSError:
    """Return the error for a server that cannot listen: its text says why, its filename is the address.

    >>> listen_error(socket.gaierror(-2, "Name or service not known"), "nowhere", 9876)
    OSError(99, 'the host name is not known (Name or service not known)')
    >>> print(listen_error(OSError(98, "error while attempting to bind"), "127.0.0.1", 9876))
    [Errno 98] Address already in use: '127.0.0.1:9876'
    """
    code, text = error.errno, connection_fault(error)
    if isinstance(error, socket.gaierror):
        code = errno.EADDRNOTAVAIL  # the numbers of getaddrinfo() are not errnos
    elif code == errno.EADDRNOTAVAIL:
        text = f"{text}; no interface of this machine has it"
    return OSError(code, text, join_address(host or "*", port))
