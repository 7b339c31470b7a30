"""Processes of a simulated cluster with a producer of transactions, and the database that they share."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from simulation.members import SEND_MS, Member

from rocketc.client import AsyncTransactionProducer
from rocketc.errors import RocketcError

GROUP = "shop"
RUN_SECONDS = 0.0, 0.0, 0.05, 1.0, 12.0  # of local transactions


@dataclass
class Database:
    """What the local transactions have stored. It outlives the processes.

    decided  True: committed; False: it never will be
    kept     True: the check does not know about them, and never will
    running  the process of each local transaction that runs
    stored   the broker that has the half message of each one that is committed
    """

    decided: dict[bytes, bool] = field(default_factory=dict)
    kept: set[bytes] = field(default_factory=set)
    running: dict[bytes, Shop] = field(default_factory=dict)
    stored: dict[bytes, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def commit(self, key: bytes, broker: str) -> bool:
        """Commit a local transaction; False: a check has refused it before."""
        if self.decided.setdefault(key, True):
            self.stored[key] = broker
        return self.decided[key]

    def refuse(self, key: bytes) -> bool:
        """Note that a transaction is not committed; True: it was committed before."""
        return self.decided.setdefault(key, False)


class Shop(Member):
    """A process with local transactions: some commit, some roll back, some are never decided."""

    def __init__(
        self, *where: Any, topics: list[str], brokers: dict[str, str], database: Database, pause: float
    ) -> None:
        super().__init__(*where)
        self._brokers = brokers  # names by address
        self.group, self._topics, self._database, self._pause = GROUP, topics, database, pause
        self._number = 0

    async def work(self) -> None:
        while not self.is_ending:
            producer = AsyncTransactionProducer._by(
                self.access, GROUP, check=self._check, topics=self._topics, send_msg_timeout=SEND_MS,
                default_topic_queue_nums=2, **self.names,
            )  # fmt: skip
            try:
                async with producer:
                    workers = [self._worker(producer) for _ in range(self.chance.randint(1, 3))]
                    await asyncio.gather(*workers, self.until(self.chance.choice([10.0, 1e9])))
            except RocketcError as error:
                self._database.counts[f"start {type(error).__name__}"] += 1
                await self.until(1.0)

    async def _worker(self, producer: AsyncTransactionProducer) -> None:
        while not self.is_ending:
            await self._transaction(producer)
            await self.until(self.chance.expovariate(1 / self._pause))
            if self.chance.random() < 0.05:
                return

    async def _transaction(self, producer: AsyncTransactionProducer) -> None:
        self._number += 1
        key = f"{self.name}.{self._number}".encode()
        padding = self.chance.choice([b"", b"x" * 100, b"x" * 6000])
        self._database.running[key] = self
        try:
            result = await producer.send_in_transaction(
                self.chance.choice(self._topics), key + b"|" + padding, self._local, tags="web", keys=key.decode()
            )
        except RocketcError as error:
            self._database.counts[f"send {type(error).__name__}"] += 1
        else:
            self._database.counts[result.state.name] += 1
            if result.error is not None and str(result.error) != "the database fails":
                self.history.fault(f"{self.name}: a local transaction raised {result.error!r}")
        finally:
            if not self.is_dead:
                self._database.running.pop(key, None)

    async def _local(self, message: Any) -> str:
        key = bytes(message.body).partition(b"|")[0]
        await asyncio.sleep(self.chance.choice(RUN_SECONDS))
        if self.is_dead:
            return "UNKNOW"
        how = self.chance.choice(["commit"] * 5 + ["late commit", "roll back", "roll back", "fail", "keep"])
        if how == "fail":
            raise ValueError("the database fails")
        if how == "keep" and key not in self._database.decided:
            self._database.kept.add(key)
            return "UNKNOW"
        if how == "roll back":
            return "ROLLBACK_MESSAGE" if not self._database.refuse(key) else "COMMIT_MESSAGE"
        if not self._database.commit(key, self._brokers[message.store_host]):
            return "ROLLBACK_MESSAGE"
        return "COMMIT_MESSAGE" if how == "commit" else "UNKNOW"

    async def _check(self, message: Any) -> str:
        key = bytes(message.body).partition(b"|")[0]
        await asyncio.sleep(self.chance.choice([0] * 9 + [0.1]))  # sooner than the next check: otherwise it never ends
        self._database.counts["checks"] += 1
        if self.chance.random() < 0.05:
            raise ValueError("the check fails")
        if key in self._database.kept:
            return "UNKNOW"
        runs = self._database.running.get(key)
        if runs is not None and not runs.is_dead and key not in self._database.decided and self.chance.random() < 0.8:
            return "UNKNOW"
        return "COMMIT_MESSAGE" if self._database.refuse(key) else "ROLLBACK_MESSAGE"
