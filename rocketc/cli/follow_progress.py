"""What `rocketc export --follow` says while it runs: a line a minute on stderr, and metrics."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from rocketc.cli.metrics_option import metrics_served
from rocketc.cli.output import note
from rocketc.exports.cluster_archive import ClusterArchive, ClusterArchiveReport
from rocketc.report.text import many

_LINE_SECONDS = 60.0


def progress_line(report: ClusterArchiveReport, behind: int | None, now: float) -> str:
    """Return the line: messages, how many are behind, and when the last commit was.

    behind  messages that the queues have and the archive does not; None: no broker says so now
    now     seconds since the epoch

    >>> progress_line(ClusterArchiveReport("lake", messages=7, commits=1, committed_at=100.0), 3, 112.4)
    'lake: 7 messages added, 3 behind, last commit 12 s ago'
    >>> progress_line(ClusterArchiveReport("lake"), None, 0.0)
    'lake: 0 messages added, ? behind, no commit yet'
    """
    when = "no commit yet" if report.committed_at is None else f"last commit {now - report.committed_at:.0f} s ago"
    return f"{report.path}: {many(report.messages, 'message')} added, {_shown(behind)} behind, {when}"


def _shown(behind: int | None) -> str:
    return "?" if behind is None else f"{behind:,}"


@contextlib.contextmanager
def progress_shown(archive: ClusterArchive, host: str, port: int | None) -> Iterator[None]:
    """While entered, print a line a minute, and serve metrics on a port, if one is given; see metrics_served()."""
    from rocketc.metrics.archive_measures import archive_measures
    from rocketc.metrics.exposition import exposition

    async def text() -> str:
        return exposition(archive_measures(archive.report, await archive.count_behind()))

    def lines() -> None:
        while not ends.wait(_LINE_SECONDS):
            note(progress_line(archive.report, archive.behind(), time.time()))

    ends, thread = threading.Event(), threading.Thread(target=lines, name="rocketc-progress", daemon=True)
    with metrics_served(text, host, port):
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join()
