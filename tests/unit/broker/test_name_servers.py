"""The registration of a broker with name servers, on virtual time."""

import asyncio
import logging
import random

import pytest
from simulation import virtual
from simulation.brokers import EPOCH, HOST, scene
from simulation.tools import heartbeat

from rocketc.broker import name_servers
from rocketc.namesrv.config import NamesrvConfig
from rocketc.namesrv.name_server import NameServer
from rocketc.remoting.addresses import join_address, split_address


class Net:
    """Name servers that a broker can reach, or not."""

    def __init__(self, addresses):
        self.chance = random.Random(1)
        self.servers = {}
        self.is_down = set()
        self.addresses = addresses
        self.links = []

    def connector(self, host, port):
        address = join_address(host, port)

        async def connect(factory):
            if address in self.is_down:
                raise ConnectionRefusedError(f"{address} refuses")
            link, _ = virtual.link(factory(), self.servers[address].connection(), self.chance)
            self.links.append(link)

        return connect

    async def start(self, stack):
        clock = lambda: EPOCH + int(asyncio.get_running_loop().time() * 1000)  # noqa: E731
        for address in self.addresses:
            server = NameServer(NamesrvConfig(), clock=clock, listens=False)
            self.servers[address] = await stack.enter_async_context(server)

    def route(self, address, topic):
        return self.servers[address].routes.route(topic)


def play(tmp_path, main, addresses=("10.0.0.1:9876", "10.0.0.2:9876"), down=(), **config):
    import contextlib

    async def whole():
        async with contextlib.AsyncExitStack() as stack:
            net = Net(addresses)
            net.is_down |= set(down)
            await net.start(stack)
            stage = await stack.enter_async_context(
                scene(tmp_path, name_servers=list(addresses), connector=net.connector, **config)
            )
            await main(stage, net)

    virtual.run(whole())


def test_a_broker_is_known_when_it_has_started(tmp_path):
    async def main(stage, net):
        for address in net.addresses:
            assert net.route(address, "TBW102") is not None

    play(tmp_path, main)


def test_a_new_topic_is_known_at_once_and_the_others_stay(tmp_path):
    async def main(stage, net):
        client = stage.client()
        for n in range(5):
            await client.send(topic=f"new{n}")
        await asyncio.sleep(0.5)
        for address in net.addresses:
            assert all(net.route(address, name) for name in ("new0", "new4", "TBW102", "BenchmarkTest"))

    play(tmp_path, main)


def test_a_topic_of_a_put_is_known_at_once(tmp_path):
    async def main(stage, net):
        stage.store.put("put", b"by a program")
        stage.store.create_topic("made", queues=3)
        await asyncio.sleep(0)
        assert not stage.broker.topics.is_written("put")  # a send is not answered before it is on the disk
        await asyncio.sleep(0.5)
        for address in net.addresses:
            assert net.route(address, "put") and net.route(address, "made").queues[0].write_queue_nums == 3
        assert stage.broker.topics.is_written("put")
        stage.store.create_topic("made", queues=5)
        await asyncio.sleep(0.5)
        assert all(net.route(address, "made").queues[0].write_queue_nums == 5 for address in net.addresses)
        before = stage.broker.path.sent
        assert (await stage.client().send(topic="put")).code == 0
        assert stage.broker.path.sent == before + 1  # the compiled path takes it

    play(tmp_path, main)


def test_a_broker_that_ended_does_not_follow_its_table(tmp_path):
    async def main():
        async with scene(tmp_path) as stage:
            table = stage.broker.topics.table
        table.auto_create("late")
        await asyncio.sleep(0)
        assert not stage.broker.topics._unwritten

    virtual.run(main())


def test_a_name_server_that_was_down_gets_all_topics(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="rocketc.broker")

    async def main(stage, net):
        first, second = net.addresses
        await stage.client().send(topic="new")
        await asyncio.sleep(10)
        assert net.route(first, "new") and net.route(second, "new") is None
        net.is_down.clear()
        await asyncio.sleep(61)
        assert net.route(second, "new") and net.route(second, "TBW102")

    play(tmp_path, main, down={"10.0.0.2:9876"})
    said = [r.getMessage() for r in caplog.records if "name server" in r.getMessage()]
    assert len([line for line in said if "not registered with the name server 10.0.0.2:9876" in line]) == 1
    assert said[-1] == "registered with the name server 10.0.0.2:9876 again"


@pytest.mark.parametrize(
    ("down", "most"),
    [([], 0.1), (["10.0.0.2:9876"], name_servers.TOLD_SECONDS), (["10.0.0.1:9876", "10.0.0.2:9876"], 0)],
)
def test_an_answer_waits_for_the_name_servers_that_can_be_reached(tmp_path, down, most):
    """A heartbeat makes the topic of a group's retries, and the client asks for its route next."""

    async def main(stage, net):
        loop, client = asyncio.get_running_loop(), stage.client()
        await asyncio.sleep(1)
        for n in range(3):
            began = loop.time()
            assert (await client.call(34, heartbeat(f"audit{n}"))).code == 0
            assert loop.time() - began <= most + 0.1
            assert "10.0.0.1:9876" in down or net.route(net.addresses[0], f"%RETRY%audit{n}") is not None
            began = loop.time()
            assert (await client.call(34, heartbeat(f"audit{n}"))).code == 0  # the topic is there
            assert loop.time() - began <= 0.1

    play(tmp_path, main, down=set(down))


def test_a_broker_registers_again_after_a_cut(tmp_path):
    async def main(stage, net):
        net.links[0].cut()
        await asyncio.sleep(0.1)
        assert net.route(net.addresses[0], "TBW102") is None  # a lost connection ends the registration
        await asyncio.sleep(31)
        assert net.route(net.addresses[0], "TBW102")

    play(tmp_path, main)


def test_a_slave_that_registers_alone(tmp_path):
    """Consumers read from it, although the name servers were restarted while its master is down."""

    async def main(stage, net):
        for address in net.addresses:
            route = net.route(address, "TBW102")
            assert route is not None and list(route.brokers[0].addresses) == [1]

    play(tmp_path, main, store={"broker_role": "SLAVE"}, broker_id=1)


def test_the_end_of_a_broker_removes_its_routes(tmp_path):
    import contextlib

    async def whole():
        async with contextlib.AsyncExitStack() as stack:
            net = Net(("10.0.0.1:9876",))
            await net.start(stack)
            async with scene(tmp_path, name_servers=["10.0.0.1:9876"], connector=net.connector):
                assert net.route("10.0.0.1:9876", "TBW102")
            assert net.route("10.0.0.1:9876", "TBW102") is None

    virtual.run(whole())


@pytest.fixture
def bodies(monkeypatch):
    """The number of topics of each registration that a broker encodes."""
    found, registration = [], name_servers.registration

    def counted(topics, told, **how):
        told = list(told)
        found.append(len(told))
        return registration(topics, told, **how)

    monkeypatch.setattr(name_servers, "registration", counted)
    return found


def test_a_large_table_is_registered_in_parts_and_rarely(tmp_path, monkeypatch, bodies):
    monkeypatch.setattr(name_servers, "PART_TOPICS", 10)

    async def main(stage, net):
        address, client, table = net.addresses[0], stage.client(), stage.broker.topics.table
        for n in range(100 - len(table)):
            table.create(f"old{n}", persist=False)
        await asyncio.sleep(1)
        bodies.clear()
        assert await stage.broker.name_servers.register() == 1
        assert bodies == [10] * 10
        assert all(net.route(address, name) for name in table)
        assert (
            net.servers[address].routes.data_version("DefaultCluster", join_address(*HOST))[1:] == table.version[::-1]
        )
        bodies.clear()
        for n in range(3):  # a new topic costs a registration of its own
            await client.send(topic=f"new{n}")
            await asyncio.sleep(0.1)
        assert bodies == [1] * 3 and net.route(address, "new2")
        bodies.clear()
        await asyncio.sleep(290)  # each 30 s a sign of life, each 300 s all topics
        assert bodies.count(0) == 8 and sum(bodies) == 103 and net.route(address, "old0")
        table.create("old1", queues=9)  # a change, too, is taken from each of the parts
        stage.broker.name_servers.all_changed()
        await asyncio.sleep(1)
        assert net.route(address, "old1").queues[0].write_queue_nums == 9

    play(tmp_path, main, addresses=("10.0.0.1:9876",))


def test_a_name_server_that_refuses_does_not_make_each_new_topic_expensive(tmp_path, bodies):
    async def main(stage, net):
        client, count = stage.client(), len(stage.broker.topics.table)
        await asyncio.sleep(6)
        bodies.clear()
        for n in range(40):
            await client.send(topic=f"new{n}")
            await asyncio.sleep(0.1)
        assert [told for told in bodies if told > 1] == [count + 1]
        assert net.route(net.addresses[0], "new39")
        net.is_down.clear()
        await asyncio.sleep(3)  # at the latest five seconds after the last try
        assert net.route(net.addresses[1], "new39") and net.route(net.addresses[1], "TBW102")

    play(tmp_path, main, down={"10.0.0.2:9876"})


def test_a_name_server_that_was_started_again_gets_all_topics_with_the_next_new_one(tmp_path):
    """The broker does not see the end of the old one before it sends."""

    async def main(stage, net):
        address = net.addresses[0]
        net.servers[address].routes.unregister("broker-a", "DefaultCluster", join_address(*HOST))
        channel = stage.broker.name_servers._channels[address]
        link, channel.link = channel.link, None  # the next call connects
        client = stage.client()
        await asyncio.gather(*[client.send(topic=f"new{n}") for n in range(2)])
        await asyncio.sleep(6)
        assert net.route(address, "new1") and net.route(address, "TBW102")
        assert link is not channel.link

    play(tmp_path, main, addresses=("10.0.0.1:9876",))


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:x", "host:65536", "host:-1"])
def test_wrong_addresses(text):
    with pytest.raises(ValueError, match="is not an address"):
        split_address(text)


def test_a_registration_that_is_too_large_is_a_fault_and_not_the_end(tmp_path, caplog, monkeypatch):
    async def main(stage, net):
        ours = stage.broker.name_servers
        monkeypatch.setattr(name_servers, "registration", lambda *topics, **how: bytes(17 << 20))
        assert await ours.register() == 0
        monkeypatch.undo()
        assert await ours.register() == 2

    play(tmp_path, main)
    assert "a frame of" in caplog.text


def test_the_permission_of_the_broker_limits_that_of_its_topics_at_once(tmp_path):
    """As a 5.3.3 broker: clients see 6 & 4, and TBW102 with 7 & 4."""

    async def main(stage, net):
        client = stage.client()
        await client.send(topic="new")
        for permission, expected in ((4, [4, 4]), (6, [6, 7]), (2, [2, 2])):
            assert (await client.call(25, f"brokerPermission={permission}".encode())).code == 0
            await asyncio.sleep(0.5)
            for address in net.addresses:
                assert [net.route(address, name).queues[0].perm for name in ("new", "TBW102")] == expected

    play(tmp_path, main)
