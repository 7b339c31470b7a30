"""A topic that is deleted and made again, or whose broker loses its last messages, while it is read; virtual time.

Every reader that has read a message of a queue gets each later message at least once, and no message again that is
older than the change. `python -m simulation.recreated_cluster FOLDER SEED...` runs seeds and prints a line of JSON for
each. `--mutant NAME` breaks the readers first, see simulation.recreated_mutants.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from simulation import recreated_mutants, virtual
from simulation.client_history import ClientHistory
from simulation.clients import messages_of
from simulation.cluster import no_errors
from simulation.hosts import NAME_SERVER, BrokerHost, NameServerHost, wall_clock
from simulation.members import Member
from simulation.network import Network
from simulation.seeds import play_seed, run_seeds

from rocketc.broker import controller
from rocketc.client import AsyncConsumer, AsyncPullConsumer
from rocketc.client.concurrent_service import ConcurrentService
from rocketc.client.orderly_service import OrderlyService
from rocketc.client.push_core import PushCore
from rocketc.client.settings import ConsumerSettings
from rocketc.client.subscriptions import subscribe
from rocketc.client.topic_merge import TopicFollower
from rocketc.client.topic_reader import TopicReader
from rocketc.remoting.channel import Channel

TOPIC = "orders"
READ_SECONDS = 60.0  # within which messages reach all readers: a pull may be held, a name server asked again
SETTINGS = {"consume_from_where": "CONSUME_FROM_FIRST_OFFSET"}


class Host(BrokerHost):
    """A broker whose files may be exchanged for older ones."""

    def _check_tables(self) -> None:
        """Offsets go back, too."""

    def _watch_commits(self) -> None:
        """As above."""

    async def keep(self) -> None:
        """Keep the files as they are now."""
        await self.stop()
        shutil.copytree(self._root, self._root.with_suffix(".old"))
        await self.start()

    async def lose_the_last(self, seconds: float) -> None:
        """Start with the files that were kept, after some seconds."""
        self.kill()
        shutil.rmtree(self._root)
        self._root.with_suffix(".old").rename(self._root)
        await asyncio.sleep(seconds)
        await self.start()


class Reader(Member):
    """A process that reads the topic. got: how often each message came"""

    got: Counter[bytes]

    def __init__(self, *where: Any) -> None:
        super().__init__(*where)
        self.got = Counter()

    def take(self, message: Any) -> None:
        self.got[bytes(message.body)] += 1


class Pushed(Reader):
    """A group with a listener."""

    kind: Any = ConcurrentService

    async def work(self) -> None:
        core = PushCore(self.access, self.name, ConsumerSettings(**SETTINGS, **self.names), self.kind)
        await core.subscribe(subscribe(TOPIC, self.chance.choice(["*", "red||blue"])), self._listen)
        await core.start()
        try:
            await self.until(1e9)
        finally:
            await core.close()

    async def _listen(self, given: Any) -> None:
        for message in given if isinstance(given, list) else [given]:
            self.take(message)


class Ordered(Pushed):
    """A group with an orderly listener."""

    kind = OrderlyService


class Iterated(Reader):
    """A group that reads and commits."""

    async def work(self) -> None:
        consumer = AsyncConsumer(self.name, self.access.addresses[0], topics=[TOPIC], **SETTINGS, **self.names)
        consumer._access = self.access
        async with consumer:
            while not self.is_ending:
                for message in await consumer.getmany(32, timeout=500):
                    self.take(message)
                await consumer.commit()


class Polled(Reader):
    """A group that polls."""

    async def work(self) -> None:
        consumer = AsyncPullConsumer(self.name, self.access.addresses[0], topics=[TOPIC], **SETTINGS, **self.names)
        consumer._access = self.access
        async with consumer:
            while not self.is_ending:
                for message in await consumer.poll(500, max_records=32):
                    self.take(message)


class Following(Reader):
    """scan().follow(), from the end of each queue on."""

    async def work(self) -> None:
        async with TopicReader(self.access) as reader:
            ranges = await reader.ranges(await reader.queues(TOPIC))
            positions = {queue: range.end for queue, range in ranges.items()}
            follower = TopicFollower(reader, [TOPIC], positions, expression=self.chance.choice(["*", "red||blue"]))
            try:
                while not self.is_ending:
                    for message in messages_of((await follower.next(0.5)).records):
                        self.take(message)
            finally:
                await follower.close()


class Cluster:
    """Everything of one seed."""

    def __init__(self, root: Path, seed: int) -> None:
        chance = self.chance = random.Random(seed)
        self.network = Network(chance, (0.0, chance.choice([0.0005, 0.02, 0.2])))
        self.history = ClientHistory(slack=1.0)
        self.history.now = self.network.now
        self.names = NameServerHost(self.network)
        self.host = Host("broker-a", root / "broker-a", self.network, self.history, {"flush": "async"}, None)
        self.queues, self._number = chance.choice([1, 3]), 0
        self._channels = [
            Channel(self.network.connector("shop")(*address), chance) for address in (self.host.address, NAME_SERVER)
        ]
        where = self.network, self.history
        self.groups: list[Reader] = [
            Pushed("pushed", *where), Ordered("ordered", *where), Iterated("iterated", *where), Polled("polled", *where)
        ]  # fmt: skip
        self.following = Following("following", *where)
        self.readers: list[Reader] = [*self.groups, self.following]
        self.sent: dict[int, list[bytes]] = defaultdict(list)  # messages that are in the queues now

    async def _call(self, code: int, where: int = 0, **values: Any) -> Any:
        return await self._channels[where].call(code, values, self.network.now() + 10)

    async def _send(self, queue_id: int, count: int) -> list[bytes]:
        """Send messages; the first one makes the topic if it does not exist."""
        bodies = []
        for _ in range(count):
            self._number += 1
            bodies.append(b"%d" % self._number)
            values = {
                "producerGroup": "shop", "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": self.queues,
                "queueId": queue_id, "sysFlag": 0, "bornTimestamp": wall_clock(), "flag": 0,
                "properties": f"TAGS\1{self.chance.choice(['red', 'blue'])}\2",
            }  # fmt: skip
            answer = await self._channels[0].call(10, values, self.network.now() + 10, bodies[-1])
            assert answer.code == 0, answer.remark
            await asyncio.sleep(self.chance.choice([0.002, 0.01]))
        return bodies

    async def _send_to_all(self, least: int, most: int) -> list[bytes]:
        found = []
        for queue_id in range(self.queues):
            bodies = await self._send(queue_id, self.chance.randint(least, most))
            self.sent[queue_id] += bodies
            found += bodies
        return found

    async def _expect(self, bodies: list[bytes], readers: list[Reader], what: str) -> None:
        end = self.network.now() + READ_SECONDS
        while self.network.now() < end and any(body not in one.got for one in readers for body in bodies):
            await asyncio.sleep(0.5)
        for one in readers:
            if missing := [body for body in bodies if body not in one.got]:
                self.history.fault(
                    f"{one.name} never got {len(missing)} of {len(bodies)} messages {what}: {missing[:5]}"
                )

    # what happens to the topic

    async def _make_again(self) -> None:
        """Delete the topic, and make it again. Groups notice it while the new queues are shorter than the old ones."""
        shortest = min(map(len, self.sent.values()))
        await self._call(215, topic=TOPIC)
        await self._call(216, 1, topic=TOPIC, clusterName="DefaultCluster")
        self.sent.clear()
        await asyncio.sleep(self.chance.choice([0.0, 0.1, 2.0, 20.0]))
        if self.chance.random() < 0.5:
            await self._call(
                17, topic=TOPIC, defaultTopic="TBW102", readQueueNums=self.queues, writeQueueNums=self.queues, perm=6,
                topicFilterType="SINGLE_TAG",
            )  # fmt: skip
            await asyncio.sleep(self.chance.choice([0.0, 1.0]))
        await self._expect(await self._send_to_all(1, shortest - 1), self.readers, "of the new topic")

    async def _grow_again(self) -> None:
        """The same, but the new queues become longer than the old ones at once: readers without a group notice it."""
        longest = max(map(len, self.sent.values()))
        await self._call(215, topic=TOPIC)
        self.sent.clear()
        await asyncio.sleep(self.chance.choice([1.5, 5.0, 20.0]))
        bodies = await self._send_to_all(longest, longest + 3)
        await self._expect(bodies, [self.following], "of the new topic, which is longer than the old one")
        for one in self.groups:
            one.got.update(bodies)  # it may not see a difference

    async def _lose_the_last(self) -> None:
        """The broker starts without its last messages; groups notice it while the queues are shorter than before."""
        kept = {queue_id: list(bodies) for queue_id, bodies in self.sent.items()}
        await self.host.keep()
        await self._expect(await self._send_to_all(5, 9), self.readers, "before the loss")
        await self.host.lose_the_last(self.chance.choice([0.1, 5.0]))
        self.sent.clear()
        self.sent.update(kept)
        await self._expect(await self._send_to_all(1, 4), self.readers, "after the loss")

    async def run(self) -> list[str]:
        await self.names.start()
        await self.host.start()
        for one in self.groups:
            one.start()
        await asyncio.sleep(1.0)
        old = await self._send_to_all(3, 40)
        await self._expect(old, self.groups, "of the first topic")
        self.following.start()
        await asyncio.sleep(1.0)
        self.following.got.update(old)
        for number in range(self.chance.choice([1, 2])):
            if number or self.chance.random() < 0.5:  # otherwise the follower has read nothing itself
                await self._expect(await self._send_to_all(3, 9), self.readers, "before the next change")
            before = {one: one.got.copy() for one in self.readers}
            change = self.chance.choice([self._make_again, self._make_again, self._grow_again, self._lose_the_last])
            self.history.counts[change.__name__.strip("_")] += 1
            await change()
            for one, earlier in before.items():
                if again := [body for body, count in earlier.items() if one.got[body] > count]:
                    self.history.fault(f"{one.name} got {len(again)} old messages twice: {again[:5]}")
        await self._expect(await self._send_to_all(1, 3), self.readers, "at the end")
        await asyncio.gather(*(one.leave() for one in self.readers))
        for channel in self._channels:
            channel.close()
        await self.host.stop()
        await self.names.stop()
        return self.history.wrong


def play(root: Path, seed: int) -> dict[str, Any]:
    """Run one seed in a folder; return what was wrong, and counts. The digest is the same for the same seed."""
    controller.STEP_SECONDS = 0.05  # an idle broker costs less

    async def whole() -> tuple[list[str], object, dict[str, Any]]:
        cluster = Cluster(root, seed)
        with no_errors(cluster.history):
            wrong = await cluster.run()
        counts = dict(sorted(cluster.history.counts.items()))
        figures = {"sent": cluster._number, "virtual": round(cluster.network.now()), "counts": counts}
        return wrong, ([sorted(one.got.items()) for one in cluster.readers], counts), figures

    return play_seed(root, seed, whole, lambda main: virtual.run(main()))


def main() -> None:
    run_seeds(play, recreated_mutants.MUTANTS)


if __name__ == "__main__":
    main()
