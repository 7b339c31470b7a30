"""The machine of a master is lost again and again while clients send, and its slave becomes the next master.

A message whose send was answered with SEND_OK is on the slave, with its queue offset and its body. The slave's
acknowledgement means "in memory", as RocketMQ's does: its process may be killed, its machine is not lost with the
master's. A slave with an empty store begins at the last file of its master, so earlier messages leave the test with the
machine that had them.
ROCKETC_SEED=n runs the lives of seed n; a failure names its seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from crash.test_broker_kills import SEED, Broker, channel_to, until_lost
from support.promise_counts import count

import rocketc
from rocketc.config import properties
from rocketc.format.ids import decode_offset_id
from rocketc.remoting.channel import Channel
from rocketc.remoting.codes import Code
from rocketc.remoting.requests import CODES

pytestmark = pytest.mark.promise(1, 13)

MASTER = "brokerRole=SYNC_MASTER\nslaveTimeout=1000\n"
SLAVE = "brokerRole=SLAVE\nbrokerId=1\nhaMasterAddress=127.0.0.1:%s\n"
NOT_REPLICATED = (Code.FLUSH_SLAVE_TIMEOUT, Code.SLAVE_NOT_AVAILABLE, Code.GO_AWAY)
CONNECTIONS, WORKERS, QUEUES = 3, 4, 2

# Faults that these tests must find: code that runs in each broker first.
FAULTS = {
    "answered at once": """
from rocketc.ha.group_transfer import GroupTransfer
add = GroupTransfer.add
def _add(self, end, done):
    if self._replicas.refusal(end) is None:  # a slave is connected
        self._loop.call_soon(done, 0)
    else:
        add(self, end, done)
GroupTransfer.add = _add
""",
    "sent counts as acknowledged": """
from rocketc.ha.master import SlaveConnection
from rocketc.ha.replicas import Replicas
send = SlaveConnection._send
def _send(self, view):
    send(self, view)
    self._master.transfer.report(self.replica, self.sending.next_offset)
SlaveConnection._send = _send
""",
}


class Acknowledged(NamedTuple):
    life: int
    phy_offset: int
    body: bytes


class Load:
    """The clients of all lives, and what was acknowledged to them."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.acknowledged: dict[tuple[int, int], Acknowledged] = {}  # by queue id and queue offset
        self.counts: Counter[str] = Counter()
        self.first = asyncio.Event()  # set by the first SEND_OK of a life
        self.wrong: list[str] = []

    def clients(self, channels: list[Channel], life: int) -> list[asyncio.Future[None]]:
        self.first.clear()
        return [
            asyncio.ensure_future(until_lost(self._send(channel, life, f"{life}.{m}.{n}"), self.wrong))
            for m, channel in enumerate(channels)
            for n in range(WORKERS)
        ]

    async def _send(self, channel: Channel, life: int, name: str) -> None:
        """Send single messages and batches until the connection is lost."""
        n, chance = 0, self.chance
        while True:
            n += 1
            if chance.random() < 0.2:
                await asyncio.sleep(0.01 * chance.random())
            queue_id, size = chance.randrange(QUEUES), chance.choice([0, 100, 100, 3000])
            bodies = [f"{name}.{n}.{i}.".encode() + b"x" * size for i in range(chance.choice([1, 1, 1, 7]))]
            is_batch = len(bodies) > 1
            batch = [(0, body, {"UNIQ_KEY": f"{n}.{i}"}) for i, body in enumerate(bodies)]
            values = {
                "producerGroup": "shop", "topic": "orders", "defaultTopic": "TBW102", "defaultTopicQueueNums": QUEUES,
                "queueId": queue_id, "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "properties": f"UNIQ_KEY\1{n}\2",
                "batch": is_batch,
            }  # fmt: skip
            body = rocketc.encode_batch(batch) if is_batch else bodies[0]
            deadline = asyncio.get_running_loop().time() + 20.0
            code = CODES["SEND_BATCH_MESSAGE" if is_batch else "SEND_MESSAGE_V2"]
            answer = await channel.call(code, values, deadline, body)
            if answer.code != Code.SUCCESS:
                assert answer.code in NOT_REPLICATED, f"{answer.code}: {answer.remark}"
                self.counts["not replicated"] += 1
                await asyncio.sleep(0.01)
                continue
            self.first.set()
            ids, at = answer.fields["msgId"].split(","), int(answer.fields["queueOffset"])
            assert len(ids) == len(bodies), f"{len(ids)} ids of {len(bodies)} messages"
            for i, (one, body) in enumerate(zip(ids, bodies, strict=True)):
                new = Acknowledged(life, decode_offset_id(one).phy_offset, body)
                before = self.acknowledged.setdefault((queue_id, at + i), new)
                assert before is new, f"queue {queue_id}, offset {at + i}: acknowledged for {new} after {before}"
            self.counts["batches" if is_batch else "single"] += 1

    def forget_before(self, first: int, life: int) -> None:
        """The machine with the log before a physical offset is lost. What this life acknowledged is not there."""
        gone = [where for where, one in self.acknowledged.items() if one.phy_offset < first]
        wrong = [self.acknowledged[where] for where in gone if self.acknowledged[where].life == life]
        assert not wrong, f"acknowledged, and before the first byte of the slave, {first}: {wrong[:3]}"
        for where in gone:
            del self.acknowledged[where]

    def lost(self, store: rocketc.MessageStore) -> dict[tuple[int, int], Acknowledged]:
        """Return what was acknowledged, and is not in the queues of a store."""
        lost = dict(self.acknowledged)
        for queue_id in range(QUEUES):
            at, end = store.min_offset("orders", queue_id), store.max_offset("orders", queue_id)
            while at < end:
                found = store.get("orders", queue_id, at, 1000, max_bytes=1 << 26).messages
                for message in found:
                    one = lost.get((queue_id, message.queue_offset))
                    if one is not None and (message.phy_offset, message.body) == (one.phy_offset, one.body):
                        del lost[queue_id, message.queue_offset]
                at = found[-1].queue_offset + 1 if found else end
        return lost


def log_of(machine: Path) -> tuple[int, bytes]:
    """The physical offset of the first byte of a log, and the bytes of all its files."""
    files = sorted((machine / "store/commitlog").glob("[0-9]*")) if (machine / "store/commitlog").exists() else []
    return int(files[0].name) if files else 0, b"".join(file.read_bytes() for file in files)


def compare(master: Path, slave: Path) -> int:
    """Assert that the log of a slave is a piece of its master's. Return where it begins: at the end if it is empty."""
    (master_first, theirs), (first, ours) = log_of(master), log_of(slave)
    if not ours.strip(b"\0"):
        return master_first + len(theirs)
    with rocketc.open(slave / "store", read_only=True) as store:
        end = store.max_phy_offset
    at = first - master_first
    size = end - first
    assert at >= 0 and ours[:size] == theirs[at : at + size], f"{slave.name}: {first} to {end} differ from the master"
    return first


async def look(load: Load, machine: Path, deadline: float) -> None:
    """Look for each acknowledged message in the store of a broker that serves. Its queues may be a moment late."""
    while True:
        with rocketc.open(machine / "store", read_only=True) as store:
            lost = load.lost(store)
        if not lost or time.monotonic() > deadline:
            break
        await asyncio.sleep(0.02)
    assert not lost, f"{len(lost)} of {len(load.acknowledged)}: {list(lost.items())[:3]}"


def recover(load: Load, machine: Path) -> None:
    """Open the store of a broker that has ended, and look for each acknowledged message."""
    with rocketc.open(machine / "store", background=False) as store:
        while store.step():
            pass
        lost = load.lost(store)
    assert not lost, f"{len(lost)} of {len(load.acknowledged)}: {list(lost.items())[:3]}"


async def port_for_slaves(channel: Channel) -> str:
    deadline = asyncio.get_running_loop().time() + 20.0
    answer = await channel.call(CODES["GET_BROKER_CONFIG"], {}, deadline)
    return dict(properties(answer.body.decode()))["haListenPort"]


class Pair:
    """A master and its slave, over one life of the master's machine.

    fault  a name of FAULTS; "": none
    short  how often the machine is lost while the slave starts
    """

    def __init__(self, load: Load, master: Path, slave: Path, fault: str, short: float) -> None:
        self._load, self._chance, self.master, self.slave = load, load.chance, master, slave
        self._fault, self._short = fault, short
        self.slave.mkdir()

    def _broker(self, folder: Path, more: str) -> Broker:
        return Broker(folder, self._chance.choice(["async", "async", "sync"]), more, FAULTS.get(self._fault, ""))

    async def live(self, life: int) -> None:
        load, chance = self._load, self._chance
        if (self.master / "store").exists() and chance.random() < 0.3:
            shutil.copytree(self.master / "store", self.slave / "store")  # a backup: the slave has an older log
        with self._broker(self.master, MASTER) as master, contextlib.ExitStack() as stack:
            address = await master.address()
            await look(load, self.master, time.monotonic() + 20)
            channels = [channel_to(address, chance) for _ in range(CONNECTIONS)]
            clients = load.clients(channels, life)
            more = SLAVE % await port_for_slaves(channels[0])
            slave = stack.enter_context(self._broker(self.slave, more))
            if chance.random() >= self._short:
                await self._until_acknowledged(master, slave)
                if chance.random() < 0.15:
                    slave.kill()
                    slave = stack.enter_context(self._broker(self.slave, more))
                    load.first.clear()
                    await self._until_acknowledged(master, slave)
            await asyncio.sleep(chance.choice([0.02, 0.2, 1.0]) * chance.random())
            await self._end(master, slave)
        await asyncio.wait(clients, timeout=10)
        for channel in channels:
            channel.close()
        await asyncio.gather(*clients)
        assert not load.wrong, load.wrong[:3]

    async def _until_acknowledged(self, master: Broker, slave: Broker) -> None:
        deadline = time.monotonic() + 120
        while not self._load.first.is_set():
            assert time.monotonic() < deadline, "nothing is acknowledged"
            assert [one.process.poll() for one in (master, slave)] == [None, None], slave.log.read_text()[-2000:]
            await asyncio.sleep(0.005)

    async def _end(self, master: Broker, slave: Broker) -> None:
        """Kill the master. Half of the slaves are killed, too, before it or after it; the others end in order."""
        fate = self._chance.choice(["before", "after", "order", "order"])
        if fate == "before":
            slave.kill()
            await asyncio.sleep(self._chance.random() * 0.05)
        master.kill()
        if fate == "after":
            await asyncio.sleep(self._chance.random() * 0.05)
        if fate == "order":
            slave.process.send_signal(signal.SIGTERM)
            while slave.process.poll() is None:
                await asyncio.sleep(0.005)
            assert slave.process.returncode in (0, -signal.SIGTERM), slave.log.read_text()[-2000:]  # -: it was starting
        slave.kill()
        self._load.counts[f"the slave ends: {fate}"] += 1


def assert_no_errors(machine: Path) -> None:
    lines = (machine / "broker.log").read_text().splitlines()
    errors = [line for line in lines if " ERROR " in line or "Traceback" in line or "replication has stopped" in line]
    assert not errors, errors


async def run_lives(folder: Path, lives: int, seed: int, fault: str = "", short: float = 0.0) -> Load:
    print(f"seed {seed}: run it again with ROCKETC_SEED={seed}")
    load = Load(random.Random(f"replicas/{seed}"))
    master, checked = folder / "machine-0", 0
    master.mkdir()
    for life in range(lives):
        slave = folder / f"machine-{life + 1}"
        await Pair(load, master, slave, fault, short).live(life)
        load.forget_before(compare(master, slave), life)
        checked += sum(one.life == life for one in load.acknowledged.values())
        if life == lives - 1 or load.chance.random() < 0.5:  # the others are recovered by the next broker
            recover(load, slave)
        assert_no_errors(master)
        shutil.rmtree(master)
        master = slave
        count("kills")
    count("acknowledged", checked)
    print(f"{checked} messages were acknowledged: {dict(load.counts)}")
    return load


def test_the_machine_of_a_master_is_lost(memory_path):
    load = asyncio.run(run_lives(memory_path, 2, SEED))
    assert load.counts["single"] > 10 and load.counts["batches"] > 0


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_two_hundred_machines_are_lost(memory_path):
    seed = SEED if "ROCKETC_SEED" in os.environ else random.SystemRandom().randrange(1 << 32)
    load = asyncio.run(run_lives(memory_path, 200, seed, short=0.1))
    assert load.counts["not replicated"] > 0


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(memory_path, fault):
    """A master that answers before the slave has the message does not pass."""
    with pytest.raises(AssertionError, match=r"acknowledged, and before|of \d+: |differ from"):
        asyncio.run(run_lives(memory_path, 40, SEED, fault))
