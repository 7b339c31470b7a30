"""A collector for prometheus-client: `pip install 'rocketc[prometheus]'`.

It does not use a thread or keep values. A snapshot of each store is taken when Prometheus scrapes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

from rocketc.errors import ClosedError
from rocketc.metrics.measures import Histogram, Labels, Measure, measures
from rocketc.metrics.snapshot import SnapshotReader
from rocketc.store._store import MessageStore

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError:
    raise ImportError("rocketc.metrics.prometheus needs prometheus-client: pip install 'rocketc[prometheus]'") from None


class StoreCollector(Collector):
    """The metrics of one or more stores, for a registry of prometheus-client.

    stores  open, also with read_only=True; a store is left out after it is closed
    labels  for each store the labels of all its samples: cluster, node_id, ...; with the same names for all stores.
            None: {"node_id": store.path}

    >>> import prometheus_client, rocketc, tempfile
    >>> registry = prometheus_client.CollectorRegistry()
    >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
    ...     registry.register(StoreCollector(store, labels=[{"cluster": "c", "node_id": "a"}]))
    ...     r = store.put("orders", b"hello"), store.wait_dispatched()
    ...     of = {"cluster": "c", "node_id": "a", "topic": "orders", "is_system": "false"}
    ...     registry.get_sample_value("rocketmq_messages_in_total", of)
    1.0
    """

    def __init__(self, *stores: MessageStore, labels: Iterable[Labels] | None = None) -> None:
        given = list(labels) if labels is not None else [{"node_id": store.path} for store in stores]
        if len(given) != len(stores) or len({frozenset(one) for one in given}) > 1:
            raise ValueError(f"labels: a mapping for each of the {len(stores)} stores, all with the same names")
        self._watches = [(SnapshotReader(store), one) for store, one in zip(stores, given, strict=True)]
        self._lock = threading.Lock()  # for the watches: several scrapes may run at once

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics; a store whose files cannot be read is left out."""
        found: dict[str, Any] = {}
        with self._lock:
            for watch, labels in self._watches:
                try:
                    of_store = measures(watch, labels)
                except (ClosedError, OSError):
                    continue
                for one in of_store:
                    if one.samples:
                        _add(found, one, list(labels))
        yield from found.values()

    def describe(self) -> Iterator[Metric]:
        """Yield nothing, so that registering the collector does not read the stores."""
        yield from ()


def _add(found: dict[str, Any], one: Measure, common: list[str]) -> None:
    names = [*common, *one.labels]
    if one.name not in found:
        kind = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
        found[one.name] = kind[one.kind](one.name, one.help, labels=names)
    family = found[one.name]
    for sample in one.samples:
        values = [sample.labels[name] for name in names]
        if isinstance(sample.value, Histogram):
            buckets = [(repr(bound), count) for bound, count in sample.value.below]
            family.add_metric(values, [*buckets, ("+Inf", sample.value.count)], sample.value.sum)
        else:
            family.add_metric(values, float(sample.value))
