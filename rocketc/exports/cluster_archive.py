"""Archives of topics of a cluster: folders of Parquet files that grow with the topics; docs/howto/archive.md.

A commit has the messages of a range of offsets of each queue, and where the next commit begins in each queue. Both
become valid with one rename: see archive_target. So a kill at any moment loses no message and repeats none: the next
run begins where the last commit ends, and deletes files that no commit lists.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rocketc.client.access import Access
from rocketc.client.loop_thread import give_back_loop, shared_loop
from rocketc.client.routes import MessageQueue
from rocketc.client.topic_reader import TOOLS_CONSUMER, TopicReader
from rocketc.exports.archive_queues import (
    DAMAGE_COLUMNS,
    QueueDamage,
    QueuePlan,
    Reached,
    Round,
    States,
    flat,
    log_damage,
    nested,
    topic_texts,
)
from rocketc.exports.archive_spans import SpansJob, Written, add_up, moved, write_spans
from rocketc.exports.archive_target import Commit, Target, archived_columns
from rocketc.exports.formats import choose_format
from rocketc.files.remote import local_target
from rocketc.read._arrow import Schema
from rocketc.read.arrow_interop import import_pyarrow
from rocketc.read.topics import Topic

if TYPE_CHECKING:
    import pyarrow

COMMIT_BYTES = 1 << 30


@dataclass
class ClusterArchiveReport:
    """What a run has added to an archive of a cluster.

    messages  number of messages
    files     number of Parquet files with messages
    bytes     size of these files
    damage    messages that were not there any more when they were to be read, and damaged records
    commits   number of commits
    committed_at  when the last one was, in seconds since the epoch; None: there was none
    """

    path: str
    messages: int = 0
    files: int = 0
    bytes: int = 0
    damage: list[QueueDamage] = field(default_factory=list)
    commits: int = 0
    committed_at: float | None = None


class ArchiveCommits:
    """The commits of an archive of a cluster: where it continues, and what a run has added.

    target   the archive, which this process has locked
    source   URL of the cluster, without a topic
    topics   names and patterns
    columns  of the messages; None: those that the archive has, or all if it is new
    Raises ValueError for an archive of a log, and for one of other topics or columns.
    """

    def __init__(self, target: Target, source: str, topics: Iterable[Topic], columns: Sequence[str] | None) -> None:
        self._target, self._source, self._topics = target, source, topic_texts(topics)
        self._last = target.last()
        self.columns = archived_columns(self._last, columns)
        self.report = ClusterArchiveReport(target.path)
        if self._last is not None:
            self._check_same(self._last)

    @property
    def is_same(self) -> bool:
        """Whether the archive is new, or was made from the same name servers."""
        return self._last is None or self._last.source == [self._source]

    def states(self) -> States:
        """Return where the archive continues in each queue."""
        return {} if self._last is None else flat(self._last.queues or {})

    def _check_same(self, last: Commit) -> None:
        if last.queues is None:
            raise ValueError(f"{self._target.path}: an archive of a log; archive topics of a cluster to another folder")
        for name, was, now in (("columns", last.columns, self.columns), ("topics", last.topics, self._topics)):
            if was != now:
                raise ValueError(
                    f"{self._target.path}: {name}={now}, but it was made with {was}; use the same, or another folder"
                )

    @property
    def number(self) -> int:
        """The number of the next commit."""
        return 1 if self._last is None else self._last.number + 1

    def commit(
        self, staging: str, round: Round, written: Sequence[Written], states: Mapping[MessageQueue, Reached]
    ) -> States:
        """Commit and publish what was written to a staging folder. Return the states of the queues then.

        states  before the commit, of all queues that are known
        Raises ValueError, StoreIOError.
        """
        states = dict(states)
        for one in round.lost:
            queue = MessageQueue(one.topic, one.broker, one.queue_id)
            states[queue] = states[queue]._replace(next_offset=one.stop)
        states = moved(states, written)
        run = os.path.basename(staging)
        files = [
            self._target.place(os.path.join(run, name), size, rows)
            for part in written
            for name, size, rows in part.files
        ]
        damage = [*round.lost, *(one for part in written for one in part.damage)]
        messages = sum(part.messages for part in written)
        layout = self._target.layout
        for table, rows in ((layout.statistics, _statistics(written)), (layout.damage, _damage(damage))):
            if rows.num_rows or self.number == 1:
                files.append(self._target.stage_table(staging, table, self.number, rows))
        commit = Commit(
            self.number, [self._source], self.columns, self._topics, 0, 0, None, messages, files, nested(states)
        )
        self._target.commit(commit)
        self._target.publish(commit)
        self._last = commit
        self.report.messages += messages
        self.report.files += len(commit.message_files)
        self.report.bytes += sum(file[2] for file in commit.message_files)
        self.report.damage += damage
        self.report.commits += 1
        self.report.committed_at = time.time()
        return states


def _statistics(written: Iterable[Written]) -> pyarrow.Table:
    """Return a row for each topic and day: messages, bytes of their records, first and last store time."""
    pa = import_pyarrow()
    sums: dict[tuple[Any, ...], list[int]] = {}
    for part in written:
        for topic, day, *new in part.statistics:
            add_up(sums, (topic, day), new)
    time = pa.timestamp("us", "UTC")
    names = ("topic", "date", "messages", "bytes", "firstTimestamp", "lastTimestamp")
    types = (pa.string(), pa.date32(), pa.int64(), pa.int64(), time, time)
    return _table([[*key, *values] for key, values in sums.items()], names, types)


def _damage(damage: Iterable[QueueDamage]) -> pyarrow.Table:
    pa = import_pyarrow()
    return _table(damage, DAMAGE_COLUMNS, (pa.string(), pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.string()))


def _table(rows: Iterable[Iterable[Any]], names: Sequence[str], types: Sequence[Any]) -> pyarrow.Table:
    pa = import_pyarrow()
    columns = list(zip(*rows, strict=True)) or [()] * len(types)
    return pa.table(dict(zip(names, map(pa.array, map(list, columns), types), strict=True)))


class ClusterArchive:
    """Adds new messages of topics of a cluster to an archive, one commit after the other, until close().

    access  the way to the cluster
    topics  names, and patterns that match the whole name
    target  a folder that does not exist, is empty, or is an archive of the same topics
    waits   topics may appear later, and brokers that are down are waited for. Otherwise the archive ends with the
            messages that are there when the first commit begins
    group   of the pulls
    all_topics  patterns match the topics of the system, too
    columns, compression, crc, decompress  of the messages, as in rocketc.export(); without columns, an archive keeps
            those that it has
    commit_bytes  of messages in a commit, about
    Raises ValueError, StoreIOError, StoreLockedError if another process writes to the archive, ImportError without
    pyarrow.

    >>> import rocketc, tempfile
    >>> from rocketc.client.access import access_to
    >>> with rocketc.Broker() as broker, rocketc.client.Producer("shop", broker.name_server) as producer:
    ...     _ = producer.send("orders", b"one"), producer.send("orders", b"two")
    ...     lake = ClusterArchive(access_to(broker.name_server), ["orders"], tempfile.mkdtemp())
    ...     while staged := lake.stage():
    ...         lake.commit(staged)
    ...     lake.close()
    >>> lake.report.messages, lake.report.damage
    (2, [])
    """

    def __init__(
        self,
        access: Access,
        topics: Sequence[Topic],
        target: str | os.PathLike[str],
        *,
        waits: bool = False,
        group: str = TOOLS_CONSUMER,
        all_topics: bool = False,
        columns: Sequence[str] | None = None,
        compression: str | None = None,
        crc: str = "body",
        decompress: bool = True,
        commit_bytes: int = COMMIT_BYTES,
    ) -> None:
        import_pyarrow()
        choose_format("", "parquet", compression, "parquet")
        local_target(target, "an archive")
        Schema(columns)  # unknown names are reported here
        self._options, self._compression = {"crc": crc, "decompress": decompress}, compression
        self._commit_bytes, self._waits = commit_bytes, waits
        self._is_whole = True  # all commits are published
        self._thread = shared_loop()
        self._is_open = True
        self._target: Target | None = None
        self._reader = TopicReader(access, group=group, all_topics=all_topics)
        try:
            self._thread.run(self._reader.start())
            self._plan = QueuePlan(topics, {}, waits=waits)
            self._thread.run(self._plan.find(self._reader))  # an error of it leaves no folder
            self._target = Target(os.fspath(target))
            source = f"rocketmq://{';'.join(access.addresses)}"
            self._commits = ArchiveCommits(self._target, source, topics, columns)
            self._plan.begin_at(self._commits.states(), self._commits.is_same)
        except BaseException:
            self.close()
            raise

    @property
    def report(self) -> ClusterArchiveReport:
        """What was added since the archive was opened."""
        return self._commits.report

    @property
    def waits_for_topics(self) -> bool:
        """Whether no name server has answered yet."""
        return not self._plan.was_asked

    async def count_behind(self) -> int | None:
        """Return how many messages the queues have now and the archive does not; None: a broker does not answer."""
        return await self._plan.behind(self._reader)

    def behind(self) -> int | None:
        """Do count_behind() from any thread but that of the loop."""
        return self._thread.run(self.count_behind())

    def stage(self) -> Staged | None:
        """Write the messages of the next commit to the staging folder; None if no messages are new.

        An exception, also that of a signal, leaves nothing. Raises the errors of QueuePlan.next() and write_spans().
        """
        assert self._target is not None and self._is_whole  # its files must not be deleted before they are moved
        round = self._thread.run(self._plan.next(self._reader, self._commit_bytes))
        if not round.spans and not round.lost:
            return None
        for one in round.lost:
            log_damage(one)
        try:
            staging = self._target.stage()
            stem = f"part-{self._commits.number:08d}"
            job = SpansJob(
                staging, stem, tuple(self._commits.columns), self._options, self._compression, self._commit_bytes,
                not self._waits,
            )  # fmt: skip
            written = write_spans(self._thread, self._reader, round.spans, job)
        except BaseException:
            self._target.clean()
            raise
        if not round.lost and not any(position > span.begin for span, position, _ in written.reached):
            self._target.clean()
            return None
        return Staged(staging, round, written)

    def commit(self, staged: Staged) -> None:
        """Make the staged messages a part of the archive. After an error, only close() may follow.

        A kill may interrupt it. A signal should not: what is committed may then appear only in the next run.
        """
        self._is_whole = False
        self._plan.states = self._commits.commit(staged.staging, staged.round, [staged.written], self._plan.states)
        if staged.written.messages:
            self._plan.mean = staged.written.size / staged.written.messages
        self._plan.is_same = self._is_whole = True

    def discard(self) -> None:
        """Delete what stage() has written."""
        assert self._target is not None and self._is_whole
        self._target.clean()

    def close(self) -> None:
        """End the run: unlock the archive, and close the connections."""
        if self._target is not None:
            self._target.close()
            self._target = None
        if self._is_open:
            self._is_open = False
            try:
                self._thread.run(self._reader.close())
            finally:
                give_back_loop(self._thread)


@dataclass(frozen=True)
class Staged:
    """What stage() has written, for commit()."""

    staging: str
    round: Round
    written: Written

    @property
    def damage(self) -> list[QueueDamage]:
        """What the archive will lack."""
        return [*self.round.lost, *self.written.damage]
