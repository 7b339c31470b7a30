"""df.write.format("rocketmq") to a cluster: rows are stored at least once, and an error names the row."""

import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.types import StructType
from support.spark_frames import ddl, needs_sources

import rocketc
from rocketc.client.bulk_producer import BulkProducer
from rocketc.client.security import Credentials
from rocketc.errors import TopicNotFoundError
from rocketc.spark import schema
from rocketc.spark.cluster_options import Cluster
from rocketc.spark.cluster_sink import ClusterWriter, Sent, Target, check_columns, report, send_batches

pytestmark = pytest.mark.spark


BODY = ddl("body binary")


@pytest.fixture(scope="module")
def broker() -> Iterator[rocketc.Broker]:
    with rocketc.Broker(max_message_size=1 << 20) as one:
        yield one


@pytest.fixture
def read(broker: rocketc.Broker) -> Any:
    """Reads all messages of a topic."""

    def messages(topic: str) -> list[Any]:
        with rocketc.client.PullConsumer("audit", broker.name_server, auto_commit=False) as consumer:
            queues = consumer.fetch_message_queues(topic)
            consumer.assign(queues)
            found: list[Any] = []
            wanted = 0
            for queue in queues:
                consumer.seek_to_begin(queue)
                wanted += consumer.max_offset(queue)
            while len(found) < wanted:
                found += consumer.poll()
            return found

    return messages


def target(broker: rocketc.Broker, topic: str | None = None, id_column: str | None = None) -> Target:
    return Target(Cluster(broker.name_server), topic, id_column)


# without Spark


def test_rows_of_a_task(broker: rocketc.Broker, read: Any) -> None:
    rows = pa.record_batch({"body": [b"%d" % i for i in range(5000)], "keys": [f"k{i}" for i in range(5000)]})
    assert send_batches(target(broker, "task"), [rows, rows.slice(0, 0)]) == Sent(5000, {})
    found = read("task")
    assert sorted(int(m.body) for m in found) == list(range(5000)) and found[0].keys.startswith("k")
    assert len({m.properties["UNIQ_KEY"] for m in found}) == 5000
    assert send_batches(target(broker, "nothing"), []) == Sent(0, {})


def test_messages_of_one_topic_are_copied_to_another(broker: rocketc.Broker, read: Any) -> None:
    with rocketc.client.Producer("shop", broker.name_server) as producer:
        for i in range(20):
            producer.send("from", b"%d" % i, tags="a", keys=f"k{i}", properties={"own": "v"}, shard=f"s{i % 3}", flag=7)
    names = ["queueId", "keys", "tags", "body", "properties", "msgId", "flag", "sysFlag", "bodyCRC", "bornHost"]
    stored = read("from")
    batch = pa.record_batch(
        [
            [m.queue_id for m in stored], [m.keys for m in stored], [m.tags for m in stored], [m.body for m in stored],
            pa.array([list(m.properties.items()) for m in stored], pa.map_(pa.string(), pa.string())),
            [m.properties["UNIQ_KEY"] for m in stored], [m.flag for m in stored], [m.sys_flag for m in stored],
            [m.body_crc for m in stored], [str(m.born_host) for m in stored],
        ],
        names,
    )  # fmt: skip
    for _ in range(2):
        assert send_batches(target(broker, "to", "msgId"), [batch]).messages == 20

    def told(m: Any) -> Any:
        return m.queue_id, m.body, m.tags, m.keys, m.flag, {**m.properties}

    copied = read("to")
    once = {m.properties["UNIQ_KEY"]: m for m in copied}
    assert len(copied) == 40 and len(once) == 20
    assert sorted(map(told, once.values()), key=repr) == sorted(map(told, stored), key=repr)
    for queue in {m.queue_id for m in stored}:  # in their order
        assert [m.body for m in copied if m.queue_id == queue][:3] == [m.body for m in stored if m.queue_id == queue][
            :3
        ]


def test_a_row_that_is_refused_is_named(broker: rocketc.Broker) -> None:
    bodies = [b"1", b"2", b"x" * (2 << 20), b"3"]
    rows = pa.record_batch({"order": ["o-1", "o-2", "o-3", "o-4"], "body": bodies})
    with pytest.raises(rocketc.RocketcError, match=r"rocketmq: row 2 \(order='o-3'\) of a partition: not stored: .*\d"):
        send_batches(target(broker, "large", "order"), [rows])
    nulls = pa.record_batch({"order": ["o-1", "o-2"], "body": [b"1", None]})
    with pytest.raises(
        rocketc.IllegalMessageError, match=r"row 1 \(order='o-2'\) cannot be a message: the column body"
    ):
        send_batches(target(broker, "large", "order"), [nulls])
    wrong = pa.record_batch({"topic": ["no topic"], "body": [b"1"]})
    with pytest.raises(rocketc.IllegalMessageError, match=r"row 0 \(topic='no topic'\) .* may only have letters"):
        send_batches(target(broker), [wrong])
    queue = pa.record_batch({"queueId": [77], "body": [b"1"]})
    with pytest.raises(rocketc.IllegalMessageError, match=r"row 0 \(queueId=77\) .* has the queues 0 to \d, not 77"):
        send_batches(target(broker, "large"), [queue])


def test_a_cluster_that_goes_away_fails_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BulkProducer, "patience", 0.3)
    body = pa.record_batch({"body": [b"1", b"2"]})
    with rocketc.Broker() as broker:
        to = target(broker, "gone")

        def batches() -> Iterator[pa.RecordBatch]:
            yield body
            broker.close()
            yield body

        with pytest.raises(rocketc.RocketcError, match=r"rocketmq: row \d .*of a partition: not stored"):
            send_batches(to, batches())


def test_columns() -> None:
    to = Target(Cluster("127.0.0.1:1"), "orders", "order")
    check_columns(ddl("order string, body binary, delay int, delayLevel string, shard string"), to)
    check_columns(ddl("order bigint, body binary, deliverAt timestamp, delayLevel int"), to)
    check_columns(StructType([*schema(), *ddl("order int")]), to)
    for columns, text in (
        ("order string, body string", "column body must be binary, not string"),
        ("order double, body binary", "option idColumn: order must be string or int or bigint, not double"),
        ("orders string, order int, body binary", "unknown column 'orders'"),
        ("body binary", r"option idColumn='order': the rows do not have this column"),
        ("order string, body binary, body binary", "column body exists twice"),
        (
            "order string, body binary, delay string",
            "column delay must be double or float or int or bigint, not string",
        ),
        ("order string", "column body is missing"),
    ):
        with pytest.raises(ValueError, match=text):
            check_columns(ddl(columns), to)
    with pytest.raises(ValueError, match="column topic is missing; add it, or set the option topic"):
        check_columns(BODY, Target(Cluster("127.0.0.1:1")))
    with pytest.raises(ValueError, match="option topic='my orders': a topic name may only"):
        check_columns(BODY, Target(Cluster("127.0.0.1:1"), "my orders"))


def test_other_statuses_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    to = Target(Cluster("127.0.0.1:1"), "orders")
    report(to, [Sent(5, {"FLUSH_DISK_TIMEOUT": 2}), None, Sent(5, {"FLUSH_DISK_TIMEOUT": 1}), Sent(9, {})])
    line = "rocketc: 127.0.0.1:1: 3 of the rows are stored with the status FLUSH_DISK_TIMEOUT\n"
    assert capsys.readouterr().err == line


def test_faults_of_a_cluster_are_found_before_a_task_runs(broker: rocketc.Broker) -> None:
    began = time.monotonic()
    with pytest.raises(rocketc.RocketcError, match=r"rocketmq: 127.0.0.1:1: the cluster is not reached: .*refused"):
        ClusterWriter(Target(Cluster("127.0.0.1:1"), "orders"), BODY, False)
    with rocketc.Broker(auto_create_topic_enable=False) as strict:
        strict.topics.create("orders")
        with pytest.raises(TopicNotFoundError, match=r"'order': no broker has it.*\(did you mean orders\?\)"):
            ClusterWriter(target(strict, "order"), BODY, False)
        writer = ClusterWriter(target(strict, "orders"), BODY, False)
    with pytest.raises(ValueError, match="can't be replaced"):
        ClusterWriter(target(broker, "orders"), BODY, True)
    assert time.monotonic() - began < 5
    assert isinstance(pickle.loads(pickle.dumps(writer)), ClusterWriter)


def test_a_refused_account(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(
        "accounts:\n- accessKey: the-writer\n  secretKey: the-secret-1\n  defaultTopicPerm: DENY\n"
        "  topicPerms: [orders=PUB]\n"
    )
    with rocketc.Broker(acl_enable=True, rocketmq_home=str(tmp_path)) as broker:
        broker.topics.create("orders")
        broker.topics.create("bills")
        for topic, account, text in (
            ("orders", Credentials("the-writer", "wrong-secret"), "AclException"),
            ("bills", Credentials("the-writer", "the-secret-1"), "AclException.*bills"),
            ("orders", None, "AclException"),
        ):
            with pytest.raises(rocketc.RocketcError, match=text) as caught:
                ClusterWriter(Target(Cluster(broker.name_server, account), topic), BODY, False)
            assert "secret" not in str(caught.value).replace("secretKey", "")
        to = Target(Cluster(broker.name_server, Credentials("the-writer", "the-secret-1")), "orders")
        writer = ClusterWriter(to, BODY, False)
        assert writer.write(iter([pa.record_batch({"body": [b"1"]})])) == Sent(1, {})
        assert "secret" not in repr(to)


def test_rows_as_spark_4_0_gives_them(broker: rocketc.Broker, read: Any) -> None:
    columns = ddl("order int, topic string, body binary, delayLevel string, delay double")
    writer = ClusterWriter(target(broker, None, "order"), columns, False)
    rows = [Row(order=i, topic="rows", body=b"%d" % i, delayLevel=None, delay=None) for i in range(3)]
    assert writer.write(iter(rows)) == Sent(3, {})
    assert sorted((m.properties["UNIQ_KEY"], m.body) for m in read("rows")) == [("0", b"0"), ("1", b"1"), ("2", b"2")]


# with Spark


def write(frame: Any, broker: rocketc.Broker, mode: str = "append", **options: str) -> None:
    frame.write.format("rocketmq").mode(mode).options(nameServer=broker.name_server, **options).save()


@needs_sources
def test_rows_of_a_query(spark: Any, broker: rocketc.Broker, read: Any) -> None:
    rows = spark.range(0, 1000, 1, 4).selectExpr("id order", "'query' topic", "binary(string(id)) body")
    write(rows, broker, idColumn="order")
    assert sorted((int(m.properties["UNIQ_KEY"]), int(m.body)) for m in read("query")) == [(i, i) for i in range(1000)]
    write(rows.selectExpr("body"), broker, topic="query2", producerGroup="etl")
    assert len({m.properties["UNIQ_KEY"] for m in read("query2")}) == 1000
    with pytest.raises(Exception, match=r"row \d+ \(order=900, topic='query'\) cannot be a message: the column body"):
        write(rows.selectExpr("order", "topic", "if(order = 900, null, body) body"), broker, idColumn="order")
    with pytest.raises(Exception, match=r"unknown option topci .did you mean topic..; a write takes nameServer"):
        write(rows, broker, topci="t")


@needs_sources
def test_rows_of_one_cluster_go_into_another(spark: Any, broker: rocketc.Broker, read: Any) -> None:
    pytest.importorskip("rocketc.spark.cluster_source")
    with rocketc.Broker() as other:
        with rocketc.client.Producer("shop", other.name_server) as producer:
            for i in range(50):
                producer.send("moved", b"%d" % i, tags="a", keys=f"k{i}", properties={"own": "v"}, flag=7)
        frame = spark.read.format("rocketmq").options(nameServer=other.name_server, subscribe="moved").load()
        write(frame.withColumn("id", frame["properties"]["UNIQ_KEY"]), broker, idColumn="id")
        kept = ("topic", "queueId", "keys", "tags", "body", "flag", "properties")
        before = [row.asDict() for row in frame.select(*kept).collect()]

    def told(m: Any) -> Any:
        return m.queue_id, m.topic, m.keys, m.tags, m.body, m.flag, m.properties["UNIQ_KEY"], m.properties["own"]

    after = [
        (r["queueId"], r["topic"], r["keys"], r["tags"], r["body"], r["flag"], r["properties"]["UNIQ_KEY"], "v")
        for r in before
    ]
    assert sorted(map(told, read("moved"))) == sorted(after)


@needs_sources
def test_a_streaming_query(spark: Any, broker: rocketc.Broker, read: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    stream = spark.readStream.schema("id string, body string").json(str(tmp_path / "in"))
    rows = stream.selectExpr("id", "binary(body) body")
    for i in range(2):
        (tmp_path / "in" / f"{i}.json").write_text("".join(f'{{"id": "{i}-{n}", "body": "{n}"}}\n' for n in range(50)))
        query = (
            rows.writeStream.format("rocketmq")
            .options(nameServer=broker.name_server, topic="stream", idColumn="id")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    found = read("stream")
    assert sorted(m.properties["UNIQ_KEY"] for m in found) == sorted(f"{i}-{n}" for i in range(2) for n in range(50))
