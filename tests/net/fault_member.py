"""A client in a process of its own, which may be killed: a producer, a flood of sends, or a member of a group.

It writes a line of JSON to a pipe for each thing that it does: [seconds of the monotonic clock, what, ...]. SIGTERM
ends it in order.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import random
import signal
import time
from typing import Any, NamedTuple

from net.fault_mutants import break_client

from rocketc.client import AsyncProducer, RetryLater
from rocketc.client.access import Access
from rocketc.client.concurrent_service import ConcurrentService
from rocketc.client.connections import Connector, tls_connector
from rocketc.client.orderly_service import OrderlyService
from rocketc.client.push_core import PushCore
from rocketc.client.security import Tls, tls_context
from rocketc.client.settings import ConsumerSettings
from rocketc.client.subscriptions import subscribe
from rocketc.errors import RocketcError
from rocketc.remoting.signing import Credentials, Signer

SEND_MS = 3000
SENDERS = 4  # of a producer: each waits for the answer before it sends again
FLOOD = 500  # sends of a flood at once


class Setup(NamedTuple):
    """What a member gets, in plain types.

    group    of a consumer
    ordered  it consumes in order
    ports    the port of the proxy for each port of a server
    brokers  names by address
    ca       file of the authority, for TLS; None: plain connections
    account  access key and secret; None: requests are not signed
    """

    role: str
    name: str
    seed: int
    name_server: str
    ports: dict[int, int]
    brokers: dict[str, str]
    ca: str | None = None
    account: tuple[str, str] | None = None
    group: str = ""
    ordered: bool = False


class Member:
    """One client of a process."""

    def __init__(self, setup: Setup, pipe: int) -> None:
        self._setup, self._pipe = setup, pipe
        self._chance = random.Random(setup.seed)
        self._ending = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._ending.set)
        hook = None if setup.account is None else Signer(Credentials(*setup.account))
        self._access = Access((setup.name_server,), hook, connector=self._connector())
        self._names: dict[str, Any] = {"instance_name": setup.name}

    def _connector(self) -> Connector:
        ports, connect = self._setup.ports, _tcp
        if self._setup.ca is not None:
            context = tls_context(Tls(ca=self._setup.ca))
            assert context is not None
            connect = tls_connector(context)
        return lambda host, port: connect(host, ports.get(port, port))

    def _tell(self, what: str, *more: object) -> None:
        os.write(self._pipe, json.dumps([time.monotonic(), what, *more]).encode() + b"\n")

    async def run(self) -> None:
        work = {"producer": self._produce, "flood": self._flood, "consumer": self._consume}[self._setup.role]
        self._tell("up")  # from here on, SIGTERM ends it in order
        await work()
        self._tell("ended")

    async def _produce(self) -> None:
        async with AsyncProducer._by(self._access, "shop", send_msg_timeout=SEND_MS, **self._names) as producer:
            await asyncio.gather(*(self._send(producer, n) for n in range(SENDERS)))

    async def _send(self, producer: AsyncProducer, number: int) -> None:
        count = 0
        while not self._ending.is_set():
            count += 1
            body = f"{self._setup.name}.{number}.{count}"
            self._tell("sent", body)
            try:
                sent = await producer.send("orders", body.encode())
            except RocketcError as error:
                self._tell("failed", body, type(error).__name__)
                await asyncio.sleep(0.05)
            else:
                queue = sent.queue
                self._tell("stored", body, [queue.broker_name, queue.topic, queue.queue_id], sent.queue_offset)
            await asyncio.sleep(self._chance.choice([0, 0.005, 0.02]))

    async def _flood(self) -> None:
        """Send as much as one process can; what fails is only counted."""
        async with AsyncProducer._by(self._access, "flood", send_msg_timeout=SEND_MS, **self._names) as producer:
            while not self._ending.is_set():
                sends = (producer.send("flood", b"x" * 100) for _ in range(FLOOD))
                done = await asyncio.gather(*sends, return_exceptions=True)
                failed = [one for one in done if isinstance(one, BaseException)]
                self._tell("flooded", len(done), len(failed))
                for error in failed:
                    if not isinstance(error, RocketcError):
                        raise error
                if len(failed) == FLOOD:
                    await asyncio.sleep(0.05)

    async def _consume(self) -> None:
        setup = self._setup
        settings: dict[str, Any] = {"suspend_current_queue_time_millis": 100, **self._names}
        settings |= {"consume_from_where": "CONSUME_FROM_FIRST_OFFSET", "persist_consumer_offset_interval": 1000}
        kind = OrderlyService if setup.ordered else ConcurrentService
        while not self._ending.is_set():
            core = PushCore(self._access, setup.group, ConsumerSettings(**settings), kind)
            try:
                await core.subscribe(subscribe("orders"), self._listen)
                await core.start()
                await self._ending.wait()
            except RocketcError:  # no server answers
                await asyncio.sleep(0.2)
            finally:
                await core.close()

    async def _listen(self, message: Any) -> None:
        setup, body = self._setup, message.body.decode()
        topic = f"%RETRY%{setup.group}" if message.reconsume_times else message.topic
        place = [setup.brokers[message.store_host], topic, message.queue_id], message.queue_offset, body
        failed = self._chance.random() < 0.05 and message.reconsume_times < 2
        self._tell("begins", setup.group, *place)
        await asyncio.sleep(self._chance.choice([0, 0, 0.001, 0.02]))
        self._tell("ends", setup.group, *place, failed)
        if failed:
            raise ValueError("the listener fails") if setup.ordered else RetryLater(1)


def _tcp(host: str, port: int) -> Any:
    return functools.partial(asyncio.get_running_loop().create_connection, host=host, port=port)


def main(setup: Setup, pipe: Any, mutant: str) -> None:
    """Run a member until SIGTERM. pipe: a Connection that gets the lines"""
    break_client(mutant)

    async def whole() -> None:
        await Member(setup, pipe.fileno()).run()

    asyncio.run(whole())
