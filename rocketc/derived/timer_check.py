"""config/timercheck: how far the timer wheel and the timer log are durable.

Source: RocketMQ TimerCheckpoint.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

from rocketc.files.durable import errors_named, make_folder, sync_data, sync_folder, write_all
from rocketc.files.regular import open_regular

FILE_BYTES = 4096
LATEST_MS = 253_402_300_800_000  # the year 10000
_FIELDS = struct.Struct(">7q")


@dataclass
class TimerCheck:
    """The fields in the order of the file.

    last_read_time_ms          the first moment whose slot may still have to be delivered; 0: unknown
    last_timer_log_flush_pos   the units of the timer log before this offset are durable, and their slots too
    last_timer_queue_offset    the next message of the timer topic to put into the wheel
    master_timer_queue_offset  the same on the master
    state_version, timestamp, counter  of `dataVersion`

    >>> TimerCheck(1_700_000_000_000).last_timer_queue_offset
    0
    """

    last_read_time_ms: int = 0
    last_timer_log_flush_pos: int = 0
    last_timer_queue_offset: int = 0
    master_timer_queue_offset: int = 0
    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def encode(self) -> bytes:
        """Return the bytes of the file.

        >>> len(TimerCheck().encode())
        4096
        """
        return self.encode_fields().ljust(FILE_BYTES, b"\0")

    def encode_fields(self) -> bytes:
        """Return the bytes without the zeros after them: what a broker sends to its slaves.

        >>> len(TimerCheck().encode_fields())
        56
        """
        return _FIELDS.pack(
            self.last_read_time_ms,
            self.last_timer_log_flush_pos,
            self.last_timer_queue_offset,
            self.master_timer_queue_offset,
            self.state_version,
            self.timestamp,
            self.counter,
        )

    @property
    def is_possible(self) -> bool:
        """Whether no field has an impossible value.

        >>> TimerCheck(1_700_000_000_000).is_possible, TimerCheck(last_timer_queue_offset=-2).is_possible
        (True, False)
        """
        offsets = (self.last_timer_log_flush_pos, self.last_timer_queue_offset)
        return 0 <= self.last_read_time_ms < LATEST_MS and min(offsets) >= 0

    @property
    def read_time(self) -> int:
        """The first moment whose slot may still have to be delivered, in ms; not later than the write of the file.

        A later one is damaged, or from before the clock was set back: then a message may be delivered twice.

        >>> TimerCheck(9000, timestamp=9900).read_time, TimerCheck(9000, timestamp=7000).read_time
        (9000, 7000)
        """
        return min(self.last_read_time_ms, self.timestamp) if self.timestamp > 0 else self.last_read_time_ms


def decode(raw: bytes) -> TimerCheck:
    """Read the fields of a file. Raises ValueError if it is too short or has impossible values.

    >>> decode(TimerCheck(1_700_000_000_000, 52, 1, 1).encode()).last_timer_log_flush_pos
    52
    """
    if len(raw) < _FIELDS.size:
        raise ValueError(f"a timercheck has at least {_FIELDS.size} bytes, not {len(raw)}")
    found = TimerCheck(*_FIELDS.unpack(raw[: _FIELDS.size]))
    if not found.is_possible:
        raise ValueError(f"a time or an offset is impossible: {found}")
    return found


def read(path: str | os.PathLike[str]) -> TimerCheck | None:
    """Read a file; None if it is missing, unreadable, short, or has impossible values.

    >>> read("/nonexistent") is None
    True
    """
    try:
        fd = open_regular(path)
        try:
            return decode(os.read(fd, _FIELDS.size))
        finally:
            os.close(fd)
    except (OSError, ValueError):
        return None


def write(path: str | os.PathLike[str], check: TimerCheck) -> None:
    """Write a file in place, durably; create it and its folder. Raises StoreIOError, StoreFullError.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "timercheck")
    >>> write(path, TimerCheck(1_700_000_000_000))
    >>> read(path)
    TimerCheck(last_read_time_ms=1700000000000, last_timer_log_flush_pos=0, last_timer_queue_offset=0, \
master_timer_queue_offset=0, state_version=0, timestamp=0, counter=0)
    """
    path = os.fspath(path)
    folder = os.path.dirname(path) or "."
    make_folder(folder)
    with errors_named(path):
        is_new = not os.path.lexists(path)
        fd = open_regular(path, os.O_RDWR | os.O_CREAT)
        try:
            write_all(fd, check.encode(), 0)
            sync_data(fd)
        finally:
            os.close(fd)
    if is_new:
        sync_folder(folder)
