"""Ordered topics: producers write to the queues that an operator fixed in the name server, in this order."""

import asyncio
import json

import pytest
from unit.client.scripted import Cluster, play, stored

from rocketc.client.bodies import Fields
from rocketc.client.queue_choice import queue_of_shard
from rocketc.client.routes import MessageQueue, decode_route
from rocketc.errors import NotSentError
from rocketc.remoting.server import Answer


def ordered(cluster, text, names=None):
    """The name server answers with this order, and with the brokers of these names."""

    def route(call):
        answer = cluster._route(call)
        body = json.loads(answer.body)
        body["brokerDatas"] = [one for one in body["brokerDatas"] if names is None or one["brokerName"] in names]
        return Answer(body=json.dumps({**body, "orderTopicConf": text}).encode())

    cluster.name_server.answers[105] = route


QUEUES = [{"brokerName": "a", "readQueueNums": 3, "writeQueueNums": 4, "perm": 6}]


def test_the_queues_of_an_ordered_topic():
    for text, write in [("b:1;a:2", [("b", 0), ("a", 0), ("a", 1)]), ("", [("a", i) for i in range(4)])]:
        route = decode_route(Fields({"queueDatas": QUEUES, "brokerDatas": [], "orderTopicConf": text}))
        assert [one[1:] for one in route.write_queues("t")] == write
        assert [one[1:] for one in route.read_queues("t")] == [("a", 0), ("a", 1), ("a", 2)]
    assert decode_route(Fields({"orderTopicConf": None})).order == ()


@pytest.mark.parametrize(
    ("text", "order", "used"),
    [
        (" broker-a:2;", (("broker-a", 2),), "broker-a:2"),
        ("broker-a: 2 ;broker-b", (("broker-a", 2),), "broker-a:2"),
        ("broker-a", (), "all queues of the topic"),
        ("a:;:4;a:x;;b:3", (("b", 3),), "b:3"),
        (";", (), "all queues of the topic"),
        (7, (), "all queues of the topic"),
        ("a:999999999;b:1048577;c:2", (("c", 2),), "c:2"),
        ("a:1048575;b:2;c:1", (("a", 1048575), ("c", 1)), "a:1048575;c:1"),
    ],
)
def test_what_is_right_of_a_malformed_order_is_used(text, order, used):
    route = decode_route(Fields({"queueDatas": QUEUES, "orderTopicConf": text}))
    assert route.order == order
    assert f"orderTopicConf is {str(text)!r}, expected" in route.misordered("t")
    assert f"producers use {used};" in route.misordered("t")
    assert len(route.write_queues("t")) == (sum(count for _, count in order) or 4) and len(route.read_queues("t")) == 3


@pytest.mark.parametrize(
    ("text", "order"), [("a:4;", 4), ("a:4:5", 4), ("a:+4", 4), ("a:٣", 3), ("a:-1;b:1", 0), (None, None), ("", None)]
)
def test_what_java_takes_is_taken(text, order):
    route = decode_route(Fields({"queueDatas": QUEUES, "orderTopicConf": text}))
    assert route.misordered("t") is None
    assert dict(route.order).get("a") == order


def test_shards_keep_their_queue_while_a_broker_is_away():
    async def main():
        cluster = Cluster({"a": stored, "b": stored})
        ordered(cluster, "b:3;a:1")
        order = [MessageQueue("orders", *one) for one in [("b", 0), ("b", 1), ("b", 2), ("a", 0)]]
        shards = {queue_of_shard(f"c-{i}", order): f"c-{i}" for i in range(50)}
        assert len(shards) == 4
        async with cluster.producer(poll_name_server_interval=1_000) as producer:
            for queue, shard in shards.items():
                assert (await producer.send("orders", b"x", shard=shard)).queue == queue
            ordered(cluster, "b:3;a:1", names=["b"])
            await asyncio.sleep(3)
            for queue, shard in shards.items():
                if queue.broker_name == "b":
                    assert (await producer.send("orders", b"x", shard=shard)).queue == queue
                else:
                    with pytest.raises(NotSentError, match="broker a: no master is known now"):
                        await producer.send("orders", b"x", shard=shard)
                    with pytest.raises(NotSentError, match="broker a: no master is known now"):
                        await producer.send_oneway("orders", b"x", shard=shard)
            for _ in range(8):  # another broker gets the message
                assert (await producer.send("orders", b"x")).queue.broker_name == "b"

    play(main())


def test_one_warning_of_a_malformed_order(caplog):
    async def main():
        cluster = Cluster({"a": stored})
        ordered(cluster, "a=4")
        async with cluster.producer(poll_name_server_interval=1_000) as producer:
            sent = {(await producer.send("orders", b"x")).queue.queue_id for _ in range(8)}
            assert len(sent) == 2
            await asyncio.sleep(3)
            ordered(cluster, " a:1")
            await asyncio.sleep(3)
            assert {(await producer.send("orders", b"x")).queue.queue_id for _ in range(4)} == {0}
            ordered(cluster, "a:1")
            await asyncio.sleep(3)

    play(main())
    expected = "expected broker:queues;broker:queues; producers use"
    assert [one.getMessage() for one in caplog.records if one.levelname == "WARNING"] == [
        f"topic 'orders': orderTopicConf is 'a=4', {expected} all queues of the topic; "
        "correct it: mqadmin updateOrderConf",
        f"topic 'orders': orderTopicConf is ' a:1', {expected} a:1; correct it: mqadmin updateOrderConf",
    ]


def test_hooks_and_chosen_queues_while_a_broker_is_away():
    async def main():
        cluster, seen = Cluster({"a": stored, "b": stored}), []
        ordered(cluster, "a:1", names=["b"])
        producer = cluster.producer()
        producer.add_send_hook(None, seen.append)
        away = "broker a: no master is known now"
        async with producer:
            with pytest.raises(NotSentError, match=away):
                await producer.send("orders", b"x", shard="c-1")
            with pytest.raises(NotSentError, match=away):
                await producer.send("orders", b"x", queue=MessageQueue("orders", "a", 0))
            with pytest.raises(ValueError, match="is not a queue of topic 'orders'"):
                await producer.send("orders", b"x", queue=MessageQueue("orders", "a", 1))
        assert [(one.address, type(one.error)) for one in seen] == [("", NotSentError)] * 2

    play(main())
