"""spark.readStream.format("rocketmq") from a broker: every message once, whatever grows, moves, and is killed."""

import asyncio
import json
import pickle
import random
import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from unit.client.scripted import Cluster as ScriptedCluster
from unit.client.scripted import play, stored

import rocketc
from rocketc.client import Admin, Producer
from rocketc.client.queue_range import QueueRange
from rocketc.client.routes import MessageQueue
from rocketc.client.topic_reader import TopicReader
from rocketc.errors import NotSentError
from rocketc.remoting.codes import Code
from rocketc.remoting.requests import CODES
from rocketc.remoting.server import Answer
from rocketc.spark import cluster_stream
from rocketc.spark.cluster_offsets import NO_BOUNDS, Bounds, QueueName
from rocketc.spark.cluster_plan import STRICT, Losses
from rocketc.spark.cluster_position import ClusterPosition, ClusterStream, limited_ends
from rocketc.spark.cluster_stream import ClusterStreamReader41
from rocketc.spark.growing_log import DataLossError
from rocketc.spark.options import parse_options
from rocketc.spark.source import RocketmqSource
from rocketc.tables.topics import TopicConfig

pytest.importorskip("pyspark.sql.streaming.datasource", reason="this Spark does not support limits")
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[rocketc.Broker]:
    with rocketc.Broker() as one:
        yield one


@pytest.fixture(scope="module")
def producer(broker: rocketc.Broker) -> Iterator[Producer]:
    with Producer("shop", broker.name_server) as one:
        yield one


@pytest.fixture
def topic(broker: rocketc.Broker, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "_").replace("]", "")
    broker.topics.create(name, 3)
    return name


class Query:
    """Uses a stream reader as Spark does: plans a batch, records its end, reads it, records that it is done."""

    def __init__(self, broker: rocketc.Broker, topic: str, **options: str) -> None:
        self.options = {"nameServer": broker.name_server, "startingOffsets": "earliest", "columns": "keys", **options}
        if not {"subscribePattern", "assign"} & set(options):
            self.options["subscribe"] = topic
        self.ends: list[str] = []  # the checkpoint: ends of batches, the last of which may not be done
        self.done: list[list[Any]] = []  # the sink: rows of each batch
        self.start()

    def start(self) -> None:
        """Restart from the checkpoint; a batch that was planned and not done is read first."""
        source = RocketmqSource(dict(self.options))
        self.reader: Any = pickle.loads(pickle.dumps(source.streamReader(source.schema())))
        self.first = self.reader.initialOffset()
        if len(self.ends) > len(self.done):
            self.run()

    def from_checkpoint(self) -> Any:
        return json.loads(self.ends[len(self.done) - 1]) if self.done else self.first

    def plan(self) -> bool:
        start = self.from_checkpoint()
        end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
        if json.dumps(end) == json.dumps(start):
            return False
        self.ends.append(json.dumps(end))
        return True

    def run(self) -> None:
        tasks = self.reader.partitions(self.from_checkpoint(), json.loads(self.ends[len(self.done)]))
        worker = pickle.loads(pickle.dumps(self.reader))
        batches = [batch for task in tasks for batch in worker.read(task)]
        self.done.append([row for batch in batches for row in batch.column(0).to_pylist()])

    def all(self) -> list[Any]:
        while self.plan():
            self.run()
        return [row for rows in self.done for row in rows]


def send(producer: Producer, topic: str, count: int, first: int = 0) -> list[str]:
    keys = [f"k{number:04}" for number in range(first, first + count)]
    for key in keys:
        producer.send(topic, b"x" * 100, keys=key)
    return keys


# every message once


@pytest.mark.parametrize("seed", range(4))
def test_each_message_once_whatever_happens(broker: rocketc.Broker, producer: Producer, topic: str, seed: int) -> None:
    chance = random.Random(seed)
    options = [{}, {"maxOffsetsPerTrigger": "5"}, {"maxBytesPerTrigger": "2k"}, {"minPartitions": "5"}][seed]
    query, sent = Query(broker, topic, **options), list[str]()
    for _ in range(25):
        what = chance.choice(["send", "plan", "run", "restart", "kill"])
        if what == "send":
            sent += send(producer, topic, chance.randrange(12), len(sent))
        elif what == "plan" and len(query.ends) == len(query.done):
            query.plan()
        elif what == "run" and len(query.ends) > len(query.done):
            query.run()
        elif what in ("restart", "kill"):
            query.start()
    if len(query.ends) > len(query.done):
        query.run()
    assert sorted(query.all()) == sent


def test_where_a_query_begins(broker: rocketc.Broker, producer: Producer, topic: str) -> None:
    old = send(producer, topic, 9)
    late = Query(broker, topic, startingOffsets="latest")
    offsets = {topic: {"0": 1, "1": -1, "2": -2}}
    some = Query(broker, topic, startingOffsets=json.dumps(offsets))
    time = min(message.store_timestamp for message in rocketc.scan(broker.path, topics=topic))
    options = {"startingTimestamp": str(time)}
    whole = Query(broker, topic)
    whole.options.pop("startingOffsets")
    assert late.all() == []
    assert len(some.all()) == 5
    new = send(producer, topic, 3, 9)
    assert sorted(late.all()) == new
    assert len(some.all()) == 8
    whole.options |= options
    whole.start()
    assert sorted(whole.all()) == old + new


def test_the_first_batch_is_repeated_as_it_was(broker: rocketc.Broker, producer: Producer, topic: str) -> None:
    query = Query(broker, topic, startingOffsets="latest")
    sent = send(producer, topic, 4)
    assert query.plan()
    send(producer, topic, 4, 4)
    query.start()  # killed before the first batch was done: Spark asks for the begin again
    assert sorted(query.done[0]) == sent
    assert sorted(query.all()) == [f"k{number:04}" for number in range(8)]


def test_limits(broker: rocketc.Broker, producer: Producer, topic: str) -> None:
    send(producer, topic, 20)
    query = Query(broker, topic, maxOffsetsPerTrigger="6")
    assert isinstance(query.reader.getDefaultReadLimit(), ReadMaxRows)
    query.all()
    assert [len(rows) for rows in query.done] == [6, 6, 6, 2]
    query = Query(broker, topic, maxBytesPerTrigger="1k", maxOffsetsPerTrigger="100")
    assert isinstance(query.reader.getDefaultReadLimit(), ReadMaxBytes)
    query.all()
    assert {len(rows) for rows in query.done[:-1]} <= {2, 3, 4, 5}
    assert isinstance(Query(broker, topic).reader.getDefaultReadLimit(), ReadAllAvailable)
    query = Query(broker, topic, maxOffsetsPerTrigger="6")
    assert sum(map(len, [Query.all(query)])) == 20


def test_available_now(broker: rocketc.Broker, producer: Producer, topic: str) -> None:
    sent = send(producer, topic, 9)
    query = Query(broker, topic, maxOffsetsPerTrigger="4")
    query.reader.prepareForTriggerAvailableNow()
    send(producer, topic, 5, 9)
    broker.topics.create(f"{topic}_more", 1)
    assert sorted(query.all()) == sent
    assert len(query.done) == 3
    latest = ClusterPosition.from_json(query.reader.reportLatestOffset())
    assert sum(latest.offsets.values()) == 14


def test_topics_and_queues_that_appear_later(broker: rocketc.Broker, producer: Producer, topic: str) -> None:
    query = Query(broker, topic, subscribePattern=f"{topic}.*", startingOffsets="latest")
    sent = send(producer, topic, 3)
    assert sorted(query.all()) == sent
    broker.topics.create(f"{topic}_more", 2)
    send(producer, f"{topic}_more", 4, 3)
    asyncio.run(grow(broker, topic))
    with Producer("other-shop", broker.name_server) as one:  # it knows the new queues
        for number in (3, 4):
            one.send(topic, b"x", keys=f"k{4 + number:04}", queue=MessageQueue(topic, "broker-a", number))
    assert query.plan()
    query.start()
    assert sorted(query.all()) == [f"k{number:04}" for number in range(9)]


async def grow(broker: rocketc.Broker, topic: str) -> None:
    async with Admin(broker.name_server) as admin:
        await admin.create_topic(TopicConfig(topic, 5, 5))


def test_a_topic_that_does_not_exist_yet(broker: rocketc.Broker, producer: Producer, topic: str) -> None:
    with pytest.raises(ValueError, match=f"no topic {topic}_late in this cluster"):
        Query(broker, f"{topic}_late")
    query = Query(broker, f"{topic}_late", failOnMissingTopic="false", startingOffsets="latest")
    assert query.all() == []
    broker.topics.create(f"{topic}_late", 1)
    assert query.all() == [] != (sent := send(producer, f"{topic}_late", 3))
    assert query.all() == sent


def test_filters(broker: rocketc.Broker, producer: Producer, topic: str) -> None:
    for number in range(12):
        producer.send(topic, b"x", keys=str(number), tags="web" if number % 3 else "app")
    assert sorted(Query(broker, topic, tags="app").all()) == ["0", "3", "6", "9"]


def test_checkpoints_of_others(broker: rocketc.Broker, topic: str) -> None:
    query = Query(broker, topic)
    for wrong in ({"version": 2, "offsets": {}}, {"version": 1, "physicalOffset": 4096}, {}):
        with pytest.raises(ValueError, match=r"the checkpoint is not one of a stream from a cluster .* checkpointLoc"):
            query.reader.latestOffset(wrong, ReadAllAvailable())


def test_limits_need_spark_4_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_stream, "ClusterStreamReader", ClusterStreamReader41)
    source = RocketmqSource({"nameServer": "127.0.0.1:1", "subscribe": "t", "maxOffsetsPerTrigger": "5"})
    with pytest.raises(ValueError, match=r"option maxOffsetsPerTrigger: with nameServer, it needs Spark 4.2 or newer"):
        source.streamReader(source.schema())


def test_the_reader_for_spark_4_1(broker: rocketc.Broker, producer: Producer, topic: str) -> None:
    given = {"nameServer": broker.name_server, "subscribePattern": f"{topic}.*", "startingOffsets": "earliest"}
    options = parse_options(given)
    assert options.cluster is not None

    def reader() -> ClusterStreamReader41:
        return ClusterStreamReader41(options, options.cluster, ["keys"])

    def rows(one: ClusterStreamReader41, start: Any, end: Any) -> list[str]:
        return sorted(
            key
            for task in one.partitions(start, end)
            for batch in one.read(task)
            for key in batch.column(0).to_pylist()
        )

    sent = send(producer, topic, 5)
    one = reader()
    start = one.initialOffset()
    end = one.latestOffset()
    assert rows(one, start, end) == sent
    sent = send(producer, topic, 2, 5)
    assert rows(one, end, second := one.latestOffset()) == sent
    broker.topics.create(f"{topic}_more", 1)
    sent = send(producer, topic, 1, 7) + send(producer, f"{topic}_more", 2, 8)
    two = reader()  # restarted after the second batch
    third = two.latestOffset()
    assert rows(two, second, third) == sent
    assert two.latestOffset() == third | {"firsts": {}} or rows(two, third, two.latestOffset()) == []


# what cannot be reached, and what is lost


def test_limited_ends() -> None:
    chance = random.Random(5)
    for _ in range(100):
        begins = [chance.randrange(50) for _ in range(5)]
        spans = {
            MessageQueue("t", "a", number): QueueRange(begin, begin + chance.choice([0, 1, 7, 500]))
            for number, begin in enumerate(begins)
        }
        total = sum(span.end - span.begin for span in spans.values())
        for most in (1, 4, 30, 2000, None):
            ends = limited_ends(spans, most)
            assert all(spans[queue].begin <= end <= spans[queue].end for queue, end in ends.items())
            taken = sum(end - spans[queue].begin for queue, end in ends.items())
            assert taken == (total if most is None else min(most, total))


class Brokers:
    """Scripted brokers: `ranges` has the offsets of all queues of a broker; a broker that is not in it is down."""

    def __init__(self, **ranges: tuple[int, int]) -> None:
        self.ranges, self.names_down = ranges, False
        self.cluster = ScriptedCluster(dict.fromkeys(ranges, stored))
        for name in ranges:
            scripted = self.cluster.brokers[name]
            scripted.answers |= {
                CODES["GET_MIN_OFFSET"]: lambda call, name=name: self._answer(name, 0),
                CODES["GET_MAX_OFFSET"]: lambda call, name=name: self._answer(name, 1),
                CODES["PULL_MESSAGE"]: self.pull,
            }
            scripted.codes = tuple(scripted.answers)
            self.cluster.servers[self.cluster.address(name)] = type(self.cluster.servers["10.0.0.5:9876"])([scripted])
        route = self.cluster.name_server.answers[105]
        self.cluster.name_server.answers[105] = lambda call: None if self.names_down else route(call)
        self.refuses = False

    def _answer(self, name: str, which: int) -> Answer | None:
        return Answer(values={"offset": self.ranges[name][which]}) if name in self.ranges else None

    def pull(self, call: Any) -> Answer:
        if self.refuses:
            return Answer(Code.NO_PERMISSION, remark="not for you")
        at = call.values["queueOffset"]
        values = {"suggestWhichBrokerId": 0, "minOffset": 0, "maxOffset": 99, "nextBeginOffset": at + 1}
        return Answer(values=values, body=rocketc.encode("orders", b"x", queue_offset=at))

    def play(self, work: Any, losses: Losses = STRICT, bounds: Bounds = NO_BOUNDS) -> Any:
        stream = ClusterStream(["orders"], bounds, True, losses)

        async def main() -> Any:
            async with TopicReader(self.cluster.producer()._access, timeout=2.0) as reader:
                return await work(stream, reader)

        return play(main())


def queue(broker: str, queue_id: int = 0) -> MessageQueue:
    return MessageQueue("orders", broker, queue_id)


def next_after(start: ClusterPosition) -> Callable[[ClusterStream, TopicReader], Awaitable[ClusterPosition]]:
    async def work(stream: ClusterStream, reader: TopicReader) -> ClusterPosition:
        return await stream.next(reader, start)

    return work


def test_deleted_before_the_stream_has_read_it(capfd: pytest.CaptureFixture[str]) -> None:
    start = ClusterPosition({queue("a"): 3, queue("a", 1): 9})
    brokers, work = Brokers(a=(7, 12)), next_after(start)
    with pytest.raises(DataLossError, match="orders queue 0 on a: queue offsets 3 to 7 are lost: the broker has dele"):
        brokers.play(work)
    end = brokers.play(work, Losses(False))
    assert [tuple(span[1:]) for span in end.spans(start)] == [(7, 12), (9, 12)]
    assert ClusterPosition.from_json(json.loads(json.dumps(end.to_json()))) == end
    assert "queue offsets 3 to 7 are lost" in capfd.readouterr().err


def test_a_queue_that_was_made_again() -> None:
    start = ClusterPosition({queue("a"): 20, queue("a", 1): 5})
    brokers, work = Brokers(a=(0, 12)), next_after(start)
    with pytest.raises(DataLossError, match="offsets 12 to 20 are lost: the queue ends at 12; the stream has read up"):
        brokers.play(work)
    end = brokers.play(work, Losses(False))
    assert [tuple(span) for span in end.spans(start)] == [(queue("a", 1), 5, 12)]
    assert end.offsets[queue("a")] == 12


@pytest.mark.parametrize(("first", "end"), [(0, 12), (24, 24)])
def test_a_loss_without_new_messages_moves_the_stream(first: int, end: int, capfd: pytest.CaptureFixture[str]) -> None:
    """Otherwise the messages of a queue that was made again are lost until it is as long as the old one."""
    start, brokers = ClusterPosition({queue("a"): 20, queue("a", 1): 20}), Brokers(a=(first, end))

    async def work(stream: ClusterStream, reader: TopicReader) -> None:
        after = await stream.next(reader, start)
        assert after.offsets == {queue("a"): end, queue("a", 1): end}
        assert after.spans(start) == []
        assert capfd.readouterr().err.count("are lost") == 2
        assert await stream.next(reader, after) is after
        brokers.ranges["a"] = (first, end + 3)
        new = await stream.next(reader, after)
        assert [tuple(span[1:]) for span in new.spans(after)] == [(end, end + 3)] * 2
        assert "are lost" not in capfd.readouterr().err

    brokers.play(work, Losses(False))


def test_a_broker_that_is_down_waits(capfd: pytest.CaptureFixture[str]) -> None:
    brokers = Brokers(a=(0, 5), b=(0, 7))

    async def work(stream: ClusterStream, reader: TopicReader) -> None:
        start = await stream.begin(reader, "earliest", None)
        first = await stream.next(reader, start)
        assert sum(span.end - span.begin for span in first.spans(start)) == 24
        brokers.ranges = {"a": (0, 6)}
        second = await stream.next(reader, first)
        assert [span.queue for span in second.spans(first)] == [queue("a", 0), queue("a", 1)]
        assert second.offsets[queue("b")] == 7
        brokers.ranges = {"a": (0, 6), "b": (0, 9)}
        third = await stream.next(reader, second)
        assert [tuple(span) for span in third.spans(second)] == [(queue("b", 0), 7, 9), (queue("b", 1), 7, 9)]
        assert await stream.next(reader, third) is third
        brokers.ranges = {}
        assert await stream.next(reader, third) is third
        brokers.ranges = {"a": (0, 6), "b": (0, 10)}
        assert (await stream.next(reader, third)).offsets[queue("b")] == 10

    brokers.play(work)
    assert capfd.readouterr().err.count("rocketc: b: its queues wait: ") == 1


def test_a_name_server_that_is_down(capfd: pytest.CaptureFixture[str]) -> None:
    brokers = Brokers(a=(0, 5))

    async def work(stream: ClusterStream, reader: TopicReader) -> None:
        start = await stream.begin(reader, "latest", None)
        brokers.names_down, brokers.ranges = True, {"a": (0, 8)}
        end = await stream.next(reader, start)
        assert [tuple(span[1:]) for span in end.spans(start)] == [(5, 8), (5, 8)]

    brokers.play(work)
    assert "rocketc: the queues known before are read: 10.0.0.5:9876: " in capfd.readouterr().err


def test_nothing_can_be_reached() -> None:
    brokers = Brokers(a=(0, 5))

    async def work(stream: ClusterStream, reader: TopicReader) -> None:
        brokers.ranges = {}
        await stream.next(reader, ClusterPosition())

    with pytest.raises(rocketc.RocketcError, match=r"10\.0\.1\.0:10911: "):
        brokers.play(work)
    brokers.names_down = True
    with pytest.raises(rocketc.RocketcError, match=r"10\.0\.0\.5:9876: "):
        brokers.play(work)
    assert issubclass(NotSentError, rocketc.RocketcError)


def test_a_refused_pull_is_an_error_of_the_driver() -> None:
    brokers = Brokers(a=(0, 5))
    brokers.refuses = True

    async def work(stream: ClusterStream, reader: TopicReader) -> None:
        await stream.next(reader, await stream.begin(reader, "earliest", None))

    with pytest.raises(rocketc.RocketcError, match="not for you"):
        brokers.play(work)


def test_a_starting_offset_that_was_deleted() -> None:
    bounds = Bounds(None, {"orders": {QueueName("a", 0): 3}})

    async def work(stream: ClusterStream, reader: TopicReader) -> ClusterPosition:
        return await stream.begin(reader, "earliest", None)

    with pytest.raises(DataLossError, match="queue offsets 3 to 7 are lost: the queue begins at 7"):
        Brokers(a=(7, 12)).play(work, bounds=bounds)
    assert Brokers(a=(7, 12)).play(work, Losses(False), bounds).offsets[queue("a")] == 7


# with Spark


def test_a_query_that_is_started_again(
    spark: SparkSession, broker: rocketc.Broker, producer: Producer, topic: str, tmp_path: Path
) -> None:
    def run(**options: str) -> Any:
        given = {"nameServer": broker.name_server, "subscribe": topic, "startingOffsets": "earliest", **options}
        read = spark.readStream.format("rocketmq").options(columns="keys,queueOffset", **given).load()
        write = read.writeStream.format("parquet").option("path", str(tmp_path / "sink"))
        query = write.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        return query.lastProgress

    sent = send(producer, topic, 30)
    progress = run(maxOffsetsPerTrigger="20")
    [source] = progress["sources"]
    assert json.loads(source["endOffset"])["version"] == 1
    assert json.loads(source["latestOffset"])["offsets"][topic]
    sent += send(producer, topic, 12, 30)
    shutil.rmtree(tmp_path / "checkpoint" / "commits")  # killed before the last batch was recorded as done
    run()
    rows = spark.read.parquet(str(tmp_path / "sink")).collect()
    assert sorted(row["keys"] for row in rows) == sent
