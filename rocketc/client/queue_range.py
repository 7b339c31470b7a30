"""QueueRange: a part of a queue."""

from __future__ import annotations

from typing import NamedTuple


class QueueRange(NamedTuple):
    """Queue offsets, [begin, end)."""

    begin: int
    end: int

    def begun_at(self, offset: int) -> QueueRange:
        """Return the part from an offset on.

        >>> QueueRange(10, 20).begun_at(15), QueueRange(10, 20).begun_at(5), QueueRange(10, 20).begun_at(30)
        (QueueRange(begin=15, end=20), QueueRange(begin=10, end=20), QueueRange(begin=20, end=20))
        """
        return QueueRange(min(max(offset, self.begin), self.end), self.end)
