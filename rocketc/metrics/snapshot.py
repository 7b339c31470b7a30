"""Take a snapshot of a store: what it holds, what was added, and how far it is behind, in numbers.

If this process has the store open for writing, the numbers are its positions and counters, read without a lock. If
another process writes the store, rocketc or RocketMQ, they come from its files. The consume queues show what was added,
the checkpoint shows what is durable, and a scan from the last record in the queues finds the end of the log.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from rocketc.errors import RocketcError
from rocketc.files import _checkpoint
from rocketc.files.paths import Log, LogFile
from rocketc.read.scan import scan
from rocketc.read.scan_report import torn_tail
from rocketc.store._store import MessageStore
from rocketc.tables.groups import SubscriptionGroups
from rocketc.tables.offsets import ConsumerOffsets

T = TypeVar("T")


@dataclass
class TopicSnapshot:
    """All queues of a topic together.

    queues             number of queues
    messages           in the queues
    came, came_bytes   messages added since the store was opened, and bytes of their records
    given, given_bytes messages returned by get() since then, and bytes of their records
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

    messages    not consumed yet, according to the offsets that the group has committed
    latency_ms  age of the first of these messages; 0 if there are none; None if unknown
    """

    topic: str
    group: str
    messages: int
    latency_ms: int | None


@dataclass(frozen=True)
class StoreSnapshot:
    """Numbers of a store at one moment; physical offsets and sizes in bytes, times in ms.

    time        of the snapshot, since the epoch
    read_only   whether the store is open with read_only=True: another process may be writing to it
    first, end  of the log: the start of its first file, and the end of its last record
    flushed     physical offset up to which the log is durable; None if unknown
    flushed_time  store timestamp up to which messages are durable; None if unknown
    dispatched  physical offset up to which messages are in the queues; None if there are no queues
    oldest      store timestamp of the first message in the log; None if there is none or it is damaged
    size        of the files of log, queues and index, without files created in advance
    topics      name -> topic, for topics with queues
    topic_count number of topics with queues or in the table of topics
    group_count number of known consumer groups
    lags        for each group and topic with committed offsets
    engine      for a store open for writing: the counters of MessageStore.stats(), and more; otherwise empty
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
        """Bytes that are not durable yet; None if unknown."""
        return None if self.flushed is None else max(self.end - self.flushed, 0)

    @property
    def dispatch_behind(self) -> int | None:
        """Bytes that are not dispatched to the queues yet; None if there are no queues."""
        if "dispatch_behind_bytes" in self.engine:
            return int(self.engine["dispatch_behind_bytes"])
        return None if self.dispatched is None else max(self.end - self.dispatched, 0)


class _Kept:
    """The value read from a file; read again only after the file has changed."""

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
    """Return a value that changes when the file changes; None if the file does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class SnapshotReader:
    """Takes snapshots of one store repeatedly, and caches what does not change between them.

    store    open, for writing or with read_only=True
    offsets  returns the offsets of groups: (topic, group, queue id, offset) each; None: those in config/
    groups   returns the names of the consumer groups; None: those in config/

    It starts no thread, and holds a lock only while it reads a number. Use it in one thread at a time.

    >>> import rocketc, tempfile
    >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
    ...     watch = SnapshotReader(store)
    ...     r = store.put("orders", b"hello"), store.wait_dispatched()
    ...     look = watch.read()
    >>> look.topics["orders"].came, look.dispatch_behind
    (1, 0)
    """

    def __init__(
        self,
        store: MessageStore,
        *,
        offsets: Callable[[], Iterable[tuple[str, str, int, int]]] | None = None,
        groups: Callable[[], Iterable[str]] | None = None,
    ) -> None:
        self.store = store
        config = os.path.join(store.path, "config")
        kept_offsets = _Kept(os.path.join(config, "consumerOffset.json"), self._read_offsets)
        kept_groups = _Kept(os.path.join(config, "subscriptionGroup.json"), self._read_groups)
        self._offsets = kept_offsets.get if offsets is None else offsets
        self._groups = kept_groups.get if groups is None else groups
        self._table = _Kept(os.path.join(config, "topics.json"), lambda: set(store.topics()))
        self._oldest: tuple[int, int | None] = (-1, None)
        self._times: dict[tuple[str, int, int], int] = {}
        self._end: tuple[tuple[int, ...] | None, int] = (None, 0)

    def read(self) -> StoreSnapshot:
        """Take a snapshot. Raises ClosedError; StoreIOError if files cannot be read."""
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
            group_count=len({lag.group for lag in lags}.union(self._groups())),
            lags=lags,
            engine=found,
        )

    def look(self) -> StoreSnapshot:
        """The old name of read()."""
        return self.read()

    def _read_offsets(self) -> list[tuple[str, str, int, int]]:
        return list(ConsumerOffsets(self.store.path).items())

    def _read_groups(self) -> set[str]:
        return set(SubscriptionGroups(self.store.path))

    def _lags(self, ends: dict[tuple[str, int], tuple[int, int]], now: int) -> list[Lag]:
        behind: dict[tuple[str, str], tuple[int, int | None]] = {}
        times = {}
        for topic, group, queue_id, offset in self._offsets():
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
        """Return the store timestamp of the first message, and cache it until the first file changes."""
        if self._oldest[0] != first or self._oldest[1] is None:
            try:
                message = self.store.message(first, crc="none", decompress=False)
            except (RocketcError, OSError):
                message = None
            self._oldest = first, None if message is None else message.store_timestamp
        return self._oldest[1]

    def _flushed(self) -> tuple[int | None, int | None]:
        """Return how far the log is durable according to the checkpoint; RocketMQ's contains only a store timestamp."""
        path = os.path.join(self.store.path, "checkpoint")
        checkpoint = _checkpoint.read(path)
        flushed = _checkpoint.flushed_offset(path, checkpoint)
        return flushed if flushed >= 0 else None, checkpoint.physic_msg_timestamp or None

    def _end_of_log(self, files: Sequence[LogFile], queued: int, message: tuple[str, int, int]) -> int:
        """Find the end of a log that another process writes.

        The scan starts at the end found by the last snapshot, or at the last record in the queues. If that record does
        not exist, it starts at the beginning of the last file.

        queued   end of the record of the last message in the queues, or -1
        message  topic, queue id and queue offset of this message
        """
        if not files:
            return 0
        writer = signature(os.path.join(self.store.path, "abort"))  # another process may have cut the log
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
    """Scan from a physical offset in the last file; return the end of the last valid record, None if there is none."""
    part = Log((replace(file, start=min(at, file.end), exact=True),), ())
    found = scan(part, errors="skip", crc="none", decompress=False, unwrap=False)
    if found.count() == 0:
        return None
    report = found.report
    torn = torn_tail(report.damage, report.end)
    return torn.start if torn else report.end
