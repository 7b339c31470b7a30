"""What a producer answers to brokers that ask about a transaction, on virtual time; and who asks it."""

import asyncio
import json
import logging
import threading

import pytest
from unit.client.scripted import play
from unit.client.scripted_transactions import CHECK, HALF_TOPIC, TextlessError, TransactionCluster, run

from rocketc.client import LocalTransactionState
from rocketc.format._encoding import encode
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer

COMMIT, ROLLBACK, UNKNOW = 8, 12, 0


async def soon():
    await asyncio.sleep(0.1)


@pytest.mark.parametrize("is_text", [True, False])
@pytest.mark.parametrize(("name", "number"), [("COMMIT_MESSAGE", 8), ("ROLLBACK_MESSAGE", 12), ("UNKNOW", 0)])
def test_the_answer(name, number, is_text):
    async def check(message):
        found.append(message)
        return name if is_text else LocalTransactionState[name]

    async def work(producer, stage):
        await soon()
        stage.ask()
        await soon()
        assert stage.ends == [
            {
                "topic": HALF_TOPIC, "producerGroup": "shop", "tranStateTableOffset": 71, "commitLogOffset": 7100,
                "commitOrRollback": number, "fromTransactionCheck": True, "msgId": "K1", "transactionId": "T1",
                "remark": None,
            }
        ]  # fmt: skip
        assert [call.command.is_oneway for call in stage.brokers["a"].asked if call.command.code == 37] == [True]
        [message] = found
        assert (message.topic, message.queue_id, message.body, message.keys) == ("orders", 1, b"one", "o-1")

    found = []
    run(work, check=check)


def answered(check, *questions, **options):
    async def work(producer, stage):
        await soon()
        for question in questions or [{}]:
            stage.ask(**question)
        await asyncio.sleep(2)
        return stage.ends

    return run(work, check=check, **options)


async def commit(message):
    return "COMMIT_MESSAGE"


def test_a_check_that_fails(caplog):
    async def check(message):
        raise ValueError("the database is away")

    [end] = answered(check)
    assert (end["commitOrRollback"], end["remark"]) == (UNKNOW, "ValueError: the database is away")
    assert "shop: the check of K1 failed; the broker asks again: ValueError: the database is away" in caplog.text


def test_a_check_that_raises_an_exception_without_a_text():
    async def check(message):
        raise TextlessError

    ends = answered(check, *[{}] * 3)
    remark = "TextlessError: the exception could not make its text"
    assert [(end["commitOrRollback"], end["remark"]) for end in ends] == [(UNKNOW, remark)] * 3


def test_a_check_that_raises_generator_exit():
    async def check(message):
        await asyncio.sleep(0)
        if message.body == b"bad":
            raise GeneratorExit
        return "COMMIT_MESSAGE"

    ends = answered(check, {"body": b"bad"}, {}, check_thread_pool_max_size=1)
    remark = "RuntimeError: the coroutine raised GeneratorExit"
    assert [(end["commitOrRollback"], end["remark"]) for end in ends] == [(UNKNOW, remark), (COMMIT, None)]


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_a_check_that_raises_what_ends_a_program(kind):
    async def check(message):
        if message.body == b"bad":
            raise kind
        return "COMMIT_MESSAGE"

    ends = answered(check, {"body": b"bad"}, {})
    assert [(end["commitOrRollback"], end["remark"]) for end in ends] == [
        (UNKNOW, kind.__name__),
        (COMMIT, None),
    ]


@pytest.mark.parametrize("returned", [None, True, 8, "COMMIT"])
def test_what_a_check_must_not_return(returned):
    async def check(message):
        return returned

    [end] = answered(check)
    assert end["commitOrRollback"] == UNKNOW and "was returned; " in end["remark"]


def test_a_question_of_an_old_broker():
    """4.x does not send the topic; the others may be missing, too."""
    ends = answered(commit, {"fields": {"topic": None, "transactionId": None, "msgId": None, "offsetMsgId": None}})
    [end] = ends
    assert "topic" not in end and "transactionId" not in end and end["msgId"] == "K1"
    [end] = answered(commit, {"properties": {"UNIQ_KEY": None}})
    assert len(end["msgId"]) == 32, "the id of the record"


def test_a_question_to_another_group(caplog):
    assert answered(commit, {"properties": {"PGROUP": "billing"}}, {"properties": {"PGROUP": None}}) == []
    assert "asks the producer group shop about a transaction of the group billing; it is not answered" in caplog.text
    assert "of the group None; it is not answered" in caplog.text


@pytest.mark.parametrize("record", [b"", b"x", b"x" * 200, encode("orders", b"one")[:-1], b"\xff" * 100])
def test_a_question_that_cannot_be_read(record, caplog):
    ends = answered(commit, {"record": record}, {})
    assert len(ends) == 1, "the next one is answered"
    assert "10.0.1.0:10911: CHECK_TRANSACTION_STATE cannot be read: " in caplog.text


def test_a_question_with_an_id_that_is_larger_than_a_request(caplog):
    assert len(answered(commit, {"fields": {"transactionId": "x" * ((256 << 10) - 300)}}, {})) == 1, (
        "the next one is answered"
    )
    assert "of K1 was not written; the broker asks later: 10.0.1.0:10911: a header of 262" in caplog.text


@pytest.mark.parametrize("name", ["tranStateTableOffset", "commitLogOffset"])
def test_a_question_without_an_offset(name, caplog):
    assert answered(commit, {"fields": {name: None}}) == []
    assert f"CHECK_TRANSACTION_STATE cannot be read: CHECK_TRANSACTION_STATE lacks the field {name}" in caplog.text


def test_a_large_message():
    async def check(message):
        assert message.body == b"x" * 100_000
        return "COMMIT_MESSAGE"

    assert answered(check, {"body": b"x" * 100_000})[0]["commitOrRollback"] == COMMIT


@pytest.mark.parametrize("at_once", [1, 3])
def test_how_many_checks_run_and_wait(at_once, caplog):
    most = running = 0

    async def check(message):
        nonlocal most, running
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.1)
        running -= 1
        return "COMMIT_MESSAGE"

    questions = [{"properties": {"UNIQ_KEY": f"K{number}"}} for number in range(10)]
    ends = answered(check, *questions, check_thread_pool_max_size=at_once, check_request_hold_max=5)
    assert most == at_once
    assert sorted(end["msgId"] for end in ends) == [f"K{number}" for number in range(at_once + 5)]
    assert "5 checks wait already; the one of K9 is dropped, and the broker asks again" in caplog.text


def test_checks_after_a_pause():
    """The worker of the first ones has ended."""

    async def work(producer, stage):
        await soon()
        for _ in range(5):
            stage.ask()
            stage.ask()
            await soon()
        assert len(stage.ends) == 10 and not producer._checks._workers and producer._checks._busy == 0

    run(work, check=commit)


def test_a_broker_that_is_gone_before_the_answer(caplog):
    async def work(producer, stage):
        async def dies(message):
            del stage.servers[stage.address("a")]
            stage.cut(stage.address("a"))
            return "COMMIT_MESSAGE"

        producer._checks._check = dies
        await soon()
        stage.ask()
        await soon()

    run(work, check=commit)
    assert "END_TRANSACTION with COMMIT_MESSAGE of K1 was not written; the broker asks later: 10.0.1.0" in caplog.text


class Callable:
    async def __call__(self, message):
        return "COMMIT_MESSAGE"


@pytest.mark.parametrize("check", [Callable(), lambda message: commit(message), lambda message: "COMMIT_MESSAGE"])
def test_kinds_of_checks(check):
    """A plain function runs on a thread, so this runs in real time."""

    async def main():
        stage = TransactionCluster()
        async with stage.transaction_producer(check=check) as producer:
            while not stage.brokers["a"].count(34):
                await asyncio.sleep(0.005)
            stage.ask()
            while not stage.ends:
                await asyncio.sleep(0.005)
            return producer

    asyncio.run(main())


def test_a_plain_check_runs_on_a_thread_that_ends():
    def check(message):
        threads.append(threading.current_thread())
        if message.body == b"bad":
            raise SystemExit(3)
        return "COMMIT_MESSAGE"

    async def main():
        stage = TransactionCluster()
        async with stage.transaction_producer(check=check):
            while not stage.brokers["a"].count(34):
                await asyncio.sleep(0.005)
            stage.ask(b"bad")
            stage.ask()
            while len(stage.ends) < 2:
                await asyncio.sleep(0.005)
        return stage.states

    threads = []
    assert asyncio.run(main()) == [UNKNOW, COMMIT]
    assert len(set(threads)) == 1 and threads[0] is not threading.main_thread()
    threads[0].join(5)
    assert not threads[0].is_alive()


# the end


def test_close_answers_the_check_that_runs_and_no_other(caplog):
    caplog.set_level(logging.DEBUG)

    async def check(message):
        await asyncio.sleep(1)
        return "COMMIT_MESSAGE"

    async def work(producer, stage):
        await soon()
        stage.ask()
        stage.ask(properties={"UNIQ_KEY": "K2"})
        await soon()
        closing = asyncio.create_task(producer.close())
        await soon()
        stage.ask(properties={"UNIQ_KEY": "K3"})
        await closing
        assert [end["msgId"] for end in stage.ends] == ["K1"]

    run(work, check=check)
    assert "the producer ends; the broker asks for K3 again" in caplog.text


def test_close_does_not_wait_for_a_check_for_ever():
    async def check(message):
        await asyncio.sleep(100)

    async def work(producer, stage):
        await soon()
        stage.ask()
        await soon()
        began = asyncio.get_running_loop().time()
        await producer.close()
        assert asyncio.get_running_loop().time() - began < 1 and stage.ends == []
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(work, check=check, send_msg_timeout=500)


# which brokers may ask


def beats(stage, name="a"):
    return [json.loads(call.command.body) for call in stage.brokers[name].asked if call.command.code == 34]


def test_a_producer_that_sends_nothing_is_known_at_brokers_that_create_topics():
    async def work(producer, stage):
        await soon()
        for name in ("a", "b"):
            assert [beat["producerDataSet"] for beat in beats(stage, name)] == [[{"groupName": "shop"}]]
        await asyncio.sleep(61)
        assert len(beats(stage)) == 3

    run(work, TransactionCluster("a", "b"))


def test_the_brokers_of_topics():
    async def work(producer, stage):
        await soon()
        return len(beats(stage))

    assert run(work, TransactionCluster(creates=False)) == 0
    assert run(work, TransactionCluster(creates=False), topics=["orders"]) == 1
    assert run(work, TransactionCluster(creates=False, missing=["orders"]), topics=["orders"]) == 0


def test_a_topic_that_comes_later():
    async def work(producer, stage):
        await soon()
        stage.missing.clear()
        await asyncio.sleep(65)
        assert beats(stage)

    run(work, TransactionCluster(creates=False, missing=["orders"]), topics=["orders"])


def test_a_name_server_that_is_away_at_the_start(caplog):
    async def work(producer, stage):
        servers = dict(stage.servers)
        stage.servers.clear()
        await asyncio.sleep(4)
        stage.servers |= servers
        await asyncio.sleep(65)
        assert beats(stage)

    run(work, topics=["orders"])
    assert "the route of topic orders cannot be asked for: " in caplog.text


def test_a_broker_that_restarts_gets_a_heartbeat():
    async def work(producer, stage):
        await soon()
        stage.cut(stage.address("a"))
        await producer.send("orders", b"one")
        await soon()
        assert len(beats(stage)) == 2
        stage.ask()
        await soon()
        assert len(stage.ends) == 1

    run(work, check=commit)


def test_the_code_that_other_producers_answer():
    """A broker asks only groups of producers with a check; an AsyncProducer says that it does not know the request."""

    async def main():
        stage = TransactionCluster()
        async with stage.producer() as producer:
            await producer.send("orders", b"one")
            server = stage.servers[stage.address("a")]
            [connection] = server.connections
            answer = await server.call(
                connection, CHECK, {"tranStateTableOffset": 1, "commitLogOffset": 2}, encode("orders", b"one"), 3.0
            )
            assert answer.code == Code.REQUEST_CODE_NOT_SUPPORTED

    play(main())


def test_a_question_is_answered_only_by_end_transaction():
    """RocketMQ's brokers do not expect one: the answer is END_TRANSACTION."""

    async def work(producer, stage):
        await soon()
        server = stage.servers[stage.address("a")]
        [connection] = server.connections
        record = encode("orders", b"one", properties={"PGROUP": "shop", "UNIQ_KEY": "K1"})
        values = {"tranStateTableOffset": 1, "commitLogOffset": 2}
        waiting = asyncio.ensure_future(server.call(connection, CHECK, values, record, 1.0))
        await asyncio.wait({waiting})
        assert waiting.exception() is not None and stage.states == [COMMIT]

    run(work, check=commit)


def test_a_heartbeat_that_is_refused(caplog):
    async def work(producer, stage):
        await soon()

    stage = TransactionCluster()
    stage.brokers["a"].answers[34] = Answer(Code.SYSTEM_ERROR, remark="no")
    run(work, stage)
    assert "broker a does not accept the heartbeat" in caplog.text
