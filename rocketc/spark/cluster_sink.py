"""df.write and writeStream to a live cluster: tasks send their rows with a producer; docs/howto/spark.md, Writing.

Each row is stored at least once: a task ends when the brokers have acknowledged all of its rows.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from rocketc.client.bulk_producer import BulkCounts, BulkError, BulkProducer
from rocketc.client.connections import UNREACHABLE
from rocketc.client.loop_thread import LoopThread, give_back_loop, shared_loop
from rocketc.client.topic_reader import TopicReader
from rocketc.errors import IllegalMessageError, RocketcError, TopicNotFoundError, TopicPermissionError
from rocketc.remoting.loops import run_on_loop
from rocketc.spark.cluster_options import Cluster
from rocketc.spark.cluster_rows import OWN_COLUMNS, RowFault, Rows
from rocketc.spark.data_source_api import ArrowStreamWriter, ArrowWriter, WriterCommitMessage
from rocketc.spark.options import Options, near
from rocketc.spark.schema import SCHEMA
from rocketc.spark.sink import batches_of, check_id_column
from rocketc.spark.worker import FastStartup, in_commit
from rocketc.tables.topics import topic_name_error

if TYPE_CHECKING:
    import pyarrow

GROUP = "ROCKETC_SPARK"  # the producer group without the option producerGroup
_COLUMNS = {**{field.name: (field.dataType.simpleString(),) for field in SCHEMA}, **OWN_COLUMNS}


@dataclass
class Sent(WriterCommitMessage):
    """What a task has sent: its messages; those with a status but SEND_OK, by its name."""

    messages: int
    unsure: dict[str, int]


@dataclass(frozen=True)
class Target:
    """Where rows go.

    cluster    how to reach it
    topic      of all rows; None: the column topic
    id_column  the column with the unique ids; None: the producer makes them
    """

    cluster: Cluster
    topic: str | None = None
    id_column: str | None = None

    def producer(self) -> BulkProducer:
        """Return a producer of the cluster. Raises ValueError for a wrong setting."""
        cluster = self.cluster
        return BulkProducer(
            cluster.producer_group or GROUP, cluster.name_server, credentials=cluster.credentials, tls=cluster.tls
        )


def target_of(options: Options) -> Target:
    """Return where the rows of a save() go, whose options have a cluster."""
    assert options.cluster is not None
    return Target(options.cluster, options.topic, options.id_column)


class _Writer(FastStartup):
    """What both writers have.

    Before a task runs, it raises ValueError for wrong columns and for another mode than append, and an error if no
    broker would take the rows: TopicNotFoundError, AnswerError, NotSentError, ConnectionLostError, NoAnswerError.
    """

    def __init__(self, target: Target, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ValueError('rocketmq: messages of a cluster can\'t be replaced: use mode("append")')
        check_columns(schema, target)
        self._target, self._types = target, schema
        if not in_commit():  # Spark makes a writer for each commit of a stream, too
            run_on_loop(check_cluster(target))

    def write(self, iterator: Iterator[Any]) -> Sent:
        """Send the rows of a task, and wait until they are stored. Raises RocketcError that names a row."""
        return send_batches(self._target, batches_of(iterator, self._types))


class ClusterWriter(_Writer, ArrowWriter):  # type: ignore[misc]
    """One write of a batch query."""

    def commit(self, messages: list[Sent | None]) -> None:
        """Report on the driver's stderr what was stored with another status than SEND_OK."""
        report(self._target, messages)

    def abort(self, messages: list[Sent | None]) -> None:
        """Do nothing: the rows of the tasks that ended stay in the cluster."""


class ClusterStreamWriter(_Writer, ArrowStreamWriter):  # type: ignore[misc]
    """The writes of a streaming query."""

    def commit(self, messages: list[Sent | None], batchId: int) -> None:
        """Report as ClusterWriter does."""
        report(self._target, messages)

    def abort(self, messages: list[Sent | None], batchId: int) -> None:
        """Do nothing: the next run of the query sends the rows of this batch again."""


def check_columns(schema: StructType, target: Target) -> None:
    """Raise ValueError if rows of this schema are not messages for a cluster.

    >>> schema = StructType().add("body", "binary").add("shrad", "string")
    >>> check_columns(schema, Target(Cluster("127.0.0.1:9876"), topic="orders"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ValueError: rocketmq: unknown column 'shrad' (did you mean shard?): drop it; a message takes topic, ...
    """
    names = schema.names
    if target.id_column is not None:
        check_id_column(schema, target.id_column)
    for at, field in enumerate(schema):
        found = field.dataType.simpleString()
        if field.name in names[:at]:
            raise ValueError(f"rocketmq: column {field.name} exists twice")
        if field.name == target.id_column and field.name not in _COLUMNS:
            continue
        if field.name not in _COLUMNS:
            raise ValueError(
                f"rocketmq: unknown column {field.name!r}{near(field.name, _COLUMNS)}: drop it; "
                f"a message takes {', '.join(_COLUMNS)}, and the column of the option idColumn"
            )
        if found not in _COLUMNS[field.name]:
            wanted = " or ".join(_COLUMNS[field.name])
            raise ValueError(f"rocketmq: column {field.name} must be {wanted}, not {found}")
    if "body" not in names:
        raise ValueError("rocketmq: column body is missing; a message needs topic and body")
    if target.topic is None and "topic" not in names:
        raise ValueError("rocketmq: column topic is missing; add it, or set the option topic")
    if target.topic is not None and (error := topic_name_error(target.topic)):
        raise ValueError(f"rocketmq: option topic={target.topic!r}: {error}")


async def check_cluster(target: Target) -> None:
    """Raise an error if no name server or broker is reached, or if the brokers refuse the topic or the account."""
    topic = target.topic
    try:
        async with TopicReader(target.cluster.access()) as reader:
            known = await reader.topics()  # is it a name server?
        async with target.producer() as producer:
            await producer.check(topic)
    except TopicNotFoundError as error:
        hint = near(topic, known) if topic is not None and topic not in known else ""
        raise TopicNotFoundError(f"rocketmq: {error}{hint}") from None
    except UNREACHABLE as error:
        raise type(error)(f"rocketmq: {target.cluster.name_server}: the cluster is not reached: {error}") from None


def send_batches(target: Target, batches: Iterable[pyarrow.RecordBatch]) -> Sent:
    """Send the rows of one task. Raises RocketcError that names a row.

    >>> import rocketc, pyarrow
    >>> rows = pyarrow.record_batch({"body": [b"one", b"two"]})
    >>> with rocketc.Broker() as broker:
    ...     send_batches(Target(Cluster(broker.name_server), topic="orders"), [rows])
    Sent(messages=2, unsure={})
    """
    rows, thread = Rows(target.topic, target.id_column), None
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            if thread is None:  # a task without rows connects to nothing
                thread, producer = shared_loop(), target.producer()
                thread.run(producer.start())
            _send_batch(rows, batch, thread, producer)
        counts = BulkCounts(0, {}) if thread is None else thread.run(producer.finish())
    except RowFault as error:
        raise IllegalMessageError(f"rocketmq: {rows.describe(error.row)} cannot be a message: {error}") from None
    except BulkError as error:
        raise _row_error(rows, error.rows, error.error) from error.error
    finally:
        if thread is not None:
            thread.run(producer.close())
            give_back_loop(thread)
    return Sent(counts.messages, counts.unsure)


def _send_batch(rows: Rows, batch: pyarrow.RecordBatch, thread: LoopThread, producer: BulkProducer) -> None:
    for group in rows.groups(batch):
        thread.run(producer.add(group.topic, group.messages, group.rows))


def _row_error(rows: Rows, numbers: Sequence[int], error: Exception) -> RocketcError:
    """Return the error of a task: which row was not stored, and why."""
    text = f"{rows.describe(numbers[0])}" if numbers else "a row"
    if len(numbers) > 1:
        text += f" and {len(numbers) - 1} more"
    kept = (*UNREACHABLE, TopicNotFoundError, TopicPermissionError, IllegalMessageError)
    kind = type(error) if isinstance(error, kept) else RocketcError
    return kind(f"rocketmq: {text} of a partition: not stored: {error}")


def report(target: Target, messages: Sequence[Sent | None]) -> None:
    """Write a line to stderr for messages that are stored with another status than SEND_OK."""
    unsure: Counter[str] = Counter()
    for one in messages:
        unsure.update(one.unsure if one is not None else {})
    for status, count in unsure.items():
        print(
            f"rocketc: {target.cluster.name_server}: {count} of the rows are stored with the status {status}",
            file=sys.stderr,
        )
