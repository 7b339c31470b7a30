"""The requests that mqadmin 5.3.3 sent to RocketMQ's broker and name server, replayed here: the answers are alike.

Alike: the same code, remark and names of fields, and in a body the same names and types of JSON members.
"""

import asyncio
import contextlib
import json
import random

from simulation import virtual
from simulation.asking import Asking
from simulation.brokers import EPOCH, scene
from simulation.tools import GOLDEN, create, lax
from support.native import ROOT

from rocketc.namesrv.config import NamesrvConfig
from rocketc.namesrv.name_server import NameServer
from rocketc.remoting.command import Command, Flag

NOTICE = 40  # the broker sends it by itself, and there is no answer
EXCHANGES = [
    one for one in map(json.loads, GOLDEN.read_text(encoding="utf-8").splitlines()) if one["code"] != NOTICE
]  # fmt: skip
OF_NAME_SERVERS = (100, 101, 102, 105, 106, 205, 206, 216, 318, 319, 327)
FIRST = (17, 18, 200, 34, 100, 318)  # the others need these
LAST = (310, 102, 205, 327, 35, 207, 215, 216)  # the others would miss what these change
PROPERTIES = (26, 319)  # codes with a body of lines name=value
# JSON members whose names are data: topics, groups, brokers, addresses.
TABLES = {
    "brokerAddrTable", "brokerAddrs", "clusterAddrTable", "consumeStatsList", "subscriptionGroupTable",
    "subscriptionTable", "topicConfigTable",
}  # fmt: skip

# What differs, by code: the first cell of a row of docs/howto/operate.md, and the lines of the shape that are compared.
DIFFERENCES = {
    26: ("`getBrokerConfig`", lambda line: not line.startswith("body ")),
    401: ("POP", lambda line: False),
}

NAMES = "10.0.0.1:9876"
TOPIC, GROUP, KEY = "A_38ee962af21", "AG_38ee962af21", "C00002021F6C4E0E2F2A78B067590002"
OTHER_TOPIC, OTHER_GROUP = "A_38ee9271a8b", "AG_38ee9271a8b"
CLIENT = "192.0.2.2@fixture_c_8044"


def shape(value, at=""):
    """Lines `path: type`. A name that is data becomes *, and all members of a list share the path []."""
    lines = {f"{at}: {type(value).__name__}"}
    if isinstance(value, dict):
        is_table = at.rstrip("[]").rpartition(".")[2] in TABLES
        for name, one in value.items():
            lines |= shape(one, f"{at}.*" if is_table or isinstance(name, tuple) else f"{at}.{name}")
    elif isinstance(value, list):
        lines |= {line for one in value for line in shape(one, f"{at}[]")}
    return lines


def described(code, answer_code, remark, fields, body):
    """The shape of an answer, as lines."""
    lines = {f"code {answer_code}", f"remark {remark}", *(f"field {name}" for name in fields)}
    if code in PROPERTIES:
        return lines | {f"body {line.partition('=')[0]}" for line in body.splitlines() if line}
    if body.startswith("{"):
        return lines | {f"body{line}" for line in shape(lax(body))}
    return lines | ({"a body"} if body else set())


class Cluster:
    """A broker and a name server with the topics, groups, messages and clients that the requests ask for."""

    def __init__(self, stage, names):
        self.stage, self.names = stage, names

    async def fill(self):
        client = self.stage.client()
        client.channel._on_request = lambda command, reply: self.answer(client, command)
        for group in (f"{GROUP}_clone", f"{OTHER_GROUP}_cm"):
            assert (await client.call(200, json.dumps({"groupName": group}).encode())).code == 0
        await create(client, f"{TOPIC}o", 3, order=True)
        for number in range(12):
            unique_key = KEY if number == 0 else f"{KEY[:-4]}{number + 16:04X}"
            properties = f"KEYS\1sk\2UNIQ_KEY\1{unique_key}\2TAGS\1st\2"
            for topic in (TOPIC, OTHER_TOPIC):
                assert (await client.send(topic, queueId=number % 2, properties=properties)).code == 0
        await self.stage.settle()
        beat = {
            "clientID": CLIENT,
            "consumerDataSet": [self.consumer(GROUP, TOPIC), self.consumer(OTHER_GROUP, OTHER_TOPIC)],
            "producerDataSet": [{"groupName": f"P_{GROUP}"}],
        }
        for _ in range(12):  # longer than a minute: statistics
            assert (await client.call(34, json.dumps(beat).encode())).code == 0
            for topic, group in ((TOPIC, GROUP), (OTHER_TOPIC, OTHER_GROUP)):
                for queue in (0, 1):
                    assert (await client.pull(topic, queue, group=group)).code == 0
                    await client.call(15, consumerGroup=group, topic=topic, queueId=queue, commitOffset=5)
            await asyncio.sleep(10)

    @staticmethod
    def consumer(group, topic):
        return {
            "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [{"topic": name, "subString": "*"} for name in (topic, f"%RETRY%{group}")],
        }  # fmt: skip

    @staticmethod
    def answer(client, command):
        """The consumer is asked about itself."""
        if command.code == 307:
            [theirs] = [one for one in EXCHANGES if one["code"] == 307]
            body = theirs["answerBody"].encode()
            client.transport.write(Command(0, {}, body, command.opaque, Flag.ANSWER, theirs["remark"]).encode())

    async def replay(self, exchange):
        """Send a recorded request; return the shapes of the recorded answer and of ours."""
        code, fields = exchange["code"], dict(exchange["request"])
        if code == 33:  # a position in the commit log
            fields["offset"] = str(self.stage.store.get(TOPIC, 0, 0, 1).phy_offsets[0])
        server = self.names if code in OF_NAME_SERVERS else self.stage.broker.server
        tool = Asking()
        virtual.link(tool, server.connection(), self.stage.chance, self.stage.delay)
        ours = await tool.send(code, fields, (exchange["requestBody"] or "").encode())
        body = bytes(ours.body)
        text = body.decode().replace(self.stage.store.path, "/store-root/store-0") if body.isascii() else "binary"
        theirs = exchange["answerCode"], exchange["remark"], exchange["answer"], exchange["answerBody"] or ""
        return described(code, *theirs), described(code, ours.code, ours.remark, ours.fields, text)


async def play(root):
    """Replay all; return the exchanges with the shape of the recorded answer and of ours."""

    def place(exchange):
        code = exchange["code"]
        return (code not in FIRST, code in LAST and 1 + LAST.index(code))

    def now():
        return EPOCH + int(asyncio.get_running_loop().time() * 1000)

    def connector(host, port):
        async def connect(factory):
            virtual.link(factory(), names.connection(), random.Random(1))

        return connect

    async with contextlib.AsyncExitStack() as stack:
        names = await stack.enter_async_context(NameServer(NamesrvConfig(), clock=now, listens=False))
        served = scene(root, delay=(0.0, 0.0), name_servers=[NAMES], connector=connector, broker_name="broker-a")
        cluster = Cluster(await stack.enter_async_context(served), names)
        await cluster.fill()
        return [(exchange, *await cluster.replay(exchange)) for exchange in sorted(EXCHANGES, key=place)]


def test_answers_have_the_shape_of_the_recorded_ones(memory_path):
    wrong, page = [], (ROOT / "docs/howto/operate.md").read_text(encoding="utf-8")
    for exchange, theirs, ours in virtual.run(play(memory_path)):
        code = exchange["code"]
        row, compared = DIFFERENCES.get(code, ("", lambda line: True))
        lines = [f"  - {line}" for line in sorted(filter(compared, theirs - ours))]
        lines += [f"  + {line}" for line in sorted(filter(compared, ours - theirs))]
        if lines:
            wrong.append("\n".join([f"{code} {exchange['request']}", *lines]))
        if row:
            assert f"\n| {row} | " in page
            assert theirs != ours, f"{code} does not differ any more: see DIFFERENCES and the page"
    assert not wrong, "\n".join(wrong)
