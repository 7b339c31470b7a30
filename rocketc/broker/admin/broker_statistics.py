"""The statistics of a broker under RocketMQ's names: what topics got, and what groups were given.

Source: RocketMQ BrokerStatsManager, AdminBrokerProcessor.viewBrokerStatsData.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, Protocol

from rocketc.broker.admin import forms
from rocketc.broker.admin.statistics import SAMPLE_SECONDS, Counter, Key, Statistics, Sums
from rocketc.errors import RocketcError
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer, Call
from rocketc.tables.topics import is_system_topic

_log = logging.getLogger("rocketc.broker")

VIEW = 315
TOPIC_PUT_NUMS, TOPIC_PUT_SIZE = "TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"
GROUP_GET_NUMS, GROUP_GET_SIZE = "GROUP_GET_NUMS", "GROUP_GET_SIZE"
BROKER_PUT_NUMS, BROKER_GET_NUMS = "BROKER_PUT_NUMS", "BROKER_GET_NUMS"
_WITHOUT_SYSTEM = "_WITHOUT_SYSTEM_TOPIC"


class MeasuredStore(Protocol):
    """What BrokerStatistics needs of a store."""

    @property
    def background(self) -> bool: ...
    def measurements(self) -> dict[str, Any]: ...


class Delivering(Protocol):
    """What BrokerStatistics needs of a PullProcessor."""

    @property
    def delivered(self) -> dict[tuple[str, str], list[int]]: ...  # by topic and group: messages, bytes, pulls


class BrokerStatistics:
    """Answers VIEW_BROKER_STATS_DATA (315). Nothing is counted for it on the way of a message.

    The numbers of topics are those of messages that are in the queues. run() samples them.
    """

    codes = (VIEW,)

    def __init__(self, store: MeasuredStore, pulls: Delivering, cluster: str) -> None:
        self._store, self._pulls, self._cluster = store, pulls, cluster
        self._loop = asyncio.get_running_loop()
        self._statistics = Statistics()

    def process(self, call: Call) -> Answer:
        name, key = call.values["statsName"], call.values["statsKey"]
        found = self._statistics.tables(name, key)
        if found is None:
            return Answer(Code.SYSTEM_ERROR, remark=f"The stats <{name}> <{key}> not exist")
        return Answer(body=forms.body(found))

    def topic_puts(self, topic: str) -> Sums:
        """Return what a topic got in the last minute."""
        return self._statistics.sums(TOPIC_PUT_NUMS, topic)

    def group_gets(self, topic: str, group: str) -> Sums:
        """Return what a group was given of a topic in the last minute."""
        return self._statistics.sums(GROUP_GET_NUMS, f"{topic}@{group}")

    async def run(self) -> None:
        """Sample until the task ends. An error costs one sample."""
        while True:
            try:
                await self.sample()
            except (RocketcError, OSError) as error:
                _log.warning("the statistics lack a sample: %s", error)
            await asyncio.sleep(SAMPLE_SECONDS)

    async def sample(self) -> None:
        """Note the counters."""
        if self._store.background:  # with many queues this takes some ms
            found = await self._loop.run_in_executor(None, self._store.measurements)
        else:
            found = self._store.measurements()
        self._statistics.sample(int(self._loop.time() * 1000), counters(found["by_queue"], self._pulls, self._cluster))


def counters(by_queue: Iterable[tuple[Any, ...]], pulls: Delivering, cluster: str) -> dict[Key, Counter]:
    """Return the counters by RocketMQ's name and key.

    by_queue  of MessageStore.measurements()

    >>> class Pulls:
    ...     delivered = {("orders", "audit"): [7, 700, 2]}
    >>> found = counters([("orders", 0, 0, 5, 490, 5, 490, 0, 0, 400000)], Pulls, "C")
    >>> found["TOPIC_PUT_SIZE", "orders"], found["GROUP_GET_NUMS", "orders@audit"], found["BROKER_GET_NUMS", "C"]
    (Counter(total=490, times=5), Counter(total=7, times=2), Counter(total=7, times=2))
    """
    puts: dict[str, tuple[int, int]] = {}
    for topic, _, _, _, _, came, came_bytes, *_ in by_queue:
        count, size = puts.get(topic, (0, 0))
        puts[topic] = count + came, size + came_bytes
    found: dict[Key, Counter] = {}
    put, got, put_by_users, got_by_users = (Counter() for _ in range(4))
    for topic, (count, size) in puts.items():
        if not count:
            continue
        found[TOPIC_PUT_NUMS, topic] = Counter(count, count)
        found[TOPIC_PUT_SIZE, topic] = Counter(size, count)
        put = _sum(put, count, count)
        if not is_system_topic(topic):
            put_by_users = _sum(put_by_users, count, count)
    for (topic, group), (count, size, times) in dict(pulls.delivered).items():
        found[GROUP_GET_NUMS, f"{topic}@{group}"] = Counter(count, times)
        found[GROUP_GET_SIZE, f"{topic}@{group}"] = Counter(size, times)
        got = _sum(got, count, times)
        if not is_system_topic(topic):
            got_by_users = _sum(got_by_users, count, times)
    found[BROKER_PUT_NUMS, cluster], found[BROKER_GET_NUMS, cluster] = put, got
    found[BROKER_PUT_NUMS + _WITHOUT_SYSTEM, cluster] = put_by_users
    found[BROKER_GET_NUMS + _WITHOUT_SYSTEM, cluster] = got_by_users
    return found


def _sum(counter: Counter, total: int, times: int) -> Counter:
    return Counter(counter.total + total, counter.times + times)
