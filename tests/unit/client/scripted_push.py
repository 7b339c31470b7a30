"""Brokers with queues of messages for push consumers, as a test says, on virtual time and a network in memory."""

import asyncio
import json
import random

from unit.client.scripted import NAME_SERVER, Cluster, stored

from rocketc.client.access import Access
from rocketc.client.async_consumer import AsyncConsumer
from rocketc.client.concurrent_service import ConcurrentService
from rocketc.client.push_core import PushCore
from rocketc.client.settings import ConsumerSettings
from rocketc.client.subscriptions import subscribe
from rocketc.format._encoding import encode
from rocketc.remoting.codes import Code
from rocketc.remoting.requests import CODES
from rocketc.remoting.server import Answer, Server

GROUP = "billing"


class PushCluster(Cluster):
    """Brokers that hold messages, offsets and one consumer.

    committed  the offset of the group, by (broker, topic, queue id)
    returned   the fields of each message that was sent back
    """

    def __init__(self, *names):
        super().__init__(dict.fromkeys(names, stored))
        self.committed, self.returned, self._records = {}, [], {}
        for name, broker in self.brokers.items():
            broker.answers |= {
                CODES["PULL_MESSAGE"]: lambda call, name=name: self.pull(name, call),
                CODES["GET_CONSUMER_LIST_BY_GROUP"]: self.members,
                CODES["QUERY_CONSUMER_OFFSET"]: lambda call, name=name: self._query(name, call),
                CODES["UPDATE_CONSUMER_OFFSET"]: lambda call, name=name: self._update(name, call),
                CODES["CONSUMER_SEND_MSG_BACK"]: self._take_back,
                CODES["LOCK_BATCH_MQ"]: self._lock,
                CODES["CHECK_CLIENT_CONFIG"]: Answer(),
                CODES["UNLOCK_BATCH_MQ"]: Answer(),
                CODES["GET_MAX_OFFSET"]: lambda call, name=name: self._max_offset(name, call),
            }
            broker.codes += tuple(broker.answers)
            self.servers[self.address(name)] = Server([broker])

    def put(self, count, topic="orders", broker="a", properties=None):
        """Put messages with the bodies 0, 1, ... into the queue 0. Pulls that wait get them a moment later."""
        records = self._records.setdefault((broker, topic, 0), [])
        for i in range(count):
            at = len(records)
            records.append(encode(topic, b"%d" % i, properties=properties, queue_offset=at, phy_offset=1000 * at))

    def consumer(self, kind=ConcurrentService, **options):
        def clock():
            return 1_764_000_000 + asyncio.get_running_loop().time()

        access = Access((NAME_SERVER,), connector=self.connector, clock=clock, chance=random.Random(2))
        options = {"client_ip": "10.0.9.9", "consume_from_where": "CONSUME_FROM_FIRST_OFFSET", **options}
        self.core = PushCore(access, GROUP, ConsumerSettings(**options), kind)
        return self.core

    def reader(self, topics=("orders",), **options):
        """An AsyncConsumer."""
        plain = self.consumer()._access
        options = {"client_ip": "10.0.9.9", "consume_from_where": "CONSUME_FROM_FIRST_OFFSET", **options}
        self.core = AsyncConsumer(GROUP, NAME_SERVER, topics=topics, **options)
        self.core._access = plain
        return self.core

    async def consume(self, listener, seconds, *, topic="orders", **options):
        """Run a consumer for this time."""
        core = self.consumer(**options)
        await core.subscribe(subscribe(topic), listener)
        await core.start()
        await asyncio.sleep(seconds)
        await core.close()

    def pull(self, name, call):
        values = call.values
        records = self._records.get((name, values["topic"], values["queueId"]), [])
        at = values["queueOffset"]
        found = records[at : at + values["maxMsgNums"]]
        told = {
            "suggestWhichBrokerId": 0,
            "nextBeginOffset": at + len(found),
            "minOffset": 0,
            "maxOffset": len(records),
        }
        if found:
            return Answer(body=b"".join(found), values=told)
        asyncio.get_running_loop().call_later(1, lambda: call.later(Answer(Code.PULL_NOT_FOUND, values=told)))
        return None

    def members(self, call):
        return Answer(body=json.dumps({"consumerIdList": [self.core.client_id]}).encode())

    def _query(self, name, call):
        offset = self.committed.get((name, call.values["topic"], call.values["queueId"]))
        return Answer(Code.QUERY_NOT_FOUND) if offset is None else Answer(values={"offset": offset})

    def _lock(self, call):
        queues = json.loads(call.command.body)["mqSet"]
        return Answer(body=json.dumps({"lockOKMQSet": queues}).encode())

    def _max_offset(self, name, call):
        records = self._records.get((name, call.values["topic"], call.values["queueId"]), [])
        return Answer(values={"offset": len(records)})

    def _update(self, name, call):
        values = call.values
        self.committed[name, values["topic"], values["queueId"]] = values["commitOffset"]
        return Answer()

    def _take_back(self, call):
        self.returned.append(call.values)
        return Answer()
