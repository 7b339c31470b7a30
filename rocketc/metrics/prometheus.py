"""A collector for prometheus-client: `pip install 'rocketc[prometheus]'`.

It has no thread and keeps nothing: a store is looked at when Prometheus asks.
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

    stores  open, also with read_only=True; one that is closed is left out from then on
    labels  of each store, that all of its samples have: cluster, node_id, ...; the same names for all. None:
            {"node_id": store.path}

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
        self._lock = threading.Lock()  # of the watches: several may ask at once

    def collect(self) -> Iterator[Metric]:
        """The metrics of now; of a store whose files can't be read there are none."""
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
        """None: so the registry looks at no store when a collector is registered."""
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
