"""positions: how far the groups of a rocketc.Queue are, and which files none of them needs any more."""

import json
import logging
import os
import threading
import time

import pytest
from queues import positions, take_all
from threads import wait_until


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


def test_files_with_messages_that_are_in_no_queue_yet_stay(open_queue, tmp_path):
    """A flush right behind the first puts, whose queue is not made yet: that of many others is, of acked messages."""
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


@pytest.mark.timeout(30)
def test_stopping_is_heard_at_any_moment(open_queue, monkeypatch):
    """Also between the end of a pause and the look whether anything has moved: closing waited for ever once."""
    queue = open_queue(position_interval=0)
    inner = queue._positions
    stopper = threading.Thread(target=queue.close, daemon=True)
    clear = inner._wake.clear

    def clear_late():
        monkeypatch.setattr(inner._wake, "clear", clear)
        stopper.start()
        wait_until(inner._stop.is_set)
        time.sleep(0.05)
        clear()

    monkeypatch.setattr(inner._wake, "clear", clear_late)
    queue.put(b"0")
    queue.ack(queue.get())
    wait_until(lambda: stopper.ident)
    stopper.join(5)
    heard = not stopper.is_alive()
    inner._wake.set()
    assert heard
