"""SQL92 filters of the pull consumers and of AsyncConsumer, at a broker of this project and at scripted ones."""

import asyncio

import pytest
from unit.client.scripted import play
from unit.client.scripted_pull import QUEUE, PullCluster

import rocketc
from rocketc.client import AsyncConsumer, AsyncPullConsumer, Producer, PullConsumer, PushConsumer, subscriptions
from rocketc.errors import AnswerError, SqlError, SubscriptionError
from rocketc.remoting.codes import Code
from rocketc.remoting.requests import CODES
from rocketc.remoting.server import Answer

CHECK = CODES["CHECK_CLIENT_CONFIG"]
FIRST = {"consume_from_where": "CONSUME_FROM_FIRST_OFFSET"}
WEB = "price > 10 AND region = 'eu'"


@pytest.fixture(scope="module")
def broker():
    """Its topic `orders` has the messages 0 to 19 in one queue: the even ones are from eu, each has its price."""
    with rocketc.Broker(enable_property_filter=True) as one:
        with Producer("shop", one.name_server) as producer:
            one.queue = producer.send("orders", b"0", properties={"price": "0", "region": "eu"}).queue
            for n in range(1, 20):
                region = "us" if n % 2 else "eu"
                producer.send("orders", b"%d" % n, properties={"price": str(n), "region": region}, queue=one.queue)
            producer.send("bills", b"bill", tags="new")
        yield one


WANTED = [12, 14, 16, 18]


def polled(consumer, count):
    found = []
    while len(found) < count:
        messages = consumer.poll(5_000)
        assert messages
        found += [int(message.body) for message in messages]
    return found


def test_a_subscription_before_and_after_the_start(broker):
    one = PullConsumer("before", broker.name_server, **FIRST)
    one.subscribe("orders", sql=WEB)
    with one:
        assert polled(one, 4) == WANTED
    with PullConsumer("after", broker.name_server, **FIRST) as one:
        one.subscribe("orders", sql=WEB)
        assert polled(one, 4) == WANTED
        one.subscribe("orders", sql="price = 3")
        one.seek_to_begin(broker.queue)
        assert polled(one, 1) == [3] and one.poll(50) == []


@pytest.mark.parametrize("sql", [WEB, {"orders": WEB}])
def test_the_argument(broker, sql):
    topics = ["orders"] if isinstance(sql, str) else {"orders": "*", "bills": "new"}
    with PullConsumer(f"argument{len(topics)}", broker.name_server, topics=topics, sql=sql, **FIRST) as one:
        found = []
        while len(found) < 3 + len(topics):
            found += [message.body for message in one.poll(5_000)]
    assert sorted(found) == sorted([*(b"%d" % n for n in WANTED), *([b"bill"] if len(topics) == 2 else [])])


def test_chosen_queues(broker):
    one = PullConsumer("chosen", broker.name_server, **FIRST)
    one.assign([broker.queue], sql="region = 'us' AND price < 4")
    with one:
        assert polled(one, 2) == [1, 3]
        one.assign([broker.queue], sql="price = 7")
        one.seek_to_begin(broker.queue)
        assert polled(one, 1) == [7]


def test_coroutines(broker):
    async def main():
        async with AsyncPullConsumer("polled", broker.name_server, topics=["orders"], sql=WEB, **FIRST) as one:
            found = [int((await anext(one)).body) for _ in WANTED]
        async with AsyncConsumer("read", broker.name_server, topics=["orders"], sql={"orders": WEB}, **FIRST) as one:
            return found, [int((await one.getone()).body) for _ in WANTED]

    assert asyncio.run(asyncio.wait_for(main(), 30)) == (WANTED, WANTED)


NOT_SQL = {"price >": "the end", "region LIKE 'e%'": "RocketMQ ignores this and what follows: \"LIKE 'e%'\""}


@pytest.mark.parametrize("sql", NOT_SQL)
def test_a_wrong_expression_is_refused_at_once(sql):
    """Whether its topic exists or not: no broker is asked."""
    pull, push, queue = PullConsumer("wrong", "127.0.0.1:1"), PushConsumer("wrong", "127.0.0.1:1"), QUEUE
    for use in (
        lambda: AsyncPullConsumer("wrong", "127.0.0.1:1", topics=["orders"], sql=sql),
        lambda: AsyncConsumer("wrong", "127.0.0.1:1", topics=["orders"], sql={"orders": sql}),
        lambda: pull.subscribe("orders", sql=sql),
        lambda: pull.assign([queue], sql=sql),
        lambda: push.subscribe("orders", sql=sql, listener=print),
    ):
        with pytest.raises(SqlError) as refused:
            use()
        assert str(refused.value).endswith(NOT_SQL[sql])


def test_a_wrong_expression_changes_nothing(broker):
    with PullConsumer("running", broker.name_server, **FIRST) as one:
        one.assign([broker.queue], sql="price = 7")
        for sql in NOT_SQL:
            with pytest.raises(SqlError):
                one.assign([broker.queue], sql=sql)
        one.seek_to_begin(broker.queue)
        assert polled(one, 1) == [7]


def test_without_the_parser_brokers_check_an_expression(broker, monkeypatch):
    """The package lark is optional."""
    monkeypatch.setattr(subscriptions, "find_spec", lambda name: None)

    async def start(kind):
        with pytest.raises(AnswerError) as refused:
            async with kind("refused", broker.name_server, topics=["orders"], sql="price >"):
                pass
        return refused.value.code

    code = Code.SUBSCRIPTION_PARSE_FAILED
    assert [asyncio.run(start(kind)) for kind in (AsyncPullConsumer, AsyncConsumer)] == [code, code]
    with PullConsumer("running", broker.name_server, **FIRST) as one:
        with pytest.raises(AnswerError):
            one.assign([broker.queue], sql="price >")
        assert one.assignment() == []


def test_a_broker_without_filters():
    with rocketc.Broker() as plain, Producer("shop", plain.name_server) as producer:
        producer.send("orders", b"0")
        with pytest.raises(AnswerError, match="does not support consumer to filter message by SQL92") as refused:
            PullConsumer("refused", plain.name_server, topics=["orders"], sql=WEB).start()
    assert refused.value.code == Code.SYSTEM_ERROR


@pytest.mark.parametrize("kind", [PullConsumer, AsyncPullConsumer, AsyncConsumer])
def test_wrong_arguments(kind):
    with pytest.raises(TypeError, match="sql: expected str, got int"):
        kind("wrong", "127.0.0.1:1", topics=["orders"], sql=5)
    with pytest.raises(TypeError, match="sql: expected str, got list"):
        kind("wrong", "127.0.0.1:1", topics=["orders"], sql={"orders": ["a"]})
    with pytest.raises(ValueError, match="sql: the expression of 'bills' needs this name in topics, too"):
        kind("wrong", "127.0.0.1:1", topics=["orders"], sql={"bills": "a > 5"})
    with pytest.raises(SubscriptionError, match="the SQL92 expression of topic orders is empty"):
        kind("wrong", "127.0.0.1:1", topics=["orders"], sql="")


@pytest.mark.parametrize("kind", [PullConsumer, AsyncPullConsumer])
def test_an_expression_without_topics(kind):
    with pytest.raises(ValueError, match=r"sql needs topics; subscribe\(\) and assign\(\) have an argument sql, too"):
        kind("wrong", "127.0.0.1:1", sql="a > 5")


def test_wrong_arguments_of_methods():
    one = PullConsumer("wrong", "127.0.0.1:1")
    for call in (one.subscribe, lambda topic, sql: one.assign([QUEUE], sql=sql)):
        with pytest.raises(TypeError, match="sql: expected str, got int"):
            call("orders", sql=5)
        with pytest.raises(SubscriptionError, match="the SQL92 expression of topic orders is empty"):
            call("orders", sql="")


def test_what_brokers_see():
    """The heartbeat and the pulls have the expression; a refused one changes nothing."""
    stage = PullCluster()
    broker = stage.brokers["a"]
    broker.answers[CHECK] = Answer()
    broker.codes = (*broker.codes, CHECK)

    async def main():
        core = None
        async with stage.puller(topics=None) as one:
            await one.subscribe("orders", sql="a > 5")
            await asyncio.sleep(1)
            [subscription] = stage.heartbeats()[-1]["consumerDataSet"][0]["subscriptionDataSet"]
            assert (subscription["expressionType"], subscription["subString"]) == ("SQL92", "a > 5")
            pull = stage.pulls()[-1]
            assert (pull["expressionType"], pull["subscription"], pull["sysFlag"]) == ("SQL92", "a > 5", 22)
            broker.answers[CHECK] = Answer(Code.SUBSCRIPTION_PARSE_FAILED, remark="no")
            core = one._core
            for topic in ("orders", "parcels"):
                with pytest.raises(AnswerError):
                    await one.subscribe(topic, sql="a > 6")
            assert [data.sub_string for data in core._subscriptions.values()] == ["a > 5"]
            assert "parcels" not in core._instance.routes._watched

    play(main())
