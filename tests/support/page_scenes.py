"""What pages of docs/ need to be there: clusters with brokers, messages and groups. support/pages.py starts them."""

import asyncio
import contextlib
import queue
import time
from collections.abc import Iterator
from pathlib import Path

import rocketc
from rocketc.client import Admin, MessageQueue, Producer, PullConsumer, PushConsumer

NAME_SERVER = "127.0.0.1:9876"
QUEUES = [MessageQueue("orders", name, queue_id) for name in ("broker-a", "broker-b") for queue_id in (0, 1)]


@contextlib.contextmanager
def operated_cluster(folder: Path) -> Iterator[None]:
    """Two brokers: orders has 1,250 messages a queue; audit has stopped after 500 of each, billing has consumed all."""
    with (
        rocketc.Broker(process=True, port=10911, namesrv_port=9876, broker_name="broker-a") as first,
        rocketc.Broker(process=True, port=10921, namesrv_addr=NAME_SERVER, broker_name="broker-b") as second,
        Producer("shop", NAME_SERVER) as shop,
    ):
        for broker in (first, second):
            broker.topics.create("orders", 2)
        for each in QUEUES:
            shop.send_many("orders", [b"one bicycle"] * 1250, queue=each)
        with PullConsumer("audit", NAME_SERVER) as audit:
            audit.assign(QUEUES)
            for each in QUEUES:
                audit.seek(each, 500)
            audit.commit(dict.fromkeys(QUEUES, 500))
        with consuming("billing", 5000):
            yield


@contextlib.contextmanager
def consuming(group: str, count: int) -> Iterator[None]:
    """A consumer of orders that has consumed this many messages, and committed them, and stays online."""
    found: queue.SimpleQueue[object] = queue.SimpleQueue()
    with PushConsumer(
        group,
        NAME_SERVER,
        instance_name="step",
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        persist_consumer_offset_interval=1000,
    ) as consumer:
        consumer.subscribe("orders", listener=found.put)
        for _ in range(count):
            found.get(timeout=20)
        while asyncio.run(lag_of(group)):
            time.sleep(0.1)
        yield


async def lag_of(group: str) -> int:
    async with Admin(NAME_SERVER) as admin:
        return (await admin.consume_state(group, "orders")).lag
