"""Broadcasting members of Java and Python at RocketMQ's own brokers, and one file of offsets for both."""

import queue
import threading
from pathlib import Path

import pytest
from interop import scenarios
from interop.peer import RELEASES
from interop.test_python_consumer import FIRST, take

from rocketc.client import Producer, PushConsumer
from rocketc.client.offset_stores import LocalFileOffsetStore

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore:no topic")]

IP = "10.1.2.3"  # of the client ids


@pytest.fixture(scope="module", params=RELEASES)
def place(request, tmp_path_factory):
    """A Java cluster, Java clients of its release, and their folder of offsets."""
    folder = tmp_path_factory.mktemp("broadcasting")
    cluster = scenarios.JavaCluster(request.param, folder / "cluster", messageDelayLevel=scenarios.DELAY_LEVELS)
    clients = scenarios.Clients(request.param, folder / "clients")
    try:
        yield cluster, clients, folder / "clients" / ".rocketmq_offsets"
        cluster.end()
    finally:
        clients.close()
        cluster.close()


def member(cluster, offsets, group, instance, **options):
    options = {"message_model": "BROADCASTING", "local_offset_store_dir": str(offsets), **FIRST, **options}
    return PushConsumer(group, cluster.name_server, instance_name=instance, client_ip=IP, **options)


def read(cluster, offsets, topic, group, instance, count, **options):
    """The bodies that a Python member gets; it waits for more than `count` for a moment."""
    found = queue.Queue()
    with member(cluster, offsets, group, instance, **options) as consumer:
        consumer.subscribe(topic, listener=found.put)
        bodies = [one.body.decode() for one in take(found, count)]
        assert not consumer.wait(1)
    return sorted(bodies + [found.get().body.decode() for _ in range(found.qsize())])


def java(cluster, clients, topic, group, instance, count):
    step = {"group": group, "count": count, "millis": 1000, "instance": instance, "ip": IP}
    return sorted(clients.step(cluster, topic, "broadcast", **step))


def test_each_member_gets_all_messages(place):
    cluster, clients, offsets = place
    bodies = sorted(f"{i}" for i in range(40))
    found, got = queue.Queue(), []
    with Producer("shop", cluster.name_server) as producer:
        producer.send("news", b"0")
        with (
            member(cluster, offsets, "screens", "python-1") as one,
            member(cluster, offsets, "screens", "python-2", orderly=True) as two,
        ):
            one.subscribe("news", listener=lambda message: found.put((1, message.body.decode())))
            two.subscribe("news", listener=lambda message: found.put((2, message.body.decode())))
            step = threading.Thread(target=lambda: got.extend(java(cluster, clients, "news", "screens", "java", 40)))
            step.start()
            for body in range(1, 40):
                producer.send("news", b"%d" % body)
            seen = take(found, 80)
            step.join()
    assert got == bodies
    for number in (1, 2):
        assert sorted(body for each, body in seen if each == number) == bodies
    assert found.empty()


@pytest.mark.parametrize("orderly", [False, True])
def test_java_and_python_continue_in_one_file(place, orderly):
    cluster, clients, offsets = place
    topic = group = f"shared-{orderly}".lower()
    sent = iter(range(1000))

    def send(count):
        numbers = [next(sent) for _ in range(count)]
        for one in numbers:
            producer.send(topic, b"%d" % one)
        return sorted(map(str, numbers))

    with Producer("shop", cluster.name_server) as producer:
        for _ in range(2):
            first = send(5)
            assert read(cluster, offsets, topic, group, "one", 5, orderly=orderly) == first
            second = send(4)
            assert java(cluster, clients, topic, group, "one", 4) == second
        last = send(3)
        assert read(cluster, offsets, topic, group, "one", 3, orderly=orderly) == last
    store = LocalFileOffsetStore(offsets, f"{IP}@one", group)
    store.load()
    assert sum(store.offsets().values()) == 21
    assert Path(store.path).with_name("offsets.json.bak").exists()


def test_a_failed_message_is_dropped_as_javas(place):
    cluster, clients, offsets = place
    found = queue.Queue()

    def listener(message):
        found.put(message.body)
        raise ValueError("no amount")

    with Producer("shop", cluster.name_server) as producer:
        producer.send("lossy", b"one")
        with member(cluster, offsets, "lossy", "one") as consumer:
            consumer.subscribe("lossy", listener=listener)
            assert take(found, 1)[0] == b"one"
            assert not consumer.wait(4)  # the first retry would come after 1 s
        producer.send("lossy", b"two")
    assert found.empty()
    assert java(cluster, clients, "lossy", "lossy", "one", 1) == ["two"]
