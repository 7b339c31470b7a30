"""Servers for the commands that ask one."""

import pytest
from unit.cli.scripted_server import Server


@pytest.fixture
def serve():
    servers = []

    def start(answer):
        servers.append(Server(answer))
        return servers[-1].url

    yield start
    for server in servers:
        server.close()
