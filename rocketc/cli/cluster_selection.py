"""The messages that a command line selects from topics of a cluster, in the place of those of a store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import click

from rocketc.cli.exit_codes import DAMAGED, DONE, NOT_FOUND
from rocketc.cli.output import note
from rocketc.cli.security_options import Security
from rocketc.cli.selection import Selection
from rocketc.client.access import Access, access_to, check_group
from rocketc.client.cluster_url import SCHEME, TopicUrl, topic_url
from rocketc.client.topic_reader import TOOLS_CONSUMER
from rocketc.client.topic_scan import TopicScan
from rocketc.read.scan_report import ScanReport
from rocketc.read.topics import Topic

# Options that do not apply to a cluster, by their names in Selection.options.
_OF_FILES = {"start": "--start", "stop": "--stop", "partial": "--partial"}
_AGAIN = 60.0  # seconds in which a warning is not repeated
_NOTED_MOST = 1024  # warnings that are known for this
_NOT_OF_A_SCAN = ("topics", "unreadable", *_OF_FILES)


def check_topics(url: TopicUrl, topics: tuple[Topic, ...] | None) -> tuple[Topic, ...]:
    """Return the topics of a command line: those of the URL, or those of -t. Raises click.UsageError."""
    if url.topics and topics:
        raise click.UsageError(f"{url.url} names the topic already: leave out -t")
    if not url.topics and not topics:
        raise click.UsageError(f"{url.url}: name the topic, as in {SCHEME}{url.name_server}/orders")
    return url.topics or topics or ()


@dataclass(frozen=True)
class ClusterSelection(Selection):
    """The messages that a command line selects from a cluster.

    access  the way to the cluster
    topics  names and patterns
    group   of the pulls
    all_topics  patterns match the topics of the system, too
    security  account and TLS
    scans   those that were made; close() ends them
    """

    access: Access = field(default_factory=lambda: Access(()))
    topics: tuple[Topic, ...] = ()
    group: str = TOOLS_CONSUMER
    all_topics: bool = False
    scans: list[TopicScan] = field(default_factory=list)
    security: Security = field(default_factory=Security)

    @classmethod
    def of(
        cls,
        url: TopicUrl,
        options: dict[str, Any],
        fail_if_empty: bool,
        security: Security,
        group: str | None,
        all_topics: bool = False,
    ) -> ClusterSelection:
        """Return the selection of a command line. Raises click.UsageError."""
        for name, option in _OF_FILES.items():
            if options[name]:
                raise click.UsageError(f"{option} is for files of a log, not for a cluster")
        topics = check_topics(url, options["topics"])
        try:
            access = access_to(url.name_server, security.credentials, security.tls)
            checked = TOOLS_CONSUMER if group is None else check_group(group)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        options = options | {"topics": topics}
        return cls((url.url,), options, fail_if_empty, access, topics, checked, all_topics, security=security)

    @property
    def names_topic(self) -> bool:
        """Whether the URL names the topic or the pattern; otherwise -t did."""
        return bool(topic_url(self.paths[0], patterns=True).topics)

    def scan(self, **other: Any) -> TopicScan:
        """Return a scan of these messages; `other` may also have the arguments of TopicScan."""
        options = {name: value for name, value in (self.options | other).items() if name not in _NOT_OF_A_SCAN}
        scan = TopicScan(self.access, self.topics, group=self.group, all_topics=self.all_topics, **options)
        self.scans.append(scan)
        return scan

    def close(self) -> None:
        """End the scans."""
        for scan in self.scans:
            scan.close()

    def conclude(self, report: ScanReport, selected: int, complete: bool = True) -> int:
        """Report on stderr what is damaged, and that nothing was found; return the exit code."""
        if report.damage:
            size = sum(damage.stop - damage.start for damage in report.damage)
            ranges = "1 range" if len(report.damage) == 1 else f"{len(report.damage)} ranges"
            note(f"damage: {ranges}, {size} bytes lost")
            return DAMAGED
        return self.conclude_topics(selected) if complete else DONE

    def conclude_topics(self, selected: int) -> int:
        """Report on stderr that no message was selected. Topics that do not exist were reported before."""
        if selected:
            return DONE
        note("no message is selected")
        return NOT_FOUND if self.fail_if_empty else DONE

    def note_missing_topics(self, selected: int, ahead: bool = False) -> list[Topic]:
        """Do nothing: the scan asks the cluster for its topics."""
        return []


class _Notes(logging.Handler):
    """A log handler that writes warnings of the library to stderr, one line each.

    noted  texts, and when they were written: a broker that is down is the same warning every few seconds
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.begin(lambda: None)

    def begin(self, before: Callable[[], None]) -> None:
        """Forget what was written. before: called before each line"""
        self._before = before
        self.noted: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("rocketc.remoting"):
            return  # the call on the connection has an error that says the same
        text = record.getMessage()
        if record.created < self.noted.get(text, -_AGAIN) + _AGAIN:
            return
        if len(self.noted) == _NOTED_MOST:
            self.noted.clear()
        self.noted[text] = record.created
        self._before()
        note(text)


_NOTES = _Notes()  # one for the process: a signal that ends a command may leave it in place


@contextmanager
def warnings_noted(before: Callable[[], None] = lambda: None) -> Iterator[None]:
    """While entered, warnings of the library are lines on stderr. before: called before each"""
    log = logging.getLogger("rocketc")
    try:
        _NOTES.begin(before)
        log.addHandler(_NOTES)
        yield
    finally:
        log.removeHandler(_NOTES)
