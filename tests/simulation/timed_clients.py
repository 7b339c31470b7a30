"""Clients that send timed messages to a simulated broker, and take some of them back."""

from __future__ import annotations

import asyncio
from typing import Any

from simulation.clients import LOST, Peer
from simulation.hosts import wall_clock
from simulation.timed_history import HOUR, MINUTE, SECOND, TOPIC, TimedHistory

from rocketc.broker import names
from rocketc.remoting.codes import Code

BROKER = "broker-a"


class TimedClient(Peer):
    """Sends timed messages, each once.

    most  ms: the longest delay that the broker takes
    """

    is_done = False

    def __init__(self, *where: Any, timed: TimedHistory, most: int, pause: float) -> None:
        super().__init__(*where)
        self._timed, self._most, self._pause, self._number = timed, most, pause, 0

    async def run(self) -> None:
        while not self.is_done:
            await asyncio.sleep(self.chance.expovariate(1 / self._pause))
            for _ in range(self.chance.choice([1, 1, 1, 8])):
                self._number += 1
                self.start(self._one(f"{self.name}.{self._number}"))

    def _delay(self) -> int:
        """Choose a delay in ms."""
        chance = self.chance
        most = chance.choice([5 * SECOND, 5 * SECOND, 30 * SECOND, 5 * MINUTE, HOUR, self._most])
        delay = chance.choice([chance.randint(SECOND, most), most])
        return chance.choice([delay, delay // SECOND * SECOND])

    def _asked(self) -> tuple[str, int | None, int, bool]:
        """Choose what a message asks for: a property, a delay, the due time, and whether it is too far away."""
        chance, clock = self.chance, self._timed.clock()
        is_too_far = chance.random() < 0.05
        kind = chance.choice([names.TIMER_DELIVER_MS, names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS])
        if is_too_far:
            delay = self._most + chance.choice([1, 60, 86_400]) * SECOND
        else:
            delay = self._delay()
        if kind == names.TIMER_DELAY_SEC:
            delay = delay // SECOND * SECOND
            return f"{kind}\1{delay // SECOND}\2", delay, clock + delay, is_too_far
        if kind == names.TIMER_DELAY_MS:
            return f"{kind}\1{delay}\2", delay, clock + delay, is_too_far
        if is_too_far:
            delay += 100 * HOUR  # the clock may be set forward meanwhile
        else:
            delay = min(delay, self._most - 2 * HOUR) if delay > HOUR else delay
        due = clock + delay
        due = chance.choice([due, due // SECOND * SECOND])
        return f"{kind}\1{due}\2", None, due, is_too_far

    async def _one(self, key: str) -> None:
        body, queue = key.encode(), self.chance.randrange(2)
        asked, delay, due, is_too_far = self._asked()
        self._timed.begin(body, delay, due)
        values = {
            "producerGroup": "shop", "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": 2,
            "queueId": queue, "sysFlag": 0, "bornTimestamp": wall_clock(), "flag": 0,
            "properties": f"UNIQ_KEY\1{key}\2{asked}",
        }  # fmt: skip
        try:
            answer = await self.call(BROKER, 310, body + b"|" + b"x" * self.chance.choice([0, 200]), **values)
        except LOST:
            return
        counts = self.history.counts
        counts[f"send {answer.code}"] += 1
        if is_too_far:
            if answer.code == Code.SUCCESS:
                self.history.fault(f"{key} is too far away ({asked!r}), and taken")
            self._timed.refused(body)
        elif answer.code == Code.SUCCESS:
            self._timed.acknowledged(body)
            if (handle := answer.fields.get("recallHandle")) and self.chance.random() < 0.3:
                await self._recall(body, handle)
        elif answer.code == Code.MESSAGE_ILLEGAL and not self._jumped_since(body):
            self.history.fault(f"{key} is refused ({asked!r}): {answer.remark}")
        elif answer.code == Code.MESSAGE_ILLEGAL:
            self._timed.refused(body)

    def _jumped_since(self, body: bytes) -> bool:
        return self._timed.has_jumped_since(self._timed.sent[body].began)

    async def _recall(self, body: bytes, handle: str) -> None:
        """Take a message back at any moment, often near to its time."""
        left = (self._timed.sent[body].due - self._timed.clock()) / 1000
        near = left - self.chance.choice([0.0, 0.1, 0.5, 1.0, 1.6, 2.0, 3.0])
        await asyncio.sleep(max(min(self.chance.choice([near, self.chance.uniform(0.0, 10.0)]), 20.0), 0.0))
        self._timed.asks_back(body)
        try:
            answer = await self.call(BROKER, 370, producerGroup="shop", topic=TOPIC, recallHandle=handle)
        except LOST:
            return
        self.history.counts[f"recall {answer.code}"] += 1
        if answer.code == Code.SUCCESS:
            self._timed.recalled(body, self.brokers[BROKER].latest)  # type: ignore[attr-defined]
        elif answer.code == Code.ILLEGAL_OPERATION:
            self._timed.not_recalled(body)
