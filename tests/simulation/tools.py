"""What the tests of requests of tools share: a broker on virtual time, and the answers of a real one."""

import json
import re
from pathlib import Path

from simulation import virtual
from simulation.brokers import scene

GOLDEN = Path(__file__).parents[1] / "golden" / "admin-5.3.3.jsonl"
_OBJECT_NAME = re.compile(r'([{,])(\{"brokerName":"[^"]*","queueId":\d+,"topic":"[^"]*"\}):')


def recorded(code, index=0):
    """An exchange with a RocketMQ 5.3.3 broker."""
    lines = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line["code"] == code][index]


def lax(body):
    """The value of a body in which names may be objects or numbers; queues become (topic, queue id)."""
    text = body if isinstance(body, str) else bytes(body).decode()
    text = _OBJECT_NAME.sub(lambda found: f"{found[1]}{json.dumps('queue ' + found[2])}:", text)
    text = re.sub(r"([{,])(-?\d+):", r'\1"\2":', text)

    def named(pairs):
        return {_queue(name): value for name, value in pairs}

    return json.loads(text, object_pairs_hook=named)


def _queue(name):
    if not name.startswith("queue "):
        return name
    found = json.loads(name[6:])
    return found["topic"], found["queueId"]


def shape(value):
    """The names and types of a value: what a program that reads it relies on."""
    if isinstance(value, dict):
        if any(isinstance(name, tuple) for name in value):
            return {"queue": shape(next(iter(value.values())))}
        return {name: shape(one) for name, one in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def play(root, main, **how):
    """Run main(stage, client) with a broker on virtual time."""

    async def whole():
        async with scene(root, delay=(0.0, 0.0), **how) as stage:
            await main(stage, stage.client())

    virtual.run(whole())


async def create(client, topic="orders", queues=2, **values):
    told = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6,
        "topicFilterType": "SINGLE_TAG",
    }  # fmt: skip
    return await client.call(17, **{**told, **values})


def heartbeat(group="audit", topics=("orders",), client_id="c1", producer="shop"):
    subscriptions = [
        {"topic": topic, "subString": "a || b", "tagsSet": ["a", "b"], "codeSet": [97, 98], "subVersion": 5}
        for topic in topics
    ]
    consumer = {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": subscriptions,
    }  # fmt: skip
    producers = [{"groupName": producer}] if producer else []
    return json.dumps({"clientID": client_id, "consumerDataSet": [consumer], "producerDataSet": producers}).encode()
