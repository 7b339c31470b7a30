"""The process `rocketc broker` is killed again and again while transactions are under way.

A committed message is delivered once; one that is rolled back, or not decided, never is.
ROCKETC_SEED=n runs the lives of seed n.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest
from crash import test_broker_kills
from crash.test_broker_kills import LOST, SEED, Broker, until_lost

import rocketc
from rocketc.remoting.channel import Channel
from rocketc.remoting.codes import Code

CONF = test_broker_kills.CONF + "transactionCheckInterval=200\ntransactionTimeOut=400\ntransactionOpBatchInterval=50\n"
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
MOST = 50  # transactions of a worker in a life: the last life asks about all open ones


class Producer:
    """A producer over all lives. The first letter of a body is what it decides, also when it is asked."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.halves: set[bytes] = set()  # answered
        self.asked = 0
        self.wrong: list[str] = []
        self._channel: Channel | None = None
        self._answers: set[asyncio.Task[None]] = set()

    @staticmethod
    def decision(body: bytes) -> int:
        return {b"c": COMMIT, b"r": ROLLBACK, b"u": UNKNOWN}[body[:1]]

    async def live(self, address: tuple[str, int], life: int) -> None:
        """Send and end transactions until the connection is lost."""
        connect = functools.partial(asyncio.get_running_loop().create_connection, host=address[0], port=address[1])
        self._channel = Channel(connect, self.chance, lambda request, reply: self._check(request))
        try:
            await self.beat()
            await asyncio.gather(*(self._work(life, worker) for worker in range(4)))
        except LOST:
            pass
        except AssertionError as error:
            self.wrong.append(repr(error))
        finally:
            self._channel.close()

    async def call(self, code: int, body: bytes = b"", **values):
        assert self._channel is not None
        return await self._channel.call(code, values, asyncio.get_running_loop().time() + 20.0, body)

    async def beat(self) -> None:
        beat = {"clientID": "c", "producerDataSet": [{"groupName": "shop"}], "consumerDataSet": []}
        await self.call(34, json.dumps(beat).encode())

    async def _work(self, life: int, worker: int) -> None:
        n = 0
        while True:
            n += 1
            if n > MOST:
                await asyncio.sleep(0.05)
                await self.beat()
                continue
            body = b"%s%d.%d.%d" % (self.chance.choice([b"c", b"c", b"r", b"u"]), life, worker, n)
            key = body.decode()
            answer = await self.call(
                310, body, producerGroup="shop", topic="orders", defaultTopic="TBW102", defaultTopicQueueNums=4,
                queueId=n % 4, sysFlag=0, bornTimestamp=time.time_ns() // 1_000_000, flag=0,
                properties=f"UNIQ_KEY\1{key}\2TRAN_MSG\1true\2PGROUP\1shop\2",
            )  # fmt: skip
            if answer.code == Code.GO_AWAY:
                return
            assert answer.code == 0, answer.remark
            self.halves.add(body)
            if self.chance.random() < 0.8:  # the others wait for a check
                place = int(answer.fields["msgId"][-16:], 16)
                await self._end(body, int(answer.fields["queueOffset"]), place, False)

    async def _end(self, body: bytes, queue_offset: int, place: int, is_checked: bool) -> None:
        if self.decision(body) == UNKNOWN:
            return
        answer = await self.call(
            37, producerGroup="shop", tranStateTableOffset=queue_offset, commitLogOffset=place,
            commitOrRollback=self.decision(body), fromTransactionCheck=is_checked, msgId=body.decode(),
        )  # fmt: skip
        assert answer.code in (0, Code.GO_AWAY) or "is ended already" in answer.remark, answer.remark

    def _check(self, request) -> None:
        self.asked += 1
        [half] = rocketc.decode(request.body, None)
        place = int(request.fields["commitLogOffset"])
        work = self._end(half.body, int(request.fields["tranStateTableOffset"]), place, True)
        answer = asyncio.ensure_future(until_lost(work, self.wrong))
        self._answers.add(answer)
        answer.add_done_callback(self._answers.discard)


def delivered(store: Path) -> Counter[bytes]:
    with rocketc.open(store, read_only=True) as opened:
        return Counter(m.body for queue in range(4) for m in opened.get("orders", queue, 0, 100_000, max_bytes=1 << 30))


async def run_lives(folder: Path, lives: int, seed: int, flush: str) -> None:
    print(f"seed {seed}, {flush}: run it again with ROCKETC_SEED={seed}")
    chance = random.Random(f"{seed}/{flush}")
    producer = Producer(chance)
    for life in range(lives):
        with Broker(folder, flush) as broker:
            living = asyncio.ensure_future(producer.live(await broker.address(), life))
            await asyncio.sleep(0.1 + chance.random() * 1.2)
            broker.kill()
            await asyncio.wait_for(living, 30)
        assert producer.wrong == []
        assert {body[:1] for body in delivered(folder / "store")} <= {b"c"}
    with Broker(folder, flush) as broker:  # now each transaction gets its fate
        living = asyncio.ensure_future(producer.live(await broker.address(), lives))
        await asyncio.sleep(0.2)
        wanted = {body for body in producer.halves if body.startswith(b"c")}
        deadline = time.monotonic() + 60 + lives
        while not wanted <= delivered(folder / "store").keys() and time.monotonic() < deadline:
            await asyncio.sleep(0.2)
        broker.kill()
        await asyncio.wait_for(living, 30)
    found = delivered(folder / "store")
    assert producer.wrong == [] and producer.asked > 0 and len(wanted) > 10
    assert wanted <= found.keys(), sorted(wanted - found.keys())
    assert {body[:1] for body in found} == {b"c"}
    assert {body: times for body, times in found.items() if times > 1} == {}


@pytest.fixture(autouse=True)
def conf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_broker_kills, "CONF", CONF)


@pytest.mark.promise(1, 11)
@pytest.mark.parametrize("flush", ["async"])
def test_transactions_survive_kills(tmp_path, flush):
    asyncio.run(run_lives(tmp_path, 2, SEED, flush))


@pytest.mark.long
@pytest.mark.promise(1, 11)
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("flush", ["async", "sync"])
def test_transactions_survive_two_hundred_kills(tmp_path, flush):
    seed = SEED if "ROCKETC_SEED" in os.environ else random.SystemRandom().randrange(1 << 32)
    asyncio.run(run_lives(tmp_path, {"async": 150, "sync": 50}[flush], seed, flush))
