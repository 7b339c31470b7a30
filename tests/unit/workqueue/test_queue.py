"""queue: rocketc.Queue used like a queue.Queue, in one process."""

import asyncio
import os
import pickle
import queue as python_queue
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.queue_checks import positions, take_all
from support.scripts import closed_at_a_signal, run_script, told

import rocketc
from rocketc import Queue


# ---------------------------------------------------------------- the interface of queue.Queue
def test_messages_are_returned_in_order(open_queue):
    queue = open_queue()
    for n in range(1000):
        queue.put(b"%d" % n)
    assert queue.qsize() == 1000
    assert take_all(queue) == list(range(1000))
    assert queue.empty()


def test_an_item_is_bytes_with_its_message(open_queue):
    queue = open_queue()
    queue.put(bytearray(b"body"), tags="A", keys=["k1", "k2"], properties={"region": "eu"})
    item = queue.get()
    assert item == b"body"
    assert isinstance(item, bytes)
    assert item.attempts == 1
    message = item.message
    assert (message.topic, message.queue_id, message.queue_offset) == ("queue", 0, 0)
    assert (message.tags, message.keys, message.properties["region"]) == ("A", "k1 k2", "eu")


def test_an_item_is_pickled_as_bytes(open_queue):
    queue = open_queue()
    queue.put(b"body")
    there = pickle.loads(pickle.dumps(queue.get()))
    assert type(there) is bytes
    assert there == b"body"
    with pytest.raises(ValueError, match="was not taken from"):
        queue.ack(there)


def test_a_queue_is_not_pickled(open_queue):
    with pytest.raises(TypeError, match="belongs to its process"):
        pickle.dumps(open_queue())


def test_keywords(tmp_path):
    """The fields of StoreConfig, and the keywords of open() that make sense for a queue."""
    for given, near in (("flsh", "flush"), ("max_size", "maxsize"), ("max_mesage_size", "max_message_size")):
        with pytest.raises(TypeError, match=rf"^Queue\(\): unknown keyword {given}; did you mean {near}\?$"):
            Queue(tmp_path / "queue", **{given: 5})
    with pytest.raises(TypeError, match=r"^Queue\(\): unknown keyword read_only"):
        Queue(tmp_path / "queue", read_only=True)
    assert not (tmp_path / "queue").exists()
    with Queue(tmp_path / "queue", lock="spin", max_message_size="64KiB") as queue:
        assert (queue.store.config.lock, queue.store.config.max_message_size) == ("spin", 1 << 16)
        assert (queue.store.config.flush, queue.store.config.mapped_file_size_commit_log) == ("async", 64 << 20)


def test_a_queue_keeps_the_settings_of_its_config(tmp_path):
    config = rocketc.StoreConfig(flush_disk_type="SYNC_FLUSH", mapped_file_size_commit_log="1MiB")
    with Queue(tmp_path / "queue", config=config) as queue:
        assert (queue.store.config.flush, queue.store.config.mapped_file_size_commit_log) == ("sync", 1 << 20)
    with Queue(tmp_path / "other", config=config, flush="async") as queue:
        assert queue.store.config.flush == "async"


def test_async_with(tmp_path):
    async def main():
        async with Queue(tmp_path / "queue", mapped_file_size_commit_log=1 << 20) as queue:
            queue.put(b"work")
        assert queue.closed

    asyncio.run(main())
    with Queue(tmp_path / "queue") as queue:
        assert queue.get() == b"work"


def test_an_item_that_is_text(open_queue):
    with pytest.raises(TypeError, match=r"must be bytes-like, not str; encode text with \.encode\(\)$"):
        open_queue().put("text")


def test_an_empty_queue(open_queue):
    queue = open_queue()
    with pytest.raises(python_queue.Empty):
        queue.get_nowait()
    with pytest.raises(python_queue.Empty):
        queue.get(False, 5)
    before = time.monotonic()
    with pytest.raises(python_queue.Empty):
        queue.get(timeout=0.05)
    assert time.monotonic() - before >= 0.05
    with pytest.raises(ValueError, match="timeout is -1; it must be at least 0"):
        queue.get(timeout=-1)


def test_get_waits(open_queue):
    queue = open_queue()
    got = []
    taker = threading.Thread(target=lambda: got.append(queue.get(timeout=10)))
    taker.start()
    time.sleep(0.15)
    queue.put(b"late")
    taker.join()
    assert got == [b"late"]


def test_get_nowait_returns_a_message_put_just_before(open_queue):
    """Even before the message is dispatched to its queue."""
    queue = open_queue()
    for n in range(300):
        queue.put(b"%d" % n)
        assert queue.qsize() == 1
        assert int(queue.get_nowait()) == n


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_durability(open_queue, tmp_path, flush):
    queue = open_queue(flush=flush)
    assert queue.put(b"x").status.name == "PUT_OK"
    assert queue.store.config.flush == flush
    queue.ack(queue.get())
    queue.flush()
    assert queue.store.flushed_phy_offset == queue.store.max_phy_offset
    assert positions(tmp_path / "jobs")["queue@default"] == {0: 1}


def test_a_queue_with_room_for_two(open_queue):
    queue = open_queue(maxsize=2)
    queue.put(b"0")
    assert not queue.full()
    queue.put_nowait(b"1")
    assert queue.full()
    with pytest.raises(python_queue.Full):
        queue.put_nowait(b"2")
    with pytest.raises(python_queue.Full):
        queue.put(b"2", timeout=0.05)
    got = []
    taker = threading.Thread(target=lambda: [time.sleep(0.1), got.append(queue.get())])
    taker.start()
    queue.put(b"2", timeout=10)
    taker.join()
    assert got == [b"0"]
    assert queue.qsize() == 2, "a taken message does not count, acked or not"


def test_a_bounded_queue_is_not_slow(open_queue):
    queue = open_queue(maxsize=1)
    maker = threading.Thread(target=lambda: [queue.put(b"%d" % n) for n in range(200)])
    before = time.monotonic()
    maker.start()
    for n in range(200):
        item = queue.get(timeout=10)
        assert int(item) == n
        queue.ack(item)
    maker.join()
    assert time.monotonic() - before < 10


def test_task_done_and_join(open_queue):
    queue = open_queue()
    queue.put_many([b"%d" % n for n in range(100)])
    seen = []

    def work():
        while True:
            item = queue.get()
            if item == b"end":
                queue.task_done()
                return
            seen.append(int(item))
            queue.task_done()

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    queue.join()
    assert sorted(seen) == list(range(100))
    assert queue.position == 100
    queue.put_many([b"end"] * 4)
    for worker in workers:
        worker.join()
    with pytest.raises(ValueError, match="without a message"):
        queue.task_done()


def in_thread(call):
    with ThreadPoolExecutor(1) as one:
        return one.submit(call).result()


def refuse_task_done(queue):
    with pytest.raises(ValueError, match="took last"):
        queue.task_done()


def test_task_done_acks_what_this_thread_took_last(open_queue):
    """The message that failed, whose task_done() was skipped, is not acked in the place of a later one."""
    queue = open_queue()
    queue.put_many([b"failed", b"other", b"done"])
    failed = queue.get()
    other = in_thread(queue.get)
    queue.get()
    queue.task_done()
    assert queue.position == 0, "the message that failed is not acked"
    refuse_task_done(queue)
    queue.ack(failed, other)
    assert queue.position == 3


def test_task_done_of_a_thread_that_has_the_id_of_a_dead_one(open_queue):
    queue = open_queue()
    queue.put_many([b"%d" % n for n in range(40)])

    def take(is_done):
        queue.get()
        if is_done:
            queue.task_done()
        return threading.get_ident()

    ids = [in_thread(lambda: take(True))]
    ids += [in_thread(lambda: take(False))]  # dies with its message
    ids += [in_thread(lambda: take(True)) for _ in range(38)]
    assert queue.position == 1, "the message of the dead thread is not acked"
    assert len(set(ids)) < len(ids), "no thread had the id of an earlier one"
    in_thread(lambda: refuse_task_done(queue))


def test_task_done_of_coroutines(open_queue):
    """Each coroutine acks its own message; each call of asyncio.to_thread() forgets its own."""
    queue = open_queue()
    queue.put_many([b"0", b"1", b"2"])

    async def work(fails, others):
        queue.get_nowait()
        await others.wait()
        if not fails:
            queue.task_done()

    async def run():
        others = asyncio.Event()
        works = [asyncio.ensure_future(work(fails, others)) for fails in (True, False)]
        await asyncio.sleep(0)
        others.set()
        await asyncio.gather(*works)
        assert queue.position == 0, "the message of the coroutine that failed is not acked"
        item = await asyncio.to_thread(queue.get)
        await asyncio.to_thread(refuse_task_done, queue)
        queue.ack(item)

    asyncio.run(run())
    assert queue.position == 0


def test_task_done_of_a_message_that_was_given_up(open_queue):
    """Returned, overdue, deleted: task_done() acks neither it nor the one before it."""
    queue = open_queue(visibility_timeout=900.0)
    queue.put_many([b"0", b"1"])
    queue.get()
    item = queue.get()
    queue.nack(item)
    refuse_task_done(queue)
    assert in_thread(queue.get) == b"1"  # another thread has it now
    refuse_task_done(queue)
    queue.store.delete_topics(queue.topic)
    queue.put(b"new")
    in_thread(queue.get)
    refuse_task_done(queue)
    assert queue.position == 0


def test_task_done_after_get_many(open_queue):
    queue = open_queue()
    queue.put_many([b"0", b"1", b"2"])
    queue.ack(*queue.get_many(2))
    refuse_task_done(queue)
    queue.get_many(1)
    queue.task_done()
    assert queue.position == 3


def test_task_done_of_two_queues(open_queue):
    queue = open_queue()
    audit = queue.consumer("audit")
    queue.put(b"0")
    queue.get()
    audit.get()
    queue.task_done()
    assert (queue.position, audit.position) == (1, 0)
    audit.task_done()
    assert audit.position == 1


# ---------------------------------------------------------------- the end
def test_a_closed_queue(open_queue):
    queue = open_queue()
    queue.put(b"0")
    item = queue.get()
    audit = queue.consumer("audit")
    assert not queue.closed
    queue.close()
    queue.close()
    assert queue.closed
    for call in (
        lambda: queue.put(b"1"),
        lambda: queue.put_many([b"1"]),
        queue.get,
        queue.get_nowait,
        queue.get_many,
        lambda: queue.ack(item),
        lambda: queue.nack(item),
        queue.task_done,
        queue.join,
        queue.qsize,
        queue.empty,
        queue.flush,
        lambda: next(iter(queue)),
        lambda: queue.consumer("late"),
        audit.get,
    ):
        with pytest.raises(rocketc.ClosedError, match="closed"):
            call()


def test_close_wakes_waiting_threads(open_queue):
    queue = open_queue(maxsize=1)
    queue.put(b"0")
    audit = queue.consumer("audit")
    audit.ack(audit.get())
    told = []

    def wait(call):
        try:
            call()
        except rocketc.ClosedError:
            told.append("closed")

    waiting = [
        threading.Thread(target=wait, args=(call,))
        for call in (audit.get, audit.get, audit.get_many, queue.join, lambda: queue.put(b"1"))
    ]
    for thread in waiting:
        thread.start()
    time.sleep(0.05)
    before = time.monotonic()
    queue.close()
    for thread in waiting:
        thread.join()
    assert told == ["closed"] * 5
    assert time.monotonic() - before < 5


def test_one_process_at_a_time(open_queue):
    open_queue()
    with pytest.raises(rocketc.StoreLockedError):
        open_queue()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_gets_nothing(open_queue, tmp_path):
    queue = open_queue()
    queue.put_many([b"0", b"1", b"2"])
    item = queue.get()
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with queue._lock:  # as if another thread held it
            pid = os.fork()
            if pid == 0:
                told = []
                try:
                    for call in (queue.get, queue.qsize, lambda: queue.ack(item), lambda: queue.put(b"x"), queue.flush):
                        try:
                            call()
                            told.append("nothing")
                        except Exception as error:
                            told.append("before" if "before this process was forked" in str(error) else repr(error))
                    queue.close()
                    del item
                finally:
                    os.write(write, " ".join(told).encode())
                    os._exit(0)
    os.waitpid(pid, 0)
    told = os.read(read, 10_000).decode().split()
    os.close(read)
    os.close(write)
    assert told == ["before"] * 5
    queue.ack(item)
    assert take_all(queue) == [1, 2]


def test_a_queue_that_was_never_closed(tmp_path):
    queue = Queue(tmp_path / "jobs")
    queue.put_many([b"0", b"1"])
    queue.ack(queue.get())
    with pytest.warns(ResourceWarning, match="was never closed"):
        del queue
    assert positions(tmp_path / "jobs") == {"queue@default": {0: 1}}


@pytest.mark.parametrize("handler", ["signal.default_int_handler", "lambda *_: queue.close()"])
def test_a_signal_during_close(open_queue, tmp_path, handler):
    """It then waits for the thread that writes the positions, which waits for a flush."""
    script = """
import rocketc, sys, time
size = {"mapped_file_size_commit_log": 1 << 20}
queue = rocketc.Queue(sys.argv[1], position_interval=0, flush_interval_commit_log=600_000, **size)
queue.put_many([b"0", b"1"])
store = queue.store
store._hook("slow_ns", 1_000_000_000)
queue.ack(queue.get())
time.sleep(0.2)
"""
    out, _ = run_script(script + closed_at_a_signal("queue", handler), tmp_path / "jobs", timeout=20)
    assert out.split() == told(handler)
    assert not (tmp_path / "jobs/abort").exists()
    assert take_all(open_queue()) == [1]


@pytest.mark.parametrize("call", ["queue.get()", "queue.join()", "queue.flush()", "for _ in queue: pass"])
def test_a_signal_that_closes_the_store_during_a_call(tmp_path, call):
    """Waiting calls raise ClosedError. At the latest the exit of the interpreter closes the queue."""
    script = f"""
import os, rocketc, signal, sys, threading
size = {{"mapped_file_size_commit_log": 1 << 20}}
queue = rocketc.Queue(sys.argv[1], flush_interval_commit_log=600_000, **size)
queue.put_many([b"0", b"1"])
item = queue.get()
queue.get()
queue.ack(item)
signal.signal(signal.SIGTERM, lambda *_: queue.close())
if "flush" in {call!r}:
    queue.store._hook("slow_ns", 1_000_000_000)
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
try:
    {call}
except rocketc.ClosedError:
    print("ended")
"""
    out, _ = run_script(script, tmp_path / "jobs", timeout=20)
    assert out.split() == ["ended"]
    assert not (tmp_path / "jobs/abort").exists()
    assert positions(tmp_path / "jobs") == {"queue@default": {0: 1}}


def test_close_in_a_handler_while_the_thread_holds_a_lock(open_queue):
    """A signal handler that calls close() between any two steps of a call is refused, and changes nothing."""
    queue = open_queue()
    queue.put(b"0")
    dead = queue.consumer("other")
    for lock in (queue._lock, dead._lock, queue._positions.writing):
        with lock, pytest.raises(rocketc.ClosedError, match="inside a call of"):
            queue.close()
    assert queue.get() == b"0"
    with queue._lock:
        thread = threading.Thread(target=queue.close)  # close() of another thread waits
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
    thread.join()
    assert queue.closed


def test_a_failed_queue_does_not_keep_others_open(tmp_path):
    """At its exit the interpreter closes queues in no particular order."""
    script = """
import atexit, os
atexit.register(os._exit, 0)  # last of all: __del__ would close them too
import errno, rocketc, sys
size = {"mapped_file_size_commit_log": 1 << 20}
queues = [rocketc.Queue(f"{sys.argv[1]}/{n}", position_interval=600, **size) for n in range(6)]
for n, queue in enumerate(queues):
    queue.put(b"0")
    queue.ack(queue.get())
    if n:
        queue.store._hook("fail", errno.EIO)
"""
    _, err = run_script(script, tmp_path, timeout=60)
    assert "StoreFailedError" in err
    assert not (tmp_path / "0/abort").exists()
    assert positions(tmp_path / "0") == {"queue@default": {0: 1}}


def test_a_queue_is_a_store(open_queue, tmp_path):
    queue = open_queue()
    queue.put_many(
        [b"0", b"1"],
    )
    queue.close()
    assert [m.body for m in rocketc.scan(tmp_path / "jobs", topics=["queue"])] == [b"0", b"1"]


def test_a_log_of_small_files(tmp_path):
    with Queue(tmp_path / "jobs") as queue:
        queue.put(b"0")
        assert queue.store.config.mapped_file_size_commit_log == 64 << 20
    with rocketc.open(tmp_path / "big", mapped_file_size_commit_log=2 << 20) as store:
        store.put("queue", b"0")
    with Queue(tmp_path / "big") as queue:
        assert queue.store.config.mapped_file_size_commit_log == 2 << 20
        assert queue.get() == b"0"


# ---------------------------------------------------------------- many threads
@pytest.mark.parametrize("flush", ["sync", "async"])
def test_threads_put_and_take(open_queue, flush):
    """Each message is taken once, by one of many threads. Each thread gets the messages of one producer in order."""
    queue = open_queue(flush=flush)
    makers, takers, each = 4, 4, 300
    taken = [[] for _ in range(takers)]

    def make(maker):
        for n in range(each):
            queue.put(b"%d.%d" % (maker, n))

    def take(mine):
        for item in queue.items():
            if item == b"end":
                queue.ack(item)
                return
            mine.append(tuple(map(int, item.split(b"."))))
            if len(mine) % 7 == 0:
                time.sleep(0)

    threads = [threading.Thread(target=make, args=(maker,)) for maker in range(makers)]
    threads += [threading.Thread(target=take, args=(mine,)) for mine in taken]
    for thread in threads:
        thread.start()
    for thread in threads[:makers]:
        thread.join()
    queue.put_many([b"end"] * takers)
    for thread in threads:
        thread.join()
    assert sorted(one for mine in taken for one in mine) == [(maker, n) for maker in range(makers) for n in range(each)]
    for mine in taken:
        for maker in range(makers):
            numbers = [n for of, n in mine if of == maker]
            assert numbers == sorted(numbers)
    assert queue.position == makers * each + takers


def test_threads_nack(open_queue):
    """Some threads nack, some let the timeout pass: at the end all messages are acked and none is left."""
    queue = open_queue(visibility_timeout=0.3)
    count = 400
    queue.put_many([b"%d" % n for n in range(count)])
    done, lock = set(), threading.Lock()

    def work(seed):
        turn = seed
        while queue.position < count:
            try:
                item = queue.get(timeout=0.05)
            except python_queue.Empty:
                continue
            turn += 1
            if turn % 5 == 0:
                queue.nack(item, delay=0.01 * (turn % 3))
            elif turn % 31 != 0:
                with lock:
                    done.add(int(item))
                queue.ack(item)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == set(range(count))
    assert queue.qsize() == 0
