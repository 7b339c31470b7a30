"""What a client keeps of names and addresses: it does not grow with their number."""

import asyncio

import pytest
from unit.client.scripted import Cluster, play, stored

from rocketc.client import queue_choice, route_table
from rocketc.client.recent import Recent


def test_the_entries_of_the_last_uses_are_kept():
    table = Recent(10)
    for i in range(1000):
        table[i] = str(i)
        assert table.get(0) == "0", "it is used all the time"
        assert len(table) <= 10 and {*table} >= {0, *range(max(0, i - 3), i + 1)}
    assert sorted(table.values()) == sorted(str(key) for key in table)
    assert 0 in table and 1 not in table and table.get(1) is None
    table.discard(0)
    table.discard(0)
    assert 0 not in table and len({*table}) == len(table)


def test_an_entry_that_changes_is_there_once():
    table = Recent(4)
    for key, value in [("a", 1), ("b", 1), ("c", 1), ("a", 2), ("a", 3)]:
        table[key] = value
    assert table.get("a") == 3 and sorted(table) == ["a", "b", "c"]


@pytest.mark.parametrize("at_once", [False, True])
def test_a_producer_to_very_many_topics(monkeypatch, at_once):
    monkeypatch.setattr(route_table, "_TOPICS_MOST", 20)
    monkeypatch.setattr(queue_choice, "_TOPICS_MOST", 20)

    async def main():
        cluster = Cluster({"a": stored})
        async with cluster.producer() as producer:
            if at_once:
                await asyncio.gather(*[producer.send(f"t{i}", b"one") for i in range(200)])
            else:
                for i in range(200):
                    await producer.send("often", b"one")
                    await producer.send(f"t{i}", b"one")
                assert cluster.name_server.count(105) == 201
            routes = producer._instance.routes
            assert max(len(routes._publish), len(routes._routes), len(producer._sender._turns._turns)) <= 21
            before = cluster.name_server.count(105)
            await asyncio.sleep(31)
            assert cluster.name_server.count(105) - before <= 20, "the refresh asks for these only"
            await producer.send("t0", b"one")  # it is asked for again

    play(main())


def test_brokers_that_move():
    async def main():
        cluster = Cluster({"a": stored})
        server = cluster.servers[cluster.address("a")]
        async with cluster.producer() as producer:
            for i in range(10):
                cluster.address = lambda name, i=i: f"10.0.2.{i}:10911"
                cluster.servers[cluster.address("a")] = server
                await asyncio.sleep(31)
                await producer.send("orders", b"one")
                cluster.cut(f"10.0.2.{i}:10911")
                cluster.servers.pop(cluster.address("a"))
            await asyncio.sleep(95)
            assert len(producer._instance.connections._channels) <= 2  # the name server, and a broker that is tried
            cluster.servers[cluster.address("a")] = server
            await asyncio.sleep(11)  # the pause after the last attempt
            await producer.send("orders", b"one")

    play(main())
