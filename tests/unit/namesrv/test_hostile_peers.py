"""Peers that register as much as they can: the memory of a name server stays bounded, and it serves others."""

import asyncio
import json
import random
import time

import pytest

from rocketc.namesrv.limits import BROKERS_OF_PEER_MOST, PAIRS_OF_PEER_MOST

MIB = 1 << 20


def resident():
    """Bytes of memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


def names(chance, count):
    """Names of 255 bytes whose characters take four bytes each in memory."""
    return [f"{chance.getrandbits(60):x}".ljust(251, "x") + "\U0001f600" for _ in range(count)]


@pytest.mark.long
@pytest.mark.parametrize("peers", [1, 20])
def test_garbage_for_some_seconds(scene, peers):
    """Of each connection, 100,000 pairs and 256 brokers are kept. What is refused leaves nothing.

    It takes 2 s, and with one peer as long as that peer is not refused twice.
    """

    async def main(net):
        chance = random.Random(peers)
        clients = [net.connect() for _ in range(peers)]
        bodies = []
        for _ in range(12):
            wrapper = {"topicConfigTable": {topic: {} for topic in names(chance, 10_000)}}
            bodies.append(json.dumps({"topicConfigSerializeWrapper": wrapper}).encode())
        before, end, refused = resident(), time.monotonic() + 2.0, 0
        while time.monotonic() < end or (peers == 1 and refused < 2):
            client = chance.choice(clients)
            name = names(chance, 1)[0]
            answer = await client.ask(
                "REGISTER_BROKER",
                chance.choice(bodies),
                brokerName=name, brokerAddr=name, clusterName=name, haServerAddr=name, brokerId=0,
            )  # fmt: skip
            refused += answer.code == 1
            await client.ask("PUT_KV_CONFIG", namespace=name, key=name, value="x" * 10_000)
            await asyncio.sleep(0)
        table = net.server.routes
        assert table._queue_datas <= PAIRS_OF_PEER_MOST * peers and len(table._members) <= BROKERS_OF_PEER_MOST * peers
        assert resident() - before < 350 * MIB
        assert (await (await net.register()).ask("GET_ROUTEINFO_BY_TOPIC", topic="orders")).code == 0
        print(f"{peers} peers: {resident() - before >> 20} MiB, {table._queue_datas} pairs, {refused} refused")

    scene(main)


def test_a_peer_that_ends_leaves_nothing(scene):
    async def main(net):
        client = net.connect()
        for n in range(BROKERS_OF_PEER_MOST + 5):
            await net.register(f"b{n}", f"b{n}:1", client=client)
        assert client.answer.remark == f"this connection has registered {BROKERS_OF_PEER_MOST} brokers already"
        client.transport.abort()
        await asyncio.sleep(1)
        table = net.server.routes
        assert not table._topics and not table._topics_of and not table._registered and not table._members
        assert not table._brokers and table._queue_datas == 0

    scene(main)
