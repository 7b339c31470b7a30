"""What replication needs of a slave's log, and where the records of the log begin.

Knows the sizes of log files, no connection.
"""

from __future__ import annotations

from typing import Literal, Protocol

from rocketc.errors import PhyOffsetError
from rocketc.files._append_file import View


class _Sizes(Protocol):
    @property
    def mapped_file_size_commit_log(self) -> int: ...


class ReplicaLog(Protocol):
    """What a connection needs of a store."""

    @property
    def config(self) -> _Sizes: ...

    @property
    def min_phy_offset(self) -> int: ...

    @property
    def max_phy_offset(self) -> int: ...

    def read_log(self, phy_offset: int, max_bytes: int) -> bytes:
        """Return bytes of one file of the log from any offset on, also from within a record."""

    def read_raw(self, phy_offset: int, max_bytes: int, *, upto: int, views: Literal[True]) -> View | None:
        """Return whole records of one file of the log, those that end at `upto` or before it."""


def record_start(log: ReplicaLog, phy_offset: int) -> int:
    """Return where the record begins that a physical offset is in. All sizes of records before it in the file are read.

    After a damaged record it is not known: then the result is the start of the damage.

    >>> import rocketc, tempfile
    >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
    ...     _ = store.put_many("orders", [b"one", b"two"])  # 100 bytes each
    ...     [record_start(store, at) for at in (0, 99, 100, 101, 199)]
    [0, 0, 100, 100, 100]
    """
    begin = max(phy_offset - phy_offset % log.config.mapped_file_size_commit_log, log.min_phy_offset)
    if begin >= phy_offset:
        return begin
    try:
        view = log.read_raw(begin, phy_offset - begin, upto=phy_offset, views=True)
    except PhyOffsetError:
        return begin
    if view is None:
        return begin
    try:
        return begin + len(memoryview(view))
    finally:
        view.release()


def message_before(log: ReplicaLog, phy_offset: int) -> int | None:
    """Return where the last message before the start of a record begins; None: it is the first one.

    >>> import rocketc, tempfile
    >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
    ...     _ = store.put_many("orders", [b"one", b"two"])
    ...     message_before(store, 100), message_before(store, 0)
    (0, None)
    """
    while phy_offset > log.min_phy_offset:
        is_blank = phy_offset % log.config.mapped_file_size_commit_log == 0  # the last record of each file
        phy_offset = record_start(log, phy_offset - 1)
        if not is_blank:
            return phy_offset
    return None
