"""The selection of messages: the arguments and options that cat, stats, export and others share."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import click

from rocketc.cli.arguments import Regex
from rocketc.cli.completion import complete_topic
from rocketc.cli.exit_codes import COULD_NOT, DAMAGED, DONE, NOT_FOUND
from rocketc.cli.output import note
from rocketc.files.paths import resolve
from rocketc.files.remote import is_url, shown
from rocketc.read.scan import Scan, scan
from rocketc.read.scan_report import MISSING_FILE, UNREADABLE_REASONS, ScanReport
from rocketc.read.topics import Topic, known_topics, missing_text, not_among
from rocketc.report.text import deleted_text

# Options that leave out messages, besides the topics.
_NARROWING = ("queues", "tags", "keys", "sql", "begin", "end", "where", "start", "stop")
_SAMPLED = 64 << 20  # bytes of the log
_SAMPLED_MESSAGES = 100_000


@dataclass(frozen=True)
class Selection:
    """The messages that a command line selects.

    paths    as in rocketc.scan()
    options  keyword arguments of rocketc.scan()
    fail_if_empty  the exit code is 1 if no message is selected
    """

    paths: tuple[str, ...]
    options: dict[str, Any]
    fail_if_empty: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether the options leave out no message of the topics."""
        return all(self.options[name] is None for name in _NARROWING)

    def scan(self, **other: Any) -> Scan:
        """Return a scan of these messages. Options in `other` override those of the command line."""
        return scan(list(self.paths), **(self.options | other)).around_start()

    def conclude(self, report: ScanReport, selected: int, complete: bool = True) -> int:
        """Report on stderr what is damaged or missing and that nothing was found, and return the exit code.

        selected  number of messages found
        complete  the scan was to read everything
        """
        start, stop = self.options["start"] or 0, self.options["stop"]
        lost = {(damage.start, damage.stop) for damage in report.damage}
        for first, behind in report.missing:
            is_read = behind > start and (stop is None or first < stop) and first <= (report.end or 0)
            if is_read and (max(first, start), behind if stop is None else min(behind, stop)) not in lost:
                note(f"these files do not have the physical offsets {first} to {behind}")
        for gap in report.deleted:
            note(deleted_text(*gap))
        if report.damage:
            size = sum(damage.stop - damage.start for damage in report.damage)
            ranges = "1 range" if len(report.damage) == 1 else f"{len(report.damage)} ranges"
            note(f"damage: {ranges}, {size} bytes lost")
            if "partial" in self.options and any(damage.reason == MISSING_FILE for damage in report.damage):
                note("restore the missing file, or use --partial to read the part of the log that is there")
            refused = all(damage.reason in UNREADABLE_REASONS for damage in report.damage)
            return COULD_NOT if refused and report.bytes == 0 else DAMAGED
        if not complete:
            return DONE
        if report.bytes == 0 and not report.deleted:
            note(f"nothing to read: {' '.join(map(shown, self.paths))}")
            return NOT_FOUND if self.fail_if_empty else DONE
        return self.conclude_topics(selected)

    def conclude_topics(self, selected: int) -> int:
        """Report on stderr that no message was selected, or that topics do not exist, and return the exit code.

        selected  number of messages found
        """
        missing = self.note_missing_topics(selected)
        if selected:
            return DONE
        if not missing:
            note("no message is selected")
        return NOT_FOUND if self.fail_if_empty or len(missing) == len(self.options["topics"] or "?") else DONE

    def conclude_archive(self) -> int:
        """Do conclude_topics() for an archive that got no message: its topics may be without new messages."""
        missing = self.note_missing_topics(0) if self.options["topics"] else []
        return NOT_FOUND if self.fail_if_empty or missing else DONE

    def note_missing_topics(self, selected: int, ahead: bool = False) -> list[Topic]:
        """Report on stderr the topics of the command line that do not exist, and return them.

        selected  number of messages that a complete scan has found
        ahead     nothing was scanned yet, and the command waits for messages: trust the folders of the queues
        """
        topics = self.options["topics"] or ()
        known = known_topics(self.paths) if topics else None
        missing = not_among(topics, known or ())
        if ahead:
            missing = missing if known is not None else []
        elif selected or any(self.options.get(name) is not None for name in _NARROWING):
            # Queues may be lost, or a dispatch late: search the log. All of it is read only if the name is wrong.
            missing = [topic for topic in missing if not self._occurs(topic, known is not None)]
        if missing:
            folders = all(is_url(path) or os.path.isdir(path) for path in self.paths)
            where = "these files" if not folders else "this store" if len(self.paths) == 1 else "these stores"
            like = known if known is not None else self._some_topics()
            note(missing_text(missing, like, where) + ("; waiting for it" if ahead else ""))
        return missing

    def _occurs(self, topic: Topic, has_queues: bool) -> bool:
        """Whether the log has a message of this topic. A log in another file system is not read again for that."""
        if any(map(is_url, self.paths)):
            return not has_queues
        parts = self._plainly(topics=topic).by_file()
        return any(next(iter(part), None) is not None for part in parts)

    def _some_topics(self) -> set[str]:
        """Return the topics at the beginning of the log, as suggestions."""
        if any(map(is_url, self.paths)):
            return set()
        start = min((file.begin for log in resolve(self.paths) for file in log.files), default=0)
        return {message.topic for message in islice(self._plainly(stop=start + _SAMPLED), _SAMPLED_MESSAGES)}

    def _plainly(self, **options: Any) -> Scan:
        """Return a scan of all messages that does as little as possible with each."""
        return scan(list(self.paths), errors="skip", crc="none", decompress=False, unwrap=False, **options)


def topics_option(begin: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option -t, which a command gets as `topic`; begin: the first words of its help."""
    return click.option(
        "-t", "--topic", multiple=True, type=Regex(slashes=True), metavar="NAME", shell_complete=complete_topic,
        help=f"{begin}; /REGEX/ must match the whole name. Repeatable.",
    )  # fmt: skip


paths_argument = click.argument("path", nargs=-1, required=True, type=click.Path())
