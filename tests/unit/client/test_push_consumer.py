"""PushConsumer at a broker of this project: what listeners get, failures, members that come and go, and the end."""

import asyncio
import logging
import os
import queue
import signal
import socket
import threading
import time

import pytest

from rocketc.client import PushConsumer, RetryLater, loop_thread
from rocketc.errors import ClosedError, IllegalMessageError, NotSentError, SubscriptionError

FIRST = "CONSUME_FROM_FIRST_OFFSET"


def consumer(broker, group, **options):
    return PushConsumer(group, broker.name_server, **{"consume_from_where": FIRST, **options})


def take(found, count, seconds=20):
    """The next messages of a queue, in the order of their arrival."""
    end = time.monotonic() + seconds
    return [found.get(timeout=end - time.monotonic()) for _ in range(count)]


def committed(broker, group, topic):
    """The offsets of a group in the broker, all queues together."""
    offsets = broker._running()._controller.offsets
    return sum(max(0, offsets.query(group, topic, i)) for i in range(4))


def test_messages_reach_a_function_and_a_coroutine(broker, producer):
    for i in range(20):
        producer.send("both", b"%d" % i, tags="web", keys=f"k{i}")
    plain, awaited = queue.Queue(), queue.Queue()

    async def listener(message):
        await asyncio.sleep(0)
        awaited.put((message.body, threading.current_thread().name))

    with consumer(broker, "both-a") as first, consumer(broker, "both-b") as second:
        first.subscribe("both", listener=lambda message: plain.put((message, threading.current_thread().name)))
        second.subscribe("both", listener=listener)
        messages = take(plain, 20)
        assert sorted(int(one.body) for one, _ in messages) == list(range(20))
        assert all(name.startswith("rocketc-listener-") for _, name in messages)
        assert {(one.topic, one.tags) for one, _ in messages} == {("both", "web")}
        coroutines = take(awaited, 20)
        assert sorted(int(body) for body, _ in coroutines) == list(range(20))
        assert {name for _, name in coroutines} == {"rocketc-client"}
        late = producer.send("both", b"late")
        assert take(plain, 1)[0][0].msg_id == late.offset_msg_id
        assert take(awaited, 1)[0][0] == b"late"
    assert committed(broker, "both-a", "both") == committed(broker, "both-b", "both") == 21
    with consumer(broker, "both-a") as again:
        again.subscribe("both", listener=plain.put)
        with pytest.raises(queue.Empty):
            plain.get(timeout=0.5)


def test_a_decorator_and_tags(broker, producer):
    found = queue.Queue()
    with consumer(broker, "tags") as one:

        @one.subscribe("tagged", tags="web || app")
        def on_message(message):
            found.put(message.tags)

        assert on_message is not None
        for tag in ("web", "other", "app", None, "web"):
            producer.send("tagged", b"x", tags=tag)
        assert sorted(take(found, 3)) == ["app", "web", "web"]
        with pytest.raises(queue.Empty):
            found.get(timeout=0.3)


def test_subscriptions_before_the_start(broker, producer):
    producer.send("before", b"x")
    found = queue.Queue()
    one = consumer(broker, "before")
    one.subscribe("before", listener=found.put)
    one.subscribe("other", listener=found.put)
    one.unsubscribe("other")
    with one:
        assert take(found, 1)[0].body == b"x"


def test_a_failed_message_comes_again_and_becomes_a_dead_letter(broker, producer, caplog):
    producer.send("failing", b"x", keys="k")
    found = queue.Queue()

    def listener(message):
        found.put((message.topic, message.reconsume_times, message.keys))
        raise ValueError("no amount")

    caplog.set_level(logging.WARNING, "rocketc.client")
    with consumer(broker, "failing", max_reconsume_times=2) as one:
        one.subscribe("failing", listener=listener)
        assert take(found, 3) == [("failing", times, "k") for times in range(3)]
        dead = broker.store.get("%DLQ%failing", 0, 0, wait=10).messages
        assert [(m.body, m.reconsume_times) for m in dead] == [(b"x", 3)]
    assert "no amount; the message comes again later" in caplog.text


def test_retry_later_and_a_return_value(broker, producer, caplog):
    found = queue.Queue()

    def listener(message):
        found.put((message.body, message.reconsume_times))
        if message.body == b"dead":
            raise RetryLater(-1)
        if message.reconsume_times == 0:
            if message.body == b"later":
                raise RetryLater(2)
            return "done"

    with consumer(broker, "later") as one:
        one.subscribe("later", listener=listener)
        for body in (b"later", b"dead", b"value"):
            producer.send("later", body)
        assert sorted(take(found, 4)) == [(b"dead", 0), (b"later", 0), (b"later", 1), (b"value", 0)]
        assert [m.body for m in broker.store.get("%DLQ%later", 0, 0, wait=10).messages] == [b"dead"]
    assert "the listener failed" not in caplog.text


def test_a_function_that_returns_a_coroutine(broker, producer):
    found = queue.Queue()

    async def work(message):
        await asyncio.sleep(0)
        found.put(message.body)
        if message.reconsume_times == 0:
            raise ValueError("again")

    for is_orderly in (False, True):
        topic = f"lambda-{is_orderly}"
        producer.send(topic, b"one")
        with consumer(broker, topic, orderly=is_orderly, max_reconsume_times=1) as one:
            one.subscribe(topic, listener=lambda message: work(message))
            assert take(found, 2) == [b"one", b"one"]


def test_batches(broker, producer):
    producer.send_many("batch", [b"%d" % i for i in range(50)])
    found = queue.Queue()
    with consumer(broker, "batch", consume_message_batch_max_size=8) as one:
        one.subscribe("batch", listener=found.put)
        sizes, bodies = [], []
        while len(bodies) < 50:
            [messages] = take(found, 1)
            sizes.append(len(messages))
            bodies += [int(m.body) for m in messages]
        assert sorted(bodies) == list(range(50)) and max(sizes) == 8


def test_members_divide_the_queues_and_take_over(broker, producer):
    producer.send("shared", b"first")
    first, second = queue.Queue(), queue.Queue()
    with consumer(broker, "shared") as a:
        a.subscribe("shared", listener=first.put)
        take(first, 1)
        b = consumer(broker, "shared")
        b.subscribe("shared", listener=second.put)
        b.start()
        end = time.monotonic() + 20
        while second.empty():
            assert time.monotonic() < end
            producer.send("shared", b"x")
            time.sleep(0.02)
        queues = {m.queue_id for m in [second.get() for _ in range(second.qsize())]}
        assert len(queues) <= 2
        b.close()
        while not {m.queue_id for m in [first.get() for _ in range(first.qsize())]} & queues:
            assert time.monotonic() < end
            producer.send("shared", b"y")
            time.sleep(0.02)


def test_a_slow_listener_holds_up_only_the_offset(broker, producer):
    gate, found = threading.Event(), queue.Queue()

    def listener(message):
        if message.body == b"slow":
            gate.wait(20)
        found.put(message.body)

    producer.send("slowly", b"slow", shard="s")
    for i in range(200):
        producer.send("slowly", b"%d" % i, shard="s")
    with consumer(broker, "slow", persist_consumer_offset_interval=100) as one:
        one.subscribe("slowly", listener=listener)
        assert b"slow" not in take(found, 200)
        time.sleep(0.3)
        assert committed(broker, "slow", "slowly") == 0
        gate.set()
        assert take(found, 1) == [b"slow"]
    assert committed(broker, "slow", "slowly") == 201


def test_pulls_wait_for_the_listener(broker, producer):
    gate, found = threading.Event(), queue.Queue()

    def listener(message):
        gate.wait(20)
        found.put(message.body)

    for i in range(300):
        producer.send("limited", b"%d" % i, shard="s")
    with consumer(broker, "limited", pull_threshold_for_queue=40, consume_thread_max=2) as one:
        one.subscribe("limited", listener=listener)
        time.sleep(0.5)
        pulled = sum(len(each.process_queue) for each in one._core._member.owned.values())
        assert 40 < pulled <= 40 + 32
        gate.set()
        assert len(set(take(found, 300))) == 300


def test_close_waits_for_listeners_and_other_messages_come_again(broker, producer):
    begun, gate, found = threading.Event(), threading.Event(), queue.Queue()

    def slow(message):
        begun.set()
        gate.wait(10)
        found.put(message.body)

    for wait, expected in ((5000, []), (0, [b"two"])):
        begun.clear()
        gate.clear()
        one = consumer(broker, "closing", await_termination_millis_when_shutdown=wait)
        one.subscribe("closing", listener=slow)
        one.start()
        producer.send("closing", b"two" if expected else b"one")
        assert begun.wait(10)
        if wait:
            threading.Timer(0.3, gate.set).start()
        one.close()
        assert found.qsize() == (1 if wait else 0)
        gate.set()
        take(found, 1)
        with pytest.raises(ClosedError, match="a consumer cannot be started twice"):
            one.start()
    again = queue.Queue()
    with consumer(broker, "closing") as one:
        one.subscribe("closing", listener=again.put)
        assert [m.body for m in take(again, 1)] == [b"two"]


def test_suspend_and_resume(broker, producer):
    found = queue.Queue()
    with consumer(broker, "suspended") as one:
        one.subscribe("suspended", listener=found.put)
        producer.send("suspended", b"one")
        take(found, 1)
        one.suspend()
        time.sleep(0.1)
        for _ in range(4):
            producer.send("suspended", b"two")
        take(found, found.qsize())
        one.resume()
        producer.send("suspended", b"three")
        bodies = [m.body for m in take(found, 1)]
        assert bodies[0] in (b"two", b"three")


def test_where_a_new_group_begins(broker, producer):
    for _ in range(8):
        producer.send("begin", b"old")
    stamp = time.strftime("%Y%m%d%H%M%S", time.localtime(time.time() + 5))
    found = queue.Queue()
    with consumer(broker, "time", consume_from_where="CONSUME_FROM_TIMESTAMP", consume_timestamp=stamp) as one:
        one.subscribe("begin", listener=found.put)
        time.sleep(0.3)
        producer.send("begin", b"new")
        # As in RocketMQ, a young queue has the offset 0 for each group, wherever the group wants to begin.
        assert {m.body for m in take(found, 9)} == {b"old", b"new"}


def test_wrong_use(broker):
    with pytest.raises(ValueError, match="group 'my group': a group name may only have letters"):
        PushConsumer("my group")
    with pytest.raises(ValueError, match="group 'DEFAULT_CONSUMER': RocketMQ does not allow this name"):
        PushConsumer("DEFAULT_CONSUMER")
    with pytest.raises(TypeError, match="unknown keyword consume_threads; did you mean consume_thread_max"):
        PushConsumer("g", consume_threads=1)
    for wrong, text in [
        ({"consume_from_where": "LAST"}, "consume_from_where is 'LAST'; allowed are CONSUME_FROM_LAST_OFFSET"),
        ({"allocate_message_queue_strategy": "AVERAGE"}, "'AVERAGE' is not a strategy"),
        ({"consume_thread_max": 1001}, "consume_thread_max is 1001; allowed are 1 to 1000"),
        ({"pull_threshold_for_queue": 65_536}, "pull_threshold_for_queue is 65536; allowed are 1 to 65535"),
        ({"consume_timestamp": "now"}, "consume_timestamp is 'now'"),
    ]:
        with pytest.raises(ValueError, match=text):
            PushConsumer("g", **wrong)
    one = consumer(broker, "wrong")
    with pytest.raises(ClosedError, match="the consumer is not started"):
        one.wait(0)
    with pytest.raises(IllegalMessageError, match="a topic name may only have letters"):
        one.subscribe("my orders")
    with pytest.raises(SubscriptionError):
        one.subscribe("orders", tags="||")
    with pytest.raises(TypeError, match="a listener must be a function, not int"):
        one.subscribe("orders")(7)
    with one:
        assert one.wait(0.01) is False and "@" in one.client_id
    with pytest.raises(ClosedError, match="the consumer is closed"):
        one.subscribe("orders")
    with pytest.raises(NotSentError, match=r"127.0.0.1:1: no connection"):
        PushConsumer("g", "127.0.0.1:1", mq_client_api_timeout=500).start()


def test_threads_that_start_and_close_one_consumer(broker):
    one, users = consumer(broker, "two-starts"), loop_thread._users
    one.subscribe("two-starts", listener=lambda message: None)
    threads = [threading.Thread(target=one.start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert loop_thread._users == users + 1
    threads = [threading.Thread(target=one.close) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert loop_thread._users == users


def test_close_by_a_listener(broker, producer):
    begun, errors, users = threading.Event(), queue.Queue(), loop_thread._users

    async def wrong(message):
        begun.set()
        try:
            one.close()
        except RuntimeError as error:
            errors.put(str(error))

    one = consumer(broker, "closes-itself", await_termination_millis_when_shutdown=60_000)
    one.subscribe("closes-itself", listener=wrong)
    producer.send("closes-itself", b"x")
    with one:
        assert "use the async client there" in take(errors, 1)[0]
        assert one.wait(0.01) is False
        one.unsubscribe("closes-itself")
        one.subscribe("closes-itself", listener=lambda message: one.close())
        producer.send("closes-itself", b"y")
        assert one.wait(20)
    end = time.monotonic() + 10
    while loop_thread._users != users:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_ctrl_c_while_close_waits(broker, producer):
    begun, gate, users = threading.Event(), threading.Event(), loop_thread._users

    def slow(message):
        if message.body == b"slow":
            begun.set()
            gate.wait(20)

    one = consumer(broker, "interrupted", await_termination_millis_when_shutdown=20_000)
    one.subscribe("interrupted", listener=slow)
    one.start()
    sent = [producer.send("interrupted", b"%d" % i, shard="s") for i in range(5)]
    producer.send("interrupted", b"slow", shard="s")
    assert begun.wait(10)
    core, began = one._core, time.monotonic()
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        one.close()
    while not core._instance.connections.is_closed:  # the loop serves the producer, too, and continues
        assert time.monotonic() - began < 10
        time.sleep(0.01)
    gate.set()
    assert committed(broker, "interrupted", "interrupted") == len(sent)
    assert loop_thread._users == users


def test_ctrl_c_while_start_waits():
    listening = socket.create_server(("127.0.0.1", 0))  # accepts, and never answers
    with listening:
        one = PushConsumer("g", "127.0.0.1:%d" % listening.getsockname()[1])
        one.subscribe("orders", listener=print)
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            one.start()
    one.close()
    with pytest.raises(ClosedError, match="cannot be started twice"):
        one.start()
