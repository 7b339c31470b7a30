"""The timed messages of a store without a broker, on a clock that a test sets."""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
import shutil

import rocketc
from rocketc.broker import names
from rocketc.broker.config import BrokerConfig
from rocketc.broker.timed_puts import Refused, TimedPuts
from rocketc.broker.timers import TimerService

EPOCH = 1_700_000_000_000  # ms
SECOND, DAY = 1000, 86_400_000
SMALL = {
    "mapped_file_size_commit_log": 1 << 22,
    "mapped_file_size_consume_queue": 60_000,
    "max_hash_slot_num": 1000,
    "max_index_num": 4000,
}


class Timed:
    """A store and its TimerService; open() opens them, end() closes them, kill() forgets them without an end."""

    def __init__(self, root, **config):
        self.root, self.now = root, EPOCH + 1  # an exact time is due a step earlier
        self.config = BrokerConfig(**{"timer_precision_ms": 1000, "mapped_file_size_timer_log": 1 << 16, **config})
        self.store_settings = SMALL

    def clock(self):
        return self.now

    async def open(self):
        self.store = rocketc.open(self.root, background=False, clock=self.clock, **self.store_settings)
        self.service = TimerService(self.store, self.config, self.clock)
        self.rules = TimedPuts(self.config, self.service.count, random.Random(1))
        return self

    def put(self, body, topic="orders", queue_id=0, key=None, **properties):
        """Put a message as the broker does; return its due time, or the Refused."""
        properties = {"UNIQ_KEY": key or body, **{name: str(value) for name, value in properties.items()}}
        to = self.rules.change(properties, topic, queue_id, self.now)
        if isinstance(to, Refused):
            return to
        self.store.put(to[0], body.encode(), queue_id=to[1], properties=properties)
        return int(properties.get(names.TIMER_OUT_MS, 0))

    async def run(self):
        """Let the service do all that it can do now."""
        while True:
            while self.store.step():
                pass
            if await self.service._step() != 0.0:
                break
        while self.store.step():
            pass

    async def at(self, now):
        self.now = now
        await self.run()

    def got(self, topic="orders", queue_id=0):
        while self.store.step():
            pass
        return self.store.get(topic, queue_id, 0, 1_000_000, decompress=False, max_bytes=1 << 30).messages

    def bodies(self, topic="orders", queue_id=0):
        return [one.body.decode() for one in self.got(topic, queue_id)]

    def end(self):
        self.service.persist(last=True)
        self.service.close()
        self.store.close()


def timed(test):
    """Run a coroutine function test(t, ...) with an open Timed, and close it."""

    @functools.wraps(test)
    def whole(tmp_path, **more):
        async def run():
            t = Timed(tmp_path / "store")
            await t.open()
            try:
                await test(t, **more)
            finally:
                t.end()

        asyncio.run(run())

    del whole.__wrapped__
    whole.__signature__ = inspect.signature(test).replace(
        parameters=[
            inspect.Parameter("tmp_path", inspect.Parameter.POSITIONAL_OR_KEYWORD),
            *list(inspect.signature(test).parameters.values())[1:],
        ]
    )
    return whole


def copy_of(t, to):
    """What a killed broker leaves: the bytes of its files, without a last flush."""
    shutil.copytree(t.root, to)
    (to / "lock").unlink(missing_ok=True)
    return to
