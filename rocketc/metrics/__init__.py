"""Numbers of a store for monitoring: rocketc.metrics.measures(store).

rocketc.metrics.prometheus passes them to prometheus-client, rocketc.metrics.opentelemetry to OpenTelemetry. Each needs
its package. A snapshot does not slow down puts, because the store keeps its counters anyway.

client_measures() returns the numbers of producers and consumers.

Knows: the numbers that stores, their files and clients provide, their metric names (RocketMQ 5's), kinds, units and
labels.
Does not know: how a store works inside. It calls MessageStore.measurements(), or reads the files of a store.
Others use: the names below.
"""

from rocketc.metrics.client_measures import client_measures
from rocketc.metrics.exposition import exposition
from rocketc.metrics.measures import Histogram, Measure, Sample, measures
from rocketc.metrics.snapshot import Lag, SnapshotReader, StoreSnapshot, TopicSnapshot

__all__ = [
    "Histogram",
    "Lag",
    "Measure",
    "Sample",
    "SnapshotReader",
    "StoreSnapshot",
    "TopicSnapshot",
    "client_measures",
    "exposition",
    "measures",
]

Look, TopicLook, Watch = StoreSnapshot, TopicSnapshot, SnapshotReader  # their names up to 0.1
