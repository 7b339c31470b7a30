"""A cluster on virtual time with rocketc.client in it: producers and groups; a seed decides what goes wrong.

`python -m simulation.client_cluster FOLDER SEED...` runs seeds and prints a line of JSON for each. `--mutant NAME`
breaks the client first, see simulation.client_mutants: then the first seed that finds it ends the run. A seed
gives the same run if PYTHONHASHSEED is set.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from pathlib import Path
from typing import Any

from simulation import client_mutants, processes
from simulation.client_history import ClientHistory
from simulation.cluster import no_errors
from simulation.hosts import BrokerHost, NameServerHost
from simulation.members import Consumer, Member, Producer, Reader
from simulation.network import Network
from simulation.processes import Process
from simulation.seeds import play_seed, run_seeds

from rocketc.broker import controller
from rocketc.remoting.channel import Channel

CHAOS_SECONDS = 60.0
EXPIRY_SECONDS = 130.0  # after which brokers have forgotten a client that is silent
QUIET_SECONDS = 130.0  # after the last fault: routes, groups and locks are as they shall be, and all is consumed
STRATEGIES = ["AVG", "AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"]
SETUP = {
    "defaultTopic": "TBW102", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6, "topicFilterType": "SINGLE_TAG",
}  # fmt: skip


class Host(BrokerHost):
    """A broker that may hang."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.process = Process(self.name)

    async def start(self) -> None:
        if self.life:  # its locks went with the life before
            self._history.troubles[self.name].append(self._network.now())
        await self.process.run(super().start())

    def _watch_commits(self) -> None:
        super()._watch_commits()
        commit = self.broker.offsets.commit

        def watched(group: str, topic: str, queue_id: int, offset: int) -> None:
            self._history.committed(group, (self.name, topic, queue_id), offset, self.name)
            commit(group, topic, queue_id, offset)

        self.broker.offsets.commit = watched  # type: ignore[method-assign]

    @property
    def is_up(self) -> bool:
        return self.up_since is not None and not self.process.hangs


class Cluster:
    """Everything of one seed."""

    def __init__(self, root: Path, seed: int) -> None:
        chance = self.chance = random.Random(seed)
        delay = chance.choice([0.0005, 0.02, 0.2])
        self.network = Network(chance, (0.0, delay))
        self.history = ClientHistory(slack=4 * delay + 0.5)
        self.history.now = self.network.now
        self.names, self._names_process = NameServerHost(self.network), Process("names")
        self.brokers = {
            name: Host(name, root / name, self.network, self.history, {"flush": "async"}, None)
            for name in ["broker-a", "broker-b"][: chance.choice([1, 2, 2])]
        }
        self._addresses = {"%s:%d" % host.address: name for name, host in self.brokers.items()}
        self.topics = ["orders", "audit"][: chance.randint(1, 2)]
        self._where = self.network, self.history
        pauses = [0.6, 2.0, 6.0]
        self.producers = [
            Producer(f"p{n}", *self._where, topics=self.topics, pause=chance.choice(pauses))
            for n in range(chance.randint(1, 2))
        ]
        self.groups: dict[str, dict[str, Any]] = {
            "plain": {"fails": 0.05, "slow": chance.choice([0, 2])},
            "ordered": {"orderly": True, "fails": 0.05},
            "read": {},
        }
        for group in self.groups.values():
            group["strategy"] = chance.choice(STRATEGIES)
        self.consumers: list[Consumer] = []
        self._dead: list[Member] = []
        self._numbers = itertools.count()
        self._quiet_from = 0.0

    # members

    def join(self, group: str) -> None:
        kind = Reader if group == "read" else Consumer
        member = kind(
            f"{group}-{next(self._numbers)}", *self._where, group=group, topics=self.topics, brokers=self._addresses,
            **self.groups[group],
        )  # fmt: skip
        self.consumers.append(member)
        member.start()

    def _any_member(self, spare: bool = False) -> Member | None:
        """A member of a group, or a producer. spare: only of a group with others"""
        found = [
            one
            for one in [*self.consumers, *([] if spare else self.producers)]
            if not one.process.hangs and (not spare or sum(other.group == one.group for other in self.consumers) > 1)
        ]
        return self.chance.choice(found) if found else None

    # what goes wrong

    def _faults(self) -> list[Any]:
        return [
            *[self._cut] * 3, *[self._slow] * 2, *[self._part] * 3, self._cut_all, self._stop_broker,
            *[self._kill_broker] * 2, self._broker_hangs, self._restart_names, *[self._member_hangs] * 2,
            self._member_dies, self._member_leaves, *[self._member_joins] * 2,
        ]  # fmt: skip

    async def _cut(self) -> None:
        links = [link for link in self.network.links if link.is_open and not link.blocked]
        if links:
            self.network.cut(self.chance.choice(links))

    async def _cut_all(self) -> None:
        for link in [link for link in self.network.links if link.is_open]:
            self.network.cut(link)

    async def _slow(self) -> None:
        links = [link for link in self.network.links if link.is_open and not link.blocked]
        if links:
            link = self.chance.choice(links)
            self.network.slow(link, (0.1, self.chance.choice([0.5, 2.0, 6.0])))
            await asyncio.sleep(self.chance.choice([5.0, 30.0]))
            self.network.slow(link, self.network.delay)

    async def _part(self) -> None:
        one = self.chance.choice([peer.name for peer in [*self.producers, *self.consumers]] + list(self.brokers))
        other = self.chance.choice(["names"] if one in self.brokers else ["names", *self.brokers])
        self.network.part(one, other)
        await asyncio.sleep(self.chance.choice([1.0, 5.0, 20.0, 70.0]))
        self.network.heal(one, other)

    def _any_broker(self) -> Host | None:
        up = [host for host in self.brokers.values() if host.is_up]
        return self.chance.choice(up) if up else None

    async def _again(self, host: Host) -> None:
        await asyncio.sleep(self.chance.choice([0.1, 1.0, 10.0]))
        await host.start()

    async def _stop_broker(self) -> None:
        if (host := self._any_broker()) is not None:
            await host.process.run(host.stop())
            await self._again(host)

    async def _kill_broker(self) -> None:
        if (host := self._any_broker()) is not None:
            host.kill()
            await self._again(host)

    async def _broker_hangs(self) -> None:
        if (host := self._any_broker()) is not None:
            host.process.hang()
            await asyncio.sleep(self.chance.choice([1.0, 5.0, 20.0]))
            host.process.go_on()

    async def _restart_names(self) -> None:
        if self.names.up_since is not None:
            await self.names.stop()
            await asyncio.sleep(self.chance.choice([0.1, 5.0, 20.0]))
            await self._names_process.run(self.names.start())

    async def _member_hangs(self) -> None:
        if (member := self._any_member()) is not None:
            member.hang()
            await asyncio.sleep(self.chance.choice([1.0, 10.0, 70.0]))
            member.go_on()

    async def _member_dies(self) -> None:
        if (member := self._any_member(spare=True)) is not None:
            self.consumers.remove(member)  # type: ignore[arg-type]
            self._dead.append(member)
            member.die(silently := self.chance.random() < 0.5)
            self._quiet_from = max(self._quiet_from, self.network.now() + (EXPIRY_SECONDS if silently else 60.0))

    async def _member_leaves(self) -> None:
        if (member := self._any_member(spare=True)) is not None:
            self.consumers.remove(member)  # type: ignore[arg-type]
            await member.leave()

    async def _member_joins(self) -> None:
        if len(self.consumers) < 9:
            self.join(self.chance.choice(sorted(self.groups)))

    # the run

    async def run(self) -> list[str]:
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: self.history.fault(f"in the loop: {context.get('exception') or context}")
        )
        await self._names_process.run(self.names.start())
        for host in self.brokers.values():
            await host.start()
        if self.chance.random() < 0.7:
            await self._make_topics()
        members = [group for group in self.groups for _ in range(self.chance.randint(1, 2))]
        for group in members:
            self.history.consumed[group], self.history.done[group]  # it must consume all, also if it consumes nothing
            self.join(group)
        for producer in self.producers:
            producer.start()
        await asyncio.sleep(self.chance.choice([0.5, 5.0]))
        await self._go_wrong(CHAOS_SECONDS * self.chance.choice([0.5, 1.0, 2.0]))
        await asyncio.gather(*(producer.leave() for producer in self.producers))
        await asyncio.sleep(max(self._quiet_from - self.network.now(), 0.0) + QUIET_SECONDS)
        self._check_owners()
        await asyncio.gather(*(one.leave() for one in [*self.consumers, *self._dead]))
        self._check_offsets()
        for host in self.brokers.values():
            await host.process.run(host.stop())
        await self.names.stop()
        return self.history.at_end()

    async def _make_topics(self) -> None:
        for host in self.brokers.values():
            channel = Channel(self.network.connector("setup")(*host.address), self.chance)
            for topic in self.topics:
                await channel.call(17, {**SETUP, "topic": topic}, self.network.now() + 10)
            channel.close()

    async def _go_wrong(self, seconds: float) -> None:
        end, tasks = self.network.now() + seconds, []
        pause, faults = self.chance.choice([2.0, 5.0, 15.0]), self._faults()
        while self.network.now() < end:
            await asyncio.sleep(self.chance.expovariate(1 / pause))
            fault = self.chance.choice(faults)
            self.history.counts[fault.__name__.strip("_")] += 1
            tasks.append(asyncio.ensure_future(fault()))
        await asyncio.gather(*tasks)

    def _check_owners(self) -> None:
        """Each queue belongs to one member of each group."""
        for group in self.groups:
            owners: dict[Any, list[str]] = {}
            for member in [one for one in self.consumers if one.group == group]:
                for queue in member.owned:
                    owners.setdefault(queue, []).append(member.name)
            for queue in self._queues(group):
                if len(found := owners.pop(queue, [])) != 1:
                    self.history.fault(f"{group}: the owners of {queue} are {found}")
            if owners:
                self.history.fault(f"{group} has queues that do not exist: {owners}")

    def _queues(self, group: str) -> list[Any]:
        """All queues that a group reads."""
        return [
            (host.name, topic, n)
            for host in self.brokers.values()
            for topic in [*self.topics, f"%RETRY%{group}"]
            if topic in host.broker.topics.table
            for n in range(host.broker.topics.table[topic].read_queue_nums)
        ]

    def _check_offsets(self) -> None:
        """Each group has committed all messages."""
        for group in self.groups:
            for queue in self._queues(group):
                host = self.brokers[queue[0]]
                most = host.store.max_offset(queue[1], queue[2])
                offset = host._table().get((queue[1], group, queue[2]), 0)
                if offset != most:
                    self.history.fault(f"at the end, the offset of {group} in {queue} is {offset}, not {most}")
                self.history.counts["queues"] += 1


def play(root: Path, seed: int) -> dict[str, Any]:
    """Run one seed in a folder; return what was wrong, and counts. The digest is the same for the same seed."""
    controller.STEP_SECONDS = 0.05  # an idle broker costs less

    async def whole() -> tuple[list[str], object, dict[str, Any]]:
        cluster = Cluster(root, seed)
        with no_errors(cluster.history):
            wrong = await cluster.run()
        history = cluster.history
        counts = dict(sorted(history.counts.items()))
        told = history.acknowledged, counts
        figures = {
            "acknowledged": len(history.acknowledged),
            "virtual": round(cluster.network.now()),
            "counts": counts,
        }
        return wrong, told, figures

    return play_seed(root, seed, whole, processes.run)


def main() -> None:
    run_seeds(play, client_mutants.MUTANTS)


if __name__ == "__main__":
    main()
