"""A store's numbers as metrics: names, kinds, units and labels, those of RocketMQ 5 where they exist.

The names of all other metrics begin with `rocketc_`. Source: RocketMQ's documentation, Observability, Metrics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from rocketc.metrics.snapshot import SnapshotReader, StoreSnapshot
from rocketc.store._store import MessageStore
from rocketc.tables.topics import is_system_topic

_SIZE_BOUNDS = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)  # RocketMQ's, of rocketmq_message_size
_TIMES = {  # of MessageStore.stats()
    "put_time": ("rocketc_put_seconds", "Duration of puts, measured for every 16th put"),
    "flush_time": ("rocketc_flush_seconds", "Duration of flushes of the log"),
    "roll_time": ("rocketc_file_roll_seconds", "Time that a put waited for the next log file"),
    "lock_time": ("rocketc_put_lock_wait_seconds", "Time that puts waited for the put lock, if it was taken"),
}
Labels = Mapping[str, str]


@dataclass(frozen=True)
class Histogram:
    """A histogram.

    below  (bound, number of values up to it) in ascending order; larger values count only in `count`
    """

    below: tuple[tuple[float, int], ...]
    count: int
    sum: float


class Sample(NamedTuple):
    """A value and its own labels; the value of a histogram is a Histogram."""

    labels: dict[str, str]
    value: float | Histogram


@dataclass(frozen=True)
class Measure:
    """A metric and its samples.

    kind    "counter": only increases, from 0 when the store was opened; "gauge"; "histogram"
    unit    "bytes", "ms", "s"; "" for counts
    labels  names of the labels of each sample
    """

    name: str
    kind: str
    unit: str
    help: str
    labels: tuple[str, ...] = ()
    samples: list[Sample] = field(default_factory=list)

    def add(self, value: float | Histogram | None, *values: str) -> Measure:
        """Add a sample with the values of `labels` in order; skip the value `None`."""
        if value is not None:
            self.samples.append(Sample(dict(zip(self.labels, values, strict=True)), value))
        return self


def measures(store: MessageStore | SnapshotReader, labels: Labels | None = None) -> list[Measure]:
    """Return the current metrics of a store. Raises ClosedError; StoreIOError if its files cannot be read.

    store   open, also with read_only=True; or a SnapshotReader, which costs less for repeated calls
    labels  to add to every sample; None: {"node_id": store.path}

    >>> import rocketc, tempfile
    >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
    ...     r = store.put("orders", b"hello"), store.wait_dispatched()
    ...     found = {one.name: one for one in measures(store, {"node_id": "a"})}
    >>> found["rocketmq_messages_in_total"].samples
    [Sample(labels={'node_id': 'a', 'topic': 'orders', 'is_system': 'false'}, value=1)]
    """
    watch = store if isinstance(store, SnapshotReader) else SnapshotReader(store)
    common = dict(labels) if labels is not None else {"node_id": watch.store.path}
    found = list(_of(watch.read(), watch.store.failed is not None))
    for one in found:
        one.samples[:] = [Sample(common | sample.labels, sample.value) for sample in one.samples]
    return found


def _of(look: StoreSnapshot, failed: bool) -> Iterator[Measure]:
    yield from _of_topics(look)
    yield from _of_storage(look)
    yield from _of_groups(look)
    if not look.read_only:
        yield from _of_engine(look, failed)


def _of_topics(look: StoreSnapshot) -> Iterator[Measure]:
    names = "topic", "is_system"
    found = (
        Measure("rocketmq_messages_in_total", "counter", "", "Messages added to the queues", names),
        Measure("rocketmq_throughput_in_total", "counter", "bytes", "Bytes of their records", names),
        Measure("rocketmq_messages_out_total", "counter", "", "Messages returned by get()", names),
        Measure("rocketmq_throughput_out_total", "counter", "bytes", "Bytes of their records", names),
        Measure("rocketc_topic_messages", "gauge", "", "Messages in the queues of a topic", names),
    )
    for topic, of in sorted(look.topics.items()):
        is_system = "true" if is_system_topic(topic) else "false"
        values = of.came, of.came_bytes, of.given, of.given_bytes, of.messages
        for one, value in zip(found, values, strict=True):
            one.add(value, visible(topic), is_system)
    yield from found
    yield Measure("rocketmq_topic_number", "gauge", "", "Topics").add(look.topic_count)
    yield Measure("rocketc_queues", "gauge", "", "Consume queues").add(sum(of.queues for of in look.topics.values()))


def _of_storage(look: StoreSnapshot) -> Iterator[Measure]:
    where = ("storage_type", "storage_medium"), ("local", "disk")

    def gauge(name: str, unit: str, help: str, value: int | None) -> Measure:
        return Measure(name, "gauge", unit, help, where[0]).add(value, *where[1])

    yield gauge("rocketmq_storage_size", "bytes", "Files of log, queues and index", look.size)
    behind = "Bytes of the log that are not durable yet"
    yield gauge("rocketmq_storage_flush_behind_bytes", "bytes", behind, look.flush_behind)
    behind = "Bytes of the log that are not in the queues yet"
    yield gauge("rocketmq_storage_dispatch_behind_bytes", "bytes", behind, look.dispatch_behind)
    age = None if look.oldest is None else max(look.time - look.oldest, 0)
    yield gauge("rocketmq_storage_message_reserve_time", "ms", "Age of the oldest message", age)
    offsets = Measure("rocketc_log_offset_bytes", "gauge", "bytes", "Physical offsets of the log", ("position",))
    for position in ("first", "dispatched", "flushed", "end"):
        offsets.add(getattr(look, position), position)
    yield offsets


def _of_groups(look: StoreSnapshot) -> Iterator[Measure]:
    names = "topic", "consumer_group"
    lag = Measure("rocketmq_consumer_lag_messages", "gauge", "", "Messages that a group has not consumed", names)
    age = Measure("rocketmq_consumer_lag_latency", "gauge", "ms", "Age of the first of these; 0 if none", names)
    for one in look.lags:
        lag.add(one.messages, visible(one.topic), visible(one.group))
        age.add(one.latency_ms, visible(one.topic), visible(one.group))
    yield lag
    yield age
    yield Measure("rocketmq_consumer_group_number", "gauge", "", "Consumer groups").add(look.group_count)


def _of_engine(look: StoreSnapshot, failed: bool) -> Iterator[Measure]:
    engine = look.engine
    yield Measure("rocketmq_message_size", "histogram", "bytes", "Sizes of dispatched records").add(_sizes(look))
    for key, (name, help) in _TIMES.items():
        below, count, total = engine["histograms"][key]
        value = Histogram(tuple((ns / 1e9, many) for ns, many in below), count, total / 1e9)
        yield Measure(name, "histogram", "s", help).add(value)
    for name, help, key in (
        ("rocketc_puts_refused_total", "Puts that raised an error", "refused"),
        ("rocketc_unqueued_records_total", "Records that no queue could take", "unqueued"),
        ("rocketc_slow_put_lock_holds_total", "Puts that held the put lock for more than 0.5 s", "slow_holds"),
        ("rocketc_slow_commits_total", "Commits of the transient store pool of more than 0.5 s", "slow_commits"),
        ("rocketc_flush_disk_timeouts_total", "Puts that returned FLUSH_DISK_TIMEOUT", "flush_timeouts"),
        ("rocketc_mlock_failures_total", "Files and buffers that could not be locked in memory", "mlock_failures"),
    ):
        yield Measure(name, "counter", "", help).add(engine[key])
    held = max(look.time - engine["appending_since"], 0) / 1000 if engine["appending_since"] else 0.0
    for name, unit, help, now in (
        ("rocketc_calls", "", "Running calls, without those that wait for messages", engine["calls"]),
        ("rocketc_waiting_readers", "", "Calls of get() that wait for a message", engine["waiting_readers"]),
        ("rocketc_append_seconds", "s", "Time that the current put has held the put lock; 0 if none", held),
        ("rocketc_mlocked_bytes", "bytes", "Files and buffers that are locked in memory", engine["mlocked_bytes"]),
        ("rocketc_disk_full", "", "1: puts are refused until the disk has room", int(engine["disk_full"])),
        ("rocketc_failed", "", "1: the store has failed and accepts no more messages", int(failed)),
    ):
        yield Measure(name, "gauge", unit, help).add(now)


def _sizes(look: StoreSnapshot) -> Histogram:
    upto = list(accumulate(look.engine["sizes"]))  # [i]: number of records of up to 2 ** i bytes
    below = tuple((float(bound), upto[bound.bit_length() - 1]) for bound in _SIZE_BOUNDS)
    return Histogram(below, upto[-1], float(look.engine.get("dispatched_bytes", 0)))


def visible(name: str) -> str:
    """Return a name from a disk as valid UTF-8; invalid bytes become U+FFFD."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
