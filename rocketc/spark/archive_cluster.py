"""Archives of topics of a cluster that Spark writes: archive() with a URL.

The folder and its state are those of `rocketc export --follow`: each can continue what the other began.
The driver plans a commit and makes it; each task pulls some queues from their brokers, and writes files of its own.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rocketc.client.access import check_group
from rocketc.client.cluster_url import SCHEME, topic_url
from rocketc.client.queue_spans import Span
from rocketc.client.routes import MessageQueue
from rocketc.exports.archive_queues import QueuePlan, Round, log_damage
from rocketc.exports.archive_spans import SpansJob, Written, as_json, from_json, write_spans
from rocketc.exports.archive_target import Target
from rocketc.exports.cluster_archive import ArchiveCommits, ClusterArchiveReport
from rocketc.read.topics import Topic
from rocketc.spark.cluster_options import Cluster
from rocketc.spark.cluster_plan import divide
from rocketc.spark.cluster_reader import ask, reader_of
from rocketc.spark.worker import FastStartup

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketc.client.security import Credentials, Tls

_MEAN = 1024  # bytes of a message, as long as nothing is known


@dataclass(frozen=True)
class ClusterJob(FastStartup):
    """The settings of all tasks of a commit.

    cluster  how to reach the cluster
    job      what they write, with the begin of the file names
    """

    cluster: Cluster
    job: SpansJob


def archived_cluster(
    url: str,
    topics: Sequence[Topic] | None,
    credentials: Credentials | None = None,
    tls: bool | Tls = False,
    group: str | None = None,
) -> tuple[Cluster, tuple[Topic, ...]]:
    """Return the cluster and the topics of arguments of archive(). Raises ValueError.

    >>> archived_cluster("rocketmq://10.0.0.1:9876/orders", None)[1]
    ('orders',)
    """
    where = topic_url(url, patterns=True)
    if where.topics and topics:
        raise ValueError(f"{url} names the topic already: leave out topics")
    found = where.topics or tuple(topics or ())
    if not found:
        raise ValueError(f"{url}: name the topic, as in {SCHEME}{where.name_server}/orders, or with topics=")
    cluster = Cluster(where.name_server, credentials, tls, None if group is None else check_group(group))
    cluster.access()  # wrong files of TLS are reported here
    return cluster, found


def archive_cluster(
    spark: SparkSession,
    cluster: Cluster,
    topics: Sequence[Topic],
    target: str,
    columns: Sequence[str] | None,
    options: Mapping[str, Any],
    compression: str | None,
    max_bytes: int,
    commit_bytes: int,
    progress: Callable[[int], None],
) -> ClusterArchiveReport:
    """Add the messages that are in topics now to an archive.

    topics    names and patterns
    columns   of ArchiveCommits
    options, compression  as of SpansJob
    max_bytes, commit_bytes  of messages in a task and in a commit, about
    progress  called after each commit with the number of bytes of messages that are done
    Raises the errors of ClusterArchive.
    """
    plan = QueuePlan(topics, {}, waits=False)
    ask(cluster, plan.find)  # an error of it leaves no folder
    out, done = Target(target), 0
    try:
        commits = ArchiveCommits(out, f"rocketmq://{cluster.name_server}", topics, columns)
        plan.begin_at(commits.states(), commits.is_same)
        while True:
            round = ask(cluster, lambda reader: plan.next(reader, commit_bytes))
            if not round.spans and not round.lost:
                return commits.report
            for one in round.lost:
                log_damage(one)
            staging = out.stage()
            job = SpansJob(
                staging, f"part-{commits.number:08d}", tuple(commits.columns), options, compression, waits=True
            )  # fmt: skip
            try:
                written = _run(spark, _tasks(round, plan.mean or _MEAN, max_bytes), ClusterJob(cluster, job))
            except BaseException:
                out.clean()
                raise
            if not round.lost and all(end == span.begin for part in written for span, end, _ in part.reached):
                out.clean()
                return commits.report
            plan.states = commits.commit(staging, round, written, plan.states)
            plan.is_same = True
            size, messages = sum(part.size for part in written), sum(part.messages for part in written)
            plan.mean = size / messages if messages else plan.mean
            done += size
            progress(done)
    finally:
        out.close()


def _tasks(round: Round, mean: float, max_bytes: int) -> list[tuple[Span, ...]]:
    messages = sum(span.end - span.begin for span in round.spans)
    most = max(int(max_bytes / mean), 1)
    tasks = divide(round.spans)
    return tasks if len(tasks) * most >= messages else divide(round.spans, -(-messages // most))


def _run(spark: SparkSession, tasks: Sequence[tuple[Span, ...]], job: ClusterJob) -> list[Written]:
    """Run each task in a Spark task; return their reports."""
    if not tasks:
        return []
    numbers = spark.range(0, len(tasks), 1, len(tasks))  # one partition per task
    plain = [[(*span.queue, span.begin, span.end) for span in task] for task in tasks]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # Spark warns of a newer pandas, which is not used here
        rows = numbers.mapInArrow(partial(write_tasks, tasks=plain, job=job), "done string").collect()
    return [from_json(json.loads(row.done)) for row in rows]


def write_tasks(
    batches: Iterable[pa.RecordBatch], tasks: Sequence[Sequence[tuple[str, str, int, int, int]]], job: ClusterJob
) -> Iterator[pa.RecordBatch]:
    """For mapInArrow over the numbers of tasks: run each task and yield its report as JSON.

    tasks  topic, broker, queue id, first and last queue offset of each span of each task
    """
    for batch in batches:
        for number in batch.column(0).to_pylist():
            spans = [Span(MessageQueue(*queue), begin, end) for *queue, begin, end in tasks[number]]
            done = as_json(write_task(number, spans, job))
            yield pa.record_batch({"done": pa.array([json.dumps(done)], pa.string())})


def write_task(number: int, spans: Sequence[Span], job: ClusterJob) -> Written:
    """Write the messages of the spans of a task, with the connections that this process keeps."""
    thread, reader = reader_of(job.cluster)
    return write_spans(thread, reader, spans, replace(job.job, stem=f"{job.job.stem}-{number:05d}"))
