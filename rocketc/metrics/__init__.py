"""Numbers of a store for monitoring: rocketc.metrics.measures(store).

rocketc.metrics.prometheus hands them to prometheus-client, rocketc.metrics.opentelemetry to OpenTelemetry; each needs
its package. A look at a store costs a put nothing: what it counts is counted anyway.
"""

from rocketc.metrics.look import Lag, Look, TopicLook, Watch
from rocketc.metrics.measures import Histogram, Measure, Sample, measures

__all__ = ["Histogram", "Lag", "Look", "Measure", "Sample", "TopicLook", "Watch", "measures"]
