"""The metrics of a broker: those of its store, and those of its clients and requests.

Names and labels are RocketMQ 5's where RocketMQ has the metric. Source: RocketMQ BrokerMetricsManager.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate

from rocketc._layout import RETRY_PREFIX
from rocketc.broker._transaction_counts import LATENCY_BOUNDS
from rocketc.broker.controller import BrokerController
from rocketc.broker.groups import SYSTEM_GROUP_PREFIX, SYSTEM_GROUPS
from rocketc.metrics.exposition import exposition
from rocketc.metrics.measures import Histogram, Measure, measures, visible
from rocketc.metrics.snapshot import SnapshotReader
from rocketc.remoting.codes import Code
from rocketc.remoting.requests import REQUESTS
from rocketc.remoting.rpc_times import BOUNDS
from rocketc.remoting.subscribing import ConsumeType
from rocketc.remoting.versions import version_name
from rocketc.tables.topics import is_system_topic

_PULLS = (11, 361)
_MODES = {
    ConsumeType.CONSUME_PASSIVELY: "push",
    ConsumeType.CONSUME_ACTIVELY: "pull",
    ConsumeType.CONSUME_POP: "pop",
}
_OUT = ("rocketmq_messages_out_total", "rocketmq_throughput_out_total")


class BrokerMetrics:
    """Takes the metrics of a broker when it is asked. Nothing is measured for it on the way of a message.

    broker  started, and not closed
    """

    def __init__(self, broker: BrokerController) -> None:
        self._broker = broker
        config = broker.config
        self._labels = {
            "cluster": config.broker_cluster_name,
            "node_type": "broker",
            "node_id": config.broker_name,
        }
        self._snapshots = SnapshotReader(
            broker.store,
            offsets=lambda: list(broker.offsets.table.items()),
            groups=lambda: set(broker.groups.table),
        )
        self._one_at_a_time = asyncio.Lock()

    async def text(self) -> str:
        """Return the metrics in Prometheus' text format.

        A thread reads those of the store, because the first message may have to be read from the disk. Raises
        ClosedError, StoreIOError.
        """
        async with self._one_at_a_time:
            if self._broker.store.background:
                of_store = await asyncio.get_running_loop().run_in_executor(None, self._of_store)
            else:
                of_store = self._of_store()
        return exposition([*of_store, *self._of_broker()])

    def _of_store(self) -> list[Measure]:
        found = [one for one in measures(self._snapshots, self._labels) if one.name not in _OUT]
        for one in found:
            if one.name.startswith("rocketmq_consumer_lag_"):
                for sample in one.samples:
                    topic = sample.labels["topic"]
                    sample.labels["is_system"] = _is_system(topic, sample.labels["consumer_group"])
                    sample.labels["is_retry"] = _bool(topic.startswith(RETRY_PREFIX))
        return found

    def _of_broker(self) -> list[Measure]:
        found = [*self._delivered(), *self._connections(), self._latency(), *self._transactions(), *self._timed()]
        found += self._states()
        for one in found:
            one.samples[:] = [sample._replace(labels={**self._labels, **sample.labels}) for sample in one.samples]
        return found

    def _delivered(self) -> Iterator[Measure]:
        names = "topic", "consumer_group", "is_system"
        messages = Measure(_OUT[0], "counter", "", "Messages sent to consumers", names)
        size = Measure(_OUT[1], "counter", "bytes", "Bytes of their records", names)
        for (topic, group), (count, count_bytes, _) in sorted(self._broker.pulls.delivered.items()):
            values = visible(topic), visible(group), _is_system(topic, group)
            messages.add(count, *values)
            size.add(count_bytes, *values)
        yield messages
        yield size

    def _connections(self) -> Iterator[Measure]:
        broker = self._broker
        names = "language", "version", "protocol_type"
        found = {
            (connection, client.language, client.version)
            for group in broker.producers.groups()
            for connection, client in broker.producers.group(group).items()
        }
        producers = Measure("rocketmq_producer_connections", "gauge", "", "Connections of producers", names)
        for (language, version), count in sorted(Counter(one[1:] for one in found).items()):
            producers.add(count, language.lower(), _version(version), "remoting")
        yield producers
        help = "Connections of consumers by group"
        of_group = "consumer_group", "consume_mode", "is_system", "language", "version", "protocol_type"
        consumers = Measure("rocketmq_consumer_connections", "gauge", "", help, of_group)
        for group in sorted(broker.consumers.groups(), key=lambda one: one.name):
            mode = "unknown" if group.consume_type is None else _MODES[group.consume_type]
            clients = Counter((client.language, client.version) for client in group.channels.values())
            for (language, version), count in sorted(clients.items()):
                values = group.name, mode, _is_system("", group.name), language.lower(), _version(version)
                consumers.add(count, *values, "remoting")
        yield consumers

    def _latency(self) -> Measure:
        names = "request_code", "response_code", "is_long_polling", "protocol_type", "result"
        latency = Measure("rocketmq_rpc_latency", "histogram", "ms", "Time from a request to its answer", names)
        together: dict[tuple[int, int, bool], tuple[list[int], float]] = {}
        broker = self._broker
        for times in (broker.server.times, broker.vip_server.times, broker.path.times):
            for (request, answer, is_late), (counts, total) in times.read().items():
                key = request, answer, is_late and request in _PULLS
                before, before_total = together.get(key, ([0] * len(counts), 0.0))
                together[key] = [a + b for a, b in zip(before, counts, strict=True)], before_total + total
        for (request, answer, is_held), (counts, total) in sorted(together.items()):
            below, upto = [], 0
            for bound, count in zip(BOUNDS, counts, strict=False):
                upto += count
                below.append((bound * 1000, upto))
            values = _request_name(request), _code_name(answer), _bool(is_held), "remoting", "success"
            latency.add(Histogram(tuple(below), upto + counts[-1], total * 1000), *values)
        return latency

    def _transactions(self) -> Iterator[Measure]:
        stats, names = self._broker.transaction_stats, ("topic",)
        half = Measure("rocketmq_half_messages", "gauge", "", "Transactions that are not ended", names)
        commits = Measure("rocketmq_commit_messages_total", "counter", "", "Transactions that were committed", names)
        rollbacks = Measure("rocketmq_rollback_messages_total", "counter", "", "Those that were rolled back", names)
        help = "Time from the birth of a message to its commit"
        finish = Measure("rocketmq_finish_message_latency", "histogram", "s", help, names)
        for topic, count in sorted(stats.open.items()):
            half.add(count, visible(topic))
        for one in sorted(stats.all(), key=lambda one: one.topic):
            if one.rolled_back > 0:
                rollbacks.add(one.rolled_back, visible(one.topic))
            if one.committed > 0:
                commits.add(one.committed, visible(one.topic))
                counts = one.latency()
                below = tuple(zip(LATENCY_BOUNDS, accumulate(counts), strict=False))
                finish.add(Histogram(below, sum(counts), one.seconds), visible(one.topic))
        yield from (half, commits, rollbacks, finish)

    def _timed(self) -> Iterator[Measure]:
        timers = self._broker.timers
        for name, kind, unit, help, value in (
            (
                "rocketmq_timer_enqueue_lag",
                "gauge",
                "",
                "Timed messages that are not in the wheel",
                timers.offset_behind,
            ),
            ("rocketmq_timer_dequeue_lag", "gauge", "", "Timed messages in the wheel", timers.pending),
            ("rocketmq_timer_dequeue_latency", "gauge", "ms", "How late deliveries are", timers.read_behind),
            ("rocketmq_timer_enqueue_total", "counter", "", "Messages that came into the wheel", timers.enqueued),
            ("rocketmq_timer_dequeue_total", "counter", "", "Messages that came out of the wheel", timers.delivered),
        ):
            yield Measure(name, kind, unit, help).add(value)
        waiting = Measure("rocketmq_timing_messages", "gauge", "", "Timed messages in the wheel by topic", ("topic",))
        for topic, count in sorted(timers.counts.items()):
            waiting.add(count, visible(topic))
        yield waiting

    def _states(self) -> Iterator[Measure]:
        broker = self._broker
        servers = broker.server, broker.vip_server
        for name, kind, help, value in (
            ("rocketmq_broker_permission", "gauge", "Bits: 4 read, 2 write", broker.config.broker_permission),
            ("rocketc_connections", "gauge", "Connections of clients", sum(len(one.connections) for one in servers)),
            ("rocketc_refused_connections_total", "counter", "Connections beyond the limit",
             sum(one.refused for one in servers)),
            ("rocketc_held_pulls", "gauge", "Pulls that wait for messages", broker.pulls.held.count),
            ("rocketc_fast_sends_total", "counter", "Messages of sends by the compiled path", broker.path.sent),
            ("rocketc_pulls_found_total", "counter", "Pulls that were answered with messages", broker.pulls.found),
            ("rocketc_pulls_missed_total", "counter", "Pulls that found nothing", broker.pulls.missed),
            ("rocketc_kept_back_total", "counter", "Messages without retries left that can't be dead letters",
             sum(broker.counts.kept_back.values())),
        ):  # fmt: skip
            yield Measure(name, kind, "", help).add(value)


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _is_system(topic: str, group: str) -> str:
    return _bool(is_system_topic(topic) or group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX))


def _version(version: int) -> str:
    return version_name(version).lower()


def _request_name(code: int) -> str:
    return REQUESTS[code].name.lower() if code in REQUESTS else "unknown"


def _code_name(code: int) -> str:
    try:
        return Code(code).name.lower()
    except ValueError:
        return str(code)
