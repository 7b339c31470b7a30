"""Next queue offsets, as RocketMQ's QueueOffsetOperator."""

import threading

import pytest

from rocketc.log._queue_offsets import QueueOffsets


def test_a_new_queue_begins_at_zero():
    assert QueueOffsets().next_offset("t", 0) == 0
    assert QueueOffsets().items() == []


def test_set_at_least():
    offsets = QueueOffsets()
    for given, kept in [(5, 5), (3, 5), (5, 5), (1 << 62, 1 << 62), (0, 1 << 62), (-1, 1 << 62)]:
        offsets.set_at_least("t", 0, given)
        assert offsets.next_offset("t", 0) == kept


@pytest.mark.parametrize("stripes", [1, 2, 32, 1000])
def test_many_queues(stripes):
    """Topics with a common prefix, lengths around a word, all kinds of ids: each queue has its own offset."""
    topics = [f"{'t' * n}{k}" for n in range(20) for k in range(10)] + ["é", "%RETRY%g", "a-1", "a"]
    ids = [0, 1, -1, 2**31 - 1, -(2**31)]
    expected = {(topic, queue_id): n for n, (topic, queue_id) in enumerate((t, i) for t in topics for i in ids)}
    offsets = QueueOffsets(stripes)
    for (topic, queue_id), n in expected.items():
        offsets.set_at_least(topic, queue_id, n)
    assert dict(offsets.items()) == expected
    assert len(offsets.items()) == len(expected)


@pytest.mark.parametrize("stripes", [0, -1])
def test_stripes(stripes):
    with pytest.raises(ValueError, match="at least 1"):
        QueueOffsets(stripes)


def test_topic_and_queue_id_are_not_joined():
    """RocketMQ's key is the string `topic-queueId`; rocketc keeps the two values separate."""
    offsets = QueueOffsets()
    offsets.set_at_least("a-1", 2, 5)
    offsets.set_at_least("a", 1, 7)
    assert offsets.next_offset("a-1", 2) == 5
    assert offsets.next_offset("a", 12) == 0


@pytest.mark.parametrize("stripes", [1, 32])
def test_threads_take_each_offset_once(open_store, stripes):
    """Four threads on three queues: the offsets of a queue grow with its physical offsets, and none is used twice."""
    store = open_store(mapped_file_size_commit_log=1 << 20, topic_queue_lock_num=stripes)
    found = [[] for _ in range(4)]

    def run(mine):
        for n in range(300):
            r = store.put("t", b"x", queue_id=n % 3)
            mine.append((n % 3, r.queue_offset, r.phy_offset))

    threads = [threading.Thread(target=run, args=(mine,)) for mine in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for queue_id in range(3):
        mine = sorted((offset, phy) for part in found for queue, offset, phy in part if queue == queue_id)
        assert [offset for offset, _ in mine] == list(range(400))
        assert [phy for _, phy in mine] == sorted(phy for _, phy in mine)
