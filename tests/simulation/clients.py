"""Producers and consumers of a simulated cluster. They do what RocketMQ's clients do, a little more often."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from typing import Any

from simulation.history import DELAYS, Back, Delayed, History, Lock, Notice, Pull, Queue, Send
from simulation.hosts import EPOCH, NAME_SERVER, BrokerHost, wall_clock
from simulation.network import Link, Network

import rocketc
from rocketc.errors import ConnectionLostError, NoAnswerError, NotSentError
from rocketc.format._encoding import java_hash
from rocketc.remoting.channel import Channel
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command

ROUTE_SECONDS, BEAT_SECONDS, BALANCE_SECONDS, COMMIT_SECONDS, LOCK_AGAIN_SECONDS = 5.0, 10.0, 10.0, 5.0, 20.0
LOCK_LIVE_SECONDS = 30.0  # a client does not trust an older lock
HOLD_SECONDS = 15.0
EXPIRY_SECONDS = 120.0 + 10.0
FINGERPRINT = 12345  # of the subscriptions of a V2 heartbeat: all clients of a group have the same
LOST = (ConnectionLostError, NoAnswerError, NotSentError)


def messages_of(data: bytes) -> Iterator[Any]:
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        yield rocketc.Message.of(data[at : at + size])
        at += size


class Peer:
    """A client process on a host of its own."""

    def __init__(self, name: str, network: Network, history: History, brokers: dict[str, BrokerHost]) -> None:
        self.name, self.network, self.history, self.brokers = name, network, history, brokers
        self.chance = random.Random(network.chance.random())
        self._channels: dict[str, Channel] = {}
        self._sends = 0
        self.tasks: list[asyncio.Future[Any]] = []
        self.names = Channel(network.connector(name)(*NAME_SERVER), self.chance)

    def channel(self, broker: str) -> Channel:
        if broker not in self._channels:
            connect = self.network.connector(self.name)(*self.brokers[broker].address)
            self._channels[broker] = Channel(connect, self.chance, lambda request, reply: self.heard(broker, request))
        return self._channels[broker]

    def heard(self, broker: str, command: Command) -> None:
        """A request came from a broker."""

    def link(self, broker: str) -> Link | None:
        """The open connection to a broker."""
        link = self.network.newest.get((self.name, broker))
        return link if link is not None and link.is_open else None

    async def call(self, broker: str, code: int, body: bytes = b"", timeout: float = 3.0, **values: Any) -> Command:
        deadline = self.network.now() + timeout
        return await self.channel(broker).call(code, values, deadline, body)

    async def route(self, topic: str) -> dict[str, Any] | None:
        """The route of a topic; None if there is none, or the name server does not answer."""
        try:
            answer = await self.names.call(105, {"topic": topic}, self.network.now() + 3.0)
        except LOST:
            return None
        if answer.code != Code.SUCCESS:
            return None
        found: dict[str, Any] = json.loads(answer.body)
        return found

    def start(self, work: Any) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    def end(self) -> None:
        """The process is gone. The network decides what its peers hear."""
        for task in self.tasks:
            task.cancel()
        for channel in [*self._channels.values(), self.names]:
            channel.close()


class Producer(Peer):
    """Sends to some topics, alone or several messages at once; each message until it is acknowledged, or in vain."""

    def __init__(self, *where: Any, topics: list[str], pause: float) -> None:
        super().__init__(*where)
        self._topics, self._pause, self._number = topics, pause, 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.chance.expovariate(1 / self._pause))
            topic = self.chance.choice(self._topics)
            route = await self.route(topic) or await self.route("TBW102")
            if route is None:
                continue
            queues = [
                (one["brokerName"], topic, n)
                for one in route["queueDatas"]
                for n in range(min(2, one["writeQueueNums"]))
            ]
            if not queues:
                continue
            queue = self.chance.choice(queues)
            count = self.chance.choice([1, 1, 2, 6])
            await asyncio.gather(*(self._send(queue, queues) for _ in range(count)))

    async def _send(self, queue: Queue, others: list[Queue]) -> None:
        self._number += 1
        body = b"%s.%d" % (self.name.encode(), self._number)
        tag = self.chance.choice(["red", "blue"])
        self.history.sent[body], self.history.tags[body] = self.network.now(), tag
        padding = self.chance.choice([b"", b"", b"x" * 200, b"x" * 2000])
        level = self.chance.choice([0] * 12 + [1, 2, 3])
        if level:
            self.history.levels[body] = level
        for attempt in range(1, 5):
            broker, topic, queue_id = queue
            link, began = self.link(broker), self.network.now()
            self._sends += 1
            wire = link.number if link is not None else -self._sends, self._sends
            values = {
                "producerGroup": "shop", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 2,
                "queueId": queue_id, "sysFlag": 0, "bornTimestamp": wall_clock(), "flag": 0,
                "properties": self.chance.choice(["", f"UNIQ_KEY\1{body.decode()}\2"]) + f"TAGS\1{tag}\2",
            }  # fmt: skip
            if level:
                values["properties"] += f"DELAY\1{level}\2"
            code, text = 310, body + b"|" + padding
            if not level and self.chance.random() < 0.1:
                own = values["properties"].encode()
                values |= {"batch": True, "properties": ""}
                code = 320
                head = [0, 0, 0, len(text)]
                text = b"".join(n.to_bytes(4, "big") for n in head) + text + len(own).to_bytes(2, "big") + own
                text = (len(text) + 4).to_bytes(4, "big") + text
            try:
                answer = await self.call(broker, code, text, **values)
            except LOST as error:
                self._check_silence(error, link, began, 3.0, "send")
            else:
                if answer.code == Code.SUCCESS and level:
                    now = self.network.now()
                    self.history.delayed.append(Delayed(body, tag, broker, topic, level, began, now, attempt))
                    return
                if answer.code == Code.SUCCESS:
                    place = broker, topic, int(answer.fields["queueId"])
                    offset = int(answer.fields["queueOffset"])
                    self.history.acknowledged.append(Send(body, tag, place, offset, began, self.network.now(), wire))
                    return
                self.history.counts[f"send {answer.code}"] += 1
            await asyncio.sleep(0.05)
            queue = self.chance.choice(others)

    def _check_silence(self, error: Exception, link: Link | None, began: float, timeout: float, what: str) -> None:
        slack = self.history.slack
        is_silent = isinstance(error, NoAnswerError) and link is not None and timeout > slack
        if is_silent and link is not None and not link.was_in_trouble(began - slack, self.network.now()):
            self.history.fault(f"{self.name}: no answer to a {what} from {link.server}, begun at {began:.2f}")


class Consumer(Peer):
    """One client of a group. tag: "" for all messages; orderly: it locks its queues.

    fails  now and then it sends a message back
    """

    def __init__(
        self, *where: Any, group: str, topics: list[str], tag: str = "", orderly: bool = False, fails: bool = False
    ) -> None:
        super().__init__(*where)
        self.group, self._topics, self._tag, self._orderly = group, topics, tag, orderly
        self._fails = fails
        if fails:
            self._topics = [*topics, f"%RETRY%{group}"]
        self._subscription = tag or "*"
        self._is_v2 = self.chance.random() < 0.5
        self._route: list[Queue] = []
        self._following: dict[Queue, asyncio.Future[Any]] = {}
        self._next: dict[Queue, int] = {}
        self._locked: dict[Queue, float] = {}
        self._changed = asyncio.Event()
        self._joined: dict[str, Link] = {}  # the connection on which a broker has answered a heartbeat
        self._joined_at: dict[str, float] = {}
        self._tried: set[int] = set()  # connections with heartbeats whose answers were lost

    def heard(self, broker: str, command: Command) -> None:
        if command.code == 40:
            self.history.notices[self.name, broker, command.fields["consumerGroup"]].append(self.network.now())
            self._changed.set()

    def run(self) -> None:
        for work in (self._find_routes, self._beat_all, self._balance, self._commit_all, self._lock_all):
            self.start(work())

    def end(self) -> None:
        self.tasks += self._following.values()
        super().end()

    async def leave(self) -> None:
        """End in order: commit, unlock and unregister."""
        for task in [*self.tasks, *self._following.values()]:
            task.cancel()
        for queue in list(self._following):
            await self._commit(queue)
            await self._unlock(queue)
        for broker in self._joined:
            try:
                await self.call(broker, 35, clientID=self.name, consumerGroup=self.group)
            except LOST:
                pass

    def is_in(self, broker: str) -> Link | None:
        """The connection on which this client is registered at a broker."""
        link = self._joined.get(broker)
        return link if link is not None and link.is_open else None

    def registered_since(self, broker: str) -> float:
        return self._joined_at[broker]

    # what RocketMQ's clients do from time to time

    async def _find_routes(self) -> None:
        while True:
            found = []
            for topic in self._topics:
                route = await self.route(topic)
                if route is None:  # a client keeps the last route that it knows
                    found += [queue for queue in self._route if queue[1] == topic]
                else:
                    found += [
                        (one["brokerName"], topic, n)
                        for one in route["queueDatas"]
                        for n in range(one["readQueueNums"])
                    ]
            known = {queue[0] for queue in self._route}
            self._route = found
            for broker in sorted({queue[0] for queue in found} - known):
                await self._beat(broker)
            self._changed.set()
            await asyncio.sleep(ROUTE_SECONDS)

    async def _beat_all(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            await asyncio.gather(*(self._beat(broker) for broker in sorted({queue[0] for queue in self._route})))

    async def _beat(self, broker: str, full: bool = False) -> None:
        tags = [self._tag] if self._tag else []
        subscriptions = [
            {"topic": topic, "subString": self._subscription, "tagsSet": tags, "codeSet": list(map(java_hash, tags)),
             "subVersion": 1, "expressionType": "TAG"} for topic in self._topics
        ]  # fmt: skip
        data = {
            "groupName": self.group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": subscriptions,
        }  # fmt: skip
        light = self._is_v2 and self._joined.get(broker) is not None and not full
        beat: dict[str, Any] = {"clientID": self.name, "consumerDataSet": [data], "producerDataSet": []}
        if self._is_v2:
            beat |= {"heartbeatFingerprint": FINGERPRINT, "withoutSub": light}
            data["subscriptionDataSet"] = [] if light else subscriptions
        began = self.network.now()
        try:
            answer = await self.call(broker, 34, json.dumps(beat).encode())
        except LOST:
            if (tried := self.link(broker)) is not None:
                self._tried.add(tried.number)
            return
        link, now = self.link(broker), self.network.now()
        if answer.code != Code.SUCCESS:
            self.history.fault(f"{self.name}: heartbeat answered with {answer.code}, {answer.remark}")
        if link is not None and self._joined.get(broker) is not link:
            self._joined[broker], self._joined_at[broker] = link, now
            self.history.counts["joins"] += 1
            if link.number not in self._tried:
                self.told_others(broker, began, now, "a client joined")
        if light and answer.fields["IS_SUB_CHANGE"] == "true":
            await self._beat(broker, full=True)

    def told_others(self, broker: str, since: float, until: float, why: str) -> None:
        """The other clients of the group must hear of a change at a broker."""
        for other in self.mates:
            link = other.is_in(broker)
            if other is not self and link is not None and other.registered_since(broker) < since:
                self.history.expect(
                    Notice(other.name, broker, self.group, since, until + self.history.slack, link, why)
                )

    mates: list[Consumer]  # all clients of the group

    async def _commit_all(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_SECONDS)
            for queue in list(self._following):
                await self._commit(queue)

    async def _commit(self, queue: Queue) -> None:
        broker, topic, queue_id = queue
        if queue in self._next:
            values = {
                "consumerGroup": self.group, "topic": topic, "queueId": queue_id, "commitOffset": self._next[queue],
            }  # fmt: skip
            try:
                await self.channel(broker).send(15, values, self.network.now() + 1.0)
            except NotSentError:
                pass

    # queues

    async def _balance(self) -> None:
        while True:
            try:
                await asyncio.wait_for(self._changed.wait(), BALANCE_SECONDS)
            except asyncio.TimeoutError:
                pass
            self._changed.clear()
            for topic in self._topics:
                queues = sorted(queue for queue in self._route if queue[1] == topic)
                if queues:
                    await self._balance_topic(topic, queues)

    async def _balance_topic(self, topic: str, queues: list[Queue]) -> None:
        broker = self.chance.choice(queues)[0]
        try:
            answer = await self.call(broker, 38, consumerGroup=self.group)
        except LOST:
            return
        if answer.code != Code.SUCCESS:
            return
        ids = sorted(set(json.loads(answer.body)["consumerIdList"]))
        if self.name not in ids:
            return
        mine = {queue for n, queue in enumerate(queues) if n * len(ids) // len(queues) == ids.index(self.name)}
        for queue in [queue for queue in self._following if queue[1] == topic and queue not in mine]:
            self._following.pop(queue).cancel()
            await self._commit(queue)
            self._next.pop(queue, None)
            await self._unlock(queue)
        for queue in sorted(mine - self._following.keys()):
            if not self._orderly or await self._lock(queue):
                self._following[queue] = asyncio.ensure_future(self._follow(queue))

    async def _follow(self, queue: Queue) -> None:
        """Pull the messages of a queue until this client loses it."""
        broker, topic, queue_id = queue
        while queue not in self._next:
            try:
                answer = await self.call(broker, 14, consumerGroup=self.group, topic=topic, queueId=queue_id)
            except LOST:
                await asyncio.sleep(0.2)
                continue
            if answer.code == Code.SUCCESS:
                offset = int(answer.fields["offset"])
                self.history.committed(self.group, queue, offset, f"{self.name} asked")
                self._next[queue] = offset
            elif answer.code == Code.QUERY_NOT_FOUND:
                self._next[queue] = 0
            else:
                self.history.fault(f"{self.name}: query of an offset answered with {answer.code}, {answer.remark}")
                await asyncio.sleep(1.0)
        while True:
            if self._orderly and self.network.now() - self._locked.get(queue, -100.0) > LOCK_LIVE_SECONDS:
                await asyncio.sleep(0.5)
                continue
            if await self._pull(queue):
                await asyncio.sleep(0.5)

    async def _pull(self, queue: Queue) -> bool:
        """Pull once; return whether to wait before the next pull."""
        broker, topic, queue_id = queue
        offset, link, began = self._next[queue], self.link(broker), self.network.now()
        values = {
            "consumerGroup": self.group, "topic": topic, "queueId": queue_id, "queueOffset": offset,
            "maxMsgNums": self.chance.choice([1, 8, 32]), "commitOffset": offset, "subVersion": 1,
            "suspendTimeoutMillis": int(HOLD_SECONDS * 1000), "subscription": self._subscription,
            "sysFlag": 2 | self.chance.choice([0, 4]) | (1 if offset > 0 else 0),
        }  # fmt: skip
        if not values["sysFlag"] & 4:
            del values["subscription"]
        try:
            answer = await self.call(broker, 11, timeout=HOLD_SECONDS + 15.0, **values)
        except LOST as error:
            if (
                isinstance(error, NoAnswerError)
                and link is not None
                and not link.was_in_trouble(began - 1, self.network.now())
            ):
                self.history.fault(f"{self.name}: a pull of {queue} at {began:.2f} was never answered")
            return True
        now = self.network.now()
        self.history.counts["pulls"] += 1
        if link is not None and not link.was_in_trouble(began - self.history.slack, now):
            self.history.pulled(Pull(queue, offset, self._tag, began, now), HOLD_SECONDS)
        if answer.code == Code.SUCCESS:
            for message in messages_of(answer.body):
                body = bytes(message.body).partition(b"|")[0]
                if self._tag in ("", message.tags):
                    times, stored = message.reconsume_times, (message.store_timestamp - EPOCH) / 1000
                    self.history.delivered(self.group, queue, message.queue_offset, body, now)
                    self.history.stored(self.group, queue, message.queue_offset, body, times, stored)
                    if self._fails and times < 2 and self.chance.random() < 0.05:
                        await self._send_back(broker, message, body)
        elif answer.code not in (Code.PULL_NOT_FOUND, Code.PULL_RETRY_IMMEDIATELY):
            self.history.counts[f"pull {answer.code}"] += 1
            if answer.code not in (Code.SUBSCRIPTION_NOT_EXIST, Code.GO_AWAY, Code.SYSTEM_BUSY):
                self.history.fault(f"{self.name}: a pull of {queue} answered with {answer.code}, {answer.remark}")
            return True
        self._next[queue] = int(answer.fields["nextBeginOffset"])
        return False

    async def _send_back(self, broker: str, message: Any, body: bytes) -> None:
        level, times, began = self.chance.choice([0, 1, 2, -1]), message.reconsume_times + 1, self.network.now()
        real = min(level or 2 + times, len(DELAYS))
        if level >= 0:
            key = self.group, body, broker, times
            due = began + DELAYS[real - 1]
            self.history.due_again[key] = min(due, self.history.due_again.get(key, due))
        try:
            answer = await self.call(broker, 36, offset=message.phy_offset, group=self.group, delayLevel=level)
        except LOST:
            return
        self.history.counts["backs"] += 1
        if answer.code == Code.SUCCESS:
            self.history.backs.append(Back(self.group, body, broker, times, level, self.network.now()))
        elif (answer.remark or "").startswith("look"):
            self.history.fault(f"{self.name}: a send-back of {body!r} to {broker} was refused: {answer.remark}")

    # locks

    def _lock_body(self, queue: Queue) -> bytes:
        broker, topic, queue_id = queue
        found = [{"topic": topic, "brokerName": broker, "queueId": queue_id}]
        return json.dumps({"consumerGroup": self.group, "clientId": self.name, "mqSet": found}).encode()

    async def _lock_all(self) -> None:
        while self._orderly:
            await asyncio.sleep(LOCK_AGAIN_SECONDS)
            for queue in list(self._following):
                await self._lock(queue)

    async def _lock(self, queue: Queue) -> bool:
        began, life = self.network.now(), self.brokers[queue[0]].life
        try:
            answer = await self.call(queue[0], 41, self._lock_body(queue))
        except LOST:
            return False
        if answer.code != Code.SUCCESS or not json.loads(answer.body)["lockOKMQSet"]:
            self.history.counts["locks refused"] += 1
            return False
        now = self.network.now()
        if self.brokers[queue[0]].life == life:
            self.history.locked(self.group, queue, Lock(self.name, began, now, life))
        self._locked[queue] = began
        return True

    async def _unlock(self, queue: Queue) -> None:
        if self._orderly and self._locked.pop(queue, None) is not None:
            self.history.unlocks[self.group, queue, self.name].append(self.network.now())
            try:
                await self.call(queue[0], 42, self._lock_body(queue))
            except LOST:
                pass
