"""An archive of topics of RocketMQ's own brokers: each message once, also after a kill or a new topic of that name."""

import asyncio
import re
import time
from collections import Counter

import pyarrow.dataset as ds
import pytest
from interop import scenarios
from interop.kept_tables import FLUSH_MS, tables
from interop.peer import RELEASES, Unavailable

import rocketc
from rocketc.client import Admin, NewMessage, Producer
from rocketc.client.access import access_to
from rocketc.exports.cluster_archive import ClusterArchive

pytestmark = pytest.mark.long


def cluster(release, folder):
    try:
        return scenarios.JavaCluster(release, folder, flushConsumerOffsetInterval=FLUSH_MS)
    except Unavailable as reason:
        pytest.skip(str(reason))


def send(one, topic, numbers):
    with Producer("shop", one.name_server, compress_msg_body_over_howmuch=4096) as producer:
        for number in numbers:
            producer.send(topic, b"%d." % number + b"z" * (9000 if number % 50 == 0 else 10), tags="web")
        producer.send_many(topic, [NewMessage(b"in a batch %d" % number) for number in numbers[:2]])


def append(one, target, **how):
    archive = ClusterArchive(access_to(one.name_server), [re.compile("orders.*")], target, commit_bytes=20_000, **how)
    try:
        while staged := archive.stage():
            archive.commit(staged)
        return archive.report
    finally:
        archive.close()


COLUMNS = ["topic", "queueId", "queueOffset", "physicalOffset", "body", "tags", "storeTimestamp"]


def rows(table):
    return Counter(tuple(row[name] for name in COLUMNS) for row in table.select(COLUMNS).to_pylist())


def visible(target):
    files = [str(path) for path in target.glob("data/topic=*/*/*.parquet")]
    return rows(ds.dataset(files, partitioning="hive", partition_base_dir=str(target)).to_table())


def of_files(store):
    return rows(rocketc.scan(store, topics=re.compile("orders.*"), columns=COLUMNS).to_arrow())


@pytest.mark.parametrize("release", RELEASES)
def test_messages_of_java_are_there_once(tmp_path, release):
    target, store = tmp_path / "lake", tmp_path / "store"
    one = cluster(release, tmp_path)
    try:
        send(one, "orders", range(200))
        send(one, "orders-old", range(20))
        names, end = ("topics.json", "consumerOffset.json"), time.monotonic() + 60
        while not all((store / "config" / name).exists() for name in names):  # 10 s after its start
            assert time.monotonic() < end
            time.sleep(0.2)
        before = tables(store)
        report = append(one, target)
        assert report.messages == 224 and report.commits > 1 and visible(target) == of_files(store)
        assert append(one, target).commits == 0
        assert tables(store) == before
        send(one, "orders", range(200, 230))
    finally:
        one.close()  # a kill
    one = cluster(release, tmp_path)  # at other addresses
    try:
        send(one, "orders", range(230, 260))
        report = append(one, target)
        assert report.messages == 64 and visible(target) == of_files(store)
        asyncio.run(delete(one, "orders"))
        time.sleep(1)
        send(one, "orders", range(5))
        report = append(one, target)
        assert report.messages == 7 and report.damage == [] and visible(target) == of_files(store)
        one.end()
    finally:
        one.close()


async def delete(one, topic):
    async with Admin(one.name_server) as admin:
        await admin.delete_topic(topic)
