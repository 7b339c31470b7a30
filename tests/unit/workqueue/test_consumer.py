"""consumer: which messages rocketc.Queue returns, takes back, and removes as dead letters."""

import errno
import gc
import queue as python_queue
import threading
import time

import pytest
from support.queue_checks import numbers, positions, take_all, write_at

import rocketc
from rocketc import Queue


# ---------------------------------------------------------------- acks
def test_unacked_messages_are_returned_again_after_a_restart(open_queue, tmp_path):
    queue = open_queue()
    queue.put_many([b"%d" % n for n in range(5)])
    items = queue.get_many(4)
    assert numbers(items) == [0, 1, 2, 3]
    queue.ack(items[0], items[1], items[3])
    assert (queue.position, queue.qsize()) == (2, 1)
    queue.close()
    assert positions(tmp_path / "jobs") == {"queue@default": {0: 2}}
    queue = open_queue()
    assert take_all(queue) == [2, 3, 4], "3 is returned twice: the position is that of the first unacked message"


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


def test_a_consumer_acks_only_its_own_items(open_queue):
    queue = open_queue()
    queue.put(b"0")
    item = queue.get()
    for wrong in (b"0", None, "0"):
        with pytest.raises(ValueError, match="was not taken from"):
            queue.ack(wrong)
    with pytest.raises(ValueError, match="was not taken from"):
        queue.consumer("audit").ack(item)


def test_a_nacked_message_is_returned_again_first(open_queue):
    queue = open_queue()
    queue.put_many([b"0", b"1", b"2"])
    queue.get()
    item = queue.get()
    queue.nack(item)
    again = queue.get()
    assert (again, again.attempts) == (b"1", 2)
    assert queue.qsize() == 1
    assert queue.get() == b"2"


def test_a_nacked_message_is_returned_again_after_a_delay(open_queue):
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


def test_a_waiting_thread_gets_a_message_that_another_nacks(open_queue):
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


def test_an_unacked_message_is_returned_again_after_the_timeout(open_queue):
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
    assert queue.position == 2, "an ack after the timeout counts"
    with pytest.raises(python_queue.Empty):
        queue.get(timeout=0.3)


def test_a_message_is_returned_again_after_a_temporary_read_error(open_queue, monkeypatch):
    queue = open_queue()
    queue.put(b"0")
    queue.nack(queue.get())
    for failure in (OSError(errno.EMFILE, "Too many open files"), MemoryError(), KeyboardInterrupt()):

        def fail(offset, failure=failure):
            raise failure

        with monkeypatch.context() as patch:
            patch.setattr(queue, "_read", fail)
            with pytest.raises(type(failure)):
                queue.get(timeout=1)
        assert queue.qsize() == 1
    item = queue.get(timeout=5)
    assert (item, item.attempts) == (b"0", 2)
    queue.ack(item)
    assert queue.position == 1


def test_an_ack_of_a_message_that_waits_for_its_return(open_queue):
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
def test_a_loop_acks_each_completed_message(open_queue):
    queue = open_queue()
    queue.put_many([b"%d" % n for n in range(5)])
    for item in queue:
        assert queue.position == int(item)
        if item == b"4":
            break
    gc.collect()
    assert queue.position == 4
    assert (queue.get(), queue.qsize()) == (b"4", 0)


def test_a_loop_that_fails_nacks_its_message(open_queue):
    queue = open_queue()
    queue.put_many([b"0", b"1"])
    loop = queue.items()
    assert next(loop) == b"0"
    with pytest.raises(KeyError):
        loop.throw(KeyError())
    assert queue.get().attempts == 2


def test_a_loop_ends_when_no_message_arrives(open_queue):
    queue = open_queue()
    queue.put(b"0")
    before = time.monotonic()
    assert numbers(queue.items(timeout=0.1)) == [0]
    assert 0.1 <= time.monotonic() - before < 10
    assert queue.position == 1


# ---------------------------------------------------------------- groups
def test_each_group_gets_all_messages(open_queue, tmp_path):
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


def test_ambiguous_names_are_refused(open_queue, tmp_path):
    """ "jobs@eu@default" in the table of positions is topic jobs, group eu@default: jobs would seem to be consumed."""
    for names in ({"topic": "jobs@eu"}, {"group": "eu@default"}):
        with pytest.raises(rocketc.IllegalMessageError, match="'@' is not allowed; consumerOffset"):
            open_queue(**names)
    assert not (tmp_path / "jobs").exists()
    queue = open_queue()
    for names in (("default", "jobs@eu"), ("eu@default",)):
        with pytest.raises(rocketc.IllegalMessageError, match="'@' is not allowed; consumerOffset"):
            queue.consumer(*names)


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


def test_a_dead_letter_of_a_consumer_that_hangs(open_queue):
    queue = open_queue(max_attempts=1, visibility_timeout=0.1)
    queue.put(b"0")
    queue.get()
    with pytest.raises(python_queue.Empty):
        queue.get(timeout=0.5)
    assert queue.dead_letters().get(timeout=5) == b"0"


def test_wrong_number_of_attempts(tmp_path):
    with pytest.raises(ValueError, match="max_attempts is 0; allowed are 1 to"):
        Queue(tmp_path / "jobs", max_attempts=0)
    assert not (tmp_path / "jobs").exists()


# ---------------------------------------------------------------- damage
def test_a_damaged_message_is_reported_once(open_queue, tmp_path):
    """It cannot be returned; the other messages can."""
    queue = open_queue()
    puts = [queue.put(b"%d" % n) for n in range(5)]
    write_at(tmp_path / "jobs", puts[2].phy_offset + 88, b"X")  # one byte of the body
    assert numbers(queue.get_many(2)) == [0, 1]
    with pytest.raises(rocketc.CorruptRecordError):
        queue.get()
    assert numbers(queue.get_many(2)) == [3, 4]
    with pytest.raises(python_queue.Empty):
        queue.get_nowait()


def test_damage_does_not_lose_other_messages(open_queue, tmp_path):
    """Messages taken before the damage was found are returned again."""
    queue = open_queue()
    puts = [queue.put(b"%d" % n) for n in range(5)]
    write_at(tmp_path / "jobs", puts[2].phy_offset + 88, b"X")  # one byte of the body
    with pytest.raises(rocketc.CorruptRecordError):
        queue.get_many(4)
    items = queue.get_many(4)
    assert sorted(numbers(items)) == [0, 1, 3, 4]
    queue.ack(*items)
    assert (queue.position, queue.qsize()) == (5, 0)


def test_damage_of_a_nacked_message_is_reported_once(open_queue, tmp_path):
    queue = open_queue()
    puts = [queue.put(b"%d" % n) for n in range(3)]
    queue.nack(*queue.get_many(2))
    write_at(tmp_path / "jobs", puts[0].phy_offset + 88, b"X")
    with pytest.raises(rocketc.CorruptRecordError):
        queue.get(timeout=1)
    items = queue.get_many(3, timeout=1)
    assert numbers(items) == [1, 2]
    queue.ack(*items)
    assert (queue.position, queue.qsize()) == (3, 0)


def test_waiting_after_the_end_uses_little_cpu(open_queue, tmp_path):
    """The table has the offset of the last message, which is no longer in the queue."""
    queue = open_queue()
    puts = [queue.put(b"%d" % n) for n in range(5)]
    queue.ack(*queue.get_many(5))
    queue.store.put("other", b"")
    queue.close()
    write_at(tmp_path / "jobs", puts[4].phy_offset + 4, b"XXXX")  # the magic number
    queue = open_queue()
    assert (queue.position, queue.store.max_offset("queue")) == (5, 4)
    used = time.process_time()
    with pytest.raises(python_queue.Empty):
        queue.get(timeout=1)
    assert time.process_time() - used < 0.3
    with pytest.raises(python_queue.Empty):
        queue.get_nowait()
    got = []
    taker = threading.Thread(target=lambda: got.append(queue.get(timeout=10)))
    taker.start()
    time.sleep(0.05)
    assert queue.put(b"new").queue_offset == 5
    taker.join()
    assert got == [b"new"]
