"""Scenarios of java/Pushes.java and java/Sends.java, played by rocketc.client: the outcomes have the same form."""

import datetime
import threading
import time
from collections.abc import Callable
from typing import Any

from interop.asking import Asking
from interop.our_broker import wait_for

from rocketc.client import Producer, PushConsumer

SCENARIOS: dict[str, Callable[["Stage"], Any]] = {}


def scenario(play: Callable[["Stage"], Any]) -> Callable[["Stage"], Any]:
    SCENARIOS[play.__name__] = play
    return play


class Received:
    """What a listener got."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.sizes: list[int] = []
        self._turn = threading.Lock()

    def add(self, given: Any) -> None:
        messages = given if isinstance(given, list) else [given]
        with self._turn:
            self.messages += messages
            self.sizes.append(len(messages))

    def wait(self, count: int) -> list[Any]:
        """The messages, when there are `count`, and no more within 100 ms; what is there after ten seconds."""
        wait_for(lambda: len(self.messages) >= count, 10)
        time.sleep(0.1)
        return list(self.messages)


class Stage:
    """One scenario at one cluster; its clients end with it."""

    def __init__(self, name_server: str, broker: str, prefix: str) -> None:
        self.name_server, self._broker, self._prefix = name_server, broker, prefix
        self.producer = Producer("scenarios", name_server)
        self.producer.start()
        self._consumers: list[PushConsumer] = []
        self._asking = Asking(broker)

    def close(self) -> None:
        for consumer in reversed(self._consumers):
            consumer.close()
        self.producer.close()
        self._asking.close()

    def topic(self, queues: int) -> str:
        name = f"{self._prefix}orders"
        fields = {
            "topic": name, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False,
        }  # fmt: skip
        assert self._asking.ask("UPDATE_AND_CREATE_TOPIC", **fields)[0] == 0
        names = Asking(self.name_server)
        assert wait_for(lambda: names.ask("GET_ROUTEINFO_BY_TOPIC", topic=name)[0] == 0)
        names.close()
        return name

    def send(self, topic: str, queues: int, first: int, end: int) -> None:
        """Send messages to the queues one after the other."""
        for i in range(first, end):
            self.producer.send(topic, b"body %02d" % i, tags=f"tag{i % 3}", keys=f"key-{i}", selector=at(i % queues))

    def consumer(self, topic: str, *, group: str = "group", tags: str = "*", **options: Any) -> Any:
        """A consumer from the first message on, which is started; and what it got."""
        options = {"consume_from_where": "CONSUME_FROM_FIRST_OFFSET", "consume_thread_max": 2, **options}
        consumer, received = PushConsumer(self._prefix + group, self.name_server, **options), Received()
        consumer.subscribe(topic, tags=tags, listener=received.add)
        consumer.start()
        self._consumers.append(consumer)
        return consumer, received

    def offset(self, group: str, topic: str, queue: int) -> Any:
        values = {"consumerGroup": self._prefix + group, "topic": topic, "queueId": queue}
        code, fields, _ = self._asking.ask("QUERY_CONSUMER_OFFSET", **values)
        return int(fields["offset"]) if code == 0 else f"code {code}"

    def committed(self, group: str, topic: str, queues: int, total: int) -> list[Any]:
        """The offsets of a group, as soon as they have a sum: they are written every 5 s."""

        def look() -> list[Any]:
            return [self.offset(group, topic, n) for n in range(queues)]

        wait_for(lambda: sum(one for one in look() if isinstance(one, int)) >= total, 8)
        return look()


def at(number: int) -> Callable[[Any], Any]:
    """A selector of one queue of a topic that one broker has."""
    return lambda queues: queues[number]


def bodies(messages: list[Any]) -> list[str]:
    return sorted(one.body.decode() for one in messages)


def by_queue(messages: list[Any], queues: int) -> list[list[str]]:
    return [[one.body.decode() for one in messages if one.queue_id == n] for n in range(queues)]


def owned(consumer: PushConsumer, topic: str) -> int:
    assert consumer._core is not None
    return sum(queue.topic == topic for queue in consumer._core._member.owned)


def shares(consumers: list[PushConsumer], topic: str, *wanted: int) -> list[int]:
    """How many queues each consumer has, as soon as these are the given numbers."""
    wait_for(lambda: sorted(owned(one, topic) for one in consumers) == list(wanted), 15)
    return sorted(owned(one, topic) for one in consumers)


def union(received: list[Received], count: int) -> list[Any]:
    wait_for(lambda: sum(len(one.messages) for one in received) >= count, 15)
    return [message for one in received for message in one.messages]


@scenario
def push_orderly(stage: Stage) -> Any:
    topic = stage.topic(3)
    stage.send(topic, 3, 0, 15)
    _, received = stage.consumer(topic, orderly=True)
    received.wait(15)
    stage.send(topic, 3, 15, 30)
    messages = received.wait(30)
    return {"queues": by_queue(messages, 3), "offsets": stage.committed("group", topic, 3, 30)}


@scenario
def push_orderly_shared(stage: Stage) -> Any:
    topic = stage.topic(4)
    both = [stage.consumer(topic, orderly=True) for _ in range(2)]
    found = shares([consumer for consumer, _ in both], topic, 2, 2)
    stage.send(topic, 4, 0, 20)
    all_messages = union([received for _, received in both], 20)
    each = [len({message.queue_id for message in received.wait(1)}) for _, received in both]
    return {"shares": found, "each": each, "queues": by_queue(all_messages, 4)}


def begin(stage: Stage, where: str) -> Any:
    topic = stage.topic(2)
    stage.send(topic, 2, 0, 4)
    later = datetime.datetime.now() + datetime.timedelta(hours=1)
    consumer, received = stage.consumer(
        topic, consume_from_where=where, consume_timestamp=later.strftime("%Y%m%d%H%M%S")
    )
    wait_for(lambda: owned(consumer, topic) >= 2, 5)
    stage.send(topic, 2, 4, 6)
    return bodies(received.wait(6))


@scenario
def push_first(stage: Stage) -> Any:
    return begin(stage, "CONSUME_FROM_FIRST_OFFSET")


@scenario
def push_last(stage: Stage) -> Any:
    return begin(stage, "CONSUME_FROM_LAST_OFFSET")


@scenario
def push_timestamp(stage: Stage) -> Any:
    return begin(stage, "CONSUME_FROM_TIMESTAMP")


def begin_empty(stage: Stage, where: str) -> Any:
    topic = stage.topic(1)
    before = [stage.offset("group", topic, 0)]
    consumer, received = stage.consumer(topic, consume_from_where=where)
    wait_for(lambda: owned(consumer, topic) >= 1, 5)
    stage.send(topic, 1, 0, 3)
    return {"before": before, "messages": bodies(received.wait(3))}


@scenario
def push_last_empty(stage: Stage) -> Any:
    return begin_empty(stage, "CONSUME_FROM_LAST_OFFSET")


@scenario
def push_timestamp_empty(stage: Stage) -> Any:
    return begin_empty(stage, "CONSUME_FROM_TIMESTAMP")


@scenario
def push_tags(stage: Stage) -> Any:
    topic, tags = stage.topic(2), ["A", "B", "C", "Aa", "BB", None]
    for i in range(12):
        tag = tags[i % 6]
        body = f"body {i} {'null' if tag is None else tag}".encode()
        stage.producer.send(topic, body, tags=tag, selector=at(i % 2))
    expected = {"A || B": (4, 8), "Aa": (2, 5), "*": (12, 12), "none": (0, 12)}
    got = [stage.consumer(topic, group=f"group{n}", tags=tags)[1] for n, tags in enumerate(expected)]
    return {
        tags: {"messages": bodies(got[n].wait(count)), "offsets": stage.committed(f"group{n}", topic, 2, total)}
        for n, (tags, (count, total)) in enumerate(expected.items())
    }


@scenario
def push_batches(stage: Stage) -> Any:
    topic = stage.topic(1)
    stage.send(topic, 1, 0, 50)
    _, received = stage.consumer(topic, consume_message_batch_max_size=10, pull_batch_size=25, consume_thread_max=1)
    count = len(received.wait(50))
    return {"count": count, "sizes": received.sizes, "offsets": stage.committed("group", topic, 1, 50)}


@scenario
def push_waits(stage: Stage) -> Any:
    topic = stage.topic(1)
    _, received = stage.consumer(topic)
    time.sleep(1.5)
    told = []
    for i in range(3):
        began = time.monotonic()
        stage.send(topic, 1, i, i + 1)
        wait_for(lambda i=i: len(received.messages) > i, 5)
        told.append("within a second" if time.monotonic() - began < 1 else "late")
    return told


@scenario
def push_rebalance(stage: Stage) -> Any:
    topic = stage.topic(6)
    three = [stage.consumer(topic) for _ in range(3)]
    consumers, received = [one for one, _ in three], [one for _, one in three]
    first = shares(consumers, topic, 2, 2, 2)
    stage.send(topic, 6, 0, 12)
    counts = [len(one.wait(4)) for one in received]
    gone = consumers.pop()
    assert gone._thread is not None and gone._core is not None
    gone._thread.call(gone._core._instance.connections.close)  # it says nothing
    two = shares(consumers, topic, 3, 3)
    stage.send(topic, 6, 12, 24)
    wait_for(lambda: len(late(received[:2])) >= 12)
    return {"three": first, "counts": counts, "two": two, "later": late(received[:2])}


def late(received: list[Received]) -> list[str]:
    return sorted({body for one in received for body in bodies(one.messages) if body >= "body 12"})


@scenario
def push_restart(stage: Stage) -> Any:
    topic, told = stage.topic(2), []
    for life in range(2):
        stage.send(topic, 2, 4 * life, 4 * life + 4)
        consumer, received = stage.consumer(topic, consume_from_where="CONSUME_FROM_LAST_OFFSET")
        messages = received.wait(4)
        offsets = stage.committed("group", topic, 2, 4 * life + 4)
        told.append({"messages": bodies(messages), "offsets": offsets})
        consumer.close()
    return told


@scenario
def push_two_groups(stage: Stage) -> Any:
    topic = stage.topic(2)
    stage.send(topic, 2, 0, 4)
    first = stage.consumer(topic, group="first")[1].wait(4)
    second = stage.consumer(topic, group="second", tags="tag1")[1].wait(1)
    return [bodies(first), bodies(second)]


@scenario
def send_ordered(stage: Stage) -> Any:
    topic = stage.topic(4)
    for i in range(24):
        body = f"step {i // 6} of user {i % 6}".encode()
        stage.producer.send(topic, body, selector=at(i % 6 % 4))
    _, received = stage.consumer(topic, orderly=True)
    return by_queue(received.wait(24), 4)


@scenario
def send_oneway(stage: Stage) -> Any:
    topic = stage.topic(4)
    for i in range(8):
        stage.producer.send_oneway(topic, b"body %d" % i)
    _, received = stage.consumer(topic)
    return bodies(received.wait(8))
