"""spark.read.format("rocketmq"): commit log files as a batch source of Spark."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from rocketc.errors import RocketcError, StoreIOError
from rocketc.files.paths import Log, LogFile, resolve
from rocketc.files.remote import is_url
from rocketc.jobs.counts import count
from rocketc.read.scan import scan
from rocketc.read.topics import known_topics, missing_text, not_among
from rocketc.spark.data_source_api import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from rocketc.spark.decode import _local, path_of
from rocketc.spark.filters import Narrowing, session_pushes
from rocketc.spark.options import Options, check_use, near, parse_options
from rocketc.spark.partition_reader import read_files
from rocketc.spark.partitions import absolute, plan, prune, with_lost
from rocketc.spark.schema import DAMAGE, FIELDS, KAFKA, SCHEMA
from rocketc.spark.sink import RocketmqStreamWriter, RocketmqWriter
from rocketc.spark.worker import FastStartup, in_write
from rocketc.spark.worker_python import check_worker_python

if TYPE_CHECKING:
    import pyarrow

    from rocketc.spark.cluster_stream import ClusterStreamBatches
    from rocketc.spark.stream import StreamBatches

_READ_BY_DRIVER = 1 << 30  # bytes of log; a second of work
# Arguments of a scan that leave messages out.
_ASKED = ("topics", "queues", "tags", "keys", "sql", "begin", "end", "start", "stop", "offsets")


class RocketmqSource(DataSource):
    """The data source of messages in commit logs; docs/howto/spark.md lists its options.

    Spark finds it as pyspark_rocketmq.DefaultSource. If that is not installed, register it with
    spark.dataSource.register(). A wrong option raises ValueError at load().
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for format(). spark.dataSource.register() calls this in the driver.

        Raises ImportError if the workers of a local session run a Python without rocketc.
        """
        check_worker_python()
        return "rocketmq"

    def __init__(self, options: MutableMapping[str, str], writing: bool | None = None) -> None:
        super().__init__(options)
        self._asked = parse_options(options, writing=in_write() if writing is None else writing)

    def schema(self) -> StructType:
        """Return the schema of the rows. Spark calls this at load() if the user does not give a schema.

        Raises StoreIOError for a path that does not exist; a stream waits for such a path.
        """
        try:
            if self._asked.cluster is None:
                resolve(paths_of(self._asked), self._asked.scan.get("storage_options"))
        except StoreIOError as error:
            if error.errno != errno.ENOENT or not self._asked.stream:
                raise  # a stream waits until the store is created
        return StructType([FIELDS[name] for name in self._asked.row()])

    def _is_pushed(self) -> bool:
        return self._asked.pushdown and session_pushes()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query. Raises ValueError for a schema of the user that does not fit.

        schema  that of schema(), or that of the user
        """
        check_use(self._asked, "read")
        check_schema(schema, self._asked)
        if self._asked.cluster is not None:
            from rocketc.spark import cluster_source  # not needed for files

            kind = cluster_source.PushingClusterReader if self._is_pushed() else cluster_source.ClusterReader
            return kind(self._asked, self._asked.cluster, schema)
        check_topics(paths_of(self._asked), self._asked)
        if self._is_pushed():
            return PushingReader(self._asked, schema)
        return RocketmqReader(self._asked, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of rows with this schema.

        Errors that are known before a task runs: see sink.py and cluster_sink.py.
        """
        check_use(self._asked, "write")
        if self._asked.cluster is not None:
            from rocketc.spark.cluster_sink import ClusterWriter, target_of  # not needed for files

            writer: DataSourceWriter = ClusterWriter(target_of(self._asked), schema, overwrite)
            return writer
        return RocketmqWriter(
            local_paths(self._asked), self._asked.store, schema, overwrite, id_column=self._asked.id_column
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a streaming query; as writer()."""
        check_use(self._asked, "write")
        if self._asked.cluster is None:
            return RocketmqStreamWriter(
                local_paths(self._asked), self._asked.store, schema, overwrite, id_column=self._asked.id_column
            )
        from rocketc.spark.cluster_sink import ClusterStreamWriter, target_of

        writer: DataSourceStreamWriter = ClusterStreamWriter(target_of(self._asked), schema, overwrite)
        return writer

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming query; schema: as in reader()."""
        from rocketc.spark import stream  # not needed for a batch query

        self._check_stream(schema)
        if self._asked.cluster is not None:
            from rocketc.spark import cluster_stream

            return cluster_stream.ClusterStreamReader(self._asked, self._asked.cluster, schema.names)
        return stream.RocketmqStreamReader(local_paths(self._asked), self._asked, schema.names)

    def stream_batches(self, schema: StructType) -> StreamBatches | ClusterStreamBatches:
        """Return the batches of a stream for part_stream.py, with limits in all versions of Spark."""
        from rocketc.spark import stream

        self._check_stream(schema)
        if self._asked.cluster is not None:
            from rocketc.spark import cluster_stream

            return cluster_stream.ClusterStreamBatches(self._asked, self._asked.cluster, schema.names)
        return stream.StreamBatches(local_paths(self._asked), self._asked, schema.names)

    def _check_stream(self, schema: StructType) -> None:
        check_use(self._asked, "stream")
        check_schema(schema, self._asked)
        if self._asked.cluster is None:
            check_topics(local_paths(self._asked), self._asked)


class RocketmqReader(FastStartup, DataSourceReader):
    """The reader of a batch query: the driver divides the log among tasks, the workers read it."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._paths = paths_of(options)
        self._options = options.scan
        self._damage = options.damage
        self._dropped = options.dropped
        self._columns = tuple(schema.names)
        self._cut = options.plan

    def partitions(self) -> list[InputPartition]:
        """Return the parts of files that each task reads. Raises StoreIOError for a path that can't be read.

        Files without requested messages are left out. A line on stderr, in the log of the driver, reports them.
        """
        bounds = {name: self._options.get(name) for name in ("begin", "end", "start", "stop")}
        storage = self._options.get("storage_options")
        logs = resolve(self._paths, storage)
        kept = prune(logs, bounds["begin"], bounds["end"], storage)
        files = plan(kept, **self._cut, start=bounds["start"], stop=bounds["stop"], storage=storage)
        lost = [] if self._options.get("partial") else kept
        tasks = with_lost(files, lost, bounds["start"], bounds["stop"])
        self._report_tasks(logs, tasks)
        return [InputPartition(parts) for parts in tasks]

    def read(self, partition: InputPartition | None) -> Iterator[pyarrow.RecordBatch]:
        """Yield the messages of a task. Without files there is one task, with a partition of None."""
        parts = partition.value if partition is not None else None
        return read_files(parts or (), self._columns, self._options, damage=self._damage, dropped=self._dropped)

    def _report_tasks(self, logs: list[Log], tasks: list[tuple[LogFile | Log, ...]]) -> None:
        files = [absolute(file.path) for log in logs for file in log.files]
        left = len(set(files) - {part.path for parts in tasks for part in parts if isinstance(part, LogFile)})
        asked = {name: value for name, value in self._options.items() if name in _ASKED}
        if asked:
            what = ", ".join(f"{name}={value!r}" for name, value in asked.items())
            print(
                f"rocketc: {left} of {len(files)} files left out, {len(tasks)} tasks; the query selects {what}",
                file=sys.stderr,
            )


class PushingReader(RocketmqReader):
    """A reader that also uses the filters of the query: option filterPushdown.

    It is a separate class because a reader with pushFilters() fails in a session that does not push filters.
    """

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Narrow the scan. Return the filters that Spark still has to apply."""
        narrowing = Narrowing()
        answered = [narrowing.take(filter) for filter in filters]
        self._options = narrowing.of(self._options)
        if self._damage:  # Spark must also filter the rows of damaged ranges
            return filters
        return [filter for filter, done in zip(filters, answered, strict=True) if not done]


def local_paths(options: Options) -> list[str]:
    """Return the local paths of a stream or a write. Raises StoreIOError for a URI of another file system.

    >>> local_paths(Options(("file:/data/store", "store")))
    ['/data/store', 'store']
    """
    return [_local(path) for path in options.paths]


def paths_of(options: Options) -> list[str]:
    """Return the paths for rocketc.scan(). Raises StoreIOError for a URI that it does not support.

    >>> paths_of(Options(("file:/data/store", "store", "s3://bucket/store")))
    ['/data/store', 'store', 's3://bucket/store']
    """
    return [path_of(path) for path in options.paths]


def check_topics(paths: list[str], options: Options) -> None:
    """Raise ValueError if a store lacks a topic of the option subscribe or assign, unless failOnMissingTopic=false.

    The names are those of the consume queues. Without queues, as in a copy of the folder commitlog, the driver reads
    the log if it has at most 1 GiB; topics of a larger log are not checked. In a log without messages, nothing is
    missing.

    >>> import tempfile, rocketc
    >>> root = tempfile.mkdtemp()
    >>> with rocketc.open(root, mapped_file_size_commit_log=1 << 20) as store:
    ...     _ = store.put("Orders", b"hi")
    >>> asked = Options((root,), scan={"topics": ["Order"]}, given=("subscribe",))
    >>> check_topics([root], asked)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ValueError: rocketmq: option subscribe: no topic Order in this store; did you mean Orders? ...
    """
    topics = [topic for topic in options.scan.get("topics") or () if isinstance(topic, str)]
    if not topics or not options.fail_on_missing_topic:
        return
    known = known_topics(paths, options.scan.get("storage_options")) or _topics_in(paths)
    missing = not_among(topics, known) if known else []
    if missing:
        text = missing_text(missing, known, "this store" if len(paths) == 1 else "these stores")
        option = "assign" if "assign" in options.given else "subscribe"
        text = text if text.endswith("?") else f"{text};"
        raise ValueError(f"rocketmq: option {option}: {text} set failOnMissingTopic=false to read what is there")


def _topics_in(paths: list[str]) -> set[str]:
    """Return the topics of the messages in small local logs; an empty set for others."""
    try:
        files = [file for log in resolve(paths) for file in log.files] if not any(map(is_url, paths)) else []
        if not files or sum(file.size for file in files) > _READ_BY_DRIVER:
            return set()
        return {str(group.values[0]) for group in count(scan(paths, errors="skip", crc="none"), ["topic"])}
    except RocketcError:
        return set()  # the tasks report the error


def check_schema(asked: StructType, options: Options | None = None) -> None:
    """Raise ValueError for a schema with unknown columns or wrong types. It may have any columns in any order.

    options  those of the load(); the option `columns`, if it lists names, must list those of the schema

    >>> check_schema(StructType([FIELDS["queueId"], FIELDS["body"]]))
    >>> check_schema(StructType().add("queueId", FIELDS["queueOffset"].dataType))
    Traceback (most recent call last):
        ...
    ValueError: rocketmq: schema: queueId must be int, not bigint
    """
    known = [*(KAFKA if options is not None and options.kafka else SCHEMA).names, *DAMAGE.names]
    for at, field in enumerate(asked):
        if field.name not in known:
            raise ValueError(
                f"rocketmq: schema: unknown column {field.name!r}{near(field.name, known)}; use {', '.join(known)}"
            )
        wanted = FIELDS[field.name].dataType
        if field.dataType != wanted:
            raise ValueError(
                f"rocketmq: schema: {field.name} must be {wanted.simpleString()}, not {field.dataType.simpleString()}"
            )
        if not field.nullable:
            raise ValueError(f"rocketmq: schema: {field.name} must be a nullable {wanted.simpleString()}, not NOT NULL")
        if field.name in asked.names[:at]:
            raise ValueError(f"rocketmq: schema: {field.name} exists twice")
    if not asked.names:
        raise ValueError("rocketmq: a schema without columns; to count rows, use one column, such as queueId int")
    columns = options.columns if options is not None else None
    if columns is not None and list(columns) != asked.names:
        raise ValueError(
            f"rocketmq: option columns={','.join(columns)!r}: the schema has {','.join(asked.names)}; give one of them"
        )
