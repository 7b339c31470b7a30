"""How long a queue has two owners, on virtual time: brokers restart, forwarders accept and close, owners are cut off.

`python -m simulation.owners FOLDER SEED...` runs seeds and prints a line of JSON for each. `--mutant NAME` breaks
client or broker first, see simulation.owner_mutants. A seed gives the same run if PYTHONHASHSEED is set.

A queue of an orderly member is its own while its listener works on it, or may begin: while its lock counts. A queue of
another member is its own while it is pulled.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

from simulation import owner_mutants, processes
from simulation.client_cluster import SETUP, STRATEGIES, Host
from simulation.client_history import ClientHistory
from simulation.cluster import no_errors
from simulation.history import Queue
from simulation.hosts import NameServerHost
from simulation.members import Consumer, Producer
from simulation.network import Network
from simulation.processes import Process
from simulation.seeds import play_seed, run_seeds

from rocketc.broker import controller
from rocketc.remoting.channel import Channel

TWO_OWNERS_SECONDS = 2.4  # after a restart, as with Java's clients
SETTLED_SECONDS = 55.0  # after a fault: members have read the routes, and divided the queues again
LOCK_SECONDS = 60.0  # after which the lock of any owner is free
LOOK_SECONDS = 0.05
TOPIC = "orders"


class Closing(asyncio.Protocol):
    """What a forwarder does while its broker is down: it accepts connections, and closes them."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class Owners:
    """Looks at the owners of all queues, again and again."""

    def __init__(self, members: list[Consumer], network: Network) -> None:
        self._members, self._network = members, network
        self.seconds: dict[str, dict[Queue, float]] = {}  # with two owners, by group and queue, since begin()
        self.begin()

    def begin(self) -> None:
        self.seconds = defaultdict(lambda: defaultdict(float))

    async def watch(self) -> None:
        while True:
            for group, owners in self.owners().items():
                for queue, names in owners.items():
                    if len(names) > 1:
                        self.seconds[group][queue] += LOOK_SECONDS
            await asyncio.sleep(LOOK_SECONDS)

    def owners(self) -> dict[str, dict[Queue, list[str]]]:
        """The members that work on each queue, by group."""
        found: dict[str, dict[Queue, list[str]]] = defaultdict(lambda: defaultdict(list))
        for member in self._members:
            if not member.is_dead:
                for queue in _worked_on(member, int(1000 * self._network.now())):
                    found[member.group][queue].append(member.name)
        return found

    def worst(self, group: str) -> float:
        return max(self.seconds[group].values(), default=0.0)


def _worked_on(member: Consumer, now: int) -> list[Queue]:
    core, found = member.core, []
    for queue, one in [] if core is None else core._member.owned.items():
        held = one.process_queue
        may_begin = not held.is_dropped and held.is_locked and not held.is_lock_expired(now)
        works = (may_begin or one.consuming.locked()) if member.group == "ordered" else not held.is_dropped
        if works:
            found.append((queue.broker_name, queue.topic, queue.queue_id))
    return found


class Cluster:
    """Everything of one seed."""

    def __init__(self, root: Path, seed: int) -> None:
        chance = self.chance = random.Random(seed)
        self.network = Network(chance, (0.0, chance.choice([0.0005, 0.02])))
        self.history = ClientHistory(slack=1.0)
        self.history.now = self.network.now
        self.names, self._names_process = NameServerHost(self.network), Process("names")
        self.brokers = {
            name: Host(name, root / name, self.network, self.history, {"flush": "async"}, None)
            for name in ["broker-a", "broker-b"][: chance.choice([1, 1, 2])]
        }
        where = self.network, self.history
        addresses = {"%s:%d" % host.address: name for name, host in self.brokers.items()}
        strategy = chance.choice(STRATEGIES)
        self.members = [
            Consumer(
                f"{group}-{n}", *where, group=group, topics=[TOPIC], brokers=addresses, strategy=strategy,
                orderly=group == "ordered",
            )
            for group in ("plain", "ordered")
            for n in range(chance.randint(2, 4))
        ]  # fmt: skip
        self.producer = Producer("p0", *where, topics=[TOPIC], pause=2.0)
        self.owners = Owners(self.members, self.network)
        self.has_forwarder = chance.random() < 0.5
        self.is_mixed = chance.random() < 0.5  # some members believe each list at once, as Java's clients
        self.worst: dict[str, float] = defaultdict(float)  # seconds with two owners, by fault and group

    # what goes wrong

    async def _restart(self) -> None:
        """A broker restarts."""
        host = self.chance.choice(list(self.brokers.values()))
        if self.chance.random() < 0.5:
            await host.process.run(host.stop())
        else:
            host.kill()
        if self.has_forwarder:
            self.network.listen(host.address, host.name, Closing)
        await asyncio.sleep(self.chance.choice([0.1, 1.0, 4.0, 12.0, 35.0]))
        self.owners.begin()
        await host.start()
        await asyncio.sleep(SETTLED_SECONDS)
        self._check("restart", {"plain": TWO_OWNERS_SECONDS, "ordered": TWO_OWNERS_SECONDS})

    async def _cut_off(self) -> None:
        """An orderly member does not reach a broker any more; the broker may notice it, or not."""
        member = self.chance.choice([one for one in self.members if one.group == "ordered"])
        host = self.chance.choice(list(self.brokers.values()))
        if self.chance.random() < 0.4:  # its locks went with the life before
            host.kill()
            await asyncio.sleep(1.0)
            await host.start()
            await asyncio.sleep(self.chance.uniform(4.0, 12.0))
        links = self.network.open_links(member.name, host.name)
        if links and self.chance.random() < 0.5:  # its last lock may be answered late
            for link in links:
                self.network.slow(link, (0.5, 2.9))
            await asyncio.sleep(self.chance.uniform(15.0, 40.0))
        self.owners.begin()
        self.network.part(member.name, host.name)
        if self.chance.random() < 0.7:
            for link in links:
                link.far.is_blocked = False
                link.far._end(ConnectionResetError("cut"))
        await asyncio.sleep(self.chance.choice([1.0, 10.0, 40.0, 70.0]))
        self.network.heal(member.name, host.name)
        await asyncio.sleep(LOCK_SECONDS + SETTLED_SECONDS)
        self._check("cut_off", {"ordered": 0.0})

    async def _cut(self) -> None:
        """Connections are cut, and both ends hear of it."""
        self.owners.begin()
        for link in self.network.links:
            if link.is_open and link.server in self.brokers and self.chance.random() < 0.3:
                self.network.cut(link)
        await asyncio.sleep(SETTLED_SECONDS)
        self._check("cut", {"ordered": 0.0})

    def _check(self, fault: str, allowed: dict[str, float]) -> None:
        self.history.counts[fault] += 1
        for group, most in allowed.items():
            worst = round(self.owners.worst(group), 2)
            self.worst[f"{fault} {group}"] = max(worst, self.worst[f"{fault} {group}"])
            if worst > most:
                self.history.fault(
                    f"{self.network.now():.1f}, after {fault}: {group} had a queue with two owners for {worst} s"
                )

    # the run

    async def run(self) -> list[str]:
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: self.history.fault(f"in the loop: {context.get('exception') or context}")
        )
        await self._names_process.run(self.names.start())
        for host in self.brokers.values():
            await host.start()
            await self._make_topic(host)
        for member in self.members:
            member.start()
        self.producer.start()
        await asyncio.sleep(SETTLED_SECONDS)
        if self.is_mixed:
            self._make_hasty(self.chance.sample(self.members, 2))
        watching = asyncio.ensure_future(self.owners.watch())
        for fault in self.chance.choices([self._restart, self._restart, self._cut_off, self._cut], k=3):
            await fault()
            self._check_each_owner(fault.__name__)
        watching.cancel()
        await asyncio.gather(*(one.leave() for one in [self.producer, *self.members]))
        for host in self.brokers.values():
            await host.process.run(host.stop())
        await self.names.stop()
        return self.history.wrong

    def _make_hasty(self, members: list[Consumer]) -> None:
        for member in members:
            assert member.core is not None
            member.core._instance.heartbeats.settled_at = lambda address: 0.0  # type: ignore[method-assign]

    async def _make_topic(self, host: Host) -> None:
        channel = Channel(self.network.connector("setup")(*host.address), self.chance)
        await channel.call(17, {**SETUP, "topic": TOPIC}, self.network.now() + 10)
        channel.close()

    def _check_each_owner(self, when: str) -> None:
        owners = self.owners.owners()
        for group in ("plain", "ordered"):
            for host in self.brokers.values():
                for n in range(host.broker.topics.table[TOPIC].read_queue_nums):
                    if len(found := owners[group][host.name, TOPIC, n]) != 1:
                        self.history.fault(f"after {when}, the owners of {n} of {host.name} in {group} are {found}")


def play(root: Path, seed: int) -> dict[str, Any]:
    """Run one seed in a folder; return what was wrong, and the seconds with two owners."""
    controller.STEP_SECONDS = 0.2  # an idle broker costs less

    async def whole() -> tuple[list[str], object, dict[str, Any]]:
        cluster = Cluster(root, seed)
        with no_errors(cluster.history):
            wrong = await cluster.run()
        told = dict(sorted(cluster.worst.items())), len(cluster.history.acknowledged)
        counts = dict(sorted(cluster.history.counts.items()))
        return wrong, told, {"two owners": told[0], "acknowledged": told[1], "counts": counts}

    return play_seed(root, seed, whole, processes.run)


def main() -> None:
    run_seeds(play, owner_mutants.MUTANTS)


if __name__ == "__main__":
    main()
