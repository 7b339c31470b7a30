"""A store copied into another by read_raw() and append_raw(), and the check that both are equal after closing."""

from pathlib import Path
from typing import Any

from support import derived


def copy(master: Any, replica: Any, *, start: int | None = None, max_bytes: int = 1000) -> int:
    """Copy blocks to a replica up to the end of its master's log; return the physical offset of that end.

    start  where to begin; None: at the end of the replica's log, or at the beginning of the master's
    """
    at = replica.max_phy_offset or master.min_phy_offset if start is None else start
    while block := master.read_raw(at, max_bytes):
        assert replica.append_raw(at, block) == at + len(block) == replica.max_phy_offset
        at += len(block)
    return at


def log_of(root: Path) -> dict[str, bytes]:
    """The files of a log that have content: the next file may or may not exist already."""
    return {name: data for name, data in derived.files_of(root, "commitlog").items() if any(data)}


def assert_equal(master: Path, replica: Path) -> None:
    """Assert that logs and queues of two closed stores are equal byte for byte, and their indexes unit by unit."""
    logs = log_of(master), log_of(replica)
    assert sorted(logs[0]) == sorted(logs[1])
    assert [name for name, data in logs[0].items() if data != logs[1][name]] == []
    found = [derived.without_names(derived.files_of(root, *derived.FOLDERS)) for root in (replica, master)]
    derived.same_files(*found)
