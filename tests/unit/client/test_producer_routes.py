"""Routes of a producer: topics that do not exist, that change, and that cannot be written."""

import asyncio
import json
from types import SimpleNamespace

import pytest
from unit.client.producing import run
from unit.client.scripted import NAME_SERVER, stored

from rocketc.errors import AnswerError, NotSentError, TopicNotFoundError, TopicPermissionError
from rocketc.remoting.server import Answer


def test_topics_that_do_not_exist():
    async def work(producer, stage):
        return [await producer.send("orders", b"one") for _ in range(8)]

    sent = run(work, {"a": stored}, {"missing": ["orders"]})
    assert sorted(one.queue.queue_id for one in sent) == [0, 0, 1, 1, 2, 2, 3, 3]
    sent = run(work, {"a": stored}, {"missing": ["orders"]}, default_topic_queue_nums=1)
    assert {one.queue.queue_id for one in sent} == {0}
    with pytest.raises(
        TopicNotFoundError, match=r"topic 'orders': no broker has it, .* rocketc admin create-topic orders"
    ):
        run(work, {"a": stored}, {"missing": ["orders"], "creates": False})


@pytest.mark.parametrize(
    ("brokers", "queues", "kind", "text"),
    [
        ({}, {"perm": 4}, TopicPermissionError,
         "topic 'orders' may not be written on a, b; allow it: rocketc admin permissions orders --set rw; "
         "if all topics of a broker are so: rocketc admin permissions -b a --set rw"),
        ({}, {"writeQueueNums": 0}, TopicNotFoundError,
         "topic 'orders' lacks queues to write on a, b; give it some: rocketc admin create-topic orders --queues 8"),
        ({"brokerAddrs": {"1": "10.0.2.1:10911"}}, {}, NotSentError,
         "topic 'orders': no master of a, b is known now; see rocketc admin brokers"),
    ],
)  # fmt: skip
def test_why_a_topic_cannot_be_written(brokers, queues, kind, text):
    async def work(producer, stage):
        data = json.loads(stage._route(SimpleNamespace(values={"topic": "orders"})).body)
        for each, change in (("brokerDatas", brokers), ("queueDatas", queues)):
            data[each] = [one | change for one in data[each]]
        stage.name_server.answers[105] = Answer(body=json.dumps(data).encode())
        for send in (producer.send("orders", b"one"), producer.send_many("orders", [b"one"])):
            with pytest.raises(kind) as caught:
                await send
            assert str(caught.value) == text

    run(work, {"a": stored, "b": stored})


def test_a_topic_that_only_some_brokers_allow_to_write():
    async def work(producer, stage):
        data = json.loads(stage._route(SimpleNamespace(values={"topic": "orders"})).body)
        data["queueDatas"][0]["perm"] = 4
        stage.name_server.answers[105] = Answer(body=json.dumps(data).encode())
        return {(await producer.send("orders", b"one")).queue.broker_name for _ in range(4)}

    assert run(work, {"a": stored, "b": stored}) == {"b"}


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_name_server_that_does_not_answer(is_cut):
    """Only the question may have been carried out: a producer knows that its message was not sent."""

    async def work(producer, stage):
        stage.name_server.answers[105] = lambda call: stage.cut(NAME_SERVER) if is_cut else None
        for each in (producer.send("orders", b"one"), producer.send_many("orders", [b"one"])):
            with pytest.raises(NotSentError, match=f"^{NAME_SERVER}: "):
                await each

    run(work, {"a": stored})


def test_a_topic_that_is_created_and_deleted_later():
    async def work(producer, stage):
        await producer.send("orders", b"one")
        stage.missing.clear()
        await asyncio.sleep(31)
        assert {(await producer.send("orders", b"one")).queue.queue_id for _ in range(4)} == {0, 1}
        stage.missing.add("orders")
        stage.creates = False
        await asyncio.sleep(100)
        await producer.send("orders", b"one")  # after its restart, a name server does not know any topic at first
        await asyncio.sleep(60)
        with pytest.raises(TopicNotFoundError):
            await producer.send("orders", b"one")

    run(work, {"a": stored}, {"missing": ["orders"]})


def test_the_name_server_is_asked_once_by_many():
    async def work(producer, stage):
        await asyncio.gather(*[producer.send("orders", b"one") for _ in range(100)])
        return stage.name_server.count(105)

    assert run(work, {"a": stored}) == 1


def test_no_name_server():
    async def work(producer, stage):
        stage.servers.clear()
        with pytest.raises(NotSentError, match=f"{NAME_SERVER}: no connection: Connection refused"):
            await producer.send("orders", b"one")

    run(work, {"a": stored})


def test_two_sends_to_a_topic_that_cannot_be_written():
    async def work(producer, stage):
        sends = [producer.send("orders", b"one") for _ in range(2)]
        return await asyncio.gather(*sends, return_exceptions=True)

    assert [type(one) for one in run(work, {"a": stored}, {"perm": 4})] == [TopicPermissionError] * 2


def test_close_while_a_send_asks_for_a_route():
    async def work(producer, stage):
        stage.name_server.answers[105] = lambda call: None
        sending = asyncio.create_task(producer.send("orders", b"one", timeout=20_000))
        await asyncio.sleep(0.5)
        await producer.close()
        with pytest.raises(NotSentError, match="the client is closed"):
            await sending

    run(work, {"a": stored}, mq_client_api_timeout=60_000)


def test_a_new_address_of_a_broker_before_a_topic_exists():
    async def work(producer, stage):
        server = stage.servers.pop("10.0.1.0:10911")
        with pytest.raises(NotSentError):
            await producer.send("orders", b"one")
        stage.address = lambda name: "10.0.1.1:10911"
        stage.servers["10.0.1.1:10911"] = server
        await asyncio.sleep(31)
        await producer.send("orders", b"two")

    run(work, {"a": stored}, {"missing": ["orders"]})


def test_a_route_that_cannot_be_read_does_not_stop_the_refresh_of_others():
    async def work(producer, stage):
        topics = [f"orders-{i}" for i in range(10)]
        for topic in topics:
            await producer.send(topic, b"one")
        route = stage.name_server.answers[105]
        for bad in topics:
            stage.name_server.answers[105] = lambda call, bad=bad: (
                Answer(body=b"[]") if call.values["topic"] == bad else route(call)
            )
            before = len(stage.name_server.asked)
            await asyncio.sleep(65)
            assert {call.values["topic"] for call in stage.name_server.asked[before:]} >= set(topics)

    run(work, {"a": stored})


def test_a_route_with_too_many_queues_is_refused():
    async def work(producer, stage):
        body = json.loads(stage._route(SimpleNamespace(values={"topic": "orders"})).body)
        body["queueDatas"][0]["writeQueueNums"] = (1 << 31) - 1
        stage.name_server.answers[105] = Answer(body=json.dumps(body).encode())
        with pytest.raises(AnswerError, match="the topic has 2147483649 queues; at most 1048576 are possible"):
            await producer.send("orders", b"one")

    run(work, {"a": stored})


@pytest.mark.parametrize("how", [{}, {"shard": "c-7"}, {"selector": lambda queues: queues[0]}])
def test_a_topic_whose_queues_cannot_be_written_any_more(how):
    async def work(producer, stage):
        await producer.send("orders", b"one")
        stage.perm = 4
        await asyncio.sleep(31)
        for _ in range(2):
            with pytest.raises(TopicPermissionError, match=r"^topic 'orders' may not be written on a; allow it: "):
                await producer.send("orders", b"two", **how)
        stage.perm = 6
        await producer.send("orders", b"three", **how)

    run(work, {"a": stored})
