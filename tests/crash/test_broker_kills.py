"""The process `rocketc broker` is killed again and again while clients send, consume and send back.

Nothing acknowledged is lost, nothing delayed is early, the store opens again, and topics, groups and offsets survive.
ROCKETC_SEED=n runs the lives of seed n; a failure names its seed.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable
from pathlib import Path

import pytest
from simulation.clients import messages_of
from support.native import ROOT
from support.promise_counts import count

from rocketc.errors import ConnectionLostError, NoAnswerError, NotSentError
from rocketc.remoting.channel import Channel
from rocketc.remoting.codes import Code
from rocketc.tables.fastjson import parse

pytestmark = pytest.mark.promise(1, 12)

SEED = int(os.environ.get("ROCKETC_SEED", "1"))
LOST = (ConnectionLostError, NoAnswerError, NotSentError)


async def until_lost(work: Awaitable[None], wrong: list[str]) -> None:
    """Do the work of a client until its connection is lost. wrong: gets what it finds"""
    try:
        await work
    except LOST:
        pass
    except AssertionError as error:
        wrong.append(repr(error))


CONF = """\
bindAddress=127.0.0.1
mappedFileSizeCommitLog=1048576
mappedFileSizeConsumeQueue=20000
maxHashSlotNum=1000
maxIndexNum=4000
flushConsumerOffsetInterval=200
flushDelayOffsetInterval=200
messageDelayLevel=1s 2s
timerPrecisionMs=200
timerRollWindowSlot=6
timerFlushIntervalMs=300
mappedFileSizeTimerLog=4096
flushDiskType=%s
"""
GROUPS = ["audit", "bill"]
RETRY, DEAD = "%RETRY%audit", "%DLQ%audit"  # the other group sends nothing back
DELAYS_MS = 1000, 2000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Broker:
    """One life of the process.

    more    lines of broker.conf
    before  Python code that runs in the process first
    """

    def __init__(self, folder: Path, flush: str, more: str = "", before: str = "") -> None:
        conf = folder / "broker.conf"
        conf.write_text(CONF % {"sync": "SYNC_FLUSH", "async": "ASYNC_FLUSH"}[flush] + more)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
        code = f"{before}\nfrom rocketc_command import main; main()"
        command = [sys.executable, "-X", "faulthandler", "-c", code, "broker", str(folder / "store"), "-c", str(conf)]
        self.log = folder / "broker.log"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [*command, "--port", "0", "--namesrv-port", "0"], stderr=log, stdout=log, env=env
            )
        self._begin = self.log.stat().st_size

    async def address(self) -> tuple[str, int]:
        """Wait until it serves; return its address."""
        deadline = time.monotonic() + 120  # of a busy machine
        while time.monotonic() < deadline:
            text = self.log.read_bytes()[self._begin :].decode()
            if found := re.search(r"broker (127\.0\.0\.1):(\d+), store", text):
                return found[1], int(found[2])
            assert self.process.poll() is None, text
            await asyncio.sleep(0.005)
        raise AssertionError("the broker did not start")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()


class Load:
    """Clients of all lives, and what they know."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.sent: set[bytes] = set()
        self.acknowledged: dict[tuple[str, int], dict[int, bytes]] = defaultdict(dict)
        self.got: dict[tuple[str, str, int], dict[int, bytes]] = defaultdict(dict)
        self.least: dict[tuple[str, str, int], int] = {}  # offsets that the next life must have
        self.due: dict[bytes, int] = {}  # delayed and timed messages: when, in ms
        self.delayed: dict[str, set[bytes]] = defaultdict(set)  # acknowledged ones, by topic
        self.due_again: dict[tuple[bytes, int], int] = {}  # by body and reconsume times, when at the soonest
        self.backs: set[tuple[bytes, int]] = set()  # answered
        self.dead: set[bytes] = set()
        self.sent_back = 0  # send-backs that were answered
        self.groups: set[str] = set()  # that pulled for a while
        self.first_pulls: dict[str, float] = {}
        self.wrong: list[str] = []

    def clients(self, channel: Channel, life: int) -> list[asyncio.Future[None]]:
        topics = ["orders", f"topic-{life}"]
        works = [self._produce(channel, life, n, topics) for n in range(3)]
        works += [self._consume(channel, group, topic, 0) for group in GROUPS for topic in topics]
        works += [self._consume(channel, group, "orders", 1) for group in GROUPS]
        works += [self._consume(channel, "audit", RETRY, 0)]
        return [asyncio.ensure_future(until_lost(work, self.wrong)) for work in works]

    async def call(self, channel: Channel, code: int, body: bytes = b"", timeout: float = 20.0, **values):
        answer = await channel.call(code, values, asyncio.get_running_loop().time() + timeout, body)
        if answer.code == Code.GO_AWAY:
            raise ConnectionLostError("the broker ends")
        return answer

    async def _produce(self, channel: Channel, life: int, number: int, topics: list[str]) -> None:
        n = 0
        while True:
            n += 1
            topic, queue_id = self.chance.choice(topics), self.chance.randrange(2)
            body = b"%d.%d.%d." % (life, number, n)
            self.sent.add(body)
            properties, level = self.chance.choice(["", f"UNIQ_KEY\1{n}\2"]), self.chance.choice([0] * 8 + [1, 2])
            if level:
                properties += f"DELAY\1{level}\2"
                self.due[body] = now_ms() + DELAYS_MS[level - 1]
            elif timed := self.chance.choice([0] * 6 + [150, 700, 2000]):
                properties += f"TIMER_DELAY_MS\1{timed}\2"
                self.due[body] = now_ms() + timed
            answer = await self.call(
                channel, 310, body + bytes(self.chance.choice([0, 100, 3000])), producerGroup="shop", topic=topic,
                defaultTopic="TBW102", defaultTopicQueueNums=2, queueId=queue_id, sysFlag=0, bornTimestamp=1, flag=0,
                properties=properties,
            )  # fmt: skip
            if answer.code == Code.SUCCESS and body in self.due:
                self.delayed[topic].add(body)
            elif answer.code == Code.SUCCESS:
                self.acknowledged[topic, queue_id][int(answer.fields["queueOffset"])] = body

    async def _consume(self, channel: Channel, group: str, topic: str, queue_id: int) -> None:
        key = (group, topic, queue_id)
        offset = max(await self.offset(channel, *key), 0)
        while True:
            answer = await self.call(
                channel, 11, consumerGroup=group, topic=topic, queueId=queue_id, queueOffset=offset, maxMsgNums=32,
                sysFlag=7, commitOffset=offset, suspendTimeoutMillis=1000, subscription="*", subVersion=1,
            )  # fmt: skip
            if answer.code == Code.TOPIC_NOT_EXIST:
                assert not self.acknowledged[topic, queue_id], f"{topic} is gone"
                await asyncio.sleep(0.05)
                continue
            assert answer.code in (Code.SUCCESS, Code.PULL_NOT_FOUND), f"pull: {answer}"
            if time.monotonic() - self.first_pulls.setdefault(group, time.monotonic()) > 0.5:
                self.groups.add(group)  # the first pull creates it; its table is written a moment later
            self.take(key, answer)
            if group == "audit" and answer.code == Code.SUCCESS and self.chance.random() < 0.3:
                await self._send_back(channel, next(messages_of(answer.body)))
            offset = int(answer.fields["nextBeginOffset"])
            if self.chance.random() < 0.3:
                values = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": offset}
                await self.call(channel, 15, **values)

    async def _send_back(self, channel: Channel, message) -> None:
        body, times, level = (
            bytes(message.body).rstrip(b"\0"),
            message.reconsume_times + 1,
            self.chance.choice([1, 2, -1]),
        )
        if times > 3:
            return
        due = now_ms() + DELAYS_MS[level - 1]
        if level > 0:
            self.due_again[body, times] = min(due, self.due_again.get((body, times), due))
        answer = await self.call(channel, 36, offset=message.phy_offset, group="audit", delayLevel=level)
        assert answer.code == Code.SUCCESS, f"send-back: {answer}"
        self.sent_back += 1
        if level > 0:
            self.backs.add((body, times))
        else:
            self.dead.add(body)

    def take(self, key: tuple[str, str, int], answer) -> None:
        if answer.code == Code.SUCCESS:
            for message in messages_of(answer.body):
                body = bytes(message.body).rstrip(b"\0")
                assert body in self.sent, f"{body!r} was never sent"
                before = self.got[key].setdefault(message.queue_offset, body)
                assert before == body, f"{key} {message.queue_offset}: {body!r} after {before!r}"
                due = self.due.get(body, 0)
                if key[1] == RETRY:
                    due = self.due_again[body, message.reconsume_times]
                    self.backs.discard((body, message.reconsume_times))
                if key[1] != DEAD:
                    assert message.store_timestamp >= due, f"{body!r} at {message.store_timestamp}, due at {due}"

    async def offset(self, channel: Channel, group: str, topic: str, queue_id: int) -> int:
        """The committed offset; it must be neither ahead of what the group got, nor older than what was on the disk."""
        key = (group, topic, queue_id)
        answer = await self.call(
            channel, 14, consumerGroup=group, topic=topic, queueId=queue_id, setZeroIfNotFound=False
        )
        offset = int(answer.fields["offset"]) if answer.code == Code.SUCCESS else -1
        missing = [n for n in range(offset) if n not in self.got[key]]
        assert not missing, f"the offset of {key} is {offset}, but the group never got {missing[:5]}"
        assert offset >= self.least.get(key, -1), f"the offset of {key} is {offset}, it was {self.least[key]}"
        return offset

    def killed(self, store: Path) -> None:
        """Note the offsets that the next life must have: those on the disk. A simulation checks when they get there."""
        try:
            found = parse((store / "config/consumerOffset.json").read_text())["offsetTable"]
        except FileNotFoundError:
            return
        for name, queues in found.items():
            topic, _, group = name.partition("@")
            self.least |= {(group, topic, int(queue_id)): offset for queue_id, offset in queues.items()}

    async def check(self, channel: Channel, group: str) -> int:
        """Read everything, and compare; return the number of messages acknowledged."""
        for (topic, queue_id), messages in list(self.acknowledged.items()):
            there = await self._read(channel, group, topic, queue_id) if messages else {}
            lost = {at: body for at, body in messages.items() if there.get(at) != body}
            assert not lost, f"{topic}, {queue_id}: {lost}"
        for topic, bodies in self.delayed.items():
            there = {body for n in range(2) for body in (await self._read(channel, group, topic, n)).values()}
            assert bodies <= there, f"{topic}: {bodies - there} of {len(bodies)} delayed messages"
        await self._read(channel, group, RETRY, 0)  # it takes them off `backs`
        assert not self.backs, f"{self.backs} never came again"
        if self.dead:
            assert self.dead <= set((await self._read(channel, group, DEAD, 0)).values())
        return sum(map(len, [*self.acknowledged.values(), *self.delayed.values()]))

    async def _read(self, channel: Channel, group: str, topic: str, queue_id: int) -> dict[int, bytes]:
        """Read a whole queue; return the bodies by their offsets."""
        offset, code, key = 0, Code.SUCCESS, ("check", topic, queue_id)
        while code == Code.SUCCESS:
            answer = await self.call(
                channel, 11, consumerGroup=group, topic=topic, queueId=queue_id, queueOffset=offset, maxMsgNums=32,
                sysFlag=4, commitOffset=0, suspendTimeoutMillis=0, subscription="*", subVersion=1,
            )  # fmt: skip
            code = answer.code
            assert code in (Code.SUCCESS, Code.PULL_NOT_FOUND, Code.TOPIC_NOT_EXIST), f"{topic}, {queue_id}: {answer}"
            self.take(key, answer)
            offset = int(answer.fields.get("nextBeginOffset", 0))
        return self.got[key]


async def one_life(folder: Path, load: Load, life: int, flush: str) -> None:
    chance = load.chance
    with Broker(folder, flush) as broker:
        if chance.random() < 0.1:
            await asyncio.sleep(chance.random() * 0.4)  # it is killed while it starts
            return
        channel = channel_to(await broker.address(), chance)
        clients = load.clients(channel, life)
        await asyncio.sleep(chance.choice([0.05, 0.3, 0.3, 1.5, 3.0]) * chance.random())
        if chance.random() < 0.2:
            broker.process.send_signal(signal.SIGTERM)
            await asyncio.sleep(chance.random() * 0.05)  # it is killed while it ends
        load.killed(folder / "store")
    await asyncio.wait(clients, timeout=5)
    channel.close()
    await asyncio.gather(*clients)
    assert not load.wrong, load.wrong
    count("kills")


def channel_to(address: tuple[str, int], chance: random.Random) -> Channel:
    host, port = address
    return Channel(functools.partial(asyncio.get_running_loop().create_connection, host=host, port=port), chance)


async def run_lives(folder: Path, lives: int, seed: int, flush: str) -> None:
    print(f"seed {seed}, {flush}: run it again with ROCKETC_SEED={seed}")
    chance = random.Random(f"{seed}/{flush}")
    load = Load(chance)
    for life in range(lives):
        await one_life(folder, load, life, flush)
    with Broker(folder, flush) as broker:
        channel = channel_to(await broker.address(), chance)
        for group, topic, queue_id in list(load.least):
            await load.offset(channel, group, topic, queue_id)
        await asyncio.sleep(DELAYS_MS[-1] / 1000 + 1.5)  # from the start of the broker on
        count("acknowledged", await load.check(channel, "reader"))
        count("delayed", sum(map(len, load.delayed.values())))
        count("sent back", load.sent_back)
        channel.close()
        broker.process.send_signal(signal.SIGTERM)
        assert broker.process.wait(timeout=20) == 0
    errors = [line for line in broker.log.read_text().splitlines() if " ERROR " in line or "Traceback" in line]
    assert not errors, errors
    groups = json.loads((folder / "store/config/subscriptionGroup.json").read_text())["subscriptionGroupTable"]
    assert load.groups <= groups.keys()


@pytest.mark.some(1)
@pytest.mark.parametrize("flush", ["async", "sync"])
def test_a_broker_is_killed(tmp_path, flush):
    asyncio.run(run_lives(tmp_path, {"async": 2, "sync": 1}[flush], SEED, flush))


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("flush", ["async", "sync"])
def test_a_broker_is_killed_fifty_times(tmp_path, flush):
    seed = SEED if "ROCKETC_SEED" in os.environ else random.SystemRandom().randrange(1 << 32)
    asyncio.run(run_lives(tmp_path, 50, seed, flush))
