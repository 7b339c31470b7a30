"""AsyncTransactionProducer: half messages and their ends, at brokers that do what a test says, on virtual time."""

import asyncio
import logging
import zlib

import pytest
from unit.client.scripted import play
from unit.client.scripted_transactions import TextlessError, TransactionCluster, properties_of, run

from rocketc.client import LocalTransactionState, MessageQueue, SendStatus
from rocketc.errors import AnswerError, ClosedError, HalfMessageError, IllegalMessageError, NotSentError
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer

COMMIT, ROLLBACK, UNKNOW = 8, 12, 0
STATES = [("COMMIT_MESSAGE", COMMIT), ("ROLLBACK_MESSAGE", ROLLBACK), ("UNKNOW", UNKNOW)]


async def soon():
    await asyncio.sleep(0.1)


# what is sent


def test_the_ends_are_counted():
    async def work(producer, stage):
        for state in ("COMMIT_MESSAGE", "COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"):
            await producer.send_in_transaction("orders", b"one", lambda message, state=state: state)
        found = producer.counts()
        assert found.ends == {"COMMIT_MESSAGE": 2, "ROLLBACK_MESSAGE": 1, "UNKNOW": 1}
        assert {key: times.count for key, times in found.sends} == {("orders", True): 4}

    run(work)


def test_the_half_message():
    async def work(producer, stage):
        result = await producer.send_in_transaction(
            "orders",
            b"one",
            lambda message: "UNKNOW",
            tags="web",
            keys="o-1",
            properties={"own": "x", "CHECK_IMMUNITY_TIME_IN_SECONDS": "60"},
            flag=3,
            delay_level=0,
        )
        [half] = stage.halves()
        properties = properties_of(half)
        assert properties.pop("UNIQ_KEY") == result.msg_id
        assert properties == {
            "own": "x", "CHECK_IMMUNITY_TIME_IN_SECONDS": "60", "TAGS": "web",
            "KEYS": "o-1", "TRAN_MSG": "true", "PGROUP": "shop", "WAIT": "true",
        }  # fmt: skip
        assert (half.values["sysFlag"], half.values["flag"], half.values["topic"]) == (4, 3, "orders")
        large = await producer.send_in_transaction("orders", b"x" * 5000, lambda message: "UNKNOW")
        assert stage.halves()[1].values["sysFlag"] & 5 == 5 and large.sent.status is SendStatus.SEND_OK
        assert zlib.decompress(stage.halves()[1].command.body) == b"x" * 5000

    run(work)


@pytest.mark.parametrize("is_text", [True, False])
@pytest.mark.parametrize("is_coroutine", [True, False])
@pytest.mark.parametrize(("name", "number"), STATES)
def test_the_end_is_what_the_local_transaction_says(name, number, is_coroutine, is_text):
    state = LocalTransactionState[name]

    def plain(message):
        return name if is_text else state

    async def coroutine(message):
        await asyncio.sleep(0.3)
        return plain(message)

    async def work(producer, stage):
        result = await producer.send_in_transaction("orders", b"one", coroutine if is_coroutine else plain)
        await soon()
        assert result.state is state and result.error is None and result.end_error is None
        opaque = stage.halves()[0].command.opaque
        assert stage.ends == [
            {
                "topic": "orders", "producerGroup": "shop", "tranStateTableOffset": 7, "commitLogOffset": opaque,
                "commitOrRollback": number, "fromTransactionCheck": False, "msgId": result.msg_id,
                "transactionId": result.msg_id, "remark": None,
            }
        ]  # fmt: skip
        assert all(call.command.is_oneway for call in stage.brokers["a"].asked if call.command.code == 37)

    run(work)


def test_the_transaction_id_of_the_broker():
    async def work(producer, stage):
        stage.brokers["a"].answers[310] = lambda call: Answer(values=stage._store(call).values | {"transactionId": "T"})
        result = await producer.send_in_transaction("orders", b"one", lambda message: found.append(message) or "UNKNOW")
        await soon()
        assert result.transaction_id == stage.ends[0]["transactionId"] == "T" != result.msg_id
        assert found[0].properties["__transactionId__"] == "T"

    found = []
    run(work)


def test_a_broker_that_answers_without_a_transaction_id():
    async def work(producer, stage):
        result = await producer.send_in_transaction("orders", b"one", lambda message: "COMMIT_MESSAGE")
        await soon()
        assert result.transaction_id == stage.ends[0]["transactionId"] == result.msg_id

    run(work, TransactionCluster(transaction_id=False))


@pytest.mark.parametrize("body", [b"one", b"x" * 5000])
def test_the_message_of_the_local_transaction(body):
    async def work(producer, stage):
        result = await producer.send_in_transaction(
            "orders", body, lambda message: found.append(message) or "COMMIT_MESSAGE", tags="web", keys=["o-1", "c-7"]
        )
        [message] = found
        assert (message.topic, message.body, message.tags, message.keys) == ("orders", body, "web", "o-1 c-7")
        assert message.msg_id == result.sent.offset_msg_id and message.properties["UNIQ_KEY"] == result.msg_id
        assert (message.queue_id, message.queue_offset) == (result.sent.queue.queue_id, 7)
        assert 1_764_000_000_000 <= message.born_timestamp < 1_764_000_001_000

    found = []
    run(work)


@pytest.mark.parametrize("size", [32_600, 32_642])
def test_properties_as_long_as_possible(size):
    async def work(producer, stage):
        await producer.send_in_transaction(
            "orders", b"one", lambda message: found.append(message) or "UNKNOW", properties={"own": "x" * size}
        )
        assert len(found[0].properties["own"]) == size
        with pytest.raises(IllegalMessageError, match="properties of more than 32767 bytes"):
            await producer.send_in_transaction("orders", b"one", found.append, properties={"own": "x" * 32_700})

    found = []
    run(work)


@pytest.mark.parametrize("status", ["FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"])
def test_a_half_message_with_another_status_is_rolled_back(status):
    async def work(producer, stage):
        result = await producer.send_in_transaction("orders", b"one", lambda message: ran.append(1) or "COMMIT_MESSAGE")
        assert (result.sent.status.name, result.state.name, result.error) == (status, "ROLLBACK_MESSAGE", None)
        with pytest.raises(HalfMessageError, match=f"was stored with the status {status}, so it is rolled") as caught:
            async with producer.transaction("orders", b"two"):
                ran.append(2)
        assert caught.value.result.status.name == status
        await soon()
        assert stage.states == [ROLLBACK, ROLLBACK] and ran == [] and not producer._open
        assert stage.ends[0]["remark"] == (
            f"the half message {result.msg_id} was stored with the status {status}, so it is rolled back"
        )

    ran = []
    run(work, TransactionCluster(status=Code[status]))


@pytest.mark.parametrize("is_coroutine", [True, False])
def test_an_exception_of_the_local_transaction(caplog, is_coroutine):
    def plain(message):
        raise ValueError("no stock")

    async def coroutine(message):
        plain(message)

    async def work(producer, stage):
        result = await producer.send_in_transaction("orders", b"one", coroutine if is_coroutine else plain)
        await soon()
        assert result.state is LocalTransactionState.UNKNOW and str(result.error) == "no stock"
        assert stage.ends[0]["remark"] == "ValueError: no stock" and stage.states == [UNKNOW]
        assert (
            f"the local transaction of {result.msg_id} failed; the broker asks later: ValueError: no stock"
            in caplog.text
        )

    run(work)


@pytest.mark.parametrize("returned", [None, True, 8, "COMMIT", b"COMMIT_MESSAGE"])
def test_what_a_local_transaction_must_not_return(returned, caplog):
    async def work(producer, stage):
        result = await producer.send_in_transaction("orders", b"one", lambda message: returned)
        await soon()
        assert stage.states == [UNKNOW] and isinstance(result.error, TypeError | ValueError)
        assert "was returned; " in stage.ends[0]["remark"] and "was returned; " in caplog.text

    run(work)


def test_a_long_remark_is_cut(caplog):
    caplog.set_level(logging.CRITICAL, "rocketc")  # pytest-xdist can't carry such a text

    async def work(producer, stage):
        def fail(message):
            raise ValueError("é\ud800" * 100_000)

        await producer.send_in_transaction("orders", b"one", fail)
        await soon()
        assert len(stage.ends[0]["remark"]) == 1000

    run(work)


def test_an_exception_without_a_text_ends_the_transaction(caplog):
    async def work(producer, stage):
        def fail(message):
            raise TextlessError

        result = await producer.send_in_transaction("orders", b"one", fail)
        with pytest.raises(TextlessError):
            async with producer.transaction("orders", b"two"):
                raise TextlessError
        await soon()
        assert isinstance(result.error, TextlessError) and stage.states == [UNKNOW, ROLLBACK] and not producer._open
        remark = "TextlessError: the exception could not make its text"
        assert [end["remark"] for end in stage.ends] == [remark] * 2 and remark[15:] in caplog.text

    run(work)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_what_ends_a_program_in_a_local_transaction_does_not_commit(kind):
    def plain(message):
        raise kind

    async def coroutine(message):
        raise kind

    async def work(producer, stage):
        for local in (plain, coroutine):
            with pytest.raises(kind):
                await producer.send_in_transaction("orders", b"one", local)
        with pytest.raises(kind):
            async with producer.transaction("orders", b"one"):
                raise kind
        await soon()
        assert stage.states == [UNKNOW] * 3 and not producer._open
        assert [end["remark"] for end in stage.ends] == [kind.__name__] * 3

    run(work)


def test_a_half_message_that_is_not_stored():
    async def work(producer, stage):
        with pytest.raises(AnswerError, match="MESSAGE_ILLEGAL"):
            await producer.send_in_transaction("orders", b"one", lambda message: ran.append(1))
        with pytest.raises(AnswerError, match="MESSAGE_ILLEGAL"):
            async with producer.transaction("orders", b"one"):
                ran.append(1)
        await soon()
        assert not ran and not stage.ends and not producer._open

    ran = []
    run(work, TransactionCluster(status=Code.MESSAGE_ILLEGAL))


@pytest.mark.parametrize("msg_id", ["", "A,B", "zz" * 16, "00" * 20])
def test_an_answer_without_a_place_in_the_commit_log(msg_id):
    async def work(producer, stage):
        stage.brokers["a"].answers[310] = lambda call: Answer(values=stage._store(call).values | {"msgId": msg_id})
        with pytest.raises(AnswerError, match="the answer to a half message cannot be read: "):
            await producer.send_in_transaction("orders", b"one", lambda message: ran.append(1))
        assert not ran and not producer._open

    ran = []
    run(work)


def test_a_half_message_goes_to_another_broker_and_its_end_to_the_same():
    async def work(producer, stage):
        stage.brokers["a"].answers[310] = Answer(Code.SYSTEM_BUSY)
        for _ in range(4):
            await producer.send_in_transaction("orders", b"one", lambda message: "COMMIT_MESSAGE")
        await soon()
        assert stage.brokers["a"].count(37) == 0 and stage.brokers["b"].count(37) == 4

    run(work, TransactionCluster("a", "b"))


def test_a_queue_a_selector_and_a_shard():
    async def work(producer, stage):
        queue = MessageQueue("orders", "a", 1)
        for how in ({"queue": queue}, {"selector": lambda queues: queues[1]}, {"shard": "c-7", "timeout": 500}):
            async with producer.transaction("orders", b"one", **how) as transaction:
                assert transaction.sent.queue.topic == "orders"
        assert [half.values["queueId"] for half in stage.halves()][:2] == [1, 1]
        assert properties_of(stage.halves()[2])["__SHARDINGKEY"] == "c-7"

    run(work)


# END_TRANSACTION that is not written


def test_an_end_that_is_not_written(caplog):
    async def work(producer, stage):
        def dies(message):
            del stage.servers[stage.address("a")]
            stage.cut(stage.address("a"))
            return "COMMIT_MESSAGE"

        result = await producer.send_in_transaction("orders", b"one", dies)
        assert result.state is LocalTransactionState.COMMIT_MESSAGE and isinstance(result.end_error, NotSentError)
        assert (
            f"END_TRANSACTION with COMMIT_MESSAGE of {result.msg_id} was not written; the broker asks later: 10.0.1.0"
        ) in caplog.text
        assert not stage.ends

    run(work)


def test_a_block_whose_end_is_not_written(caplog):
    async def work(producer, stage):
        async with producer.transaction("orders", b"one") as transaction:
            del stage.servers[stage.address("a")]
            stage.cut(stage.address("a"))
        assert isinstance(transaction.end_error, NotSentError)
        assert transaction.state is LocalTransactionState.COMMIT_MESSAGE
        with pytest.raises(ValueError, match="of the program"):
            async with producer.transaction("orders", b"two", timeout=100):
                raise ValueError("of the program")

    async def main():
        stage = TransactionCluster()
        async with stage.transaction_producer() as producer:
            with pytest.raises(NotSentError):  # the second half message
                await work(producer, stage)

    play(main())
    assert "END_TRANSACTION with COMMIT_MESSAGE of " in caplog.text


def test_an_end_goes_to_the_new_address_of_the_broker():
    async def work(producer, stage):
        async with producer.transaction("orders", b"one"):
            server = stage.servers.pop("10.0.1.0:10911")
            stage.cut("10.0.1.0:10911")
            stage.servers["10.0.2.0:10911"] = server
            stage.address = lambda name: "10.0.2.0:10911"
            await asyncio.sleep(40)
        await soon()
        assert stage.states == [COMMIT]

    run(work)


def test_an_end_at_a_broker_without_a_master(caplog):
    async def work(producer, stage):
        half = await producer._send_half("orders", b"one")
        half.address = ""
        stage.names = []
        await asyncio.sleep(31)
        error = await producer._end(half, LocalTransactionState.COMMIT_MESSAGE, None)
        assert isinstance(
            error, NotSentError
        ) and "no master of the broker that has the half message is known now" in str(error)

    run(work)
    assert (
        "was not written; the broker asks later: no master of the broker that has the half message is known now"
        in caplog.text
    )


# blocks


@pytest.mark.parametrize("decision", [None, "commit", "rollback", "unknown"])
@pytest.mark.parametrize("raised", [None, ValueError, KeyboardInterrupt, asyncio.CancelledError])
def test_how_a_block_ends(decision, raised):
    async def work(producer, stage):
        transaction = producer.transaction("orders", b"one", keys="o-1")
        try:
            async with transaction as same:
                assert same is transaction and transaction.state is None
                if decision:
                    getattr(transaction, decision)()
                if raised:
                    raise raised("x")
        except BaseException as error:
            assert type(error) is raised
        else:
            assert raised is None
        await soon()
        usual = COMMIT if raised is None else ROLLBACK if raised is ValueError else UNKNOW
        assert stage.states == [{"commit": COMMIT, "rollback": ROLLBACK, "unknown": UNKNOW, None: usual}[decision]]
        assert stage.ends[0]["remark"] == (raised and f"{raised.__name__}: x")
        assert transaction.state.number == stage.states[0] and transaction.end_error is None

    run(work)


def test_what_a_block_knows():
    async def work(producer, stage):
        async with producer.transaction("orders", b"one", keys="o-1") as transaction:
            assert transaction.msg_id == transaction.transaction_id == properties_of(stage.halves()[0])["UNIQ_KEY"]
            assert (transaction.message.keys, transaction.sent.status) == ("o-1", SendStatus.SEND_OK)
            transaction.unknown()
            transaction.commit()
            assert not stage.ends, "the end of the block sends it"
        for late in (transaction.commit, transaction.rollback, transaction.unknown):
            with pytest.raises(ClosedError, match="the transaction has ended"):
                late()
        assert transaction.msg_id, "it is still known"
        with pytest.raises(ClosedError, match="the transaction has begun before: make another one"):
            async with transaction:
                pass

    run(work)


def test_a_block_that_has_not_begun():
    async def work(producer, stage):
        transaction = producer.transaction("orders", b"one")
        for early in (transaction.commit, lambda: transaction.msg_id, lambda: transaction.message):
            with pytest.raises(ClosedError, match="the transaction has not begun: use it as a context manager"):
                early()
        assert transaction.state is None and not stage.halves()

    run(work)


def test_many_transactions_at_once():
    async def work(producer, stage):
        async def one(number):
            async with producer.transaction("orders", b"%d" % number) as transaction:
                await asyncio.sleep(0.01 * (number % 7))
                if number % 2:
                    transaction.rollback()
            return transaction.msg_id, ROLLBACK if number % 2 else COMMIT

        expected = dict(await asyncio.gather(*[one(number) for number in range(100)]))
        await soon()
        assert {end["msgId"]: end["commitOrRollback"] for end in stage.ends} == expected and len(expected) == 100

    run(work)


# cancellation and the end


@pytest.mark.parametrize("is_block", [True, False])
def test_a_cancellation_at_any_time(is_block):
    """A decision is written. Without one it is UNKNOW, or nothing if the broker has not answered."""
    seen = set()

    async def main(seconds):
        stage, decided = TransactionCluster(), []
        producer = stage.transaction_producer()

        async def local(message):
            await asyncio.sleep(0.02)
            decided.append(1)
            return "COMMIT_MESSAGE"

        async def block():
            async with producer.transaction("orders", b"one") as transaction:
                await local(transaction.message)

        async with producer:
            await producer.send("orders", b"so that the route is known")
            work = block() if is_block else producer.send_in_transaction("orders", b"one", local)
            task = asyncio.create_task(work)
            await asyncio.sleep(seconds)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await soon()
            assert stage.states in (([COMMIT],) if decided else ([], [UNKNOW]))
            seen.add((bool(decided), tuple(stage.states)))
            assert not producer._open and not producer._ending and producer._in_flight.messages == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}

    for step in range(80):
        play(main(step * 0.001))
    assert seen >= {(False, ()), (False, (UNKNOW,)), (True, (COMMIT,))}


def test_a_cancellation_while_the_end_is_written():
    async def work(producer, stage):
        async def cut(message):
            stage.cut(stage.address("a"))  # the end needs a new connection
            return "COMMIT_MESSAGE"

        task = asyncio.create_task(producer.send_in_transaction("orders", b"one", cut))
        while not producer._ending:
            await asyncio.sleep(0.0001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await soon()
        assert stage.states == [COMMIT]

    run(work)


def test_close_waits_for_a_transaction():
    async def work(producer, stage):
        async def one():
            async with producer.transaction("orders", b"one"):
                await asyncio.sleep(1)

        task = asyncio.create_task(one())
        await soon()
        await producer.close()
        assert stage.states == [COMMIT]
        await task

    run(work)


def test_close_does_not_wait_for_ever(caplog):
    async def work(producer, stage):
        async def one():
            async with producer.transaction("orders", b"one") as transaction:
                await asyncio.sleep(100)
            return transaction.end_error

        task, began = asyncio.create_task(one()), asyncio.get_running_loop().time()
        await soon()
        await producer.close()
        assert 3 <= asyncio.get_running_loop().time() - began < 3.5
        assert stage.states == [UNKNOW] and stage.ends[0]["remark"] == "the producer was closed"
        assert isinstance(await task, NotSentError)
        assert stage.states == [UNKNOW]

    run(work)
    assert "END_TRANSACTION with COMMIT_MESSAGE" in caplog.text


@pytest.mark.parametrize("seconds", [0.0, 0.0005, 0.5, 2.9995, 3.0005])
def test_a_canceled_close_leaves_nothing(seconds):
    async def check(message):
        await asyncio.sleep(50)

    async def main():
        stage = TransactionCluster()
        async with stage.transaction_producer(check=check) as producer:
            await producer._send_half("orders", b"one")
            stage.ask()
            await soon()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(producer.close(), seconds)
        await asyncio.sleep(0.2)
        assert [address for address, link in stage.links if not link.is_closing()] == []
        assert asyncio.all_tasks() == {asyncio.current_task()}

    play(main())


def test_after_the_end():
    async def main():
        stage = TransactionCluster()
        producer = stage.transaction_producer()
        for _ in range(2):
            await producer.close()  # it was not started
        with pytest.raises(ClosedError, match="the producer is not started"):
            await producer.send_in_transaction("orders", b"one", lambda message: "UNKNOW")
        async with producer:
            await producer.start()
        await producer.close()
        with pytest.raises(ClosedError, match="the client is closed"):
            async with producer.transaction("orders", b"one"):
                pass
        with pytest.raises(ClosedError, match="hooks are added before a client starts"):
            producer.add_end_transaction_hook(print)

    play(main())
