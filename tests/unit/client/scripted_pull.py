"""Brokers for pull consumers, on virtual time: what they hold, the offsets of a group, and what consumers asked."""

import asyncio
import json
import random

from unit.client.scripted import NAME_SERVER
from unit.client.scripted_push import GROUP, PushCluster

from rocketc.client.access import Access
from rocketc.client.async_pull_consumer import AsyncPullConsumer
from rocketc.client.routes import MessageQueue
from rocketc.format._encoding import encode
from rocketc.remoting.requests import CODES
from rocketc.remoting.server import Answer, Server

QUEUE, OTHER = MessageQueue("orders", "a", 0), MessageQueue("orders", "a", 1)
UNKNOWN = MessageQueue("orders", "a", 7)


class PullCluster(PushCluster):
    """Brokers that hold messages and offsets.

    others   client ids of other members of the group
    history  each offset that a consumer wrote for QUEUE
    """

    def __init__(self, *names, **options):
        super().__init__(*(names or ("a",)), **options)
        self.others, self.history = [], []
        for name, broker in self.brokers.items():
            broker.answers |= {
                CODES["GET_MIN_OFFSET"]: lambda call: Answer(values={"offset": 0}),
                CODES["GET_MAX_OFFSET"]: lambda call, name=name: Answer(values={"offset": self.count(name, call)}),
                CODES["SEARCH_OFFSET_BY_TIMESTAMP"]: lambda call: Answer(values={"offset": 2}),
            }
            broker.codes = tuple({*broker.codes, *broker.answers})
            self.servers[self.address(name)] = Server([broker])

    def count(self, name, call):
        return len(self._records.get((name, call.values["topic"], call.values["queueId"]), []))

    def fill(self, count, queue=QUEUE, tag="t", body=None):
        """Put messages, whose bodies are their offsets by default."""
        records = self._records.setdefault((queue.broker_name, queue.topic, queue.queue_id), [])
        for _ in range(count):
            text = b"%d" % len(records) if body is None else body
            records.append(
                encode(
                    queue.topic, text, queue_id=queue.queue_id, queue_offset=len(records), properties={"TAGS": tag},
                    phy_offset=1000 * len(records),
                )
            )  # fmt: skip

    def puller(self, topics=("orders",), **options):
        def clock():
            return 1_764_000_000 + asyncio.get_running_loop().time()

        options = {"client_ip": "10.0.9.9", "consume_from_where": "CONSUME_FROM_FIRST_OFFSET", **options}
        self.core = AsyncPullConsumer(GROUP, NAME_SERVER, topics=topics, **options)
        self.core._access = Access((NAME_SERVER,), connector=self.connector, clock=clock, chance=random.Random(2))
        return self.core

    def members(self, call):
        return Answer(body=json.dumps({"consumerIdList": [self.core.client_id, *self.others]}).encode())

    def _update(self, name, call):
        if (name, call.values["topic"], call.values["queueId"]) == ("a", "orders", 0):
            self.history.append(call.values["commitOffset"])
        return super()._update(name, call)

    def offset(self, queue=QUEUE):
        return self.committed.get((queue.broker_name, queue.topic, queue.queue_id))

    def heartbeats(self, name="a"):
        return [json.loads(one.command.body) for one in self.brokers[name].asked if one.command.code == 34]

    def pulls(self, name="a"):
        return [one.values for one in self.brokers[name].asked if one.command.code == CODES["PULL_MESSAGE"]]

    def tell(self, code, values, body=b"", name="a"):
        """Send a request to the consumer, as a broker does."""
        pairs = zip(self.links, self.connections, strict=True)
        connection = next(one for (address, _), one in pairs if address == self.address(name))
        self.servers[self.address(name)].send(connection, code, values, body)

    async def ask(self, code, values, name="a"):
        """Ask the consumer, as a broker does."""
        pairs = zip(self.links, self.connections, strict=True)
        connection = next(one for (address, _), one in pairs if address == self.address(name))
        return await self.servers[self.address(name)].call(connection, code, values, b"", 3.0)

    def rebalance(self, *others):
        """Let members join or leave the group."""
        self.others = list(others)
        self.tell(CODES["NOTIFY_CONSUMER_IDS_CHANGED"], {"consumerGroup": GROUP})


def offsets(messages):
    return [message.queue_offset for message in messages]
