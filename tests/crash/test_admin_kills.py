"""What tools change or delete on a broker survives a kill of its process right after the answer."""

import asyncio
import json
import random

import pytest
from interop.our_broker import OurBroker
from simulation.tools import lax

from rocketc.remoting.addresses import split_address
from rocketc.remoting.channel import Channel
from rocketc.remoting.command import Command

pytestmark = pytest.mark.promise(10)

TOPIC = {
    "topic": "orders", "defaultTopic": "TBW102", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6,
    "topicFilterType": "SINGLE_TAG",
}  # fmt: skip
RESET = {"topic": "orders", "group": "audit", "timestamp": 0, "isForce": True}


class Tool:
    """A client on one life of a broker."""

    def __init__(self, address):
        loop = asyncio.get_running_loop()
        self.channel = Channel(lambda factory: loop.create_connection(factory, *address), random.Random(1))

    async def call(self, code, body=b"", expected=0, **values) -> Command:
        answer = await self.channel.call(code, values, asyncio.get_running_loop().time() + 20, body)
        assert answer.code == expected, answer
        return answer

    async def send(self, topic="orders"):
        await self.call(
            310, b"body", producerGroup="shop", topic=topic, defaultTopic="TBW102", defaultTopicQueueNums=4, queueId=0,
            sysFlag=0, bornTimestamp=1, flag=0, properties="UNIQ_KEY\1K1\2",
        )  # fmt: skip


async def first(tool):
    await tool.call(17, **TOPIC)
    await tool.call(17, **{**TOPIC, "topic": "old"})
    await tool.send("old")
    await tool.send()
    await tool.call(200, json.dumps({"groupName": "audit", "retryMaxTimes": 3}).encode())
    await tool.call(352, group="gone")
    await tool.call(17, **{**TOPIC, "topic": "secret"})
    await tool.call(353, group="audit", topic="secret", readable=False)
    await tool.call(15, consumerGroup="audit", topic="orders", queueId=0, commitOffset=1)
    await tool.call(222, **RESET)


async def second(tool):
    assert json.loads((await tool.call(351, topic="orders")).body)["writeQueueNums"] == 2
    found = json.loads((await tool.call(201)).body)
    assert found["subscriptionGroupTable"]["audit"]["retryMaxTimes"] == 3
    assert "gone" in found["subscriptionGroupTable"] and found["forbiddenTable"] == {"audit": {"secret": 4}}
    assert lax((await tool.call(43)).body)["offsetTable"]["orders@audit"] == {"0": 0, "1": 0}
    await tool.call(207, groupName="gone", cleanOffset=True)
    await tool.call(314, srcGroup="audit", destGroup="copy", topic="orders")
    await tool.call(215, topic="old")


async def third(tool):
    await tool.call(351, topic="old", expected=17)
    assert "gone" not in json.loads((await tool.call(201)).body)["subscriptionGroupTable"]
    assert lax((await tool.call(43)).body)["offsetTable"]["orders@copy"] == {"0": 0, "1": 0}
    found = lax((await tool.call(202, topic="orders")).body)["offsetTable"]
    assert found[("orders", 0)]["maxOffset"] == 1


def test_changes_of_tools_survive_a_kill(tmp_path):
    async def life(address, act):
        tool = Tool(split_address(address))
        await act(tool)
        tool.channel.close()

    for act in (first, second, third):
        broker = OurBroker(tmp_path / "store", "--port", 0)
        try:
            asyncio.run(life(broker.address, act))
        finally:
            broker.kill()
