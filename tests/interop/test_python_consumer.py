"""PushConsumer at RocketMQ's own brokers, and in one group with a Java consumer."""

import queue
import threading
import time

import pytest
from interop import scenarios
from interop.peer import RELEASES

import rocketc
from rocketc.client import Producer, PushConsumer

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore:no topic")]

FIRST = {"consume_from_where": "CONSUME_FROM_FIRST_OFFSET"}


@pytest.fixture(scope="module", params=RELEASES)
def place(request, tmp_path_factory):
    """A Java cluster, Java clients of its release, and the folder of the store."""
    folder = tmp_path_factory.mktemp("python-consumer")
    cluster = scenarios.JavaCluster(request.param, folder / "cluster", messageDelayLevel=scenarios.DELAY_LEVELS)
    clients = scenarios.Clients(request.param, folder / "clients")
    try:
        yield cluster, clients, folder / "cluster" / "store"
        cluster.end()
    finally:
        clients.close()
        cluster.close()


def take(found, count, seconds=60):
    end = time.monotonic() + seconds
    return [found.get(timeout=max(0.01, end - time.monotonic())) for _ in range(count)]


def test_messages_of_java_and_offsets_for_java(place):
    cluster, clients, _ = place
    clients.step(cluster, "fromjava", "send", bodies=["one", "two", "z" * 5000])
    found = queue.Queue()
    with PushConsumer("shared", cluster.name_server, **FIRST) as consumer:
        consumer.subscribe("fromjava", tags="t || other", listener=found.put)
        messages = take(found, 3)
        assert sorted(one.body.decode() for one in messages) == ["one", "two", "z" * 5000]
        assert {(one.topic, one.tags, one.reconsume_times) for one in messages} == {("fromjava", "t", 0)}
    clients.step(cluster, "fromjava", "send", bodies=["three"])
    assert clients.step(cluster, "fromjava", "consume", group="shared", count=1, millis=1000) == ["three"]


def test_retries_and_a_dead_letter(place):
    cluster, _, store = place
    found = queue.Queue()

    def listener(message):
        found.put((message.topic, message.body, message.reconsume_times))
        if message.body == b"bad" or message.reconsume_times == 0:
            raise ValueError("no")

    with Producer("shop", cluster.name_server) as producer:
        producer.send("failing", b"once")
        producer.send("failing", b"bad")
        with PushConsumer("failing", cluster.name_server, max_reconsume_times=2, **FIRST) as consumer:
            consumer.subscribe("failing", listener=listener)
            assert sorted(take(found, 5)) == [
                *(("failing", b"bad", times) for times in range(3)),
                *(("failing", b"once", times) for times in range(2)),
            ]
            end = time.monotonic() + 20
            while not list(rocketc.scan(store, topics="%DLQ%failing")):
                assert time.monotonic() < end
                time.sleep(0.2)
    [dead] = rocketc.scan(store, topics="%DLQ%failing")
    assert (dead.body, dead.reconsume_times, dead.properties["RETRY_TOPIC"]) == (b"bad", 3, "failing")


def test_a_group_of_java_and_python(place):
    cluster, clients, _ = place
    found, java = queue.Queue(), []
    with Producer("shop", cluster.name_server) as producer:
        producer.send("mixed", b"first")
        with PushConsumer("mixed", cluster.name_server, **FIRST) as consumer:
            consumer.subscribe("mixed", listener=found.put)
            take(found, 1)
            step = threading.Thread(
                target=lambda: java.extend(
                    clients.step(cluster, "mixed", "consume", group="mixed", count=20, millis=500)
                )
            )
            step.start()
            sent = []
            while step.is_alive():
                body = b"%d" % len(sent)
                producer.send("mixed", body)
                sent.append(body)
                time.sleep(0.05)
            step.join()
            python = [found.get().body for _ in range(found.qsize())]
            end = time.monotonic() + 30  # the queues of the Java consumer come back
            while {*python, *(one.encode() for one in java)} < set(sent):
                assert time.monotonic() < end
                python.append(found.get(timeout=30).body)
    assert len(java) >= 20 and len(python) >= 20
    assert {*python, *(one.encode() for one in java)} >= set(sent)
