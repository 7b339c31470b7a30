"""rocketc.spark.archive of topics of a cluster: each message once, together with rocketc export --append."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from support.command import rocketc as command

import rocketc
from rocketc.cli.main import cli
from rocketc.client import Producer
from rocketc.client.queue_spans import Span
from rocketc.client.routes import MessageQueue
from rocketc.errors import NotSentError, TopicNotFoundError
from rocketc.exports.archive_queues import QueueDamage
from rocketc.exports.archive_target import Target
from rocketc.spark import archive_cluster
from rocketc.spark.archive import archive, read_archive

pytestmark = pytest.mark.spark


@pytest.fixture
def broker() -> Iterator[rocketc.Broker]:
    with rocketc.Broker(mapped_file_size_commit_log=64 << 10) as one:
        one.topics.create("orders", 3)
        yield one


@pytest.fixture
def url(broker: rocketc.Broker) -> str:
    send(broker, range(60))
    return f"rocketmq://{broker.name_server}/orders"


def send(broker: rocketc.Broker, numbers: range, topic: str = "orders", body: bytes = b"x") -> None:
    with Producer("shop", broker.name_server) as producer:
        for number in numbers:
            producer.send(topic, body, keys=f"{topic}-{number}")


def visible(target: Path) -> list[str]:
    files = [str(path) for path in target.glob("data/topic=*/*/*.parquet")]
    return sorted(ds.dataset(files).to_table(["keys"]).column("keys").to_pylist()) if files else []


def keys(numbers: range, topic: str = "orders") -> list[str]:
    return sorted(f"{topic}-{number}" for number in numbers)


def test_spark_and_the_command_continue_each_other(
    spark: Any, broker: rocketc.Broker, url: str, tmp_path: Path
) -> None:
    target, done = tmp_path / "lake", []
    report = archive(spark, url, target, max_bytes=4000, commit_bytes=8000, progress=done.append)
    assert (report.messages, report.damage, report.torn) == (60, [], None) and report.commits > 1
    assert visible(target) == keys(range(60)) and len(done) == report.commits and done == sorted(done)
    assert len({path.name for path in target.glob("data/topic=*/*/*")}) > report.commits  # several tasks
    assert archive(spark, url, target).commits == 0
    send(broker, range(60, 80))
    assert command("export", url, "-o", target, "--append").returncode == 0
    send(broker, range(80, 90))
    assert archive(spark, url, target).messages == 10
    assert visible(target) == keys(range(90))
    frame = read_archive(spark, target)
    assert frame.columns == [*rocketc.COLUMN_NAMES, "date"] and frame.count() == 90
    assert spark.read.parquet(str(target / "_rocketc/statistics")).groupBy().sum("messages").first()[0] == 90


def test_patterns_and_lost_messages(spark: Any, broker: rocketc.Broker, url: str, tmp_path: Path) -> None:
    target, bare = tmp_path / "lake", url.rpartition("/")[0]
    send(broker, range(5), "ordinary")
    topics = [re.compile("ord.*")]
    assert archive(spark, bare, target, topics=topics).messages == 65
    send(broker, range(60, 300), body=b"x" * 1000)
    assert broker.store.clean(expired_ms=0, now=int(time.time() * 1000) + 60_000).deleted
    report = archive(spark, bare, target, topics=topics)
    lost = sum(one.stop - one.start for one in report.damage)
    assert lost == 240 - report.messages > 0 and all(isinstance(one, QueueDamage) for one in report.damage)
    rows = spark.read.parquet(str(target / "_rocketc/damage")).collect()
    assert [tuple(row) for row in rows] == report.damage
    left = [message.keys for message in rocketc.scan(broker.path, topics="orders")]
    assert visible(target) == sorted({*keys(range(60)), *left, *keys(range(5), "ordinary")})


def test_a_failed_task_leaves_nothing(spark: Any, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "lake"

    def fail(*args: Any) -> Any:
        raise RuntimeError("a task failed")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(archive_cluster, "_run", fail)
        archive(spark, url, target)
    assert visible(target) == [] and not (target / "_rocketc" / "staging").exists()
    with monkeypatch.context() as patch, pytest.raises(ValueError, match="while it was read: run again"):
        patch.setattr(archive_cluster, "write_task", short)
        patch.setattr(archive_cluster, "_run", here)
        archive(spark, url, target, max_bytes=1000)
    assert visible(target) == []
    assert archive(spark, url, target).messages == 60 and visible(target) == keys(range(60))


def here(spark: Any, tasks: Any, job: Any) -> Any:
    """Run the tasks in this process."""
    return [archive_cluster.write_task(number, task, job) for number, task in enumerate(tasks)]


def short(number: int, spans: Any, job: Any) -> Any:
    """A queue ends earlier than when the driver asked for it."""
    thread, reader = archive_cluster.reader_of(job.cluster)
    spans = [span if number else span._replace(end=span.begin + 1) for span in spans]
    found = archive_cluster.write_spans(thread, reader, spans, job.job)
    found.reached = [(span._replace(end=span.end + (not number)), *more) for span, *more in found.reached]
    return found


def test_tasks_have_about_max_bytes() -> None:
    spans = [Span(MessageQueue("orders", "broker-a", queue), 0, 60_000) for queue in range(4)]
    tasks = archive_cluster._tasks(archive_cluster.Round(spans), 1000.0, 10_000_000)
    assert {sum(span.end - span.begin for span in task) for task in tasks} == {10_000}
    assert len(archive_cluster._tasks(archive_cluster.Round(spans[:1]), 10.0, 1 << 30)) <= 3


def test_wrong_use(spark: Any, broker: rocketc.Broker, url: str, tmp_path: Path) -> None:
    target = tmp_path / "lake"
    bare = url.rpartition("/")[0]
    archive(spark, url, target)
    log, store = tmp_path / "log", broker.path
    archive(spark, store, log)
    closed = "rocketmq://127.0.0.1:1/orders"
    for error, text, call in (
        (ValueError, "name the topic, as in", lambda: archive(spark, bare, tmp_path / "new")),
        (ValueError, "names the topic already", lambda: archive(spark, url, tmp_path / "new", topics="orders")),
        (ValueError, "give the address of a name server", lambda: archive(spark, "rocketmq://x/y", tmp_path / "new")),
        (TopicNotFoundError, "no topic nope", lambda: archive(spark, f"{bare}/nope", tmp_path / "new")),
        (NotSentError, "127.0.0.1:1", lambda: archive(spark, closed, tmp_path / "new")),
        (ValueError, "an archive of a log; archive topics", lambda: archive(spark, url, log)),
        (ValueError, "an archive of a cluster; archive a log", lambda: archive(spark, store, target)),
        (ValueError, "are for a cluster", lambda: archive(spark, store, tmp_path / "new", group="a")),
        (ValueError, "names, not patterns", lambda: archive(spark, store, tmp_path / "new", topics=re.compile("a"))),
        (ValueError, "columns=.*it was made with", lambda: archive(spark, url, target, columns=["body"])),
        (ValueError, "max_bytes=0", lambda: archive(spark, url, target, max_bytes=0)),
    ):
        with pytest.raises(error, match=text):
            call()
        assert not (tmp_path / "new").exists()
    held = Target(str(target))
    with pytest.raises(rocketc.StoreLockedError, match="another process is writing to this archive"):
        archive(spark, url, target)
    held.close()


def test_as_a_command(spark: Any, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setattr(type(spark), "stop", lambda self: None)  # the command stops its session, which the tests share
    bare = url.rpartition("/")[0]
    for source in ([url], [bare, "-t", "/ord.*/"]):
        target = tmp_path / f"lake{len(source)}"
        words = ["export", *source, "-o", str(target), "--engine", "spark"]
        assert cli.main(words, standalone_mode=False) == 0
        assert "60 messages added" in capfd.readouterr().err
        assert cli.main(words, standalone_mode=False) == 0
        assert "nothing new" in capfd.readouterr().err
        assert visible(target) == keys(range(60))
    with pytest.raises(Exception, match="whole topics and can't be used with tags"):
        cli.main([*words, "--tag", "a"], standalone_mode=False)


@pytest.mark.long
@pytest.mark.parametrize("step", ["staging", "commits/00000001.*", "commits/00000002.json", "commits/00000004.*"])
def test_kill_9(spark: Any, broker: rocketc.Broker, url: str, tmp_path: Path, step: str) -> None:
    """step  the driver and its workers are killed soon after this file appears"""
    target = tmp_path / "lake"
    send(broker, range(60, 800))
    code = (
        "from pyspark.sql import SparkSession; from rocketc.spark.archive import archive\n"
        "spark = SparkSession.builder.master('local[2]').getOrCreate(); print('ready', flush=True)\n"
        f"archive(spark, {url!r}, {str(target)!r}, max_bytes=15_000, commit_bytes=30_000)\n"
    )
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env, start_new_session=True
    )
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    until = time.monotonic() + 120
    while not list((target / "_rocketc").glob(step)):
        assert time.monotonic() < until
        time.sleep(0.001)
    time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    seen = visible(target)
    assert len(set(seen)) == len(seen) < 800
    archive(spark, url, target)
    assert visible(target) == keys(range(800))
