"""A file of the log that is missing between two others: damage, unless the caller reads a part of the log."""

import pickle
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import rocketc
from rocketc.jobs.counts import count
from rocketc.read.scan_report import Damage, ScanReport

SIZE = 200  # of a file, with one record
FILES = 6
GONE = (400, 600)  # the range of the third file


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A commit log without its first file, which was cleaned, and without its third."""
    folder = tmp_path / "commitlog"
    folder.mkdir()
    for base in range(0, FILES * SIZE, SIZE):
        first = rocketc.encode("t", b"x", phy_offset=base)
        (folder / f"{base:020d}").write_bytes(first + rocketc.encode_blank(SIZE - len(first)))
    (folder / f"{0:020d}").unlink()
    (folder / f"{GONE[0]:020d}").unlink()
    return folder


def lost(folder: Path, start: int = GONE[0], stop: int = GONE[1]) -> Damage:
    return Damage(str(folder / f"{start:020d}"), start, stop, "missing_file")


def test_it_is_raised_after_the_messages_before_it(log: Path) -> None:
    seen = []
    with pytest.raises(rocketc.CorruptRecordError, match=r"missing_file; restore the file; partial=True") as raised:
        seen.extend(m.phy_offset for m in rocketc.scan(log))
    assert seen == [200]
    error = raised.value
    assert (error.file, error.offset, error.reason) == (str(log / f"{400:020d}"), 400, "missing_file")


@pytest.mark.parametrize("way", ["to_arrow", "batches", "count", "stream", "by_file", "export", "counts"])
def test_no_way_of_reading_hides_it(log: Path, tmp_path_factory: pytest.TempPathFactory, way: str) -> None:
    scan, out = rocketc.scan(log.parent), tmp_path_factory.mktemp("out")
    ways = {
        "to_arrow": scan.to_arrow,
        "batches": lambda: list(scan.batches()),
        "count": scan.count,
        "stream": lambda: pa.RecordBatchReader.from_stream(scan).read_all(),
        "by_file": lambda: [list(part) for part in scan.by_file()],
        "export": lambda: rocketc.export(scan, out / "out.jsonl"),
        "counts": lambda: count(scan, ["topic"]),
    }
    with pytest.raises((rocketc.CorruptRecordError, pa.ArrowInvalid), match="missing_file"):
        ways[way]()
    assert not list(out.iterdir())


def test_duckdb_fails(log: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    scan = rocketc.scan(log, columns=["topic"])  # noqa: F841
    with pytest.raises(duckdb.Error, match="missing_file"):
        duckdb.sql("SELECT count(*) FROM scan").fetchall()


def test_skip_and_report_list_it(log: Path) -> None:
    scan = rocketc.scan(log, errors="skip")
    assert [m.phy_offset for m in scan] == [200, 600, 800, 1000]
    assert (scan.report.damage, scan.report.missing) == ([lost(log)], [GONE])
    with pytest.warns(rocketc.DamageWarning, match="200 bytes lost at physical offset 400: missing_file"):
        rocketc.scan(log, errors="report").count()


def test_damage_is_in_the_order_of_the_log(log: Path) -> None:
    for base in (200, 800):
        path = log / f"{base:020d}"
        path.write_bytes(b"\1" * 8 + path.read_bytes()[8:])
    scan = rocketc.scan(log, errors="skip")
    assert scan.count() == 2
    assert [damage.start for damage in scan.report.damage] == [200, 400, 800]
    parts = scan.by_file()
    assert sum(part.count() for part in parts) == 2
    assert ScanReport.total(part.report for part in parts).damage == scan.report.damage


@pytest.mark.parametrize(
    ("start", "stop", "damage"),
    [
        (None, 400, None),
        (600, None, None),
        (600, 800, None),
        (500, None, (500, 600)),
        (None, 401, (400, 401)),
        (450, 550, (450, 550)),
        (None, None, GONE),
    ],
)
def test_only_in_the_range_that_is_read(
    log: Path, start: int | None, stop: int | None, damage: tuple[int, int] | None
) -> None:
    scan = rocketc.scan(log, errors="skip", start=start, stop=stop)
    scan.count()
    wanted = [] if damage is None else [lost(log, *damage)]
    assert scan.report.damage == wanted
    parts = scan.by_file()
    assert sum(part.count() for part in parts) == scan.report.records
    assert ScanReport.total(part.report for part in parts).damage == wanted


def test_a_part_is_read_by_saying_so(log: Path) -> None:
    scan = rocketc.scan(log, partial=True)
    assert [m.phy_offset for m in scan] == [200, 600, 800, 1000]
    assert (scan.report.damage, scan.report.missing) == ([], [GONE])
    files = sorted(log.iterdir())
    assert rocketc.scan(files[0]).count() == 1
    assert rocketc.scan([files[0], files[-1]]).count() == 2  # the files between them are there, and left out
    with pytest.raises(rocketc.CorruptRecordError, match="missing_file"):
        rocketc.scan(files).count()  # as from a glob
    with pytest.raises(rocketc.CorruptRecordError, match="missing_file"):
        rocketc.scan(str(log / "0*")).count()
    assert pickle.loads(pickle.dumps(scan)).count() == 4
    assert "partial=True" in repr(scan)


def test_two_folders_of_one_log(log: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    shutil.move(log / f"{600:020d}", other / f"{600:020d}")
    scan = rocketc.scan([log, other], errors="skip")
    assert scan.count() == 4
    assert scan.report.damage == [lost(log)]
    (other / f"{400:020d}").write_bytes(b"\1" * SIZE)
    scan = rocketc.scan([log, other], errors="skip", partial=True)
    assert scan.count() == 4
    assert [damage.reason for damage in scan.report.damage] == ["bad_magic"]


def test_a_follower_reports_it(log: Path) -> None:
    seen = rocketc.scan(log).follow()
    assert next(seen).phy_offset == 200
    with pytest.raises(rocketc.CorruptRecordError, match="missing_file"):
        next(seen)
    assert [m.phy_offset for m in rocketc.scan(log, partial=True, stop=800).follow()] == [200, 600]


def test_a_folder_is_listed_again_before_a_file_counts_as_lost(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of a folder are not listed at one moment, and a writer may create one meanwhile."""
    from rocketc.files import paths

    whole = log / f"{400:020d}"
    find_once = paths._find
    calls = []
    record = rocketc.encode("t", b"x", phy_offset=400)

    def find(*given: object) -> object:
        out = find_once(*given)
        calls.append(len(out[0].lost))
        whole.write_bytes(record + rocketc.encode_blank(SIZE - len(record)))
        return out

    monkeypatch.setattr(paths, "_find", find)
    assert rocketc.scan(log).count() == 5
    assert calls == [1, 0]
