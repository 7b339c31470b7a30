"""Disk use of a store, and its effect on cleaning: RocketMQ's levels.

If RocketMQ's releases differ, the rules are those of RocketMQ 5.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rocketc.config import StoreConfig

_SHARE_OF_WARNING = (0.35, 0.90)  # bounds of the levels; a configured value is moved into them
_SHARE_OF_FORCE = (0.30, 0.85)
_SHARE_OF_USE = (0.10, 0.95)


class Statvfs(Protocol):
    """The used part of the result of os.statvfs(). Sizes are in fragments of f_frsize bytes."""

    @property
    def f_frsize(self) -> int: ...
    @property
    def f_blocks(self) -> int: ...
    @property
    def f_bfree(self) -> int: ...
    @property
    def f_bavail(self) -> int: ...


LookAt = Callable[[str], Statvfs]


def used_share(path: str, statvfs: LookAt = os.statvfs) -> float:
    """Return the used share of a path's file system: 0 to 1 in hundredths, rounded up; -1 if the path does not exist.

    Blocks that are reserved for the administrator count neither as used nor as free.

    >>> import types
    >>> disk = types.SimpleNamespace(f_frsize=4096, f_blocks=1000, f_bfree=400, f_bavail=300)
    >>> used_share("store", lambda path: disk)  # 600 of the 900 that are not reserved
    0.67
    """
    try:
        found = statvfs(path)
    except OSError:
        return -1.0
    used = found.f_blocks - found.f_bfree
    whole = used + found.f_bavail
    return -(-100 * used // whole) / 100 if whole > 0 else -1.0


@dataclass(frozen=True)
class Levels:
    """Levels of disk use; above each one cleaning changes.

    warning  messages are refused (DISK_FULL), and files are deleted even if they are not expired
    force    files are deleted even if they are not expired
    most     expired files are deleted at any hour
    logical  like `force`, for a disk shared by several replicas: the used share of this store's part of the disk
    """

    warning: float
    force: float
    most: float
    logical: float

    @classmethod
    def of(cls, config: StoreConfig) -> Levels:
        """Return the levels of a config, each within RocketMQ's bounds.

        >>> Levels.of(StoreConfig(disk_max_used_space_ratio=99, disk_space_clean_forcibly_ratio=10))
        Levels(warning=0.9, force=0.3, most=0.95, logical=0.8)
        """
        return cls(
            _within(config.disk_space_warning_level_ratio / 100, _SHARE_OF_WARNING),
            _within(config.disk_space_clean_forcibly_ratio / 100, _SHARE_OF_FORCE),
            _within(config.disk_max_used_space_ratio / 100, _SHARE_OF_USE),
            config.logical_disk_space_clean_forcibly_threshold,
        )


def _within(value: float, bounds: tuple[float, float]) -> float:
    return max(bounds[0], min(value, bounds[1]))


@dataclass
class DiskUse:
    """The use of a store's disks, and its consequences.

    shares      used share by path; -1: the path does not exist
    why         reason to delete files at any hour, as text; None: there is no such reason
    at_once     True: files are deleted even if they are not expired
    disk_full   the log's disk: True and False set the flag DISK_FULL, None does not change it
    queues_full the same for the consume queues' disk (LOGIC_DISK_FULL)
    full_paths  log folders above the level `force`; new files should not be created there
    """

    shares: dict[str, float]
    why: str | None = None
    at_once: bool = False
    disk_full: bool | None = None
    queues_full: bool | None = None
    full_paths: tuple[str, ...] = ()


def look(
    log_paths: Sequence[str],
    queue_path: str,
    levels: Levels,
    *,
    replicas: int = 1,
    size: Callable[[], int] = lambda: 0,
    statvfs: LookAt = os.statvfs,
) -> DiskUse:
    """Check the disks of a store.

    log_paths   folders of the commit log; the least used one counts, because new files can be created there
    queue_path  folder of the consume queues
    replicas    replicasPerDiskPartition: the number of stores on a disk; each has an equal part of it
    size        returns the bytes of the store's log, queues and index; called only if replicas is more than 1

    >>> import types
    >>> disk = types.SimpleNamespace(f_frsize=4096, f_blocks=1000, f_bfree=120, f_bavail=120)
    >>> look(["log"], "queues", Levels(0.90, 0.85, 0.75, 0.8), statvfs=lambda path: disk).why
    'log is 88 % full, above 85 %'
    """
    shares = {path: used_share(path, statvfs) for path in [*log_paths, queue_path]}
    found = DiskUse(shares, full_paths=tuple(path for path in log_paths if shares[path] > levels.force))
    log = min(log_paths, key=lambda path: shares[path])
    for path in (log, queue_path):
        share = shares[path]
        if share > levels.warning:
            _set_flag(found, path == log, True)
            return _because(found, path, share, levels.warning, at_once=True)
        if share > levels.force:  # between both levels the flag does not change
            return _because(found, path, share, levels.force, at_once=True)
        _set_flag(found, path == log, False)
    if replicas > 1:
        part = _bytes_of(log, statvfs) // replicas
        share = size() / part if part > 0 else -1.0
        what = f"this store's part of {log}, one of {replicas},"
        if share > levels.logical:
            return _because(found, what, share, levels.logical, at_once=True)
        return _because(found, what, share, levels.most) if share > levels.most else found
    for path in (log, queue_path):
        if shares[path] < 0:
            found.why = f"the disk use of {path} is unknown"
            return found
        if shares[path] > levels.most:
            return _because(found, path, shares[path], levels.most)
    return found


def _set_flag(found: DiskUse, of_log: bool, value: bool) -> None:
    if of_log:
        found.disk_full = value
    else:
        found.queues_full = value


def _because(found: DiskUse, what: str, share: float, level: float, *, at_once: bool = False) -> DiskUse:
    found.why = f"{what} is {100 * share:.0f} % full, above {100 * level:.0f} %"
    found.at_once = at_once
    return found


def _bytes_of(path: str, statvfs: LookAt) -> int:
    try:
        found = statvfs(path)
    except OSError:
        return 0
    return found.f_blocks * found.f_frsize
