"""Processes of a simulated cluster that use rocketc.client: producers, and members of groups."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from simulation.client_history import Call, ClientHistory
from simulation.history import Queue
from simulation.hosts import NAME_SERVER, wall_clock
from simulation.network import Network
from simulation.processes import Process

from rocketc.client import AsyncConsumer, AsyncProducer, RetryLater
from rocketc.client.access import Access
from rocketc.client.concurrent_service import ConcurrentService
from rocketc.client.orderly_service import OrderlyService
from rocketc.client.push_core import PushCore
from rocketc.client.settings import AsyncConsumerOptions, ConsumerSettings
from rocketc.client.subscriptions import subscribe
from rocketc.errors import RocketcError

SEND_MS = 3_000
CLOSE_SECONDS = 40.0  # within which close() ends, whatever the network does


class Member:
    """A process with one client. It ends by leave(), die() or the end of the run."""

    def __init__(self, name: str, network: Network, history: ClientHistory) -> None:
        self.name, self.network, self.history = name, network, history
        self.chance = random.Random(network.chance.random())
        self.process = Process(name)
        self.is_dead = self.is_ending = False
        connect = network.connector(name)
        self.access = Access(
            ("%s:%d" % NAME_SERVER,),
            connector=lambda host, port: lambda protocol: self._connect(connect(host, port), protocol),
            clock=lambda: wall_clock() / 1000,
            chance=random.Random(self.chance.random()),
        )
        self.names: dict[str, Any] = {"client_ip": "10.0.2.1", "instance_name": name}
        self._main: asyncio.Task[None] | None = None

    async def _connect(self, connect: Any, protocol: Any) -> None:
        await connect(lambda: self._connected(protocol))

    def _connected(self, protocol: Any) -> Any:
        if self.is_dead:  # also if it died while it connected
            raise ConnectionRefusedError(111, "this host is cut off")
        return protocol()

    def start(self) -> None:
        self._main = self.process.run(self._run())

    async def _run(self) -> None:
        try:
            await self.work()
        except Exception as error:
            self.history.fault(f"{self.name}: the program failed: {error!r}")

    async def work(self) -> None:
        """The program of this process, until `is_ending`."""
        raise NotImplementedError

    def hang(self) -> None:
        self.history.troubles[self.name].append(self.network.now())
        self.process.hang()

    def go_on(self) -> None:
        self.history.troubles[self.name].append(self.network.now())
        self.process.go_on()

    def die(self, silently: bool) -> None:
        """The process is gone. silently: its machine, too, so that its peers hear nothing."""
        self.is_dead = True
        self.process.hang()
        if silently:
            self.network.silence(self.name)
        else:
            self.network.kill(self.name)

    async def leave(self) -> None:
        """End in order, and leave nothing behind."""
        self.is_ending = True
        assert self._main is not None
        began = self.network.now()
        if self.is_dead:
            self.process.go_on()  # as a process whose network is gone; what it does is not noted
        await asyncio.wait({self._main}, timeout=4 * CLOSE_SECONDS)
        took = self.network.now() - began
        if took > 2 * CLOSE_SECONDS:
            self.history.fault(f"{self.name}: the end took {took:.1f} s")
        await asyncio.sleep(0.5)
        for what in self.process.left():
            self.history.fault(f"{self.name} left {what}")

    async def until(self, seconds: float) -> None:
        """Sleep, but only until this process shall end."""
        end = self.network.now() + seconds
        while not self.is_ending and (left := end - self.network.now()) > 0:
            await asyncio.sleep(min(left, 0.5))


class Producer(Member):
    """Sends messages of some shards one after the other, others at once, and batches; each until it is acknowledged."""

    def __init__(self, *where: Any, topics: list[str], pause: float) -> None:
        super().__init__(*where)
        self._topics, self._pause, self._number = topics, pause, 0

    async def work(self) -> None:
        latency = self.chance.random() < 0.5
        producer = AsyncProducer._by(
            self.access, "shop", send_msg_timeout=SEND_MS, default_topic_queue_nums=self.chance.randint(1, 4),
            send_latency_fault_enable=latency, max_in_flight=self.chance.choice([2, 10_000]), **self.names,
        )  # fmt: skip
        async with producer:
            lines = [self._line(producer, f"{self.name}.s{n}") for n in range(self.chance.randint(0, 3))]
            await asyncio.gather(*lines, self._others(producer))

    def _body(self, line: str = "") -> bytes:
        self._number += 1
        body = f"{line or self.name}.{self._number}".encode()
        self.history.sent[body] = self.network.now()
        return body

    async def _line(self, producer: AsyncProducer, shard: str) -> None:
        """Send messages of one shard, each after the one before was acknowledged."""
        topic = self.chance.choice(self._topics)
        while not self.is_ending:
            body = self._body(shard)
            while not self.is_ending and not await self._send(producer, topic, body, shard):
                await self.until(0.1)
            await self.until(self.chance.expovariate(1 / self._pause))

    async def _others(self, producer: AsyncProducer) -> None:
        while not self.is_ending:
            topic, count = self.chance.choice(self._topics), self.chance.choice([1, 1, 1, 1, 4, 12])
            if count > 1 and self.chance.random() < 0.5:
                await self._send_many(producer, topic, [self._body() for _ in range(count)])
            else:
                await asyncio.gather(*(self._send(producer, topic, self._body(), "") for _ in range(count)))
            await self.until(self.chance.expovariate(1 / self._pause))

    async def _send(self, producer: AsyncProducer, topic: str, body: bytes, shard: str) -> bool:
        began = self.network.now()
        delay = self.chance.choice([0] * 20 + [1, 2]) if not shard else 0
        padding = self.chance.choice([b"", b"x" * 100, b"x" * 6000])
        try:
            sent = await producer.send(topic, body + b"|" + padding, shard=shard or None, delay_level=delay)
        except RocketcError as error:
            self._failed(error, began)
            return False
        self._check_time(began)
        if not delay:
            self._stored(shard, body, sent, began)
        return True

    async def _send_many(self, producer: AsyncProducer, topic: str, bodies: list[bytes]) -> None:
        began = self.network.now()
        try:
            sent = await producer.send_many(topic, [body + b"|" for body in bodies])
        except RocketcError as error:
            self._failed(error, began)
        else:
            for body, one in zip(bodies, sent, strict=True):
                self._stored("", body, one, began)

    def _stored(self, line: str, body: bytes, sent: Any, began: float) -> None:
        if not self.is_dead:
            queue = sent.queue.broker_name, sent.queue.topic, sent.queue.queue_id
            self.history.stored_at(line, body, queue, sent.queue_offset, began, self.network.now())

    def _failed(self, error: Exception, began: float) -> None:
        self.history.counts[f"send {type(error).__name__}"] += 1
        self._check_time(began)

    def _check_time(self, began: float) -> None:
        now = self.network.now()
        hung = any(began <= at <= now for at in self.history.troubles[self.name])
        if now - began > SEND_MS / 1000 + 0.3 and not hung and not self.is_dead:
            self.history.fault(f"{self.name}: a send took {now - began:.2f} s")


def place_of(message: Any, group: str, brokers: dict[str, str]) -> Queue:
    """The queue of a message. brokers: names by address"""
    topic = f"%RETRY%{group}" if message.reconsume_times else message.topic
    return brokers[message.store_host], topic, message.queue_id


class Consumer(Member):
    """A member of a group with listeners.

    orderly  one message of a queue after the other
    fails    how often a listener fails
    slow     how many calls take very long
    """

    def __init__(
        self, *where: Any, group: str, topics: list[str], brokers: dict[str, str], strategy: str,
        orderly: bool = False, fails: float = 0.0, slow: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(*where)
        self.group, self._topics, self._brokers = group, topics, brokers
        self._orderly, self._fails, self._slow = orderly, fails, slow
        self._busy = 40 if orderly else 0  # calls that take long enough to meet a change of the members
        self._batch = self.chance.choice([1, 1, 4])
        self._settings = {
            "allocate_message_queue_strategy": strategy, "consume_from_where": "CONSUME_FROM_FIRST_OFFSET",
            "consume_message_batch_max_size": self._batch, "pull_batch_size": self.chance.choice([3, 32]),
            "pull_threshold_for_queue": self.chance.choice([5, 1000]), "consume_timeout": 1,
            "consume_thread_max": self.chance.choice([3, 20]), "suspend_current_queue_time_millis": 100,
            **self.names,
        }  # fmt: skip
        self.core: PushCore | None = None

    @property
    def owned(self) -> set[Queue]:
        """The queues that this member works on."""
        core = self.core
        if core is None:
            return set()
        return {
            (queue.broker_name, queue.topic, queue.queue_id)
            for queue, one in core._member.owned.items()
            if one.pulling is not None and not one.pulling.done()
        }

    async def work(self) -> None:
        while not self.is_ending:
            kind = OrderlyService if self._orderly else ConcurrentService
            core = PushCore(self.access, self.group, ConsumerSettings(**self._settings), kind)
            try:
                for topic in self._topics:
                    await core.subscribe(subscribe(topic), self._listen)
                await core.start()
                self.core = core
                await self.until(1e9)
            except RocketcError as error:  # the name server does not answer
                self.history.counts[f"start {type(error).__name__}"] += 1
                await self.until(1.0)
            finally:
                await core.close()

    async def _listen(self, given: Any) -> None:
        messages = given if isinstance(given, list) else [given]
        began, failed = self.network.now(), self.chance.random() < self._fails
        places = [place_of(message, self.group, self._brokers) for message in messages]
        bodies = [bytes(message.body).partition(b"|")[0] for message in messages]
        for message, place, body in zip(messages, places, bodies, strict=True):
            if not self.is_dead:
                self.history.begins(self.group, place, message.queue_offset, body, began)
        long = self._slow > 0 and self.chance.random() < 0.02
        self._slow -= long
        busy = self._busy > 0 and self.chance.random() < 0.3
        self._busy -= busy
        await asyncio.sleep(100.0 if long else 3.0 if busy else self.chance.choice([0, 0, 0.001, 0.02, 0.3]))
        if self.is_dead:
            return
        if self._orderly:
            call = Call(self.name, messages[0].queue_offset, began, self.network.now())
            self.history.calls[self.group, places[0]].append(call)
        if failed and self._orderly:
            raise ValueError("the listener fails")
        failed = failed and messages[0].reconsume_times < 3
        for message, place, body in zip(messages, places, bodies, strict=True):
            if self._orderly:
                self.history.in_order(self.group, place, message.queue_offset)
            self.history.ends(self.group, place, message.queue_offset, body, failed=failed)
        if failed:
            self.history.counts["failed"] += 1
            raise self.chance.choice([ValueError("the listener fails"), RetryLater(1)])


class Reader(Consumer):
    """A member of a group that reads messages by an iterator, and commits them."""

    async def work(self) -> None:
        known = AsyncConsumerOptions.__annotations__
        self._settings = {name: value for name, value in self._settings.items() if name in known}
        while not self.is_ending:
            consumer = AsyncConsumer(self.group, self.access.addresses[0], topics=self._topics, **self._settings)
            consumer._access = self.access
            try:
                async with consumer:
                    self.core = consumer._core
                    while not self.is_ending:
                        await self._read(consumer)
            except RocketcError as error:
                self.history.counts[f"start {type(error).__name__}"] += 1
                await self.until(1.0)

    async def _read(self, consumer: AsyncConsumer) -> None:
        began = self.network.now()
        messages = await consumer.getmany(self.chance.choice([1, 50]), timeout=500)
        places = [place_of(message, self.group, self._brokers) for message in messages]
        bodies = [bytes(message.body).partition(b"|")[0] for message in messages]
        for message, place, body in zip(messages, places, bodies, strict=True):
            if not self.is_dead:
                self.history.begins(self.group, place, message.queue_offset, body, self.network.now())
        if self.chance.random() < 0.1:
            await asyncio.sleep(1.0)
        for message, place, body in zip(messages, places, bodies, strict=True):
            if not self.is_dead:
                self.history.ends(self.group, place, message.queue_offset, body)
        if messages:
            await consumer.commit()
        elif not self.is_dead and not self.process.hangs and self.network.now() - began < 0.4:
            self.history.fault(f"{self.name}: getmany() returned nothing after {self.network.now() - began:.2f} s")
