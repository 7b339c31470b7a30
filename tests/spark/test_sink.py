"""df.write.format("rocketmq"): rows are appended to a store, all or none."""

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql import functions as f
from pyspark.sql.types import StructType
from support import stores
from support.put_checks import bodies
from support.spark_frames import ddl, needs_sources

import rocketc
from rocketc.spark import schema, sink
from rocketc.spark.sink import FOLDER, RocketmqStreamWriter, RocketmqWriter, Staged, end_killed
from rocketc.spark.source import RocketmqSource

pytestmark = pytest.mark.spark
Golden = Callable[[str], stores.GoldenStore]

SMALL = {"mappedFileSizeCommitLog": "1m"}
SETTINGS = {"mapped_file_size_commit_log": 1 << 20}
FIELDS = ("topic", "queue_id", "body", "tags", "keys", "flag", "born_timestamp", "born_host", "reconsume_times")


def write(frame: Any, path: Path, mode: str = "append", **options: str) -> None:
    frame.write.format("rocketmq").mode(mode).options(**{**SMALL, **options}).save(str(path))


def by_queue(path: Path) -> dict[tuple[str, int], list[tuple[Any, ...]]]:
    out: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
    for m in rocketc.scan(path):
        values = (*(getattr(m, name) for name in FIELDS), {**m.properties, "__CRC32#": None}, m.sys_flag & ~0x7F1)
        out.setdefault((m.topic, m.queue_id), []).append(values)
    return out


def staged(path: Path, rows: list[Any], columns: str | None = None) -> tuple[RocketmqWriter, Staged]:
    """Stage rows as Spark does on its driver and in one task."""
    made = ddl(columns) if columns else schema(["topic", "body"])
    writer = RocketmqWriter([str(path)], SETTINGS, made, False)
    return writer, writer.write(iter(rows))


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with rocketc.open(path, **SETTINGS) as store:
        for i in range(20):
            store.put("t", b"old %d" % i, queue_id=i % 3, keys=f"k{i}")
    return path


def is_sound(path: Path, count: int) -> bool:
    """Check that queues and index agree with the log after reopening, and that it has `count` messages."""
    with rocketc.open(path) as store:
        store.wait_dispatched()
    report = rocketc.verify(path)
    assert not report.derived.findings and not any(file.damage for file in report.files)
    return sum(file.messages for file in report.files) == count and not (path / FOLDER).exists()


@needs_sources
@pytest.mark.parametrize("name", ["v533-broker", pytest.param("v533-store-crc", marks=pytest.mark.long)])
def test_a_store_is_replayed_into_another(golden: Golden, spark: Any, tmp_path: Path, name: str) -> None:
    source, target = golden(name).path, tmp_path / "copy"
    frame = spark.read.format("rocketmq").load(str(source)).where("length(topic) < 128")  # topics a store accepts
    write(frame, target)
    whole = {key: rows for key, rows in by_queue(source).items() if len(key[0]) < 128}
    assert by_queue(target) == whole
    assert is_sound(target, sum(map(len, whole.values())))


@needs_sources
def test_rows_of_a_query(spark: Any, filled: Path) -> None:
    rows = spark.range(0, 100, 1, 4).select(
        f.lit("made").alias("topic"),
        f.col("id").cast("string").cast("binary").alias("body"),
        (f.col("id") % 2).cast("int").alias("queueId"),
        f.when(f.col("id") > 50, f.lit("late")).alias("tags"),
    )
    write(rows, filled)
    new = list(rocketc.scan(filled, topics="made"))
    assert [m.body for m in new] == [b"%d" % i for i in range(100)]  # in the order of the partitions
    assert [(m.queue_id, m.queue_offset, m.tags) for m in new[50:53]] == [
        (0, 25, None),
        (1, 25, "late"),
        (0, 26, "late"),
    ]
    write(rows.limit(0), filled)
    assert is_sound(filled, 120)
    write(rows.limit(0), filled.parent / "nothing")
    assert not (filled.parent / "nothing").exists()


@needs_sources
def test_a_task_that_fails_leaves_the_store_as_it_was(spark: Any, filled: Path) -> None:
    before = bodies(filled)
    rows = spark.range(0, 1000, 1, 4).selectExpr("'t' topic", "if(id = 900, null, binary(string(id))) body")
    with pytest.raises(Exception, match=r"body is null in row 150 of a partition"):
        write(rows, filled)
    shutil.rmtree(
        filled / FOLDER, ignore_errors=True
    )  # a task that still ran may leave rows; the next write deletes them
    assert bodies(filled) == before and is_sound(filled, 20)


@needs_sources
def test_wrong_columns_and_options_fail_before_a_task_runs(spark: Any, filled: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes").write_text("mine")
    one = "topic string, body binary"
    for columns, path, options, overwrite, text in (
        ("topic string", filled, {}, False, "column body is missing; a message needs topic and body"),
        ("topic string, body string", filled, {}, False, "column body must be binary, not string"),
        (f"{one}, queueId long", filled, {}, False, "column queueId must be int, not bigint"),
        (f"{one}, topic string", filled, {}, False, "column topic exists twice"),
        (f"{one}, tag string", filled, {}, False, r"unknown column 'tag' \(did you mean tags\?\): drop it"),
        (one, filled, {"subscribe": "t"}, False, "option subscribe is for reading"),
        (one, filled, {"mappedFileSizeCommitLog": "x"}, False, "it must be a number of bytes, 1 or more"),
        (one, filled, {}, True, "can't be replaced"),
        (one, tmp_path / "taken", {}, False, "not a store, and not empty"),
        (one, filled / "lock", {}, False, "Not a directory"),
    ):
        with pytest.raises((ValueError, rocketc.StoreIOError), match=text):
            RocketmqSource({"path": str(path), **options}).writer(ddl(columns), overwrite)
    with pytest.raises(ValueError, match="2 paths; a write needs exactly one store"):
        RocketmqSource({"paths": '["a", "b"]'}).writer(schema(["topic", "body"]), False)
    with pytest.raises(ValueError, match="option mappedFileSizeCommitLog is for writing"):
        RocketmqSource({"path": str(filled), **SMALL}).reader(schema(["topic"]))
    rows = spark.sql("select 't' topic, binary('x') body")
    with rocketc.open(filled, **SETTINGS), pytest.raises(Exception, match="is open for writing already"):
        write(rows, filled)
    for mode in ("errorifexists", "ignore"):  # Spark itself reports these
        with pytest.raises(Exception, match='use either the "Append" or "Overwrite" mode'):
            write(rows, filled, mode)
    with pytest.raises(Exception, match=r"unknown option subscibe; a write takes path, mappedFileSize.*, idColumn\n"):
        write(rows, filled, subscibe="t")
    assert is_sound(filled, 20)


def test_rows_as_spark_4_0_gives_them(filled: Path) -> None:
    rows = [Row(topic="r", body=b"%d" % i, properties={"a": "b"}) for i in range(3)]
    writer, done = staged(filled, rows, "topic string, body binary, properties map<string,string>")
    assert done.rows == 3
    writer.commit([None, done])
    assert [(m.body, m.properties) for m in rocketc.scan(filled, topics="r")] == [
        (b"%d" % i, {"a": "b"}) for i in range(3)
    ]


def test_the_id_of_a_row_is_its_unique_id(filled: Path) -> None:
    names = StructType().add("order", "long").add("topic", "string").add("body", "binary")
    writer = RocketmqWriter([str(filled)], SETTINGS, names, False, id_column="order")
    done = writer.write(iter([Row(order=i, topic="r", body=b"x") for i in range(2)]))
    with pytest.raises(rocketc.IllegalMessageError, match="order is null in row 1 of a partition"):
        writer.write(iter([Row(order=1, topic="r", body=b"x"), Row(order=None, topic="r", body=b"x")]))
    writer.commit([done])
    assert [m.properties for m in rocketc.scan(filled, topics="r")] == [{"UNIQ_KEY": "0"}, {"UNIQ_KEY": "1"}]
    assert is_sound(filled, 22)
    for column, text in (("ordr", r"the rows do not have this column \(did you mean order"), ("body", "not binary")):
        with pytest.raises(ValueError, match=text):
            RocketmqSource({"path": str(filled), "idColumn": column}).writer(names, False)


def test_times_of_spark_4_0_are_local(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as there:
        there.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        rows = [Row(topic="r", body=b"x", bornTimestamp=datetime.fromtimestamp(1_700_000_000))]
        writer = RocketmqWriter([str(filled)], SETTINGS, schema(["topic", "body", "bornTimestamp"]), False)
        done = writer.write(iter(rows))
    time.tzset()
    writer.commit([done])
    assert [m.born_timestamp for m in rocketc.scan(filled, topics="r")] == [1_700_000_000_000]


def test_a_commit_that_fails_is_undone(filled: Path) -> None:
    before = bodies(filled)
    good = [Row(topic="t", body=b"x" * 100_000)] * 40  # four log files
    for bad, text in (
        (Row(topic="t", body=b"x" * (5 << 20)), "(?i)too long|body|size"),
        (Row(topic="t" * 300, body=b"x"), "message 40 of the write: topic"),
        (Row(topic="", body=b"x"), "topic"),
    ):
        writer, done = staged(filled, [*good, bad])
        with pytest.raises(rocketc.IllegalMessageError, match=text):
            writer.commit([done])
        writer.abort([done])
        assert bodies(filled) == before
    assert is_sound(filled, 20)
    writer, done = staged(filled, good[:1])
    writer.commit([done])
    assert len(bodies(filled)) == 21 and is_sound(filled, 21)


def test_retried_tasks_count_once(filled: Path) -> None:
    writer = RocketmqWriter([str(filled)], SETTINGS, schema(["topic", "body"]), False)
    rows = [Row(topic="t", body=b"new")]
    attempts = [writer.write(iter(rows)) for _ in range(3)]
    with pytest.raises(ZeroDivisionError):
        writer.write(failing(rows))
    writer.commit([attempts[1]])
    assert len(bodies(filled)) == 21 and is_sound(filled, 21)


def failing(rows: list[Any]) -> Iterator[Any]:
    yield from rows
    raise ZeroDivisionError


@pytest.mark.parametrize("step", ["first", "middle", "flushed"])
def test_a_commit_that_is_killed_is_undone_by_the_next(filled: Path, step: str) -> None:
    pid = os.fork()
    if not pid:
        with contextlib.suppress(BaseException):
            writer, done = staged(filled, [Row(topic="t", body=b"%d" % i * 1000) for i in range(3000)])
            killed_at(step)
            writer.commit([done])
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert (filled / FOLDER / "journal.json").exists()
    assert (len(bodies(filled)) > 20) == (step != "first")
    writer, done = staged(filled, [Row(topic="t", body=b"again")])
    writer.commit([done])
    assert bodies(filled) == [b"old %d" % i for i in range(20)] + [b"again"] and is_sound(filled, 21)


@needs_sources
def test_a_streaming_query(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    path = tmp_path / "store"
    stream = spark.readStream.schema("id string, body string").json(str(tmp_path / "in"))
    rows = stream.selectExpr("'orders' topic", "id", "binary(body) body")
    for i in range(2):
        (tmp_path / "in" / f"{i}.json").write_text("".join(f'{{"id": "{i}-{n}", "body": "{n}"}}\n' for n in range(50)))
        write = rows.writeStream.format("rocketmq").options(idColumn="id", **SMALL)
        write = write.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        query = write.start(str(path))
        query.awaitTermination()
    found = [m.properties["UNIQ_KEY"] for m in rocketc.scan(path)]
    assert sorted(found) == sorted(f"{i}-{n}" for i in range(2) for n in range(50))
    assert not (path / FOLDER).exists() and is_sound(path, 100)


def stream_writer(path: Path) -> RocketmqStreamWriter:
    return RocketmqStreamWriter([str(path)], SETTINGS, schema(["topic", "body"]), False)


def test_batches_of_a_stream_are_committed_by_other_writers(filled: Path) -> None:
    tasks = stream_writer(filled)
    for batch in range(3):
        parts = [tasks.write(iter([Row(topic="t", body=b"%d-%d" % (batch, i))])) for i in range(2)]
        empty = tasks.write(iter([]))
        stream_writer(filled).commit([parts[0], empty, None, parts[1]], batch)
        assert not (filled / FOLDER).exists()
    assert bodies(filled)[20:] == [b"%d-%d" % (batch, i) for batch in range(3) for i in range(2)]
    assert is_sound(filled, 26)


def test_a_batch_of_a_stream_that_fails_leaves_nothing(filled: Path) -> None:
    tasks = stream_writer(filled)
    parts = [tasks.write(iter([Row(topic=topic, body=b"new")])) for topic in ("t", "x" * 200)]
    driver = stream_writer(filled)
    with pytest.raises(rocketc.IllegalMessageError, match="message 1 of the write"):
        driver.commit(parts, 0)
    driver.abort(parts, 0)
    assert len(bodies(filled)) == 20 and not (filled / FOLDER).exists() and is_sound(filled, 20)


def killed_at(step: str) -> None:
    rows = sink._rows

    def some(paths: list[str], id_column: str | None) -> Iterator[dict[str, Any]]:
        for i, row in enumerate(rows(paths, id_column)):
            if i == {"first": 0, "middle": 1500}.get(step):
                os.kill(os.getpid(), signal.SIGKILL)
            yield row

    sink._rows = some  # type: ignore[assignment]
    sink._Journal.remove = staticmethod(lambda root: os.kill(os.getpid(), signal.SIGKILL))  # type: ignore[assignment]


def test_no_other_job_undoes_a_finished_commit(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remove = sink._Journal.remove

    def between(root: str) -> None:
        monkeypatch.setattr(sink._Journal, "remove", staticmethod(remove))
        with contextlib.suppress(rocketc.StoreLockedError):
            RocketmqWriter([root], SETTINGS, schema(["topic", "body"]), False)
        remove(root)

    writer, done = staged(filled, [Row(topic="t", body=b"new")])
    monkeypatch.setattr(sink._Journal, "remove", staticmethod(between))
    writer.commit([done])
    assert bodies(filled)[-1] == b"new" and is_sound(filled, 21)


def test_a_failed_commit_does_not_cut_the_job_that_undid_it(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    undo = sink._Journal.undo

    def later(journal: Any, root: str) -> None:
        monkeypatch.setattr(sink._Journal, "undo", undo)
        other, its = staged(filled, [Row(topic="t", body=b"other")])
        other.commit([its])
        undo(journal, root)

    writer, done = staged(filled, [Row(topic="t", body=b"x"), Row(topic="", body=b"bad")])
    monkeypatch.setattr(sink._Journal, "undo", later)
    with pytest.raises(rocketc.IllegalMessageError, match="message 1 of the write"):
        writer.commit([done])
    writer.abort([done])
    assert bodies(filled) == [b"old %d" % i for i in range(20)] + [b"other"]


def test_messages_appended_by_others_are_not_cut(filled: Path) -> None:
    (filled / FOLDER).mkdir()
    journal = filled / FOLDER / "journal.json"
    start = list(rocketc.scan(filled))[-1].phy_offset
    journal.write_text('{"version": 1, "start": %d, "staged": ["%s"]}' % (start, filled / FOLDER / "x" / "gone.arrow"))
    told = rf"killed at physical offset {start}, .* then delete .*journal.json"
    with pytest.raises(rocketc.RocketcError, match=told):
        staged(filled, [])
    journal.write_text('{"version": 7}')
    with pytest.raises(ValueError, match=r"journal.json: version 7; this rocketc reads version 1"):
        staged(filled, [])
    journal.write_text("[")
    with pytest.raises(ValueError, match=r"journal.json: not a journal of a write"):
        staged(filled, [])
    journal.unlink()
    end_killed(str(filled), SETTINGS)
    assert len(bodies(filled)) == 20
