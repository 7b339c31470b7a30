"""Producer and AsyncProducer at a broker of this project: what is stored, threads, forks, and the end."""

import asyncio
import gc
import os
import signal
import threading
import time
import zlib

import psutil
import pytest

import rocketc
from rocketc.client import loop_thread
from rocketc.client.async_producer import AsyncProducer
from rocketc.client.batching import NewMessage
from rocketc.client.producer import Producer
from rocketc.client.push_consumer import PushConsumer
from rocketc.client.waiters import Waiter
from rocketc.errors import BackpressureError, ClosedError, NotSentError


@pytest.fixture(scope="module")
def broker():
    with rocketc.Broker() as one:
        yield one


def messages(broker, topic, queue_id):
    return list(broker.store.get(topic, queue_id, 0, max_count=32).messages)


def test_what_is_stored(broker):
    with Producer("shop", broker.name_server) as producer:
        sent = producer.send(
            "stored", b"one", tags="web", keys=["k1", "k2"], shard="c-7", properties={"own": "é"}, flag=7
        )
        large = producer.send("stored", b"x" * 5000, shard="c-7")
        again = producer.send("stored", b"three", shard="c-7")
    assert sent.queue == large.queue == again.queue
    assert [sent.queue_offset, large.queue_offset, again.queue_offset] == [0, 1, 2]
    first, second, _ = messages(broker, "stored", sent.queue.queue_id)
    assert (first.body, first.tags, first.keys, first.flag) == (b"one", "web", "k1 k2", 7)
    assert first.msg_id == sent.offset_msg_id and first.properties["UNIQ_KEY"] == sent.msg_id
    assert first.properties["own"] == "é" and first.properties["__SHARDINGKEY"] == "c-7"
    assert abs(first.born_timestamp - time.time() * 1000) < 60_000
    assert second.body == b"x" * 5000 and zlib.decompress(second.stored_body) == second.body


def test_batches_are_stored_as_single_messages(broker):
    with Producer("shop", broker.name_server) as producer:
        sent = producer.send_many("batched", [b"0", NewMessage(b"1", tags="web", keys="k", flag=3), b"2"])
    found = messages(broker, "batched", sent[0].queue.queue_id)
    assert [one.body for one in found] == [b"0", b"1", b"2"]
    assert [one.properties["UNIQ_KEY"] for one in found] == [one.msg_id for one in sent]
    assert [one.msg_id for one in found] == [one.offset_msg_id for one in sent]
    assert (found[1].tags, found[1].keys, found[1].flag) == ("web", "k", 3)


def test_a_delayed_message_comes_later(broker):
    with Producer("shop", broker.name_server) as producer:
        producer.send("delayed", b"now")
        began = time.monotonic()
        sent = producer.send("delayed", b"later", delay_level="1s")
    while not any(one.body == b"later" for queue in range(4) for one in messages(broker, "delayed", queue)):
        assert time.monotonic() - began < 10
        time.sleep(0.05)
    assert time.monotonic() - began >= 0.9 and sent.queue.topic == "delayed"


def test_many_threads_share_a_producer(broker):
    with Producer("shop", broker.name_server) as producer:

        def work():
            for _ in range(50):
                found.append(producer.send("threads", b"one"))

        found = []
        threads = [threading.Thread(target=work) for _ in range(8)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert len({(one.queue, one.queue_offset) for one in found}) == len({one.msg_id for one in found}) == 400


def test_futures_and_oneway(broker):
    with Producer("shop", broker.name_server) as producer:
        futures = [producer.send_async("futures", b"one") for _ in range(200)]
        assert len({(one.result().queue, one.result().queue_offset) for one in futures}) == 200
        queue = futures[0].result().queue
        offset = producer.send("futures", b"before", queue=queue).queue_offset
        producer.send_oneway("futures", b"unanswered", queue=queue)
    found = broker.store.get("futures", queue.queue_id, offset + 1, wait=5)
    assert [one.body for one in found.messages] == [b"unanswered"]


def test_too_much_in_flight(broker):
    with Producer("shop", broker.name_server, max_in_flight=5) as producer:
        producer.send("flight", b"one")
        with pytest.raises(BackpressureError, match="5 messages of 15 bytes are in flight"):
            for _ in range(1000):
                producer.send_async("flight", b"one")
        time.sleep(0.5)
        producer.send_async("flight", b"one").result()


def test_one_thread_serves_all_and_ends_with_the_last(broker):
    def names():
        return [one.name for one in threading.enumerate() if one.name == "rocketc-client"]

    assert names() == []
    with Producer("a", broker.name_server) as first, Producer("b", broker.name_server) as second:
        assert names() == ["rocketc-client"] and first.client_id != second.client_id
        first.send("shared", b"one")
        second.send("shared", b"one")
    assert names() == []
    with pytest.raises(ClosedError, match="not started, or it is closed"):
        first.send("shared", b"one")


def test_nothing_is_left(broker):
    def once():
        with Producer("shop", broker.name_server) as producer:
            producer.send("left", b"one")

    once()
    process = psutil.Process()
    gc.collect()
    before = process.num_fds(), threading.active_count()
    for _ in range(20):
        once()
    gc.collect()
    deadline = time.monotonic() + 5  # the broker closes its ends a moment later
    while (process.num_fds(), threading.active_count()) != before:
        assert time.monotonic() < deadline, (process.num_fds(), threading.active_count(), before)
        time.sleep(0.01)


@pytest.mark.parametrize("properties", [None, {"own": "x"}])  # with properties there is a task for each
def test_sends_leave_nothing_for_the_garbage_collector(broker, properties):
    with Producer("shop", broker.name_server) as producer:
        producer.send("orders", b"one")
        gc.collect()
        gc.disable()
        try:
            for _ in range(50):
                producer.send("orders", b"one", properties=properties)
                producer.send_async("orders", b"one", properties=properties).result()
            assert gc.collect() < 50
        finally:
            gc.enable()


def test_a_forked_child_opens_its_own(broker):
    name_server = broker.name_server
    with Producer("shop", broker.name_server) as producer:
        producer.send("forked", b"parent")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                try:
                    producer.send("forked", b"child")
                except ClosedError as error:
                    assert "before a fork" in str(error)
                    with Producer("shop", name_server) as own:
                        own.send("forked", b"child")
                    producer.close()
                    status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        producer.send("forked", b"parent")
    bodies = [one.body for queue in range(4) for one in messages(broker, "forked", queue)]
    assert sorted(bodies) == [b"child", b"parent", b"parent"]


def test_ctrl_c_ends_a_send():
    with Producer("shop", "127.0.0.1:1", mq_client_api_timeout=20_000) as producer:
        server = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
        server.start()
        waiting = producer._thread.submit(asyncio.sleep(60))
        with pytest.raises(KeyboardInterrupt):
            producer._thread.run(asyncio.sleep(60))
        waiting.cancel()
        with pytest.raises(NotSentError):
            producer.send("orders", b"one", timeout=500)


def test_a_call_on_the_loop_of_the_clients_is_refused(broker):
    with Producer("shop", broker.name_server) as producer:

        async def wrong():
            producer.send("orders", b"one")

        with pytest.raises(RuntimeError, match="on its own event loop: use the async client"):
            producer._thread.run(wrong())


def test_a_wrong_port_and_a_port_with_another_protocol():
    with Producer("shop", "127.0.0.1:1") as producer, pytest.raises(NotSentError, match=r"127.0.0.1:1: no connection"):
        producer.send("orders", b"one", timeout=1000)
    with pytest.raises(ValueError, match="'nowhere' is not an address such as"):
        Producer("shop", "nowhere")
    assert loop_thread._shared is None


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_any_event_loop(broker, loop):
    async def main():
        async with AsyncProducer("shop", broker.name_server) as producer:
            sent = await asyncio.gather(*[producer.send("loops", b"one") for _ in range(100)])
        return len({(one.queue, one.queue_offset) for one in sent})

    run = pytest.importorskip("uvloop").run if loop == "uvloop" else asyncio.run
    assert run(main()) == 100


def in_threads(count, function):
    """Call a function on some threads at once; return what it returned or raised."""
    found, ready = [], threading.Barrier(count)

    def work():
        ready.wait()
        try:
            found.append(function())
        except Exception as error:
            found.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(20)
    return found


def test_threads_that_start_and_close_one_producer(broker):
    for _ in range(10):
        producer = Producer("shop", broker.name_server)
        in_threads(4, producer.start)
        assert loop_thread._users == 1
        in_threads(4, producer.close)
        assert loop_thread._shared is None


def test_a_call_that_comes_after_the_end_of_the_loop(broker):
    thread, is_stopped, go_on = loop_thread.LoopThread(), threading.Event(), threading.Event()
    thread._loop.call_soon_threadsafe(lambda: (thread._stop(), is_stopped.set(), go_on.wait(10)))
    assert is_stopped.wait(10)  # the loop is stopped, and its thread does not know it yet
    threading.Timer(0.3, go_on.set).start()
    assert in_threads(1, lambda: thread.run(asyncio.sleep(0, "done"))) == ["done"]
    thread._thread.join(10)
    with pytest.raises(ClosedError, match="the client is closed"):
        thread.run(asyncio.sleep(0))


def test_the_end_of_the_loop_lets_tasks_end():
    found = []

    async def work():
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(0.1)
            found.append("ended")

    with loop_thread.LoopThread() as thread:
        future = thread.submit(work())
        time.sleep(0.1)
        future.cancel()
    assert found == ["ended"]


def test_close_on_the_loop_of_the_clients_is_refused(broker):
    with Producer("shop", broker.name_server) as producer:

        async def wrong():
            producer.close()

        with pytest.raises(RuntimeError, match="on its own event loop: use the async client"):
            producer._thread.run(wrong())
        assert producer.send("closing", b"one").queue.topic == "closing"


@pytest.mark.filterwarnings("error")
def test_send_async_in_a_forked_child(broker):
    with Producer("shop", broker.name_server) as producer:
        producer.send("forked2", b"parent")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                try:
                    producer.send_async("forked2", b"child")
                except ClosedError:
                    status = int(producer._in_flight.messages - len(producer._ended))
                producer.close()
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_task_that_raises_system_exit_does_not_end_the_loop(loop, monkeypatch):
    async def wrong():
        raise SystemExit(3)

    if loop == "asyncio":
        monkeypatch.setattr(loop_thread, "new_event_loop", asyncio.new_event_loop)
    with loop_thread.LoopThread() as thread:
        waiting = thread.submit(asyncio.sleep(0.2, "done"))
        with pytest.raises(SystemExit):
            thread.submit(wrong()).result(10)
        assert waiting.result(10) == "done"
        assert thread.submit(asyncio.sleep(0, "done")).result(10) == "done"


def test_two_clients_of_a_group_with_one_id(broker):
    first, second = (Producer("shop", broker.name_server, instance_name="one") for _ in range(2))
    other = Producer("other", broker.name_server, instance_name="one")
    with first, other:
        for _ in range(2):
            with pytest.raises(ValueError, match=r"the group 'shop' has the client .*@one already: give each another"):
                second.start()
        first.send("claimed", b"one")
    with second:
        second.send("claimed", b"two")


def test_two_consumers_of_a_group_with_one_id(broker):
    first, second = (PushConsumer("g", broker.name_server, instance_name="one") for _ in range(2))
    with first:
        with pytest.raises(ValueError, match="the group 'g' has the client"):
            second.start()
        with pytest.raises(ValueError, match="the group 'g' has the client"):
            second.start()
    with second:
        assert second.client_id.endswith("@one")


def test_the_id_of_a_client_whose_loop_has_ended_is_free(broker):
    async def forgets():
        producer = AsyncProducer("shop", broker.name_server, instance_name="one")
        await producer.start()
        return producer

    first = asyncio.run(forgets())
    assert asyncio.run(forgets()) is not first


@pytest.mark.parametrize("how", ["send", "send_async"])
def test_a_thread_that_uses_a_producer_while_another_closes_it(broker, how):
    for _ in range(10):
        with Producer("shop", broker.name_server) as producer:
            producer.send("closed-in-use", b"one")

            def work():
                futures = []
                with pytest.raises((ClosedError, BackpressureError)):
                    while True:
                        futures.append(getattr(producer, how)("closed-in-use", b"one"))
                return [one.exception(10) for one in futures] if how == "send_async" else []

            timer = threading.Timer(0.02, producer.close)
            timer.start()
            [errors] = in_threads(1, work)
            timer.join()
            assert isinstance(errors, list)
            assert {type(one) for one in errors} <= {type(None), ClosedError}


def test_a_call_that_fails_on_the_loop_ends_there():
    def wrong(end, error):
        raise error

    with loop_thread.LoopThread() as thread:
        for error in (ValueError("x"), SystemExit(3)):
            thread._loop.call_soon_threadsafe(time.sleep, 0.05)  # both calls begin in one turn
            future = thread.submit_to(wrong, error)
            assert thread.result(Waiter(), lambda end: end.set_result("done")) == "done"
            with pytest.raises(type(error)):
                future.result(10)
            assert not thread._pending


def test_an_interrupt_when_a_call_has_just_begun():
    """As Ctrl-C between the beginning of a call and the wait for its end."""
    with loop_thread.LoopThread() as thread:
        begin, canceled = thread.begin, threading.Event()

        def interrupted(*arguments):
            begin(*arguments)
            raise KeyboardInterrupt

        def never_ends(end):
            end.cancel = canceled.set

        thread.begin = interrupted
        with pytest.raises(KeyboardInterrupt):
            thread.result(Waiter(), never_ends)
        assert canceled.wait(10) and not thread._pending


def test_a_future_that_is_canceled_ends_its_send(broker):
    with Producer("shop", broker.name_server) as producer:
        producer.send("orders", b"one")
        producer._thread._loop.call_soon_threadsafe(time.sleep, 0.1)
        future = producer.send_async("orders", b"one")
        assert future.cancel()
        producer.send("orders", b"one")
        assert producer.counts().messages == 0 and not producer._thread._pending
