"""A look at a store: what it holds, what has come, and how far it is behind, in numbers as of now.

A store that is open for writing tells of itself: positions and counters that it keeps anyway, read without a lock. Of
one that another process writes, rocketc's or RocketMQ's, its files tell: the queues say what came, the checkpoint says
what is durable, and the log is walked from where the queues end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from rocketc.errors import RocketcError
from rocketc.files import _checkpoint
from rocketc.files.paths import Log, LogFile
from rocketc.read.scan import scan, torn_tail
from rocketc.store._store import MessageStore
from rocketc.tables.groups import SubscriptionGroups
from rocketc.tables.offsets import ConsumerOffsets

T = TypeVar("T")


@dataclass
class TopicSnapshot:
    """A topic's queues together.

    queues             how many
    messages           that they lead to
    came, came_bytes   messages since the store was opened, and bytes of their records
    given, given_bytes messages that get() has handed out since, and bytes of their records
    """

    queues: int = 0
    messages: int = 0
    came: int = 0
    came_bytes: int = 0
    given: int = 0
    given_bytes: int = 0


@dataclass(frozen=True)
class Lag:
    """How far a group is behind in a topic.

    messages    that it has not consumed, by the offsets that it has committed
    latency_ms  how old the first of these is; 0 if there are none; None: it can't be told
    """

    topic: str
    group: str
    messages: int
    latency_ms: int | None


@dataclass(frozen=True)
class StoreSnapshot:
    """Numbers of a store at one moment; physical offsets and sizes in bytes, times in ms.

    time        of the look, since the epoch
    read_only   another process writes the store, or none does
    first, end  of the log: where its first file begins, and behind its last record
    flushed     all before it is durable; None: it can't be told
    flushed_time  messages up to this store time are durable; None: as above
    dispatched  all before it is in the queues; None: there are none
    oldest      store time of the first message that the log has; None: there is none, or it is damaged
    size        of the files of log, queues and index, but for those that are made ahead
    topics      by name: those that have queues
    topic_count those with queues, and those in the table of topics
    group_count groups of consumers that are known
    lags        of each group and topic that have committed offsets
    engine      counters of a store that is open for writing, as MessageStore.stats() has them, and more; else empty
    """

    time: int
    read_only: bool
    first: int
    end: int
    flushed: int | None
    flushed_time: int | None
    dispatched: int | None
    oldest: int | None
    size: int
    topics: dict[str, TopicSnapshot]
    topic_count: int
    group_count: int
    lags: list[Lag]
    engine: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def flush_behind(self) -> int | None:
        """Bytes that are not durable yet; None: it can't be told."""
        return None if self.flushed is None else max(self.end - self.flushed, 0)

    @property
    def dispatch_behind(self) -> int | None:
        """Bytes that may be in the queues and are not yet; None: there are no queues."""
        if "dispatch_behind_bytes" in self.engine:
            return int(self.engine["dispatch_behind_bytes"])
        return None if self.dispatched is None else max(self.end - self.dispatched, 0)


class _Kept:
    """What a file says, read again only if the file has changed."""

    def __init__(self, path: str, read: Callable[[], T]) -> None:
        self._path = path
        self._read = read
        self._seen: tuple[int, ...] | None = ()
        self._value: Any = None

    def get(self) -> Any:
        seen = signature(self._path)
        if seen != self._seen:
            self._value = self._read()
            self._seen = seen
        return self._value


def signature(path: str) -> tuple[int, ...] | None:
    """What changes when a file does; None: there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class SnapshotReader:
    """Looks at one store again and again, and remembers what need not be read each time.

    store  open, for writing or with read_only=True
    It has no thread, and holds no lock for longer than it takes to read a number. One thread at a time may use it.

    >>> import rocketc, tempfile
    >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
    ...     watch = SnapshotReader(store)
    ...     r = store.put("orders", b"hello"), store.wait_dispatched()
    ...     look = watch.read()
    >>> look.topics["orders"].came, look.dispatch_behind
    (1, 0)
    """

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        config = os.path.join(store.path, "config")
        self._offsets = _Kept(os.path.join(config, "consumerOffset.json"), self._read_offsets)
        self._groups = _Kept(os.path.join(config, "subscriptionGroup.json"), self._read_groups)
        self._table = _Kept(os.path.join(config, "topics.json"), lambda: set(store.topics()))
        self._oldest: tuple[int, int | None] = (-1, None)
        self._times: dict[tuple[str, int, int], int] = {}
        self._end: tuple[tuple[int, ...] | None, int] = (None, 0)

    def read(self) -> StoreSnapshot:
        """The numbers of now. Raises ClosedError; StoreIOError if files can't be read."""
        store = self.store
        found = store.measurements()
        now = time.time_ns() // 1_000_000
        topics: dict[str, TopicSnapshot] = {}
        ends: dict[tuple[str, int], tuple[int, int]] = {}
        size, queued, last = found.pop("log_bytes"), -1, ("", 0, 0)
        for topic, queue_id, low, high, phy_end, came, came_bytes, given, given_bytes, length in found.pop("by_queue"):
            one = topics.setdefault(topic, TopicSnapshot())
            one.queues += 1
            one.messages += max(high - low, 0)
            one.came += came
            one.came_bytes += came_bytes
            one.given += given
            one.given_bytes += given_bytes
            ends[topic, queue_id] = low, high
            size += length
            if phy_end > queued:
                queued, last = phy_end, (topic, queue_id, high - 1)
        for path in found.pop("index_files"):
            size += (signature(path) or (0, 0))[1]
        first, names = store.min_phy_offset, set(topics) | self._table.get()
        lags = self._lags(ends, now)
        dispatched: int | None = queued if queued >= 0 else None
        if store.read_only:
            end = self._end_of_log(found.pop("log_files"), queued, last)
            flushed, flushed_time = self._flushed()
        else:
            end, flushed, flushed_time = store.max_phy_offset, store.flushed_phy_offset, None
            dispatched = found["dispatched_phy_offset"]
        return StoreSnapshot(
            time=now,
            read_only=store.read_only,
            first=first,
            end=end,
            flushed=flushed,
            flushed_time=flushed_time,
            dispatched=dispatched,
            oldest=self._oldest_of(first),
            size=size,
            topics=topics,
            topic_count=len(names),
            group_count=len({lag.group for lag in lags} | self._groups.get()),
            lags=lags,
            engine=found,
        )

    def look(self) -> StoreSnapshot:
        """read() under its old name."""
        return self.read()

    def _read_offsets(self) -> list[tuple[str, str, int, int]]:
        return list(ConsumerOffsets(self.store.path).items())

    def _read_groups(self) -> set[str]:
        return set(SubscriptionGroups(self.store.path))

    def _lags(self, ends: dict[tuple[str, int], tuple[int, int]], now: int) -> list[Lag]:
        behind: dict[tuple[str, str], tuple[int, int | None]] = {}
        times = {}
        for topic, group, queue_id, offset in self._offsets.get():
            low, high = ends.get((topic, queue_id), (0, -1))
            if offset < 0 or high < 0:
                continue
            count, oldest = behind.get((topic, group), (0, None))
            at = max(offset, low)
            if at < high:
                count += high - at
                key = topic, queue_id, at
                when = self._times[key] if key in self._times else self._store_time(*key)
                if when >= 0:
                    times[key] = when
                    oldest = when if oldest is None else min(oldest, when)
            behind[topic, group] = count, oldest
        self._times = times
        return [
            Lag(*key, count, 0 if count == 0 else None if oldest is None else max(now - oldest, 0))
            for key, (count, oldest) in sorted(behind.items())
        ]

    def _store_time(self, topic: str, queue_id: int, offset: int) -> int:
        try:
            return self.store.store_time(topic, queue_id, offset)
        except (RocketcError, OSError):
            return -1

    def _oldest_of(self, first: int) -> int | None:
        """The store time of the first message; it is read again only when the first file is another."""
        if self._oldest[0] != first or self._oldest[1] is None:
            try:
                message = self.store.message(first, crc="none", decompress=False)
            except (RocketcError, OSError):
                message = None
            self._oldest = first, None if message is None else message.store_timestamp
        return self._oldest[1]

    def _flushed(self) -> tuple[int | None, int | None]:
        """How far the log is durable, as the checkpoint says; of RocketMQ's it is known of the store time only."""
        path = os.path.join(self.store.path, "checkpoint")
        checkpoint = _checkpoint.read(path)
        flushed = _checkpoint.flushed_offset(path, checkpoint)
        return flushed if flushed >= 0 else None, checkpoint.physic_msg_timestamp or None

    def _end_of_log(self, files: Sequence[LogFile], queued: int, message: tuple[str, int, int]) -> int:
        """Where a log ends that another process writes: it is walked from its end at the last look, or from the record
        that the queues have last; from the start of its last file, if that record is not there.

        queued   end of the record of the last message that the queues have, -1: none
        message  its topic, queue id and queue offset
        """
        if not files:
            return 0
        writer = signature(os.path.join(self.store.path, "abort"))  # another one may have cut the log
        known = self._end[1] if self._end[0] == writer else 0
        base = files[-1].origin
        at = max(base, known)
        if queued > at:
            at = max(at, self.store.phy_offset_of(*message))
        end = _end_from(files[-1], at)
        if end is None and at not in (base, known):
            end = _end_from(files[-1], base)
        end = at if end is None else end
        self._end = writer, end
        return end


def _end_from(file: LogFile, at: int) -> int | None:
    """Where the last whole record ends, read from a physical offset in a log's last file on; None: there is none."""
    part = Log((replace(file, start=min(at, file.end), exact=True),), ())
    found = scan(part, errors="skip", crc="none", decompress=False, unwrap=False)
    if found.count() == 0:
        return None
    report = found.report
    torn = torn_tail(report.damage, report.end)
    return torn.start if torn else report.end
