"""spark.read.format("rocketmq") from a broker: the rows are those of the files of its store."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from support.spark_frames import NO_SOURCES, table_of

import rocketc
from rocketc.client import NewMessage, Producer
from rocketc.spark import configured_options
from rocketc.spark.cluster_source import ClusterReader, PushingClusterReader
from rocketc.spark.growing_log import DataLossError
from rocketc.spark.options import parse_options
from rocketc.spark.source import RocketmqSource

datasource = pytest.importorskip("pyspark.sql.datasource", reason=NO_SOURCES)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]
COUNT = 400


@pytest.fixture(scope="module")
def broker() -> Iterator[rocketc.Broker]:
    with rocketc.Broker() as one:
        one.topics.create("orders", 4)
        one.topics.create("bills", 2)
        with Producer("shop", one.name_server) as producer:
            for i in range(COUNT):
                body = b"x" * 9000 if i == 7 else b"body %d" % i
                producer.send("orders", body, tags="web" if i % 2 else "app", keys=f"k{i}", properties={"n": str(i)})
            producer.send_many("bills", [NewMessage(b"one", tags="web"), NewMessage(b"two")])
        yield one


def load(spark: SparkSession, broker: rocketc.Broker, **options: str) -> DataFrame:
    given = {"nameServer": broker.name_server, "subscribe": "orders", **options}
    return spark.read.format("rocketmq").options(**given).load()


def why(error: BaseException) -> str:
    return next(line for line in str(error).splitlines() if "Error: " in line)


def test_the_rows_are_those_of_the_files(spark: SparkSession, broker: rocketc.Broker) -> None:
    columns = ",".join(name for name in rocketc.COLUMN_NAMES if name not in ("file", "brokerName"))
    wire = load(spark, broker, minPartitions="3", subscribe="orders,bills", columns=columns)
    assert wire.rdd.getNumPartitions() >= 3
    files = spark.read.format("rocketmq").options(subscribe="orders,bills", columns=columns).load(broker.path)
    found, expected = (table_of(one).sort_by("physicalOffset") for one in (wire, files))
    assert found.num_rows == COUNT + 2
    assert found.equals(expected)


def test_all_columns(spark: SparkSession, broker: rocketc.Broker) -> None:
    whole = load(spark, broker)
    files = spark.read.format("rocketmq").load(broker.path)
    assert whole.schema == files.schema
    assert whole.where("file IS NULL AND body IS NOT NULL").count() == COUNT
    kafka = load(spark, broker, columns="kafka", includeHeaders="true")
    assert kafka.where("partition = 1 AND offset = 3").selectExpr(
        "string(key)", "timestampType", "size(headers) > 1"
    ).first()[1:] == (1, True)


def test_options_select_rows(spark: SparkSession, broker: rocketc.Broker) -> None:
    few = load(
        spark, broker, columns="keys", tags="web", startingOffsets='{"orders": {"0": 90, "1": -2}}',
        endingOffsets='{"orders": {"1": 10, "2": 0, "3": 0}}', sql="n > 5",
    )  # fmt: skip
    offsets = {"orders": {0: (90, None), 1: (None, 10), 2: (None, 0), 3: (None, 0)}}
    expected = rocketc.scan(broker.path, offsets=offsets, tags="web", sql="n > 5", topics="orders")
    assert {row.keys for row in few.collect()} == {message.keys for message in expected}
    assert load(spark, broker, startingTimestamp="2100-01-01T00:00Z").count() == 0


def test_secrets_are_in_no_plan(spark: SparkSession, broker: rocketc.Broker, capfd: pytest.CaptureFixture[str]) -> None:
    spark.conf.set("spark.rocketmq.nameServer", broker.name_server)
    spark.conf.set("spark.rocketmq.accessKey", "me")
    spark.conf.set("spark.rocketmq.secretKey", "hidden")
    spark.conf.set("spark.rocketmq.producerGroup", "shop")
    try:
        options = configured_options(spark)
        assert options == {"nameServer": broker.name_server, "accessKey": "me", "secretKey": "hidden"}
        assert configured_options(spark, "write") == options | {"producerGroup": "shop"}
        spark.conf.set("spark.rocketmq.secretKye", "hidden")
        with pytest.raises(
            ValueError, match=r"^rocketmq: unknown key spark.rocketmq.secretKye in .*n \(did you mean secretKey\?\)$"
        ):
            configured_options(spark)
        with pytest.raises(ValueError, match="use='both': 'read' or 'write'"):
            configured_options(spark, "both")
    finally:
        for key in [key for key in spark.conf.getAll if key.startswith("spark.rocketmq.")]:
            spark.conf.unset(key)
    frame = spark.read.format("rocketmq").options(**options).option("subscribe", "bills").load()
    assert frame.count() == 2
    frame.explain("extended")
    frame.explain("formatted")
    out = capfd.readouterr()
    assert "hidden" not in out.out + out.err + repr(frame) + frame._jdf.queryExecution().toString()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"subscribe": "order"},
            "ValueError: rocketmq: option subscribe: no topic order in this cluster; did you mean",
        ),
        ({"nameServer": "127.0.0.1:1"}, "NotSentError: 127.0.0.1:1: "),
    ],
)
def test_errors_are_raised_on_the_driver(spark: SparkSession, broker: rocketc.Broker, options: Any, text: str) -> None:
    began = time.monotonic()
    with pytest.raises(PySparkException) as caught:
        load(spark, broker, **options).collect()
    assert text in why(caught.value)
    assert "Task" not in str(caught.value)
    assert time.monotonic() < began + 10


# without Spark


def reader(broker: rocketc.Broker, **options: str) -> ClusterReader:
    source = RocketmqSource({"nameServer": broker.name_server, "subscribe": "orders", **options})
    found = source.reader(source.schema())
    assert isinstance(found, ClusterReader)
    return found


def offsets(reader: ClusterReader) -> int:
    return sum(span.end - span.begin for one in reader.partitions() for span in one.value)


def keys(reader: ClusterReader) -> set[str]:
    return {row["keys"] for one in reader.partitions() for batch in reader.read(one) for row in batch.to_pylist()}


def test_filters_of_the_query_narrow_the_plan(broker: rocketc.Broker) -> None:
    if not hasattr(datasource, "EqualTo"):
        pytest.skip("this Spark does not push filters")
    EqualTo, GreaterThanOrEqual, In = datasource.EqualTo, datasource.GreaterThanOrEqual, datasource.In
    options = parse_options({"nameServer": broker.name_server, "subscribePattern": "orders|bills"})
    assert options.cluster is not None
    schema = RocketmqSource({"nameServer": broker.name_server, "subscribe": "orders"}).schema()

    def pushing() -> PushingClusterReader:
        return PushingClusterReader(options, options.cluster, schema)

    one = pushing()
    filters = [EqualTo(("topic",), "orders"), In(("queueId",), (1, 7)), EqualTo(("tags",), "web")]
    assert list(one.pushFilters(filters)) == filters[2:]
    assert offsets(one) == 100
    expected = rocketc.scan(broker.path, topics="orders", queues=1, tags="web")
    assert keys(one) == {message.keys for message in expected}
    one = pushing()
    rest = [GreaterThanOrEqual(("physicalOffset",), 10)]
    assert list(one.pushFilters(rest)) == rest
    assert offsets(one) == COUNT + 2
    one = pushing()
    list(one.pushFilters([EqualTo(("topic",), "others")]))
    assert offsets(one) == 0


def test_a_query_without_messages(broker: rocketc.Broker) -> None:
    assert list(reader(broker).read(None)) == []
    assert list(reader(broker).read(datasource.InputPartition(None))) == []


def test_the_driver_reports_the_plan(broker: rocketc.Broker, capfd: pytest.CaptureFixture[str]) -> None:
    reader(broker, minPartitions="2").partitions()
    assert f"rocketc: tasks: 2, messages: {COUNT}, queues: 4" in capfd.readouterr().err


@pytest.fixture
def small() -> Iterator[rocketc.Broker]:
    """A broker with files of 64 KiB, and a topic of two queues in several of them."""
    with rocketc.Broker(mapped_file_size_commit_log=64 << 10) as one:
        one.topics.create("orders", 2)
        with Producer("shop", one.name_server) as producer:
            for i in range(COUNT):
                producer.send("orders", b"x" * 1000, keys=f"k{i}", tags="web")
        yield one


def delete_old_files(broker: rocketc.Broker) -> int:
    """Delete all files of the log but the last one; return how many messages are left."""
    report = broker.store.clean(expired_ms=0, now=int(time.time() * 1000) + 60_000)
    assert report.deleted
    left = sum(1 for _ in rocketc.scan(broker.path, topics="orders"))
    assert 0 < left < COUNT
    return left


@pytest.mark.parametrize("tags", [{}, {"tags": "web"}])
def test_retention_under_a_batch(
    small: rocketc.Broker, tags: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    strict, lenient = reader(small, **tags), reader(small, failOnDataLoss="false", **tags)
    tasks = strict.partitions()
    left = delete_old_files(small)
    with pytest.raises(
        DataLossError, match=r"^rocketmq: orders queue \d on broker-a: queue offsets 0 to \d+ are lost: "
    ):
        [one for task in tasks for one in strict.read(task)]
    found = [row for task in tasks for batch in lenient.read(task) for row in batch.to_pylist()]
    assert len(found) == left
    assert "orders queue 1 on broker-a: queue offsets 0 to " in capfd.readouterr().err
    assert offsets(strict) == left  # a new plan begins where the queues begin


def test_retention_under_a_stream(small: rocketc.Broker) -> None:
    def stream(**options: str) -> Any:
        given = {
            "nameServer": small.name_server,
            "subscribe": "orders",
            "maxOffsetsPerTrigger": "10",
            "columns": "keys",
        }
        source = RocketmqSource({**given, "startingOffsets": "earliest", **options})
        return source.stream_batches(source.schema())

    strict, lenient = stream(), stream(failOnDataLoss="false")
    start = strict.initialOffset()
    planned = strict.next_offset(start)
    left = delete_old_files(small)
    with pytest.raises(DataLossError, match="the broker has deleted them"):
        strict.next_offset(planned)
    with pytest.raises(DataLossError, match="the broker has deleted them"):
        [list(strict.read(task)) for task in strict.partitions(start, planned)]  # planned before
    assert [list(lenient.read(task)) for task in lenient.partitions(start, planned)] == [[]]
    found, place = 0, planned
    while (end := lenient.next_offset(place)) != place:
        found += sum(batch.num_rows for task in lenient.partitions(place, end) for batch in lenient.read(task))
        place = end
    assert found == left
