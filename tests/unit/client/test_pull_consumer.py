"""PullConsumer at a broker of this project: the calls of a thread, members, interruptions, and the end."""

import asyncio
import datetime
import os
import signal
import threading
import time

import pytest

from rocketc.client import AsyncConsumer, AsyncPullConsumer, MessageQueue, PullConsumer, PushConsumer
from rocketc.client.loop_thread import give_back_loop, shared_loop
from rocketc.errors import AssignmentError, ClosedError, NotSentError, QueueOffsetError, TopicNotFoundError

FIRST = {"consume_from_where": "CONSUME_FROM_FIRST_OFFSET"}


def consumer(broker, group, topics=None, **options):
    return PullConsumer(group, broker.name_server, topics=topics, **{**FIRST, **options})


def bodies(one, count):
    found = []
    while len(found) < count:
        messages = one.poll(5_000)
        assert messages
        found += [int(message.body) for message in messages]
    return sorted(found)


def test_messages_and_offsets(broker, producer):
    sent = producer.send_many("pulled", [b"%d" % i for i in range(20)])
    with consumer(broker, "pulled", ["pulled"]) as one:
        assert bodies(one, 20) == list(range(20))
        [queue] = {result.queue for result in sent}
        assert queue in one.assignment() and len(one.assignment()) == len(one.fetch_message_queues("pulled"))
        assert (one.min_offset(queue), one.max_offset(queue)) == (0, 20)
        assert one.offset_for_timestamp(queue, 0) == 0
        for zone in (None, datetime.timezone.utc):
            now = datetime.datetime.now(zone)
            assert one.offset_for_timestamp(queue, now - datetime.timedelta(hours=1)) == 0
            assert one.offset_for_timestamp(queue, now + datetime.timedelta(hours=1)) == one.max_offset(queue)
        assert one.client_id
        one.seek(queue, 15)
        assert bodies(one, 5) == list(range(15, 20))
        with pytest.raises(QueueOffsetError):
            one.seek(queue, 21)
        one.commit({queue: 12})
        assert one.committed(queue) == 12
        one.commit()
        assert one.committed(queue) == 20
        one.seek_to_begin(queue)
        one.pause([queue])
        assert one.poll(100) == []
        one.resume([queue])
        assert [message.queue_offset for message in one.poll(max_records=3)] == [0, 1, 2]
        one.seek_to_end(queue)
        assert one.poll(50) == []
        one.unsubscribe("pulled")
        assert one.assignment() == []
    with consumer(broker, "pulled") as one:
        one.assign([queue])
        assert one.committed(queue) == 20 and one.poll(50) == []


def test_an_iterator_of_messages(broker, producer):
    for body in (b"0", b"1", b"2"):
        queue = producer.send("one-by-one", body, shard="one").queue
    with consumer(broker, "one-by-one", ["one-by-one"]) as one:
        closing = threading.Timer(0.0, one.close)
        seen = []
        for message in one:
            seen.append(int(message.body))
            if len(seen) == 3:
                closing.start()  # the iterator waits for a fourth message, or begins to
        assert seen == [0, 1, 2]
    closing.join()
    with pytest.raises(ClosedError, match="the consumer is not started"):
        next(consumer(broker, "one-by-one", ["one-by-one"]))
    with consumer(broker, "one-by-one") as one:
        assert one.committed(queue) == 3  # close() commits


def test_the_repr_says_what_it_is_and_its_state(broker):
    async def main():
        for one in (AsyncPullConsumer("g", broker.name_server), AsyncConsumer("g", broker.name_server, topics=["x"])):
            assert repr(one) == f"<{type(one).__name__} g, name server {broker.name_server}, not started>"
            async with one:
                assert repr(one).endswith(", open>")
            assert repr(one).endswith(", closed>")

    for one in (PullConsumer("g", broker.name_server), PushConsumer("g", broker.name_server)):
        assert repr(one) == f"<{type(one).__name__} g, name server {broker.name_server}, not started>"
        with one:
            assert repr(one).endswith(", open>")
        assert repr(one).endswith(", closed>")
    asyncio.run(main())


def test_topics_and_queues_before_the_start(broker, producer):
    queue = producer.send("early", b"0").queue
    one = consumer(broker, "early")
    one.subscribe("early", "no")
    one.subscribe("other")
    one.unsubscribe("other")
    one.subscribe("early")
    with pytest.raises(AssignmentError):
        one.assign([queue])
    with one:
        assert bodies(one, 1) == [0]
        one.subscribe("early", "some || more")
    one = consumer(broker, "early")
    one.assign([queue])
    with pytest.raises(AssignmentError):
        one.subscribe("early")
    with one:
        one.seek(queue, 0)
        assert bodies(one, 1) == [0]
        with pytest.raises(TopicNotFoundError):
            one.assign([MessageQueue("nowhere", queue.broker_name, 0)])
        with pytest.raises(TopicNotFoundError):
            one.fetch_message_queues("nowhere")


def test_members_share_queues(broker, producer):
    queues = producer.send("shared", b"0").queue
    with consumer(broker, "shared", ["shared"]) as a, consumer(broker, "shared", ["shared"]) as b:
        end = time.monotonic() + 10
        while len(a.assignment()) != len(b.assignment()):
            assert time.monotonic() < end
            time.sleep(0.05)
        mine = a.assignment()
        assert mine and not {*mine} & {*b.assignment()} and queues in {*mine, *b.assignment()}
        for queue in (*mine, *b.assignment()):
            producer.send("shared", b"1", queue=queue)
        assert {message.queue_id for message in a.poll(5_000)} <= {queue.queue_id for queue in mine}


def test_a_chosen_queue_does_not_disturb_the_group(broker, producer):
    queue = producer.send("chosen", b"0").queue
    with consumer(broker, "chosen", ["chosen"]) as member, consumer(broker, "chosen") as other:
        assert bodies(member, 1) == [0]
        count = len(member.assignment())
        other.assign([queue])
        other.seek(queue, 0)
        assert bodies(other, 1) == [0]
        time.sleep(0.2)
        assert len(member.assignment()) == count


def test_ctrl_c_loses_nothing(broker, producer):
    def interrupt(number, frame):
        """Only while poll() waits: messages that it has returned are the program's."""
        while frame is not None and frame.f_code is not threading.Condition.wait.__code__:
            frame = frame.f_back
        if frame is not None:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        producer.send("ctrl", b"99")
        with consumer(broker, "ctrl", ["ctrl"]) as one:
            found = one.poll()
            for i in range(8):
                producer.send_async("ctrl", b"%d" % i)
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.001 + i / 2_500)
                    found += one.poll(1_000)
                    time.sleep(0.1)
                except KeyboardInterrupt:
                    pass
            signal.setitimer(signal.ITIMER_REAL, 0)
            end = time.monotonic() + 10
            while len(found) < 9 and time.monotonic() < end:
                found += one.poll(300)
            assert {int(message.body) for message in found} == {99, *range(8)}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_threads(broker, producer):
    producer.send_many("threads", [b"%d" % i for i in range(200)])
    found = []
    with consumer(broker, "threads", ["threads"], auto_commit=False) as one:

        def work():
            while messages := one.poll(400, 7):
                found.extend(int(message.body) for message in messages)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(found) == list(range(200))


def test_wrong_use(broker):
    one = consumer(broker, "wrong", ["wrong"])
    with pytest.raises(ClosedError, match="the consumer is not started, or it is closed"):
        one.poll()
    with one:
        one.start()  # again
        waiting = threading.Timer(0.1, one.close)
        waiting.start()
        with pytest.raises(ClosedError, match="the consumer is closed"):
            one.poll(10_000)
        waiting.join()
    one.close()
    for call in (one.start, one.poll, one.commit, one.assignment, lambda: one.subscribe("wrong")):
        with pytest.raises(ClosedError):
            call()
    began = time.monotonic()
    with pytest.raises(NotSentError, match=r"127.0.0.1:1: no connection"):
        PullConsumer("wrong", "127.0.0.1:1", topics=["wrong"], mq_client_api_timeout=300).start()
    assert time.monotonic() - began < 3
    thread = shared_loop()
    try:

        async def inside():
            one.start()

        with pytest.raises(RuntimeError, match="use the async client there"):
            thread.run(inside())
    finally:
        give_back_loop(thread)


def test_a_forked_child(broker):
    with consumer(broker, "forked", ["forked"]) as one:
        child = os.fork()
        if not child:
            code = 1
            try:
                one.poll(10)
            except ClosedError as error:
                code = 0 if "before a fork" in str(error) else 2
            one.close()
            os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert one.poll(10) == []


def test_an_iterator(broker, producer):
    producer.send_many("iterated", [b"%d" % i for i in range(5)])

    async def main():
        async with AsyncPullConsumer("iterated", broker.name_server, topics=["iterated"], **FIRST) as one:
            found = []
            async for message in one:
                found.append(int(message.body))
                if len(found) == 5:
                    break
        assert found == list(range(5)) and len(asyncio.all_tasks()) == 1

    asyncio.run(main())
    with consumer(broker, "iterated", ["iterated"]) as one:
        assert one.poll(100) == []
