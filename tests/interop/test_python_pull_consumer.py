"""PullConsumer at RocketMQ's own brokers, and in one group with Java's lite pull consumer."""

import threading
import time

import pytest
from interop import scenarios
from interop.peer import RELEASES

from rocketc.client import Producer, PullConsumer
from rocketc.errors import QueueOffsetError
from rocketc.format.traces import decode_traces

pytestmark = pytest.mark.long

FIRST = {"consume_from_where": "CONSUME_FROM_FIRST_OFFSET"}


@pytest.fixture(scope="module", params=RELEASES)
def place(request, tmp_path_factory):
    """A Java cluster, and Java clients of its release."""
    folder = tmp_path_factory.mktemp("python-pull-consumer")
    cluster = scenarios.JavaCluster(request.param, folder / "cluster")
    clients = scenarios.Clients(request.param, folder / "clients")
    try:
        yield cluster, clients
        cluster.end()
    finally:
        clients.close()
        cluster.close()


def poll(consumer, count, seconds=30):
    found, end = [], time.monotonic() + seconds
    while len(found) < count and time.monotonic() < end:
        found += [message.body.decode() for message in consumer.poll(500)]
    return found


def test_offsets_go_from_one_to_the_other(place):
    cluster, clients = place
    texts = [f"{i:02}" for i in range(30)]
    clients.step(cluster, "turns", "send", bodies=texts[:10])
    assert sorted(clients.step(cluster, "turns", "poll", group="turns", count=10, millis=500)) == texts[:10]
    clients.step(cluster, "turns", "send", bodies=texts[10:20])
    with PullConsumer("turns", cluster.name_server, topics=["turns"], **FIRST) as consumer:
        assert sorted(poll(consumer, 10)) == texts[10:20] and consumer.poll(500) == []
    clients.step(cluster, "turns", "send", bodies=texts[20:])
    assert sorted(clients.step(cluster, "turns", "poll", group="turns", count=10, millis=500)) == texts[20:]
    with PullConsumer("turns", cluster.name_server, topics=["turns"], **FIRST) as consumer:
        assert consumer.poll(2_000) == []


def test_a_group_of_java_and_python(place):
    cluster, clients = place
    java, python, sent, halves = [], [], [], set()
    with Producer("shop", cluster.name_server) as producer:
        producer.send("mixed", b"first")
        sent.append("first")
        with PullConsumer("mixed", cluster.name_server, topics={"mixed": "*"}, **FIRST) as consumer:
            python += poll(consumer, 1)
            count = len(consumer.assignment())
            step = threading.Thread(
                target=lambda: java.extend(clients.step(cluster, "mixed", "poll", group="mixed", count=20, millis=500))
            )
            step.start()
            while step.is_alive():
                sent.append(f"{len(sent)}")
                producer.send("mixed", sent[-1].encode())
                python += [message.body.decode() for message in consumer.poll(20)]
                halves.add(len(consumer.assignment()))
            step.join()
            end = time.monotonic() + 30  # the queues of the Java consumer come back
            while not {*python, *java} >= set(sent):
                assert time.monotonic() < end
                python += [message.body.decode() for message in consumer.poll(500)]
    assert count // 2 in halves, (halves, len(java), len(python))
    assert len(java) >= 20 and len(python) >= 20


def test_chosen_queues(place):
    cluster, _ = place
    with Producer("shop", cluster.name_server) as producer:
        queue = producer.send("chosen", b"0").queue
        for i in range(1, 12):
            producer.send("chosen", b"%d" % i, queue=queue, tags="odd" if i % 2 else "even")
        late = int(time.time() * 1000) + 1
        time.sleep(0.01)
        producer.send("chosen", b"12", queue=queue)
    with PullConsumer("chosen", cluster.name_server, **FIRST) as consumer:
        assert queue in consumer.fetch_message_queues("chosen")
        consumer.assign([queue])
        assert poll(consumer, 13) == [str(i) for i in range(13)]
        consumer.seek(queue, 3)
        assert poll(consumer, 10) == [str(i) for i in range(3, 13)]
        with pytest.raises(QueueOffsetError, match="the offset 14 is outside of the queue: 0 to 13"):
            consumer.seek(queue, 14)
        assert consumer.offset_for_timestamp(queue, late) in (11, 12)  # 4.x answers with the message before
        consumer.commit({queue: 5})
        assert consumer.committed(queue) == 5
        consumer.assign([queue], "odd")
        consumer.seek_to_begin(queue)
        assert poll(consumer, 6) == ["1", "3", "5", "7", "9", "11"]
    with PullConsumer("chosen", cluster.name_server, auto_commit=False) as consumer:
        assert consumer.committed(queue) in (12, 13)  # the last message has another tag
        consumer.assign([queue])
        consumer.seek_to_end(queue)
        assert consumer.poll(300) == []


def test_traces_are_those_of_java(place):
    """A lite pull consumer of 5.x writes them in poll(), one of 4.9 when it pulls; the records are the same."""
    cluster, clients = place
    with Producer("shop", cluster.name_server) as producer:
        for name in ("java", "python"):
            producer.send(f"traces-{name}", b"created")
        queue = producer.send("traced", b"0", keys="k1 k2").queue
        for i in range(1, 3):
            producer.send("traced", b"%d" % i, queue=queue)
    assert len(clients.step(cluster, "traced", "poll", group="traced", count=3, millis=500, traces="traces-java")) == 3
    options = {"enable_msg_trace": True, "custom_trace_topic": "traces-python", "instance_name": "traced"}
    with PullConsumer("traced-too", cluster.name_server, topics=["traced"], **options, **FIRST) as consumer:
        assert poll(consumer, 3) == ["0", "1", "2"]
    assert consumer.dropped_traces == 0
    java, python = (traces(cluster, f"traces-{name}") for name in ("java", "python"))
    assert len(java) == 6 and java == python


def traces(cluster, topic):
    """The records of trace in a topic, without what differs from one consumer to another."""
    found, end = [], time.monotonic() + 30
    while len(found) < 6 and time.monotonic() < end:  # Java's client writes them in the background
        with PullConsumer("readers", cluster.name_server, auto_commit=False) as reader:
            reader.assign(reader.fetch_message_queues(topic))
            for queue in reader.assignment():
                reader.seek_to_begin(queue)
            found = []
            while messages := reader.poll(1_000):
                found += [one for each in messages if each.body != b"created" for one in decode_traces(each.body)]
    for one in found:
        assert one.pop("timestamp") > 1_700_000_000_000 and one.pop("requestId") and one.pop("costTime", 0) >= 0
        one["group"] = one["group"].removesuffix("-too")
    return sorted(found, key=lambda one: (one["type"], one["msgId"]))


def test_a_group_that_brokers_do_not_know(place):
    cluster, _ = place
    with Producer("shop", cluster.name_server) as producer:
        queue = producer.send("unknown", b"0").queue
    with PullConsumer("unknown", cluster.name_server, **FIRST) as consumer:
        consumer.assign([queue])
        consumer.seek(queue, 1)
        consumer.commit()
        assert consumer.committed(queue) == 1
