"""A name server on virtual time, with clients on a network in memory."""

import json
import random

import pytest
from simulation import virtual
from simulation.asking import Asking

from rocketc.namesrv.config import NamesrvConfig
from rocketc.namesrv.name_server import NameServer

CLUSTER = "DefaultCluster"


class Net:
    """The name server of a test. connect() makes a client; register() makes a broker, and a client for it."""

    def __init__(self, server, seed):
        self.server = server
        self._chance = random.Random(seed)

    def connect(self):
        client = Asking()
        virtual.link(client, self.server.connection(), self._chance)
        return client

    async def register(
        self, name="a", address="a:0", id=0, topics=("orders", "bills"), *, client=None, version=1, **more
    ):
        client = client or self.connect()
        topics = topics if isinstance(topics, dict) else {topic: {} for topic in topics}
        wrapper = {"topicConfigTable": topics, "dataVersion": {"counter": version, "stateVersion": 0, "timestamp": 5}}
        body = more.pop("body", json.dumps({"topicConfigSerializeWrapper": wrapper}).encode())
        values = {
            "brokerName": name, "brokerAddr": address, "clusterName": CLUSTER, "haServerAddr": f"{address}/ha",
            "brokerId": id, **more,
        }  # fmt: skip
        client.answer = await client.ask("REGISTER_BROKER", body, **values)
        return client

    async def codes(self, *topics):
        """The answer codes of the routes of these topics."""
        client = self.connect()
        return [(await client.ask("GET_ROUTEINFO_BY_TOPIC", topic=topic)).code for topic in topics]


@pytest.fixture
def scene():
    """scene(main): run main(net) on virtual time; other arguments are settings."""

    def run(main, seed=1, **settings):
        async def whole():
            async with NameServer(NamesrvConfig(**settings), clock=lambda: 77, listens=False) as server:
                await main(Net(server, seed))

        virtual.run(whole())

    return run
