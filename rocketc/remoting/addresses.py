"""Addresses as RocketMQ writes them: host:port, and [host]:port for IPv6."""

from __future__ import annotations


def split_address(address: str) -> tuple[str, int]:
    """Return the host and port of an address. Raises ValueError.

    >>> split_address("10.0.0.1:9876"), split_address("[::1]:9876")
    (('10.0.0.1', 9876), ('::1', 9876))
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{address!r} is not an address such as 10.0.0.1:9876")
    return host.removeprefix("[").removesuffix("]"), int(port)


def join_address(host: str, port: int) -> str:
    """Return an address.

    >>> join_address("10.0.0.1", 9876), join_address("::1", 9876)
    ('10.0.0.1:9876', '[::1]:9876')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
