"""Brokers divide the queues of consumers that ask for that; the answers were seen on a 5.3.3 broker."""

import asyncio
import contextlib
import json
import logging

import pytest
from simulation import virtual
from simulation.brokers import scene
from unit.broker.test_name_servers import Net

from rocketc.broker.assignments import QUERY_ASSIGNMENT, AssignmentProcessor
from rocketc.namesrv.routes import Registration
from rocketc.remoting.route_data import QueueData

TOPICS = {"T5": (5, 5, 6), "T2": (2, 4, 6), "W": (3, 3, 2), "R": (2, 2, 4)}  # queues to read and to write, permission
OTHER_FIELDS = {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False}
HEART_BEAT, UPDATE_TOPIC = 34, 17


class Group:
    """The consumers c1, c2, ... of a group, each on a connection of its own, at one broker."""

    def __init__(self, stage):
        self.stage, self.clients = stage, []

    async def join(self, *members, group="G"):
        for name in members:
            self.clients.append(self.stage.client())
            body = {"clientID": name, "consumerDataSet": [{"groupName": group}]}
            assert (await self.clients[-1].call(HEART_BEAT, json.dumps(body).encode())).code == 0

    async def ask(self, **members):
        """Return (code, body, or the remark if there is one)."""
        asked = {
            "topic": "T5", "consumerGroup": "G", "clientId": "c1", "strategyName": "AVG",
            "messageModel": "CLUSTERING", **members,
        }  # fmt: skip
        body = json.dumps({name: value for name, value in asked.items() if value is not ...}).encode()
        return await self.ask_raw(body)

    async def ask_raw(self, body):
        answer = await self.clients[0].call(QUERY_ASSIGNMENT, body)
        return answer.code, json.loads(answer.body) if answer.remark is None else answer.remark

    async def queues(self, **members):
        """Return (broker, queue id) of each assignment; None: the answer does not have any."""
        code, found = await self.ask(**members)
        assert code == 0
        if not found:
            return None
        assert all(one["mode"] == "PULL" for one in found["messageQueueAssignments"])
        queues = [one["messageQueue"] for one in found["messageQueueAssignments"]]
        assert all(queue["topic"] == members.get("topic", "T5") for queue in queues)
        return [(queue["brokerName"], queue["queueId"]) for queue in queues]

    async def ids(self, **members):
        found = await self.queues(**members)
        return None if found is None else [queue for _, queue in found]


def play(tmp_path, main, net=None):
    """Run main(group) with two members at a broker that has TOPICS."""

    async def whole():
        async with contextlib.AsyncExitStack() as stack:
            how = {}
            if net is not None:
                await net.start(stack)
                how = {"name_servers": list(net.addresses), "connector": net.connector}
            stage = await stack.enter_async_context(scene(tmp_path, **how))
            group = Group(stage)
            await group.join("c1", "c2")
            for name, (read, write, perm) in TOPICS.items():
                topic = {"topic": name, "readQueueNums": read, "writeQueueNums": write, "perm": perm}
                assert (await group.clients[0].call(UPDATE_TOPIC, **topic, **OTHER_FIELDS)).code == 0
            await asyncio.sleep(1)
            await main(group)

    virtual.run(whole())


def test_each_member_gets_its_part(tmp_path):
    async def main(group):
        assert await group.ids() == [0, 1, 2] and await group.ids(clientId="c2") == [3, 4]
        circle = {"strategyName": "AVG_BY_CIRCLE"}
        assert await group.ids(**circle) == [0, 2, 4] and await group.ids(**circle, clientId="c2") == [1, 3]
        ring = {"strategyName": "CONSISTENT_HASH"}  # 5.3.3 answers {}: its members get nothing
        assert sorted(await group.ids(**ring) + await group.ids(**ring, clientId="c2")) == [0, 1, 2, 3, 4]
        assert await group.ids(topic="T2") == [0] and await group.ids(topic="T2", clientId="c2") == [1]
        assert await group.ids(topic="R") == [0] and await group.ids(topic="W") is None
        assert await group.ids(topic="%RETRY%G") == [0]
        assert await group.ids(topic="%RETRY%G", clientId="c2") == []
        assert await group.queues(topic="%LMQ%x") == [("broker-a", 0)]
        await group.join("c0")
        assert await group.ids() == [2, 3]

    play(tmp_path, main)


def test_the_form_of_an_answer(tmp_path):
    async def main(group):
        queue = {"brokerName": "broker-a", "queueId": 0, "topic": "T2"}
        expected = {"messageQueueAssignments": [{"messageQueue": queue, "mode": "PULL"}]}
        assert await group.ask(topic="T2") == (0, expected)
        assert await group.ask(clientId="other") == (0, {"messageQueueAssignments": []})

    play(tmp_path, main)


def test_broadcasting_gives_all_queues_to_anyone(tmp_path):
    async def main(group):
        for model in ("BROADCASTING", 0):
            for other in ({}, {"clientId": "other"}, {"consumerGroup": "other"}, {"strategyName": None}):
                assert await group.ids(messageModel=model, **other) == [0, 1, 2, 3, 4]
        assert await group.ids(messageModel=1) == [0, 1, 2]
        assert await group.ask(messageModel="BROADCASTING", topic="unknown") == (0, {})

    play(tmp_path, main)


@pytest.mark.parametrize(
    "members",
    [
        {"consumerGroup": "other"}, {"topic": "unknown"}, {"topic": ""}, {"clientId": ""}, {"clientId": ...},
        {"strategyName": "other"}, {"strategyName": ...}, {"strategyName": None},
    ],
)  # fmt: skip
def test_what_cannot_be_decided_changes_nothing(tmp_path, members):
    async def main(group):
        assert await group.ask(**members) == (0, {})

    play(tmp_path, main)


def test_an_unknown_strategy_is_logged_once(tmp_path, caplog):
    caplog.set_level(logging.WARNING, "rocketc.broker")

    async def main(group):
        for _ in range(3):
            assert await group.ask(strategyName="MACHINE_ROOM") == (0, {})

    play(tmp_path, main)
    [message] = [record.getMessage() for record in caplog.records]
    assert message.startswith("group G: the consumer c1 ") and "'MACHINE_ROOM'" in message
    assert "AVG, AVG_BY_CIRCLE, CONSISTENT_HASH" in message


@pytest.mark.parametrize(
    ("members", "error"),
    [
        ({"topic": ...}, "the body lacks the member topic"),
        ({"consumerGroup": ...}, "the body lacks the member consumerGroup"),
        ({"messageModel": ...}, "the member messageModel is neither"),
        ({"messageModel": "other"}, "the member messageModel is neither"),
        ({"messageModel": [2]}, "the member messageModel is neither"),
        ({"topic": "t" * 256}, "topic"),
    ],
)
def test_bad_requests(tmp_path, members, error):
    async def main(group):
        code, remark = await group.ask(**members)
        assert code == 1 and error in remark

    play(tmp_path, main)


def test_bodies_without_an_object(tmp_path):
    async def main(group):
        for body in (b"", b"{", b"[]", b"null"):
            code, remark = await group.ask_raw(body)
            assert code == 1 and "the body is not" in remark

    play(tmp_path, main)


# ---------------------------------------------------------------- routes


def test_the_queues_of_all_brokers_are_divided(tmp_path):
    net = Net(("10.0.0.1:9876", "10.0.0.2:9876"))

    async def main(group):
        for address in net.addresses:
            routes = net.servers[address].routes
            other = Registration("b", "C", "b:1", 0, "", dict.fromkeys(("T2", "of-b"), QueueData("", 3, 3)))
            assert routes.register(other, "link", 0).error is None
        assert await group.queues(topic="T2") == [("b", 0), ("b", 1), ("b", 2)]
        assert await group.queues(topic="T2", clientId="c2") == [("broker-a", 0), ("broker-a", 1)]
        net.is_down.add(net.addresses[0])
        net.links[0].cut()
        assert await group.queues(topic="of-b") == [("b", 0), ("b", 1)]  # the other name server answers
        net.is_down.update(net.addresses)
        for link in net.links:
            link.cut()
        await asyncio.sleep(1)
        assert await group.ids(topic="of-b") == [0, 1]  # for 5 s
        await asyncio.sleep(5)
        assert await group.ask(topic="of-b") == (0, {})

    play(tmp_path, main, net)


class Routes:
    """Counts the questions to name servers; each takes `seconds`."""

    def __init__(self, seconds=0.1):
        self.asked, self.seconds = [], seconds

    async def __call__(self, topic):
        self.asked.append(topic)
        await asyncio.sleep(self.seconds)
        return [] if topic == "unknown" else [QueueData("b", 1, 1)]


def test_members_that_ask_at_once_need_one_route(tmp_path):
    async def main():
        routes, loop = Routes(), asyncio.get_running_loop()
        processor = AssignmentProcessor(None, routes, "b", now=loop.time)
        found = await asyncio.gather(*(processor._queues("orders") for _ in range(100)))
        assert routes.asked == ["orders"] and all(len(queues) == 1 for queues in found)
        await asyncio.sleep(4)
        await processor._queues("orders")
        assert len(routes.asked) == 1
        await asyncio.sleep(1)
        await processor._queues("orders")
        assert len(routes.asked) == 2
        assert [await processor._queues("unknown"), await processor._queues("unknown")] == [[], []]
        assert routes.asked[2:] == ["unknown", "unknown"]  # it may have been made meanwhile
        for n in range(5000):
            await processor._queues(f"t{n}")
        assert len(processor._routes) <= 1000
        processor.close()

    virtual.run(main())
