"""Our broker at RocketMQ's own name server, alone and beside RocketMQ's broker of the same cluster."""

import json
import socket
from collections import Counter

import pytest
from interop import scenarios
from interop.asking import Asking
from interop.our_broker import OurBroker, wait_for
from interop.peer import RELEASES

from rocketc.tables.fastjson import parse


class Names:
    """What a name server knows."""

    def __init__(self, address):
        self._asking = Asking(address)

    def brokers(self):
        """Addresses by name and id."""
        _, _, body = self._asking.ask("GET_BROKER_CLUSTER_INFO")
        table = parse(body)["brokerAddrTable"]
        return {name: {int(id): at for id, at in data["brokerAddrs"].items()} for name, data in table.items()}

    def route(self, topic):
        """(broker, number of write queues) of each broker with the topic."""
        code, _, body = self._asking.ask("GET_ROUTEINFO_BY_TOPIC", topic=topic)
        assert code in (0, 17)
        found = parse(body)["queueDatas"] if code == 0 else []
        return {data["brokerName"]: data["writeQueueNums"] for data in found}

    def close(self):
        self._asking.close()


@pytest.fixture
def names(begin):
    opened = []

    def of(address):
        opened.append(Names(address))
        return opened[-1]

    yield of
    for one in opened:
        one.close()


def send_one(address, topic, queues):
    """Send a message by a plain request, which makes the topic."""
    asking = Asking(address)
    fields = {"a": "p", "b": topic, "c": "TBW102", "d": queues, "e": 0, "f": 0, "g": 1, "h": 0, "i": "", "m": False}
    code, _, _ = asking.ask("SEND_MESSAGE_V2", b"x", **fields)
    asking.close()
    assert code == 0


PAIRS = [(server, client) for server in RELEASES for client in RELEASES]


@pytest.mark.long
@pytest.mark.parametrize(("release", "client"), PAIRS)
def test_two_masters_of_one_cluster(begin, names, tmp_path, release, client):
    """Our broker and RocketMQ's own at RocketMQ's name server: clients use both, and learn when ours goes."""
    clients = begin(scenarios.Clients, client, tmp_path / "clients")
    theirs = begin(scenarios.JavaCluster, release, tmp_path / "java", **{"broker.brokerName": "java-a"})
    server = names(theirs.name_server)

    def start():
        broker = begin(
            OurBroker, tmp_path / "ours", "--name-server", theirs.name_server, "--port", 0, broker_name="ours-b"
        )
        assert server.brokers() == {"java-a": {0: theirs.broker}, "ours-b": {0: broker.address}}
        return broker

    ours = start()
    assert server.route("TBW102") == {"java-a": 8, "ours-b": 8}
    bodies = [f"m{n:02}" for n in range(40)]
    sent = clients.step(theirs, "both", "send", bodies=bodies)
    spread = Counter(broker for _, status, broker, _ in sent if status == "SEND_OK")
    assert set(spread) == {"java-a", "ours-b"} and spread.total() == 40 and min(spread.values()) >= 10
    assert wait_for(lambda: len(server.route("both")) == 2) and server.route("both") == {"java-a": 4, "ours-b": 4}
    assert sorted(clients.step(theirs, "both", "consume", group="all", count=40, millis=100)) == bodies
    # A topic that begins at our broker is known at once, not with the registration of every 30 s.
    send_one(ours.address, "at-once", 3)
    assert wait_for(lambda: server.route("at-once"), 2) == {"ours-b": 3}
    ours.end()
    assert wait_for(lambda: server.brokers() == {"java-a": {0: theirs.broker}}, 1)
    assert (server.route("at-once"), server.route("both")) == ({}, {"java-a": 4})
    late = [f"late{n}" for n in range(6)]
    assert {broker for _, _, broker, _ in clients.step(theirs, "both", "send", bodies=late)} == {"java-a"}
    ours = start()  # of the same store
    assert server.route("at-once") == {"ours-b": 3}
    assert (
        sorted(clients.step(theirs, "both", "consume", group="all", count=6, millis=300)) == late
    )  # the first 40 are not sent again
    ours.kill()
    assert wait_for(lambda: server.brokers() == {"java-a": {0: theirs.broker}}, 5)
    assert server.route("at-once") == {}


@pytest.mark.long
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("client", RELEASES)
def test_clients_find_it_at_rocketmqs_name_server(begin, tmp_path, release, client):
    clients = begin(scenarios.Clients, client, tmp_path / "clients")
    theirs = begin(scenarios.JavaCluster, release, tmp_path / "java", brokerPort="none")
    begin(OurBroker, tmp_path / "ours", "--name-server", theirs.name_server, "--port", 0)
    recorded = scenarios.recorded()[client]
    chosen = ["send_sync", "send_batch", "push_concurrent", "push_rebalance", "lite_restart", "query_unique_key"]
    for name, _, outcome in clients.run(chosen, theirs.name_server):
        assert scenarios.difference(recorded[name], outcome) == "", (release, name)


@pytest.mark.long
@pytest.mark.parametrize("client", RELEASES)
def test_clients_over_ipv6(begin, tmp_path, client):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"no IPv6: {error}")
    clients = begin(scenarios.Clients, client, tmp_path / "clients")
    ours = begin(OurBroker, tmp_path / "ours", "--port", 0, bind_address="::1")
    assert ours.address.startswith("[::1]:") and ours.name_server.startswith("[::1]:")
    sent = clients.step(ours, "both", "send", bodies=["one", "two"])
    assert [(body, status, len(id)) for body, status, _, id in sent] == [("one", "SEND_OK", 56), ("two", "SEND_OK", 56)]
    assert clients.step(ours, "both", "look", key="k-one", id=sent[0][3]) == {"key": ["one"], "id": "one"}
    chosen = ["send_sync", "push_concurrent", "query_offset_id", "lite_subscribe"]
    for name, _, outcome in clients.run(chosen, ours.name_server):
        plain = json.loads(json.dumps(outcome).replace('"sysFlag": 48', '"sysFlag": 0'))  # both hosts are of IPv6
        assert scenarios.difference(scenarios.recorded()[client][name], plain) == "", name
