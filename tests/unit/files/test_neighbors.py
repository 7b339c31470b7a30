"""A commit log file given alone: adjacent files in the folder show what its unused space and its end mean."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support import stores

import rocketc
from rocketc.files.paths import resolve

SIZE = 1024  # of each file


def record(base: int, at: int, body: bytes = b"x") -> bytes:
    return rocketc.encode("t", body, phy_offset=base + at)


def write(folder: Path, base: int, content: bytes) -> str:
    path = folder / f"{base:020d}"
    path.write_bytes(content.ljust(SIZE, b"\0"))
    return str(path)


def full(base: int) -> bytes:
    first = record(base, 0)
    return first + rocketc.encode_blank(SIZE - len(first))


def test_unused_space_in_a_middle_file_is_damage_even_if_the_file_is_given_alone(tmp_path: Path) -> None:
    middle = write(tmp_path, 0, record(0, 0))
    end = len(record(0, 0))
    assert rocketc.scan(middle).count() == 1  # alone in its folder it is the last file
    write(tmp_path, SIZE, record(SIZE, 0))
    with pytest.raises(rocketc.CorruptRecordError, match=f"offset {end}: zeroed"):
        rocketc.scan(middle).count()
    scan = rocketc.scan(middle, errors="skip")
    assert scan.count() == 1
    assert [(d.start, d.stop, d.reason) for d in scan.report.damage] == [(end, SIZE, "zeroed")]


def test_an_adjacent_file_without_data_does_not_count(tmp_path: Path) -> None:
    last = write(tmp_path, 0, record(0, 0))
    ahead = write(tmp_path, SIZE, b"")
    for path in (last, ahead, [last, ahead]):
        [log] = resolve(path)
        assert [file.last for file in log.files] == [True]
    assert rocketc.scan(last).count() == 1
    assert rocketc.scan(ahead).count() == 0


def test_the_full_length_of_a_file_whose_end_was_not_copied(tmp_path: Path) -> None:
    cut = tmp_path / f"{0:020d}"
    cut.write_bytes(full(0)[: len(record(0, 0)) + 8])  # the start of the blank record
    write(tmp_path, SIZE, record(SIZE, 0))
    [log] = resolve(cut)
    assert (log.files[0].size, log.files[0].limit) == (len(record(0, 0)) + 8, SIZE)
    assert rocketc.scan(cut).count() == 1


def test_only_given_files_are_read_and_gaps_are_between_them(tmp_path: Path) -> None:
    files = [write(tmp_path, base, full(base)) for base in range(0, 4 * SIZE, SIZE)]
    scan = rocketc.scan([files[3], files[1]])
    assert [m.phy_offset for m in scan] == [SIZE, 3 * SIZE]
    assert scan.report.missing == [(2 * SIZE, 3 * SIZE)]


def test_other_files_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last = write(tmp_path, 0, record(0, 0))
    (tmp_path / f"{SIZE:020d}").mkdir()
    os.symlink(tmp_path / "nowhere", tmp_path / f"{2 * SIZE:020d}")
    (tmp_path / "00000000000000003072.bak").write_bytes(full(3 * SIZE))
    monkeypatch.chdir(tmp_path)
    for path in (last, os.path.basename(last)):
        assert rocketc.scan(path).count() == 1


def test_two_logs_of_one_pattern_are_both_read(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        write(tmp_path / name, 0, full(0))
        write(tmp_path / name, SIZE, record(SIZE, 0, name.encode()))
    assert [m.body for m in rocketc.scan(str(tmp_path / "*" / "0*"))] == [b"x", b"a", b"x", b"b"]


@pytest.mark.parametrize("name", stores.NAMES)
def test_files_given_one_by_one_equal_the_store(golden: Callable[[str], stores.GoldenStore], name: str) -> None:
    store = golden(name)
    whole = rocketc.scan(store.path, errors="skip")
    messages = list(whole)
    damage = []
    for path in store.log_files:
        scan = rocketc.scan(path, errors="skip")
        for message in scan:
            assert message == messages.pop(0)
        damage += scan.report.damage
    assert not messages
    assert damage == whole.report.damage


def test_a_buffer_has_the_given_name() -> None:
    assert [m.file for m in rocketc.decode(record(0, 0), file="here")] == ["here"]
    with pytest.raises(rocketc.CorruptRecordError, match=r"^here: damage at physical offset 0: bad_magic"):
        rocketc.decode(b"\1" * 100, file="here").count()


def test_a_middle_file_without_its_end_is_damage_even_between_two_records(tmp_path: Path) -> None:
    record = rocketc.encode("t", b"body")
    size = 2 * len(record) + 8
    (tmp_path / f"{0:020}").write_bytes(record)  # the rest of this file was not copied
    (tmp_path / f"{size:020}").write_bytes(rocketc.encode("t", b"next", phy_offset=size) + bytes(50))
    (tmp_path / f"{2 * size:020}").write_bytes(bytes(size))
    scan = rocketc.scan(tmp_path, errors="skip")
    assert [message.body for message in scan] == [b"body", b"next"]
    assert [(loss.start, loss.stop, loss.reason) for loss in scan.report.damage] == [(len(record), size, "truncated")]
    with pytest.raises(rocketc.CorruptRecordError, match="truncated"):
        list(rocketc.scan(tmp_path))
