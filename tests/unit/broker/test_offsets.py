"""Offsets of groups: committed, pulled, reset, removed."""

import contextlib
import logging
import threading

import pytest

import rocketc
from rocketc.broker.offsets import ConsumerOffsetManager
from rocketc.errors import StoreIOError
from rocketc.tables.offsets import ConsumerOffsets


@pytest.fixture
def offsets(tmp_path):
    return ConsumerOffsetManager(ConsumerOffsets(tmp_path, clock=lambda: 1_800_000_000_000))


def test_a_commit_is_stored_as_given(offsets, caplog):
    caplog.set_level(logging.INFO, "rocketc.broker")
    for offset in (5, 3, 3, -1, -7, 9):
        offsets.commit("g", "t", 0, offset)
        assert offsets.query("g", "t", 0) == offset
    assert offsets.query("g", "t", 1) == offsets.query("g", "u", 0) == offsets.query("h", "t", 0) == -1
    assert caplog.messages[0] == "t@g, queue 0: the offset goes back from 5 to 3"
    assert len(caplog.records) == 3
    assert offsets.count("g", "t") == 1


def test_consumer_offset_manager_test_clean_by_topic(offsets):
    """ConsumerOffsetManagerTest: cleanOffsetByTopic of another topic keeps the entry, of this topic removes it."""
    offsets.commit("g", "t", 0, 5)
    offsets.commit_pull("g", "t", 0, 6)
    offsets.reset("g", "t", 1, 2)
    assert offsets.clean_topic("u") == 0 and offsets.query("g", "t", 0) == 5
    assert offsets.clean_topic("t") == 1
    assert offsets.query("g", "t", 0) == offsets.pull_offset("g", "t", 0) == -1
    assert not offsets.has_reset("g", "t", 1)


def test_consumer_offset_manager_test_remove_offset_of_a_group(offsets):
    """ConsumerOffsetManagerTest: removeOffset(group) clears it."""
    for group in ("g", "h"):
        for topic in ("t", "u"):
            offsets.commit(group, topic, 0, 5)
    assert offsets.clean_group("g") == 2
    assert offsets.query("g", "t", 0) == -1 and offsets.query("h", "t", 0) == 5


def test_consumer_offset_manager_test_clear_pull_offset(offsets):
    """ConsumerOffsetManagerTest: clearPullOffset gives -1."""
    offsets.commit_pull("g", "t", 0, 516)
    offsets.commit_pull("g", "u", 0, 7)
    assert offsets.pull_offset("g", "t", 0) == 516
    offsets.clear_pull_offsets("g", "t")
    assert offsets.pull_offset("g", "t", 0) == -1 and offsets.pull_offset("g", "u", 0) == 7


def test_consumer_offset_manager_test_persist_and_load(offsets, tmp_path):
    """ConsumerOffsetManagerTest: persist + load gives an equal table."""
    offsets.commit("g", "t", 0, 5)
    offsets.commit("g", "%RETRY%g", 0, 6)
    offsets.commit_pull("g", "t", 0, 516)
    assert offsets.persist() and not offsets.persist()
    assert sorted(ConsumerOffsets(tmp_path).items()) == sorted(offsets.table.items())


def test_the_data_version_moves_at_the_first_and_every_500th_commit(offsets):
    versions = []
    for number in range(1001):
        offsets.commit("g", "t", 0, number)
        versions.append(offsets.table.version[0])
    first = versions[0]
    assert versions == [first] * 500 + [first + 1] * 500 + [first + 2]


def test_a_reset_is_queried_first_and_taken_once(offsets):
    offsets.commit("g", "t", 1, 9)
    offsets.reset("g", "t", 1, 2)
    offsets.commit("g", "t", 1, 9)  # a pull commits
    assert offsets.query("g", "t", 1) == 2
    assert offsets.take_reset("g", "t", 0) is None
    assert offsets.take_reset("g", "t", 1) == 2
    assert offsets.take_reset("g", "t", 1) is None and not offsets.has_reset("g", "t", 1)
    assert offsets.query("g", "t", 1) == 9


class CountingLock:
    def __init__(self):
        self.taken, self._lock = 0, threading.RLock()

    def __enter__(self):
        self.taken += 1
        self._lock.acquire()

    def __exit__(self, *error):
        self._lock.release()


@pytest.mark.parametrize("is_paused", [False, True])
def test_many_queues_are_reset_and_queried_with_one_lock_and_one_log_line(offsets, caplog, is_paused):
    """A tool's reset of a topic runs on the broker's loop. One lock and one line a queue took 0.5 s for 65,536."""
    caplog.set_level(logging.INFO, "rocketc.broker")
    queue_ids = range(2000)
    for queue_id in queue_ids:
        offsets.commit("g", "t", queue_id, 9)
    before = offsets.table.version
    with offsets.paused() if is_paused else contextlib.nullcontext():
        offsets._lock, offsets.table._lock = locks = CountingLock(), CountingLock()
        offsets.reset_all("g", "t", dict.fromkeys(queue_ids, 4))
        assert offsets.query_all("g", "t", range(2001)) == {**dict.fromkeys(queue_ids, 4), 2000: -1}
        assert [lock.taken <= 3 for lock in locks] == [True, True]
    assert caplog.messages == ["t@g: the offsets of 2000 queues go back, the first is 0"]
    assert offsets.table.queues("t", "g") == dict.fromkeys(queue_ids, 4)
    assert is_paused or offsets.table.version[0] == before[0] + 4  # as 2,000 commits
    assert all(offsets.take_reset("g", "t", queue_id) == 4 for queue_id in queue_ids)


@pytest.mark.parametrize(("queue_id", "offset"), [(1 << 31, 0), (-(1 << 31) - 1, 0), (1, 1 << 63), (1, -(1 << 63) - 1)])
def test_a_reset_of_many_queues_is_done_whole_or_not_at_all(offsets, queue_id, offset):
    with pytest.raises(ValueError, match=r"queue_id|offset"):
        offsets.reset_all("g", "t", {0: 5, queue_id: offset})
    assert offsets.query("g", "t", 0) == -1 and not offsets.resets


def test_a_reset_counts_as_committed(offsets):
    offsets.reset("g", "t", 1, 2)
    offsets.take_reset("g", "t", 1)
    assert offsets.query("g", "t", 1) == 2


def test_commits_while_offsets_are_paused_count_afterwards(offsets):
    offsets.commit("g", "t", 0, 1)
    offsets.commit("g", "u", 0, 1)
    with offsets.paused() as paused:
        offsets.commit("g", "t", 0, 2)
        offsets.commit("g", "u", 0, 2)
        offsets.commit("g", "u", 1, 2)
        offsets.commit("g", "v", 1, 2)
        assert offsets.query("g", "t", 0) == 2 and offsets.table.get("t", "g", 0) == 1
        paused.drop({"t", ("u", 1)})
        with offsets.paused():
            pass
        assert offsets.table.get("u", "g", 0) == 1
    assert list(offsets.table.items()) == [("u", "g", 0, 2), ("v", "g", 1, 2)]
    offsets.commit("g", "t", 0, 3)
    assert offsets.query("g", "t", 0) == 3


def test_commits_while_offsets_are_paused_are_seen_at_once(offsets):
    """The first commit of a group was missing in lists while topics were deleted."""
    offsets.commit("old", "t", 0, 1)
    with offsets.paused() as paused:
        offsets.commit("new", "t", 1, 5)
        offsets.commit("old", "u", 0, 2)
        assert offsets.topics_of("new") == ["t"] and offsets.topics_of("old") == ["t", "u"]
        assert offsets.groups_of("t") == ["old", "new"] and offsets.groups_of("u") == ["old"]
        assert offsets.queues("t", "new") == {1: 5} and offsets.count("new", "t") == 1
        assert sorted(offsets.items()) == [("t", "new", 1, 5), ("t", "old", 0, 1), ("u", "old", 0, 2)]
        paused.drop({"u"})
        assert offsets.topics_of("old") == ["t"] and offsets.queues("u", "old") == {}
        assert sorted(offsets.items()) == [("t", "new", 1, 5), ("t", "old", 0, 1)]
    assert sorted(offsets.items()) == sorted(offsets.table.items()) == [("t", "new", 1, 5), ("t", "old", 0, 1)]


@pytest.mark.parametrize("is_paused", [False, True])
def test_offsets_are_replaced_as_a_whole(offsets, is_paused):
    for queue_id, offset in ((0, 1), (3, 9)):
        offsets.commit("g", "t", queue_id, offset)
    offsets.commit("g", "u", 3, 9)
    with offsets.paused() if is_paused else contextlib.nullcontext():
        offsets.replace("g", "t", {0: 4, 1: 7})
        assert offsets.queues("t", "g") == {0: 4, 1: 7} and offsets.query("g", "t", 3) == -1
        assert offsets.queues("u", "g") == {3: 9}
    assert sorted(offsets.table.items()) == [("t", "g", 0, 4), ("t", "g", 1, 7), ("u", "g", 3, 9)]
    assert offsets.query("g", "t", 3) == -1


def test_drop_forgets_pulls_and_resets(offsets):
    for queue_id in (0, 1):
        offsets.commit_pull("g", "t", queue_id, 5)
        offsets.reset("g", "t", queue_id, 5)
    offsets.drop({("t", 1)})
    assert [offsets.pull_offset("g", "t", n) for n in (0, 1)] == [5, -1]
    assert [offsets.has_reset("g", "t", n) for n in (0, 1)] == [True, False]


def test_a_drop_that_fails_keeps_the_offsets(offsets, monkeypatch):
    offsets.commit("g", "t", 0, 5)
    offsets.persist()

    def fail():
        raise StoreIOError(5, "broken")

    monkeypatch.setattr(offsets.table, "persist", fail)
    with pytest.raises(StoreIOError), offsets.paused():
        offsets.commit("g", "t", 0, 6)
        offsets.drop({"t"})
    assert offsets.query("g", "t", 0) == 6


def test_the_store_drops_the_offsets_of_deleted_topics(tmp_path):
    with rocketc.open(tmp_path, mapped_file_size_commit_log=1 << 20) as store:
        offsets = ConsumerOffsetManager(ConsumerOffsets(tmp_path))
        store.attach_offsets(offsets)
        for topic in ("orders", "audit"):
            store.put(topic, b"hello")
            offsets.commit("g", topic, 0, 1)
        store.delete_topics("orders")
        assert offsets.query("g", "orders", 0) == -1 and offsets.query("g", "audit", 0) == 1
        assert list(ConsumerOffsets(tmp_path).items()) == [("audit", "g", 0, 1)]  # durable


def test_commits_of_other_threads_while_paused(offsets):
    with offsets.paused():
        threads = [threading.Thread(target=offsets.commit, args=("g", "t", n, n)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert list(offsets.table.items()) == []
    assert sorted(offsets.table.items()) == [("t", "g", n, n) for n in range(8)]
