"""What an error of a connection says, on virtual time."""

import asyncio
import random

import pytest
from simulation import virtual

from rocketc.client.connections import Connections
from rocketc.errors import ConnectionLostError
from rocketc.remoting.server import Answer, Server

ADDRESS = "10.0.1.0:10911"
CLOSED = "the connection ended: the server closed it before it answered"
SILENT = "the connection ended: the server closed it without any answer; it may accept only TLS, or be a proxy"


class Proxy:
    """Accepts connections, and closes them at the first bytes while its server is down. A link may be reset instead."""

    codes = (30,)

    def __init__(self, is_up, error):
        self.is_up, self.error, self.chance = is_up, error, random.Random(1)

    def process(self, call):
        if self.is_up:
            return Answer(values={"offset": 1})
        asyncio.get_running_loop().call_soon(self.client.connection_lost, self.error)
        return None

    def connector(self, host, port):
        async def connect(factory):
            self.client = factory()
            virtual.link(Server([self]).connection(), self.client, self.chance)

        return connect


async def fault(connections):
    with pytest.raises(ConnectionLostError) as caught:
        await connections.call(ADDRESS, 30, {"topic": "t", "queueId": 0})
    return str(caught.value).removeprefix(f"{ADDRESS}: ")


@pytest.mark.parametrize("error", [None, ConnectionResetError(104, "Connection reset by peer")])
@pytest.mark.parametrize("is_forgotten", [False, True])
def test_only_a_server_that_never_answered_may_accept_only_tls(error, is_forgotten):
    async def main():
        proxy = Proxy(False, error)
        connections = Connections(random.Random(1), 5.0, proxy.connector)
        assert (await fault(connections)).startswith(SILENT)
        proxy.is_up = True
        await connections.call(ADDRESS, 30, {"topic": "t", "queueId": 0})
        proxy.is_up = False
        assert await fault(connections) == CLOSED
        for _ in range(3):
            assert await fault(connections) == CLOSED
            if is_forgotten:  # as while a broker is down for minutes
                await asyncio.sleep(60)
                connections.forget_idle()
                assert not connections._channels
        connections.close()

    virtual.run(main())


def test_an_error_has_words_and_no_number():
    async def main():
        connections = Connections(random.Random(1), 5.0, Proxy(False, TimeoutError(110, "any")).connector)
        assert await fault(connections) == "the connection ended: Connection timed out"

    virtual.run(main())
