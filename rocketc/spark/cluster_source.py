"""spark.read.format("rocketmq") with the option nameServer: topics of a live cluster as a batch source of Spark."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from rocketc.client.queue_spans import Span
from rocketc.spark.cluster_options import Cluster
from rocketc.spark.cluster_plan import BatchPlan, Losses
from rocketc.spark.cluster_reader import ask, read_spans
from rocketc.spark.data_source_api import DataSourceReader, InputPartition
from rocketc.spark.filters import Narrowing
from rocketc.spark.options import Options
from rocketc.spark.worker import FastStartup

if TYPE_CHECKING:
    import pyarrow


class ClusterReader(FastStartup, DataSourceReader):
    """The reader of a batch query: the driver asks the cluster for its queues, the tasks pull from the brokers."""

    def __init__(self, options: Options, cluster: Cluster, schema: StructType) -> None:
        scan = options.scan
        self._cluster = cluster
        self._columns = tuple(schema.names)
        self._dropped = options.dropped
        self._losses = Losses(options.stream.get("failOnDataLoss", True))
        self._options = {name: value for name, value in scan.items() if name != "topics"}
        self._plan = BatchPlan(
            tuple(scan["topics"]), options.bounds, options.fail_on_missing_topic, self._losses, scan.get("begin"),
            scan.get("end"), options.plan.get("min_partitions"),
        )  # fmt: skip

    def partitions(self) -> list[InputPartition]:
        """Return what each task reads. Raises the errors of BatchPlan.tasks()."""
        tasks = ask(self._cluster, self._plan.tasks)
        queues = {span.queue for spans in tasks for span in spans}
        messages = sum(span.end - span.begin for spans in tasks for span in spans)
        print(f"rocketc: tasks: {len(tasks)}, messages: {messages}, queues: {len(queues)}", file=sys.stderr)
        return [InputPartition(spans) for spans in tasks]

    def read(self, partition: InputPartition | None) -> Iterator[pyarrow.RecordBatch]:
        """Yield the messages of a task. Without messages there is one task, with a partition of None."""
        spans: tuple[Span, ...] = partition.value if partition is not None else ()
        return read_spans(spans or (), self._columns, self._options, self._cluster, self._losses, self._dropped)


class PushingClusterReader(ClusterReader):
    """A reader that also uses the filters of the query: option filterPushdown."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Narrow the plan and the rows. Return the filters that Spark still has to apply."""
        narrowing = Narrowing()
        answered = [narrowing.take(filter) for filter in filters]
        narrowed = narrowing.of({**self._options, "topics": list(self._plan.topics)})
        queue_ids = narrowed.pop("queues", None)
        self._plan = replace(
            self._plan,
            narrowed=tuple(narrowed.pop("topics")),
            queue_ids=None if queue_ids is None else frozenset(queue_ids),
            begin=narrowed.get("begin"),
            end=narrowed.get("end"),
        )
        self._options = narrowed
        return [filter for filter, done in zip(filters, answered, strict=True) if not done]
