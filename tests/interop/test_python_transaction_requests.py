"""What our producer of transactions asks a broker is what Java's producer asks it, field by field."""

import asyncio
import json

import pytest
from interop import scenarios
from interop.peer import RELEASES, Unavailable

from rocketc.client import TransactionProducer
from rocketc.format._encoding import encode
from rocketc.remoting.requests import CODES
from rocketc.remoting.server import Answer, Server

pytestmark = pytest.mark.long

SEND, END, CHECK = CODES["SEND_MESSAGE_V2"], CODES["END_TRANSACTION"], CODES["CHECK_TRANSACTION_STATE"]
SCRIPT = [
    {"body": "commit", "local": "COMMIT_MESSAGE"},
    {"body": "rollback", "local": "ROLLBACK_MESSAGE"},
    {"body": "unknown", "local": "UNKNOW"},
    {"body": "throw", "local": "throw"},
    {"body": "asked", "checks": ["COMMIT_MESSAGE"]},
]
HALVES = 4


class Broker:
    """A broker and name server that stores nothing. It asks about a transaction after the half messages of SCRIPT."""

    codes = (34, 35, END, 105, SEND)

    def __init__(self):
        self.asked = []
        self.server = Server([self])

    async def listen(self):
        host, port = await self.server.listen("127.0.0.1", 0)
        self.name_server = f"{host}:{port}"

    def process(self, call):
        self.asked.append(call)
        if call.command.code == 105:
            broker = {"brokerAddrs": {"0": self.name_server}, "brokerName": "a", "cluster": "c"}
            queues = {"brokerName": "a", "readQueueNums": 1, "writeQueueNums": 1, "perm": 7, "topicSysFlag": 0}
            return Answer(body=json.dumps({"brokerDatas": [broker], "queueDatas": [queues]}).encode())
        if call.command.code == SEND:
            key = properties_of(call)["UNIQ_KEY"]
            values = {"msgId": "7F00000100002A9F0000000000001000", "queueId": 0, "queueOffset": 7, "transactionId": key}
            return Answer(values=values)
        return Answer()

    async def ask(self):
        while sum(call.command.code == END for call in self.asked) < HALVES:
            await asyncio.sleep(0.02)
        about = {"UNIQ_KEY": "K1", "PGROUP": "shop", "TRAN_MSG": "true", "KEYS": "k-asked"}
        record = encode("orders", b"asked", queue_offset=71, phy_offset=7100, properties=about)
        values = {"tranStateTableOffset": 71, "commitLogOffset": 7100, "msgId": "K1", "transactionId": "T1"}
        for connection in list(self.server.connections):
            self.server.send(connection, CHECK, values, record)
        while sum(call.command.code == END for call in self.asked) <= HALVES:
            await asyncio.sleep(0.02)

    def told(self):
        """The ends of half messages, then the half messages, without ids and times."""
        keys = {properties_of(call)["UNIQ_KEY"]: "key" for call in self.asked if call.command.code == SEND}
        found = []
        for call in self.asked:
            fields = dict(call.command.fields)
            if call.command.code == SEND:
                properties = {name: text for name, text in properties_of(call).items() if name != "UNIQ_KEY"}
                kept = {name: fields[name] for name in "abefh"}
                found.append((call.command.code, kept, properties, bytes(call.command.body)))
            elif call.command.code == END:
                fields.pop("bname", None)  # for proxies
                fields.pop("topic", None)  # 4.x does not send it
                has_remark = bool(call.command.remark)
                fields = {name: keys.get(text, text) for name, text in fields.items()}
                found.append((call.command.code, call.command.is_oneway, has_remark, fields))
        self.asked.clear()
        return sorted(found, key=lambda one: one[0])  # an end may come after the next half message


def properties_of(call):
    return dict(one.split("\x01") for one in call.values["properties"].split("\x02") if one)


def play(name_server, done):
    """SCRIPT by our producer."""

    def local(message):
        name = next(one["local"] for one in SCRIPT if one["body"] == message.body.decode())
        if name == "throw":
            raise ValueError("as the script says")
        return name

    with TransactionProducer("shop", name_server, check=lambda message: "COMMIT_MESSAGE") as producer:
        for one in SCRIPT[:HALVES]:
            body = one["body"]
            producer.send_in_transaction("orders", body.encode(), local, tags="t", keys=f"k-{body}")
        done.result(20)


@pytest.mark.parametrize("release", RELEASES)
def test_requests_are_those_of_java(tmp_path, release):
    async def main():
        broker, loop = Broker(), asyncio.get_running_loop()
        await broker.listen()
        try:
            asking = asyncio.ensure_future(broker.ask())
            step = {"group": "shop", "script": SCRIPT, "checks": 1, "millis": 500}
            await loop.run_in_executor(None, lambda: clients.step(broker, "orders", "run_script", **step))
            await asking
            java = broker.told()
            done = asyncio.run_coroutine_threadsafe(broker.ask(), loop)
            await loop.run_in_executor(None, play, broker.name_server, done)
            return java, broker.told()
        finally:
            await broker.server.close()

    try:
        clients = scenarios.Clients(release, tmp_path)
    except Unavailable as reason:
        pytest.skip(str(reason))
    try:
        java, python = asyncio.run(main())
    finally:
        clients.close()
    assert python == java and len(java) == 2 * HALVES + 1
    assert [one[3]["commitOrRollback"] for one in java if one[0] == END] == ["8", "12", "0", "0", "8"]
