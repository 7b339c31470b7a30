"""Archives: folders of Parquet files that grow with a log. archive() and read_archive(); docs/howto/archive.md."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rocketc.client.cluster_url import SCHEME
from rocketc.exports.archive_queues import QueueDamage
from rocketc.exports.archive_target import Commit, Target, archived_columns, commits_of, layout_of
from rocketc.exports.formats import choose_format
from rocketc.files.paths import Log, LogFile, Paths, local_of, resolve
from rocketc.files.remote import local_target
from rocketc.read._arrow import Schema
from rocketc.read.scan import scan
from rocketc.read.scan_options import Crc
from rocketc.read.scan_report import Damage
from rocketc.read.topics import Topic
from rocketc.spark.archive_cluster import archive_cluster, archived_cluster
from rocketc.spark.archive_task import Job, add_up, run_tasks
from rocketc.spark.decode import _local
from rocketc.spark.partitions import plan
from rocketc.spark.schema import schema
from rocketc.spark.worker_python import check_worker_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rocketc.client.security import Credentials, Tls

MAX_BYTES = 1 << 30
COMMIT_BYTES = 16 << 30

_TIME = pa.timestamp("us", "UTC")
_STATISTICS = pa.schema(
    {
        "file": pa.string(),
        "topic": pa.string(),
        "date": pa.date32(),
        "messages": pa.int64(),
        "bytes": pa.int64(),
        "firstOffset": pa.int64(),
        "lastOffset": pa.int64(),
        "firstTimestamp": _TIME,
        "lastTimestamp": _TIME,
    }
)
_DAMAGE = pa.schema({"file": pa.string(), "start": pa.int64(), "stop": pa.int64(), "reason": pa.string()})


@dataclass
class ArchiveReport:
    """The result of a run: what it added to an archive.

    start, stop  the range of physical offsets that was read; the next run starts at stop
    messages     number of messages that were added
    files        number of Parquet files with messages that were added
    bytes        size of these files
    damage       lost ranges of the log, also those of missing files; of a cluster: lost messages of its queues
    torn         bytes at the end of the log that are not a valid message yet; the next run reads them again
    commits      number of commits of the run
    """

    path: str
    start: int = 0
    stop: int = 0
    messages: int = 0
    files: int = 0
    bytes: int = 0
    damage: list[Damage | QueueDamage] = field(default_factory=list)
    torn: Damage | None = None
    commits: int = 0


def archive(
    spark: SparkSession,
    source: Paths,
    target: str | os.PathLike[str],
    *,
    topics: Topic | Sequence[Topic] | None = None,
    columns: Sequence[str] | None = None,
    crc: Crc = "body",
    decompress: bool = True,
    compression: str | None = None,
    max_bytes: int = MAX_BYTES,
    commit_bytes: int = COMMIT_BYTES,
    progress: Callable[[int], None] | None = None,
    credentials: Credentials | None = None,
    tls: bool | Tls = False,
    group: str | None = None,
) -> ArchiveReport:
    """Add the new messages of a log, or of topics of a cluster, to a folder of Parquet files.

    The first run creates the folder. Its folder `data` has the messages as rocketc.export(...,
    partition_by=("topic", "date")) writes them; `_rocketc/statistics` and `_rocketc/damage` are two tables. The folder
    holds each message once, also if a run was killed. A run consists of commits. The next run deletes files that were
    not committed, and finishes a commit that was not published.

    source        one log whose files are named by their physical offset, as in rocketc.scan(); a broker may write to
                  it. Or a URL of a cluster, rocketmq://host:port/topic: the run ends with the messages that are there
                  when it begins
    target        a folder that does not exist, is empty, or is an archive; executors see source and target under the
                  same paths
    topics, columns  archive only these; the same in each run. Without columns, an archive keeps those that it has. Of a
                  cluster, topics may be patterns, too
    crc, decompress  as in rocketc.scan()
    compression   "zstd" (default), "snappy", "gzip", "lz4", "none"
    max_bytes     bytes of the log that a task reads; more bytes give fewer and larger files
    commit_bytes  bytes of the log in a commit; a kill loses the work of one commit at most
    progress      called after each commit with the number of bytes of the log that are done
    credentials, tls, group  of a cluster: see rocketc.scan()
    Raises ValueError if the log is not the one that was archived before, if it was cut, or if the options differ from
    those of the earlier runs; StoreLockedError if another run is writing; StoreIOError; ImportError if the workers of a
    local session run a Python without rocketc.
    """
    check_worker_python()
    given = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    Schema(columns)  # unknown names are reported here
    choose_format("", "parquet", compression, "parquet")
    if min(max_bytes, commit_bytes) < 1:
        raise ValueError(f"max_bytes={max_bytes}, commit_bytes={commit_bytes}: at least 1")
    local_target(local_of(os.fspath(target)), "archive()")
    path, asked = _local(os.fspath(target)), _topics(topics)
    url = given[0] if len(given) == 1 else None
    if isinstance(url, str) and url.startswith(SCHEME):
        access = archived_cluster(url, asked, credentials, tls, group)
        found = archive_cluster(
            spark, *access, path, columns, {"crc": crc, "decompress": decompress}, compression, max_bytes, commit_bytes,
            progress or (lambda done: None),
        )  # fmt: skip
        return ArchiveReport(
            found.path, messages=found.messages, files=found.files, bytes=found.bytes, damage=list(found.damage),
            commits=found.commits,
        )  # fmt: skip
    if credentials is not None or tls or group is not None:
        raise ValueError("credentials, tls and group are for a cluster, as in rocketmq://127.0.0.1:9876/orders")
    if asked is not None and not all(isinstance(topic, str) for topic in asked):
        raise ValueError("topics: an archive of a log takes names, not patterns")
    wanted = None if asked is None else sorted(set(map(str, asked)))
    paths = [_local(os.fspath(one)) for one in given]
    _one_log(paths)
    _check_place(paths, path)
    options = {"topics": wanted, "crc": crc, "decompress": decompress}
    out = Target(path)
    try:
        run = _Run(spark, paths, out, columns, options, compression)
        return run.go(max_bytes, commit_bytes, progress or (lambda done: None))
    finally:
        out.close()


def read_archive(spark: SparkSession, target: str | os.PathLike[str]) -> DataFrame:
    """Return the messages of an archive, with a column `date`; only those of published commits, also during a run.

    spark.read.parquet(f"{target}/data") reads them too, but it infers the types of topic and date. It may also read a
    part of a commit whose files are being moved.
    Raises StoreIOError for a folder that is not an archive.
    """
    path = os.path.abspath(_local(os.fspath(target)))
    commits = list(commits_of(path))
    columns = commits[-1].columns if commits else None
    wanted = schema(columns)
    if "topic" not in wanted.names:
        wanted.add("topic", "string")
    wanted.add("date", "date")
    files = [os.path.join(path, file[0]) for commit in commits for file in commit.message_files]
    if not files:
        return spark.createDataFrame([], wanted)
    return (
        spark.read.schema(wanted)
        .option("basePath", os.path.join(path, layout_of(path).messages))
        .parquet(*files)
        .select(*wanted.names)
    )


def _topics(topics: Topic | Sequence[Topic] | None) -> tuple[Topic, ...] | None:
    if topics is None:
        return None
    return (topics,) if isinstance(topics, (str, re.Pattern)) else tuple(topics)


@dataclass
class _Run:
    """One run: it makes commits up to the end of the log."""

    spark: SparkSession
    paths: list[str]
    target: Target
    asked: Sequence[str] | None  # columns
    options: dict[str, Any]
    compression: str | None

    def go(self, max_bytes: int, commit_bytes: int, progress: Callable[[int], None]) -> ArchiveReport:
        log = _one_log(self.paths)
        last = self.target.last()
        self.columns = tuple(archived_columns(last, self.asked))
        if last is not None:
            self._check_same(log, last)
        begin = log.files[0].begin if log.files else 0
        mark = begin if last is None else last.stop
        report = ArchiveReport(self.target.path, mark, mark)
        log_end = max((file.end for file in log.files), default=0)
        while mark < log_end:
            try:
                commit, damage, report.torn = self._next(log, mark, last, max_bytes, commit_bytes)
            except BaseException:
                self.target.clean()
                raise
            if commit is None:
                break
            self.target.commit(commit)
            self.target.publish(commit)
            _add(report, commit, damage)
            progress(commit.stop - report.start)
            last, mark = commit, commit.stop
            log = _one_log(self.paths)
        return report

    def _next(
        self, log: Log, mark: int, last: Commit | None, max_bytes: int, commit_bytes: int
    ) -> tuple[Commit | None, list[Damage], Damage | None]:
        """Stage the next commit. Return it, its damage, and the torn bytes at the log's end; None if nothing is new."""
        first = log.files[0].begin if log.files else mark
        lost: list[list[Any]] = [[None, mark, first, "missing_file"]] if mark < first else []
        pos = max(mark, first)
        tasks = _tasks(log, pos, max_bytes, commit_bytes)
        if not tasks:
            return None, [], None
        end, torn = _is_end(tasks[0][0], pos, self.options)
        if end and not lost:
            return None, [], torn
        staging = self.target.stage()
        run = os.path.basename(staging)
        job = Job(staging, self.columns, self.options, self.compression, dict(log.missing))
        accepted = []
        for done in run_tasks(self.spark, tasks, job):
            gap = job.gaps.get(pos)
            if done["begin"] != pos and (gap is None or gap != done["begin"]):
                break  # the log grew between two tasks: the next commit reads the bytes between them
            if done["begin"] != pos:
                lost.append([None, pos, gap, "missing_file"])
            pos = done["end"]
            accepted.append(done)
        lost += [one for done in accepted for one in done["damage"]]
        torn = None
        if accepted and accepted[-1]["torn"]:
            torn = Damage(*lost.pop())
            pos = torn.start
        if pos == mark and not lost:
            self.target.clean()
            return None, [], torn
        number = 1 if last is None else last.number + 1
        files = [
            self.target.place(os.path.join(run, name), size, rows)
            for done in accepted
            for name, size, rows in done["files"]
        ]
        rows = [row for done in accepted for row in done["statistics"]]
        files += self._stage_tables(staging, number, rows, lost)
        anchors = [done["anchor"] for done in accepted if done["anchor"] is not None]
        commit = Commit(
            number,
            [os.path.abspath(path) for path in self.paths],
            list(self.columns),
            self.options["topics"],
            mark,
            pos,
            anchors[-1] if anchors else None if last is None else last.anchor,
            sum(row[3] for row in rows),
            files,
        )
        return commit, [Damage(*one) for one in lost], torn

    def _stage_tables(self, staging: str, number: int, statistics: list[Any], lost: list[Any]) -> list[list[Any]]:
        """Write the rows of a commit for the tables of an archive; the first commit creates both tables."""
        layout = self.target.layout
        tables = ((layout.statistics, _statistics(statistics)), (layout.damage, _table(lost, _DAMAGE)))
        return [
            self.target.stage_table(staging, table, number, rows)
            for table, rows in tables
            if rows.num_rows or number == 1
        ]

    def _check_same(self, log: Log, last: Commit) -> None:
        """Raise ValueError if the log is not that of the last run, or the options are different."""
        if last.queues is not None:
            raise ValueError(f"{self.target.path}: an archive of a cluster; archive a log to another folder")
        for name, was, now in (
            ("columns", last.columns, list(self.columns)),
            ("topics", last.topics, self.options["topics"]),
        ):
            if was != now:
                raise ValueError(
                    f"{self.target.path}: {name}={now}, but it was made with {was}; use the same, or another folder"
                )
        end = max((file.end for file in log.files), default=0)
        why = None
        if end < last.stop:
            why = f"ends at physical offset {end}, but it was archived up to {last.stop}"
        elif last.anchor is not None:
            at = last.anchor["physicalOffset"]
            here = [file for file in log.files if file.base is not None and file.base <= at < file.end]
            if here and _anchor_at(here[0], at) != last.anchor:
                why = f"has another message at physical offset {at} than the last archived one"
        if why is not None:
            raise ValueError(
                f"{', '.join(self.paths)}: {why} to {self.target.path}: it was cut, or is another log; "
                "archive it to another folder"
            )


def _one_log(paths: list[str]) -> Log:
    logs = resolve(paths)
    if len(logs) != 1 or any(file.base is None for file in logs[0].files):
        raise ValueError(f"{', '.join(paths)}: an archive needs one log whose files are named by their physical offset")
    return logs[0]


def _check_place(paths: list[str], target: str) -> None:
    """Raise ValueError if source and target are the same folder, or one contains the other."""
    outer = os.path.realpath(target)
    for path in paths:
        inner = os.path.realpath(path)
        if os.path.commonpath([inner, outer]) in (inner, outer):
            raise ValueError(f"target {target!r} and source {path!r}: one contains the other; use another target")


def _tasks(log: Log, mark: int, max_bytes: int, commit_bytes: int) -> list[tuple[LogFile, ...]]:
    """Return tasks for the log after `mark`, of about commit_bytes in total."""
    rest = [file for file in log.files if file.next_base > mark]
    tasks: list[tuple[LogFile, ...]] = []
    taken = 0
    for task in plan([Log(tuple(rest), ())], min(max_bytes, commit_bytes)):
        parts = [part for part in task if part.stop is None or part.stop > mark]
        parts = [_from(part, mark) for part in parts]
        if not parts:
            continue
        size = sum(part.end - part.begin for part in parts)
        if tasks and taken + size > commit_bytes:
            break
        tasks.append(tuple(parts))
        taken += size
    return tasks


def _from(part: LogFile, mark: int) -> LogFile:
    """Return the part from `mark` on, where a record begins."""
    if mark <= part.begin:
        return part
    return replace(part, start=mark, exact=True)


def _is_end(part: LogFile, mark: int, options: dict[str, Any]) -> tuple[bool, Damage | None]:
    """Return whether the log ends at `mark`, the start of this part; and the torn bytes there."""
    if not part.last:
        return False, None
    found = scan(replace(part, start=mark, stop=mark + 1, exact=True), errors="skip", columns=[], **options)
    found.count()
    end, damage = found.report.end, found.report.damage
    if damage and damage[0].start == mark and damage[0].stop == end:
        return _is_end(replace(part, start=end), damage[0].stop, options)[0], damage[0]
    return end == mark, None


def _anchor_at(file: LogFile, at: int) -> dict[str, Any] | None:
    """Return the fields that identify the message at a physical offset."""
    part = replace(file, start=at, stop=at + 1, exact=True)
    messages = scan(part, errors="skip", crc="none", decompress=False, unwrap=False)
    for one in messages:
        return {
            "physicalOffset": one.phy_offset,
            "storeTimestamp": one.store_timestamp * 1000,
            "storeSize": one.store_size,
            "bodyCRC": one.body_crc,
        }
    return None


def _statistics(rows: list[Any]) -> pa.Table:
    """Return the table of statistics; rows of the same file, topic and date from several tasks are added up."""
    sums: dict[tuple[Any, ...], list[int]] = {}
    for row in rows:
        add_up(sums, tuple(row[:3]), row[3:])
    return _table([[*key, *values] for key, values in sums.items()], _STATISTICS)


def _table(rows: list[Any], of: pa.Schema) -> pa.Table:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in of]
    return pa.table([pa.array(values, kind) for values, kind in zip(columns, of.types, strict=True)], schema=of)


def _add(report: ArchiveReport, commit: Commit, damage: list[Damage]) -> None:
    messages = commit.message_files
    report.stop = commit.stop
    report.messages += commit.messages
    report.files += len(messages)
    report.bytes += sum(file[2] for file in messages)
    report.damage += damage
    report.commits += 1
