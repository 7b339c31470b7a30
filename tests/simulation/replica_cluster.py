"""A master, slaves and copies on virtual time; a seed decides what goes wrong between them.

`python -m simulation.replica_cluster FOLDER SEED...` runs seeds and prints a line of JSON for each. `--mutant NAME`
breaks the replication first, see simulation.replica_mutants: then the first seed that finds it ends the run.

What is checked:
- a message is acknowledged only if as many slaves have it as asked for; a copy counts for none
- the log of each slave is a piece of the log that its master has or had, byte for byte
- a slave refuses its master only after one of them was started with older files, and then it appends nothing
- at the end, all slaves that were not refused have the whole log, and every acknowledged message where it was promised
- a slave becomes master, and has these messages at the same places of the queues
"""

from __future__ import annotations

import asyncio
import logging
import random
from pathlib import Path
from typing import Any

from simulation import replica_mutants, virtual
from simulation.hosts import SMALL, wall_clock
from simulation.network import Network
from simulation.replica_hosts import MasterHost, Report, Sent, SlaveHost
from simulation.seeds import play_seed, run_seeds

import rocketc
from rocketc.errors import ReplicaError

CHAOS_SECONDS = 60.0
QUIET_SECONDS = 60.0  # after the last fault: all have connected again and caught up by then
_LONGEST = 1 << 11  # bytes of a body


class Cluster:
    """Everything of one seed."""

    def __init__(self, root: Path, seed: int) -> None:
        chance = self.chance = random.Random(seed)
        delay = chance.choice([0.001, 0.02, 0.2])
        self.network = Network(chance, (0.0, delay))
        self.report = Report()
        self.acks = chance.choice([2, 2, 2, 3])
        where = self.network, self.report
        self.master = MasterHost(self.acks, root / "master", *where)
        self.master.answered = self._check_answer  # type: ignore[method-assign]
        kinds = chance.choice([(False, False), (False, False), (False, True), (True, True), (False,)])
        self.slaves = [
            SlaveHost(f"slave-{n}", is_copy, root / f"slave-{n}", *where) for n, is_copy in enumerate(kinds, 1)
        ]
        for host in self.slaves:
            host.refused = self._check_refusal(host)  # type: ignore[method-assign]
        self.may_roll_back = chance.random() < 0.4
        self._largest = chance.choice([100, 1000, _LONGEST])  # bytes of a body
        self._root = root

    # checks

    def _check_answer(self, sent: Sent) -> None:
        self.report.counts[sent.status.name] += 1
        if sent.status != 0:
            return
        have = [one for one in self.slaves if not one.is_copy and self._had(one, sent)]
        if len(have) < self.acks - 1:
            self.report.fault(f"{self.network.now():.2f}: {sent.end} is acknowledged, and {len(have)} slaves have it")

    def _had(self, host: SlaveHost, sent: Sent) -> bool:
        """Whether a slave has a message, or had it before it was rolled back."""
        return host.has(sent) or any(at >= sent.at and end >= sent.end for at, end in host.ends)

    def _check_refusal(self, host: SlaveHost) -> Any:
        def refused(error: ReplicaError) -> None:
            if max(self.master.rolled_back, host.rolled_back) < 0:
                self.report.fault(f"{self.network.now():.2f}: {host.name} refuses its master: {error}")

        return refused

    def _check_logs(self, host: SlaveHost) -> None:
        """The log of a slave is a piece of one that its master has or had."""
        log = host.read()
        logs = [(self.master.read(), self.master.first), *((log, first) for first, log in self.master.logs)]
        for whole, first in logs:
            at = host.first - first
            if not log or (at >= 0 and whole[at : at + len(log)] == log):
                return
        self.report.fault(f"{self.network.now():.2f}: the log of {host.name} is not a piece of its master's")

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(2.0)
            for host in self.slaves:
                if host.is_up:
                    self._check_logs(host)
            one = self.chance.choice([self.master, *self.slaves])
            if one.is_up and self.may_roll_back and self.chance.random() < 0.2:
                one.copy()

    # what goes wrong

    def _faults(self) -> list[Any]:
        return [self._cut] * 4 + [self._part] * 2 + [self._slow, self._kill_slave, self._kill_slave, self._kill_master]

    async def _cut(self) -> None:
        links = [link for link in self.network.links if link.is_open and not link.blocked]
        if links:
            self.network.cut(self.chance.choice(links))

    async def _part(self) -> None:
        host = self.chance.choice(self.slaves)
        self.network.part(host.name, "master")
        await asyncio.sleep(self.chance.choice([1.0, 5.0, 30.0]))
        self.network.heal(host.name, "master")

    async def _slow(self) -> None:
        links = [link for link in self.network.links if link.is_open]
        if links:
            self.network.slow(self.chance.choice(links), (0.0, 1.0))

    async def _kill_slave(self) -> None:
        host = self.chance.choice(self.slaves)
        if not host.is_up:
            return
        await host.kill()
        await asyncio.sleep(self.chance.choice([0.1, 1.0, 10.0]))
        if host.older and self.chance.random() < 0.3:
            host.ends.append((self.network.now(), host.end))
            host.roll_back(self.chance.choice([*host.older, {}]))
            self.report.counts["slaves rolled back"] += 1
        await host.start()

    async def _kill_master(self) -> None:
        host = self.master
        if not host.is_up:
            return
        host.kill()
        await asyncio.sleep(self.chance.choice([0.1, 1.0, 10.0]))
        if host.older and self.chance.random() < 0.3:
            host.roll_back(self.chance.choice(host.older))
            self.report.counts["masters rolled back"] += 1
        await self._start_master()

    async def _start_master(self) -> None:
        await self.master.start()
        self.master.produce(self.chance.choice([0.2, 0.5, 2.0]), self._largest)

    # the run

    async def run(self) -> list[str]:
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: self.report.fault(f"in the loop: {context.get('exception') or context}")
        )
        await self._start_master()
        await asyncio.sleep(self.chance.choice([0.0, 3.0, 30.0]))
        for host in self.slaves:
            await host.start()
        looking = asyncio.ensure_future(self._look())
        await self._go_wrong(CHAOS_SECONDS * self.chance.choice([0.5, 1.0, 2.0]))
        for task in self.master._tasks[1:]:
            task.cancel()  # the producers
        await asyncio.sleep(QUIET_SECONDS)
        looking.cancel()
        if looking.done() and not looking.cancelled() and looking.exception() is not None:
            self.report.fault(f"the checks failed: {looking.exception()!r}")
        self._check_end()
        for host in self.slaves:
            await host.stop()
        await self.master.stop()
        for host in self.slaves:
            if not host.has_ended:
                self._fail_over(host)
        return self.report.wrong

    async def _go_wrong(self, seconds: float) -> None:
        end = self.network.now() + seconds
        tasks, faults, pause = [], self._faults(), self.chance.choice([2.0, 5.0, 15.0])
        while self.network.now() < end:
            await asyncio.sleep(self.chance.expovariate(1 / pause))
            fault = self.chance.choice(faults)
            self.report.counts[fault.__name__.strip("_")] += 1
            tasks.append(asyncio.ensure_future(fault()))
        await asyncio.gather(*tasks)

    def _check_end(self) -> None:
        for host in self.slaves:
            self._check_logs(host)
            if not host.has_ended and host.end != self.master.end:
                self.report.fault(f"{host.name} has the log up to {host.end}, the master up to {self.master.end}")
        if all(host.is_copy for host in self.slaves) and self.report.acknowledged:
            self.report.fault(f"{len(self.report.acknowledged)} messages are acknowledged, and there are only copies")

    def _fail_over(self, host: SlaveHost) -> None:
        """The slave becomes the master. It has each message that was acknowledged since the last roll-back."""
        since = max(self.master.rolled_back, host.rolled_back)
        with rocketc.open(host.root, background=False, clock=wall_clock, **SMALL) as store:
            while store.step():
                pass
            for sent in self.report.acknowledged:
                if sent.at > since and sent.start >= store.min_phy_offset:
                    found = store.get("orders", sent.queue_id, sent.queue_offset, 1).messages
                    if not found or found[0].body != sent.body or found[0].phy_offset != sent.start:
                        self.report.fault(f"{host.name} as master: the message at {sent.start} is not there")
            store.put("orders", b"from the new master")
        self.report.counts["fail-overs"] += 1


def play(root: Path, seed: int) -> dict[str, Any]:
    """Run one seed in a folder; return what was wrong, and counts. The digest is the same for the same seed."""
    logging.getLogger("rocketc").setLevel(logging.CRITICAL)

    async def whole() -> tuple[list[str], object, dict[str, Any]]:
        cluster = Cluster(root, seed)
        wrong = await cluster.run()
        report = cluster.report
        counts = dict(sorted(report.counts.items()))
        told = report.sent, counts
        figures = {
            "sent": len(report.sent),
            "acknowledged": len(report.acknowledged),
            "log": cluster.master.end,
            "virtual": round(cluster.network.now()),
            "counts": counts,
        }
        return wrong, told, figures

    return play_seed(root, seed, whole, lambda main: virtual.run(main()))


def main() -> None:
    run_seeds(play, replica_mutants.MUTANTS)


if __name__ == "__main__":
    main()
