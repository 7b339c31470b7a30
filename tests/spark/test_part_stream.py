"""PartStream: every message once but for the batch in which a run ended, which comes again with the same rows."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from support.command import GrowingLog
from support.spark_frames import needs_sources

import rocketc
from rocketc.client import Producer
from rocketc.errors import StoreLockedError
from rocketc.spark import Parts, PartStream, schema
from rocketc.spark import checkpoint as checkpoint_module
from rocketc.spark.checkpoint import Checkpoint
from rocketc.spark.growing_log import DataLossError

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]
EARLIEST = {"startingOffsets": "earliest"}


@pytest.fixture
def log(tmp_path: Path) -> GrowingLog:
    return GrowingLog(tmp_path / "store" / "commitlog")


@pytest.fixture(scope="module")
def broker() -> Iterator[rocketc.Broker]:
    with rocketc.Broker() as one:
        yield one


@pytest.fixture
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The frame of a batch is a list of its rows."""
    monkeypatch.setattr(Parts, "frame", lambda parts, spark: list(parts.read_rows(range(len(parts)))))


def append(log: GrowingLog, count: int) -> list[int]:
    return [log.append("t", b"x" * 100) for _ in range(count)]


class Batches:
    """The batches that a stream gave: number -> rows. A batch that comes again must be the same."""

    def __init__(self, folder: Path, path: Path | None = None, **options: Any) -> None:
        self.found: dict[int, list[Any]] = {}
        self.calls: list[int] = []
        self._given = folder / "checkpoint", path
        self._options = {"columns": "physicalOffset", **EARLIEST, **options}
        self.before: Callable[[int], Any] = lambda number: None

    def stream(self, **options: Any) -> PartStream:
        return PartStream(None, *self._given, **{**self._options, **options})  # type: ignore[arg-type]

    def run(self, **options: Any) -> int:
        return self.stream(**options).run(self.take, available_now=True)

    def take(self, frame: Any, number: int) -> None:
        rows = [row[0] for row in frame]
        assert self.found.setdefault(number, rows) == rows
        self.calls.append(number)
        self.before(number)

    def rows(self) -> list[Any]:
        assert sorted(self.found) == list(range(len(self.found)))
        return [row for number in sorted(self.found) for row in self.found[number]]


def raiser(error: BaseException) -> Any:
    def raises(*args: Any) -> None:
        raise error

    return raises


# files, without the JVM


def test_growth_limits_and_restart(no_jvm: None, log: GrowingLog, tmp_path: Path) -> None:
    wanted = append(log, 50)
    batches = Batches(tmp_path, log.folder.parent, maxOffsetsPerTrigger=20)
    assert batches.run() == 3 and [len(rows) for rows in batches.found.values()] == [20, 20, 10]
    assert batches.run() == 0
    wanted += append(log, 30)
    log.file_at(0).unlink()  # it was read
    assert batches.run(maxOffsetsPerTrigger=None) == 1
    assert batches.rows() == wanted and batches.calls == [0, 1, 2, 3]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_batch_that_failed_is_repeated(no_jvm: None, log: GrowingLog, tmp_path: Path, number: int) -> None:
    wanted = append(log, 50)
    batches = Batches(tmp_path, log.folder.parent, maxOffsetsPerTrigger=20)
    batches.before = lambda one: 1 // (one - number)
    with pytest.raises(ZeroDivisionError):
        batches.run()
    batches.before = lambda one: None
    wanted += append(log, 5)
    batches.run(maxOffsetsPerTrigger=7)  # the repeated batch is the same with other limits
    assert (
        batches.rows() == wanted
        and batches.calls.count(number) == 2
        and len(set(batches.calls)) + 1 == len(batches.calls)
    )


@pytest.mark.parametrize("kills", range(1, 9))
def test_a_run_that_is_killed_at_each_write(no_jvm: None, log: GrowingLog, tmp_path: Path, kills: int) -> None:
    """metadata, begin, then offsets and commits of three batches."""
    wanted = append(log, 50)
    seen = tmp_path / "seen"
    batches = Batches(tmp_path, log.folder.parent, maxOffsetsPerTrigger=20)

    def note(frame: Any, number: int) -> None:
        with seen.open("a") as file:
            file.write(json.dumps([number, [row[0] for row in frame]]) + "\n")

    pid = os.fork()
    if not pid:
        left = [kills]
        rename = os.rename

        def renamed(old: str, new: str) -> None:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            rename(old, new)

        checkpoint_module.os.rename = renamed  # type: ignore[attr-defined]
        batches.stream().run(note, available_now=True)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    wanted += append(log, 5)
    batches.stream().run(note, available_now=True)
    found: dict[int, list[int]] = {}
    lines = [json.loads(line) for line in seen.read_text().splitlines()] if seen.exists() else []
    for number, rows in lines:
        assert found.setdefault(number, rows) == rows
    assert [row for number in sorted(found) for row in found[number]] == wanted
    assert len(lines) - len(found) == (kills in (4, 6, 8))  # processed, and not committed


def test_latest_begins_where_the_first_run_began(no_jvm: None, log: GrowingLog, tmp_path: Path) -> None:
    append(log, 5)
    batches = Batches(tmp_path, log.folder.parent, startingOffsets=None)
    assert batches.run() == 0
    wanted = append(log, 3)
    assert batches.run() == 1 and batches.rows() == wanted


def test_a_run_waits_until_it_is_stopped(no_jvm: None, log: GrowingLog, tmp_path: Path) -> None:
    wanted = append(log, 5)
    batches = Batches(tmp_path, log.folder.parent)
    stream = batches.stream()

    def before(number: int) -> None:
        if number == 2:
            stream.stop()
        wanted.extend(append(log, 2))

    batches.before = before
    assert stream.run(batches.take, interval=0.001) == 3
    assert batches.rows() == wanted[:9] and len(wanted) == 11
    assert stream.run(batches.take, available_now=True) == 1  # it can run again
    assert batches.rows() == wanted[:11]


def test_a_store_that_appears_later(no_jvm: None, log: GrowingLog, tmp_path: Path) -> None:
    batches = Batches(tmp_path, log.folder.parent)
    assert batches.run() == 0
    wanted = append(log, 5)
    assert batches.run() == 1 and batches.rows() == wanted


def test_data_that_is_lost(no_jvm: None, log: GrowingLog, tmp_path: Path) -> None:
    append(log, 30)
    batches = Batches(tmp_path, log.folder.parent)
    batches.run()
    [lost, *more] = append(log, 60)
    log.file_at(lost).unlink()
    with pytest.raises(DataLossError, match=rf"offsets {lost} to \d+ are lost: .*failOnDataLoss=false"):
        batches.run()
    batches.run(failOnDataLoss=False)
    assert batches.rows()[30:] == [offset for offset in more if log.file_at(offset).exists()] != more


# checkpoints


def test_a_checkpoint_has_one_stream(no_jvm: None, log: GrowingLog, tmp_path: Path) -> None:
    append(log, 5)
    held = Checkpoint(tmp_path / "checkpoint")
    batches = Batches(tmp_path, log.folder.parent)
    with pytest.raises(StoreLockedError, match=r"checkpoint: another stream is using this checkpoint$"):
        batches.run()
    held.close()
    assert batches.run() == 1


@pytest.mark.parametrize(
    "text", ["", "v2\n{}\n{}", "v1\n{}", "v1\n{}\n-", "v1\n{}\n[1]", "v1\n{}\n{}\n{}", '{"version": 1}', "v1\n{}\n{"]
)
def test_checkpoints_of_others(no_jvm: None, log: GrowingLog, tmp_path: Path, text: str) -> None:
    append(log, 5)
    batches = Batches(tmp_path, log.folder.parent)
    batches.run()
    (tmp_path / "checkpoint" / "offsets" / "0").write_text(text)
    with pytest.raises(ValueError, match=r"offsets/0: not the offset of a stream of this source; use another check"):
        batches.run()


def test_the_checkpoint_of_another_source(
    no_jvm: None, log: GrowingLog, broker: rocketc.Broker, tmp_path: Path
) -> None:
    append(log, 5)
    Batches(tmp_path, log.folder.parent).run()
    with Producer("shop", broker.name_server) as producer:
        producer.send("other", b"one")
    with pytest.raises(ValueError, match="the checkpoint is not one of a stream from a cluster"):
        Batches(tmp_path, nameServer=broker.name_server, subscribe="other").run()


def test_old_batches_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_module, "KEPT", 3)
    kept = Checkpoint(tmp_path)
    for number in range(6):
        kept.plan(number, {"version": 1, "physicalOffset": number})
        (tmp_path / "offsets" / f".{number}.crc").touch()  # of Spark
        kept.commit(number)
    kept.close()
    assert sorted(path.name for path in (tmp_path / "offsets").iterdir()) == [
        ".3.crc",
        ".4.crc",
        ".5.crc",
        "3",
        "4",
        "5",
    ]
    assert sorted(path.name for path in (tmp_path / "commits").iterdir()) == ["3", "4", "5"]
    assert Checkpoint(tmp_path).last() == (5, {"version": 1, "physicalOffset": 5}, True)


def test_errors_of_options(log: GrowingLog, tmp_path: Path) -> None:
    append(log, 1)
    for options, text in (
        ({"endingOffsets": "latest"}, "not for streams"),
        ({"startingOffset": "latest"}, "did you mean startingOffsets"),
        ({"columns": "topic", "schema": schema(["body"])}, "give one of them"),
        ({"nameServer": "127.0.0.1:1"}, "nameServer and path: give one of them"),
    ):
        with pytest.raises(ValueError, match=text):
            PartStream(None, tmp_path / "checkpoint", log.folder.parent, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^rocketmq: checkpoint 's3://bucket/here': it must be a local folder$"):
        PartStream(None, "s3://bucket/here", log.folder.parent)  # type: ignore[arg-type]
    with pytest.raises(rocketc.StoreIOError, match=r"File exists|Not a directory"):
        (tmp_path / "file").touch()
        PartStream(None, tmp_path / "file", log.folder.parent).run(print)  # type: ignore[arg-type]


# a cluster, without the JVM


def send(broker: rocketc.Broker, topic: str, count: int, first: int = 0) -> list[str]:
    with Producer("shop", broker.name_server) as producer:
        for number in range(first, first + count):
            producer.send(topic, b"x", keys=f"{topic}-{number}")
    return [f"{topic}-{number}" for number in range(first, first + count)]


def test_a_cluster_is_followed(no_jvm: None, broker: rocketc.Broker, tmp_path: Path) -> None:
    wanted = send(broker, "followed-a", 50)
    batches = Batches(
        tmp_path, nameServer=broker.name_server, subscribePattern="followed-.*", columns="keys", maxOffsetsPerTrigger=20
    )
    assert batches.run() == 3 and [len(rows) for rows in batches.found.values()] == [20, 20, 10]
    wanted += send(broker, "followed-b", 10) + send(broker, "followed-a", 10, 50)
    batches.before = raiser(KeyError())
    with pytest.raises(KeyError):
        batches.run()
    batches.before = lambda number: None
    assert batches.run() == 1 and batches.calls == [0, 1, 2, 3, 3]
    assert sorted(batches.rows()) == sorted(wanted)


def test_latest_of_a_cluster(no_jvm: None, broker: rocketc.Broker, tmp_path: Path) -> None:
    send(broker, "late", 9)
    batches = Batches(tmp_path, nameServer=broker.name_server, subscribe="late", columns="keys", startingOffsets=None)
    assert batches.run() == 0
    wanted = send(broker, "late", 9, 9)
    assert batches.run() == 1 and sorted(batches.rows()) == sorted(wanted)


# with Spark


def test_batches_are_frames(spark: SparkSession, log: GrowingLog, tmp_path: Path) -> None:
    wanted = append(log, 40)
    numbers = []

    def write(frame: DataFrame, number: int) -> None:
        numbers.append(number)
        frame.write.mode("overwrite").parquet(str(tmp_path / "sink" / f"batch={number}"))

    given = {**EARLIEST, "schema": "physicalOffset long, topic string", "maxOffsetsPerTrigger": 30}
    assert PartStream(spark, tmp_path / "checkpoint", log.folder.parent, **given).run(write, available_now=True) == 2
    rows = spark.read.parquet(str(tmp_path / "sink")).select("physicalOffset").collect()
    assert numbers == [0, 1] and sorted(row[0] for row in rows) == wanted


@needs_sources
@pytest.mark.long
def test_spark_4_continues_with_the_checkpoint_and_returns_it(
    spark: SparkSession, log: GrowingLog, broker: rocketc.Broker, tmp_path: Path
) -> None:
    live = {"nameServer": broker.name_server, "subscribe": "both"}
    for path, options, column, add in (
        (str(log.folder.parent), {}, "physicalOffset", lambda first: append(log, 10)),
        (None, live, "keys", lambda first: send(broker, "both", 10, first)),
    ):
        folder = tmp_path / column
        taken: list[Any] = []
        given = {**EARLIEST, "columns": column, **options}

        def take(frame: DataFrame, number: int, taken: list[Any] = taken) -> None:
            taken.extend(row[0] for row in frame.collect())

        stream = PartStream(spark, folder / "checkpoint", path, **given)
        wanted = add(0)
        assert stream.run(take, available_now=True) == 1
        wanted += add(10)
        frame = spark.readStream.format("rocketmq").options(**given).load(path)
        query = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(folder / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()
        assert sorted(taken) == sorted(wanted)
        wanted += add(20)
        assert stream.run(take, available_now=True) == 1
        assert sorted(taken) == sorted(wanted)
