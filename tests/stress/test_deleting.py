"""Topics are deleted while threads and another process put to them and read them."""

import json
import shutil
import subprocess
import sys
import threading
import time

import pytest

pytestmark = pytest.mark.promise(7)

SIZES = {
    "mapped_file_size_commit_log": 1 << 20,
    "mapped_file_size_consume_queue": 2000,
    "enable_lmq": True,
    "enable_multi_dispatch": True,
}
ROUNDS = [10, pytest.param(30, marks=pytest.mark.long)]
LIGHT = "%LMQ%light"


class Putter(threading.Thread):
    """Puts to one topic until it is stopped; keeps the (queue offset, physical offset) of acknowledged messages."""

    def __init__(self, store, topic, way, enough):
        super().__init__()
        self.store, self.topic, self.way, self.enough = store, topic, way, enough
        self.acknowledged = []
        self.error = None

    def run(self):
        try:
            while not self.enough.is_set():
                self.acknowledged.append(self.step())
        except BaseException as error:
            self.error = error

    def step(self):
        if self.way == "many":
            put = self.store.put_many(self.topic, [b"x" * 50] * 700)
            return put.queue_offset, put.phy_offset, put.count
        properties = {"INNER_MULTI_DISPATCH": LIGHT} if self.way == "light" else None
        put = self.store.put(self.topic, b"x", properties=properties)
        return put.queue_offset, put.phy_offset, 1


def read_all(store, topic):
    found, offset = [], 0
    while got := store.get(topic, offset=offset, max_count=1000):
        found += zip(got.queue_offsets, got.phy_offsets, strict=True)
        offset = got.next_offset
    return found


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("flush", ["async", "sync"])
def test_acknowledged_messages_since_the_last_deletion_are_there(memory_path, open_store, flush, rounds):
    store = open_store(memory_path, flush=flush, **SIZES)
    enough, wrong = threading.Event(), []
    ways = {"goes": "one", "goes many": "many", "stays": "one", "dispatches": "light"}
    putters = [Putter(store, topic, way, enough) for topic, way in [*ways.items(), ("goes", "one")]]

    def read(topic):
        offset = 0
        while not enough.is_set():
            got = store.get(topic, offset=offset)
            wrong.extend(m for m in got if m.topic != topic)
            offset = got.next_offset if got.status.name != "OFFSET_OVERFLOW_BADLY" else 0

    readers = [threading.Thread(target=read, args=(topic,)) for topic in ("goes", "stays")]
    for thread in [*putters, *readers]:
        thread.start()
    deleted, latest = 0, time.monotonic() + 60
    while deleted < 3 * rounds and time.monotonic() < latest:
        deleted += store.delete_topics(["goes", "goes many", LIGHT])
    time.sleep(0.1)
    enough.set()
    for thread in [*putters, *readers]:
        thread.join()
    assert [putter.error for putter in putters] == [None] * len(putters)
    assert deleted >= 3 * rounds and wrong == []
    whole = assert_whole(store, putters)
    assert all(whole.values())
    store.close()
    shutil.rmtree(memory_path / "consumequeue")  # the queues must follow from the log alone
    store = open_store(memory_path, **SIZES)
    assert assert_whole(store, putters) == whole
    store.delete_topics("goes")
    store.put("goes", b"last")
    store.close()
    store = open_store(memory_path, **SIZES)
    assert [offset for offset, _ in read_all(store, "goes")] == [0]
    assert_whole(store, [putter for putter in putters if putter.topic != "goes"])


def assert_whole(store, putters):
    """Assert that each queue begins at 0, has all acknowledged messages after its first one, and does not have gaps.

    Returns the (queue offset, physical offset) pairs of each queue.
    """
    whole = {}
    store.flush()
    assert store.wait_dispatched(30)
    for topic in {putter.topic for putter in putters}:
        there = whole[topic] = read_all(store, topic)
        assert [offset for offset, _ in there] == list(range(len(there))), topic
        begin = there[0][1] if there else 1 << 62
        known = dict(there)
        for putter in putters:
            for offset, phy_offset, count in putter.acknowledged if putter.topic == topic else ():
                if phy_offset >= begin:
                    assert known[offset] == phy_offset and known[offset + count - 1], topic
        assert topic != "stays" or len(there) == sum(len(p.acknowledged) for p in putters if p.topic == topic)
    light = whole[LIGHT] = read_all(store, LIGHT)
    assert [offset for offset, _ in light] == list(range(len(light)))
    return whole


# Reads from the first message on, repeatedly, until stdin has a line; prints contradictions.
READER = """
import json, select, sys, time, rocketc
wrong, rounds = [], 0
with rocketc.open(sys.argv[1], read_only=True, **json.loads(sys.argv[2])) as reader:
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        rounds += 1
        got = reader.get("goes", max_count=100)
        offsets = [m.queue_offset for m in got]
        stamps = {m.body.decode() for m in got}
        if offsets != list(range(len(offsets))) or len(stamps) > 1:
            wrong.append((offsets, sorted(stamps)))
    time.sleep(0.1)
    last = [m.body.decode() for m in reader.get("goes", max_count=100)]
print(json.dumps((rounds, wrong[:3], last)))
"""


def test_a_reader_in_another_process_sees_one_life_of_a_topic_at_a_time(memory_path, open_store):
    store = open_store(memory_path, **SIZES)
    store.put("goes", b"0")
    store.wait_dispatched(10)
    command = [sys.executable, "-c", READER, memory_path, json.dumps(SIZES)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "ready\n"
        for n in range(1, 200):
            store.delete_topics("goes")
            store.put_many("goes", [b"%d" % n] * 50)
            assert store.wait_dispatched(10)
        rounds, wrong, last = json.loads(other.communicate(timeout=60)[0])
    assert rounds > 10 and wrong == []
    assert last == ["199"] * 50
