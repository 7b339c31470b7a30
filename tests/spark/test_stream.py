"""spark.readStream.format("rocketmq"): every record once, while the log grows and is cut, and the query is killed."""

import json
import pickle
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import stores
from support.command import GrowingLog

import rocketc
from rocketc.spark import growing_log
from rocketc.spark.growing_log import DataLossError
from rocketc.spark.source import RocketmqSource

pytest.importorskip("pyspark.sql.streaming.datasource", reason="this Spark does not support limits")
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
)

pytestmark = pytest.mark.spark

Golden = Callable[[str], stores.GoldenStore]


def reader(path: Any, **options: str) -> Any:
    source = RocketmqSource({"path": str(path), "columns": "physicalOffset,body", **options})
    return source.streamReader(source.schema())


class Query:
    """Uses a stream reader as Spark does: plans a batch, records its end, reads it, records that it is done."""

    def __init__(self, path: Any, **options: str) -> None:
        self.path = path
        self.options = {"startingOffsets": "earliest", **options}
        self.ends: list[str] = []  # the checkpoint: ends of batches, the last of which may not be done
        self.done: list[list[Any]] = []  # the sink: rows of each batch
        self.start()

    def start(self) -> None:
        """Restart from the checkpoint; a batch that was planned and not done is read first."""
        self.reader = reader(self.path, **self.options)
        self.first = self.reader.initialOffset()
        if len(self.ends) > len(self.done):
            self.run()

    def from_checkpoint(self) -> Any:
        return json.loads(self.ends[len(self.done) - 1]) if self.done else self.first

    def plan(self, limit: Any = None) -> bool:
        start = self.from_checkpoint()
        end = self.reader.latestOffset(start, limit or self.reader.getDefaultReadLimit())
        if json.dumps(end) == json.dumps(start):
            return False
        self.ends.append(json.dumps(end))
        return True

    def run(self) -> None:
        start, end = self.from_checkpoint(), json.loads(self.ends[-1])
        there = pickle.loads(pickle.dumps(self.reader))  # a task gets a copy
        rows = []
        for partition in pickle.loads(pickle.dumps(self.reader.partitions(start, end))):
            for batch in there.read(partition):
                rows += batch.column(0).to_pylist()
        self.done.append(rows)
        self.reader.commit(end)

    def batches(self, limit: Any = None) -> int:
        """Read all available batches; return their number."""
        before = len(self.done)
        while self.plan(limit):
            self.run()
        return len(self.done) - before

    @property
    def rows(self) -> list[Any]:
        return [row for rows in self.done for row in rows]

    @property
    def at(self) -> int:
        return self.from_checkpoint()["physicalOffset"]


@pytest.fixture
def log(tmp_path: Path) -> GrowingLog:
    return GrowingLog(tmp_path / "store" / "commitlog")


def append(log: GrowingLog, count: int, size: int = 100) -> list[int]:
    return [log.append("t", bytes([n % 251 + 1]) * size, properties={"TAGS": "AB"[n % 2]}) for n in range(count)]


# Every record once


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_record_once(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """The log grows, has torn records at its end, and is cleaned; a query with limits is killed at times."""
    log = GrowingLog(tmp_path_factory.mktemp("log") / "commitlog")
    wanted: list[tuple[int, str]] = []
    torn = False

    def put(count: int, size: int) -> None:
        nonlocal torn
        for n in range(count):
            fields = (b"torn" * 50, "A") if torn else (bytes(size), "AB"[n % 2])
            wanted.append((log.append("t", fields[0], properties={"TAGS": fields[1]}), fields[1]))
            torn = False

    options = data.draw(
        st.fixed_dictionaries(
            {},
            optional={
                "maxBytesPerTrigger": st.sampled_from(["700", "5000"]),
                "maxOffsetsPerTrigger": st.sampled_from(["5", "40"]),
                "maxFilesPerTrigger": st.sampled_from(["1", "2"]),
                "maxBytesPerPartition": st.sampled_from(["300", "3000"]),
                "tags": st.just("A"),
                "sql": st.just("TAGS = 'A'"),
                "mode": st.just("DROPMALFORMED"),
            },
        )
    )
    query = Query(log.folder, **options)
    deleted = 0
    steps = ["append", "tear", "batch", "plan", "kill", "clean"]
    for step in data.draw(st.lists(st.sampled_from(steps), max_size=25)):
        if step == "append":
            put(data.draw(st.integers(1, 60)), data.draw(st.sampled_from([0, 100, 900])))
        elif step == "tear":  # a part of the next record
            record = rocketc.encode("t", b"torn" * 50, phy_offset=log.end, properties={"TAGS": "A"})
            if len(record) + 8 <= log.file_size - log.end % log.file_size:
                log.write(record[: data.draw(st.integers(1, 88 + 200))])  # with the whole body it would be a record
                torn = True
        elif step == "batch" and query.plan():
            query.run()
        elif step == "plan":
            if query.plan():
                query.start()  # killed before the batch was done
        elif step == "kill":
            query.start()
        elif step == "clean" and query.done:
            while deleted + log.file_size <= query.at and deleted + log.file_size < log.end:
                log.file_at(deleted).unlink()
                deleted += log.file_size
    put(1, 10)
    query.batches()
    assert query.rows == [offset for offset, tag in wanted if tag == "A" or not {"tags", "sql"} & {*options}]
    assert all(json.loads(end)["version"] == 1 for end in query.ends)


def test_a_copy_that_grows(tmp_path: Path) -> None:
    """Of the log of a running master, over several files; the query reads while the copy is written."""
    small = {"mapped_file_size_commit_log": 1 << 16}
    with (
        rocketc.open(tmp_path / "master", **small) as store,
        rocketc.ha.Master(store, port=0) as master,
        rocketc.replicate(master.address, tmp_path / "copy", mapped_file_size=1 << 16, interval=0.01) as copy,
    ):
        next(copy)
        query, wanted = Query(tmp_path / "copy"), []
        for n in range(200):
            wanted.append(store.put("orders", bytes([n + 1]) * 1024).phy_offset)
            if n % 7 == 0:
                query.batches()
        for progress in copy:
            query.batches()
            if progress.phy_offset == store.max_phy_offset:
                break
        query.batches()
        assert query.rows == wanted and len(list((tmp_path / "copy" / "commitlog").iterdir())) > 3
        assert len([rows for rows in query.done if rows]) > 1


@pytest.mark.parametrize("name", stores.WHOLE)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"maxBytesPerTrigger": "20k", "maxBytesPerPartition": "3000"},
        {"maxOffsetsPerTrigger": "50"},
        {"maxFilesPerTrigger": "1"},
    ],
)
def test_every_store_is_what_a_scan_reads(golden: Golden, name: str, options: dict[str, str]) -> None:
    if name == "flights-2013-01" and options:
        pytest.skip("large, and covered by the other stores")
    store = golden(name)
    query = Query(store.path, **options)
    query.batches()
    assert query.rows == [m.phy_offset for m in rocketc.scan(store.path)]


# Limits


def test_a_batch_keeps_all_limits(log: GrowingLog) -> None:
    append(log, 200)
    size = rocketc.scan(log.folder).to_arrow()["storeSize"][0].as_py()
    per_file = sum(m.phy_offset < 4096 for m in rocketc.scan(log.folder))
    for options, most in (
        ({"maxOffsetsPerTrigger": "7"}, 7),
        ({"maxBytesPerTrigger": str(5 * size)}, 5),
        ({"maxBytesPerTrigger": str(5 * size + 1)}, 6),  # up to the record that has the last of these bytes
        ({"maxBytesPerTrigger": "1"}, 1),
        ({"maxFilesPerTrigger": "2"}, 2 * per_file),
        ({"maxFilesPerTrigger": "1", "maxOffsetsPerTrigger": "9", "maxBytesPerTrigger": "1m"}, 9),
        ({"maxFilesPerTrigger": "1", "maxOffsetsPerTrigger": "900", "maxBytesPerTrigger": str(3 * size)}, 3),
    ):
        query = Query(log.folder, **options)
        query.batches()
        assert len(query.rows) == 200 and len(query.done[0]) == most, options
        assert max(map(len, query.done)) == most, options


def test_limits_count_records_after_filtering(log: GrowingLog) -> None:
    append(log, 200)
    query = Query(log.folder, tags="B", maxOffsetsPerTrigger="30")
    query.batches()
    assert [len(rows) for rows in query.done] == [30, 30, 30, 10]


def test_spark_gets_a_limit_and_may_lift_it(log: GrowingLog) -> None:
    append(log, 50)
    for options, limit in (
        ({}, ReadAllAvailable()),
        ({"maxBytesPerTrigger": "1k"}, ReadMaxBytes(1024)),
        ({"maxOffsetsPerTrigger": "5"}, ReadMaxRows(5)),
        ({"maxFilesPerTrigger": "3"}, ReadMaxFiles(3)),
    ):
        query = Query(log.folder, **options)
        assert query.reader.getDefaultReadLimit() == limit
        assert query.batches(ReadAllAvailable()) == 1 and len(query.rows) == 50


def test_available_now_reads_the_records_that_existed_at_the_start(log: GrowingLog) -> None:
    wanted = append(log, 100)
    query = Query(log.folder, maxOffsetsPerTrigger="30")
    query.reader.prepareForTriggerAvailableNow()
    append(log, 100)
    assert query.batches() == 4 and query.rows == wanted
    query.start()
    query.reader.prepareForTriggerAvailableNow()
    assert query.batches() == 4 and len(query.rows) == 200


def test_a_batch_is_split_into_tasks(log: GrowingLog) -> None:
    wanted = append(log, 100)
    query = Query(log.folder, maxOffsetsPerTrigger="60", minPartitions="8")
    assert query.plan()
    assert len(query.reader.partitions(query.first, json.loads(query.ends[-1]))) >= 8
    query.run()
    assert query.rows == wanted[:60]


def test_an_inner_batch_is_not_split(golden: Golden) -> None:
    store = golden("v533-broker")
    messages = [m.phy_offset for m in rocketc.scan(store.path)]
    assert len(set(messages)) < len(messages)
    query = Query(store.path, maxOffsetsPerTrigger="1")
    query.batches()
    assert query.rows == messages
    assert all(len(set(rows)) == 1 for rows in query.done)


# Where a stream begins


def test_a_stream_begins_at_the_end_by_default(log: GrowingLog) -> None:
    old = append(log, 30)
    for options, wanted in (({}, []), ({"startingOffsets": "LATEST"}, []), ({"startingOffsets": "earliest"}, old)):
        query = Query(log.folder, **options)
        query.reader = reader(log.folder, **options)
        query.first = query.reader.initialOffset()
        query.batches()
        new = append(log, 3)
        query.batches()
        assert query.rows == wanted + new
        old += new


def test_a_stream_begins_at_a_time(log: GrowingLog) -> None:
    offsets = [log.append("t", b"x" * 200, store_timestamp=1_700_000_000_000 + n) for n in range(100)]
    query = Query(log.folder)
    query.reader = reader(log.folder, startingTimestamp=str(1_700_000_000_070))
    query.first = query.reader.initialOffset()
    assert offsets[70] - log.file_size <= query.first["physicalOffset"] <= offsets[70]  # earlier files are not read
    query.batches()
    assert query.rows == offsets[70:]


def test_the_first_batch_is_the_same_after_a_restart(log: GrowingLog) -> None:
    """Spark asks again where a query begins if its first batch was not done."""
    append(log, 30)
    query = Query(log.folder, startingOffsets="latest")
    new = append(log, 5)
    assert query.plan()
    more = append(log, 5)
    query.start()
    assert query.rows == new
    query.batches()
    assert query.rows == new + more


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_a_store_that_appears_later(tmp_path: Path, starting: str, capsys: pytest.CaptureFixture[str]) -> None:
    query = Query(tmp_path / "store", startingOffsets=starting)
    assert query.batches() == 0 and query.reader.reportLatestOffset() is None
    (tmp_path / "store").mkdir()
    assert query.batches() == 0
    (tmp_path / "store" / "commitlog").mkdir()
    assert query.batches() == 0
    log = GrowingLog(tmp_path / "store" / "commitlog")
    log.end = 8192
    log.write(b"")
    assert query.batches() == 0
    new = append(log, 3)
    assert query.batches() == 1 and query.rows == new
    waits = f"rocketc: {tmp_path}/store: No such file or directory; the stream waits for it"
    assert capsys.readouterr().err.splitlines().count(waits) == 1


def test_a_path_that_cannot_become_a_store_is_refused(tmp_path: Path, log: GrowingLog) -> None:
    with pytest.raises(rocketc.StoreIOError, match="hdfs://there/x"):
        reader("hdfs://there/x", failOnDataLoss="true")
    append(log, 1)
    (tmp_path / "other").mkdir()
    for name in ("log.bak", "other"):
        shutil.copy(log.file_at(0), tmp_path / name)
    with pytest.raises(ValueError, match=r"log\.bak: a stream needs files that are named by their physical offset"):
        Query(tmp_path / "log.bak")
    source = RocketmqSource({"paths": json.dumps([str(log.folder), str(tmp_path / "other")])})
    with pytest.raises(ValueError, match="2 commit logs; use a stream for each"):
        source.streamReader(source.schema()).initialOffset()


# The end of a log that is being written


@pytest.mark.parametrize("crc", ["true", "false"])
def test_a_stream_waits_for_the_rest_of_a_record(log: GrowingLog, crc: str) -> None:
    append(log, 3)
    query = Query(log.folder, verifyCrc=crc)
    query.batches()
    record = rocketc.encode("t", b"body" * 9, phy_offset=log.end, properties={"TAGS": "A"})
    at = record.index(b"body")
    for part in (record[:4], record[:60], record[:-8], record[:at] + bytes(36) + record[at + 36 :]):
        log.write(part)
        assert query.batches() == 0
    log.write(record)
    assert query.batches() == 1 and query.done[-1] == [log.end]


def test_a_torn_record_after_a_batch_is_not_its_damage(log: GrowingLog) -> None:
    wanted = append(log, 3)
    query = Query(log.folder)
    assert query.plan()
    log.write(rocketc.encode("t", b"x" * 99, phy_offset=log.end)[:50])  # and its writer is gone
    query.run()
    assert query.rows == wanted


def test_files_that_a_blank_record_closes(log: GrowingLog) -> None:
    query = Query(log.folder)
    wanted = append(log, 1, size=3000)
    query.batches()
    log.write(rocketc.encode_blank(log.file_size - log.end % log.file_size)[:8])
    assert query.batches() == 0
    wanted += append(log, 1, size=3000)
    assert query.batches() == 1
    for _ in range(5):
        query.start()
        wanted += append(log, 1, size=3000)
        assert query.batches() == 1
    assert query.rows == wanted


def test_finding_the_end_reads_nothing_twice(log: GrowingLog, monkeypatch: pytest.MonkeyPatch) -> None:
    from rocketc.spark import growing_log

    append(log, 90)
    query = Query(log.folder)
    query.batches()
    seen = []
    scan = growing_log.scan
    monkeypatch.setattr(growing_log, "scan", lambda part, **given: seen.append(part.start) or scan(part, **given))
    assert query.batches() == 0 and query.reader.reportLatestOffset()["physicalOffset"] == query.at
    assert seen == []
    at = query.at
    append(log, 1)
    assert query.batches() == 1 and query.reader.reportLatestOffset()["physicalOffset"] == query.at
    assert seen == [at]


# Damage


def damage(log: GrowingLog, offset: int) -> None:
    with log.file_at(offset).open("r+b") as file:
        file.seek(offset % log.file_size + 4)
        file.write(b"\0")


@pytest.mark.parametrize("which", [0, 5, 19])
def test_damage_in_the_middle(log: GrowingLog, which: int, capsys: pytest.CaptureFixture[str]) -> None:
    append(log, 20)
    offsets = append(log, 20)
    append(log, 20)
    for mode in ("FAILFAST", "DROPMALFORMED", "PERMISSIVE"):
        query = Query(log.folder, maxOffsetsPerTrigger="20", mode=mode, columns="physicalOffset,_corrupt_offset")
        if mode == "FAILFAST":
            damage(log, offsets[which])
            assert query.plan()
            query.run()
            text = (
                rf"{log.file_at(offsets[which])}: damage at physical offset {offsets[which]}: bad_magic; option mode="
            )
            with pytest.raises(rocketc.CorruptRecordError, match=text):
                query.batches()
            continue
        query.batches()
        rows = [row for row in query.rows if row is not None]
        assert rows == [m.phy_offset for m in rocketc.scan(log.folder, errors="skip")] and len(rows) == 59
        assert query.rows.count(None) == (mode == "PERMISSIVE")
    assert capsys.readouterr().err.count(f"bytes lost at physical offset {offsets[which]}: bad_magic") == 1


def test_damage_at_the_start_of_a_batch_belongs_to_it(log: GrowingLog) -> None:
    append(log, 5)
    query = Query(log.folder)
    query.batches()
    [torn, *_] = append(log, 3)
    damage(log, torn)
    assert query.plan()
    with pytest.raises(rocketc.CorruptRecordError, match=f"damage at physical offset {torn}: bad_magic"):
        query.run()


# Data that is lost


def lossy(query: Query, capsys: pytest.CaptureFixture[str]) -> tuple[str, list[Any]]:
    """Return the error of a query, which is logged once without failOnDataLoss, and the rows read then."""
    with pytest.raises(DataLossError) as caught:
        query.batches()
    with pytest.raises(DataLossError):
        query.start()
        query.batches()
    del query.ends[len(query.done) :]
    query.options["failOnDataLoss"] = "false"
    query.start()
    before = len(query.rows)
    capsys.readouterr()
    query.batches()
    query.batches()
    what = str(caught.value).removeprefix("rocketmq: ").partition("; use option failOnDataLoss=false")[0]
    assert capsys.readouterr().err.splitlines() == [f"rocketc: {what}"]
    return what.removeprefix(f"{query.path}: "), query.rows[before:]


def test_files_that_were_deleted(log: GrowingLog, capsys: pytest.CaptureFixture[str]) -> None:
    append(log, 3)
    query = Query(log.folder)
    query.batches()
    offsets = append(log, 100)
    for base in (0, 4096):
        log.file_at(base).unlink()
    at = query.at
    what, rows = lossy(query, capsys)
    assert what == f"physical offsets {at} to 8192 are lost: their files were deleted"
    assert rows == [offset for offset in offsets if offset >= 8192]


def test_a_missing_file_in_the_middle(log: GrowingLog, capsys: pytest.CaptureFixture[str]) -> None:
    offsets = append(log, 100)
    log.file_at(4096).unlink()
    what, rows = lossy(Query(log.folder), capsys)
    assert what == "physical offsets 4096 to 8192 are lost: a file is missing"
    assert rows == [offset for offset in offsets if not 4096 <= offset < 8192]


def test_a_file_deleted_during_planning(log: GrowingLog, monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = append(log, 100)
    query = Query(log.folder, failOnDataLoss="false", maxOffsetsPerTrigger="3")

    def late(*args: Any, **named: Any) -> Any:
        log.file_at(0).unlink(missing_ok=True)
        return rocketc.scan(*args, **named)

    monkeypatch.setattr(growing_log, "scan", late)
    query.batches()
    assert query.rows == [offset for offset in offsets if offset >= 4096]


def test_files_deleted_between_plan_and_task(log: GrowingLog, capsys: pytest.CaptureFixture[str]) -> None:
    offsets = append(log, 100)
    for lossless in ("true", "false"):
        query = Query(log.folder, failOnDataLoss=lossless, maxBytesPerPartition="3000")
        assert query.plan()
        partitions = query.reader.partitions(query.first, json.loads(query.ends[-1]))
        if lossless == "true":
            for base in (0, 4096):
                log.file_at(base).rename(log.folder / f"kept{base}")
            with pytest.raises(rocketc.StoreIOError, match="No such file"):
                [*query.reader.read(partitions[0])]
            for base in (0, 4096):
                (log.folder / f"kept{base}").rename(log.file_at(base))
        else:
            log.file_at(0).unlink()
            rows = [row for p in partitions for batch in query.reader.read(p) for row in batch.column(0).to_pylist()]
            assert rows == [offset for offset in offsets if offset >= 4096]
            assert f"rocketc: {log.file_at(0)}: deleted after" in capsys.readouterr().err


def test_a_log_that_was_cut(log: GrowingLog, capsys: pytest.CaptureFixture[str]) -> None:
    offsets = append(log, 10)
    query = Query(log.folder)
    query.batches()
    at = query.at
    with log.file_at(0).open("r+b") as file:
        file.seek(offsets[6])
        file.write(bytes(4096 - offsets[6]))
    log.end = offsets[6]
    what, rows = lossy(query, capsys)
    assert what == f"the log ends at offset {offsets[6]}, but the stream has read up to {at}: the log was cut"
    assert rows == [] and query.at == offsets[6]
    new = append(log, 3)
    query.batches()
    assert query.rows == offsets + new


def test_a_log_that_was_cut_and_rewritten(log: GrowingLog, capsys: pytest.CaptureFixture[str]) -> None:
    offsets = append(log, 10)
    query = Query(log.folder)
    query.batches()
    log.end = offsets[6]
    new = [log.append("t", b"anew" * 25, properties={"TAGS": "A"}) for _ in range(10)]  # of the same size
    assert new[4] == query.at
    at = query.at
    what, rows = lossy(query, capsys)
    assert what == f"this is not the log that the stream has read up to offset {at}: it was cut and written again"
    assert rows == new[4:]


def test_a_log_that_was_cut_below_a_planned_batch(log: GrowingLog, capsys: pytest.CaptureFixture[str]) -> None:
    offsets = append(log, 10)
    query = Query(log.folder)
    assert query.plan()
    with log.file_at(0).open("r+b") as file:
        file.seek(offsets[6])
        file.write(bytes(4096 - offsets[6]))
    with pytest.raises(DataLossError, match=r"offsets 0 to \d+ are lost: the log was cut or replaced after"):
        query.run()
    query.options["failOnDataLoss"] = "false"
    query.start()
    assert query.rows == offsets[:6]


def test_a_deleted_store(log: GrowingLog, capsys: pytest.CaptureFixture[str]) -> None:
    append(log, 10)
    query = Query(log.folder)
    query.batches()
    kept = log.folder.rename(log.folder.parent / "kept")
    with pytest.raises(DataLossError, match=r"has read up to offset \d+, and the log files are gone; use option"):
        query.batches()
    query.options["failOnDataLoss"] = "false"
    query.start()
    assert query.batches() == 0
    kept.rename(log.folder)
    new = append(log, 3)
    query.batches()
    assert query.rows[10:] == new


# Offsets


def test_the_form_of_checkpoint_offsets_is_stable(log: GrowingLog) -> None:
    """Offsets of version 1: queries of older releases continue with them."""
    wanted = append(log, 10)
    query = Query(log.folder, maxOffsetsPerTrigger="4")
    assert query.plan()
    content = log.file_at(0).read_bytes()
    assert json.loads(query.ends[0]) == {
        "version": 1,
        "physicalOffset": wanted[4],
        "initialOffset": 0,
        "lastRecord": wanted[3],
        "lastCrc": zlib.crc32(content[wanted[3] :][:88]),
    }
    query.ends, query.done = ['{"version": 1, "physicalOffset": %d, "of a later release": true}' % wanted[4]], [[]]
    query.batches()
    assert query.rows == wanted[4:]


@pytest.mark.parametrize(
    ("offset", "why"),
    [
        ({"version": 2, "physicalOffset": 0}, r"of version 2, .* this rocketc reads version 1: install the rocketc"),
        ({"physicalOffset": 0}, r"\{'physicalOffset': 0\}, which is not an offset of this source"),
        ({"version": 1, "physicalOffset": "0"}, "which is not an offset of this source"),
        ({"version": "1"}, "which is not an offset of this source"),
    ],
)
def test_an_offset_of_another_source(log: GrowingLog, offset: Any, why: str) -> None:
    append(log, 1)
    with pytest.raises(ValueError, match="rocketmq: the checkpoint holds .*" + why):
        reader(log.folder).latestOffset(offset, ReadAllAvailable())
    with pytest.raises(ValueError, match=why):
        reader(log.folder).partitions(offset, offset)


def test_options_of_a_stream_and_of_a_batch(log: GrowingLog) -> None:
    append(log, 1)
    for name, value in (
        ("startingOffsets", "latest"),
        ("maxBytesPerTrigger", "1g"),
        ("maxOffsetsPerTrigger", "7"),
        ("maxFilesPerTrigger", "7"),
        ("failOnDataLoss", "false"),
    ):
        source = RocketmqSource({"path": str(log.folder), name: value})
        source.streamReader(source.schema())
        with pytest.raises(ValueError, match=rf"^rocketmq: option {name}: only for streams.*; a read takes "):
            source.reader(source.schema())
    source = RocketmqSource({"path": str(log.folder), "filterPushdown": "true"})
    with pytest.raises(ValueError, match=r"^rocketmq: option filterPushdown: not for streams"):
        source.streamReader(source.schema())
