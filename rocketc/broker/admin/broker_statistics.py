"""The statistics of a broker under RocketMQ's names: what topics got, and what groups were given.

Source: RocketMQ BrokerStatsManager, AdminBrokerProcessor.viewBrokerStatsData; names and keys were seen on 5.3.3.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, Protocol

from rocketc.broker.admin import forms
from rocketc.broker.admin.statistics import SAMPLE_SECONDS, Counter, Key, Statistics, Sums
from rocketc.broker.admin.store_work import StoreWork
from rocketc.broker.counts import BrokerCounts, Timed
from rocketc.errors import RocketcError
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer, Call
from rocketc.tables.topics import is_system_topic

_log = logging.getLogger("rocketc.broker")

VIEW = 315
TOPIC_PUT_NUMS, TOPIC_PUT_SIZE = "TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"
QUEUE_PUT_NUMS, QUEUE_PUT_SIZE = "QUEUE_PUT_NUMS", "QUEUE_PUT_SIZE"
GROUP_GET_NUMS, GROUP_GET_SIZE, GROUP_GET_LATENCY = "GROUP_GET_NUMS", "GROUP_GET_SIZE", "GROUP_GET_LATENCY"
QUEUE_GET_NUMS, QUEUE_GET_SIZE = "QUEUE_GET_NUMS", "QUEUE_GET_SIZE"
BROKER_PUT_NUMS, BROKER_GET_NUMS = "BROKER_PUT_NUMS", "BROKER_GET_NUMS"
SNDBCK_PUT_NUMS = "SNDBCK_PUT_NUMS"
PRODUCER_REGISTER_TIME, CONSUMER_REGISTER_TIME = "PRODUCER_REGISTER_TIME", "CONSUMER_REGISTER_TIME"
_WITHOUT_SYSTEM = "_WITHOUT_SYSTEM_TOPIC"
QUEUES_MOST = 10_000  # with statistics of their own: queues of topics, and queues that groups pull from

Given = tuple[str, str, int, int, int, int, float]  # topic, group, queue id, messages, bytes, answers, seconds


class MeasuredStore(Protocol):
    """What BrokerStatistics needs of a store."""

    @property
    def background(self) -> bool: ...
    def measurements(self) -> dict[str, Any]: ...


class Delivering(Protocol):
    """What BrokerStatistics needs of a PullProcessor."""

    @property
    def delivered_by_queue(self) -> list[Given]: ...


class Chosen:
    """The queues with statistics of their own: the first QUEUES_MOST that appear. A deleted one makes room.

    >>> chosen = Chosen(most=1)
    >>> chosen.update(["a", "b"])
    >>> "a" in chosen, "b" in chosen
    (True, False)
    """

    def __init__(self, most: int = QUEUES_MOST) -> None:
        self._most = most
        self._names: dict[object, None] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def update(self, there: Iterable[object]) -> None:
        """Take the queues that there are now. One that was taken stays: its counter must not begin again."""
        names = dict.fromkeys(there)
        self._names = {name: None for name in self._names if name in names}
        for name in names:
            if len(self._names) >= self._most:
                return
            self._names[name] = None


class BrokerStatistics:
    """Answers VIEW_BROKER_STATS_DATA (315). run() samples counters that there are anyway.

    The numbers of topics and their queues are those of messages that are in the queues.
    """

    codes = (VIEW,)

    def __init__(
        self, store: MeasuredStore, pulls: Delivering, counts: BrokerCounts, cluster: str, work: StoreWork
    ) -> None:
        self._work = work
        self._store, self._pulls, self._counts, self._cluster = store, pulls, counts, cluster
        self._loop = asyncio.get_running_loop()
        self._statistics = Statistics()
        self._putting, self._pulling = Chosen(), Chosen()

    def process(self, call: Call) -> Answer | None:
        name, key = call.values["statsName"], call.values["statsKey"]
        found = self._statistics.tables(name, key)
        if found is not None:
            return Answer(body=forms.body(found))
        given, of_broker = self._pulls.delivered_by_queue, broker_counters(self._counts, self._cluster)

        def read() -> bool:
            """Whether something was counted since the last sample."""
            return (name, key) in self._counters(given, of_broker, Chosen(), Chosen())

        return self._work.look(call, read, lambda is_known: self._new(name, key, is_known))

    def _new(self, name: str, key: str, is_known: bool) -> Answer:
        """Answer about a counter without a sample."""
        if not is_known:
            return Answer(Code.SYSTEM_ERROR, remark=f"The stats <{name}> <{key}> not exist")
        return Answer(body=forms.body(self._statistics.table(name, key)))

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
        given = self._pulls.delivered_by_queue  # on the thread that counts
        of_broker = broker_counters(self._counts, self._cluster)
        how = int(self._loop.time() * 1000), given, of_broker
        if self._store.background:  # with many queues this takes some ms
            await self._loop.run_in_executor(None, self._sample, *how)
        else:
            self._sample(*how)

    def _sample(self, now: int, given: list[Given], of_broker: dict[Key, Counter]) -> None:
        self._statistics.sample(now, self._counters(given, of_broker, self._putting, self._pulling))

    def _counters(
        self, given: list[Given], of_broker: dict[Key, Counter], putting: Chosen, pulling: Chosen
    ) -> dict[Key, Counter]:
        by_queue = self._store.measurements()["by_queue"]
        putting.update((topic, queue_id) for topic, queue_id, _, _, _, came, *_ in by_queue if came)
        pulling.update(row[:3] for row in given)
        puts = put_counters(by_queue, putting, self._cluster)
        return {**puts, **get_counters(given, pulling, self._cluster), **of_broker}


def put_counters(by_queue: Iterable[tuple[Any, ...]], chosen: Chosen, cluster: str) -> dict[Key, Counter]:
    """Return the counters of messages that came, by RocketMQ's name and key.

    by_queue  of MessageStore.measurements()
    chosen    queues with counters of their own, as (topic, queue id)

    >>> chosen = Chosen()
    >>> chosen.update([("orders", 0)])
    >>> found = put_counters([("orders", 0, 0, 5, 490, 5, 490, 0, 0, 400000)], chosen, "C")
    >>> found["TOPIC_PUT_SIZE", "orders"], found["QUEUE_PUT_NUMS", "orders@0"], found["BROKER_PUT_NUMS", "C"]
    (Counter(total=490, times=5), Counter(total=5, times=5), Counter(total=5, times=0))
    """
    puts: dict[str, tuple[int, int]] = {}
    found: dict[Key, Counter] = {}
    for topic, queue_id, _, _, _, came, came_bytes, *_ in by_queue:
        count, size = puts.get(topic, (0, 0))
        puts[topic] = count + came, size + came_bytes
        if (topic, queue_id) in chosen:
            found[QUEUE_PUT_NUMS, f"{topic}@{queue_id}"] = Counter(came, came)
            found[QUEUE_PUT_SIZE, f"{topic}@{queue_id}"] = Counter(came_bytes, came)
    put = put_by_users = 0
    for topic, (count, size) in puts.items():
        if not count:
            continue
        found[TOPIC_PUT_NUMS, topic] = Counter(count, count)
        found[TOPIC_PUT_SIZE, topic] = Counter(size, count)
        put += count
        if not is_system_topic(topic):
            put_by_users += count
    found[BROKER_PUT_NUMS, cluster] = Counter(put)  # RocketMQ does not count the times here
    found[BROKER_PUT_NUMS + _WITHOUT_SYSTEM, cluster] = Counter(put_by_users)
    return found


def get_counters(given: Iterable[Given], chosen: Chosen, cluster: str) -> dict[Key, Counter]:
    """Return the counters of messages that groups were given, by RocketMQ's name and key.

    given   of PullProcessor.delivered_by_queue
    chosen  queues with counters of their own, as (topic, group, queue id)

    >>> chosen = Chosen()
    >>> chosen.update([("orders", "audit", 1)])
    >>> found = get_counters([("orders", "audit", 1, 7, 700, 2, 0.005)], chosen, "C")
    >>> found["GROUP_GET_NUMS", "orders@audit"], found["GROUP_GET_LATENCY", "1@orders@audit"]
    (Counter(total=7, times=2), Counter(total=5, times=2))
    """
    groups: dict[tuple[str, str], tuple[int, int, int]] = {}
    found: dict[Key, Counter] = {}
    for topic, group, queue_id, count, size, times, seconds in given:
        before = groups.get((topic, group), (0, 0, 0))
        groups[topic, group] = before[0] + count, before[1] + size, before[2] + times
        if (topic, group, queue_id) in chosen:
            found[QUEUE_GET_NUMS, f"{topic}@{queue_id}@{group}"] = Counter(count, times)
            found[QUEUE_GET_SIZE, f"{topic}@{queue_id}@{group}"] = Counter(size, times)
            found[GROUP_GET_LATENCY, f"{queue_id}@{topic}@{group}"] = Counter(_ms(seconds), times)
    got = got_by_users = 0
    for (topic, group), (count, size, times) in groups.items():
        found[GROUP_GET_NUMS, f"{topic}@{group}"] = Counter(count, times)
        found[GROUP_GET_SIZE, f"{topic}@{group}"] = Counter(size, times)
        got += count
        if not is_system_topic(topic):
            got_by_users += count
    found[BROKER_GET_NUMS, cluster] = Counter(got)
    found[BROKER_GET_NUMS + _WITHOUT_SYSTEM, cluster] = Counter(got_by_users)
    return found


def broker_counters(counts: BrokerCounts, cluster: str) -> dict[Key, Counter]:
    """Return the counters of processors, by RocketMQ's name and key.

    >>> counts = BrokerCounts()
    >>> counts.send_back("orders", "audit")
    >>> broker_counters(counts, "C")["SNDBCK_PUT_NUMS", "orders@audit"]
    Counter(total=1, times=1)
    """
    found: dict[Key, Counter] = {}
    for (topic, group), count in counts.sent_back.items():
        found[SNDBCK_PUT_NUMS, f"{topic}@{group}"] = Counter(count, count)
    for name, timed in ((PRODUCER_REGISTER_TIME, counts.producers), (CONSUMER_REGISTER_TIME, counts.consumers)):
        if timed.times:
            found[name, cluster] = _timed(timed)
    return found


def _timed(timed: Timed) -> Counter:
    return Counter(_ms(timed.seconds), timed.times)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
