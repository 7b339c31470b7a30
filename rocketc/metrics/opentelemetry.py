"""Instruments for OpenTelemetry: `pip install 'rocketc[opentelemetry]'`, and an SDK that reads them.

They do not use a thread. A snapshot of the store is taken when a reader collects, once for all instruments.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from rocketc.errors import ClosedError
from rocketc.metrics.measures import Histogram, Labels, Measure, Sample, measures
from rocketc.metrics.snapshot import SnapshotReader
from rocketc.store._store import MessageStore

try:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation, get_meter
except ImportError:
    raise ImportError(
        "rocketc.metrics.opentelemetry needs opentelemetry-api: pip install 'rocketc[opentelemetry]'"
    ) from None

_UNITS = {"bytes": "By", "ms": "ms", "s": "s", "": "1"}


def observe(store: MessageStore, *, labels: Labels | None = None, meter: Meter | None = None) -> None:
    """Register the metrics of a store with OpenTelemetry, for as long as the store is open.

    store   open, also with read_only=True
    labels  of all observations; None: {"node_id": store.path}
    meter   of the provider to use; None: of the global provider

    A histogram becomes three counters, as in Prometheus: NAME_bucket with the label `le`, NAME_count and NAME_sum,
    because OpenTelemetry does not have an observable histogram. After the store is closed, nothing is observed.
    Raises ClosedError.

    >>> import rocketc, tempfile
    >>> from opentelemetry.sdk.metrics import MeterProvider
    >>> from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    >>> reader = InMemoryMetricReader()
    >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
    ...     observe(store, meter=MeterProvider([reader]).get_meter("app"))
    ...     found = reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
    >>> "rocketmq_storage_flush_behind_bytes" in [one.name for one in found]
    True
    """
    looks = _Looks(store, labels)
    meter = get_meter("rocketc") if meter is None else meter
    for one in [one for found in measures(looks.watch) for one in _flat(found)]:
        make = meter.create_observable_counter if one.kind == "counter" else meter.create_observable_gauge
        make(one.name, [looks.callback(one.name)], _UNITS[one.unit], one.help)


class _Looks:
    """Takes one snapshot per collection for all instruments."""

    def __init__(self, store: MessageStore, labels: Labels | None) -> None:
        self.watch = SnapshotReader(store)
        self._labels = labels
        self._lock = threading.Lock()
        self._left: dict[str, list[Observation]] = {}  # observations that are not collected yet

    def callback(self, name: str) -> Callable[[CallbackOptions], list[Observation]]:
        def observations(options: CallbackOptions) -> list[Observation]:
            with self._lock:
                if name not in self._left:  # collected already: this is another collection
                    self._left = self._look()
                return self._left.pop(name, [])

        return observations

    def _look(self) -> dict[str, list[Observation]]:
        try:
            found = measures(self.watch, self._labels)
        except (ClosedError, OSError):
            return {}
        return {
            one.name: [Observation(sample.value, sample.labels) for sample in one.samples]  # type: ignore[arg-type]
            for measure in found
            for one in _flat(measure)
        }


def _flat(one: Measure) -> list[Measure]:
    """Convert a histogram to counters; return other measures unchanged."""
    if one.kind != "histogram":
        return [one]
    names = one.labels
    buckets = Measure(f"{one.name}_bucket", "counter", "", f"{one.help}: up to `le`", (*names, "le"))
    count = Measure(f"{one.name}_count", "counter", "", f"{one.help}: how many", names)
    total = Measure(f"{one.name}_sum", "counter", one.unit, f"{one.help}: all together", names)
    for labels, value in one.samples:
        assert isinstance(value, Histogram)
        for bound, many in [*value.below, (float("inf"), value.count)]:
            le = "+Inf" if bound == float("inf") else repr(bound)
            buckets.samples.append(Sample({**labels, "le": le}, many))
        count.samples.append(Sample(labels, value.count))
        total.samples.append(Sample(labels, value.sum))
    return [buckets, count, total]
