"""The job of crash.faults on a broker with transactions: it sends half messages, ends them, and asks about the others.

The first letter of a body is what its producer decides: c commits, r rolls back, k keeps it undecided. If it is asked,
l commits and d rolls back.
"""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crash.faults import Story, assert_ours
from simulation import virtual

import rocketc
from rocketc.broker.config import BrokerConfig
from rocketc.broker.controller import BrokerController
from rocketc.remoting.channel import Channel

EPOCH = 1_700_000_000_000
HOST = ("127.0.0.1", 10911)
COMMIT, ROLLBACK = 8, 12
KINDS = b"crclkcl"
CHECKED_SECONDS = 2.5
SETTINGS = {
    "transaction_check_interval": 300,
    "transaction_time_out": 500,
    "transaction_check_max": 100_000,
    "transaction_op_batch_interval": 100,
}


@dataclass
class Decided:
    """halves: bodies of the half messages that were acknowledged"""

    halves: set[bytes] = field(default_factory=set)
    number: int = 0
    lives: int = 0

    def clock(self) -> int:
        """The time of this life, after those before."""
        return EPOCH + 1_000_000 * self.lives + int(asyncio.get_running_loop().time() * 1000)


class Producer:
    """A client of a broker, which answers checks."""

    def __init__(self, broker: BrokerController, story: Story) -> None:
        self._broker, self._story = broker, story
        self._chance = random.Random(1)
        self._channel = Channel(self._connect, self._chance, lambda request, reply: self._check(request))
        self._answers: set[asyncio.Task[Any]] = set()

    async def _connect(self, factory: Any) -> None:
        virtual.link(factory(), self._broker.server.connection(), self._chance, (0.0, 0.0))

    async def call(self, code: int, body: bytes = b"", **values: Any) -> Any:
        """Return the answer; None if it is an error, which says why."""
        answer = await self._channel.call(code, values, asyncio.get_running_loop().time() + 30, body)
        if answer.code == 0:
            return answer
        assert answer.remark, answer
        self._story.errors.append(RuntimeError(answer.remark))
        return None

    async def begin(self) -> None:
        beat = {"clientID": "c", "producerDataSet": [{"groupName": "shop"}], "consumerDataSet": []}
        await self.call(34, json.dumps(beat).encode())

    async def transaction(self, body: bytes, known: Decided) -> None:
        answer = await self.call(
            10, body, producerGroup="shop", topic="orders", defaultTopic="TBW102", defaultTopicQueueNums=1, queueId=0,
            sysFlag=4, bornTimestamp=known.clock(), flag=0,
            properties=f"UNIQ_KEY\1{body.decode()[:8]}\2TRAN_MSG\1true\2PGROUP\1shop\2",
        )  # fmt: skip
        if answer is None:
            return
        known.halves.add(body)
        if body[:1] in b"cr":
            place = int(answer.fields["msgId"][-16:], 16)
            await self._end(body, int(answer.fields["queueOffset"]), place, False)

    async def _end(self, body: bytes, offset: int, place: int, is_checked: bool) -> None:
        await self.call(
            37, producerGroup="shop", tranStateTableOffset=offset, commitLogOffset=place,
            commitOrRollback=ROLLBACK if body[:1] in b"rd" else COMMIT, fromTransactionCheck=is_checked,
        )  # fmt: skip

    def _check(self, request: Any) -> None:
        [half] = rocketc.decode(request.body, None)
        if half.body[:1] != b"k":
            place, offset = int(request.fields["commitLogOffset"]), int(request.fields["tranStateTableOffset"])
            answer = asyncio.ensure_future(self._end(half.body, offset, place, True))
            self._answers.add(answer)
            answer.add_done_callback(self._answers.discard)

    async def end(self) -> None:
        await asyncio.gather(*self._answers)
        self._channel.close()


async def lived(root: Path, story: Story, count: int) -> list[bytes] | None:
    """Run a broker: send messages, and answer checks; return what is in the topic then. None: it did not start."""
    story.known.lives += 1
    clock = story.known.clock
    how = {"background": False, "clock": clock, "store_host": HOST, "auto_create_topic_enable": True}
    store = story.do(rocketc.open, root, **{**story.fields, **how})
    if store is None:
        return None
    found = None
    config = BrokerConfig(**SETTINGS)  # type: ignore[arg-type]
    broker = story.do(BrokerController, store, config, HOST, clock=clock, chance=random.Random(1))
    if broker is not None:
        try:
            await broker.start()
        except Exception as error:
            story.errors.append(error)
            assert_ours(error)
        else:
            producer = Producer(broker, story)
            await producer.begin()
            for n in range(count):
                body = KINDS[n : n + 1] + b"%d." % story.known.number + b"x" * 300
                story.known.number += 1
                await producer.transaction(body, story.known)
            await asyncio.sleep(CHECKED_SECONDS)
            await producer.end()
        await broker.close()
        result = story.do(store.get, "orders", 0, 0, 1000)
        found = None if result is None else [bytes(message.body) for message in result.messages]
    story.do(store.close)
    assert store.closed
    return found


def with_open_ones(root: Path, fields: dict[str, Any]) -> Decided:
    """A store with half messages, of which some are not decided."""
    story = Story(fields, None, Decided())  # type: ignore[arg-type]
    virtual.run(lived(root, story, len(KINDS)))
    assert not story.errors and len(story.known.halves) == len(KINDS)
    return story.known


def transact(root: Path, story: Story) -> None:
    virtual.run(lived(root, story, len(KINDS)))


def survives_transactions(root: Path, story: Story) -> None:
    """Each transaction that is committed is delivered in the end, and no other one."""
    after = Story(story.fields, story.case, story.known)
    found = virtual.run(lived(root, after, 0))
    assert not after.errors and found is not None, after.errors
    wanted = {body for body in story.known.halves if body[:1] in b"cl"}
    assert {body[:1] for body in found} <= {b"c", b"l"}, found
    assert wanted <= set(found), sorted(wanted - set(found))
