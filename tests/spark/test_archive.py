"""rocketc.spark.archive: the target has each message once, whatever happens between runs."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.errors import PySparkException
from support import command, stores
from support.spark_frames import arrow_of

import rocketc
from rocketc.cli.export_spark import said
from rocketc.cli.main import cli
from rocketc.exports import archive_target
from rocketc.files.paths import resolve
from rocketc.jobs.counts import count
from rocketc.spark import archive as archive_module
from rocketc.spark import archive_task
from rocketc.spark.archive import archive, read_archive

pytestmark = pytest.mark.spark
Golden = Callable[[str], stores.GoldenStore]

SCHEMA = pa.schema([*pa.schema(rocketc.decode(b"")), ("date", pa.string())])
LONG = "y" * 255  # a topic of v533-store: longer than a folder's name can be


def visible(target: Path, files: list[str] | None = None) -> list[tuple[Any, ...]]:
    """The rows that a reader of the folder gets: offset, queue, queue offset, body and topic, sorted."""
    part = ds.partitioning(pa.schema({"topic": pa.string(), "date": pa.string()}), flavor="hive")
    if files is None:
        files = [str(path) for path in target.glob("data/topic=*/*/*.parquet")]
    if not files:
        return []
    table = ds.dataset(files, schema=SCHEMA, partitioning=part, partition_base_dir=str(target)).to_table()
    return rows_of(table)


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    names = ("physicalOffset", "queueId", "queueOffset", "body", "topic", "tags", "storeSize", "properties")
    return sorted(zip(*(table.column(name).to_pylist() for name in names), strict=True), key=lambda row: row[:4])


def scanned(path: Path, **options: Any) -> list[tuple[Any, ...]]:
    return rows_of(rocketc.scan(path, errors="skip", **options).to_arrow())


def damage_of(target: Path) -> list[tuple[Any, ...]]:
    rows = ds.dataset(str(target / "_rocketc/damage"), ignore_prefixes=[]).to_table().to_pylist()
    return sorted((row["start"], row["stop"], row["reason"]) for row in rows)


def told(damage: list[Any]) -> list[tuple[Any, ...]]:
    return [(one.start, one.stop, one.reason) for one in damage]


def state(target: Path) -> dict[str, tuple[int, int]]:
    """The files of a folder: names, sizes, times."""
    return {
        str(path.relative_to(target)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in target.rglob("*")
        if path.is_file() and path.name != "lock"
    }


def prefix(store: Path, to: Path, size: int, room: bool) -> Path:
    """Copy the log as it was with `size` bytes; with room, its last file has its final length."""
    shutil.rmtree(to, ignore_errors=True)
    (to / "commitlog").mkdir(parents=True)
    for file in sorted((store / "commitlog").iterdir()):
        if int(file.name) < size:
            data = file.read_bytes()
            kept = data[: size - int(file.name)]
            (to / "commitlog" / file.name).write_bytes(kept + bytes(len(data) - len(kept) if room else 0))
    return to


FEW = {"v533-broker", "v533-bitrot", "v497-torn"}


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "name", [name if name in FEW else pytest.param(name, marks=pytest.mark.long) for name in stores.NAMES]
)
def test_holds_each_message_once_and_each_damage(golden: Golden, spark: Any, tmp_path: Path, name: str) -> None:
    store, target = golden(name).path, tmp_path / "out"
    scan = rocketc.scan(store, errors="skip")
    topics = sorted({m.topic for m in scan} - {LONG})
    damage = scan.report.damage
    size = scan.report.bytes
    report = archive(spark, store, target, topics=topics, max_bytes=size // 7, commit_bytes=size // 2)
    whole = scanned(store, topics=topics)
    assert visible(target) == whole
    assert (report.messages, report.start, report.commits > 1) == (len(whole), 0, True)
    assert told([*report.damage, *([report.torn] if report.torn else [])]) == told(damage)
    assert damage_of(target) == told(report.damage)
    before = state(target)
    again = archive(spark, store, target, topics=topics)
    assert (again.messages, again.commits, again.torn) == (0, 0, report.torn)
    assert state(target) == before
    rows = ds.dataset(str(target / "_rocketc/statistics"), ignore_prefixes=[]).to_table().to_pylist()
    groups = count(rocketc.scan(store, errors="skip", topics=topics), by=["topic"])
    found: dict[str, list[int]] = {}
    for row in rows:
        one = found.setdefault(row["topic"], [0, 0])
        one[0] += row["messages"]
        one[1] += row["bytes"]
        assert row["firstOffset"] <= row["lastOffset"] and row["firstTimestamp"] <= row["lastTimestamp"]
        assert int(Path(row["file"]).name) <= row["firstOffset"] and str(row["date"]) == "2026-11-21"
    assert found == {group.values[0]: [group.messages, group.bytes] for group in groups}


def test_folders_and_columns_are_those_of_an_export(golden: Golden, spark: Any, tmp_path: Path) -> None:
    store = golden("v533-broker").path
    rocketc.export(rocketc.scan(store), tmp_path / "exported", partition_by=("topic", "date"))
    archive(spark, store, tmp_path / "archived")
    names = ("exported", "archived/data")
    folders = [
        {str(path.parent.relative_to(tmp_path / name)) for path in tmp_path.glob(f"{name}/topic=*/*/*.parquet")}
        for name in names
    ]
    assert folders[0] == folders[1] and any("%" in folder for folder in folders[0])
    types = [ds.dataset([str(path) for path in tmp_path.glob(f"{name}/topic=*/*/*.parquet")]).schema for name in names]
    assert types[0] == types[1]
    frame = read_archive(spark, tmp_path / "archived")
    assert frame.columns == [*rocketc.COLUMN_NAMES, "date"]
    assert rows_of(arrow_of(frame)) == scanned(store)


@pytest.mark.parametrize("room", [True, pytest.param(False, marks=pytest.mark.long)])
def test_grows_with_the_log(golden: Golden, spark: Any, tmp_path: Path, room: bool) -> None:
    store, target = golden("v533-bitrot").path, tmp_path / "out"
    size = rocketc.scan(store, errors="skip", crc="none").bytes
    torn = 0
    damaged = (
        361_670  # the CRC of the body there is wrong: at the end of the log this may be a message that is being written
    )
    for cut in (0, 3_000, 65_536, 100_001, 131_072 - 7, 361_700, 362_000, 590_000, size):
        copy = prefix(store, tmp_path / "copy", cut, room)
        report = archive(spark, copy, target)
        torn += report.torn is not None
        whole = scanned(copy)
        assert visible(target) == whole, cut
        assert told(report.damage) == ([(damaged, 361_996, "bad_body_crc")] if cut == 590_000 else []) or cut == 362_000
    assert torn >= 3 and damage_of(target) == [(damaged, 361_996, "bad_body_crc")]


def test_a_log_that_grows_between_two_tasks(golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task ends where the log did then, and the next one finds later messages: those between must be read first."""
    store, target = golden("v533-bitrot").path, tmp_path / "out"
    copy = prefix(store, tmp_path / "copy", 70_000, True)
    runs = []

    def run(spark: Any, tasks: Any, job: Any) -> list[dict[str, Any]]:
        done = []
        for number, task in enumerate(tasks):
            done.append({"task": number, **archive_task.write_task(task, job)})
            if task[-1].stop is not None and task[-1].stop > 70_000:
                prefix(store, copy, 120_000, True)
        runs.append([one["begin"] for one in done])
        return done

    monkeypatch.setattr(archive_module, "run_tasks", run)
    report = archive(None, copy, target, max_bytes=5_000)  # type: ignore[arg-type]
    assert len(runs) > 1 and max(runs[0]) > min(runs[1])  # the first round read too far
    assert visible(target) == scanned(copy) and (report.damage, report.messages) == ([], len(visible(target)))


def test_deleted_files_and_a_different_log_are_refused(golden: Golden, spark: Any, tmp_path: Path) -> None:
    store, target = golden("v533-bitrot").path, tmp_path / "out"
    whole = scanned(store)
    copy = prefix(store, tmp_path / "copy", 65_536 * 2, True)
    archive(spark, copy, target)
    prefix(store, copy, 1 << 40, False)
    for file in sorted((copy / "commitlog").iterdir())[:4]:
        file.unlink()
    report = archive(spark, copy, target)
    assert told(report.damage)[0] == (131_072, 262_144, "missing_file") and report.start == 131_072
    assert visible(target) == [row for row in whole if not 131_072 <= row[0] < 262_144]
    before = state(target)
    prefix(store, copy, 300_000, False)
    with pytest.raises(ValueError, match=r"ends at physical offset 300000, .* it was cut, or is another log"):
        archive(spark, copy, target)
    prefix(store, copy, 1 << 40, False)
    last = sorted((copy / "commitlog").iterdir())[-1]
    data = bytearray(last.read_bytes())
    at = list(rocketc.scan(copy, errors="skip"))[-1].phy_offset - int(last.name)
    other = rocketc.encode("another", b"log", phy_offset=at + int(last.name))
    data[at : at + len(other)] = other
    last.write_bytes(data)
    with pytest.raises(ValueError, match="another message at physical offset"):
        archive(spark, copy, target)
    last.write_bytes(bytes(len(data)))
    with pytest.raises(ValueError, match="it was cut, or is another log"):
        archive(spark, copy, target)
    assert state(target) == before


@pytest.mark.long
def test_killed_at_any_step(golden: Golden, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy the archive between any two steps of a run, as a kill leaves it; the next run must complete the copy."""
    store, target, copies = golden("v533-bitrot").path, tmp_path / "out", []

    def look(step: str) -> None:
        copies.append((step, tmp_path / f"{len(copies):02d}"))
        shutil.copytree(target, copies[-1][1])

    archive(spark, prefix(store, tmp_path / "copy", 100_000, True), target)
    first = visible(target)
    monkeypatch.setattr(archive_target, "reached", look)
    archive(spark, store, target, commit_bytes=400_000)
    monkeypatch.undo()
    whole = scanned(store)
    every = {row[:2] + row[3:4] for row in whole}
    steps = [step for step, _ in copies]
    assert {"planned", "written", "moving", "moved", "published"} == set(steps) and steps.count("published") > 1
    for step, copy in copies:
        seen = [row[:2] + row[3:4] for row in visible(copy)]
        assert len(set(seen)) == len(seen) and {row[:2] + row[3:4] for row in first} <= set(seen) <= every
        for commit in archive_target.commits_of(str(copy)):
            assert all((copy / path).stat().st_size == size for path, _, size, _ in commit.files)
        archive(spark, store, copy)
        assert visible(copy) == whole and damage_of(copy) == damage_of(target), step
        assert not (copy / "_rocketc" / "staging").exists()


def test_a_failed_run_changes_nothing(golden: Golden, spark: Any, tmp_path: Path) -> None:
    store, target = golden("v533-bitrot").path, tmp_path / "out"
    copy = prefix(store, tmp_path / "copy", 300_000, True)
    archive(spark, copy, target)
    before = state(target)
    prefix(store, copy, 1 << 40, False)
    last = sorted((copy / "commitlog").iterdir())[-1]
    last.rename(last.with_name("kept"))
    last.symlink_to("nowhere")
    with pytest.raises(Exception, match=rf"No such file or directory: .*{last.name}"):
        archive(spark, copy, target)
    assert state(target) == before
    last.unlink()
    last.with_name("kept").rename(last)
    archive(spark, copy, target)
    assert visible(target) == scanned(store)


def test_a_folder_that_is_not_an_archive_is_refused(golden: Golden, spark: Any, tmp_path: Path) -> None:
    store = golden("v533-bitrot").path
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes").write_text("mine")
    (tmp_path / "x").write_bytes(b"")
    target = tmp_path / "out"
    archive(spark, prefix(store, tmp_path / "copy", 70_000, True), target, columns=["topic", "body"])
    for error, text, call in (
        (ValueError, "not an archive: it holds 'notes'", lambda: archive(spark, store, tmp_path / "taken")),
        (rocketc.StoreIOError, "nowhere", lambda: archive(spark, "nowhere", target)),
        (rocketc.StoreIOError, "Not a directory", lambda: archive(spark, store, tmp_path / "x")),
        (ValueError, "one contains the other", lambda: archive(spark, store, store / "archive")),
        (ValueError, "files are named by their physical offset", lambda: archive(spark, tmp_path / "x", target)),
        (
            ValueError,
            r"columns=.*made with \['topic', 'body'\]",
            lambda: archive(spark, store, target, columns=["topic"]),
        ),
        (ValueError, "topics=", lambda: archive(spark, store, target, columns=["topic", "body"], topics="a")),
        (ValueError, "unknown column 'nope'; the columns are", lambda: archive(spark, store, target, columns=["nope"])),
        (ValueError, "max_bytes=0", lambda: archive(spark, store, target, max_bytes=0)),
        (ValueError, "compression", lambda: archive(spark, store, target, compression="rar")),
        (rocketc.StoreIOError, "not an archive", lambda: read_archive(spark, tmp_path)),
    ):
        with pytest.raises(error, match=text):
            call()
    held = archive_target.Target(str(target))
    with pytest.raises(rocketc.StoreLockedError, match="another process is writing to this archive"):
        archive(spark, store, target, columns=["topic", "body"])
    held.close()
    assert read_archive(spark, target).columns == ["topic", "body", "date"]
    newest = target / "_rocketc" / "commits" / "00000001.json"
    newest.write_text(newest.read_text().replace('"version": 1', '"version": 9'))
    with pytest.raises(ValueError, match=r"00000001.json: version 9; this rocketc reads version 1"):
        archive(spark, store, target, columns=["topic", "body"])
    newest.write_text("{}")
    with pytest.raises(ValueError, match=r"00000001.json: not a commit of an archive"):
        archive(spark, store, target, columns=["topic", "body"])


def test_an_empty_store(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    report = archive(spark, tmp_path / "store", tmp_path / "out")
    assert (report.messages, report.stop, report.commits) == (0, 0, 0)
    assert read_archive(spark, tmp_path / "out").columns == [*rocketc.COLUMN_NAMES, "date"]
    (tmp_path / "store" / "commitlog" / f"{4096:020d}").write_bytes(
        rocketc.encode("t", b"x", phy_offset=4096) + bytes(500)
    )
    report = archive(spark, tmp_path / "store", tmp_path / "out")
    assert (report.messages, report.start, report.damage) == (1, 4096, [])


def test_as_a_command(golden: Golden, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setattr(type(spark), "stop", lambda self: None)  # the command stops its session, which the tests share
    store, target = str(golden("v533-bitrot").path), str(tmp_path / "out")
    words = ["export", store, "-o", target, "--engine", "spark"]

    def run(*args: str) -> tuple[int, str, str]:
        code = cli.main([*words, *args], standalone_mode=False)
        return (code, *capfd.readouterr())

    code, out, _ = run("--json")
    summary = json.loads(out)
    assert (code, summary["rows"], summary["torn"]) == (1, 1499, None)
    assert [(one["start"], one["reason"]) for one in summary["damage"]] == [(361_670, "bad_body_crc")]
    assert run() == (0, "", "rocketc: nothing new\n")
    assert visible(Path(target)) == scanned(Path(store))
    for args, text in (
        (["--tag", "a"], "whole topics and can't be used with tags"),
        (["--stop", "1"], "whole topics and can't be used with stop"),
        (["--force"], "can't be used with --force"),
        (["--partition-by", "date"], "folders by topic,date"),
        (["-t", "/a/"], "not a /REGEX/"),
        (["--columns", "body"], "it was made with"),
    ):
        with pytest.raises(Exception, match=text):
            run(*args)


def test_a_failure_of_spark_is_one_line(spark: Any, tmp_path: Path) -> None:
    def fail(batches: Any) -> Any:
        raise rocketc.StoreIOError(5, "Input/output error", "x")

    with pytest.raises(PySparkException) as failed:
        spark.range(1).mapInArrow(fail, "id long").count()
    assert said(str(failed.value)) == "rocketc.errors.StoreIOError: [Errno 5] Input/output error: 'x'"
    with pytest.raises(PySparkException) as failed:
        spark.read.parquet(str(tmp_path / "nope"))
    assert said(str(failed.value)).startswith("[PATH_NOT_FOUND] Path does not exist")


def test_a_machine_without_java(golden: Golden, tmp_path: Path) -> None:
    done = command.rocketc(
        "export", golden("v533-bitrot").path, "-o", tmp_path / "out", "--engine", "spark", env={"JAVA_HOME": "/nowhere"}
    )
    assert (done.returncode, done.stdout) == (3, b"")
    assert done.stderr.decode().splitlines()[-1].startswith("rocketc: Spark: [JAVA_GATEWAY_EXITED]")


@pytest.mark.long
@pytest.mark.parametrize("after", [0.5, 3.0, 4.0, 4.5, 5.0, 6.0])
def test_kill_9(golden: Golden, spark: Any, tmp_path: Path, after: float) -> None:
    store, target = golden("flights-2013-01").path, tmp_path / "out"
    code = (
        "import sys; from pyspark.sql import SparkSession; from rocketc.spark.archive import archive\n"
        "spark = SparkSession.builder.master('local[2]').getOrCreate(); print('ready', flush=True)\n"
        f"archive(spark, {str(store)!r}, {str(target)!r}, max_bytes=300_000, commit_bytes=1_000_000)\n"
    )
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env, start_new_session=True
    )
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    time.sleep(after)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    archive(spark, store, target)
    assert visible(target) == scanned(store)


def test_a_worker_without_a_codec_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / f"{0:020d}"
    log.write_bytes(rocketc.encode("t", b"no zstd", sys_flag=0x1 | 2 << 8))
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    columns = tuple(rocketc.decode(b"").column_names)
    job = archive_task.Job(str(tmp_path / "staging"), columns, {"decompress": True}, None, {})
    with pytest.raises(rocketc.MissingCodecError, match="a worker lacks the library"):
        archive_task.write_task(resolve(log)[0].files, job)
    assert not list((tmp_path / "staging").glob("**/*.parquet"))
