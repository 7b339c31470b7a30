"""A cluster on virtual time: name server, brokers, producers and consumers; a seed decides what goes wrong.

`python -m simulation.cluster FOLDER SEED...` runs seeds and prints a line of JSON for each. With crash/disk.c loaded
before libc, the first broker's machine may lose its power; without it, it does not. `--mutant NAME` breaks the broker
first, see simulation.mutants: then the first seed that finds it ends the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crash.disk import Recorder
from simulation import mutants, virtual
from simulation.clients import BEAT_SECONDS, EXPIRY_SECONDS, Consumer, Producer
from simulation.history import LOCK_SECONDS, History, Notice
from simulation.hosts import BrokerHost, NameServerHost
from simulation.network import Link, Network
from simulation.seeds import play_seed, run_seeds

from rocketc.broker import controller

CHAOS_SECONDS = 40.0
QUIET_SECONDS = 50.0  # after the last fault: all clients have connected, balanced and caught up by then
ROUTE_AT_ONCE, ROUTE_AT_LAST, ROUTE_GONE = 1.5, 70.0, 130.0  # seconds


class Errors(logging.Handler):
    """Log messages that a broker must not write."""

    def __init__(self, history: History) -> None:
        super().__init__(logging.ERROR)
        self._history = history

    def emit(self, record: logging.LogRecord) -> None:
        self._history.fault(f"logged: {self.format(record)}")


@contextlib.contextmanager
def no_errors(history: History) -> Iterator[None]:
    """Note errors that are logged meanwhile as faults."""
    logger, errors = logging.getLogger("rocketc"), Errors(history)
    logger.addHandler(errors)
    try:
        yield
    finally:
        logger.removeHandler(errors)


class Cluster:
    """Everything of one seed."""

    def __init__(self, root: Path, seed: int, recorder: Recorder | None) -> None:
        chance = self.chance = random.Random(seed)
        delay = chance.choice([0.001, 0.02, 0.2])
        self.network = Network(chance, (0.0, delay))
        self.history = History(slack=4 * delay + 0.5)
        store = {"flush": chance.choice(["sync", "sync", "async"])}
        self.names = NameServerHost(self.network)
        self.may_lose_power = recorder is not None and store["flush"] == "sync"
        self.brokers = {
            name: BrokerHost(
                name,
                root / name,
                self.network,
                self.history,
                store,
                recorder if n == 0 and self.may_lose_power else None,
            )
            for n, name in enumerate(["broker-a", "broker-b"][: chance.randint(1, 2)])
        }
        where = self.network, self.history, self.brokers
        topics = ["orders", "audit"][: chance.randint(1, 2)]
        self.producers = [
            Producer(f"p{n}", *where, topics=topics, pause=chance.choice([0.4, 1.0, 5.0]))
            for n in range(chance.randint(1, 3))
        ]
        self.groups: dict[str, dict[str, Any]] = {
            "plain": {"group": "plain", "fails": True},
            "ordered": {"group": "ordered", "orderly": True},
            "red": {"group": "red", "tag": "red"},
        }
        self.history.filters = {"red": "red"}
        self._where, self._topics = where, topics
        self.consumers: list[Consumer] = []
        self._names = iter(range(1000))
        self._watched: list[tuple[float, str, bool]] = []  # when a route was seen, of a broker, and whether it is in it
        self._quiet_from = 0.0  # when brokers have forgotten all that died, and their locks

    # clients

    def join(self, group: str) -> None:
        """Start one more consumer."""
        consumer = Consumer(f"{group}-{next(self._names)}", *self._where, topics=self._topics, **self.groups[group])
        self.consumers.append(consumer)
        mates = [one for one in self.consumers if one.group == group]
        for one in mates:
            one.mates = mates
        consumer.run()

    def leave(self, consumer: Consumer, silently: bool) -> None:
        """A consumer dies. Silently: its machine loses its power, and brokers notice it only by its heartbeats."""
        self.consumers.remove(consumer)
        consumer.mates.remove(consumer)
        now = self.network.now()
        until = now + self.history.slack + (EXPIRY_SECONDS if silently else 0.0)
        for broker in self.brokers:
            link = consumer.is_in(broker)
            if link is not None and not link.blocked:
                self._expect_leave(consumer, broker, now, until, f"{consumer.name} died")
        self._quiet_from = max(self._quiet_from, now + (EXPIRY_SECONDS if silently else LOCK_SECONDS))
        if silently:
            self.network.silence(consumer.name)
        else:
            self.network.kill(consumer.name)
        consumer.end()

    def _expect_leave(self, consumer: Consumer, broker: str, since: float, until: float, why: str) -> None:
        for other in consumer.mates:
            link = other.is_in(broker)
            if link is not None and other is not consumer:
                self.history.expect(Notice(other.name, broker, consumer.group, since, until, link, why))

    # what goes wrong

    def _faults(self) -> list[Any]:
        return [self._cut] * 4 + [self._part] * 2 + [self._stop, self._kill, self._kill, self._lose_power] + [
            self._consumer_dies, self._consumer_leaves, self._consumer_joins, self._cut_all, self._restart_names,
        ]  # fmt: skip

    async def _cut(self) -> None:
        links = [link for link in self.network.links if link.is_open and not link.blocked and link.client != "watcher"]
        if links:
            self._cut_one(self.chance.choice(links))

    def _cut_one(self, link: Link) -> None:
        now = self.network.now()
        for consumer in self.consumers:
            if consumer.is_in(link.server) is link:
                until = now + self.history.slack
                self._expect_leave(consumer, link.server, now, until, f"the connection of {consumer.name} was cut")
        self.network.cut(link)

    async def _cut_all(self) -> None:
        for link in [link for link in self.network.links if link.is_open and link.client != "watcher"]:
            self.network.cut(link)

    async def _part(self) -> None:
        peers = [*self.producers, *self.consumers]
        one = self.chance.choice([peer.name for peer in peers] + list(self.brokers))
        other = self.chance.choice(["names"] if one in self.brokers else ["names", *self.brokers])
        self.network.part(one, other)
        await asyncio.sleep(self.chance.choice([1.0, 5.0, 20.0]))
        self.network.heal(one, other)

    def _any_up(self) -> BrokerHost | None:
        up = [host for host in self.brokers.values() if host.up_since is not None]
        return self.chance.choice(up) if up else None

    async def _again(self, host: BrokerHost) -> None:
        await asyncio.sleep(self.chance.choice([0.1, 1.0, 10.0]))
        await host.start()

    async def _stop(self) -> None:
        if (host := self._any_up()) is not None:
            for link in self.network.open_links(host.name):
                self.network.trouble(link)
            await host.stop()
            await self._again(host)

    async def _kill(self) -> None:
        if (host := self._any_up()) is not None:
            host.kill()
            await self._again(host)

    async def _lose_power(self) -> None:
        host = self.brokers["broker-a"]
        if self.chance.random() < 0.5:  # at the worst moment: just after a message was acknowledged
            done = self.history.acknowledged, self.history.delayed, self.history.backs
            before = sum(map(len, done))
            for _ in range(1000):
                await asyncio.sleep(0.001)
                if sum(map(len, done)) > before:
                    break
        if self.may_lose_power and host.up_since is not None:
            host.lose_power()
            self.history.counts["power cuts"] += 1
            await asyncio.sleep(self.chance.choice([1.0, 10.0]))
            self.network.wake(host.name)
            await host.start()

    async def _restart_names(self) -> None:
        if self.names.up_since is not None:
            await self.names.stop()
            await asyncio.sleep(self.chance.choice([0.1, 5.0]))
            await self.names.start()

    async def _consumer_dies(self) -> None:
        consumer = self.chance.choice(self.consumers)
        if len(consumer.mates) > 1:
            self.leave(consumer, self.chance.random() < 0.4)

    async def _consumer_leaves(self) -> None:
        consumer = self.chance.choice(self.consumers)
        if len(consumer.mates) < 2:
            return
        self.consumers.remove(consumer)
        consumer.mates.remove(consumer)
        self._quiet_from = max(self._quiet_from, self.network.now() + LOCK_SECONDS)
        began = self.network.now()
        links = {broker: link for broker in self.brokers if (link := consumer.is_in(broker)) is not None}
        await consumer.leave()
        now = self.network.now()
        for broker, link in links.items():
            if not link.was_in_trouble(began - self.history.slack, now):
                self._expect_leave(consumer, broker, began, now + self.history.slack, f"{consumer.name} left")
        await asyncio.sleep(1.0)
        self.network.kill(consumer.name)
        consumer.end()

    async def _consumer_joins(self) -> None:
        if len(self.consumers) < 12:
            self.join(self.chance.choice(sorted(self.groups)))

    # watching

    async def _look(self) -> None:
        """Look at offsets and routes once a second."""
        watcher = Producer("watcher", *self._where, topics=[], pause=1.0)
        while True:
            await asyncio.sleep(1.0)
            for host in self.brokers.values():
                host.look()
            topic = "BenchmarkTest"
            route = await watcher.route(topic)
            brokers = {one["brokerName"] for one in route["queueDatas"]} if route is not None else set()
            if self.names.up_since is not None:
                for host in self.brokers.values():
                    self._check_route(host, host.name in brokers)

    def _check_route(self, host: BrokerHost, is_there: bool) -> None:
        now, names = self.network.now(), self.names.up_since
        assert names is not None
        link = self.network.newest.get((host.name, "names"))
        slack = self.history.slack
        if host.up_since is None and host.starts < host.down_since:
            silent = link is not None and link.blocked
            if is_there and now - host.down_since > (ROUTE_GONE if silent else 4.0) + slack:
                self.history.fault(
                    f"{now:.2f}: {host.name} is down since {host.down_since:.2f}, and still in the route"
                )
        elif host.up_since is not None and not is_there and not self.network._parts(host.name, "names"):
            trouble = self.network.troubled.get((host.name, "names"), 0.0)
            since = max(host.up_since, names, trouble)
            soon = max(names, trouble) < host.starts
            if now - since > (ROUTE_AT_ONCE if soon else ROUTE_AT_LAST) + slack:
                self.history.fault(f"{now:.2f}: {host.name} is up since {host.up_since:.2f}, and not in the route")
        self.history.counts["routes"] += 1

    # the run

    async def run(self) -> list[str]:
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: self.history.fault(f"in the loop: {context.get('exception') or context}")
        )
        await self.names.start()
        for host in self.brokers.values():
            await host.start()
        looking = asyncio.ensure_future(self._look())
        for group in self.groups:
            self.history.got[group]
            for _ in range(self.chance.randint(1, 2)):
                self.join(group)
        for producer in self.producers:
            producer.start(producer.run())
        await asyncio.sleep(self.chance.choice([0.5, 2.0, 5.0]))
        await self._go_wrong(CHAOS_SECONDS * self.chance.choice([0.5, 1.0, 2.0]))
        for producer in self.producers:
            producer.end()
        if self.chance.random() < 0.3:
            await asyncio.sleep(2 * BEAT_SECONDS)  # everyone is in its group again
            consumer = self.chance.choice(self.consumers)
            if len(consumer.mates) > 1:
                self.leave(consumer, silently=True)
        await asyncio.sleep(max(self._quiet_from - self.network.now(), 0.0) + QUIET_SECONDS)
        looking.cancel()
        for task in (*(task for one in self.consumers for task in (*one.tasks, *one._following.values())), looking):
            if task.done() and not task.cancelled() and task.exception() is not None:
                self.history.fault(f"a client failed: {task.exception()!r}")
        for one in self.consumers:
            one.end()
        await asyncio.sleep(1.0)
        for host in self.brokers.values():
            host.note_dead_letters("plain")
            await host.stop()
        await self.names.stop()
        return self.history.at_end()

    async def _go_wrong(self, seconds: float) -> None:
        end = self.network.now() + seconds
        tasks = []
        pause = self.chance.choice([2.0, 5.0, 15.0])
        faults = self._faults()
        while self.network.now() < end:
            await asyncio.sleep(self.chance.expovariate(1 / pause))
            fault = self.chance.choice(faults)
            self.history.counts[fault.__name__.strip("_")] += 1
            tasks.append(asyncio.ensure_future(fault()))
        await asyncio.gather(*tasks)


def play(root: Path, seed: int, recorder: Recorder | None) -> dict[str, Any]:
    """Run one seed in a folder; return what was wrong, and counts. The digest is the same for the same seed."""
    controller.STEP_SECONDS = 0.05  # an idle broker costs less

    async def whole() -> tuple[list[str], object, dict[str, Any]]:
        cluster = Cluster(root, seed, recorder)
        with no_errors(cluster.history):
            wrong = await cluster.run()
        history = cluster.history
        counts = dict(sorted(history.counts.items()))
        told = history.acknowledged, history.delayed, history.backs, counts
        figures = {
            "acknowledged": len(history.acknowledged),
            "delayed": len(history.delayed),
            "backs": len(history.backs),
            "virtual": round(cluster.network.now()),
            "counts": counts,
        }
        return wrong, told, figures

    return play_seed(root, seed, whole, lambda main: virtual.run(main()))


def main() -> None:
    recorder = Recorder() if hasattr(ctypes.CDLL(None), "disk_take") else None
    run_seeds(lambda folder, seed: play(folder, seed, recorder), mutants.MUTANTS)


if __name__ == "__main__":
    main()
