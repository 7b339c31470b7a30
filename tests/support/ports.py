"""Ports for servers that end and begin again on the same one."""

import contextlib
import random
import socket

HIGHEST = 32_000  # above it, the system gives ports to connections: one of another test could take a server's port
LOWEST = 12_000


def free_port(below: int = 0) -> int:
    """A port that no server listens on, on any address; the port that is `below` lower is free too."""
    chance = random.SystemRandom()
    while True:
        port = chance.randrange(LOWEST, HIGHEST)
        with contextlib.suppress(OSError):
            for each in {port, port - below}:
                socket.create_server(("::", each), family=socket.AF_INET6, dualstack_ipv6=True).close()
            return port
