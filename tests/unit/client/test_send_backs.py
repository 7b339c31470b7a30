"""Messages that return to the broker: the fields of the request, and the message of the fallback."""

from types import SimpleNamespace

import pytest

from rocketc.client.send_backs import (
    DEAD_LETTER,
    LocalRetries,
    most_times,
    retry_send,
    send_back_fields,
    shown_topic,
)
from rocketc.format._encoding import encode
from rocketc.read._message import Message
from rocketc.remoting.requests import REQUESTS


def message(topic="orders", times=0, **properties):
    return Message.of(
        encode(
            topic,
            b"body",
            flag=5,
            queue_offset=7,
            phy_offset=1234,
            reconsume_times=times,
            store_host=("10.0.0.1", 10911),
            properties=properties,
        )
    )


def test_the_topic_that_a_listener_sees():
    assert shown_topic("audit", message()) == "orders"
    assert shown_topic("audit", message("%RETRY%audit", RETRY_TOPIC="orders")) == "orders"
    assert shown_topic("audit", message("%RETRY%audit")) == "%RETRY%audit"
    assert shown_topic("audit", message("%RETRY%other", RETRY_TOPIC="orders")) == "%RETRY%other"
    assert shown_topic("audit", message("orders", RETRY_TOPIC="first")) == "orders"


@pytest.mark.parametrize(
    ("asked", "orderly", "most"), [(-1, False, 16), (-1, True, 2147483647), (0, False, 0), (0, True, 0), (5, False, 5)]
)
def test_most_times(asked, orderly, most):
    assert most_times(asked, is_orderly=orderly) == most


def test_fields_are_those_of_the_table():
    fields = send_back_fields("audit", message(UNIQ_KEY="unique"), DEAD_LETTER, 3)
    assert fields == {
        "offset": 1234,
        "group": "audit",
        "delayLevel": -1,
        "originMsgId": "unique",
        "originTopic": "orders",
        "unitMode": False,
        "maxReconsumeTimes": 3,
    }
    assert fields.keys() == {field.name for field in REQUESTS[36].fields}
    again = send_back_fields("audit", message("%RETRY%audit", RETRY_TOPIC="orders"))
    assert (again["originTopic"], again["delayLevel"], again["maxReconsumeTimes"]) == ("orders", 0, 16)
    assert again["originMsgId"] == message().msg_id


def test_the_fallback_of_a_first_failure():
    sent = retry_send(
        "audit", message(UNIQ_KEY="unique", KEYS="k", TAGS="t", own="x", TRAN_MSG="true"), 0, 16, is_orderly=False
    )
    assert (sent.topic, sent.body, sent.flag) == ("%RETRY%audit", b"body", 5)
    assert (sent.reconsume_times, sent.max_reconsume_times) == (1, 16)
    assert sent.properties == {
        "UNIQ_KEY": "unique",
        "KEYS": "k",
        "TAGS": "t",
        "own": "x",
        "RETRY_TOPIC": "orders",
        "DELAY": "3",
        "RECONSUME_TIME": "1",
        "MAX_RECONSUME_TIMES": "16",
    }  # as stored by a broker after RocketMQ's client has sent it


def test_an_orderly_message_that_failed_too_many_times():
    sent = retry_send("audit", message(UNIQ_KEY="unique", TRAN_MSG="true"), 1, 1, is_orderly=True)
    assert (sent.reconsume_times, sent.max_reconsume_times) == (2, 1)
    assert sent.properties == {
        "UNIQ_KEY": "unique",
        "RETRY_TOPIC": "orders",
        "ORIGIN_MESSAGE_ID": "unique",
        "DELAY": "4",
        "RECONSUME_TIME": "2",
        "MAX_RECONSUME_TIMES": "1",
    }


def test_the_fallback_of_a_later_failure():
    failed = message(
        "%RETRY%audit",
        RETRY_TOPIC="orders",
        ORIGIN_MESSAGE_ID="first",
        UNIQ_KEY="unique",
        DELAY="4",
        RECONSUME_TIME="2",
        MAX_RECONSUME_TIMES="9",
    )
    sent = retry_send("audit", failed, 2, 9, is_orderly=True)
    assert sent == retry_send("audit", failed, 2, 9, is_orderly=False)
    assert sent.properties == {
        "RETRY_TOPIC": "orders",
        "ORIGIN_MESSAGE_ID": "first",
        "UNIQ_KEY": "unique",
        "DELAY": "5",
        "RECONSUME_TIME": "3",
        "MAX_RECONSUME_TIMES": "9",
    }
    assert (sent.reconsume_times, sent.max_reconsume_times) == (3, 9)


def test_an_origin_that_is_empty():
    names = ("topic", "body", "flag", "msg_id", "reconsume_times")
    strange = SimpleNamespace(**{name: getattr(message(), name) for name in names})
    strange.properties = {"ORIGIN_MESSAGE_ID": ""}
    assert retry_send("audit", strange, 0, 16, is_orderly=True).properties["ORIGIN_MESSAGE_ID"] == message().msg_id


def test_local_retries():
    retries = LocalRetries()
    one, two = (SimpleNamespace(queue_offset=offset, reconsume_times=offset) for offset in (1, 2))
    assert (retries.times(one), retries.times(two)) == (1, 2)
    retries.add([one, two])
    retries.add([two])
    assert (retries.times(one), retries.times(two)) == (2, 4)
    retries.forget(before=2)
    assert (retries.times(one), retries.times(two)) == (1, 4)
    retries.forget(before=3)
    retries.forget(before=3)
    assert len(retries) == 0
