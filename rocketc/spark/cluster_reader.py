"""Reads queues of a cluster in Spark's Python processes: on the driver, and the tasks in the workers.

A process keeps its connections: the next task of a worker uses them again.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

from rocketc.client.connections import UNREACHABLE
from rocketc.client.loop_thread import LoopThread, give_back_loop, shared_loop
from rocketc.client.queue_range import QueueRange
from rocketc.client.queue_spans import Span, SpanReader
from rocketc.client.topic_reader import TOOLS_CONSUMER, TopicReader
from rocketc.client.topic_scan import Expression, expression_of
from rocketc.read.record_block import RecordBlock
from rocketc.read.record_stream import RecordStream
from rocketc.spark.cluster_options import Cluster
from rocketc.spark.cluster_plan import Losses
from rocketc.spark.partition_reader import rows_of, sources_of
from rocketc.spark.worker import spare_collections

if TYPE_CHECKING:
    import pyarrow

T = TypeVar("T")

QUEUES = 4  # that a task reads at the same time, with at most two answers of each in the memory
# Arguments of rocketc.scan() that apply to the rows of a cluster. The plan has used the others.
_OF_ROWS = ("tags", "keys", "sql", "begin", "end", "errors", "crc", "decompress")

_readers: dict[tuple[int, Cluster], tuple[LoopThread, TopicReader]] = {}  # by process: a fork does not share them


def ask(cluster: Cluster, question: Callable[[TopicReader], Awaitable[T]]) -> T:
    """Return what a question finds, with the connections that this process keeps.

    >>> import rocketc
    >>> with rocketc.Broker() as broker:
    ...     "TBW102" in ask(Cluster(broker.name_server), lambda reader: reader.topics())
    True
    >>> close_readers()
    """
    thread, reader = reader_of(cluster)
    return thread.run(_awaited(question, reader))


async def _awaited(question: Callable[[TopicReader], Awaitable[T]], reader: TopicReader) -> T:
    return await question(reader)


def reader_of(cluster: Cluster) -> tuple[LoopThread, TopicReader]:
    """Return the reader of a cluster that this process keeps, and the thread of its loop."""
    key = os.getpid(), cluster
    if key not in _readers:
        thread = shared_loop()
        reader = TopicReader(cluster.access(), group=cluster.consumer_group or TOOLS_CONSUMER)
        thread.run(reader.start())
        _readers[key] = thread, reader
    return _readers[key]


def close_readers() -> None:
    """Close the connections that this process keeps. The next task opens them again.

    >>> close_readers()
    """
    for key in [key for key in _readers if key[0] == os.getpid()]:
        thread, reader = _readers.pop(key)
        try:
            thread.run(reader.close())
        finally:
            give_back_loop(thread)


def read_spans(
    spans: Iterable[Span],
    columns: Sequence[str],
    options: Mapping[str, Any],
    cluster: Cluster,
    losses: Losses,
    dropped: int | None = None,
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the messages of queues: those of a queue in order, some queues at the same time.

    columns  names of rocketc.spark.schema.FIELDS
    options  keyword arguments of rocketc.scan(); those that select topics and offsets are not used
    losses   what happens if messages of a span are not there
    dropped  see read_files()
    Raises DataLossError, CorruptRecordError, and the errors of TopicReader.
    """
    spare_collections()
    spans = list(spans)
    if not spans:
        return
    thread, reader = reader_of(cluster)
    asked = {name: options[name] for name in _OF_ROWS if name in options}
    sql = options["sql"].text if "sql" in options else None

    def expression(span: Span) -> Expression:
        return expression_of(options.get("tags"), sql, [span.queue.topic])

    def blocks(idle: object) -> Iterator[RecordBlock]:
        left = deque[Span]()
        for _, same in groupby(sorted(spans, key=expression), key=expression):
            left.extend((yield from _directly(thread, reader, list(same), expression)))
        active = deque[SpanReader]()
        try:
            while left or active:
                while left and len(active) < QUEUES:
                    span = left.popleft()
                    active.append(SpanReader(reader, span, expression(span), losses))
                    thread.run(active[-1].try_to_begin())
                if records := thread.run(active[0].next()):
                    yield RecordBlock(records, (active[0].queue.broker_name,))
                    active.rotate(-1)
                else:
                    active.popleft()
        finally:
            for reading in active:
                thread.run(reading.close())

    name = f"rocketmq://{cluster.name_server}/{','.join(sorted({span.queue.topic for span in spans}))}"
    yield from rows_of(RecordStream(name, blocks, columns=sources_of(columns), **asked), columns, dropped=dropped)


def _directly(
    thread: LoopThread, reader: TopicReader, spans: Sequence[Span], expression: Callable[[Span], Expression]
) -> Generator[RecordBlock, None, list[Span]]:
    """Read spans in the fast way, as far as the answers of brokers are usual. Return the spans that are left.

    spans  their expressions are equal
    """
    ranges = {span.queue: QueueRange(span.begin, span.end) for span in spans}
    with suppress(*UNREACHABLE):
        for topic in sorted({queue.topic for queue in ranges}):
            if not reader.is_known(topic):
                thread.run(reader.find(topic))
    if len(ranges) < len(spans):  # a queue has several
        return list(spans)
    direct = reader.direct_pulls(ranges, stops_at_gaps=True, **expression(spans[0])._asdict())
    if direct is None:
        return list(spans)
    with closing(direct):
        while block := direct.next():
            yield block
    return [Span(queue, *range) for queue, range in direct.left().items() if range.begin < range.end]
