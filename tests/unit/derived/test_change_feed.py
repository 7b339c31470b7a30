"""The change feed for callers in C (tests/native/feed.pyx): which changes it reports, when it wakes, how it ends."""

import os
import threading
import time

import pytest
from crash.small import SMALL
from support import extension
from support.threads import wait_until

from rocketc.store.futures import descriptors

SOON = 30.0
ALL = 256  # FEED_PORTION


@pytest.fixture(scope="module")
def feed():
    return extension.load("feed")


@pytest.fixture
def store(open_store):
    store = open_store(**SMALL)
    store._hook("feed_entries", 64)
    return store


def put(store, queue_id=0, topic="T", **how):
    store.put(topic, b"x", queue_id=queue_id, **how)
    assert store.wait_dispatched(SOON)


def java_hash(text):
    h = 0
    for c in text.encode():
        h = (31 * h + c) & 0xFFFFFFFF
    return h - (1 << 32) if h >> 31 else h


# ---------------------------------------------------------------- reported changes


def test_a_queue_is_reported_once_with_its_end_and_tags(feed, store):
    put(store, 0)
    one = feed.Follower(store.feed)
    assert one.fetch() == (feed.CODES["ok"], []), "earlier messages are not reported"
    put(store, 0, tags="A")
    put(store, 1)
    put(store, 0, tags="B")
    put(store, 0, tags="A")
    assert one.fetch() == (0, [("T", 0, 4, [65, 66]), ("T", 1, 1, [0])])
    assert one.fetch() == (0, [])
    put(store, 1)
    assert one.fetch() == (0, [("T", 1, 2, [0])])


@pytest.mark.parametrize("count", [16, 17])
def test_many_tags(feed, store, count):
    one = feed.Follower(store.feed)
    for n in range(count):
        store.put("T", b"x", tags=f"tag{n}")
    put(store, tags="tag0")
    codes = [java_hash(f"tag{n}") for n in range(count)]
    assert one.fetch() == (0, [("T", 0, count + 1, codes if count == 16 else None)])


def test_each_subscriber_gets_the_changes(feed, store):
    several = [feed.Follower(store.feed) for _ in range(5)]
    put(store, 3)
    assert [one.fetch() for one in several] == [(0, [("T", 3, 1, [0])])] * 5


def test_portions(feed, store):
    """Queues that do not fit into the caller's array are returned by the next calls."""
    one = feed.Follower(store.feed)
    for n in [0, 1, 2, 0, 3, 1, 4]:
        put(store, n)
    assert one.fetch(2) == (feed.CODES["more"], [("T", 0, 1, [0]), ("T", 1, 1, [0])])
    assert one.fetch(2) == (feed.CODES["more"], [("T", 2, 1, [0]), ("T", 0, 2, [0])])
    assert one.fetch(3) == (feed.CODES["ok"], [("T", 3, 1, [0]), ("T", 1, 2, [0]), ("T", 4, 1, [0])])


def fetch_all(feed, one, room=ALL):
    found, rc = [], feed.CODES["more"]
    while rc == feed.CODES["more"]:
        rc, some = one.fetch(room)
        assert len(some) <= room
        found += some
    assert rc == feed.CODES["ok"]
    return found


@pytest.mark.parametrize("behind", [63, 64, 1000])
def test_a_subscriber_too_far_behind_gets_all_queues(feed, store, behind):
    """The ring of this store has 64 slots; one of them is always reserved for the next write."""
    for n in range(3):
        put(store, n)
    put(store, topic="gone")
    store.delete_topics("gone")
    one = feed.Follower(store.feed)
    store.put_many("T", [b"x"] * behind)
    assert store.wait_dispatched(SOON)
    if behind < 64:
        assert (fetch_all(feed, one), one.missed) == ([("T", 0, behind + 1, [0])], 0)
    else:
        told = [("T", 0, behind + 1, None), ("T", 1, 1, None), ("T", 2, 1, None)]
        assert (fetch_all(feed, one, room=2), one.missed) == (told, 1)
    put(store, 1)
    assert fetch_all(feed, one) == [("T", 1, 2, [0])]


def test_changes_while_all_queues_are_reported(feed, store):
    one = feed.Follower(store.feed)
    for n in range(100):
        put(store, n % 10)
    rc, found = one.fetch(4)
    assert (rc, [q for _, q, _, _ in found]) == (feed.CODES["more"], [0, 1, 2, 3])
    put(store, 0, tags="A")
    found = fetch_all(feed, one)
    assert found == [("T", n, 10, None) for n in range(4, 10)] + [("T", 0, 11, [65])]


def test_a_deleted_topic_and_a_new_one_of_the_same_name(feed, store):
    one = feed.Follower(store.feed)
    for _ in range(3):
        put(store, topic="D")
    put(store)
    store.delete_topics("D")
    assert one.fetch() == (0, [("T", 0, 1, [0])])
    put(store, topic="D")
    assert one.fetch() == (0, [("D", 0, 1, [0])])


def test_an_interest_in_some_queues(feed, store):
    """Another queue may be reported only if its hash has the same six bits."""
    one = feed.Follower(store.feed, ("T", 7))
    for n in range(20):
        put(store, n)
    told = one.fetch()[1]
    assert ("T", 7, 1, [0]) in told
    assert len(told) < 6
    assert one.calls == 0


# ---------------------------------------------------------------- wake-ups


def test_one_wake_up_each_time_a_subscriber_is_armed(feed, store):
    read, write = descriptors()
    one, sleeper = feed.Follower(store.feed, fd=write), feed.Follower(store.feed)
    put(store)
    assert (one.calls, sleeper.calls) == (0, 0), "the subscriber was not armed"
    for n in range(1, 4):
        assert one.arm() == one.arm() == feed.CODES["ok"]
        for _ in range(3):
            put(store)
        wait_until(lambda n=n: one.calls == n)
        time.sleep(0.01)
        assert (one.calls, sleeper.calls) == (n, 0)
        assert os.read(read, 8)
        with pytest.raises(BlockingIOError):
            os.read(read, 8)
    for fd in {read, write}:
        os.close(fd)


def test_only_interested_subscribers_are_woken(feed, store):
    wanted, other = feed.Follower(store.feed, ("T", 0)), feed.Follower(store.feed, ("T", 1))
    wanted.arm(), other.arm()
    put(store, 0)
    wait_until(lambda: wanted.calls == 1)
    assert other.calls == 0
    put(store, 1)
    wait_until(lambda: other.calls == 1)


def test_waiting(feed, store):
    one = feed.Follower(store.feed)
    assert one.wait(10_000_000) == feed.CODES["timeout"]
    threading.Timer(0.05, lambda: store.put("T", b"x")).start()
    assert one.wait(int(SOON * 1e9)) == feed.CODES["ok"]
    assert one.wait(int(SOON * 1e9)) == feed.CODES["ok"], "the change was not fetched"
    assert one.fetch() == (0, [("T", 0, 1, [0])])
    assert one.wait(0) == feed.CODES["timeout"]


def test_waiting_for_one_queue_while_another_gets_messages(feed, store):
    one = feed.Follower(store.feed, ("T", 0))
    for _ in range(3):
        put(store, 1)
        assert one.wait(1_000_000) == feed.CODES["timeout"]
    put(store, 0)
    assert one.wait(0) == feed.CODES["ok"]


def test_no_change_is_lost_between_fetch_and_wait(feed, open_store):
    """Subscribers that fetch again after arming get every message, whatever the two threads do in the meantime."""
    store = open_store(mapped_file_size_commit_log=1 << 22)
    several = [feed.Follower(store.feed, which) for which in (None, None, ("T", 0))]
    threads = [threading.Thread(target=one.run) for one in several]
    for thread in threads:
        thread.start()
    for n in range(300):
        rounds = [one.rounds for one in several]
        store.put("T", b"x")
        until = time.monotonic() + SOON
        while any(one.rounds == before for one, before in zip(several, rounds, strict=True)):
            assert time.monotonic() < until, f"a wake-up was lost after put {n}"
    for one in several:
        one.stop_run()
    for thread in threads:
        thread.join()


# ---------------------------------------------------------------- the end


def test_the_end_of_the_store(feed, open_store):
    store = open_store(**SMALL)
    armed, idle, waiting = (feed.Follower(store.feed) for _ in range(3))
    armed.arm()
    codes = []
    thread = threading.Thread(target=lambda: codes.append(waiting.run()))
    thread.start()
    time.sleep(0.02)
    store.close()
    thread.join(SOON)
    assert codes == [feed.CODES["closed"]]
    assert (armed.calls, idle.calls) == (1, 0)
    for one in (armed, idle, waiting):
        assert one.arm() == one.wait(0) == one.fetch()[0] == feed.CODES["closed"]
    with pytest.raises(ValueError, match=str(feed.CODES["closed"])):
        feed.Follower(store.feed)


def test_the_end_of_a_subscriber_while_a_thread_waits(feed, store):
    one, other = feed.Follower(store.feed), feed.Follower(store.feed)
    codes = []
    threads = [threading.Thread(target=lambda: codes.append(one.wait(int(SOON * 1e9)))) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.02)
    begun = time.monotonic()
    one.end()
    for thread in threads:
        thread.join()
    assert time.monotonic() - begun < SOON / 2
    assert codes == [feed.CODES["closed"]] * 3
    assert one.arm() == feed.CODES["closed"]
    put(store)
    assert (one.calls, other.wait(0)) == (0, feed.CODES["ok"])


def test_a_dropped_subscriber_leaves_nothing(feed, store):
    """This also works in the middle of the list of armed subscribers."""
    several = [feed.Follower(store.feed) for _ in range(6)]
    for one in several:
        one.arm()
    for n in (3, 0, -1):
        del several[n]
    del one
    assert store.feed.subscriber_count == 3
    put(store)
    wait_until(lambda: [one.calls for one in several] == [1, 1, 1])
    several.clear()
    put(store)
    assert store.feed.subscriber_count == 0
