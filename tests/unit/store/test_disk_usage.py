"""Disk usage as RocketMQ calculates it, and what happens above its levels."""

from types import SimpleNamespace

import pytest

from rocketc.config import StoreConfig
from rocketc.store.disk_usage import DiskUse, Levels, look, used_share

LEVELS = Levels(warning=0.90, force=0.85, most=0.75, logical=0.8)


def disks(**percent):
    """Return a statvfs: usage in percent for each path; None: the path does not exist."""

    def statvfs(path):
        used = percent[path]
        if used is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        return SimpleNamespace(f_frsize=4096, f_blocks=1000, f_bfree=1000 - used * 10, f_bavail=1000 - used * 10)

    return statvfs


def seen(log, queues, levels=LEVELS, **options) -> DiskUse:
    return look(["log"], "queues", levels, statvfs=disks(log=log, queues=queues), **options)


# ---------------------------------------------------------------- the share
@pytest.mark.parametrize(
    ("blocks", "free", "available", "share"),
    [
        (1000, 1000, 1000, 0.0), (1000, 0, 0, 1.0), (1000, 400, 300, 0.67), (1000, 999, 999, 0.01), (3, 2, 2, 0.34),
        (1000, 100, 0, 1.0), (0, 0, 0, -1.0), (1000, 250, 250, 0.75),
    ],
)  # fmt: skip
def test_the_share_is_rounded_up_and_excludes_reserved_blocks(blocks, free, available, share):
    disk = SimpleNamespace(f_frsize=1, f_blocks=blocks, f_bfree=free, f_bavail=available)
    assert used_share("x", lambda path: disk) == share


def test_the_share_of_a_path_that_is_missing(tmp_path):
    assert used_share("x", disks(x=None)) == -1
    assert used_share(str(tmp_path / "none")) == -1
    assert 0 <= used_share(str(tmp_path)) <= 1


# ---------------------------------------------------------------- levels
@pytest.mark.parametrize(
    ("fields", "levels"),
    [
        ({}, Levels(0.90, 0.85, 0.75, 0.8)),
        ({"disk_space_warning_level_ratio": 99, "disk_space_clean_forcibly_ratio": 99}, Levels(0.90, 0.85, 0.75, 0.8)),
        ({"disk_space_warning_level_ratio": 1, "disk_space_clean_forcibly_ratio": 1}, Levels(0.35, 0.30, 0.75, 0.8)),
        ({"disk_max_used_space_ratio": 5}, Levels(0.90, 0.85, 0.10, 0.8)),
        ({"disk_max_used_space_ratio": 99}, Levels(0.90, 0.85, 0.95, 0.8)),
        ({"disk_space_warning_level_ratio": 60, "disk_space_clean_forcibly_ratio": 50}, Levels(0.6, 0.5, 0.75, 0.8)),
        ({"logical_disk_space_clean_forcibly_threshold": 0.5}, Levels(0.90, 0.85, 0.75, 0.5)),
    ],
)
def test_levels_have_bounds(fields, levels):
    assert Levels.of(StoreConfig(**fields)) == levels


@pytest.mark.parametrize(
    ("log", "queues", "why", "at_once", "disk_full", "queues_full"),
    [
        (10, 10, None, False, False, False),
        (75, 75, None, False, False, False),  # a level is passed above it, not at it
        (76, 10, "log is 76 % full, above 75 %", False, False, False),
        (10, 76, "queues is 76 % full, above 75 %", False, False, False),
        (86, 10, "log is 86 % full, above 85 %", True, None, None),
        (91, 10, "log is 91 % full, above 90 %", True, True, None),
        (10, 86, "queues is 86 % full, above 85 %", True, False, None),
        (10, 91, "queues is 91 % full, above 90 %", True, False, True),
        (91, 91, "log is 91 % full, above 90 %", True, True, None),  # the disk of the queues is not checked then
        (None, 10, "the disk use of log is unknown", False, False, False),
        (10, None, "the disk use of queues is unknown", False, False, False),
    ],
)
def test_what_happens_above_each_level(log, queues, why, at_once, disk_full, queues_full):
    found = seen(log, queues)
    assert (found.why, found.at_once) == (why, at_once)
    assert (found.disk_full, found.queues_full) == (disk_full, queues_full)
    assert found.shares == {"log": -1 if log is None else log / 100, "queues": -1 if queues is None else queues / 100}


def test_a_force_level_above_the_warning_level():
    levels = Levels(warning=0.40, force=0.85, most=0.75, logical=0.8)
    found = seen(50, 10, levels)
    assert (found.disk_full, found.at_once) == (True, True)


# ---------------------------------------------------------------- several paths
def several(statvfs):
    return look(["a", "b", "c"], "queues", LEVELS, statvfs=statvfs)


def test_of_several_log_paths_the_least_used_one_counts():
    found = several(disks(a=95, b=10, c=95, queues=10))
    assert found.why is None and found.disk_full is False
    assert several(disks(a=95, b=91, c=95, queues=10)).disk_full is True


def test_log_paths_above_the_force_level_are_full():
    assert several(disks(a=86, b=10, c=85, queues=10)).full_paths == ("a",)
    assert several(disks(a=95, b=95, c=95, queues=10)).full_paths == ("a", "b", "c")


# ---------------------------------------------------------------- replicas on one disk
@pytest.mark.parametrize(
    ("size", "why", "at_once"),
    [
        (1_500_000, None, False),  # a part is 2,048,000 bytes
        (1_540_000, "this store's part of log, one of 2, is 75 % full, above 75 %", False),
        (1_700_000, "this store's part of log, one of 2, is 83 % full, above 80 %", True),
    ],
)
def test_each_of_several_replicas_on_a_disk_counts_its_own_part(size, why, at_once):
    found = seen(80, 80, replicas=2, size=lambda: size)  # 80 % would be reason enough for a single store
    assert (found.why, found.at_once, found.disk_full) == (why, at_once, False)


def test_the_whole_disk_is_checked_before_the_part():
    assert seen(86, 10, replicas=2, size=lambda: 0).at_once
    assert seen(91, 10, replicas=2, size=lambda: 0).disk_full


def test_a_single_store_does_not_compute_its_size():
    def size():
        raise AssertionError

    assert seen(10, 10, size=size).why is None
