"""Addresses as RocketMQ writes them: host:port, and [host]:port for IPv6."""

from __future__ import annotations

import socket


def split_address(address: str) -> tuple[str, int]:
    """Return the host and port of an address. Raises ValueError.

    >>> split_address("10.0.0.1:9876"), split_address("[::1]:9876")
    (('10.0.0.1', 9876), ('::1', 9876))
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or "/" in host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{address!r} is not an address such as 10.0.0.1:9876")
    return host.removeprefix("[").removesuffix("]"), int(port)


def join_address(host: str, port: int) -> str:
    """Return an address.

    >>> join_address("10.0.0.1", 9876), join_address("::1", 9876)
    ('10.0.0.1:9876', '[::1]:9876')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def own_address() -> str:
    """Return an address of this computer that others can reach, if that is known without sending anything.

    127.0.0.1 if it is not.

    >>> own_address().count(".")
    3
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # documentation address: nothing is sent
        except OSError:
            return "127.0.0.1"
        name: str = probe.getsockname()[0]
        return name
