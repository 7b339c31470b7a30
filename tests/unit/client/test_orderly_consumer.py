"""Orderly PushConsumer at a broker of this project: order, failures, locks, and queues that change their member."""

import asyncio
import logging
import queue
import threading
import time

import pytest
from unit.client.test_push_consumer import consumer, take


def orderly(broker, group, **options):
    return consumer(broker, group, orderly=True, **options)


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_each_queue_in_order_and_queues_side_by_side(broker, producer, kind):
    topic = f"order-{kind}"
    for i in range(60):
        producer.send(topic, b"%d" % i, shard=f"c-{i % 5}")
    found, running, lock = queue.Queue(), {}, threading.Lock()

    def enter(message):
        with lock:
            assert running.get(message.queue_id) is None
            running[message.queue_id] = message

    def leave(message):
        with lock:
            del running[message.queue_id]
        found.put((message.queue_id, message.queue_offset))

    def listener(message):
        enter(message)
        time.sleep(0.002)
        leave(message)

    async def coroutine(message):
        enter(message)
        await asyncio.sleep(0.002)
        leave(message)

    with orderly(broker, topic) as one:
        one.subscribe(topic, listener=listener if kind == "function" else coroutine)
        seen = take(found, 60)
    for queue_id in {one for one, _ in seen}:
        offsets = [offset for each, offset in seen if each == queue_id]
        assert offsets == list(range(len(offsets)))
    again = queue.Queue()
    with orderly(broker, topic) as one:
        one.subscribe(topic, listener=again.put)
        with pytest.raises(queue.Empty):
            again.get(timeout=0.5)


@pytest.mark.parametrize("kind", ["at once", "after a wait", "from a function"])
def test_a_listener_that_raises_generator_exit_gets_its_message_again(broker, producer, kind):
    topic, found, left = f"exit-{kind.replace(' ', '-')}", queue.Queue(), [1]
    for body in (b"one", b"two"):
        producer.send(topic, body, shard="s")

    async def coroutine(message):
        if kind != "at once":
            await asyncio.sleep(0)
        if left and left.pop():
            raise GeneratorExit
        found.put(message.body)

    def function(message):
        return coroutine(message)

    with orderly(broker, topic, suspend_current_queue_time_millis=100) as one:
        one.subscribe(topic, listener=function if kind == "from a function" else coroutine)
        assert take(found, 2) == [b"one", b"two"]


def test_a_failure_holds_up_its_queue_until_it_is_a_dead_letter(broker, producer, caplog):
    for body in (b"one", b"bad", b"three"):
        producer.send("stuck", body, shard="s")
    found, attempts = queue.Queue(), []

    def listener(message):
        if message.body == b"bad":
            attempts.append(time.monotonic())
            raise ValueError("no amount")
        found.put(message.body)

    caplog.set_level(logging.WARNING, "rocketc.client")
    settings = {"suspend_current_queue_time_millis": 100, "max_reconsume_times": 2}
    with orderly(broker, "stuck", **settings) as one:
        one.subscribe("stuck", listener=listener)
        assert take(found, 2) == [b"one", b"three"]
        assert len(attempts) == 3 and attempts[2] - attempts[0] >= 0.2
        [dead] = broker.store.get("%DLQ%stuck", 0, 0, wait=10).messages
        assert dead.body == b"bad"
    assert "no amount; the queue waits, and the message comes again" in caplog.text


def test_batches_in_order(broker, producer):
    producer.send_many("orderly-batch", [b"%d" % i for i in range(20)])
    found = queue.Queue()
    with orderly(broker, "batch", consume_message_batch_max_size=8) as one:
        one.subscribe("orderly-batch", listener=lambda messages: found.put([int(m.body) for m in messages]))
        bodies = []
        while len(bodies) < 20:
            [batch] = take(found, 1)
            bodies += batch
    assert bodies == list(range(20))


def test_order_over_a_change_of_members(broker, producer):
    """Members come and go while messages are sent: each queue is consumed in order, by one member at a time."""
    seen, lock, stop = [], threading.Lock(), threading.Event()

    def listener_of(name):
        def listener(message):
            with lock:
                seen.append((name, message.queue_id, message.queue_offset))
            time.sleep(0.001)

        return listener

    def send():
        while not stop.is_set():
            for i in range(4):
                sent.append(producer.send("moving", b"x", shard=f"s-{i}"))
            time.sleep(0.005)

    sent = []
    producer.send("moving", b"x", shard="s-0")
    sender = threading.Thread(target=send)
    sender.start()
    try:
        with orderly(broker, "moving") as a:
            a.subscribe("moving", listener=listener_of("a"))
            time.sleep(1)
            for name in ("b", "c"):
                with orderly(broker, "moving") as b:
                    b.subscribe("moving", listener=listener_of(name))
                    end = time.monotonic() + 20
                    while not any(each == name for each, _, _ in list(seen)):
                        assert time.monotonic() < end
                        time.sleep(0.02)
            stop.set()
            sender.join()
            end = time.monotonic() + 20
            while len({one[1:] for one in list(seen)}) < len(sent) + 1:
                assert time.monotonic() < end
                time.sleep(0.05)
    finally:
        stop.set()
        sender.join()
    for queue_id in {one for _, one, _ in seen}:
        offsets = [offset for _, each, offset in seen if each == queue_id]
        firsts = [offset for i, offset in enumerate(offsets) if offset not in offsets[:i]]
        assert firsts == sorted(firsts)  # messages may come again, but none before an earlier one
    assert {name for name, _, _ in seen} == {"a", "b", "c"}


def test_close_waits_for_the_listener_and_unlocks_the_queue(broker, producer):
    begun, gate, found = threading.Event(), threading.Event(), queue.Queue()

    def slow(message):
        begun.set()
        gate.wait(10)
        found.put(message.body)

    producer.send("locked", b"one", shard="s")
    producer.send("locked", b"two", shard="s")
    one = orderly(broker, "locked")
    one.subscribe("locked", listener=slow)
    one.start()
    assert begun.wait(10)
    threading.Timer(0.2, gate.set).start()
    one.close()
    first = take(found, 1)
    began = time.monotonic()
    with orderly(broker, "locked") as again:
        again.subscribe("locked", listener=lambda message: found.put(message.body))
        assert first + take(found, 1) == [b"one", b"two"]
    assert time.monotonic() - began < 5  # a lock that is not released lives for a minute
