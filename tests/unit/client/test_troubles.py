"""troubles: what fails each time is logged once, and when it works again."""

import contextlib
import logging
import time

import pytest

import rocketc
from rocketc.client import Producer, PushConsumer
from rocketc.client.troubles import Troubles
from rocketc.errors import RocketcError


def test_once_until_it_works_again(caplog):
    caplog.set_level(logging.DEBUG)
    troubles = Troubles()
    for _ in range(3):
        troubles.failed("a pull from a", RocketcError("closed"))
    troubles.failed("a pull from b", OSError("strange"))
    for _ in range(2):
        troubles.works("a pull from a")
    troubles.failed("a pull from a", RocketcError("closed"))
    again = "failed; it is tried again: closed"
    assert [(record.levelname, record.getMessage(), bool(record.exc_info)) for record in caplog.records] == [
        ("WARNING", f"a pull from a {again}", False),
        ("DEBUG", f"a pull from a {again}", False),
        ("DEBUG", f"a pull from a {again}", False),
        ("WARNING", "a pull from b failed; it is tried again: strange", True),
        ("WARNING", "a pull from a works again; it failed 3 times", False),
        ("WARNING", f"a pull from a {again}", False),
    ]


@pytest.mark.long  # another process may take the ports meanwhile
def test_an_outage_is_a_few_lines(tmp_path, caplog):
    """A group with 16 queues, whose broker is away for seconds: each queue logged a line a second."""
    settings = {"process": True, "default_topic_queue_nums": 16}
    with contextlib.ExitStack() as clients:
        with rocketc.Broker(tmp_path / "store", **settings) as first:
            port, namesrv_port = (int(address.rpartition(":")[2]) for address in (first.address, first.name_server))
            first.topics.create("orders", 16)
            consumer = PushConsumer("billing", first.name_server, consume_from_where="CONSUME_FROM_FIRST_OFFSET")
            found = []
            consumer.subscribe("orders", listener=found.append)
            clients.enter_context(consumer)
            with Producer("shop", first.name_server) as producer:
                producer.send_many("orders", [b"1"] * 16)
            wait(lambda: len(found) == 16)
        time.sleep(2.5)
        with rocketc.Broker(tmp_path / "store", port=port, namesrv_port=namesrv_port, **settings) as second:
            with Producer("shop", second.name_server) as producer:
                producer.send_many("orders", [b"2"] * 16)
            wait(lambda: sum(one.body == b"2" for one in found) >= 16)
            consumer.close()
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    pulls = [line for line in lines if ": a pull " in line]
    assert any("billing: a pull from broker-a failed; it is tried again: " in line for line in pulls), lines
    assert len(pulls) <= 8 and len(lines) <= 20, lines


def wait(condition):
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)
