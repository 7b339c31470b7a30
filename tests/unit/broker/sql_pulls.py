"""Pulls with SQL92 filters at a broker on virtual time: messages, heartbeats, pulls and what they got."""

import asyncio
import json

from simulation.brokers import HOST, scene

import rocketc

ON = {"enable_property_filter": True}


def put(stage, a, topic="orders", body=None, **properties):
    body = str(a).encode() if body is None else body
    found = {"a": str(a), **properties} if a is not None else properties
    stage.store.put(topic, body, properties=found, store_host=HOST, born_host=HOST)


def sql(text, topic="orders", version=1, kind="SQL92", **others):
    return {"topic": topic, "subString": text, "subVersion": version, "expressionType": kind, **others}


async def beat(client, *subscriptions, group="audit", **others):
    consumer = {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "subscriptionDataSet": subscriptions}
    body = json.dumps({"clientID": "c", "consumerDataSet": [{**consumer, **others}]}).encode()
    assert (await client.call(34, body)).code == 0


def bodies(answer):
    found, at = [], 0
    while at < len(answer.body):
        size = int.from_bytes(answer.body[at : at + 4], "big")
        found.append(int(rocketc.Message.of(answer.body[at : at + size]).body))
        at += size
    return found


def own(client, text, kind="SQL92", **values):
    """Pull with the subscription in the request."""
    return client.pull(subscription=text, expressionType=kind, **values)


def known(client, version=1, **values):
    """Pull with the subscription of the heartbeat."""
    return client.pull(**{"sysFlag": 0, "subVersion": version, **values})


async def retried(stage):
    """Put messages of the topics orders and other, and one that says no topic, into the retry topic of `audit`."""
    retry = "%RETRY%audit"
    for n in range(4):
        put(stage, n, retry, RETRY_TOPIC="orders")
    for n in range(4):
        put(stage, n, retry, b"%d" % (n + 10), RETRY_TOPIC="other")
    put(stage, 0, retry, b"20")
    await stage.settle()
    return retry


def hold(client, text="a = 77", offset=10, wait=20_000, **values):
    return asyncio.ensure_future(own(client, text, offset=offset, wait=wait, **values))


async def play_on(root, main, **how):
    """Run main(scene, client) with ten messages in queue 0 of `orders`, whose property `a` is their body."""
    async with scene(root, **{**ON, **how}) as stage:
        stage.store.create_topic("orders", queues=2)
        for n in range(10):
            put(stage, n)
        await stage.settle()
        await main(stage, stage.client())
