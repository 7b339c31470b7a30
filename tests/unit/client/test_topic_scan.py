"""TopicReader and TopicScan: what is pulled, from where, and that nothing of it stays in the broker."""

import asyncio
import re
import threading
import urllib.parse

import pytest
from unit.client.scripted import NAME_SERVER, Cluster, play, stored

import rocketc
from rocketc.client import Admin, NewMessage
from rocketc.client.access import access_to
from rocketc.client.queue_range import QueueRange
from rocketc.client.topic_reader import TopicReader
from rocketc.client.topic_scan import TopicScan, TopicStart
from rocketc.errors import AnswerError, ClosedError, NoAnswerError, NotSentError, TopicNotFoundError
from rocketc.remoting.codes import Code
from rocketc.remoting.requests import CODES
from rocketc.remoting.server import Answer

COUNT = 40


@pytest.fixture(scope="module")
def topic(broker, producer):
    """A topic with COUNT messages in four queues, one of them large."""
    name = "scanned"
    for i in range(COUNT - 2):
        body = b"x" * 9000 if i == 7 else b"body %d" % i
        producer.send(name, body, tags="web" if i % 2 else "app", keys=f"k{i}")
    producer.send_many(name, [NewMessage(b"in a batch", tags="web"), b"in a batch, too"])
    return name


def scan(broker, *topics, **options):
    return TopicScan(access_to(broker.name_server), topics, **options)


def stored_in(broker, name):
    """The same messages, read from the files of the broker."""
    out = []
    for message in rocketc.scan(broker.path, topics=name):
        found = message.to_dict()
        found.pop("file")
        out.append({**found, "brokerName": "broker-a"})
    return out


def test_the_messages_are_those_of_the_store(broker, topic):
    one = scan(broker, topic)
    found = [message.to_dict() for message in one]
    assert len(found) == COUNT
    assert found == stored_in(broker, topic)
    assert one.report.records == COUNT
    assert sum(one.ends.values()) == COUNT


def test_each_pass_reads_again(broker, topic):
    one = scan(broker, topic, columns=["keys"])
    assert one.count() == COUNT
    assert len(one.to_arrow()) == COUNT


@pytest.mark.parametrize(
    ("options", "matches"),
    [
        ({"tags": "web"}, lambda m: m.get("tags") == "web"),
        ({"tags": ["web||nothing"]}, lambda m: m.get("tags") == "web"),
        ({"tags": "*"}, lambda m: True),
        ({"keys": "k5"}, lambda m: m.get("keys") == "k5"),
        ({"sql": "TAGS = 'web' AND KEYS <> 'k4'"}, lambda m: m.get("tags") == "web" and m.get("keys", "k4") != "k4"),
        ({"queues": 2}, lambda m: m["queueId"] == 2),
        ({"queues": [9]}, lambda m: False),
        ({"where": lambda m: m.tags is None}, lambda m: m.get("tags") is None),
    ],
)
def test_filters(broker, topic, options, matches):
    found = [message.to_dict() for message in scan(broker, topic, **options)]
    assert found == [each for each in stored_in(broker, topic) if matches(each)]


def test_times(broker, topic):
    times = sorted({each["storeTimestamp"] for each in stored_in(broker, topic)})
    begin, end = times[len(times) // 3], times[2 * len(times) // 3]
    for options in ({"begin": begin}, {"end": end}, {"begin": begin, "end": end}, {"begin": times[-1] + 10_000}):
        found = [message.msg_id for message in scan(broker, topic, **options)]
        assert found == [message.msg_id for message in rocketc.scan(broker.path, topics=topic, **options)]


def test_where_a_scan_begins(broker, topic):
    def offsets(**options):
        out = {}
        for message in scan(broker, topic, **options):
            out.setdefault(message.queue_id, []).append(message.queue_offset)
        return out

    ends = {queue: numbers[-1] + 1 for queue, numbers in offsets().items()}
    assert offsets(start_at=TopicStart("last", 2)) == {queue: [end - 2, end - 1] for queue, end in ends.items()}
    assert offsets(start_at=TopicStart("offset", 8)) == {queue: list(range(8, end)) for queue, end in ends.items()}
    assert offsets(start_at=TopicStart("end")) == {}
    # the last ones that match are chosen by the caller, so all of them are read
    assert sum(map(len, offsets(start_at=TopicStart("last", 1), tags="app").values())) == COUNT // 2 - 1


def test_topics_by_pattern(broker, topic, producer, caplog):
    producer.send("scanned-2", b"another")
    assert scan(broker, re.compile("scanned.*")).count() == COUNT + 1
    assert scan(broker, topic, re.compile("none.*"), "scaned").count() == COUNT
    [noted] = caplog.messages
    assert noted.startswith("no topics /none.*/, scaned in this cluster; did you mean scanned")


def test_a_topic_that_does_not_exist(broker, topic):
    with pytest.raises(TopicNotFoundError, match="no topic scaned in this cluster; did you mean scanned"):
        list(scan(broker, "scaned"))


def test_following(broker, producer):
    producer.send("followed", b"0")
    calls = []

    def idle():
        calls.append(1)
        if len(calls) == 2:
            producer.send("followed", b"1")

    one = scan(broker, "followed")
    messages = one.follow(idle=idle)
    assert [next(messages).body, next(messages).body] == [b"0", b"1"]
    one.close()


def test_following_waits_for_the_topic(broker, producer, caplog):
    def idle():
        if not sent:
            sent.append(producer.send("followed-later", b"0"))

    sent = []
    one = scan(broker, "followed-later")
    assert next(one.follow(idle=idle)).body == b"0"
    assert caplog.messages[0].endswith("; waiting for it")
    one.close()


def test_a_scan_that_is_not_read_to_its_end_can_be_closed(broker, topic):
    one = scan(broker, topic)
    assert next(iter(one)).queue_offset == 0
    one.close()
    one.close()


def test_a_pass_that_another_thread_reads_can_be_closed(broker, topic):
    one, waits, found = scan(broker, topic), threading.Event(), []

    def read():
        try:
            found.extend(one.follow(idle=waits.set))
        except ClosedError as error:
            found.append(str(error))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    assert waits.wait(5)
    one.close()
    reader.join(5)
    assert found[-1:] == ["the scan is closed"]


def test_nothing_stays_in_the_broker(broker, topic):
    """Neither offsets nor groups nor members."""

    async def state():
        async with Admin(broker.name_server) as admin:
            consumed = await admin.consume_state("TOOLS_CONSUMER")
            return await admin.groups(), await admin.topics(), consumed.queues, await admin.consumers("TOOLS_CONSUMER")

    before = asyncio.run(state())
    assert scan(broker, topic).count() == COUNT
    assert asyncio.run(state()) == before
    assert before[2] == {}


def test_the_text_of_a_scan(broker):
    address = urllib.parse.quote(broker.name_server, safe=":")
    assert repr(scan(broker, "orders", re.compile("b.*"), tags="web")) == (
        f"<rocketc.Scan of rocketmq://{address}/orders,/b.*/, a stream, tags='web'>"
    )


def test_no_name_server():
    with pytest.raises(NotSentError, match=r"127\.0\.0\.1:1: "):
        list(TopicScan(access_to("127.0.0.1:1"), ["orders"]))


# scripted


def reader_of(cluster, **options):
    return TopicReader(cluster.producer()._access, timeout=2.0, **options)


def with_reader(cluster, work, **options):
    async def main():
        async with reader_of(cluster, **options) as reader:
            return await work(reader)

    return play(main())


def scripted(**answers):
    """A cluster with the broker `a`, which answers requests by their names."""
    cluster = Cluster({"a": stored})
    broker = cluster.brokers["a"]
    broker.answers |= {CODES[name]: answer for name, answer in answers.items()}
    broker.codes = tuple(broker.answers)
    cluster.servers[cluster.address("a")] = type(cluster.servers[NAME_SERVER])([broker])
    return cluster


TOLD = {"suggestWhichBrokerId": 0, "nextBeginOffset": 5, "minOffset": 0, "maxOffset": 5}


async def pull_first(reader):
    [queue, *_] = await reader.queues("orders")
    return await reader.pull_surely(queue, 4, expression="web")


def test_a_pull_brings_its_subscription_and_commits_nothing():
    cluster = scripted(PULL_MESSAGE=Answer(Code.PULL_NOT_FOUND, values=TOLD))
    assert with_reader(cluster, pull_first).next_offset == 5
    [asked] = cluster.brokers["a"].asked
    values = asked.values
    assert values["consumerGroup"] == "TOOLS_CONSUMER"
    assert (values["sysFlag"], values["commitOffset"], values["suspendTimeoutMillis"]) == (4, 0, 0)
    assert (values["subscription"], values["expressionType"], values["queueOffset"]) == ("web", "TAG", 4)
    assert cluster.brokers["a"].count(34) == 0  # heartbeats


def test_a_pull_as_another_group():
    cluster = scripted(PULL_MESSAGE=Answer(Code.PULL_NOT_FOUND, values=TOLD))
    with_reader(cluster, pull_first, group="auditors")
    assert cluster.brokers["a"].asked[0].values["consumerGroup"] == "auditors"


def test_a_busy_broker_is_asked_again():
    answers = [Answer(Code.FLOW_CONTROL, remark="busy"), Answer(Code.SYSTEM_BUSY), Answer(values=TOLD, body=b"?")]
    cluster = scripted(PULL_MESSAGE=lambda call: answers.pop(0))
    assert with_reader(cluster, pull_first)[1:] == (b"?", [], 5)
    cluster = scripted(PULL_MESSAGE=Answer(Code.SYSTEM_BUSY, remark="busy"))
    with pytest.raises(AnswerError, match="busy"):
        with_reader(cluster, pull_first)
    assert cluster.brokers["a"].count(11) == 3


async def pull_by_sql(reader):
    """Pull twice with a filter, after the question for the offset."""
    [queue, *_] = await reader.queues("orders")
    await reader.range_of(queue)
    for _ in range(2):
        await reader.pull(queue, 4, expression="price > 10", expression_type="SQL92")


def by_sql(answer):
    """The expressions of the pulls at a broker that gives this answer to SQL92."""
    found = Answer(Code.PULL_NOT_FOUND, values=TOLD)
    offset = Answer(values={"offset": 0})
    cluster = scripted(
        GET_MIN_OFFSET=offset,
        GET_MAX_OFFSET=offset,
        PULL_MESSAGE=lambda call: answer if call.values["expressionType"] == "SQL92" and answer else found,
    )
    with_reader(cluster, pull_by_sql)
    asked = [call.values for call in cluster.brokers["a"].asked if call.values.get("subscription")]
    return [(values["expressionType"], values["subscription"]) for values in asked]


def test_a_pull_with_a_filter():
    assert by_sql(None) == [("SQL92", "price > 10")] * 2


@pytest.mark.parametrize("code", [Code.SYSTEM_ERROR, Code.SUBSCRIPTION_PARSE_FAILED])
def test_a_broker_that_refuses_filters_sends_all_messages(code):
    text = "The broker does not support consumer to filter message by SQL92"
    assert by_sql(Answer(code, remark=text)) == [("SQL92", "price > 10"), ("TAG", "*"), ("TAG", "*")]
    with pytest.raises(AnswerError, match="the topic is not readable"):
        by_sql(Answer(Code.NO_PERMISSION, remark="the topic is not readable"))


def test_a_broker_that_is_too_old_for_filters(monkeypatch):
    """It would take the filter for a tag."""
    monkeypatch.setattr("rocketc.client.topic_reader.FIRST_WITH_FILTERS", 480)
    assert by_sql(None) == [("TAG", "*")] * 2


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Answer(Code.NO_PERMISSION, remark="the topic is not readable"), "the topic is not readable"),
        (Answer(Code.PULL_NOT_FOUND), "lacks the field"),
        (Answer(values={**TOLD, "nextBeginOffset": 900}), "a pull at 4 says that messages are found, but lacks them"),
        (
            Answer(values={**TOLD, "nextBeginOffset": 4}, body=rocketc.encode("orders", b"x", queue_offset=4)),
            "the next offset in the answer to a pull at 4 is 4",
        ),
    ],
)
def test_answers_that_are_errors(answer, text):
    cluster = scripted(PULL_MESSAGE=answer)
    with pytest.raises(AnswerError, match=text):
        with_reader(cluster, pull_first)
    assert cluster.brokers["a"].count(11) == 1


async def range_of_first(reader):
    [queue, *_] = await reader.queues("orders")
    return await reader.range_of(queue)


@pytest.mark.parametrize(
    ("least", "most", "expected"), [(3, 9, (3, 9)), (0, 0, (0, 0)), (-1, -1, (0, 0)), (7, 5, (7, 7))]
)
def test_offsets(least, most, expected):
    cluster = scripted(GET_MIN_OFFSET=Answer(values={"offset": least}), GET_MAX_OFFSET=Answer(values={"offset": most}))
    assert with_reader(cluster, range_of_first) == QueueRange(*expected)


def test_an_answer_without_an_offset():
    cluster = scripted(GET_MIN_OFFSET=Answer(), GET_MAX_OFFSET=Answer(values={"offset": 1}))
    with pytest.raises(AnswerError, match="offset"):
        with_reader(cluster, range_of_first)


def test_a_server_that_does_not_know_routes():
    cluster = Cluster({"a": stored})
    cluster.name_server.answers = {}
    cluster.name_server.codes = ()
    with pytest.raises(AnswerError, match="it is not a name server"):
        cluster.name_server.answers = {105: Answer(Code.REQUEST_CODE_NOT_SUPPORTED)}
        with_reader(cluster, lambda reader: reader.queues("orders"))


def test_a_name_server_that_does_not_answer():
    cluster = Cluster({"a": stored})
    cluster.name_server.answers[105] = lambda call: None
    with pytest.raises(NoAnswerError, match="no name server is reached: check that it runs, and its address"):
        with_reader(cluster, lambda reader: reader.queues("orders"))


def test_a_broker_without_an_address():
    async def work(reader):
        [queue, *_] = await reader.queues("orders")
        assert reader.masters("orders") == {"a": "10.0.1.0:10911"}
        return reader.address(queue._replace(broker_name="gone"))

    with pytest.raises(NotSentError, match="gone: no address of this broker is known now"):
        with_reader(Cluster({"a": stored}), work)
