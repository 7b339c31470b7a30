"""Spark's source at RocketMQ's own brokers: the rows are those of the store's files, and reading leaves nothing."""

import json

import pytest
from interop import scenarios
from interop.kept_tables import FLUSH_MS, tables
from interop.peer import RELEASES

import rocketc
from rocketc.client import Producer
from rocketc.spark.source import RocketmqSource

pytestmark = pytest.mark.long

COUNT = 1500  # many pulls of 32 for each queue
COLUMNS = [name for name in rocketc.COLUMN_NAMES if name not in ("file", "brokerName")]


def send(name_server, first, count, topic="orders"):
    with Producer("shop", name_server) as producer:
        for i in range(first, first + count):
            body = b"z" * 9000 if i == 50 else b"body %d" % i
            producer.send(topic, body, tags="web" if i % 3 else "app", keys=f"k{i}", properties={"n": str(i)})


@pytest.fixture(scope="module", params=RELEASES)
def cluster(request, tmp_path_factory):
    """A Java cluster with messages; its folder."""
    folder = tmp_path_factory.mktemp("spark") / "cluster"
    cluster = scenarios.JavaCluster(request.param, folder, flushConsumerOffsetInterval=FLUSH_MS)
    try:
        send(cluster.name_server, 0, COUNT)
        yield cluster, folder / "store"
        cluster.end()
    finally:
        cluster.close()


def source(cluster, **options):
    given = {"nameServer": cluster.name_server, "columns": ",".join(COLUMNS), **options}
    return RocketmqSource({"subscribe": "orders", **given} if "subscribePattern" not in options else given)


def rows(cluster, **options):
    one = source(cluster, **options)
    reader = one.reader(one.schema())
    found = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
    return sorted(found, key=lambda row: row["physicalOffset"])


def of_store(store, **options):
    return rocketc.scan(store, topics="orders", columns=COLUMNS, **options).to_arrow().to_pylist()


def test_the_rows_are_those_of_the_files(cluster):
    cluster, store = cluster
    before = tables(store)
    assert len(rows(cluster)) == COUNT
    for options, scan in (
        ({}, {}),
        ({"minPartitions": "9"}, {}),
        ({"tags": "app"}, {"tags": "app"}),
        ({"sql": "n > 700 AND TAGS = 'web'"}, {"sql": "n > 700 AND TAGS = 'web'"}),
        (
            {"startingOffsets": '{"orders": {"0": 100}}', "endingOffsets": '{"orders": {"1": 33}}'},
            {"offsets": {"orders": {0: (100, None), 1: (None, 33), None: (None, None)}}},
        ),
    ):
        assert rows(cluster, **options) == of_store(store, **scan)
    times = sorted({int(row["storeTimestamp"].timestamp() * 1000 + 0.5) for row in of_store(store)})
    for at in (times[0], times[1], times[len(times) // 2], times[-1], times[-1] + 1):
        assert rows(cluster, startingTimestamp=str(at)) == of_store(store, begin=at)
        assert rows(cluster, endingTimestamp=str(at)) == of_store(store, end=at)
    assert tables(store) == before


def test_a_stream_has_each_message_once(cluster):
    cluster, _ = cluster

    def stream():
        one = source(cluster, subscribePattern="streamed.*", columns="keys", maxOffsetsPerTrigger="170")
        return one.streamReader(one.schema())

    send(cluster.name_server, 0, 1, "streamed")
    reader = stream()
    place, found = reader.initialOffset(), []
    sent = 1
    for turn in range(12):
        if turn in (0, 1, 5):
            send(cluster.name_server, sent, 300, "streamed" if turn < 5 else "streamed_later")
            sent += 300
        if turn % 4 == 3:
            reader = stream()  # restarted
        end = json.loads(json.dumps(reader.latestOffset(place, reader.getDefaultReadLimit())))
        if end != place:
            for task in reader.partitions(place, end):
                found += [key for batch in reader.read(task) for key in batch.column(0).to_pylist()]
            place = end
    assert sorted(found) == sorted(f"k{number}" for number in range(1, sent))


def test_offsets_that_are_not_there(cluster):
    """Offsets after the end, as after a loss of the last messages. Retention is in tests/spark."""
    cluster, _ = cluster
    with pytest.raises(
        rocketc.RocketcError, match=r"orders queue 0 on .*: queue offsets .* are lost: the queue ends at"
    ):
        rows(cluster, endingOffsets='{"orders": {"0": 100000}}')
    kept = rows(cluster, endingOffsets='{"orders": {"0": 100000}}', failOnDataLoss="false")
    assert len(kept) == COUNT
