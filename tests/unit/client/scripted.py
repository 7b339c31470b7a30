"""A name server and brokers that answer as a test says, on virtual time and a network in memory."""

import asyncio
import json
import random

from simulation import virtual

from rocketc.client.access import Access
from rocketc.client.async_producer import AsyncProducer
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer, Server

NAME_SERVER = "10.0.0.5:9876"


class Scripted:
    """Answers requests by code: an Answer, a function of the call that returns one, or nothing at all for None."""

    def __init__(self, answers):
        self.answers, self.asked = answers, []
        self.codes = (34, 35, 37, 105, 310, 320, 325, 370)

    def process(self, call):
        self.asked.append(call)
        answer = self.answers.get(call.command.code, Answer())
        return answer(call) if callable(answer) else answer

    def count(self, code):
        return sum(call.command.code == code for call in self.asked)


def stored(call):
    """What a broker answers to a send. The offset is that of the connection's sends."""
    queue = call.values["queueId"]
    return Answer(values={"msgId": f"{call.command.opaque:032X}", "queueId": queue, "queueOffset": call.command.opaque})


class Cluster:
    """brokers: by name, what they answer to sends. Each topic has two queues on each of them, but those in `missing`.

    creates  whether unknown topics are made
    """

    def __init__(self, brokers, missing=(), creates=True, perm=6):
        self.missing, self.creates, self.perm = set(missing), creates, perm
        self.chance = random.Random(1)
        self.names = list(brokers)
        self.brokers = {name: Scripted({310: answer, 320: answer, 325: answer}) for name, answer in brokers.items()}
        self.name_server = Scripted({105: self._route})
        self.servers = {NAME_SERVER: Server([self.name_server])}
        self.servers |= {self.address(name): Server([one]) for name, one in self.brokers.items()}
        self.links = []
        self.connections = []

    def address(self, name):
        return f"10.0.1.{self.names.index(name)}:10911"

    def _route(self, call):
        topic = call.values["topic"]
        if topic in self.missing or (topic == "TBW102" and not self.creates):
            return Answer(Code.TOPIC_NOT_EXIST, remark=f"No topic route info in name server for the topic: {topic}")
        brokers = [
            {"brokerAddrs": {"0": self.address(name)}, "brokerName": name, "cluster": "c"} for name in self.names
        ]
        nums = 8 if topic == "TBW102" else 2
        queues = [
            {"brokerName": name, "readQueueNums": nums, "writeQueueNums": nums, "perm": self.perm}
            for name in self.names
        ]
        return Answer(body=json.dumps({"brokerDatas": brokers, "queueDatas": queues}).encode())

    def connector(self, host, port):
        async def connect(factory):
            await asyncio.sleep(0.001)
            server = self.servers.get(f"{host}:{port}")
            if server is None:
                raise ConnectionRefusedError(111, "Connect call failed")
            connection = server.connection()
            one, _ = virtual.link(connection, factory(), self.chance)
            self.links.append((f"{host}:{port}", one))
            self.connections.append(connection)

        return connect

    def cut(self, address):
        for its, link in self.links:
            if its == address:
                link.cut()

    def producer(self, group="shop", *, kind=AsyncProducer, **options):
        def clock():
            return 1_764_000_000 + asyncio.get_running_loop().time()

        access = Access((NAME_SERVER,), connector=self.connector, clock=clock, chance=random.Random(2))
        return kind._by(access, group, client_ip="10.0.9.9", **options)


def play(main):
    """Run a coroutine on virtual time."""
    return virtual.run(main)
