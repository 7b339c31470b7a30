"""Every request of the table against the whole broker: each field missing, empty, wrong and huge; bodies of any bytes.

Each gets an answer, or its connection is closed. No error is logged, and the next client is served.
"""

import asyncio
import json
import logging
import random

import pytest
from simulation import virtual
from simulation.brokers import EPOCH, scene
from support.promise_counts import count

from rocketc.errors import ConnectionLostError
from rocketc.remoting._frames import FrameDecoder
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command, Form
from rocketc.remoting.requests import BOOL, CODES, INT, LONG, REQUESTS, TEXT

pytestmark = pytest.mark.promise(14)

NAMES = {  # fields whose usual values are names
    "topic": "orders", "consumerGroup": "audit", "producerGroup": "shop", "defaultTopic": "TBW102", "group": "audit",
    "properties": "UNIQ_KEY\1K1\2TAGS\1red\2", "subscription": "red || blue", "expressionType": "TAG", "key": "K1",
    "clientID": "client", "bornTimestamp": str(EPOCH), "suspendTimeoutMillis": "50", "sysFlag": "0", "queueId": "0",
    "queueOffset": "0", "maxMsgNums": "8", "commitOffset": "0", "subVersion": "1", "offset": "0", "maxNum": "8",
    "defaultTopicQueueNums": "4", "boundaryType": "LOWER",
}  # fmt: skip
USUAL = {TEXT: "text", INT: "0", LONG: "0", BOOL: "false"}
NUMBERS = [
    "",
    "x",
    "1.5",
    " 1",
    "-1",
    "1",
    "255",
    "9" * 30,
    "2147483647",
    "-2147483648",
    "2147483648",
    str((1 << 63) - 1),
]
TEXTS = [
    "", " ", "x" * 256, "x" * 40_000, "a\0b", "%RETRY%", "%RETRY%audit", "%DLQ%audit", "SCHEDULE_TOPIC_XXXX", "*",
    "../../etc/passwd", "a/b", "\U0001f600", "||", "\1\2\1\1\2\2", "TBW102", "DefaultCluster", "broker-a", "true",
    "\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace"),
]  # fmt: skip
BODIES = [
    b"", b"{}", b"[]", b"null", b"1", b'"x"', b"{", b"[" * 100_000, b'{"a":' * 50_000, b"\xff\xfe", bytes(1000),
    b'{"clientID":1,"consumerDataSet":{},"producerDataSet":[1,null,"x"]}', b'{"mqSet":[{}],"clientId":null}',
    b'{"consumerGroup":["x"],"clientId":{},"mqSet":[{"topic":1,"queueId":"x","brokerName":[]}]}',
    b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"t","subVersion":"x"}]}]}',
    b'{"subscriptionData":[]}', b"x" * (2 << 20),
    json.dumps({"clientID": "c" * 5000, "consumerDataSet": [], "heartbeatFingerprint": 1 << 70}).encode(),
    json.dumps({"consumerGroup": "g", "clientId": "c", "mqSet": [{"topic": "t", "queueId": 1}] * 20_000}).encode(),
]  # fmt: skip


def usual(request):
    """The fields of a request that is all right."""
    names = [(field.short if request.short else field.name, field) for field in request.fields if field.name != "batch"]
    return {name: NAMES.get(field.name, USUAL[field.kind]) for name, field in names}


def variants(request):
    """(fields, body) of hostile requests."""
    fields = usual(request)
    for field in request.fields:
        name = field.short if request.short else field.name
        yield {key: value for key, value in fields.items() if key != name}, b"body"
        for value in TEXTS if field.kind is TEXT else NUMBERS if field.kind is not BOOL else ["", "x", "true", "FALSE"]:
            if field.name == "suspendTimeoutMillis" and len(value) > 5:
                continue  # such a pull waits as long as it says
            yield {**fields, name: value}, b"body"
    yield {}, b""
    yield {f"field {n}": "x" for n in range(200)}, b""
    yield {**fields, **{f"field {n}": "x" for n in range(200)}}, b"body"
    for body in BODIES:
        yield fields, body


def play(root, main, **how):
    async def whole():
        async with scene(root, delay=(0.0, 0.0), **how) as stage:
            assert (await stage.client().send(queueId=9999)).code == Code.INVALID_PARAMETER
            await stage.settle()
            await main(stage)

    virtual.run(whole())


class RawClient(asyncio.Protocol):
    """Sends frames, and collects the answers by their numbers."""

    def __init__(self, stage, vip=False):
        self.answers, self.lost, self._decoder = {}, False, FrameDecoder()
        server = stage.broker.vip_server if vip else stage.broker.server
        self.transport, _ = virtual.link(self, server.connection(), stage.chance, stage.delay)

    def connection_made(self, transport):
        pass

    def data_received(self, data):
        for frame in self._decoder.receive(data):
            command = Command.decode(*frame)
            if command.is_answer:
                self.answers[command.opaque] = command

    def connection_lost(self, error):
        self.lost = True

    def pause_writing(self):
        pass

    resume_writing = pause_writing


async def assert_serves(stage):
    client = stage.client()
    assert (await client.send()).code == Code.SUCCESS
    await stage.settle()
    assert (await client.pull(group="served")).code == Code.SUCCESS
    client.channel.close()


@pytest.fixture
def no_errors(caplog):
    """No exception is logged: a processor names what is wrong, and nothing else fails."""
    caplog.set_level(logging.WARNING, "rocketc")
    yield
    assert [record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.ERROR] == []


def is_unanswered(code, fields):
    """Whether a request says that the state is unknown: RocketMQ's broker does not answer it either."""
    return code == CODES["END_TRANSACTION"] and fields.get("commitOrRollback", "missing").strip("+-0") == ""


@pytest.mark.some(60)
@pytest.mark.parametrize("vip", [False, True], ids=["port", "vip"])
@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("code", REQUESTS)
def test_each_field_of_each_request(memory_path, no_errors, code, form, vip):
    async def main(stage):
        sent = {}
        for n, (fields, body) in enumerate(variants(REQUESTS[code])):
            command = Command(code, fields, body, n)
            try:
                data = command.encode(form)
            except ValueError:
                continue  # this form can't hold it
            client = RawClient(stage, vip)
            client.transport.write(data)
            sent[n] = client
            if n % 50 == 0:
                await asyncio.sleep(0.2)
        await asyncio.sleep(10)
        asked = list(variants(REQUESTS[code]))
        for n, client in sent.items():
            assert client.lost or n in client.answers or is_unanswered(code, asked[n][0]), asked[n]
        count("inputs", len(sent))
        for client in sent.values():
            client.transport.abort()
        await assert_serves(stage)

    play(memory_path, main)


@pytest.mark.parametrize("seed", range(5))
def test_random_frames(memory_path, no_errors, seed):
    """Bytes of requests with changes anywhere, many on one connection: it is closed, or each is answered."""

    async def main(stage):
        chance = random.Random(seed)
        for _ in range(150):
            client = RawClient(stage)
            for n in range(chance.randint(1, 8)):
                request = chance.choice(list(REQUESTS.values()))
                data = bytearray(Command(request.code, usual(request), chance.choice(BODIES[:16])[:500], n).encode())
                for _ in range(chance.choice([0, 1, 1, 5])):
                    data[chance.randrange(len(data))] = chance.choice(
                        [0, 1, 34, 92, 123, 127, 255, chance.randrange(256)]
                    )
                client.transport.write(bytes(data))
            await asyncio.sleep(0.1)
            client.transport.abort()
        count("inputs", 150)
        await assert_serves(stage)

    play(memory_path, main)


def test_an_unknown_code(memory_path, no_errors):
    async def main(stage):
        for code in (0, -1, 1, 99, 1 << 15, 200050, (1 << 31) - 1, -(1 << 31)):
            client = RawClient(stage)
            client.transport.write(Command(code, {"topic": "orders"}, b"body", 5).encode())
            await asyncio.sleep(0.1)
            assert client.answers[5].code == Code.REQUEST_CODE_NOT_SUPPORTED
        with pytest.raises(ConnectionLostError):
            client = stage.client()
            waiting = asyncio.ensure_future(client.pull(wait=10_000, offset=0, queue_id=1))
            await asyncio.sleep(0.5)
            client.transport.cut()
            await waiting
        assert not stage.broker.server.connections.keys() & {client}
        await assert_serves(stage)

    play(memory_path, main)
