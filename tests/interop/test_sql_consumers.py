"""Consumers with SQL92 filters: Java's, Go's and ours get the same messages from RocketMQ's brokers and from ours."""

import asyncio
import json
import queue
import subprocess
import time

import pytest
from interop import scenarios
from interop.asking import Asking
from interop.groups import built_member
from interop.our_broker import OurBroker, wait_for
from interop.peer import ENVIRONMENT, RELEASES, Unavailable

from rocketc.client import AsyncConsumer, AsyncPullConsumer, Producer, PullConsumer, PushConsumer
from rocketc.errors import AnswerError
from rocketc.read.sql import compile_sql
from rocketc.remoting.codes import Code
from rocketc.tables.fastjson import parse

pytestmark = pytest.mark.long

# Properties of the messages; their bodies are the numbers of the entries.
MESSAGES = [
    {"price": str(price), "region": region, **({"paid": paid} if paid else {})}
    for price in (5, 12, 80)
    for region in ("eu", "us")
    for paid in ("", "true", "false")
] + [{}, {"price": "ten"}, {"price": "12.5"}, {"region": "e'u"}, {"price": "-3", "region": "ÄÖ"}]

FILTERS = [
    "price > 10 AND region = 'eu'",
    "price BETWEEN 10 AND 100 OR region IS NULL",
    "paid = TRUE",
    "region IN ('us', 'e''u') AND paid IS NOT NULL",
    "NOT (region = 'eu')",
    "price > 11.5",
]
LIVE = "price = 77 AND region = 'eu'"


def text_of(properties):
    return "".join(f"{name}\1{value}\2" for name, value in properties.items()).encode()


def expected(sql):
    compiled = compile_sql(sql)
    return sorted(str(n) for n, one in enumerate(MESSAGES) if compiled.matches(text_of(one)))


@pytest.fixture(scope="module", params=["ours", *RELEASES])
def broker(request, tmp_path_factory):
    """A broker with filters, and MESSAGES in its topic `orders`."""
    folder = tmp_path_factory.mktemp("sql")
    if request.param == "ours":
        one = OurBroker(folder / "store", "--port", 0, enable_property_filter=True)
    else:
        try:
            one = scenarios.JavaCluster(request.param, folder, **{"broker.enablePropertyFilter": "true"})
        except Unavailable as reason:
            pytest.skip(str(reason))
    one.kind = request.param
    with Producer("shop", one.name_server) as producer:
        for n, properties in enumerate(MESSAGES):
            producer.send("orders", str(n).encode(), properties=properties)
    yield one
    one.close()


@pytest.fixture(scope="module", params=RELEASES)
def java(request, tmp_path_factory):
    """The release of Java clients, and the clients."""
    clients = scenarios.Clients(request.param, tmp_path_factory.mktemp("clients"))
    yield request.param, clients
    clients.close()


def group(kind, n):
    return f"{kind}-{n}".replace(".", "_")


@pytest.mark.parametrize("do", ["consume", "poll"])
def test_java_consumers(broker, java, do):
    release, clients = java
    if (broker.kind, release, do) == ("4.9.7", "5.3.3", "poll"):
        pytest.skip("with this client, the broker of RocketMQ returns no message")
    for n, sql in enumerate(FILTERS[:3]):
        wanted = expected(sql)
        name = group(f"java-{release}-{do}", n)
        found = clients.step(broker, "orders", do, group=name, count=len(wanted), millis=300, sql=sql)
        assert sorted(found) == wanted, sql


def test_java_refuses_what_the_broker_refuses(broker, java):
    release, clients = java
    with pytest.raises(AssertionError, match="CODE: 23"):
        clients.step(broker, "orders", "consume", group=group("wrong", release), count=1, millis=0, sql="price >")


def test_our_push_consumer(broker):
    for n, sql in enumerate(FILTERS):
        wanted, found = expected(sql), queue.Queue()
        name = group("python", n)
        with PushConsumer(name, broker.name_server, consume_from_where="CONSUME_FROM_FIRST_OFFSET") as consumer:
            consumer.subscribe("orders", sql=sql, listener=lambda message, found=found: found.put(message.body))
            assert sorted(found.get(timeout=30).decode() for _ in wanted) == wanted, sql
            time.sleep(0.3)
            assert found.empty()


def test_our_push_consumer_is_refused(broker):
    with (
        pytest.raises(AnswerError) as refused,
        PushConsumer("refused", broker.name_server) as consumer,
    ):
        consumer.subscribe("orders", sql="price >", listener=print)
    assert refused.value.code == Code.SUBSCRIPTION_PARSE_FAILED


FIRST = {"consume_from_where": "CONSUME_FROM_FIRST_OFFSET"}


def polled(consumer, count):
    found, end = [], time.monotonic() + 30
    while len(found) < count and time.monotonic() < end:
        found += [message.body.decode() for message in consumer.poll(500)]
    return sorted(found + [message.body.decode() for message in consumer.poll(300)])


def test_our_pull_consumer(broker):
    for n, sql in enumerate(FILTERS[:3]):
        wanted = expected(sql)
        with PullConsumer(group("pull", n), broker.name_server, topics=["orders"], sql=sql, **FIRST) as consumer:
            assert polled(consumer, len(wanted)) == wanted, sql
        with PullConsumer(group("chosen", n), broker.name_server, **FIRST) as consumer:
            consumer.assign(consumer.fetch_message_queues("orders"), sql=sql)
            assert polled(consumer, len(wanted)) == wanted, sql


def test_our_coroutine_consumers(broker):
    sql, wanted = FILTERS[0], expected(FILTERS[0])

    async def main():
        async with AsyncPullConsumer("apull", broker.name_server, topics=["orders"], sql=sql, **FIRST) as consumer:
            found = [(await anext(consumer)).body.decode() for _ in wanted]
            assert await consumer.poll(300) == []
        async with AsyncConsumer("aread", broker.name_server, topics=["orders"], sql=sql, **FIRST) as consumer:
            read = [(await consumer.getone()).body.decode() for _ in wanted]
            assert await consumer.getmany(timeout=300) == []
        return sorted(found), sorted(read)

    assert asyncio.run(asyncio.wait_for(main(), 90)) == (wanted, wanted)


def test_our_pull_consumers_are_refused(broker):
    starts = [
        lambda: PullConsumer("refused", broker.name_server, topics=["orders"], sql="price >").start(),
        lambda: asyncio.run(AsyncPullConsumer("b", broker.name_server, topics=["orders"], sql="price >").start()),
        lambda: asyncio.run(AsyncConsumer("c", broker.name_server, topics=["orders"], sql="price >").start()),
    ]
    for start in starts:
        with pytest.raises(AnswerError) as refused:
            start()
        assert refused.value.code == Code.SUBSCRIPTION_PARSE_FAILED


def test_a_held_consumer_gets_what_matches(broker):
    found = queue.Queue()
    with (
        PushConsumer("live", broker.name_server, consume_from_where="CONSUME_FROM_FIRST_OFFSET") as consumer,
        Producer("shop", broker.name_server) as producer,
    ):
        consumer.subscribe("live", sql=LIVE, listener=lambda message: found.put((message.body, time.monotonic())))
        producer.send("live", b"first", properties={"price": "77", "region": "eu"})
        assert found.get(timeout=60)[0] == b"first"
        time.sleep(1)  # its pulls are held
        for n in range(20):
            producer.send("live", b"other", properties={"price": str(n), "region": "eu"})
        began = time.monotonic()
        for _ in range(4):  # one for each queue
            producer.send("live", b"late", properties={"price": "77", "region": "eu"})
        times = [found.get(timeout=10) for _ in range(4)]
        assert {body for body, _ in times} == {b"late"} and times[-1][1] - began < 2
        assert found.empty()


def test_the_go_consumer(broker):
    try:
        program = built_member()
    except Unavailable as reason:
        pytest.skip(str(reason))
    for n, sql in enumerate(FILTERS[:2]):
        wanted = expected(sql)
        command = [str(program), broker.name_server, group("go", n), "orders", "AVG", "false", "0", sql]
        with subprocess.Popen(
            command, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as member:
            assert member.stdout.readline() == "ready\n"
            found = [json.loads(member.stdout.readline())["body"] for _ in wanted]
            assert sorted(found) == wanted, sql
            member.stdin.close()


# a store with filters moves


def filter_of(asking, name):
    code, _, body = asking.ask("QUERY_CONSUME_QUEUE", topic="orders", queueId=0, index=0, count=0, consumerGroup=name)
    assert code == 0
    return json.loads(json.loads(body)["filterData"])


def beat(asking, name, sql, version):
    wanted = {"topic": "orders", "subString": sql, "subVersion": version, "expressionType": "SQL92"}
    consumer = {"groupName": name, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING"}
    body = {"clientID": "c", "producerDataSet": [], "consumerDataSet": [{**consumer, "subscriptionDataSet": [wanted]}]}
    assert asking.ask("HEART_BEAT", body)[0] == 0


def bodies(asking, name, version):
    told = {
        "consumerGroup": name, "topic": "orders", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 0,
        "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": version,
    }  # fmt: skip
    code, _, body = asking.ask("PULL_MESSAGE", **told)
    return code, len(body) > 0


@pytest.mark.parametrize("first", ["ours", "5.3.3"])
def test_filters_move_with_the_store(tmp_path, begin, first):
    """RocketMQ's broker opens our table, and ours opens RocketMQ's: versions and times of the filters stay."""

    def serve(kind):
        if kind == "ours":
            sizes = {"mapped_file_size_commit_log": 33554432, "mapped_file_size_consume_queue": 60_000}
            index = {"max_hash_slot_num": 5000, "max_index_num": 20_000}
            one = begin(OurBroker, tmp_path / "store", "--port", 0, enable_property_filter=True, **sizes, **index)
            return one, Asking(one.address)
        one = begin(scenarios.JavaCluster, kind, tmp_path, **{"broker.enablePropertyFilter": "true"})
        return one, Asking(one.broker)

    def leave(one, asking):
        asking.close()
        one.end()
        text = (tmp_path / "store/config/consumerFilter.json").read_text()
        return parse(text)["filterDataByTopic"]["orders"]["groupFilterData"]

    one, asking = serve(first)
    with Producer("shop", one.name_server) as producer:
        for n in range(8):
            producer.send("orders", str(n).encode(), properties={"a": str(n)})
    beat(asking, "stays", "a > 3", 10)
    beat(asking, "changes", "a > 3", 10)
    born = filter_of(asking, "stays")["bornTime"]
    before = leave(one, asking)
    for kind, version in (("5.3.3" if first == "ours" else "ours", 11), (first, 12)):
        one, asking = serve(kind)
        beat(asking, "stays", "a > 3", 10)
        beat(asking, "changes", f"a > {version}", version)
        assert filter_of(asking, "stays")["bornTime"] == born
        assert not filter_of(asking, "stays")["dead"]
        assert filter_of(asking, "changes")["expression"] == f"a > {version}"
        assert bodies(asking, "changes", version)[0] in (Code.PULL_RETRY_IMMEDIATELY, Code.PULL_NOT_FOUND)
        assert wait_for(lambda: bodies(asking, "stays", 10)[0] in (0, 19, 20))  # noqa: B023
        after = leave(one, asking)
        for name in ("stays", "changes"):
            assert after[name]["bloomFilterData"] == before[name]["bloomFilterData"]
            assert after[name].keys() == before[name].keys()
        assert after["stays"]["bornTime"] == born and after["stays"]["dead"]
