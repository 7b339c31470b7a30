"""positions: the position of each group of a rocketc.Queue, and which files no group needs any longer."""

import gc
import json
import logging
import os
import threading
import time
import weakref
from functools import partial

import pytest
from crash import remains
from support.queue_checks import positions, take_all
from support.threads import wait_until

from rocketc import Queue
from rocketc.store import cleaning
from rocketc.store.maintenance import Maintenance
from rocketc.tables.deleted_topics import DeletedTopics
from rocketc.tables.topics import Topics


# ---------------------------------------------------------------- positions
def test_positions_are_written_from_time_to_time(open_queue, tmp_path):
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


def test_positions_have_the_format_of_rocketmq(open_queue, tmp_path):
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


def test_a_position_after_the_end(open_queue, tmp_path, caplog):
    """The table has an offset after the end of the queue: no message is skipped because of it."""
    config = tmp_path / "jobs/config"
    config.mkdir(parents=True)
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": {"queue@default": {"0": 12}}}))
    with caplog.at_level(logging.WARNING, "rocketc.queue"):
        queue = open_queue()
    assert "queue@default is at 12, but the queue ends at 0" in caplog.text
    queue.put(b"0")
    assert take_all(queue) == [0]


def test_a_position_after_the_end_of_a_recreated_queue(open_queue, tmp_path, caplog):
    """As in RocketMQ 4: if the first message still exists the group gets all messages, otherwise only new ones."""
    queue = open_queue(mapped_file_size_commit_log=65536, delete_acked=False)
    while queue.store.max_phy_offset < 3 * 65536:
        queue.put(bytes(1000))
    count = queue.qsize()
    queue.close()
    table = tmp_path / "jobs/config/consumerOffset.json"
    for cut in (False, True):
        table.parent.mkdir(exist_ok=True)
        table.write_text(json.dumps({"offsetTable": {"queue@default": {"0": count + 7}}}))
        queue = open_queue(mapped_file_size_commit_log=65536, delete_acked=False)
        assert f"queue@default is at {count + 7}, but the queue ends at {count}" in caplog.text
        assert (queue.position, queue.qsize()) == ((count, 0) if cut else (0, count))
        queue.store.clean(expired_ms=-1)
        assert queue.store.min_offset("queue") > 0
        queue.close()


def test_a_damaged_table_loses_no_message(open_queue, tmp_path):
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
    wait_until(lambda: "can't be written yet" in caplog.text)
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


def test_files_acked_by_all_groups_are_deleted(ten_files, open_queue, tmp_path):
    queue = ten_files
    count = queue.qsize()
    queue.flush()
    assert log_files(tmp_path)[0] == 0
    items = queue.get_many(count)
    assert len(items) == count
    queue.ack(*items[1 : count // 2])
    queue.flush()
    assert log_files(tmp_path)[0] == 0, "the first message is not acked"
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


def test_files_with_undispatched_messages_stay(open_queue, tmp_path):
    """A flush directly after the first puts: their queue does not exist yet; many others are acked completely."""
    others = [f"acked-{n}" for n in range(500)]
    config = tmp_path / "jobs/config"
    config.mkdir(parents=True)
    (config / "consumerOffset.json").write_text(
        json.dumps({"offsetTable": {f"{one}@audit": {"0": 1} for one in others}})
    )
    queue = open_queue(mapped_file_size_commit_log=4096, mapped_file_size_consume_queue=200)
    for topic in others:
        queue.store.put(topic, b"acked")
    first = queue.put_many([b"%d" % n + bytes(1000) for n in range(30)])
    assert first.phy_offset > 10 * 4096
    queue.flush()
    assert queue.store.min_phy_offset <= first.phy_offset < queue.store.max_phy_offset - 4096
    assert [int(bytes(item).rstrip(b"\0")) for item in queue.get_many(30, timeout=5)] == list(range(30))


def test_dead_letters_stay(open_queue, tmp_path):
    queue = open_queue(mapped_file_size_commit_log=65536, prepare="allocate", max_attempts=1)
    queue.put(b"dead")
    queue.nack(queue.get())
    queue.store.put("other", b"not taken")
    for _ in range(300):
        queue.put(bytes(1000))
    for _ in queue.items(timeout=0):
        pass
    queue.flush()
    assert log_files(tmp_path)[0] == 0
    assert take_all_bytes(queue.dead_letters()) == [b"dead"]
    queue.flush()
    assert log_files(tmp_path)[0] == 0, "files of the other topic stay"
    assert take_all_bytes(queue.consumer("default", "other")) == [b"not taken"]
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


def test_a_position_after_the_end_keeps_files(open_queue, tmp_path):
    """The position belongs to an earlier queue of the same name."""
    queue = open_queue(mapped_file_size_commit_log=65536, prepare="allocate", delete_acked=False)
    while queue.store.max_phy_offset < 3 * 65536:
        queue.put(bytes(1000))
    count = len(take_all_bytes(queue))
    queue.close()
    table = tmp_path / "jobs/config/consumerOffset.json"
    table.write_text(json.dumps({"offsetTable": {"queue@default": {"0": count}, "queue@audit": {"0": count + 7}}}))
    queue = open_queue(mapped_file_size_commit_log=65536, prepare="allocate")
    queue.put(b"0")
    assert take_all(queue) == [0]
    queue.flush()
    assert log_files(tmp_path)[0] == 0
    assert len(take_all_bytes(queue.consumer("audit"))) == count + 1
    queue.flush()
    assert log_files(tmp_path)[0] > 0


# ---------------------------------------------------------------- queues that are deleted
def delete_topic(queue):
    assert queue.store.delete_topics("queue") == 1


def delete_expired(queue):
    """Delete all messages of the queue from the log."""
    queue.store.put_many("others", [bytes(1000)] * 200)
    queue.store.wait_dispatched()
    queue.store.clean(expired_ms=-1)
    assert queue.store.clean_expired_queues() == [("queue", 0)]


deleting = pytest.mark.parametrize("delete", [delete_topic, delete_expired])


def open_with_five(open_queue):
    """Return a queue with five messages that two groups have acked."""
    queue = open_queue(mapped_file_size_commit_log=65536, prepare="allocate", delete_acked=False)
    queue.put_many([b"%d" % n for n in range(5)])
    assert take_all(queue) == take_all(queue.consumer("audit")) == list(range(5))
    queue.flush()
    return queue


@deleting
def test_a_recreated_queue_is_read_from_its_start(open_queue, tmp_path, delete):
    queue = open_with_five(open_queue)
    delete(queue)
    assert "queue@audit" not in positions(tmp_path / "jobs")
    assert queue.put(b"new").queue_offset == 0
    assert (queue.position, queue.qsize()) == (0, 1)
    item = queue.get(timeout=2)
    assert item == b"new"
    queue.ack(item)
    queue.flush()
    assert positions(tmp_path / "jobs")["queue@default"] == {0: 1}
    queue.close()
    queue = open_queue(mapped_file_size_commit_log=65536, delete_acked=False)
    assert take_all_bytes(queue) == []
    assert take_all_bytes(queue.consumer("audit")) == [b"new"]


@deleting
def test_an_unopened_group_of_a_recreated_queue_starts_again_too(open_queue, tmp_path, delete):
    open_with_five(open_queue).close()
    queue = open_queue(mapped_file_size_commit_log=65536, group="third", topic="others")
    delete(queue)
    assert positions(tmp_path / "jobs").keys() <= {"others@third"}
    queue.store.put("queue", b"new")
    assert take_all_bytes(queue.consumer("audit", "queue")) == [b"new"]
    queue.close()
    assert take_all_bytes(open_queue(mapped_file_size_commit_log=65536)) == [b"new"]


def test_a_store_without_a_queue_deletes_positions(open_queue, open_store, tmp_path):
    open_with_five(open_queue).close()
    table = tmp_path / "jobs/config/consumerOffset.json"
    table.write_text(json.dumps({"offsetTable": {"queue@a": {"0": 5}, "queue@b": {"0": 3}, "other@a": {"0": 1}}}))
    store = open_store(tmp_path / "jobs")
    store.delete_topics(["queue", "none"])
    assert positions(tmp_path / "jobs") == {"other@a": {0: 1}}


def test_files_of_a_recreated_queue_stay(open_queue, tmp_path):
    queue = open_queue(mapped_file_size_commit_log=65536, prepare="allocate")
    queue.put_many([b"%d" % n for n in range(5)])
    assert take_all(queue) == take_all(queue.consumer("audit")) == list(range(5))
    delete_topic(queue)
    first = queue.put_many([bytes(1000)] * 300)
    for _ in queue.items(timeout=0):
        pass
    queue.flush()
    assert queue.store.min_phy_offset <= first.phy_offset
    assert len(take_all_bytes(queue.consumer("audit"))) == 300


def test_positions_are_deleted_before_the_queue(open_queue, tmp_path, monkeypatch):
    """An interruption in between loses no message; acked messages may be returned again."""
    queue = open_with_five(open_queue)

    def fail(self, names):
        assert positions(tmp_path / "jobs") == {}
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("rocketc.tables.topics.Topics.delete", fail)
        with pytest.raises(KeyboardInterrupt):
            queue.store.delete_topics("queue")
    assert take_all(queue) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("step", [(Topics, "delete"), (DeletedTopics, "add"), (Maintenance, "delete_topics")])
def test_a_kill_after_a_step_of_a_deletion(open_queue, open_store, tmp_path, monkeypatch, step):
    """Messages put afterwards are returned to each group, even if they are put before a Queue is opened."""
    queue = open_with_five(open_queue)
    inner, left = getattr(*step), {}

    def kill(*found):
        done = inner(*found)
        left.update(remains.take(tmp_path / "jobs"))
        return done

    with monkeypatch.context() as patch:
        patch.setattr(*step, kill)
        queue.store.delete_topics("queue")
    queue.close()
    remains.lay(left, tmp_path / "jobs")
    store = open_store(tmp_path / "jobs")
    store.put_many("queue", [b"%d" % n for n in range(10, 18)])
    store.close()
    queue = open_queue(mapped_file_size_commit_log=65536)
    for consumer in (queue, queue.consumer("audit")):
        assert take_all(consumer)[-8:] == list(range(10, 18))


def test_positions_that_cannot_be_deleted(open_queue, tmp_path, monkeypatch):
    queue = open_with_five(open_queue)

    def fail(*found, **options):
        raise OSError("no room")

    with monkeypatch.context() as patch:
        patch.setattr("rocketc.tables.config_manager.write_table", fail)
        with pytest.raises(OSError, match="no room"):
            queue.store.delete_topics("queue")
    assert queue.store.max_offset("queue") == 5
    assert (queue.qsize(), queue.consumer("audit").qsize()) == (0, 0)
    queue.close()
    assert positions(tmp_path / "jobs") == {"queue@default": {0: 5}, "queue@audit": {0: 5}}


def test_items_of_a_deleted_queue(open_queue):
    """Such an item neither acks the message that has its offset now, nor is it returned again."""
    queue = open_queue(visibility_timeout=0.2)
    queue.put_many([b"%d" % n for n in range(6)])
    items = queue.get_many(5)
    queue.nack(items[3], items[4], delay=0.1)
    delete_topic(queue)
    queue.put_many([b"new 0", b"new 1"])
    again = queue.get_many(2)
    assert again == [b"new 0", b"new 1"]
    queue.ack(*items[:2])
    queue.nack(items[2], *items[:2])
    assert (queue.position, queue.qsize()) == (0, 0)
    queue.ack(*again)
    assert queue.position == 2
    time.sleep(0.3)
    assert take_all_bytes(queue) == []


def test_reads_while_the_queue_is_deleted(open_queue):
    """Many puts, gets, acks and dead letters during deletions: no thread blocks, and all messages are acked."""
    queue = open_queue(max_attempts=1)
    stop = threading.Event()

    def work(consumer):
        while not stop.is_set():
            for item in consumer.items(timeout=0.01):
                if item.message.queue_offset % 7 == 0:
                    consumer.nack(item)
                if stop.is_set():
                    break

    def put():
        while not stop.is_set():
            queue.put(b"0")

    threads = [threading.Thread(target=work, args=(one,)) for one in (queue, queue, queue.consumer("audit"))]
    threads.append(threading.Thread(target=put))
    for thread in threads:
        thread.start()
    for _ in range(10):
        time.sleep(0.02)
        queue.store.delete_topics(["queue", "%DLQ%default"])
        queue.flush()
    stop.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    queue.store.delete_topics("queue")
    queue.put(b"last")
    assert take_all_bytes(queue) == take_all_bytes(queue.consumer("audit")) == [b"last"]
    assert queue.dead_letters("audit").get(timeout=5) is not None


@pytest.mark.timeout(30)
@pytest.mark.parametrize("after", [0, 0.001, 0.005, 0.02])
def test_close_stops_the_thread_at_any_time(open_queue, tmp_path, after):
    """This includes the time between the end of a pause and the next check. Once, close() waited forever there."""
    for n in range(10):
        queue = open_queue(tmp_path / str(n), position_interval=after)
        queue.put(b"0")
        queue.ack(queue.get())
        time.sleep(after)
        queue.close()
        assert not queue._positions._thread.is_alive()


@pytest.mark.timeout(60)
@pytest.mark.filterwarnings("ignore:.*was never closed:ResourceWarning")
@pytest.mark.parametrize("where", ["persist", "store"])
def test_a_queue_that_is_garbage_collected_in_its_own_thread(open_queue, tmp_path, monkeypatch, where):
    """The thread is in the middle of a write with its lock, or in a call of the store that close() would wait for."""
    queue = Queue(tmp_path / "jobs", position_interval=0, mapped_file_size_commit_log=1 << 20)
    inner, collected = queue._positions, threading.Event()

    def collect(call, *arguments):
        if not collected.is_set() and threading.current_thread() is inner._thread and ready.is_set():
            collected.set()
            gc.collect()
        return call(*arguments)

    ready = threading.Event()
    if where == "persist":
        monkeypatch.setattr(inner._offsets, "persist", partial(collect, inner._offsets.persist))
    else:
        delete_before = cleaning.Cleaner.delete_before
        monkeypatch.setattr(cleaning.Cleaner, "delete_before", lambda *given: collect(delete_before, *given))
    queue.put_many([b"0", b"1"])
    queue.ack(queue.get())
    gc.disable()
    try:
        queue.me = queue
        left = weakref.ref(queue)
        del queue
        ready.set()
        inner.mark_changed()
        wait_until(lambda: left() is None)
    finally:
        gc.enable()
    until = time.monotonic() + 5
    while not inner._store.closed and time.monotonic() < until:
        time.sleep(0.01)
    assert take_all(open_queue()) == [1]
