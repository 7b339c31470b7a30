"""The numbers of a run of `rocketc export --follow`, as metrics. Their names begin with `rocketc_archive_`."""

from __future__ import annotations

from rocketc.exports.cluster_archive import ClusterArchiveReport
from rocketc.metrics.measures import Measure


def archive_measures(report: ClusterArchiveReport, behind: int | None) -> list[Measure]:
    """Return the metrics of a run. The messages behind are left out while a broker does not answer.

    >>> found = archive_measures(ClusterArchiveReport("lake", messages=7), 3)
    >>> [(one.name, one.samples[0].value) for one in found[:2]]
    [('rocketc_archive_messages_total', 7), ('rocketc_archive_lag_messages', 3)]
    """

    def one(name: str, kind: str, unit: str, text: str, value: float | None) -> Measure:
        return Measure(f"rocketc_archive_{name}", kind, unit, text).add(value)

    lost = sum(damage.stop - damage.start for damage in report.damage)
    return [
        one("messages_total", "counter", "", "Messages that this run has added", report.messages),
        one("lag_messages", "gauge", "", "Messages that the queues have and the archive does not", behind),
        one("bytes_total", "counter", "bytes", "Size of the files that this run has added", report.bytes),
        one("commits_total", "counter", "", "Commits of this run", report.commits),
        one("last_commit_timestamp_seconds", "gauge", "seconds", "When the last commit was", report.committed_at),
        one("lost_messages_total", "counter", "", "Messages that were lost or damaged", lost),
    ]
