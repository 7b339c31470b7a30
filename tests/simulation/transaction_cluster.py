"""A cluster on virtual time with producers of transactions; a seed decides what goes wrong.

A message that its local transaction commits is delivered once by a broker; one that is rolled back, or not decided,
never is, at any time.
`python -m simulation.transaction_cluster FOLDER SEED...` runs seeds and prints a line of JSON for each.
`--mutant NAME` breaks broker or client first, see simulation.transaction_mutants.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from pathlib import Path
from typing import Any

from simulation import client_cluster, processes, transaction_mutants
from simulation.client_history import ClientHistory
from simulation.cluster import no_errors
from simulation.hosts import NameServerHost
from simulation.network import Network
from simulation.processes import Process
from simulation.seeds import play_seed, run_seeds
from simulation.shops import GROUP, Database, Shop

from rocketc.broker import controller, names

CHAOS_SECONDS = 60.0
QUIET_SECONDS = 180.0  # after the last fault: all that can be decided is decided
STILL_SECONDS = 60.0
DELIVERIES_MOST = 1  # of a message by one broker, over all its lives
LOOK_SECONDS = 0.25
TOPICS = ["orders", "audit"]
SETTINGS = {"transaction_check_interval": 2000, "transaction_time_out": 3000}


class Host(client_cluster.Host):
    """A broker whose committed messages are checked all the time."""

    def __init__(self, *arguments: Any, settings: dict[str, Any], database: Database) -> None:
        super().__init__(*arguments)
        self.settings, self._database = settings, database
        self._looked: dict[tuple[str, int], int] = {}  # next offset, by topic and queue
        self.delivered: dict[bytes, int] = {}  # how often
        self.given_up: set[bytes] = set()

    async def start(self) -> None:
        await super().start()
        for (topic, queue), offset in self._looked.items():
            if self.store.max_offset(topic, queue) < offset:
                self._history.fault(f"{self.name}: messages of {topic}, {queue} before {offset} are gone")

    def look_at_messages(self) -> None:
        """Check what consumers can get now."""
        for topic in TOPICS:
            found = self.broker.topics.table.get(topic)
            for queue in range(0 if found is None else found.write_queue_nums):
                offset = self._looked.get((topic, queue), 0)
                result = self.store.get(topic, queue, offset, 1000)
                for message in result.messages:
                    self._check(message, topic, queue)
                    offset = message.queue_offset + 1
                self._looked[topic, queue] = offset

    def _check(self, message: Any, topic: str, queue: int) -> None:
        key = bytes(message.body).partition(b"|")[0]
        self.delivered[key] = self.delivered.get(key, 0) + 1
        if self.delivered[key] > DELIVERIES_MOST:
            self._history.fault(f"{key!r} is delivered {self.delivered[key]} times")
        if self._database.decided.get(key) is not True:
            self._history.fault(f"{key!r} is delivered at {self._network.now():.2f}, but it is not committed")
        properties = message.properties
        place = properties.get(names.REAL_TOPIC), properties.get(names.REAL_QUEUE)
        flags = message.sys_flag & 12, properties.get(names.TRANSACTION), properties.get(names.PRODUCER_GROUP)
        if place != (topic, str(queue)) or flags != (8, "true", GROUP) or properties.get("KEYS") != key.decode():
            self._history.fault(f"{key!r} is delivered to {topic}, {queue} as {properties}, {message.sys_flag}")
        half = self.store.message(message.prepared_transaction_offset)
        if half is None or half.topic != names.HALF_TOPIC or half.body != message.body:
            self._history.fault(f"{key!r} names the half message {half!r}")

    def look_at_given_up(self) -> None:
        topic = names.CHECK_MAX_TIME_TOPIC
        for message in self.store.get(topic, 0, 0, 100_000).messages:
            self.given_up.add(bytes(message.body).partition(b"|")[0])
            if int(message.properties[names.CHECK_TIMES]) < self.settings.get("transaction_check_max", 15):
                self._history.fault(f"{self.name}: {message!r} is given up too early")


class Cluster(client_cluster.Cluster):
    """Everything of one seed."""

    def __init__(self, root: Path, seed: int) -> None:
        chance = self.chance = random.Random(seed)
        delay = chance.choice([0.0005, 0.02, 0.2])
        self.network = Network(chance, (0.0, delay))
        self.history = ClientHistory(slack=4 * delay + 0.5)
        self.history.now = self.network.now
        self.names, self._names_process = NameServerHost(self.network), Process("names")
        self.database = Database()
        self.topics = TOPICS[: chance.randint(1, 2)]
        self.may_give_up = chance.random() < 0.25
        settings = {
            **SETTINGS,
            "transaction_check_max": 3 if self.may_give_up else 100_000,
            "transaction_op_batch_interval": chance.choice([50, 3000]),
            "transaction_op_msg_max_size": chance.choice([1, 64, 4096]),
        }
        store = {"flush": chance.choice(["async", "sync"])}
        self.brokers: dict[str, Host] = {  # type: ignore[assignment]
            name: Host(
                name, root / name, self.network, self.history, store, None, settings=settings, database=self.database
            )
            for name in ["broker-a", "broker-b"][: chance.choice([1, 1, 2])]
        }
        self._addresses = {"%s:%d" % host.address: name for name, host in self.brokers.items()}
        self._where = self.network, self.history
        self._pause = chance.choice([0.3, 1.0, 4.0])
        self.groups = {GROUP: {}}
        self.producers, self.consumers, self._dead = [], [], []
        self._numbers = itertools.count()
        self._quiet_from = 0.0

    def join(self, group: str) -> None:
        self.consumers.append(self._shop(f"p{next(self._numbers)}", self._pause))  # type: ignore[arg-type]

    def _shop(self, name: str, pause: float) -> Shop:
        told: dict[str, Any] = {"topics": self.topics, "brokers": self._addresses, "database": self.database}
        shop = Shop(name, *self._where, pause=pause, **told)
        shop.start()
        return shop

    async def run(self) -> list[str]:
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: self.history.fault(f"in the loop: {context.get('exception') or context}")
        )
        await self._names_process.run(self.names.start())
        for host in self.brokers.values():
            await host.start()
        await self._make_topics()
        looking = asyncio.ensure_future(self._look())
        for _ in range(self.chance.randint(1, 3)):
            self.join(GROUP)
        await asyncio.sleep(self.chance.choice([0.5, 5.0]))
        await self._go_wrong(CHAOS_SECONDS * self.chance.choice([0.5, 1.0]))
        answering = self._shop("answers", 1e9)  # it places one order for each worker, and answers
        await asyncio.gather(*(one.leave() for one in self.consumers))
        await asyncio.sleep(max(self._quiet_from - self.network.now(), 0.0) + QUIET_SECONDS)
        self._check_ends()
        await self._check_still()
        await asyncio.gather(*(one.leave() for one in [answering, *self._dead]))
        looking.cancel()
        if looking.done() and not looking.cancelled():
            self.history.fault(f"nothing looks at the messages: {looking.exception()!r}")
        for host in self.brokers.values():
            await host.process.run(host.stop())
        await self.names.stop()
        return self.history.wrong

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for host in self.brokers.values():
                if host.is_up:
                    host.look_at_messages()

    def _check_ends(self) -> None:
        """Each committed transaction was delivered, at the broker that has its half message."""
        for host in self.brokers.values():
            host.look_at_messages()
            host.look_at_given_up()
        for key, broker in self.database.stored.items():
            host = self.brokers[broker]
            if key not in host.delivered and not (self.may_give_up and key in host.given_up):
                self.history.fault(f"{key!r} is committed, and never delivered by {broker}")
        counts = self.history.counts
        counts["delivered"] = sum(sum(host.delivered.values()) for host in self.brokers.values())
        counts["once"] = sum(len(host.delivered) for host in self.brokers.values())
        counts["given up"] = sum(len(host.given_up) for host in self.brokers.values())
        for name, count in self.database.counts.items():
            counts[name] += count

    async def _check_still(self) -> None:
        """Producers are asked no more, but for the transactions that are never decided."""

        def ends() -> dict[str, int]:
            return {name: host.store.max_offset(names.HALF_TOPIC, 0) for name, host in self.brokers.items()}

        before, kept = ends(), self.database.kept
        await asyncio.sleep(STILL_SECONDS)
        for name, host in self.brokers.items():
            offset = before[name]
            while offset < ends()[name]:
                for message in host.store.get(names.HALF_TOPIC, 0, offset, 1000).messages:
                    key = bytes(message.body).partition(b"|")[0]
                    if key not in kept and key in self.database.decided:
                        self.history.fault(f"{name} still asks about {key!r}")
                    offset = message.queue_offset + 1


def play(root: Path, seed: int) -> dict[str, Any]:
    """Run one seed in a folder; return what was wrong, and counts. The digest is the same for the same seed."""
    controller.STEP_SECONDS = 0.05  # an idle broker costs less

    async def whole() -> tuple[list[str], object, dict[str, Any]]:
        cluster = Cluster(root, seed)
        with no_errors(cluster.history):
            wrong = await cluster.run()
        counts = dict(sorted(cluster.history.counts.items()))
        told = sorted(cluster.database.decided.items()), counts
        figures = {
            "acknowledged": len(cluster.database.stored),
            "virtual": round(cluster.network.now()),
            "counts": counts,
        }
        return wrong, told, figures

    return play_seed(root, seed, whole, processes.run)


def main() -> None:
    run_seeds(play, transaction_mutants.MUTANTS)


if __name__ == "__main__":
    main()
