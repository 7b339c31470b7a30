"""A broker with timed messages on virtual time; a seed decides what goes wrong, also with its clock.

A message is delivered when it is due: never earlier, at least once, and once if no kill and no lost time explains a
second copy. One that was taken back in time is never delivered. `python -m simulation.timed_cluster FOLDER SEED...`
runs seeds and prints a line of JSON for each. With crash/disk.c loaded before libc, the machine may lose its power.
`--mutant NAME` breaks the broker first, see simulation.timed_mutants.
"""

from __future__ import annotations

import asyncio
import ctypes
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from crash.disk import Recorder
from simulation import timed_mutants, virtual
from simulation.cluster import no_errors
from simulation.history import History
from simulation.hosts import NameServerHost
from simulation.network import Network
from simulation.seeds import play_seed, run_seeds
from simulation.timed_clients import TimedClient
from simulation.timed_history import HOUR, MINUTE, SECOND, TimedHistory
from simulation.timed_hosts import TimedHost

from rocketc.broker import controller

CHAOS_SECONDS = 40.0
LOOK_SECONDS = 0.25
SETTLE_SECONDS = 6.0  # after a change of the clock, or a start: the broker has delivered by then
DAY = 24 * HOUR
FORWARD = 2 * SECOND, 20 * SECOND, 5 * MINUTE, HOUR
BACK = SECOND, 3 * SECOND, 20 * SECOND, 5 * MINUTE


class TimedCluster:
    """Everything of one seed."""

    def __init__(self, root: Path, seed: int, recorder: Recorder | None) -> None:
        chance = self.chance = random.Random(seed)
        delay = chance.choice([0.001, 0.02, 0.2])
        self.network = Network(chance, (0.0, delay))
        self.history = History(slack=4 * delay + 0.5)
        self.names = NameServerHost(self.network)
        flush = chance.choice(["sync", "async"])
        may_lose_power = chance.random() < 0.2 and flush == "sync" and recorder is not None
        most = chance.choice([3 * DAY, 3 * DAY, 30 * DAY])
        settings = {
            "recall_message_enable": True,
            "timer_max_delay_sec": most // SECOND,
            "timer_roll_window_slot": chance.choice([9, 3600, 172_800]),
            "mapped_file_size_timer_log": chance.choice([4096, 1 << 16]),
        }
        self.timed = TimedHistory(self.history, self.network.now, int(settings["timer_roll_window_slot"]) * SECOND)
        self.has_jumps = chance.random() < 0.7
        store = {"flush": flush, "file_reserved_time": 100_000}
        where = "broker-a", root / "broker-a", self.network, self.history
        self.host = TimedHost(*where, store, recorder if may_lose_power else None, self.timed, settings)
        self.timed.clock = self.host.clock
        self.may_lose_power = may_lose_power
        self.clients = [
            TimedClient(
                f"p{n}", self.network, self.history, {"broker-a": self.host}, timed=self.timed, most=most,
                pause=chance.choice([0.3, 1.0]),
            )
            for n in range(chance.randint(1, 3))
        ]  # fmt: skip

    # what goes wrong

    def _faults(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        jumps = [self._forward, self._back] if self.has_jumps else []
        return [self._cut, self._part, self._stop, self._kill, self._kill, self._lose_power, *jumps]

    async def _cut(self) -> None:
        for link in self.network.open_links("broker-a"):
            self.network.cut(link)

    async def _part(self) -> None:
        client = self.chance.choice(self.clients).name
        self.network.part(client, "broker-a")
        await asyncio.sleep(self.chance.choice([1.0, 5.0]))
        self.network.heal(client, "broker-a")

    async def _down(self, most: float) -> None:
        """Wait until the broker starts again; its clock may change meanwhile."""
        await asyncio.sleep(self.chance.choice([0.1, 1.0, most]))
        if self.has_jumps and self.chance.random() < 0.2:
            self.host.jump(self.chance.choice([self.chance.choice(FORWARD), -self.chance.choice(BACK)]))

    async def _stop(self) -> None:
        if self.host.up_since is not None:
            for link in self.network.open_links("broker-a"):
                self.network.trouble(link)
            await self.host.stop()
            await self._down(10.0)
            await self.host.start()

    async def _kill(self) -> None:
        if self.host.up_since is not None:
            self.host.kill()
            await self._down(10.0)
            await self.host.start()

    async def _lose_power(self) -> None:
        if self.may_lose_power and self.host.up_since is not None:
            self.history.counts["power cuts"] += 1
            self.host.lose_power()
            await self._down(10.0)
            self.network.wake("broker-a")
            await self.host.start()

    async def _forward(self) -> None:
        self.host.jump(self.chance.choice(FORWARD))

    async def _back(self) -> None:
        self.host.jump(-self.chance.choice(BACK))

    # the run

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.host.look_at_messages()

    async def run(self) -> list[str]:
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: self.history.fault(f"in the loop: {context.get('exception') or context}")
        )
        await self.names.start()
        await self.host.start()
        looking = asyncio.ensure_future(self._look())
        for client in self.clients:
            client.start(client.run())
        await asyncio.sleep(self.chance.choice([0.5, 5.0]))
        await self._go_wrong(CHAOS_SECONDS * self.chance.choice([0.5, 1.0]))
        for client in self.clients:
            client.is_done = True
        await self._pass_days()
        self.host.look_at_messages()
        self.timed.at_end()
        for task in (looking, *(task for client in self.clients for task in client.tasks)):
            if task.done() and not task.cancelled() and task.exception() is not None:
                self.history.fault(f"a task failed: {task.exception()!r}")
        looking.cancel()
        for client in self.clients:
            client.end()
        await asyncio.sleep(1.0)
        await self.host.stop()
        await self.names.stop()
        return self.history.wrong

    async def _go_wrong(self, seconds: float) -> None:
        end = self.network.now() + seconds
        tasks = []
        pause = self.chance.choice([2.0, 5.0, 15.0])
        while self.network.now() < end:
            await asyncio.sleep(self.chance.expovariate(1 / pause))
            await self._one_fault(tasks)
        await asyncio.gather(*tasks)

    async def _one_fault(self, tasks: list[asyncio.Future[None]]) -> None:
        fault = self.chance.choice(self._faults())
        self.history.counts[fault.__name__.strip("_")] += 1
        tasks.append(asyncio.ensure_future(fault()))

    async def _pass_days(self) -> None:
        """Set the clock forward until all messages are due; broker or machine may end now and then."""
        await asyncio.sleep(2 * SETTLE_SECONDS)
        while (waiting := self.timed.waiting()) > self.host.clock():
            left = waiting - self.host.clock()
            self.host.jump(min(left, self.chance.choice([MINUTE, HOUR, 9 * HOUR, DAY, 5 * DAY])))
            await asyncio.sleep(SETTLE_SECONDS)
            if self.chance.random() < 0.15:
                await self.chance.choice([self._stop, self._kill, self._lose_power])()
                await asyncio.sleep(SETTLE_SECONDS)
        await asyncio.sleep(2 * SETTLE_SECONDS)


def play(root: Path, seed: int, recorder: Recorder | None) -> dict[str, Any]:
    """Run one seed in a folder; return what was wrong, and counts. The digest is the same for the same seed."""
    controller.STEP_SECONDS = 0.05  # an idle broker costs less

    async def whole() -> tuple[list[str], object, dict[str, Any]]:
        cluster = TimedCluster(root, seed, recorder)
        with no_errors(cluster.history):
            wrong = await cluster.run()
        timed, counts = cluster.timed, dict(sorted(cluster.history.counts.items()))
        told = timed.sent, timed.copies, counts
        figures = {
            "acknowledged": sum(one.is_acknowledged for one in timed.sent.values()),
            "virtual": round(cluster.network.now()),
            "days": round((cluster.host.ahead / DAY), 1),
            "counts": counts,
        }
        return wrong, told, figures

    return play_seed(root, seed, whole, lambda main: virtual.run(main()))


def main() -> None:
    recorder = Recorder() if hasattr(ctypes.CDLL(None), "disk_take") else None
    run_seeds(lambda folder, seed: play(folder, seed, recorder), timed_mutants.MUTANTS)


if __name__ == "__main__":
    main()
