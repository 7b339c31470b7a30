"""A client that is dropped without close(): a ResourceWarning names it, and it ends."""

import gc
import threading

import pytest

import rocketc
from rocketc.client import Producer, PullConsumer, PushConsumer, loop_thread


@pytest.fixture(scope="module")
def broker():
    with rocketc.Broker() as one:
        one.topics.create("orders", 1)
        yield one


def producer(broker):
    one = Producer("dropped", broker.name_server)
    one.start()
    one.send("orders", b"one")
    one.send_async("orders", b"two").result(10)
    return one


def push_consumer(broker):
    one = PushConsumer("dropped", broker.name_server)
    one.subscribe("orders", listener=lambda message: None)
    one.start()
    return one


def pull_consumer(broker):
    one = PullConsumer("dropped", broker.name_server, topics=["orders"])
    one.start()
    return one


@pytest.mark.parametrize("make", [producer, push_consumer, pull_consumer])
def test_a_dropped_client_ends(broker, make, monkeypatch, caplog):
    ended, real = threading.Event(), loop_thread.give_back_loop

    def give_back(thread):
        real(thread)
        ended.set()

    monkeypatch.setattr(loop_thread, "give_back_loop", give_back)
    one = make(broker)
    kind, instances = type(one).__name__, [one for one in gc.get_objects() if type(one).__name__ == "ClientInstance"]
    open_ones = [one for one in instances if not one.is_closed]
    with pytest.warns(ResourceWarning, match=f"^the {kind} of group dropped was never closed, so it ends now: "):
        del one
        gc.collect()
    assert ended.wait(10)
    assert open_ones and all(one.is_closed for one in open_ones)
    assert f"the {kind} of group dropped was never closed" in caplog.text


@pytest.mark.parametrize("make", [producer, push_consumer, pull_consumer])
@pytest.mark.filterwarnings("error::ResourceWarning")
@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_client_that_is_closed_or_not_started_does_not_warn(broker, make):
    make(broker).close()
    for kind in (Producer, PushConsumer, PullConsumer):
        kind("dropped", broker.name_server)
        with pytest.raises(TypeError):
            kind(7)
    gc.collect()
