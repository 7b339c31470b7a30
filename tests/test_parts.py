"""A log split into parts: each record and each damaged range is in exactly one part, wherever the splits are."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import stores

import rocketc
from rocketc.files.paths import LogFile, resolve
from rocketc.spark.partitions import plan

Golden = Callable[[str], stores.GoldenStore]
Found = tuple[list[tuple[int, bytes]], list[tuple[int, int, str]], int]

HERE = 4096  # physical offset of the small log


def of(parts: Iterable[LogFile | Path], **how: Any) -> Found:
    """Messages, damage and bytes of all parts, in order."""
    messages, damage, read = [], [], 0
    for part in parts:
        scan = rocketc.scan(part, errors="skip", **how)
        messages += [(m.phy_offset, m.body) for m in scan]
        damage += [(d.start, d.stop, d.reason) for d in scan.report.damage]
        read += scan.report.bytes
    return messages, damage, read


def cut_at(path: Path, cuts: Sequence[int]) -> list[LogFile]:
    [log] = resolve(path)
    [file] = log.files
    return [replace(file, start=start, stop=stop) for start, stop in pairwise([None, *cuts, None])]


def records(bodies: Iterable[bytes]) -> bytes:
    log = b""
    for body in bodies:
        log += rocketc.encode("t", body, phy_offset=HERE + len(log), properties={"KEYS": "k"})
    return log


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], Path]:
    """Write a log of one file with these bytes. It is not being written, so a scan does not wait at a torn record."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)

    def write(data: bytes) -> Path:
        path = tmp_path / f"{HERE:020d}"
        path.write_bytes(data)
        return path

    return write


WHOLE = records([b"one", b"two" * 40, b"", b"four"])
ENDS = [len(records([b"one", b"two" * 40, b"", b"four"][:n])) for n in range(5)]
FOREIGN = rocketc.encode("t", b"of another place", phy_offset=HERE + 7)


def noise(at: int, size: int) -> bytes:
    return WHOLE[:at] + bytes(b ^ 0xA5 for b in WHOLE[at : at + size]) + WHOLE[at + size :]


LOGS = {
    "whole": WHOLE,
    "with room": WHOLE + bytes(300),
    "a record within another's body": records([b"one", b"two" + FOREIGN + b"three" + FOREIGN, FOREIGN]),
    "a size damaged": noise(ENDS[1], 4),
    "a body damaged": noise(ENDS[1] + 100, 8),
    "a physical offset damaged": noise(ENDS[2] + 28, 8),
    "the first one damaged": noise(0, 60),
    "the last one damaged": noise(ENDS[3], 20),
    "two damaged": noise(ENDS[1], 8)[: ENDS[3]] + noise(ENDS[3], 8)[ENDS[3] :],
    "two in a row": noise(ENDS[1], ENDS[2] - ENDS[1] + 30),
    "zeros between": WHOLE[: ENDS[2]] + bytes(ENDS[3] - ENDS[2]) + WHOLE[ENDS[3] :],
    "torn": WHOLE[:-20] + bytes(120),
    "no record at all": bytes(range(1, 200)),
    "zeros alone": bytes(200),
}


@pytest.mark.some(12)
@pytest.mark.parametrize("crc", ["body", "none"])
@pytest.mark.parametrize("name", LOGS)
def test_cut_at_every_byte(small: Callable[[bytes], Path], name: str, crc: str) -> None:
    path = small(LOGS[name])
    whole = of([path], crc=crc)
    for at in range(len(LOGS[name]) + 1):
        assert of(cut_at(path, [HERE + at]), crc=crc) == whole, at


@pytest.mark.parametrize("name", LOGS)
def test_cut_at_two_places(small: Callable[[bytes], Path], name: str) -> None:
    path = small(LOGS[name])
    whole = of([path])
    for at in range(0, len(LOGS[name]), 7):
        for more in (1, 2, 50, 200):
            assert of(cut_at(path, [HERE + at, HERE + at + more])) == whole, (at, more)


@pytest.mark.parametrize("name", LOGS)
def test_continue_where_a_scan_ended(small: Callable[[bytes], Path], name: str) -> None:
    """The part begins exactly there and includes damage, which a search for the next record would skip."""
    path = small(LOGS[name])
    messages, damage, _ = of([path])
    for at in [*(phy_offset for phy_offset, _ in messages), *(start for start, _, _ in damage), HERE + len(LOGS[name])]:
        [_, part] = cut_at(path, [at])
        found = of([replace(part, exact=True)])
        assert found[0] == [one for one in messages if one[0] >= at]
        assert found[1] == [one for one in damage if one[0] >= at], at


def test_damage_that_raises_does_so_once(small: Callable[[bytes], Path]) -> None:
    path = small(LOGS["a body damaged"])
    for at in range(len(WHOLE)):
        told = 0
        for part in cut_at(path, [HERE + at]):
            try:
                list(rocketc.scan(part))
            except rocketc.CorruptRecordError as error:
                assert error.offset == HERE + ENDS[1]
                told += 1
        assert told == 1, at


@pytest.mark.parametrize("name", stores.NAMES)
def test_any_number_of_tasks_reads_what_one_scan_does(golden: Golden, name: str) -> None:
    path = golden(name).path
    logs = resolve(path)
    whole = of([path])
    for count in (1, 2, 3, 5, 8, 13, 21, 34, 64) if name != "flights-2013-01" else (1, 7, 64):
        tasks = plan(logs, min_partitions=count)
        assert len(tasks) >= count
        assert of(part for parts in tasks for part in parts)[:2] == whole[:2], count


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_logs_with_many_cuts(golden: Golden, tmp_path: Path, data: st.DataObject) -> None:
    first = golden("v533-store").log_files[0]
    content = bytearray(first.read_bytes())
    starts = [m.phy_offset for m in rocketc.scan(first)]
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.sampled_from(starts)) + data.draw(st.sampled_from([0, 0, 1, 4, 30, 90]))
        length = min(data.draw(st.sampled_from([1, 4, 300, 9000])), len(content) - at)
        taken = data.draw(st.sampled_from([None, *starts]))  # zeros, or bytes from another place in the file
        old = bytes(length) if taken is None else bytes(content[taken : taken + length])
        content[at : at + len(old)] = old
    path = tmp_path / first.name
    path.write_bytes(content)
    near = st.builds(lambda start, by: max(start + by, 0), st.sampled_from(starts), st.integers(-3, 100))
    cuts = sorted(data.draw(st.lists(st.one_of(near, st.integers(0, len(content))), max_size=6)))
    assert of(cut_at(path, cuts)) == of([path])


def test_a_plan_groups_small_files(tmp_path: Path) -> None:
    for n, size in enumerate([300, 300, 5000, 100, 100]):
        (tmp_path / f"{n * 10_000:020d}").write_bytes(b"x" * size)
    logs = resolve(tmp_path)
    assert [len(parts) for parts in plan(logs)] == [5]
    assert [[part.start for part in parts] for parts in plan(logs, max_bytes=1000)] == [
        [None, None],
        [None],
        [21_000],
        [22_000],
        [23_000],
        [24_000],
        [None, None],
    ]
    assert plan([]) == []


def test_unwritten_space_does_not_add_tasks(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}"
    path.write_bytes(rocketc.encode("t", b"x"))
    with open(path, "r+b") as file:
        file.truncate(1 << 30)
    assert len(plan(resolve(tmp_path), max_bytes=1 << 20)) == 1
