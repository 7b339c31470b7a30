"""Consume queue files at the opening of a store: what they say of queue offsets, and what they say too much.

They are derived from the log. A unit that points behind its end would make RocketMQ take the next record at that place
for one that it has seen.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from rocketc._queue_offsets import QueueOffsets
from rocketc.running import naming, sync_folder

_log = logging.getLogger("rocketc.recovery")

_UNIT = struct.Struct(">qiq")  # physical offset, size, tags code
_BATCH_UNIT = struct.Struct(">qiqqqh8x")  # the same, store timestamp, base offset, messages
_FOLDERS = (("consumequeue", _UNIT), ("batchconsumequeue", _BATCH_UNIT))


@dataclass(frozen=True)
class _File:
    """One consume queue file: its units up to the first that was never written."""

    path: str
    start: int  # logical offset of its first byte
    unit: struct.Struct
    data: bytes

    def units_before(self, phy_offset: int) -> int:
        """How many units point before a physical offset; those that were never written count as behind it."""
        low, high = 0, len(self.data) // self.unit.size
        while low < high:
            middle = (low + high) // 2
            at, size = self.unit.unpack_from(self.data, middle * self.unit.size)[:2]
            if size > 0 and at < phy_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def last_before(self, phy_offset: int) -> tuple[int, ...] | None:
        """The last unit that points before a physical offset, or None."""
        n = self.units_before(phy_offset)
        return self.unit.unpack_from(self.data, (n - 1) * self.unit.size) if n else None

    def next_offset(self, phy_offset: int) -> int:
        """The queue offset behind the last message before a physical offset."""
        if self.unit is _UNIT:
            return self.start // _UNIT.size + self.units_before(phy_offset)
        last = self.last_before(phy_offset)
        return last[4] + last[5] if last else 0


def _queues(root: str) -> Iterator[tuple[str, int, list[tuple[str, struct.Struct]]]]:
    """(topic, queue id, [(path, unit)] newest file first) of each queue of a store."""
    for folder, unit in _FOLDERS:
        top = os.path.join(root, folder)
        for topic in os.listdir(top) if os.path.isdir(top) else ():
            inner = os.path.join(top, topic)
            for queue_id in os.listdir(inner) if os.path.isdir(inner) else ():
                path = os.path.join(inner, queue_id)
                if queue_id.isdigit() and os.path.isdir(path):
                    names = sorted((name for name in os.listdir(path) if name.isdigit()), reverse=True)
                    yield topic, int(queue_id), [(os.path.join(path, name), unit) for name in names]


def _read(path: str, unit: struct.Struct) -> _File:
    with naming(path), open(path, "rb", buffering=0) as file:
        return _File(path, int(os.path.basename(path)), unit, file.read())


def raise_offsets(root: str, offsets: QueueOffsets, before: int) -> int:
    """Raise the queues' next offsets to what their consume queues hold of records before a physical offset.

    Returns the physical offset behind the last record that one of them knows there, 0 if none knows any.

    >>> import tempfile
    >>> raise_offsets(tempfile.mkdtemp(), QueueOffsets(), 1 << 30)
    0
    """
    reached = 0
    for topic, queue_id, files in _queues(root):
        for path, unit in files:
            file = _read(path, unit)
            last = file.last_before(before)
            if last is not None:
                offsets.set_at_least(topic, queue_id, file.next_offset(before))
                reached = max(reached, last[0] + last[1])
                break
    return reached


def queues_end(root: str) -> int | None:
    """Physical offset behind the last record that a consume queue knows; None if none of them knows any.

    >>> import tempfile
    >>> queues_end(tempfile.mkdtemp()) is None
    True
    """
    end = None
    for _, _, files in _queues(root):
        for path, unit in files:
            last = _read(path, unit).last_before(1 << 62)
            if last is not None:
                end = max(end or 0, last[0] + last[1])
                break
    return end


def cut_queues(root: str, end: int) -> int:
    """Take away the units that point behind the log's end, durably; return how many. Source: store.md 6.3, 7.4.

    The first file of a queue stays, so that the queue keeps its place; the room of a unit is zeros then, as before it
    was written. Raises StoreIOError.

    >>> import tempfile
    >>> cut_queues(tempfile.mkdtemp(), 0)
    0
    """
    cut = 0
    for topic, queue_id, files in _queues(root):
        here = 0
        for i, (path, unit) in enumerate(files):
            file = _read(path, unit)
            keep, written = file.units_before(end), file.units_before(1 << 62)
            here += written - keep
            if keep == 0 and written > 0 and i + 1 < len(files):
                with naming(path):
                    os.unlink(path)
                sync_folder(os.path.dirname(path))
            elif keep < written:
                _clear(path, keep * unit.size, written * unit.size)
            if keep > 0:
                break
        if here:
            _log.warning("%s: topic %s, queue %d: %d units pointed behind the log", root, topic, queue_id, here)
        cut += here
    return cut


def _clear(path: str, pos: int, stop: int) -> None:
    with naming(path), open(path, "r+b", buffering=0) as file:
        os.pwrite(file.fileno(), bytes(stop - pos), pos)
        os.fdatasync(file.fileno())
