"""Consumers of one group on virtual time and a network in memory: one joins, ends, is cut off, or falls silent."""

import asyncio
import json
import random
import tempfile

import pytest
from simulation import virtual

from rocketc.broker.client_processor import ClientProcessor
from rocketc.broker.consumer_processor import ConsumerProcessor
from rocketc.broker.consumers import ConsumerManager
from rocketc.broker.groups import GroupManager
from rocketc.broker.lock_processor import LockProcessor
from rocketc.broker.locks import RebalanceLockManager
from rocketc.broker.offsets import ConsumerOffsetManager
from rocketc.broker.producers import ProducerManager
from rocketc.remoting._frames import FrameDecoder
from rocketc.remoting.command import Command, Flag
from rocketc.remoting.connection import Limits
from rocketc.remoting.server import Server
from rocketc.tables.groups import SubscriptionGroups
from rocketc.tables.offsets import ConsumerOffsets
from rocketc.tables.topics import TopicConfig


class Client(asyncio.Protocol):
    """A peer that collects answers and notices."""

    def __init__(self, name):
        self.name, self.answers, self.notices, self.lost = name, [], [], False
        self._decoder = FrameDecoder()

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        for frame in self._decoder.receive(data):
            command = Command.decode(*frame)
            if command.is_answer:
                self.answers.append(command)
            else:
                assert command.is_oneway and command.code == 40
                self.notices.append(command.fields["consumerGroup"])

    def connection_lost(self, error):
        self.lost = True

    def send(self, code, fields=None, body=None, flag=0):
        data = b"" if body is None else json.dumps(body).encode()
        self.transport.write(Command(code, fields or {}, data, opaque=7, flag=flag).encode())

    def beat(self, group="g", flag=0):
        wanted = [{"topic": "orders", "subString": "*", "subVersion": 1}]
        consumer = {"groupName": group, "messageModel": "CLUSTERING", "subscriptionDataSet": wanted}
        body = {"clientID": self.name, "consumerDataSet": [consumer], "producerDataSet": [{"groupName": "shop"}]}
        self.send(34, body=body, flag=flag)


class Broker:
    """A server with the processors of this package, as a controller wires them."""

    def __init__(self, root):
        loop = asyncio.get_running_loop()
        self.clock = lambda: int(loop.time() * 1000)
        groups, topics = GroupManager(SubscriptionGroups(root, clock=self.clock)), {"orders": TopicConfig("orders")}
        self.consumers = ConsumerManager(self.notify, may_notify=groups.may_notify)
        self.producers = ProducerManager()
        offsets = ConsumerOffsetManager(ConsumerOffsets(root, clock=self.clock))
        processors = [
            ClientProcessor(
                self.consumers,
                self.producers,
                groups,
                topics=topics,
                make_retry_topic=lambda name, queues, **others: topics.setdefault(name, TopicConfig(name, queues)),
                clock=self.clock,
            ),
            ConsumerProcessor(
                self.consumers,
                offsets,
                groups,
                topics=topics,
                min_offset=lambda *queue: -1,
                is_first_in_memory=lambda *queue: False,
            ),
            LockProcessor(RebalanceLockManager(self.consumers.client_ids), clock=self.clock),
        ]
        self.server = Server(processors, on_lost=self.lost, limits=Limits(idle=1000.0), grace=1.0)

    def notify(self, connection, group):
        self.server.send(connection, 40, {"consumerGroup": group})

    def lost(self, connection):
        self.consumers.connection_lost(connection)
        self.producers.connection_lost(connection)

    def expire(self):
        for connection in {*self.consumers.expire(self.clock()), *self.producers.expire(self.clock())}:
            connection.abort()


def scene(main, seed=1):
    """Run main(broker, connect) on virtual time; connect(name) makes a client."""

    async def whole(root):
        chance, broker = random.Random(seed), Broker(root)

        def connect(name):
            client = Client(name)
            virtual.link(client, broker.server.connection(), chance, (0.0, 0.01))
            return client

        async with broker.server:
            await main(broker, connect)

    with tempfile.TemporaryDirectory() as root:
        virtual.run(whole(root))


@pytest.mark.parametrize("seed", range(5))
def test_the_others_learn_of_a_consumer_that_joins_ends_or_is_cut_off(seed):
    async def main(broker, connect):
        one, two, three = (connect(name) for name in ("c1", "c2", "c3"))
        for client in (one, two, three):
            client.beat()
            await asyncio.sleep(1)
        assert [len(client.notices) for client in (one, two, three)] == [3, 2, 1]
        two.send(35, {"clientID": "c2", "consumerGroup": "g"})
        await asyncio.sleep(1)
        assert [len(client.notices) for client in (one, two, three)] == [4, 2, 2]
        three.transport.abort()
        await asyncio.sleep(1)
        assert len(one.notices) == 5
        one.send(38, {"consumerGroup": "g"})
        await asyncio.sleep(1)
        assert one.answers[-1].body == b'{"consumerIdList":["c1"]}'
        assert len(broker.producers.group("shop")) == 2

    scene(main, seed)


def test_a_silent_client_is_removed_after_two_minutes():
    async def main(broker, connect):
        loud, silent = connect("loud"), connect("silent")
        silent.beat()
        loud.beat()
        await asyncio.sleep(1)
        for _ in range(13):
            loud.beat()
            await asyncio.sleep(10)
            broker.expire()
        await asyncio.sleep(1)
        assert silent.lost and not loud.lost
        assert broker.consumers.group("g").client_ids == ["loud"]
        assert [channel.client_id for channel in broker.producers.group("shop").values()] == ["loud"]
        assert len(loud.notices) in (2, 3)  # one for itself, and one or two for the other

    scene(main)


def test_a_oneway_heartbeat_registers_without_an_answer():
    async def main(broker, connect):
        client = connect("c1")
        client.beat(flag=Flag.ONEWAY)
        await asyncio.sleep(1)
        assert client.answers == [] and client.notices == ["g"]

    scene(main)


def test_hostile_heartbeats_do_not_disturb_other_clients():
    async def main(broker, connect):
        good, bad = connect("good"), connect("bad")
        good.beat()
        for body in ([], {"clientID": [5]}, {"clientID": "bad", "consumerDataSet": [{"groupName": None}]}):
            bad.send(34, body=body)
        bad.send(38)  # lacks its field
        await asyncio.sleep(1)
        assert [answer.code for answer in bad.answers] == [1, 1, 1, 1]
        assert good.answers[0].code == 0 and not bad.lost
        assert broker.consumers.group("g").client_ids == ["good"]

    scene(main)
