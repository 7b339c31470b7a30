"""Damage and ScanReport: what a pass over a log has counted, and what it could not read."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rocketc.rendering import HtmlRepr

MISSING_FILE = "missing_file"  # the reason of a range of the log whose file was lost
# The reason of a file that can't be opened, by errno. Other errors do not depend on the file, or it was just deleted.
UNREADABLE = {errno.EACCES: "no_permission", errno.EPERM: "no_permission", errno.EIO: "unreadable"}
UNREADABLE_REASONS = frozenset(UNREADABLE.values())


@dataclass(frozen=True)
class Damage:
    """Bytes that could not be read as records.

    start, stop  physical offsets, half open
    reason       the first error in the range, one of the names in docs/damage.md
    """

    file: str | None
    start: int
    stop: int
    reason: str

    def __str__(self) -> str:
        where = f"{self.file}: " if self.file else ""
        return f"{where}{self.stop - self.start} bytes lost at physical offset {self.start}: {self.reason}"


def torn_tail(damage: Sequence[Damage], end: int | None) -> Damage | None:
    """Return the damage at the end of the bytes read, left by a killed writer or being written now; otherwise None.

    damage  all damage found, in the order of the log
    end     physical offset where reading ended

    >>> torn_tail([Damage(None, 0, 10, "zeroed"), Damage(None, 100, 120, "truncated")], end=120)
    Damage(file=None, start=100, stop=120, reason='truncated')
    >>> torn_tail([Damage(None, 0, 10, "zeroed")], end=120)
    """
    last = damage[-1] if damage else None
    return last if last is not None and last.stop == end and last.reason != MISSING_FILE else None


def joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join the ranges that follow one another; they are in order.

    >>> joined([(0, 10), (10, 20), (30, 40)])
    [(0, 20), (30, 40)]
    """
    out: list[tuple[int, int]] = []
    for start, stop in ranges:
        if out and out[-1][1] == start:
            start = out.pop()[0]
        out.append((start, stop))
    return out


@dataclass
class ScanReport(HtmlRepr):
    """Counts and damage of the latest pass over a scan, up to its current position.

    records  messages returned
    bytes    bytes read
    blanks   blank records (one at the end of each full file)
    files    files opened
    damage   damaged ranges that were skipped (errors="skip" or "report"), also those of missing files
    missing  ranges of physical offsets between two files that none of the files read contains, in the whole log
    end      physical offset of the end of the last byte read; None if nothing was read
    deleted  ranges of physical offsets in files that the store's owner deleted after they were listed, and before they
             were read; not an error. If the path was a Log or LogFile, such a file is a StoreIOError
    """

    records: int = 0
    bytes: int = 0
    blanks: int = 0
    files: int = 0
    damage: list[Damage] = field(default_factory=list)
    missing: list[tuple[int, int]] = field(default_factory=list)
    end: int | None = None
    deleted: list[tuple[int, int]] = field(default_factory=list)

    @classmethod
    def total(cls, reports: Iterable[ScanReport]) -> ScanReport:
        """Add up the reports of several passes; those of the files of a log must be in order.

        >>> ScanReport.total([ScanReport(records=2, end=200), ScanReport(records=1, end=300)])
        ScanReport(records=3, bytes=0, blanks=0, files=0, damage=[], missing=[], end=300, deleted=[])
        """
        out = cls()
        for one in reports:
            out.records += one.records
            out.bytes += one.bytes
            out.blanks += one.blanks
            out.files += one.files
            out.damage += one.damage
            out.missing += one.missing
            out.deleted = joined([*out.deleted, *one.deleted])
            out.end = out.end if one.end is None else one.end
        return out
