"""An archive of topics of a running broker has each message once, also after kills, and after topics are deleted."""

import asyncio
import contextlib
import json
import os
import shutil
import time
from pathlib import Path

import duckdb
import pandas
import polars
import pyarrow.dataset as ds
import pytest

import rocketc
from rocketc.client import Admin, Producer, TransactionProducer
from rocketc.client.access import access_to
from rocketc.client.cluster_url import topic_url
from rocketc.client.routes import MessageQueue
from rocketc.errors import StoreIOError, StoreLockedError, TopicNotFoundError
from rocketc.exports import archive_target
from rocketc.exports.archive_queues import QueueDamage, Reached, Round
from rocketc.exports.archive_target import Commit, Target
from rocketc.exports.cluster_archive import ArchiveCommits, ClusterArchive
from rocketc.tables.topics import TopicConfig


@pytest.fixture
def broker():
    with rocketc.Broker(mapped_file_size_commit_log=64 << 10) as one:
        one.topics.create("orders", 2)
        yield one


@pytest.fixture
def producer(broker):
    with Producer("shop", broker.name_server) as one:
        yield one


def send(producer, topic, numbers, body=b"%d"):
    for number in numbers:
        producer.send(topic, body % number, keys=f"{topic}-{number}")


async def delete(broker, topic):
    async with Admin(broker.name_server) as admin:
        await admin.delete_topic(topic)


def opened(broker, target, topics=("orders",), **how):
    return ClusterArchive(access_to(broker.name_server), list(topics), target, **how)


def run(archive):
    """Make all commits, and close it."""
    try:
        while staged := archive.stage():
            archive.commit(staged)
        return archive.report
    finally:
        archive.close()


def visible(target, folder="data"):
    """The keys of the messages that a reader of the folder gets, sorted."""
    files = [str(path) for path in (Path(target) / folder).glob("topic=*/*/*.parquet")]
    return sorted(ds.dataset(files).to_table(["keys"]).column("keys").to_pylist()) if files else []


def state(target):
    """The times of the files of a folder."""
    return {path: path.stat().st_mtime_ns for path in target.rglob("*") if path.is_file() and path.name != "lock"}


def table(target, name):
    return ds.dataset(str(Path(target) / name), ignore_prefixes=[]).to_table().to_pylist()


def keys(topic, numbers):
    return sorted(f"{topic}-{number}" for number in numbers)


def test_each_run_adds_the_new_messages(broker, producer, tmp_path):
    target = tmp_path / "lake"
    send(producer, "orders", range(20))
    report = run(opened(broker, target))
    assert (report.messages, report.commits, report.files, report.damage) == (20, 1, 1, [])
    assert visible(target) == keys("orders", range(20))
    before = state(target)
    report = run(opened(broker, target))
    assert (report.messages, report.commits) == (0, 0)
    assert state(target) == before
    send(producer, "orders", range(20, 30))
    assert run(opened(broker, target, commit_bytes=500)).commits > 1
    assert visible(target) == keys("orders", range(30))
    assert min(target.glob("data/topic=orders/date=*/*.parquet")).name == "part-00000001-0.parquet"
    assert not (target / "_rocketc" / "staging").exists()


def test_tables_of_an_archive(broker, producer, tmp_path):
    send(producer, "orders", range(20))
    scan = rocketc.scan(broker.path, topics="orders")
    size = sum(message.store_size for message in scan)
    run(opened(broker, tmp_path / "lake", commit_bytes=600))
    rows = table(tmp_path / "lake", "_rocketc/statistics")
    assert len(rows) > 1 and {row["topic"] for row in rows} == {"orders"}
    assert (sum(row["messages"] for row in rows), sum(row["bytes"] for row in rows)) == (20, size)
    assert all(row["firstTimestamp"] <= row["lastTimestamp"] for row in rows)
    assert table(tmp_path / "lake", "_rocketc/damage") == []
    assert table(tmp_path / "lake", "_rocketc/damage") == []
    commit = json.loads((tmp_path / "lake" / "_rocketc" / "commits" / "00000001.json").read_text())
    assert commit["source"] == [f"rocketmq://{broker.name_server}"] and "orders" in commit["queues"]


def test_columns_and_folders_are_those_of_an_export(broker, producer, tmp_path):
    send(producer, "orders", range(5))
    url = f"rocketmq://{broker.name_server}/orders"
    rocketc.export(rocketc.scan(url), tmp_path / "exported", partition_by=("topic", "date"))
    run(opened(broker, tmp_path / "lake"))
    folders = [
        sorted(str(path.parent.relative_to(tmp_path / name)) for path in (tmp_path / name).glob("topic=*/*/*"))
        for name in ("exported", "lake/data")
    ]
    assert folders[0] == folders[1]
    schemas = [ds.dataset([str(*(tmp_path / name).glob("topic=*/*/*"))]).schema for name in ("exported", "lake/data")]
    assert schemas[0] == schemas[1]
    run(opened(broker, tmp_path / "few", columns=["body", "topic"], compression="none"))
    [path] = (tmp_path / "few").glob("data/topic=*/*/*")
    assert ds.dataset([str(path)]).to_table().column_names == ["body"]


async def widened(broker, topic, queues):
    async with Admin(broker.name_server) as admin:
        await admin.create_topic(TopicConfig(topic, queues, queues))


def test_wildcards_new_topics_and_new_queues_while_it_follows(broker, producer, tmp_path):
    import re

    target = tmp_path / "lake"
    send(producer, "orders", range(4))
    archive = opened(broker, target, [re.compile("ord.*"), "later"], waits=True)
    archive.commit(archive.stage())
    assert archive.stage() is None
    send(producer, "orders2", range(3))
    send(producer, "later", range(2))
    asyncio.run(widened(broker, "orders", 4))
    with Producer("shop", broker.name_server) as other:  # knows the new queues
        send(other, "orders", range(4, 40))
    report = run(archive)
    assert report.messages == 45
    assert visible(target) == sorted(keys("orders", range(40)) + keys("orders2", range(3)) + keys("later", range(2)))


@pytest.mark.parametrize("every", [False, True])
def test_a_wildcard_leaves_out_the_topics_of_the_system(broker, producer, tmp_path, every):
    """A transaction that was rolled back has a half message, and is not data."""
    send(producer, "orders", range(2))
    with (
        TransactionProducer("bank", broker.name_server, check=lambda half: "ROLLBACK_MESSAGE") as bank,
        contextlib.suppress(ZeroDivisionError),
        bank.transaction("orders", b"rolled back"),
    ):
        raise ZeroDivisionError
    url = f"rocketmq://{broker.name_server}/*"
    archive = opened(broker, tmp_path / "lake", topic_url(url, patterns=True).topics, all_topics=every)
    run(archive)
    topics = {path.name for path in (tmp_path / "lake").glob("**/topic=*")}
    scanned = {message.topic for message in rocketc.scan(url, all_topics=every)}
    if every:
        assert "topic=RMQ_SYS_TRANS_HALF_TOPIC" in topics and "RMQ_SYS_TRANS_HALF_TOPIC" in scanned
    else:
        assert topics == {"topic=orders"} and scanned == {"orders"}


@pytest.mark.parametrize("steps", [1, pytest.param(7, marks=pytest.mark.long)])
def test_killed_between_any_two_steps(broker, producer, tmp_path, monkeypatch, steps):
    """Copy the archive between any two steps of a run, as a kill leaves it; the next run must complete the copy."""
    target, copies = tmp_path / "lake", []

    def look(step):
        copies.append((step, tmp_path / f"{len(copies):03d}"))
        shutil.copytree(target, copies[-1][1])

    send(producer, "orders", range(10))
    run(opened(broker, target))
    send(producer, "orders", range(10, 20))
    monkeypatch.setattr(archive_target, "reached", look)
    run(opened(broker, target, commit_bytes=2000 // steps))
    monkeypatch.undo()
    assert {step for step, _ in copies} == {"planned", "written", "moving", "moved", "published"}
    for step, copy in copies:
        seen = visible(copy)
        assert len(set(seen)) == len(seen) and set(keys("orders", range(10))) <= set(seen)
        run(opened(broker, copy))
        assert visible(copy) == keys("orders", range(20)), step
        assert not (copy / "_rocketc" / "staging").exists()


def test_an_error_in_the_middle_leaves_nothing(broker, producer, tmp_path, monkeypatch):
    send(producer, "orders", range(10))
    archive = opened(broker, tmp_path / "lake")

    def fail(*args, **how):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr("rocketc.exports.archive_files.sync_tree", fail)
        archive.stage()
    assert not (tmp_path / "lake" / "_rocketc" / "staging").exists()
    staged = archive.stage()
    archive.discard()
    assert staged.damage == [] and not (tmp_path / "lake" / "_rocketc" / "staging").exists()
    assert run(archive).messages == 10


def test_a_commit_that_fails_half_way_is_finished_by_the_next_run(broker, producer, tmp_path, monkeypatch):
    send(producer, "orders", range(10))
    archive = opened(broker, tmp_path / "lake")
    staged = archive.stage()
    with monkeypatch.context() as patch:
        patch.setattr(
            Target, "publish", lambda *args: (_ for _ in ()).throw(StoreIOError(5, "Input/output error", "x"))
        )
        with pytest.raises(StoreIOError):
            archive.commit(staged)
    with pytest.raises(AssertionError):  # it would delete what is committed
        archive.stage()
    archive.close()
    assert visible(tmp_path / "lake") == []
    assert run(opened(broker, tmp_path / "lake")).messages == 0
    assert visible(tmp_path / "lake") == keys("orders", range(10))


def test_deleted_messages_are_lost_and_said_so(broker, producer, tmp_path, caplog):
    target = tmp_path / "lake"
    send(producer, "orders", range(100), b"%d" + b"x" * 1000)
    run(opened(broker, target))
    send(producer, "orders", range(100, 300), b"%d" + b"x" * 1000)
    assert broker.store.clean(expired_ms=0, now=int(time.time() * 1000) + 60_000).deleted
    left = [message.keys for message in rocketc.scan(broker.path, topics="orders")]
    report = run(opened(broker, target))
    assert visible(target) == sorted({*keys("orders", range(100)), *left})
    assert sum(one.stop - one.start for one in report.damage) == 200 - report.messages > 0
    assert {(one.topic, one.broker, one.reason) for one in report.damage} == {
        ("orders", "broker-a", "missing_messages")
    }
    assert table(target, "_rocketc/damage") == [one.to_json() for one in report.damage]
    assert f"orders queue 0 on broker-a: queue offsets 50 to {report.damage[0].stop} are lost" in caplog.text
    assert run(opened(broker, target)).damage == []  # reported once


def test_a_commit_of_lost_messages_alone(tmp_path):
    target, queue = Target(str(tmp_path / "lake")), MessageQueue("orders", "broker-a", 0)
    commits = ArchiveCommits(target, "rocketmq://10.0.0.1:9876", ["orders"], ["body"])
    round = Round([], [QueueDamage(*queue, 7, 50, "missing_messages")])
    states = commits.commit(target.stage(), round, [], {queue: Reached(7, 6, 600, 1006)})
    assert states == commits.states() == {queue: Reached(50, 6, 600, 1006)}
    assert commits.report.damage == round.lost and commits.report.commits == 1
    target.close()
    assert table(tmp_path / "lake", "_rocketc/damage") == [round.lost[0].to_json()]
    target = Target(str(tmp_path / "lake"))
    commits = ArchiveCommits(target, "rocketmq://10.0.0.2:9876", ["orders"], ["body"])
    assert (commits.states(), commits.number, commits.is_same) == (states, 2, False)
    target.close()


def test_every_tool_finds_the_messages_and_nothing_else(broker, producer, tmp_path):
    send(producer, "orders", range(5))
    send(producer, "others", range(5))
    for _ in range(2):
        run(opened(broker, tmp_path / "lake", ["orders", "others"]))
    data = str(tmp_path / "lake" / "data")
    assert polars.scan_parquet(data).select(polars.len()).collect().item() == 10
    assert duckdb.sql(f"select count(*) from '{data}/**/*.parquet'").fetchall() == [(10,)]
    assert ds.dataset(data).count_rows() == len(pandas.read_parquet(data)) == 10
    assert sorted(path.name for path in (tmp_path / "lake").iterdir()) == ["_rocketc", "data"]


def test_an_archive_of_an_older_rocketc_keeps_its_layout(broker, producer, tmp_path, monkeypatch):
    send(producer, "orders", range(5))
    with monkeypatch.context() as patch:
        patch.setattr(archive_target, "NEW", archive_target.OLD)
        run(opened(broker, tmp_path / "lake"))
    assert sorted(path.name for path in (tmp_path / "lake").iterdir()) == [
        "_commits", "_damage", "_statistics", "topic=orders"
    ]  # fmt: skip
    send(producer, "orders", range(5, 10))
    assert run(opened(broker, tmp_path / "lake")).messages == 5
    assert visible(tmp_path / "lake", "") == keys("orders", range(10))
    assert sum(row["messages"] for row in table(tmp_path / "lake", "_statistics")) == 10
    assert not (tmp_path / "lake" / "data").exists() and not (tmp_path / "lake" / "_rocketc").exists()
    (tmp_path / "lake" / "data").mkdir()
    with pytest.raises(ValueError, match="not an archive: it holds 'data'"):
        opened(broker, tmp_path / "lake")


def test_an_archive_keeps_its_columns_and_a_new_one_has_the_broker(broker, producer, tmp_path):
    send(producer, "orders", range(5))
    run(opened(broker, tmp_path / "new"))
    run(opened(broker, tmp_path / "old", columns=["topic", "keys"]))
    send(producer, "orders", range(5, 10))
    for name in ("new", "old"):
        run(opened(broker, tmp_path / name))
        assert visible(tmp_path / name) == keys("orders", range(10))
    schemas = {name: ds.dataset(tmp_path / name / "data").schema.names for name in ("new", "old")}
    assert schemas == {"new": [name for name in rocketc.COLUMN_NAMES if name != "topic"], "old": ["keys"]}
    with pytest.raises(ValueError, match=r"columns=.* but it was made with"):
        opened(broker, tmp_path / "old", columns=["keys"])


def test_a_topic_that_is_deleted_and_made_again(broker, producer, tmp_path, caplog):
    target = tmp_path / "lake"
    send(producer, "orders", range(20))
    archive = opened(broker, target, waits=True)
    archive.commit(archive.stage())
    asyncio.run(delete(broker, "orders"))
    assert archive.stage() is None
    time.sleep(0.01)  # the messages of the new topic are later
    broker.topics.create("orders", 2)
    with Producer("shop", broker.name_server) as other:
        send(other, "orders", range(20, 30))
    assert run(archive).messages == 30 and visible(target) == keys("orders", range(30))


def test_several_brokers_one_of_them_restarts(tmp_path):
    target = tmp_path / "lake"
    with rocketc.Broker() as one:
        how = {"namesrv_addr": one.name_server, "broker_name": "broker-b"}
        two = rocketc.Broker(tmp_path / "two", **how)
        with two:
            for broker in (one, two):
                broker.topics.create("orders", 2)
            with Producer("shop", one.name_server) as producer:
                send(producer, "orders", range(40))
            archive = opened(one, target, waits=True)
            archive.commit(archive.stage())
            with Producer("shop", one.name_server) as producer:
                send(producer, "orders", range(40, 80))
        while staged := archive.stage():
            archive.commit(staged)
        there = visible(target)
        assert 40 < len(there) < 80 and len(set(there)) == len(there)
        with rocketc.Broker(tmp_path / "two", **how):
            assert run(archive).messages == 80
        assert visible(target) == keys("orders", range(80))


def test_wrong_use(broker, producer, tmp_path):
    send(producer, "orders", range(3))
    run(opened(broker, tmp_path / "lake"))
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes").write_text("mine")
    (tmp_path / "file").write_text("")
    log = Target(str(tmp_path / "log"))
    log.commit(Commit(1, ["/data/store"], ["topic"], None, 0, 70, None, 0, []))
    log.close()
    for error, text, target, how in (
        (ValueError, "not an archive: it holds 'notes'", "taken", {}),
        (StoreIOError, "Not a directory", "file", {}),
        (ValueError, "lake: columns=.*but it was made with", "lake", {"columns": ["body"]}),
        (ValueError, "lake: topics=.*but it was made with", "lake", {"topics": ["others", "orders"]}),
        (ValueError, "log: an archive of a log; archive topics of a cluster to another folder", "log", {}),
        (ValueError, "unknown column 'nope'", "new", {"columns": ["nope"]}),
        (ValueError, "compression", "new", {"compression": "rar"}),
        (TopicNotFoundError, "no topic nope", "new", {"topics": ["nope"]}),
        (rocketc.errors.NotSentError, "127.0.0.1:1", "new", {"access": "127.0.0.1:1"}),
    ):
        access = access_to(how.pop("access", broker.name_server))
        send(producer, "others", range(1))
        with pytest.raises(error, match=text):
            ClusterArchive(access, how.pop("topics", ["orders"]), tmp_path / target, **how)
    assert not (tmp_path / "new").exists()
    held = opened(broker, tmp_path / "lake")
    with pytest.raises(StoreLockedError, match="another process is writing to this archive"):
        opened(broker, tmp_path / "lake")
    held.close()
    held.close()
    assert os.listdir(tmp_path / "lake" / "_rocketc" / "commits")
