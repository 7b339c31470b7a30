"""MessageStore.subscribe(): threads, descriptors and event loops that are notified of new messages; a store that
another process writes; forks; close. What is reported, and when: tests/unit/derived/test_change_feed.py."""

import asyncio
import gc
import io
import os
import select
import subprocess
import sys
import threading
import time
import warnings

import pytest

import rocketc
from rocketc import QueueChange

SOON = 30.0


@pytest.fixture
def store(open_store):
    return open_store(flush="async")


def later(seconds, act):
    timer = threading.Timer(seconds, act)
    timer.start()
    return timer


def told(queue_id, max_offset, *codes):
    return QueueChange("t", queue_id, max_offset, codes or (0,))


def is_readable(subscription, timeout=0.0):
    return select.select([subscription], [], [], timeout)[0] == [subscription]


def descriptors():
    """Return the number of open eventfds and pipes."""
    found = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    return sum("eventfd" in os.readlink(path) or "pipe:" in os.readlink(path) for path in found if os.path.islink(path))


# ------------------------------------------------------------------------------------------------ threads


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_changes(open_store, flush):
    store = open_store(flush=flush)
    with store.subscribe() as subscription:
        assert subscription.changes() == []
        store.put("t", b"x", tags="A")
        store.put("t", b"x")
        assert subscription.wait(SOON)
        assert store.wait_dispatched(SOON)
        found = subscription.changes()
        assert found == [told(0, 2, 65, 0)]
        assert store.get("t", 0, found[0].max_offset - 1), "the messages can be read"
        assert subscription.changes() == []
        assert not subscription.wait(0.01)
        assert not subscription.wait(0)
        assert not subscription.wait(-1)


def test_all_messages_before_wait_dispatched_returns_are_reported(store):
    with store.subscribe() as subscription:
        for n in range(1, 300):
            store.put("t", b"x")
            assert store.wait_dispatched(SOON)
            assert subscription.changes() == [told(0, n)]


def test_some_queues(store):
    """Only the given queues are reported, even if another queue has the same hash."""
    with store.subscribe(("t", n) for n in (3, 70)) as subscription:
        for n in range(200):
            store.put("t", b"x", queue_id=n)
        assert store.wait_dispatched(SOON)
        assert subscription.wait(0)
        assert subscription.changes() == [told(3, 1), told(70, 1)]
    with pytest.raises(ValueError, match="queues is empty"):
        store.subscribe([])


def test_many_tags(store):
    with store.subscribe() as subscription:
        for n in range(17):
            store.put("t", b"x", tags=str(n))
        assert store.wait_dispatched(SOON)
        assert subscription.changes() == [QueueChange("t", 0, 17, None)]


def test_many_queues_are_returned_in_portions(store):
    with store.subscribe() as subscription:
        for n in range(300):
            store.put("t", b"x", queue_id=n)
        assert store.wait_dispatched(SOON)
        assert subscription.changes() == [told(n, 1) for n in range(256)]
        assert subscription.wait(0)
        assert subscription.changes() == [told(n, 1) for n in range(256, 300)]
        assert subscription.changes() == []


def test_a_slow_subscriber_gets_all_queues(open_store):
    store = open_store(mapped_file_size_commit_log=1 << 23)
    with store.subscribe() as slow, store.subscribe([("t", 1)]) as other:
        store.put("t", b"x", queue_id=1)
        for _ in range(17):
            store.put_many("t", [b"x"] * 1000)
        assert store.wait_dispatched(SOON)
        assert (slow.changes(), slow.missed) == ([QueueChange("t", 1, 1, None), QueueChange("t", 0, 17_000, None)], 1)
        assert (other.changes(), other.missed) == ([QueueChange("t", 1, 1, None)], 1)
        assert slow.changes() == other.changes() == []


def test_16384_messages_are_remembered(open_store):
    store = open_store(mapped_file_size_commit_log=1 << 23)
    with store.subscribe() as subscription:
        store.put_many("t", [b"x"] * 16_383)
        assert store.wait_dispatched(SOON)
        assert (subscription.changes(), subscription.missed) == ([told(0, 16_383)], 0)


def test_waiting_threads_and_one_wake_up(store):
    with store.subscribe() as subscription:
        woken = []
        threads = [threading.Thread(target=lambda: woken.append(subscription.wait(SOON))) for _ in range(4)]
        for thread in threads:
            thread.start()
        later(0.05, lambda: store.put("t", b"x"))
        for thread in threads:
            thread.join()
        assert woken == [True] * 4
        assert subscription.changes() == [told(0, 1)]


def test_messages_of_all_kinds_of_queues(open_store):
    """Light queues, batch queues, delayed messages, tags in extensions."""
    store = open_store(
        enable_lmq=True, enable_multi_dispatch=True, enable_consume_queue_ext=True, mapped_file_size_commit_log=1 << 20
    )
    store.create_topic("batches", queue_type="BatchCQ")
    with store.subscribe() as subscription:
        store.put("t", b"x", tags="A", properties={"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"})
        properties = {"INNER_NUM": "3", "INNER_BASE": "0", "TAGS": "B"}
        store.put("batches", b"x", properties=properties, sys_flag=0x80 | 0x8)
        before = int(time.time() * 1000)
        store.put("SCHEDULE_TOPIC_XXXX", b"x", properties={"DELAY": "3"}, queue_id=2)
        assert store.wait_dispatched(SOON)
        *found, delayed = subscription.changes()
        expected = [("t", 0, 1, (65,)), ("%LMQ%a", 0, 1, (65,)), ("%LMQ%b", 0, 1, (65,))]
        assert found[:3] == expected
        assert store.get("t").messages
        assert [(c.topic, c.max_offset, c.tags_codes) for c in found[3:]] == [
            ("batches", store.max_offset("batches"), (66,))
        ]
        assert delayed[:3] == ("SCHEDULE_TOPIC_XXXX", 2, 1)
        assert 10_000 <= delayed.tags_codes[0] - before < 10_000 + SOON * 1000


def test_cleaning_and_deletion(open_store):
    store = open_store(mapped_file_size_commit_log=1 << 12)
    with store.subscribe() as subscription:
        store.put_many("old", [bytes(1000)] * 10)
        assert store.wait_dispatched(SOON)
        store.clean(expired_ms=-1)
        assert subscription.changes() == [QueueChange("old", 0, 10, (0,))]
        store.put("old", b"x")
        store.delete_topics("old")
        assert subscription.changes() == []
        store.put("old", b"x")
        assert store.wait_dispatched(SOON)
        assert subscription.changes() == [QueueChange("old", 0, 1, (0,))]


def test_messages_dispatched_by_open_are_not_reported(open_store, tmp_path):
    with open_store() as store:
        store.put_many("t", [b"x"] * 10)
    (tmp_path / "consumequeue/t/0/00000000000000000000").unlink()
    with open_store() as store, store.subscribe() as subscription:
        assert store.max_offset("t") == 10
        assert subscription.changes() == []
        store.put("t", b"x")
        assert subscription.wait(SOON)
        assert subscription.changes() == [told(0, 11)]


# ------------------------------------------------------------------------------------------------ descriptors


def test_a_descriptor(store):
    with store.subscribe() as subscription:
        assert subscription.fileno() == subscription.fileno()
        subscription.changes()
        assert not is_readable(subscription)
        for n in range(1, 5):
            store.put("t", b"x")
            assert is_readable(subscription, SOON)
            assert subscription.changes() == [told(0, n)]
            assert not is_readable(subscription)
            assert store.wait_dispatched(SOON)


def test_a_descriptor_that_is_requested_late(store):
    with store.subscribe() as subscription:
        store.put("t", b"x")
        assert store.wait_dispatched(SOON)
        assert is_readable(subscription)
        assert subscription.changes() == [told(0, 1)]
        assert not is_readable(subscription)


def test_a_descriptor_stays_readable_while_there_are_more_queues(store):
    with store.subscribe() as subscription:
        for n in range(600):
            store.put("t", b"x", queue_id=n)
        assert store.wait_dispatched(SOON)
        assert [is_readable(subscription) and len(subscription.changes()) for _ in range(3)] == [256, 256, 88]
        assert not is_readable(subscription)
        store.put("t", b"x")
        assert is_readable(subscription, SOON)


def test_a_descriptor_is_written_to_once(store):
    with store.subscribe() as subscription:
        subscription.fileno()
        subscription.changes()
        for _ in range(5):
            store.put("t", b"x")
            assert store.wait_dispatched(SOON)
        assert int.from_bytes(os.read(subscription.fileno(), 8), "little") == 1


def test_the_descriptor_of_a_store_that_is_closed(open_store):
    store = open_store()
    subscription = store.subscribe()
    subscription.fileno()
    subscription.changes()
    later(0.05, store.close)
    assert is_readable(subscription, SOON)
    with pytest.raises(rocketc.ClosedError, match="the store is closed"):
        subscription.changes()
    assert is_readable(subscription), "it stays readable until the subscription is closed"
    subscription.close()


def test_no_descriptor_is_left(open_store):
    store = open_store()
    store.subscribe().fileno()
    gc.collect()
    before = descriptors()
    several = [store.subscribe() for _ in range(10)]
    for subscription in several:
        subscription.fileno()
    assert descriptors() > before
    for subscription in several[:5]:
        subscription.close()
        subscription.close()
    assert descriptors() == before + 5
    del several, subscription
    assert descriptors() == before
    assert store.feed.subscriber_count == 0


# ------------------------------------------------------------------------------------------------ asyncio


def test_async_iteration(store):
    async def main():
        async for changes in store.subscribe():
            assert changes
            if changes[-1].max_offset == 50:
                return 50

    timer = later(0.05, lambda: [store.put("t", b"x") for _ in range(50)])
    assert asyncio.run(asyncio.wait_for(main(), SOON)) == 50
    timer.join()


def test_several_event_loops(store):
    """At the same time; each loop has its own subscription and two tasks that follow a queue."""

    async def iterate():
        async for changes in store.subscribe():
            if changes[-1].max_offset == 40:
                return "all"

    async def follow():
        found = []
        async for message in store.follow("t"):
            found.append(int(message.body))
            if len(found) == 40:
                return found

    async def both():
        return await asyncio.wait_for(asyncio.gather(iterate(), follow(), follow()), SOON)

    results = []
    threads = [threading.Thread(target=lambda: results.append(asyncio.run(both()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    for n in range(40):
        store.put("t", b"%d" % n)
        time.sleep(0.001)
    for thread in threads:
        thread.join()
    assert results == [["all", list(range(40)), list(range(40))]] * 4


def test_followers_of_other_queues_are_not_woken(store):
    looks = []

    async def follow(queue_id):
        async for message in store.follow("t", queue_id):
            return message.body

    async def main():
        tasks = [asyncio.create_task(follow(n)) for n in range(20)]
        await asyncio.sleep(0.05)
        followers = store_followers(store)
        before = {key: set(futures) for key, futures in followers._waiting.items()}
        for _ in range(5):
            store.put("other", b"x")
            store.put("t", b"x", queue_id=99)
            await asyncio.sleep(0.01)
        looks.append({key: set(futures) for key, futures in followers._waiting.items()} == before)
        for n in range(20):
            store.put("t", b"%d" % n, queue_id=n)
        return await asyncio.gather(*tasks)

    assert asyncio.run(asyncio.wait_for(main(), SOON)) == [b"%d" % n for n in range(20)]
    assert looks == [True]


def store_followers(store):
    """Return the object that wakes the followers in the running loop."""
    found = [each for each in gc.get_objects() if type(each).__name__ == "_LoopFollowers"]
    (followers,) = [each for each in found if each._loop is asyncio.get_running_loop()]
    return followers


def test_one_task_at_a_time_waits_in_a_subscription(store):
    async def main():
        with store.subscribe() as subscription:
            task = asyncio.create_task(anext(aiter(subscription)))
            await asyncio.sleep(0.01)
            with pytest.raises(RuntimeError, match="another task"):
                await anext(aiter(subscription))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            store.put("t", b"x")
            assert await asyncio.wait_for(anext(aiter(subscription)), SOON) == [told(0, 1)]

    asyncio.run(main())


@pytest.mark.parametrize("where", ["loop", "thread"])
def test_close_while_a_task_waits(store, where):
    async def main():
        subscription = store.subscribe()
        found = []

        async def iterate():
            async for changes in subscription:
                found.append(changes)
            return "over"

        task = asyncio.create_task(iterate())
        await asyncio.sleep(0.02)
        if where == "loop":
            subscription.close()
        else:
            await asyncio.to_thread(subscription.close)
        assert (await asyncio.wait_for(task, SOON), found) == ("over", [])
        return subscription

    fds = descriptors()
    subscription = asyncio.run(main())
    assert descriptors() <= fds
    assert subscription.closed


def test_the_store_is_closed_while_a_task_waits(open_store):
    store = open_store()

    async def main():
        with pytest.raises(rocketc.ClosedError):
            async for _ in store.subscribe():
                pass

    later(0.05, store.close)
    asyncio.run(asyncio.wait_for(main(), SOON))


def test_closed_loops_are_released(store):
    async def one():
        async for message in store.follow("t"):
            return message.body

    store.put("t", b"x")
    for _ in range(5):
        assert asyncio.run(asyncio.wait_for(one(), SOON)) == b"x"
    assert store.feed.subscriber_count == 1


# ------------------------------------------------------------------------------------------------ the end


@pytest.mark.parametrize("who", ["store", "subscription"])
def test_close_while_threads_wait(open_store, who):
    store = open_store()
    subscription = store.subscribe()
    texts = []

    def wait():
        try:
            subscription.wait()
        except rocketc.ClosedError as error:
            texts.append(str(error))

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    (store if who == "store" else subscription).close()
    for thread in threads:
        thread.join(SOON)
    assert texts == [f"{store.path}: the {who} is closed"] * 3
    for call in (subscription.changes, subscription.wait, subscription.fileno):  # no descriptor was created before
        with pytest.raises(rocketc.ClosedError, match=f"the {who} is closed"):
            call()
    subscription.close()
    if who == "store":
        with pytest.raises(rocketc.ClosedError):
            store.subscribe()


def test_a_signal_ends_a_wait(tmp_path):
    code = (
        "import rocketc, signal, sys\n"
        "def ended(*_): raise KeyboardInterrupt\n"
        "signal.signal(signal.SIGALRM, ended)\n"
        "with rocketc.open(sys.argv[1], mapped_file_size_commit_log=65536) as store:\n"
        "    signal.setitimer(signal.ITIMER_REAL, 0.2)\n"
        "    try:\n"
        "        store.subscribe().wait()\n"
        "    except KeyboardInterrupt:\n"
        "        print('ended')\n"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, timeout=SOON)
    assert (done.stdout, done.stderr) == ("ended\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_cannot_use_a_subscription(open_store):
    """Each call in the child raises ClosedError, whatever locks were held. Its exit does not affect the parent."""
    store = open_store()
    armed, waiting = store.subscribe(), store.subscribe()
    armed.fileno()
    armed.changes()
    thread = threading.Thread(target=waiting.wait, args=(SOON,))
    thread.start()
    store.put("t", b"x")
    assert is_readable(armed, SOON)
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        found = []
        try:
            for call in (armed.changes, waiting.fileno, lambda: waiting.wait(0), store.subscribe):
                try:
                    call()
                    found.append("nothing")
                except Exception as error:
                    found.append(type(error).__name__)
            armed.close()
            del armed, waiting, store
            gc.collect()
        finally:
            os.write(write, " ".join(found).encode())
            os._exit(0)
    os.waitpid(pid, 0)
    found = os.read(read, 1000).decode().split()
    os.close(read)
    os.close(write)
    assert found == ["ClosedError"] * 4
    assert is_readable(armed), "the child has not taken the parent's wake-up"
    assert armed.changes() == [told(0, 1)]
    thread.join()
    store.put("t", b"x")
    assert is_readable(armed, SOON)


# ------------------------------------------------------------------------------------------------ another process

WRITER = """
import rocketc, sys
with rocketc.open(sys.argv[1], mapped_file_size_commit_log=65536) as store:
    print("open", flush=True)
    for line in sys.stdin:
        store.put(line.strip(), b"x", queue_id=1)
        store.wait_dispatched()
        print("done", flush=True)
"""


@pytest.fixture
def writer(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, tmp_path / "store"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "open\n"

    def put(topic):
        process.stdin.write(f"{topic}\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"

    yield put
    process.stdin.close()
    assert process.wait(30) == 0
    process.stdout.close()


def test_messages_of_another_process(tmp_path, writer):
    writer("t")
    with rocketc.open(tmp_path / "store", read_only=True) as reader:
        every, some = reader.subscribe(), reader.subscribe([("u", 1)])
        assert every.changes() == some.changes() == []
        assert not every.wait(0.01)
        writer("t")
        assert every.wait(SOON)
        assert (every.changes(), every.changes(), some.changes()) == ([QueueChange("t", 1, 2, None)], [], [])
        timer = later(0.05, lambda: writer("u"))
        assert some.wait(SOON)
        assert some.changes() == every.changes() == [QueueChange("u", 1, 1, None)]
        timer.join()
        with pytest.raises(io.UnsupportedOperation, match="reading only"):
            every.fileno()

        async def main():
            async for changes in every:
                return changes

        timer = later(0.05, lambda: writer("t"))
        assert asyncio.run(asyncio.wait_for(main(), SOON)) == [QueueChange("t", 1, 3, None)]
        timer.join()
        later(0.05, some.close)
        with pytest.raises(rocketc.ClosedError, match="the subscription is closed"):
            some.wait(SOON)
        later(0.05, reader.close)
        with pytest.raises(rocketc.ClosedError, match="the store is closed"):
            every.wait(SOON)
    with pytest.raises(rocketc.ClosedError, match="the store is closed"):
        every.changes()
