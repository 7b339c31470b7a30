"""queue, consumer, positions: rocketc.Queue, in one process."""

import gc
import json
import logging
import os
import pickle
import queue as python_queue
import threading
import time
import warnings
from collections.abc import Iterator

import pytest
from threads import wait_until

import rocketc
from rocketc import Queue
from rocketc.config_tables import read_table

NEVER = 3600.0  # seconds: the positions are not written before the end


@pytest.fixture
def open_queue(tmp_path) -> Iterator:
    """open_queue(**options): the queue below tmp_path; closed when the test ends."""
    opened = []

    def make(path=tmp_path / "jobs", **options):
        options.setdefault("mapped_file_size_commit_log", 1 << 20)
        opened.append(Queue(path, **options))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def numbers(items):
    return [int(item) for item in items]


def take_all(consumer):
    return numbers(consumer.items(timeout=0))


def positions(path):
    table = read_table(path / "config/consumerOffset.json").data["offsetTable"]
    return {name: {int(queue): offset for queue, offset in found.items()} for name, found in table.items()}


# ---------------------------------------------------------------- the manners of queue.Queue
def test_what_is_put_comes_out_in_order(open_queue):
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


def test_an_item_goes_to_other_processes_as_bytes(open_queue):
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


def test_nothing_there(open_queue):
    queue = open_queue()
    with pytest.raises(python_queue.Empty):
        queue.get_nowait()
    with pytest.raises(python_queue.Empty):
        queue.get(False, 5)
    before = time.monotonic()
    with pytest.raises(python_queue.Empty):
        queue.get(timeout=0.05)
    assert time.monotonic() - before >= 0.05
    with pytest.raises(ValueError, match="negative"):
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


def test_get_nowait_sees_what_was_just_put(open_queue):
    """Also before the message is dispatched to its queue."""
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
    assert queue.qsize() == 2, "what is taken has left room, acked or not"


def test_a_bounded_queue_does_not_crawl(open_queue):
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


def test_task_done_acks_the_oldest_of_this_thread(open_queue):
    queue = open_queue()
    queue.put_many([b"0", b"1", b"2"])
    queue.get()
    other = threading.Thread(target=queue.get)
    other.start()
    other.join()
    queue.get()
    queue.task_done()
    assert queue.position == 1
    queue.task_done()
    assert queue.position == 1, "the other thread's is open still"
    with pytest.raises(ValueError, match="without a message"):
        queue.task_done()


# ---------------------------------------------------------------- acks
def test_what_is_not_acked_comes_again_after_a_restart(open_queue, tmp_path):
    queue = open_queue()
    queue.put_many([b"%d" % n for n in range(5)])
    items = queue.get_many(4)
    assert numbers(items) == [0, 1, 2, 3]
    queue.ack(items[0], items[1], items[3])
    assert (queue.position, queue.qsize()) == (2, 1)
    queue.close()
    assert positions(tmp_path / "jobs") == {"queue@default": {0: 2}}
    queue = open_queue()
    assert take_all(queue) == [2, 3, 4], "3 comes twice: the position is the first that is not acked"


def test_acks_out_of_order(open_queue):
    queue = open_queue()
    queue.put_many([b"%d" % n for n in range(10)])
    items = queue.get_many(10)
    for n in (5, 4, 6, 9, 1, 2, 3):
        queue.ack(items[n])
    assert queue.position == 0
    queue.ack(items[0])
    assert queue.position == 7
    queue.ack(items[7], items[8])
    assert queue.position == 10


def test_acks_are_counted_once(open_queue):
    queue = open_queue()
    queue.put_many([b"0", b"1"])
    item = queue.get()
    queue.ack(item)
    queue.ack(item, item)
    queue.nack(item)
    assert (queue.position, queue.qsize()) == (1, 1)


def test_only_ones_own_is_acked(open_queue):
    queue = open_queue()
    queue.put(b"0")
    item = queue.get()
    for wrong in (b"0", None, "0"):
        with pytest.raises(ValueError, match="was not taken from"):
            queue.ack(wrong)
    with pytest.raises(ValueError, match="was not taken from"):
        queue.consumer("audit").ack(item)


def test_nacked_comes_again_first(open_queue):
    queue = open_queue()
    queue.put_many([b"0", b"1", b"2"])
    queue.get()
    item = queue.get()
    queue.nack(item)
    again = queue.get()
    assert (again, again.attempts) == (b"1", 2)
    assert queue.qsize() == 1
    assert queue.get() == b"2"


def test_nacked_comes_again_after_a_delay(open_queue):
    queue = open_queue()
    queue.put_many([b"0", b"1"])
    before = time.monotonic()
    queue.nack(queue.get(), delay=0.2)
    assert queue.qsize() == 2
    queue.ack(queue.get())
    with pytest.raises(python_queue.Empty):
        queue.get_nowait()
    assert queue.get(timeout=10).attempts == 2
    assert time.monotonic() - before >= 0.2


def test_a_waiting_thread_gets_what_another_nacks(open_queue):
    queue = open_queue()
    queue.put(b"0")
    item = queue.get()
    got = []
    takers = [threading.Thread(target=lambda: got.append(queue.get(timeout=10))) for _ in range(2)]
    for taker in takers:
        taker.start()
    time.sleep(0.05)
    queue.nack(item)
    queue.put(b"1")
    for taker in takers:
        taker.join()
    assert sorted(got) == [b"0", b"1"]


def test_what_nobody_acks_comes_again_in_time(open_queue):
    queue = open_queue(visibility_timeout=0.2)
    queue.put_many([b"0", b"1"])
    first, second = queue.get(), queue.get()
    queue.ack(second)
    again = queue.get(timeout=10)
    assert (again, again.attempts) == (b"0", 2)
    queue.nack(first)
    with pytest.raises(python_queue.Empty):
        queue.get_nowait()
    queue.ack(first)
    assert queue.position == 2, "late is better than never"
    with pytest.raises(python_queue.Empty):
        queue.get(timeout=0.3)


def test_acked_while_it_waits_to_come_again(open_queue):
    queue = open_queue()
    queue.put_many([b"0", b"1"])
    item = queue.get()
    queue.nack(item)
    queue.ack(item)
    assert (queue.get(), queue.position, queue.qsize()) == (b"1", 1, 0)


def test_without_a_timeout(open_queue):
    queue = open_queue(visibility_timeout=None)
    queue.put(b"0")
    queue.get()
    with pytest.raises(python_queue.Empty):
        queue.get(timeout=0.1)


# ---------------------------------------------------------------- iteration
def test_a_loop_acks_what_it_is_done_with(open_queue):
    queue = open_queue()
    queue.put_many([b"%d" % n for n in range(5)])
    for item in queue:
        assert queue.position == int(item)
        if item == b"4":
            break
    gc.collect()
    assert queue.position == 4
    assert (queue.get(), queue.qsize()) == (b"4", 0)


def test_a_loop_that_fails_gives_back(open_queue):
    queue = open_queue()
    queue.put_many([b"0", b"1"])
    loop = queue.items()
    assert next(loop) == b"0"
    with pytest.raises(KeyError):
        loop.throw(KeyError())
    assert queue.get().attempts == 2


def test_a_loop_ends_when_nothing_comes(open_queue):
    queue = open_queue()
    queue.put(b"0")
    before = time.monotonic()
    assert numbers(queue.items(timeout=0.1)) == [0]
    assert 0.1 <= time.monotonic() - before < 10
    assert queue.position == 1


# ---------------------------------------------------------------- groups
def test_each_group_takes_all(open_queue, tmp_path):
    queue = open_queue()
    audit = queue.consumer("audit")
    assert queue.consumer("audit") is audit
    assert queue.consumer("default") is queue
    queue.put_many([b"0", b"1", b"2"])
    assert take_all(audit) == [0, 1, 2]
    queue.ack(queue.get())
    queue.close()
    assert positions(tmp_path / "jobs") == {"queue@default": {0: 1}, "queue@audit": {0: 3}}
    queue = open_queue()
    assert take_all(queue.consumer("audit")) == []
    assert take_all(queue.consumer("late")) == [0, 1, 2]
    assert take_all(queue) == [1, 2]


def test_other_topics(open_queue):
    queue = open_queue(topic="jobs", group="workers")
    assert (queue.topic, queue.group) == ("jobs", "workers")
    queue.store.put("other", b"0")
    assert queue.empty()
    other = queue.consumer("workers", "other")
    assert take_all(other) == [0]
    assert "topic 'other', group 'workers'" in repr(other)


# ---------------------------------------------------------------- dead letters
def test_dead_letters(open_queue):
    queue = open_queue(max_attempts=3, group="workers")
    put = queue.put(b"0", tags="A", keys="k", properties={"region": "eu"})
    for attempt in (1, 2, 3):
        item = queue.get_nowait()
        assert item.attempts == attempt
        queue.nack(item)
    assert queue.empty()
    assert queue.position == 1
    dead = queue.dead_letters()
    assert (dead.topic, dead.group) == ("%DLQ%workers", "workers")
    item = dead.get()
    message = item.message
    assert (item, message.tags, message.keys, message.reconsume_times) == (b"0", "A", "k", 3)
    assert message.properties == {
        "TAGS": "A",
        "KEYS": "k",
        "region": "eu",
        "RETRY_TOPIC": "queue",
        "ORIGIN_MESSAGE_ID": put.msg_id,
        "DLQ_ORIGIN_TOPIC": "queue",
        "DLQ_ORIGIN_MESSAGE_ID": put.msg_id,
    }
    dead.ack(item)
    assert dead.empty()


def test_a_dead_letter_of_a_taker_that_hangs(open_queue):
    queue = open_queue(max_attempts=1, visibility_timeout=0.1)
    queue.put(b"0")
    queue.get()
    with pytest.raises(python_queue.Empty):
        queue.get(timeout=0.5)
    assert queue.dead_letters().get(timeout=5) == b"0"


def test_no_such_number_of_attempts(tmp_path):
    with pytest.raises(ValueError, match="1 is the least"):
        Queue(tmp_path / "jobs", max_attempts=0)
    assert not (tmp_path / "jobs").exists()


# ---------------------------------------------------------------- positions
def test_positions_are_written_now_and_then(open_queue, tmp_path):
    queue = open_queue(position_interval=0.05)
    queue.put_many([b"0", b"1"])
    queue.ack(queue.get())
    path = tmp_path / "jobs/config/consumerOffset.json"
    wait_until(path.exists)
    assert positions(tmp_path / "jobs") == {"queue@default": {0: 1}}
    written = path.stat().st_mtime_ns
    time.sleep(0.2)
    assert path.stat().st_mtime_ns == written, "nothing moved"
    queue.ack(queue.get())
    wait_until(lambda: positions(tmp_path / "jobs") == {"queue@default": {0: 2}})


def test_positions_are_as_rocketmq_spells_them(open_queue, tmp_path):
    queue = open_queue()
    queue.put(b"0")
    queue.ack(queue.get())
    queue.close()
    text = (tmp_path / "jobs/config/consumerOffset.json").read_text()
    assert '"queue@default":{0:1\n' in text


def test_positions_of_others_are_kept(open_queue, tmp_path):
    config = tmp_path / "jobs/config"
    config.mkdir(parents=True)
    (config / "consumerOffset.json").write_text('{"offsetTable":{"orders@audit":{0:12,3:9},"queue@default":{0:2}}}')
    queue = open_queue(topic="other")
    queue.put(b"0")
    queue.ack(queue.get())
    queue.close()
    assert positions(tmp_path / "jobs") == {
        "orders@audit": {0: 12, 3: 9},
        "queue@default": {0: 2},
        "other@default": {0: 1},
    }


def test_a_position_behind_the_end(open_queue, tmp_path, caplog):
    """A table that tells of messages that are not there: none is left out for it."""
    config = tmp_path / "jobs/config"
    config.mkdir(parents=True)
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": {"queue@default": {"0": 12}}}))
    with caplog.at_level(logging.WARNING, "rocketc.queue"):
        queue = open_queue()
    assert "queue@default is at 12, but the queue ends at 0" in caplog.text
    queue.put(b"0")
    assert take_all(queue) == [0]


def test_a_damaged_table_costs_no_message(open_queue, tmp_path):
    queue = open_queue()
    queue.put_many([b"0", b"1"])
    assert take_all(queue) == [0, 1]
    queue.close()
    (tmp_path / "jobs/config/consumerOffset.json").write_text("{")
    assert take_all(open_queue()) == [0, 1]


def test_a_table_that_cannot_be_written(open_queue, tmp_path, caplog):
    queue = open_queue(position_interval=0.02)
    (tmp_path / "jobs/config").mkdir(exist_ok=True)
    folder = tmp_path / "jobs/config/consumerOffset.json"
    folder.mkdir()
    (folder / "file").touch()
    queue.put(b"0")
    queue.ack(queue.get())
    wait_until(lambda: "are not written yet" in caplog.text)
    with pytest.raises(OSError):
        queue.flush()
    (folder / "file").unlink()
    folder.rmdir()
    wait_until(folder.is_file)
    assert positions(tmp_path / "jobs") == {"queue@default": {0: 1}}


# ---------------------------------------------------------------- deleting
def log_files(path):
    return sorted(int(name) // 65536 for name in os.listdir(path / "jobs/commitlog"))


@pytest.fixture
def ten_files(open_queue):
    queue = open_queue(mapped_file_size_commit_log=65536, prepare="allocate")
    while queue.store.max_phy_offset < 10 * 65536:
        queue.put(bytes(1000))
    return queue


def test_files_that_all_have_acked_go(ten_files, open_queue, tmp_path):
    queue = ten_files
    count = queue.qsize()
    queue.flush()
    assert log_files(tmp_path)[0] == 0
    items = queue.get_many(count)
    assert len(items) == count
    queue.ack(*items[1 : count // 2])
    queue.flush()
    assert log_files(tmp_path)[0] == 0, "the first is not acked"
    queue.ack(items[0])
    queue.flush()
    first = items[count // 2].message.phy_offset // 65536
    assert first == 5
    assert log_files(tmp_path)[0] == first
    queue.close()
    queue = open_queue(mapped_file_size_commit_log=65536)
    assert queue.qsize() == count - count // 2
    assert queue.get().message.phy_offset == items[count // 2].message.phy_offset


def test_files_that_another_group_needs_stay(ten_files, tmp_path):
    queue = ten_files
    audit = queue.consumer("audit")
    for _ in queue.items(timeout=0):
        pass
    queue.flush()
    assert log_files(tmp_path)[0] == 0
    for _ in audit.items(timeout=0):
        pass
    queue.flush()
    assert log_files(tmp_path)[0] == 10


def test_dead_letters_stay(open_queue, tmp_path):
    queue = open_queue(mapped_file_size_commit_log=65536, prepare="allocate", max_attempts=1)
    queue.put(b"dead")
    queue.nack(queue.get())
    queue.store.put("other", b"nobody takes it")
    for _ in range(300):
        queue.put(bytes(1000))
    for _ in queue.items(timeout=0):
        pass
    queue.flush()
    assert log_files(tmp_path)[0] == 0
    assert take_all_bytes(queue.dead_letters()) == [b"dead"]
    queue.flush()
    assert log_files(tmp_path)[0] == 0, "the other topic"
    assert take_all_bytes(queue.consumer("default", "other")) == [b"nobody takes it"]
    queue.flush()
    assert log_files(tmp_path)[0] > 0


def take_all_bytes(consumer):
    return [bytes(item) for item in consumer.items(timeout=0)]


def test_acked_files_can_be_kept(open_queue, tmp_path):
    queue = open_queue(mapped_file_size_commit_log=65536, prepare="allocate", delete_acked=False)
    for _ in range(300):
        queue.put(bytes(1000))
    for _ in queue.items(timeout=0):
        pass
    queue.flush()
    assert log_files(tmp_path)[0] == 0


# ---------------------------------------------------------------- damage
def test_a_damaged_message_is_told_once(open_queue, tmp_path):
    """It can't be handed out; the others can."""
    queue = open_queue()
    puts = [queue.put(b"%d" % n) for n in range(5)]
    with open(tmp_path / "jobs/commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(puts[2].phy_offset + 88)  # the body
        file.write(b"X")
    assert numbers(queue.get_many(2)) == [0, 1]
    with pytest.raises(rocketc.CorruptRecordError):
        queue.get()
    assert numbers(queue.get_many(2)) == [3, 4]
    with pytest.raises(python_queue.Empty):
        queue.get_nowait()


def test_damage_takes_nothing_with_it(open_queue, tmp_path):
    """What was taken before the damage was met comes again."""
    queue = open_queue()
    puts = [queue.put(b"%d" % n) for n in range(5)]
    with open(tmp_path / "jobs/commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(puts[2].phy_offset + 88)
        file.write(b"X")
    with pytest.raises(rocketc.CorruptRecordError):
        queue.get_many(4)
    items = queue.get_many(4)
    assert sorted(numbers(items)) == [0, 1, 3, 4]
    queue.ack(*items)
    assert (queue.position, queue.qsize()) == (5, 0)


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


def test_closing_wakes_who_waits(open_queue):
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
        with queue._lock:  # as another thread may have it
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
    """Each message is taken once, by one of many; each taker sees the messages of a maker in order."""
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


def test_threads_give_back(open_queue):
    """Some nack, some let the time run out: all is acked in the end, and nothing is left."""
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
