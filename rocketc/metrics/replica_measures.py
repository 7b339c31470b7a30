"""The numbers of a copy that `rocketc replicate` makes, as metrics. Their names begin with `rocketc_replica_`."""

from __future__ import annotations

from rocketc.jobs.replicate import ReplicaProgress
from rocketc.metrics.measures import Measure


def replica_measures(progress: ReplicaProgress) -> list[Measure]:
    """Return the metrics of a copy. The lag is left out while the master's broker does not answer.

    >>> found = replica_measures(ReplicaProgress(100, 0, 100, 50.0, 120, "transferring", 1, None, False))
    >>> [(one.name, one.samples[0].value) for one in found[:2]]
    [('rocketc_replica_phy_offset', 100), ('rocketc_replica_lag_bytes', 20)]
    """

    def one(name: str, kind: str, unit: str, text: str, value: int | None) -> Measure:
        return Measure(f"rocketc_replica_{name}", kind, unit, text).add(value)

    return [
        one("phy_offset", "gauge", "bytes", "End of the copy's log", progress.phy_offset),
        one("lag_bytes", "gauge", "bytes", "Bytes that the master has and the copy does not", progress.lag),
        one("received_bytes_total", "counter", "bytes", "Bytes of the log that were received", progress.received_bytes),
        one("connections_total", "counter", "", "Connections to the master", progress.connections),
        one("connected", "gauge", "", "1: there is a connection to the master", int(progress.is_connected)),
    ]
