"""What a consumer answers to brokers: running info, offsets, resets, and a message to consume at once."""

import asyncio
import json
import queue
import time

import pytest
from simulation.tools import lax, recorded, shape
from unit.client.scripted import play
from unit.client.scripted_push import GROUP, PushCluster

import rocketc
from rocketc.client import Admin, Producer, PushConsumer
from rocketc.client.offset_stores import encode_offsets
from rocketc.client.routes import MessageQueue
from rocketc.client.subscriptions import subscribe
from rocketc.format._encoding import encode
from rocketc.remoting.codes import Code
from rocketc.tables.fastjson import to_bytes


def asked(code, values, body=b"", listener=lambda message: None, group=GROUP):
    """Ask a consumer of five messages as its broker does; return the answer, what it consumed, and the broker."""

    async def main():
        cluster, consumed = PushCluster("a"), []
        cluster.put(5)
        core = cluster.consumer()

        async def noted(message):
            consumed.append(int(message.body))
            return listener(message)

        await core.subscribe(subscribe("orders"), noted)
        await core.start()
        await asyncio.sleep(10)
        pairs = zip(cluster.links, cluster.connections, strict=True)
        connection = next(one for (address, _), one in pairs if address == cluster.address("a"))
        server = cluster.servers[cluster.address("a")]
        if code == 220:
            server.send(connection, code, values, body)
            answer = None
        else:
            answer = await server.call(connection, code, values, body, 3.0)
        await asyncio.sleep(10)
        await core.close()
        return answer, consumed, cluster

    return play(main())


def test_running_info_has_the_shape_of_javas():
    values = {"consumerGroup": GROUP, "clientId": "c", "jstackEnable": True}
    answer, _, _ = asked(307, values)
    ours, theirs = lax(answer.body), lax(recorded(307)["answerBody"])
    assert answer.code == Code.SUCCESS and "MainThread" in ours.pop("jstack")
    assert ours.keys() == theirs.keys() - {"jstack"}
    [name] = [one for one in ours["mqTable"] if one[0] == "orders" and one[1] == 0]
    assert shape(ours["mqTable"][name]) == shape(next(iter(theirs["mqTable"].values())))
    assert ours["mqTable"][name]["commitOffset"] == 5
    assert abs(ours["mqTable"][name]["lastPullTimestamp"] - 1_764_000_010_000) < 5_000
    known = {name for name in theirs["properties"] if name.startswith("PROP_")}
    assert known <= ours["properties"].keys() and ours["properties"]["PROP_CLIENT_VERSION"] == "V5_3_3"
    topics = {one["topic"]: one["subString"] for one in ours["subscriptionSet"]}
    assert topics == {"orders": "*", f"%RETRY%{GROUP}": "*"}
    answer, _, _ = asked(307, {**values, "consumerGroup": "other"})
    assert (answer.code, answer.remark) == (1, "The Consumer Group <other> not exist in this consumer")


def test_offsets_of_a_topic():
    answer, _, _ = asked(221, {"topic": "orders", "group": GROUP})
    assert lax(answer.body) == {"messageQueueTable": {("orders", 0): 5, ("orders", 1): 0}}
    answer, _, _ = asked(221, {"topic": "orders", "group": "other"})
    assert json.loads(answer.body) == {"messageQueueTable": {}}


def test_a_reset():
    table = to_bytes(encode_offsets({MessageQueue("orders", "a", 0): 2, MessageQueue("other", "a", 0): 1}))
    values = {"topic": "orders", "group": GROUP, "timestamp": 0, "isForce": True}
    _, consumed, cluster = asked(220, values, table)
    assert consumed == [0, 1, 2, 3, 4, 2, 3, 4] and cluster.committed["a", "orders", 0] == 5
    _, consumed, _ = asked(220, {**values, "group": "other"}, table)
    assert consumed == [0, 1, 2, 3, 4]
    listed = b'{"offsetTable":[{"brokerName":"a","queueId":0,"topic":"orders","offset":4}]}'
    for body in (b"", b"{}", b'{"offsetTable":7}', listed):  # the last form is for clients in C++
        assert asked(220, values, body)[1] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("body", "expected", "remark"),
    [(b"7", "CR_SUCCESS", None), (b"13", "CR_THROW_EXCEPTION", "ValueError: no 13")],
)
def test_a_message_is_consumed_directly(body, expected, remark):
    def listener(message):
        if message.body == b"13":
            raise ValueError("no 13")

    values = {"consumerGroup": GROUP, "clientId": "c", "msgId": "7F", "brokerName": "a"}
    answer, consumed, cluster = asked(309, values, encode("orders", body), listener)
    told = json.loads(answer.body)
    assert (told["consumeResult"], told.get("remark"), told["order"]) == (expected, remark, False)
    assert consumed == [0, 1, 2, 3, 4, int(body)] and cluster.committed["a", "orders", 0] == 5


@pytest.mark.parametrize("body", [b"", b"no record", encode("orders", b"1")[:-1]])
def test_what_is_not_a_message(body):
    values = {"consumerGroup": GROUP, "clientId": "c", "msgId": "7F", "brokerName": "a"}
    answer, consumed, _ = asked(309, values, body)
    assert answer.code == Code.SYSTEM_ERROR and answer.remark and consumed == [0, 1, 2, 3, 4]
    answer, _, _ = asked(309, values, encode("other", b"1"))
    assert json.loads(answer.body)["remark"] == "LookupError: there is no listener for the topic other"


def test_an_operator_resets_a_running_consumer():
    """The broker resets by itself, and the consumer continues there."""
    with rocketc.Broker() as broker, Producer("shop", broker.name_server) as producer:
        for i in range(8):
            producer.send("orders", b"%d" % i)
        found = queue.Queue()
        options = {"consume_from_where": "CONSUME_FROM_FIRST_OFFSET", "persist_consumer_offset_interval": 100}
        with PushConsumer("billing", broker.name_server, **options) as consumer:
            consumer.subscribe("orders", listener=lambda message: found.put(int(message.body)))
            assert sorted(found.get(timeout=20) for _ in range(8)) == list(range(8))
            time.sleep(0.3)

            async def reset():
                async with Admin(broker.name_server) as admin:
                    return await admin.reset_offset("billing", "orders", 0)

            asyncio.run(reset())
            for _ in range(8):
                producer.send("orders", b"99")  # ends the pulls that the broker holds, so the consumer hears of it
            assert {*range(8), 99} == {found.get(timeout=30) for _ in range(16)}
