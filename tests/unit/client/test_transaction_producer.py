"""TransactionProducer: local transactions on the caller's thread; Ctrl-C, forks, threads, and the end."""

import asyncio
import concurrent.futures
import os
import random
import signal
import threading
import time

import pytest
from unit.client.scripted import NAME_SERVER
from unit.client.scripted_transactions import TransactionCluster

from rocketc.client import LocalTransactionState, TransactionProducer, loop_thread
from rocketc.client.access import Access
from rocketc.errors import ClosedError, HalfMessageError, IllegalMessageError
from rocketc.remoting.codes import Code

COMMIT, ROLLBACK, UNKNOW = 8, 12, 0


def until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)
    return True


@pytest.fixture
def stage():
    one = TransactionCluster()
    yield one
    assert loop_thread._shared is None, "each test closes its producers"


def opened(stage, check=lambda message: "UNKNOW", **options):
    producer = TransactionProducer("shop", NAME_SERVER, check=check, client_ip="10.0.9.9", **options)
    producer._transactions._access = Access((NAME_SERVER,), connector=stage.connector, chance=random.Random(2))
    return producer


@pytest.mark.parametrize(("name", "number"), [("COMMIT_MESSAGE", 8), ("ROLLBACK_MESSAGE", 12), ("UNKNOW", 0)])
def test_a_local_transaction_runs_on_the_thread_of_the_caller(stage, name, number):
    def local(message):
        threads.append(threading.current_thread())
        assert (message.body, message.keys) == (b"one", "o-1")
        return name

    threads = []
    with opened(stage) as producer:
        result = producer.send_in_transaction("orders", b"one", local, keys="o-1")
        assert until(lambda: stage.states == [number]) and threads == [threading.current_thread()]
        assert result.state is LocalTransactionState[name] and result.transaction_id == result.msg_id
        assert result.error is None and result.end_error is None


def test_an_exception_of_a_local_transaction(stage, caplog):
    def local(message):
        raise ValueError("no stock")

    with opened(stage) as producer:
        result = producer.send_in_transaction("orders", b"one", local)
        assert until(lambda: stage.states == [UNKNOW]) and str(result.error) == "no stock"
    assert (
        f"the local transaction of {result.msg_id} failed; the broker asks later: ValueError: no stock" in caplog.text
    )


@pytest.mark.parametrize(
    ("decision", "raised"),
    [
        (None, None), (None, ValueError), (None, KeyboardInterrupt), ("commit", ValueError),
        ("rollback", None), ("unknown", None),
    ],
)  # fmt: skip
def test_how_a_block_ends(stage, decision, raised):
    with opened(stage) as producer:
        try:
            with producer.transaction("orders", b"one", keys="o-1") as transaction:
                if decision:
                    getattr(transaction, decision)()
                if raised:
                    raise raised("x")
        except BaseException as error:
            assert type(error) is raised
        else:
            assert raised is None
        usual = COMMIT if raised is None else ROLLBACK if raised is ValueError else UNKNOW
        expected = {"commit": COMMIT, "rollback": ROLLBACK, "unknown": UNKNOW, None: usual}[decision]
        assert until(lambda: stage.states == [expected]) and transaction.end_error is None
        assert transaction.state.number == expected and transaction.msg_id == stage.ends[0]["msgId"]
        with pytest.raises(ClosedError, match="the transaction has ended"):
            transaction.commit()
        with pytest.raises(ClosedError, match="the transaction has begun before"), transaction:
            pass


def test_a_half_message_with_another_status_is_rolled_back(stage):
    stage.status, ran = Code.FLUSH_DISK_TIMEOUT, []
    with opened(stage) as producer:
        result = producer.send_in_transaction("orders", b"one", lambda message: ran.append(1))
        assert result.state is LocalTransactionState.ROLLBACK_MESSAGE
        with (
            pytest.raises(HalfMessageError, match="with the status FLUSH_DISK_TIMEOUT"),
            producer.transaction("orders", b"two"),
        ):
            ran.append(2)
        assert until(lambda: stage.states == [ROLLBACK, ROLLBACK]) and not ran


# Ctrl-C


def test_ctrl_c_in_a_local_transaction_does_not_commit(stage):
    def local(message):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
        return "COMMIT_MESSAGE"

    with opened(stage) as producer:
        with pytest.raises(KeyboardInterrupt):
            producer.send_in_transaction("orders", b"one", local)
        with pytest.raises(KeyboardInterrupt), producer.transaction("orders", b"two") as transaction:
            local(transaction.message)
        assert until(lambda: stage.states == [UNKNOW, UNKNOW])
        assert not producer._transactions._open


def test_ctrl_c_while_the_end_is_written(stage):
    """The decision is written all the same."""
    with opened(stage) as producer:
        with producer.transaction("orders", b"one"):
            pass
        until(lambda: stage.states == [COMMIT])
        write, waiting = producer._transactions._write_end, asyncio.Event()

        async def slow(*arguments):
            await asyncio.sleep(0.05)  # the main thread waits by now
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            await waiting.wait()
            return await write(*arguments)

        producer._transactions._write_end = slow
        with pytest.raises(KeyboardInterrupt), producer.transaction("orders", b"two"):
            pass
        assert stage.states == [COMMIT]
        producer._thread.call(waiting.set)
        assert until(lambda: stage.states == [COMMIT, COMMIT])


def test_ctrl_c_before_the_loop_begins_to_write_the_end(stage):
    with opened(stage) as producer:
        timer = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt), producer.transaction("orders", b"one"):
            producer._thread.call(lambda: time.sleep(0.2))  # the call and its end come in one turn of the loop
            timer.start()
        timer.join()
        assert until(lambda: stage.states == [COMMIT])


def test_ctrl_c_while_the_half_message_is_sent(stage):
    stage.brokers["a"].answers[310], ran = None, []
    with opened(stage) as producer:
        timer = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            producer.send_in_transaction("orders", b"one", lambda message: ran.append(1))
        timer.join()
        assert until(lambda: producer._transactions._in_flight.messages == 0)
    assert stage.states == [] and not ran


# threads, forks and the end


def test_threads_share_a_producer(stage):
    with opened(stage) as producer:

        def work(number):
            with producer.transaction("orders", b"%d" % number) as transaction:
                if number % 2:
                    transaction.rollback()
            return transaction.msg_id, ROLLBACK if number % 2 else COMMIT

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            expected = dict(pool.map(work, range(80)))
        assert until(lambda: len(stage.ends) == 80)
        assert {end["msgId"]: end["commitOrRollback"] for end in stage.ends} == expected


def test_a_check_runs_on_a_thread_of_its_own_or_on_the_loop(stage):
    def plain(message):
        threads.append(threading.current_thread().name)
        return "COMMIT_MESSAGE"

    async def coroutine(message):
        return plain(message)

    threads = []
    for check in (plain, coroutine):
        with opened(stage, check) as producer:
            until(lambda: stage.servers[stage.address("a")].connections)
            producer._thread.call(stage.ask)
            until(lambda: stage.ends)
            assert stage.ends.pop()["fromTransactionCheck"] is True
            stage.brokers["a"].asked.clear()
    assert threads == ["rocketc-listener-1", "rocketc-client"]


def test_a_child_that_is_forked_in_a_transaction_does_not_end_it(stage):
    with opened(stage) as producer:
        with producer.transaction("orders", b"one") as transaction:
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    transaction.__exit__(None, None, None)
                    assert isinstance(transaction.end_error, ClosedError) and "before a fork" in str(
                        transaction.end_error
                    )
                    with pytest.raises(ClosedError, match="before a fork"):
                        producer.send_in_transaction("orders", b"one", lambda message: "COMMIT_MESSAGE")
                    producer.close()
                    status = 0
                finally:
                    os._exit(status)
            assert os.waitpid(child, 0)[1] == 0
            assert stage.states == []
        assert until(lambda: stage.states == [COMMIT])


def test_a_producer_that_is_closed_in_a_transaction(stage, caplog):
    with opened(stage, send_msg_timeout=200) as producer, producer.transaction("orders", b"one") as transaction:
        producer.close()
        assert stage.states == [UNKNOW]
    assert isinstance(transaction.end_error, ClosedError)
    assert "END_TRANSACTION with COMMIT_MESSAGE of " in caplog.text
    with pytest.raises(ClosedError, match="the producer is not started, or it is closed"):
        producer.send_in_transaction("orders", b"one", lambda message: "COMMIT_MESSAGE")


def test_a_producer_that_another_thread_closes(stage):
    """close() waits for the transaction."""
    with opened(stage) as producer, producer.transaction("orders", b"one"):
        closing = threading.Thread(target=producer.close)
        closing.start()
        time.sleep(0.05)
        assert closing.is_alive()
    closing.join(10)
    assert stage.states == [COMMIT]


def test_wrong_calls(stage):
    async def coroutine(message):
        return "COMMIT_MESSAGE"

    with opened(stage) as producer:
        with pytest.raises(TypeError, match="local_transaction: a coroutine function; use AsyncTransactionProducer"):
            producer.send_in_transaction("orders", b"one", coroutine)
        with pytest.raises(TypeError, match="local_transaction: expected a function"):
            producer.send_in_transaction("orders", b"one", None)
        with pytest.raises(IllegalMessageError, match="delay_level: a message of a transaction cannot be delayed"):
            producer.send_in_transaction("orders", b"one", coroutine.__call__, delay_level=3)
        with pytest.raises(TypeError, match="body: expected bytes, got list"), producer.transaction("orders", [b"one"]):
            pass
        assert not stage.halves()
    with pytest.raises(TypeError, match="check"):
        TransactionProducer("shop")
    with pytest.raises(TypeError, match="check: expected a function"):
        TransactionProducer("shop", check="COMMIT_MESSAGE")


def test_a_local_transaction_on_the_loop_of_the_clients_is_refused(stage):
    with opened(stage) as producer:

        async def wrong():
            producer.send_in_transaction("orders", b"one", lambda message: "COMMIT_MESSAGE")

        with pytest.raises(RuntimeError, match="on its own event loop: use the async client"):
            producer._thread.run(wrong())


def test_what_a_producer_and_a_transaction_show(stage):
    producer = opened(stage, send_msg_timeout=200)
    shown = f"<TransactionProducer shop, name server {NAME_SERVER}, %s>"
    assert repr(producer) == shown % "not started"
    with producer:
        assert repr(producer) == shown % "open"
        transaction = producer.transaction("orders", b"one")
        assert repr(transaction) == "<Transaction of shop, topic orders, not begun>"
        with transaction:
            begun = f"<Transaction of shop, topic orders, {transaction.msg_id}, "
            assert repr(transaction) == f"{begun}open>"
            transaction.unknown()
            assert repr(transaction) == f"{begun}open, UNKNOW>"
        assert repr(transaction) == f"{begun}ended, UNKNOW>"
        with producer.transaction("orders", b"two") as late, concurrent.futures.ThreadPoolExecutor() as pool:
            pool.submit(producer.close).result()
        assert repr(late) == f"<Transaction of shop, topic orders, {late.msg_id}, ended, COMMIT_MESSAGE, not written>"
    assert repr(producer) == shown % "closed"
