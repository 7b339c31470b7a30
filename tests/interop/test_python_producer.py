"""Producer at RocketMQ's own brokers: its messages are those of Java's producer, and Java's consumers read them."""

import asyncio
import random

import pytest
from interop import scenarios
from interop.peer import RELEASES

import rocketc
from rocketc.client import NewMessage, Producer, SendStatus
from rocketc.client.connections import Connections
from rocketc.remoting.requests import CODES

pytestmark = pytest.mark.long

BODIES = ["one", "z" * 5000, "three"]


@pytest.fixture(scope="module", params=RELEASES)
def played(request, tmp_path_factory):
    """The messages in the store of a Java broker by topic, the results of our sends, and what a Java consumer read."""
    folder = tmp_path_factory.mktemp("python-producer")
    cluster = scenarios.JavaCluster(request.param, folder / "cluster")
    clients = scenarios.Clients(request.param, folder / "clients")
    try:
        clients.step(cluster, "java", "send", bodies=BODIES)
        sent = {}
        with Producer("python", cluster.name_server) as producer:
            sent["python"] = [producer.send("python", body.encode(), tags="t", keys="k-" + body[:1]) for body in BODIES]
            batch = [b"0", NewMessage(b"1", tags="t", keys="k", properties={"own": "value"}), b"2" * 5000]
            sent["batched"] = producer.send_many("batched", batch)
            sent["sharded"] = [producer.send("sharded", b"%d" % i, shard="c-7") for i in range(8)]
            producer.send("later", b"now")
            sent["later"] = [producer.send("later", b"later", delay_level=1)]
            producer.send_oneway("later", b"unanswered")
            producer.send("ordered", b"before")
        asyncio.run(fix_order(cluster, "ordered", "broker-a:2"))
        with Producer("python", cluster.name_server) as producer:
            sent["ordered"] = [producer.send("ordered", b"after") for _ in range(12)]
        counts = {"python": 3, "batched": 3, "sharded": 8, "later": 3}
        read = {
            topic: clients.step(cluster, topic, "consume", group=f"g-{topic}", count=count, millis=0)
            for topic, count in counts.items()
        }
        cluster.end()
    finally:
        clients.close()
        cluster.close()
    stored = {}
    for message in rocketc.scan(folder / "cluster" / "store"):
        stored.setdefault(message.topic, []).append(message)
    return stored, sent, read


async def fix_order(cluster, topic, order):
    """What `mqadmin updateOrderConf` does, at a name server that knows ordered topics."""
    connections = Connections(random.Random(1), 3)
    try:
        await connections.call(cluster.name_server, CODES["UPDATE_NAMESRV_CONFIG"], body=b"orderMessageEnable=true")
        values = {"namespace": "ORDER_TOPIC_CONFIG", "key": topic, "value": order}
        await connections.call(cluster.name_server, CODES["PUT_KV_CONFIG"], values)
    finally:
        connections.close()


def told(message):
    """What must be equal in both."""
    properties = {
        name: value for name, value in message.properties.items() if name not in ("UNIQ_KEY", "KEYS", "CLUSTER")
    }
    return message.body, message.tags, message.flag, message.sys_flag, message.stored_body[:2], properties


def test_messages_are_those_of_java(played):
    stored, sent, read = played
    assert [told(one) for one in stored["python"]] == [told(one) for one in stored["java"]]
    assert [one.msg_id for one in stored["python"]] == [one.offset_msg_id for one in sent["python"]]
    assert [one.properties["UNIQ_KEY"] for one in stored["python"]] == [one.msg_id for one in sent["python"]]
    assert sorted(read["python"]) == sorted(BODIES)


def test_batches(played):
    stored, sent, read = played
    assert sorted(read["batched"]) == ["0", "1", "2" * 5000]
    assert [one.properties["UNIQ_KEY"] for one in stored["batched"]] == [one.msg_id for one in sent["batched"]]
    places = [(one.queue_id, one.queue_offset, one.msg_id) for one in stored["batched"]]
    assert places == [(one.queue.queue_id, one.queue_offset, one.offset_msg_id) for one in sent["batched"]]
    assert stored["batched"][1].properties["own"] == "value" and stored["batched"][1].keys == "k"


def test_a_shard_stays_in_its_queue_and_in_order(played):
    stored, sent, read = played
    assert len({one.queue for one in sent["sharded"]}) == 1
    assert [one.body for one in stored["sharded"]] == [b"%d" % i for i in range(8)]
    assert sorted(read["sharded"]) == [str(i) for i in range(8)]


def test_a_delayed_and_a_oneway_message(played):
    stored, sent, read = played
    assert sorted(read["later"]) == ["later", "now", "unanswered"]
    [later] = [one for one in stored["later"] if one.body == b"later"]
    assert later.properties["DELAY"] == "1" and sent["later"][0].status is SendStatus.SEND_OK


def test_the_queues_of_an_ordered_topic(played):
    stored, sent, _ = played
    assert {one.queue.queue_id for one in sent["ordered"]} == {0, 1}
    assert len(stored["ordered"]) == 13
