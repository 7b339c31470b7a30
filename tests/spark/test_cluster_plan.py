"""Which queues and offsets of a cluster a query reads, and how tasks read them; without Spark."""

import asyncio
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.ports import free_port
from unit.client.scripted import Cluster as ScriptedCluster
from unit.client.scripted import play, stored

import rocketc
from rocketc.client import Producer
from rocketc.client.access import access_to
from rocketc.client.queue_range import QueueRange
from rocketc.client.queue_spans import SpanReader
from rocketc.client.routes import MessageQueue
from rocketc.client.security import Credentials
from rocketc.client.topic_reader import TopicReader
from rocketc.client.topic_scan import Expression
from rocketc.errors import AnswerError, NotSentError
from rocketc.read.parallel import processors
from rocketc.read.record_stream import RecordStream
from rocketc.read.sql import whole_sql
from rocketc.remoting.codes import Code
from rocketc.remoting.requests import CODES
from rocketc.remoting.server import Answer
from rocketc.spark.cluster_offsets import Bounds, QueueName
from rocketc.spark.cluster_options import Cluster
from rocketc.spark.cluster_plan import (
    LEAST_MESSAGES,
    MOST_MESSAGES,
    BatchPlan,
    Losses,
    Span,
    divide,
    named_offsets,
    ranges_of,
)
from rocketc.spark.cluster_reader import ask, read_spans
from rocketc.spark.growing_log import DataLossError

COUNT = 40
STRICT, LENIENT = Losses(), Losses(fails=False)


@pytest.fixture(scope="module")
def broker() -> Iterator[rocketc.Broker]:
    with rocketc.Broker(enable_property_filter=True) as one:
        one.topics.create("orders", 4)
        one.topics.create("wide", 40)
        with Producer("shop", one.name_server) as producer:
            for i in range(COUNT):
                producer.send("orders", b"body %d" % i, tags="web" if i % 2 else "app", keys=f"k{i}")
            producer.send("wide", b"one")
        yield one


def plan(broker: rocketc.Broker, *topics: Any, **how: Any) -> list[tuple[Span, ...]]:
    return ask(Cluster(broker.name_server), BatchPlan(topics or ("orders",), **how).tasks)


def offsets(tasks: list[tuple[Span, ...]]) -> dict[int, list[tuple[int, int]]]:
    out: dict[int, list[tuple[int, int]]] = {}
    for span in [span for task in tasks for span in task]:
        out.setdefault(span.queue.queue_id, []).append((span.begin, span.end))
    return {queue_id: sorted(spans) for queue_id, spans in sorted(out.items())}


def rows(broker: rocketc.Broker, spans: Any, columns: list[str], **options: Any) -> list[tuple[Any, ...]]:
    cluster = Cluster(broker.name_server)
    found = []
    for batch in read_spans(spans, columns, options, cluster, Losses()):
        found += [tuple(row.values()) for row in batch.to_pylist()]
    return found


# the plan


def test_a_plan_has_all_queues(broker: rocketc.Broker) -> None:
    tasks = plan(broker)
    assert offsets(tasks) == {number: [(0, 10)] for number in range(4)}
    assert len(tasks) == 1
    assert offsets(plan(broker, min_tasks=8)) == {number: [(0, 5), (5, 10)] for number in range(4)}
    assert len(plan(broker, min_tasks=8)) == 8


def test_topics_by_pattern(broker: rocketc.Broker) -> None:
    tasks = plan(broker, re.compile("or.*|wi.*"))
    assert {span.queue.topic for task in tasks for span in task} == {"orders", "wide"}
    assert plan(broker, re.compile("nothing.*")) == []


def test_a_topic_that_does_not_exist(broker: rocketc.Broker) -> None:
    with pytest.raises(ValueError, match=r"option subscribe: no topic order in this cluster; .*orders\? set failOnMi"):
        plan(broker, "order")
    with pytest.raises(ValueError, match=r"option assign: no topic order in this cluster; did you mean orders\? set"):
        plan(broker, "order", bounds=Bounds({"order": (QueueName(None, 0),)}))
    assert plan(broker, "order", must_exist=False) == []
    assert plan(broker, "order", "orders", must_exist=False) == plan(broker)


def test_assigned_queues(broker: rocketc.Broker) -> None:
    name = rocketc_broker_name(broker)
    bounds = Bounds({"orders": (QueueName(None, 1), QueueName(name, 3), QueueName("other", 0))})
    assert offsets(plan(broker, bounds=bounds)) == {1: [(0, 10)], 3: [(0, 10)]}


def rocketc_broker_name(broker: rocketc.Broker) -> str:
    return plan(broker)[0][0].queue.broker_name


def test_starting_and_ending_offsets(broker: rocketc.Broker) -> None:
    name = rocketc_broker_name(broker)
    starting = {"orders": {QueueName(None, 0): 3, QueueName(name, 1): -2, QueueName(None, 2): -1}}
    ending = {"orders": {QueueName(None, 0): 7, QueueName(name, 1): -1, QueueName(None, 3): 0}}
    assert offsets(plan(broker, bounds=Bounds(None, starting, ending))) == {0: [(3, 7)], 1: [(0, 10)]}


@pytest.mark.parametrize("offset", [10, 11])
def test_a_starting_offset_after_the_end(broker: rocketc.Broker, offset: int) -> None:
    bounds = Bounds(None, {"orders": {QueueName(None, 0): offset}})
    assert 0 not in offsets(plan(broker, bounds=bounds))


def test_an_ending_offset_after_the_end(broker: rocketc.Broker, capfd: pytest.CaptureFixture[str]) -> None:
    bounds = Bounds(None, {}, {"orders": {QueueName(None, 0): 12}})
    with pytest.raises(
        DataLossError, match=r"orders queue 0 on .*: queue offsets 10 to 12 are lost: the queue ends at 10; use"
    ):
        plan(broker, bounds=bounds)
    assert offsets(plan(broker, bounds=bounds, losses=LENIENT))[0] == [(0, 10)]
    assert "queue offsets 10 to 12 are lost: the queue ends at 10" in capfd.readouterr().err


def test_offsets_of_a_queue_that_does_not_exist(broker: rocketc.Broker) -> None:
    for name in (QueueName(None, 9), QueueName("other", 0)):
        bounds = Bounds(None, {"orders": {name: 1}})
        with pytest.raises(
            ValueError, match=f"option startingOffsets: 'orders' does not have queue {name}, but .*:0, .*:3$"
        ):
            plan(broker, bounds=bounds)
        with pytest.raises(ValueError, match=f"option endingOffsets: 'orders' does not have queue {name}, but "):
            plan(broker, bounds=Bounds(None, {}, {"orders": {name: 1}}))


def test_a_queue_id_of_two_brokers_has_to_name_its_broker() -> None:
    queues = [MessageQueue("orders", name, 0) for name in "ab"] + [MessageQueue("orders", "a", 1)]
    with pytest.raises(ValueError, match="option endingOffsets: 'orders' has several queues 0; write a:0 or b:0"):
        named_offsets("endingOffsets", {"orders": {QueueName(None, 0): 1}}, queues)
    assert named_offsets("endingOffsets", {"orders": {QueueName(None, 1): 5}}, queues) == {queues[2]: 5}
    assert named_offsets("endingOffsets", {"others": {QueueName(None, 1): 5}}, queues) == {}


def test_times(broker: rocketc.Broker) -> None:
    times = sorted(message.store_timestamp for message in rocketc.scan(broker.path, topics="orders"))
    tasks = plan(broker, begin=times[0], end=times[-1] + 1)
    assert offsets(tasks) == {number: [(0, 10)] for number in range(4)}
    assert plan(broker, begin=times[-1] + 10_000) == []
    for time in {*times}:
        before = plan(broker, end=time)
        behind = plan(broker, begin=time)
        found = {row[0] for row in rows(broker, [s for t in before for s in t], ["keys"], end=time)}
        assert len(found) == sum(one < time for one in times)
        found = {row[0] for row in rows(broker, [s for t in behind for s in t], ["keys"], begin=time)}
        assert len(found) == sum(one >= time for one in times)


def test_filters_of_the_query(broker: rocketc.Broker) -> None:
    assert offsets(plan(broker, queue_ids=frozenset({2, 9}))) == {2: [(0, 10)]}
    assert plan(broker, narrowed=("wide",)) == []
    assert offsets(plan(broker, "orders", "wide", narrowed=("orders", "others"))) == offsets(plan(broker))


def test_many_queues_are_asked_for_at_once(broker: rocketc.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(self: Any, queue: Any) -> Any:
        raise AssertionError

    with monkeypatch.context() as patch:
        patch.setattr(TopicReader, "range_of", fail)
        assert sum(end - begin for spans in offsets(plan(broker, "wide")).values() for begin, end in spans) == 1

    async def refuse(self: Any, topic: Any) -> Any:
        raise AnswerError("broker", "no permission", Code.NO_PERMISSION)

    monkeypatch.setattr(TopicReader, "state", refuse)
    assert sum(end - begin for spans in offsets(plan(broker, "wide")).values() for begin, end in spans) == 1


def test_offsets_that_cannot_be_are_those_of_an_empty_queue() -> None:
    queues = [MessageQueue("orders", "a", number) for number in range(40)]

    class Reader:
        async def state(self, topic: str) -> Any:
            return {queue: (*[(-5, 3), (-1, -1), (7, 5)][queue.queue_id % 3], 0) for queue in queues}

        async def ranges(self, queues: Any) -> Any:
            return {}

    found = asyncio.run(ranges_of(Reader(), queues))  # type: ignore[arg-type]
    assert [tuple(found[queue]) for queue in queues[:3]] == [(0, 3), (0, 0), (7, 7)]


def test_ranges_are_in_the_order_of_the_queues(broker: rocketc.Broker) -> None:
    async def both(reader: TopicReader) -> tuple[list[MessageQueue], Any]:
        queues = [*await reader.queues("wide"), *await reader.queues("orders")]
        return queues, await ranges_of(reader, queues)

    queues, ranges = ask(Cluster(broker.name_server), both)
    assert list(ranges) == queues
    assert ranges[queues[-1]] == QueueRange(0, 10)


# how offsets are divided


def spans_of(*sizes: int) -> list[Span]:
    return [Span(MessageQueue("t", "a", number), 5, 5 + size) for number, size in enumerate(sizes)]


@pytest.mark.parametrize("sizes", [(0,), (1,), (7, 0, 3), (100, 1, 1, 1), (1_000_000, 3)])
@pytest.mark.parametrize("least", [None, 1, 2, 5, 50])
def test_each_offset_is_in_one_task(sizes: tuple[int, ...], least: int | None) -> None:
    tasks = divide(spans_of(*sizes), least)
    by_queue: dict[int, int] = {}
    for span in [span for task in tasks for span in task]:
        assert span.begin == by_queue.get(span.queue.queue_id, 5)
        assert span.end > span.begin
        by_queue[span.queue.queue_id] = span.end
    assert by_queue == {number: 5 + size for number, size in enumerate(sizes) if size}
    assert len(tasks) >= min(least or 1, sum(sizes))


def test_an_offset_that_is_huge_does_not_make_an_endless_plan() -> None:
    end = (1 << 63) - 1
    tasks = divide([Span(QUEUE, 0, end), Span(QUEUE._replace(queue_id=1), 0, end)])
    assert len(tasks) <= 100_002  # and a rest for each queue
    assert sum(span.end - span.begin for task in tasks for span in task) == 2 * end


def test_short_queues_are_read_together() -> None:
    assert len(divide(spans_of(*[10] * 1000))) == 1
    assert len(divide(spans_of(LEAST_MESSAGES, LEAST_MESSAGES))) == min(2, processors())
    assert len(divide(spans_of(MOST_MESSAGES * 40))) == max(40, processors())


# what a task reads


def test_the_rows_are_those_of_the_store(broker: rocketc.Broker) -> None:
    columns = [name for name in rocketc.COLUMN_NAMES if name not in ("file", "brokerName")]
    expected = rocketc.scan(broker.path, topics="orders", columns=columns).to_arrow().to_pylist()
    for least in (1, 3, 40):
        found = []
        for task in plan(broker, min_tasks=least):
            for batch in read_spans(task, columns, {}, Cluster(broker.name_server), Losses()):
                found += batch.to_pylist()
        assert sorted(found, key=lambda row: row["physicalOffset"]) == expected


def test_the_column_file_is_null(broker: rocketc.Broker) -> None:
    [task] = plan(broker, min_tasks=1)
    assert set(rows(broker, task, ["file"])) == {(None,)}


@pytest.mark.parametrize(
    "options",
    [
        {"tags": ["web"]},
        {"tags": ["web||nothing"]},
        {"keys": ["k5"]},
        {"sql": whole_sql("TAGS = 'web' AND KEYS <> 'k3'")},
        {"tags": ["*"]},
    ],
)
def test_filters(broker: rocketc.Broker, options: dict[str, Any]) -> None:
    [task] = plan(broker, min_tasks=1)
    expected = rocketc.scan(broker.path, topics="orders", columns=["keys"], **options).to_arrow()["keys"].to_pylist()
    assert sorted(rows(broker, task, ["keys"], **options)) == sorted((key,) for key in expected)


def test_a_task_without_messages(broker: rocketc.Broker) -> None:
    assert rows(broker, [], ["keys"]) == []


def test_connections_are_used_again(broker: rocketc.Broker) -> None:
    async def it(reader: TopicReader) -> TopicReader:
        return reader

    assert ask(Cluster(broker.name_server), it) is ask(Cluster(broker.name_server), it)
    assert ask(Cluster(broker.name_server), it) is not ask(Cluster(broker.name_server, consumer_group="g"), it)


# messages that are lost, on scripted brokers

QUEUE = MessageQueue("orders", "a", 0)


def record(offset: int) -> bytes:
    return rocketc.encode("orders", b"%d" % offset, queue_offset=offset, phy_offset=offset * 200)


class Queue:
    """A queue of a scripted broker with the offsets [first, end) without those in `gaps`."""

    def __init__(self, first: int, end: int, gaps: Any = (), most: int = 4) -> None:
        self.first, self.end, self.gaps, self.most = first, end, set(gaps), most
        self.pulls: list[int] = []
        cluster = ScriptedCluster({"a": stored})
        broker = cluster.brokers["a"]
        broker.answers |= {
            CODES["PULL_MESSAGE"]: self.pull,
            CODES["GET_MIN_OFFSET"]: lambda call: Answer(values={"offset": self.first}),
            CODES["GET_MAX_OFFSET"]: lambda call: Answer(values={"offset": self.end}),
        }
        broker.codes = tuple(broker.answers)
        cluster.servers[cluster.address("a")] = type(cluster.servers["10.0.0.5:9876"])([broker])
        self.cluster = cluster

    def pull(self, call: Any) -> Answer:
        at = call.values["queueOffset"]
        self.pulls.append(at)
        values = {"suggestWhichBrokerId": 0, "minOffset": self.first, "maxOffset": self.end}
        if at < self.first or at > self.end:
            there = self.first if at < self.first else self.end
            return Answer(Code.PULL_OFFSET_MOVED, values=values | {"nextBeginOffset": there})
        if at == self.end:
            return Answer(Code.PULL_NOT_FOUND, values=values | {"nextBeginOffset": at})
        behind = min(at + self.most, self.end)
        there = [offset for offset in range(at, behind) if offset not in self.gaps]
        values["nextBeginOffset"] = behind
        if not there:
            return Answer(Code.PULL_RETRY_IMMEDIATELY, values=values)
        return Answer(values=values, body=b"".join(map(record, there)))

    def read(self, begin: int, end: int, losses: Losses = STRICT, tags: str = "*") -> list[int]:
        async def main() -> list[int]:
            access = self.cluster.producer()._access
            async with TopicReader(access, timeout=2.0) as reader:
                reading, found = SpanReader(reader, Span(QUEUE, begin, end), Expression(tags), losses), []
                try:
                    while block := await reading.next():
                        found += [
                            message.queue_offset
                            for message in RecordStream("an answer", lambda idle, block=block: [block])
                        ]
                        self.read_one(found)
                finally:
                    await reading.close()
                return found

        return play(main())

    def read_one(self, found: list[int]) -> None:
        """For tests: called after each answer."""


def test_a_span_is_read_to_its_end() -> None:
    queue = Queue(0, 20)
    assert queue.read(3, 14) == list(range(3, 14))
    assert queue.pulls == [3, 7, 11]


@pytest.mark.parametrize("tags", ["*", "web"])
def test_deleted_before_it_is_read(tags: str, capfd: pytest.CaptureFixture[str]) -> None:
    why = "orders queue 0 on a: queue offsets 3 to 8 are lost: the broker has deleted them: the queue begins at 8; use "
    with pytest.raises(DataLossError, match=why):
        Queue(8, 20).read(3, 14, tags=tags)
    assert Queue(8, 20).read(3, 14, LENIENT, tags) == list(range(8, 14))
    assert "rocketc: orders queue 0 on a: queue offsets 3 to 8 are lost: " in capfd.readouterr().err
    assert Queue(16, 20).read(3, 14, LENIENT, tags) == []
    assert (
        "queue offsets 3 to 14 are lost: the broker has deleted them: the queue begins at 16" in capfd.readouterr().err
    )


def test_deleted_while_it_is_read() -> None:
    def delete(queue: Queue, found: list[int]) -> None:
        queue.first = 18

    for losses in (Losses(), LENIENT):
        queue = Queue(0, 24)
        queue.read_one = lambda found, queue=queue: delete(queue, found)  # type: ignore[method-assign, misc]
        if losses.fails:
            with pytest.raises(DataLossError, match="queue offsets 4 to 18 are lost"):
                queue.read(0, 22, losses)
        else:
            assert queue.read(0, 22, losses) == [*range(4), *range(18, 22)]


@pytest.mark.parametrize(("end", "said"), [(9, "9 to 14"), (0, "3 to 14"), (3, "3 to 14")])
def test_a_queue_that_ends_before_the_span(end: int, said: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DataLossError, match=f"queue offsets {said} are lost: the queue ends at {end}"):
        Queue(0, end).read(3, 14)
    assert Queue(0, end).read(3, 14, LENIENT) == list(range(3, end))
    assert f"queue offsets {said} are lost: the queue ends at {end}" in capfd.readouterr().err


def test_a_slave_that_lacks_the_last_messages_for_a_moment() -> None:
    queue = Queue(0, 6)

    def grow(call: Any) -> Answer:
        if len(queue.pulls) == 3:
            queue.end = 20
        return Queue.pull(queue, call)

    queue.cluster.brokers["a"].answers[CODES["PULL_MESSAGE"]] = grow
    assert queue.read(3, 14) == list(range(3, 14))


@pytest.mark.parametrize(("seconds", "is_read"), [(20, True), (90, False)])
def test_a_broker_that_is_down_for_a_while(seconds: int, is_read: bool, caplog: pytest.LogCaptureFixture) -> None:
    queue = Queue(0, 20)
    address = queue.cluster.address("a")

    def stop(found: list[int]) -> None:
        server = queue.cluster.servers.pop(address, None)
        queue.cluster.cut(address)
        if server is not None:
            asyncio.get_running_loop().call_later(seconds, queue.cluster.servers.__setitem__, address, server)
        queue.read_one = lambda found: None  # type: ignore[method-assign]

    queue.read_one = stop  # type: ignore[method-assign]
    if is_read:
        assert queue.read(3, 14) == list(range(3, 14))
    else:
        with pytest.raises(NotSentError, match=address):
            queue.read(3, 14)
    assert "orders queue 0 on a is not read now; it is tried again: " in caplog.text


def test_a_task_that_begins_while_the_name_server_is_down() -> None:
    queue, address = Queue(0, 20), "10.0.0.5:9876"

    async def main() -> None:
        async with TopicReader(queue.cluster.producer()._access, timeout=2.0) as reader:
            server = queue.cluster.servers.pop(address)
            asyncio.get_running_loop().call_later(10, queue.cluster.servers.__setitem__, address, server)
            reading = SpanReader(reader, Span(QUEUE, 0, 4), Expression(), STRICT)
            await reading.try_to_begin()
            assert await reading.next() == b"".join(map(record, range(4)))

    play(main())


@pytest.mark.parametrize(("seconds", "is_read"), [(10, True), (90, False)])
def test_a_name_server_that_does_not_know_the_topic_for_a_while(seconds: int, is_read: bool) -> None:
    """It was started again: its brokers register within half a minute."""
    queue = Queue(0, 20)
    answers = queue.cluster.name_server.answers
    route = answers[CODES["GET_ROUTEINFO_BY_TOPIC"]]
    began: list[float] = []

    def late(call: Any) -> Answer:
        now = asyncio.get_running_loop().time()
        began.append(now)
        return route(call) if now >= began[0] + seconds else Answer(Code.TOPIC_NOT_EXIST, remark="no route")

    answers[CODES["GET_ROUTEINFO_BY_TOPIC"]] = late
    if is_read:
        assert queue.read(3, 14) == list(range(3, 14))
    else:
        with pytest.raises(
            NotSentError, match="orders queue 0 on a: the name server does not know a broker of this topic"
        ):
            queue.read(3, 14)


def test_gaps() -> None:
    gaps = range(4, 8)
    assert Queue(0, 20, [5]).read(3, 14) == [3, 4, *range(6, 14)]  # a topic that keeps the last message of each key
    with pytest.raises(DataLossError, match="queue offsets 4 to 8 are lost: the broker does not have them any more"):
        Queue(0, 20, gaps).read(0, 14)
    assert Queue(0, 20, gaps).read(0, 14, tags="web") == [*range(4), *range(8, 14)]
    assert Queue(0, 20, range(2, 20)).read(0, 14, tags="web") == [0, 1]


class Batches(Queue):
    """A queue whose records have five messages each."""

    def pull(self, call: Any) -> Answer:
        first = call.values["queueOffset"] // 5 * 5
        values = {"suggestWhichBrokerId": 0, "minOffset": 0, "maxOffset": self.end, "nextBeginOffset": first + 5}
        return Answer(values=values, body=record(first))


def test_a_task_that_begins_within_a_record_of_several_messages() -> None:
    assert Batches(0, 20).read(0, 7) == [0, 5]
    assert Batches(0, 20).read(7, 20) == [10, 15]  # the record at 5 is of the task before


@pytest.mark.parametrize(("before", "after", "step"), [(1, 1, 2), (0, 3, 1)])
def test_answers_that_overlap_give_each_message_once(before: int, after: int, step: int) -> None:
    class Overlaps(Queue):
        def pull(self, call: Any) -> Answer:
            at = call.values["queueOffset"]
            values = {"suggestWhichBrokerId": 0, "minOffset": 0, "maxOffset": self.end, "nextBeginOffset": at + step}
            return Answer(values=values, body=b"".join(map(record, range(max(at - before, 0), at + after + 1))))

    assert Overlaps(0, 20).read(0, 8) == list(range(8))


def test_a_pull_under_way_is_ended() -> None:
    queue = Queue(0, 20)

    async def main() -> None:
        async with TopicReader(queue.cluster.producer()._access, timeout=2.0) as reader:
            reading = SpanReader(reader, Span(QUEUE, 0, 20), Expression(), Losses())
            await reading.next()
            await asyncio.wait_for(reading.close(), 1)

    play(main())


@pytest.mark.parametrize(
    ("body", "wanted"), [(b"\0" * 100, b"\0" * 100), (record(3) + b"\0" * 100, record(3))], ids=["alone", "after"]
)
def test_what_is_not_a_record_is_reported_once(body: bytes, wanted: bytes) -> None:
    """After a record it is left out: the next pull begins there, and its answer has these bytes alone."""
    queue = Queue(0, 20)
    values = {"suggestWhichBrokerId": 0, "minOffset": 0, "maxOffset": 20, "nextBeginOffset": 7}
    queue.cluster.brokers["a"].answers[CODES["PULL_MESSAGE"]] = Answer(values=values, body=body)

    async def main() -> bytes:
        async with TopicReader(queue.cluster.producer()._access, timeout=2.0) as reader:
            reading = SpanReader(reader, Span(QUEUE, 3, 20), Expression(), Losses())
            try:
                return await reading.next()
            finally:
                await reading.close()

    assert play(main()) == wanted


def test_a_name_server_that_is_not_there() -> None:
    with pytest.raises(rocketc.RocketcError, match=r"127\.0\.0\.1:1"):
        ask(Cluster("127.0.0.1:1"), BatchPlan(("orders",)).tasks)
    assert access_to("127.0.0.1:1").addresses == ("127.0.0.1:1",)


ACCOUNTS = """\
accounts:
- accessKey: allowed-account
  secretKey: "a long secret"
  topicPerms: [orders=PUB|SUB]
  groupPerms: [TOOLS_CONSUMER=SUB]
- accessKey: denied-account
  secretKey: "a long secret"
  topicPerms: [orders=PUB]
  groupPerms: [TOOLS_CONSUMER=SUB]
"""


def test_access_control(tmp_path: Path) -> None:
    conf = tmp_path / "home" / "conf"
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(ACCOUNTS)
    allowed, denied = (Credentials(f"{name}-account", "a long secret") for name in ("allowed", "denied"))
    with rocketc.Broker(acl_enable=True, rocketmq_home=str(tmp_path / "home")) as broker:
        broker.topics.create("orders", 2)
        with Producer("shop", broker.name_server, credentials=allowed) as producer:
            producer.send("orders", b"one", keys="k1")
        cluster = Cluster(broker.name_server, allowed)
        [task] = ask(cluster, BatchPlan(("orders",)).tasks)
        [batch] = read_spans(task, ["keys"], {}, cluster, Losses())
        assert batch.to_pylist() == [{"keys": "k1"}]
        wrong = Credentials("allowed-account", "another secret")
        for refused, why in ((denied, "orders"), (wrong, "ignature"), (None, "accessKey")):
            with pytest.raises(AnswerError, match=why) as caught:  # before any task runs
                ask(Cluster(broker.name_server, refused), BatchPlan(("orders",)).tasks)
            assert "secret" not in str(caught.value)


@pytest.mark.long
def test_a_broker_that_is_killed_while_it_is_read(tmp_path: Path) -> None:
    """The broker stops in the middle of a task, and starts again at the same address with the same store."""
    count, store = 60_000, str(tmp_path / "store")
    ports = {"port": free_port(2), "namesrv_port": free_port()}
    first, second = (rocketc.Broker(store, process=True, **ports) for _ in range(2))
    first.start()
    first.topics.create("orders", 2)
    with Producer("shop", first.name_server) as producer:
        for _ in range(count // 500):
            producer.send_many("orders", [b"x" * 1000] * 500)
    cluster = Cluster(first.name_server)
    [task] = ask(cluster, BatchPlan(("orders",), min_tasks=1).tasks)
    places = list[tuple[int, int]]()
    batches = read_spans(task, ["queueId", "queueOffset", "body"], {}, cluster, Losses())
    try:
        for number, batch in enumerate(batches):
            places += zip(batch["queueId"].to_pylist(), batch["queueOffset"].to_pylist(), strict=True)
            if number == 0:
                first.close()
                threading.Timer(3, second.start).start()
    finally:
        second.close()
    assert number > 1
    assert len(places) == len(set(places)) == count


def test_brokers_select_by_sql(broker: rocketc.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    [task] = plan(broker, min_tasks=1)
    sql, pulls, pull = whole_sql("KEYS = 'k3'"), list[Any](), TopicReader.pull

    async def noted(self: TopicReader, *where: Any, **how: Any) -> Any:
        pulls.append(await pull(self, *where, **how))
        return pulls[-1]

    monkeypatch.setattr(TopicReader, "pull", noted)
    monkeypatch.setattr(TopicReader, "direct_pulls", lambda *_, **__: None)
    assert rows(broker, task, ["keys"], sql=sql) == [("k3",)]
    assert sum(len(one.places) for one in pulls) == 1
