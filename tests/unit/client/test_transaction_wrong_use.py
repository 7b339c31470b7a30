"""Wrong use of AsyncTransactionProducer gives clear errors, and nothing is sent."""

import pytest
from unit.client.scripted import NAME_SERVER
from unit.client.scripted_transactions import properties_of, run

from rocketc.client import AsyncTransactionProducer, LocalTransactionState
from rocketc.errors import IllegalMessageError


def test_wrong_calls():
    def local(message):
        raise AssertionError

    async def work(producer, stage):
        for topic, body, options, kind, text in [
            ("orders", [b"one", b"two"], {}, TypeError, "body: expected bytes, got list"),
            ("orders", b"", {}, IllegalMessageError, "an empty body"),
            ("", b"one", {}, IllegalMessageError, "a topic name must not be empty"),
            (
                "orders",
                b"one",
                {"delay_level": 3},
                IllegalMessageError,
                "delay_level: a message of a",
            ),
            ("orders", b"one", {"delay_level": "10s"}, IllegalMessageError, "of a transaction cannot be delayed"),
            (
                "orders",
                b"one",
                {"delay": 0},
                IllegalMessageError,
                "delay: a message of a transaction",
            ),
            ("orders", b"one", {"deliver_at": 5}, IllegalMessageError, "deliver_at: a message of a transaction cannot"),
            ("orders", b"one", {"properties": {"PGROUP": "x"}}, IllegalMessageError, "RocketMQ uses this name"),
            ("orders", b"one", {"timeout": 0}, ValueError, "timeout"),
            ("orders", b"one", {"queue": 1, "selector": min}, IllegalMessageError, "give queue or selector, not both"),
            ("orders", b"one", {"colour": 7}, TypeError, "colour"),
        ]:
            with pytest.raises(kind, match=text):
                await producer.send_in_transaction(topic, body, local, **options)
            with pytest.raises(kind, match=text):
                async with producer.transaction(topic, body, **options):
                    raise AssertionError
        for wrong in (None, "COMMIT_MESSAGE", LocalTransactionState.COMMIT_MESSAGE):
            with pytest.raises(TypeError, match="local_transaction: expected a function that gets the message"):
                await producer.send_in_transaction("orders", b"one", wrong)
        assert not stage.halves() and not producer._open

    run(work)


def test_wrong_producers():
    with pytest.raises(TypeError, match="check"):
        AsyncTransactionProducer("shop")
    with pytest.raises(TypeError, match=r"check: expected a function that .*, got None"):
        AsyncTransactionProducer("shop", check=None)
    with pytest.raises(TypeError, match="topics: expected several topics, got the text 'orders'"):
        AsyncTransactionProducer("shop", check=print, topics="orders")
    with pytest.raises(TypeError, match="topics: expected texts, got int"):
        AsyncTransactionProducer("shop", check=print, topics=[7])
    with pytest.raises(ValueError, match="topic 'my orders': a topic name may only have letters"):
        AsyncTransactionProducer("shop", check=print, topics=["my orders"])
    with pytest.raises(ValueError, match="check_thread_pool_max_size is 0; allowed are 1 to 1000"):
        AsyncTransactionProducer("shop", check=print, check_thread_pool_max_size=0)
    with pytest.raises(ValueError, match="check_request_hold_max is 0; allowed are 1 to"):
        AsyncTransactionProducer("shop", check=print, check_request_hold_max=0)
    with pytest.raises(ValueError, match="group 'my shop': a group name may only have letters"):
        AsyncTransactionProducer("my shop", check=print)


def test_other_sends_of_the_same_producer():
    async def work(producer, stage):
        await producer.send("orders", b"one", delay_level=1)
        assert "TRAN_MSG" not in properties_of(stage.halves()[0]) and stage.halves()[0].values["sysFlag"] == 0
        assert stage.ends == []

    run(work)


def test_what_a_producer_and_a_transaction_show():
    async def work(producer, stage):
        assert repr(producer) == f"<AsyncTransactionProducer shop, name server {NAME_SERVER}, open>"
        async with producer.transaction("orders", b"one") as transaction:
            begun = f"<AsyncTransaction of shop, topic orders, {transaction.msg_id}, "
            assert repr(transaction) == f"{begun}open>"
        assert repr(transaction) == f"{begun}ended, COMMIT_MESSAGE>"

    run(work)
