"""Numbers of a store for monitoring: rocketc.metrics.measures(store).

rocketc.metrics.prometheus hands them to prometheus-client, rocketc.metrics.opentelemetry to OpenTelemetry; each needs
its package. A snapshot costs a put nothing: the store counts anyway.

Knows: which numbers a store and its files give, their metric names (RocketMQ 5's), kinds, units and labels.
Does not know: how a store works inside. It asks MessageStore.measurements(), or looks at the files of a store.
Others use: the names below.
"""

from rocketc.metrics.measures import Histogram, Measure, Sample, measures
from rocketc.metrics.snapshot import Lag, SnapshotReader, StoreSnapshot, TopicSnapshot

__all__ = ["Histogram", "Lag", "Measure", "Sample", "SnapshotReader", "StoreSnapshot", "TopicSnapshot", "measures"]

Look, TopicLook, Watch = StoreSnapshot, TopicSnapshot, SnapshotReader  # their names up to 0.1
