"""The process queue: RocketMQ's own numbers, each method, and that no commit passes a message that is not finished."""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rocketc.client.process_queue import LOCK_LIVE_MS, NOTHING, PULL_IDLE_MS, ProcessQueue


@dataclass(frozen=True)
class Pulled:
    queue_offset: int
    body: bytes = bytes(123)


def pulled(*offsets):
    return [Pulled(offset) for offset in offsets]


def queue_of(*offsets):
    queue = ProcessQueue()
    queue.put(pulled(*offsets), now=0)
    return queue


def offsets(messages):
    return [message.queue_offset for message in messages]


# ------------------------------------------------------------------------------------------ RocketMQ's own tests


def test_count_and_size():
    queue = queue_of(*range(100))
    assert (len(queue), queue.size) == (100, 12_300)
    queue.take(10, now=0)
    assert (len(queue), queue.size) == (100, 12_300)
    assert queue.commit() == 10
    assert (len(queue), queue.size) == (90, 11_070)
    assert queue.remove(pulled(10)) == 11
    assert (len(queue), queue.size) == (89, 10_947)


def test_mib():
    queue = queue_of(*range(102_400))
    assert queue.size_mib == 12
    for count, mib in [(10_000, 10), (10_000, 9), (80_000, 0)]:
        queue.take(count, now=0)
        queue.commit()
        assert queue.size_mib == mib


def test_info_with_one_message_taken():
    queue = queue_of(0)
    queue.take(1, now=77)
    assert queue.info(commit_offset=5) == {
        "cachedMsgCount": 0,
        "cachedMsgMaxOffset": 0,
        "cachedMsgMinOffset": 0,
        "cachedMsgSizeInMiB": 0,
        "commitOffset": 5,
        "droped": False,
        "lastConsumeTimestamp": 77,
        "lastLockTimestamp": 0,
        "lastPullTimestamp": 0,
        "locked": False,
        "transactionMsgCount": 1,
        "transactionMsgMaxOffset": 0,
        "transactionMsgMinOffset": 0,
        "tryUnlockTimes": 0,
    }


def test_rollback_of_nothing():
    queue = ProcessQueue()
    queue.rollback()
    assert len(queue) == 0 and queue.take(1, now=0) == []


def test_contains():
    queue = queue_of(1, 3)
    assert 1 in queue and 2 not in queue and 3 in queue


# ------------------------------------------------------------------------------------------ put


def test_put_says_when_an_orderly_consumer_has_to_start():
    queue = ProcessQueue()
    assert queue.put([], now=0) is False
    assert queue.put(pulled(0), now=0) is True
    assert queue.is_consuming
    assert queue.put(pulled(1), now=0) is False
    assert offsets(queue.take(9, now=0)) == [0, 1]
    queue.commit()
    assert queue.put(pulled(2), now=0) is False  # it still works
    queue.take(1, now=0)
    queue.commit()
    assert queue.take(1, now=0) == []
    assert not queue.is_consuming
    assert queue.put(pulled(3), now=0) is True


def test_offsets_that_come_twice_count_once():
    queue = queue_of(0, 1, 2)
    queue.put(pulled(1, 2, 3, 3), now=0)
    assert (len(queue), queue.size, queue.span) == (4, 4 * 123, 3)
    queue.take(2, now=0)
    queue.put(pulled(0, 1, 2, 3, 4), now=0)
    assert (len(queue), queue.size) == (5, 5 * 123)
    queue.rollback()
    assert offsets(queue.take(9, now=0)) == [0, 1, 2, 3, 4]


def test_offsets_that_are_taken_are_known():
    queue = queue_of(0, 1)
    queue.take(2, now=0)
    queue.put(pulled(0, 1), now=0)
    assert (len(queue), queue.size) == (2, 2 * 123)


def test_the_greatest_offset_does_not_decrease():
    queue = queue_of(7, 8)
    queue.remove(pulled(7, 8))
    queue.put(pulled(3), now=0)
    assert queue.remove(pulled(3)) == 9


def test_messages_in_another_order():
    queue = queue_of(5, 9)
    queue.put(pulled(7, 2, 8), now=0)
    assert queue.span == 7
    assert queue.remove(pulled(9)) == 2
    assert offsets(queue.take(9, now=0)) == [2, 5, 7, 8]


def test_an_offset_that_was_removed_may_come_again():
    queue = queue_of(1, 2, 3)
    queue.remove(pulled(2))
    queue.put(pulled(2), now=0)
    assert len(queue) == 3
    assert queue.remove(pulled(1)) == 2
    assert queue.remove(pulled(2)) == 3


def test_messages_that_the_broker_still_has():
    queue = ProcessQueue()
    queue.put(pulled(0, 1), now=0, max_offset=9)
    assert queue.behind == 8
    queue.put(pulled(2), now=0, max_offset=2)  # not greater: unchanged, as RocketMQ
    queue.put(pulled(3), now=0)
    queue.put([], now=0, max_offset=99)
    assert queue.behind == 8


# ------------------------------------------------------------------------------------------ remove


def test_remove_gives_the_first_offset_that_is_not_finished():
    queue = queue_of(10, 11, 15)
    assert queue.remove(pulled(11)) == 10
    assert queue.remove(pulled(10)) == 15
    assert queue.remove(pulled(15)) == 16
    assert queue.remove(pulled(15)) == NOTHING


def test_remove_of_unknown_messages():
    queue = queue_of(10)
    assert queue.remove(pulled(3)) == 10
    assert queue.remove([]) == 10
    assert (len(queue), queue.size) == (1, 123)


def test_span_after_the_last_ones_are_removed():
    queue = queue_of(*range(100, 200))
    queue.remove(pulled(*range(150, 200)))
    assert queue.span == 49
    queue.remove(pulled(*range(100, 149)))
    assert queue.span == 0


def test_clear():
    queue = queue_of(100, 101, 102)
    queue.take(1, now=0)
    queue.start(pulled(101), now=5)
    queue.clear()
    assert (len(queue), queue.size, queue.span, queue.pulled_to) == (0, 0, 0, 0)
    assert queue.commit() == NOTHING
    queue.put(pulled(3), now=9)
    assert queue.expired(now=10**9, timeout=1) is None
    assert queue.remove(pulled(3)) == 4


# ------------------------------------------------------------------------------------------ expired


def test_the_first_message_expires():
    queue = queue_of(0, 1, 2)
    minutes = 60_000
    assert queue.expired(now=20 * minutes, timeout=0) is None  # not started
    queue.start(pulled(0, 1), now=7)
    assert queue.last_consume == 7
    assert queue.expired(now=7 + 15 * minutes, timeout=15 * minutes) is None
    first = queue.expired(now=8 + 15 * minutes, timeout=15 * minutes)
    assert first == Pulled(0)
    assert queue.remove_first(first)
    assert queue.expired(now=20 * minutes, timeout=15 * minutes) == Pulled(1)
    assert not queue.remove_first(first)
    queue.remove(pulled(1))
    assert queue.expired(now=10**9, timeout=1) is None
    queue.remove(pulled(2))
    assert queue.expired(now=10**9, timeout=1) is None
    assert not queue.remove_first(first)


def test_a_message_that_comes_again_has_not_started():
    queue = queue_of(0, 1)
    queue.start(pulled(0), now=1)
    queue.remove(pulled(0))
    queue.put(pulled(0), now=2)
    assert queue.expired(now=10**9, timeout=1) is None


# ------------------------------------------------------------------------------------------ orderly


def test_take_after_remove():
    queue = queue_of(1, 2, 3)
    queue.remove(pulled(2))
    assert offsets(queue.take(1, now=0)) == [1]
    assert queue.info(0)["cachedMsgMinOffset"] == 3
    assert queue.span == 0


def test_make_again():
    queue = queue_of(0, 1, 2, 3)
    assert offsets(queue.take(2, now=0)) == [0, 1]
    last = queue.take(1, now=0)
    queue.make_again([*last, Pulled(77)])  # 77: not taken, so it is ignored
    assert queue.commit() == 2
    assert offsets(queue.take(9, now=0)) == [2, 3]
    assert queue.commit() == 4
    assert queue.commit() == NOTHING


def test_commit_does_not_pass_a_message_that_waits():
    queue = queue_of(0, 1, 2)
    first, *_ = queue.take(3, now=0)
    queue.make_again([first])
    assert queue.commit() == 0
    assert offsets(queue.take(3, now=0)) == [0]
    assert queue.commit() == 3


@pytest.mark.parametrize("rounds", [1, 3])
def test_rollback(rounds):
    queue = queue_of(0, 1, 2)
    for _ in range(rounds):
        assert offsets(queue.take(1, now=0) + queue.take(1, now=0)) == [0, 1]
        queue.rollback()
    assert (len(queue), queue.size) == (3, 3 * 123)
    assert offsets(queue.take(3, now=0)) == [0, 1, 2]


# ------------------------------------------------------------------------------------------ times


def test_lock():
    queue = ProcessQueue(now=5)
    assert not queue.is_locked
    queue.set_locked(now=10)
    assert queue.is_locked
    assert not queue.is_lock_expired(now=10 + LOCK_LIVE_MS)
    assert queue.is_lock_expired(now=11 + LOCK_LIVE_MS)


def test_pull_expires():
    queue = ProcessQueue(now=5)
    assert not queue.is_pull_expired(now=5 + PULL_IDLE_MS)
    assert queue.is_pull_expired(now=6 + PULL_IDLE_MS)
    queue.put([], now=9)
    assert not queue.is_pull_expired(now=6 + PULL_IDLE_MS)


# ------------------------------------------------------------------------------------------ any order of calls

OFFSETS = st.lists(st.integers(0, 30), max_size=8)


class Consuming(RuleBasedStateMachine):
    """Compares the queue with sets of offsets. `finished` are the offsets that were consumed."""

    def __init__(self):
        super().__init__()
        self.queue = ProcessQueue()
        self.waiting, self.taken, self.known, self.finished = {}, {}, set(), set()
        self.next = self.pulled_to = 0

    @rule(steps=st.lists(st.integers(1, 3), max_size=5), size=st.integers(0, 9))
    def put_next(self, steps, size):
        messages = []
        for step in steps:
            self.next += step
            messages.append(Pulled(self.next, bytes(size)))
        self.put(messages)

    @rule(found=OFFSETS)
    def put_any(self, found):
        self.put([Pulled(offset, bytes(offset)) for offset in found])

    @rule(step=st.integers(-9, 3))
    def skip(self, step):
        self.queue.skip_to(self.pulled_to + step)
        self.pulled_to += max(0, step)

    def put(self, messages):
        self.queue.put(messages, now=0)
        for message in messages:
            offset = message.queue_offset
            if offset not in self.waiting and offset not in self.taken:
                self.waiting[offset] = message
                self.finished.discard(offset)
            self.known.add(offset)
            self.next = max(self.next, offset)
            self.pulled_to = max(self.pulled_to, offset + 1)

    @precondition(lambda self: not self.taken)  # a consumer is concurrent or orderly
    @rule(found=OFFSETS)
    def remove(self, found):
        before = bool(self.waiting)
        committed = self.queue.remove(pulled(*found))
        for offset in found:
            if self.waiting.pop(offset, None) is not None:
                self.finished.add(offset)
        assert (committed == NOTHING) is not before
        if before:
            self.check(committed)

    @rule(count=st.integers(0, 5))
    def take(self, count):
        found = self.queue.take(count, now=0)
        expected = sorted(self.waiting)[:count]
        assert offsets(found) == expected
        for offset in expected:
            self.taken[offset] = self.waiting.pop(offset)

    @rule()
    def commit(self):
        committed = self.queue.commit()
        assert (committed == NOTHING) is not bool(self.taken)
        if self.taken:
            self.finished |= self.taken.keys()
            self.check(committed)
            self.taken.clear()

    @rule()
    def rollback(self):
        self.queue.rollback()
        self.waiting |= self.taken
        self.taken.clear()

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def make_again(self, data):
        some = data.draw(st.sets(st.sampled_from(sorted(self.taken))))
        self.queue.make_again(pulled(*some))
        for offset in some:
            self.waiting[offset] = self.taken.pop(offset)

    @rule()
    def clear(self):
        self.queue.clear()
        for found in (self.waiting, self.taken, self.known, self.finished):
            found.clear()
        self.next = self.pulled_to = 0

    def check(self, committed):
        assert committed == min(self.waiting, default=self.pulled_to)
        assert not [offset for offset in self.known - self.finished if offset < committed]

    @invariant()
    def same(self):
        assert len(self.queue) == len(self.waiting) + len(self.taken)
        assert self.queue.size == sum(len(one.body) for one in [*self.waiting.values(), *self.taken.values()])
        assert self.queue.span == (max(self.waiting) - min(self.waiting) if self.waiting else 0)
        info = self.queue.info(0)
        assert info["cachedMsgMinOffset"] == min(self.waiting, default=0)
        assert info["cachedMsgMaxOffset"] == max(self.waiting, default=0)


TestConsuming = Consuming.TestCase
TestConsuming.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize("is_orderly", [False, True])
def test_when_messages_came(is_orderly):
    held = ProcessQueue()
    for first, now in ((5, 10), (8, 20), (12, 30)):
        held.put(pulled(first, first + 1, first + 2), now)
    assert held.arrivals(pulled(5, 6, 7, 8, 10, 12)) == [(10, 3), (20, 2), (30, 1)]
    assert held.arrivals(pulled(99, 6)) == [(10, 1)] and held.arrivals([]) == []
    if is_orderly:
        taken = held.take(4, 40)
        assert held.arrivals(taken) == [(10, 3), (20, 1)]
        held.commit()
    else:
        held.remove(pulled(5, 6, 7, 8))
    assert len(held._arrivals) == 2 and held.arrivals(pulled(9, 10, 12)) == [(20, 2), (30, 1)]
    held.put(pulled(12, 13), 50)  # only known ones
    assert len(held._arrivals) == 2
    held.clear()
    assert not held._arrivals


def test_the_times_of_messages_that_came_do_not_grow():
    held = ProcessQueue()
    for n in range(1000):
        held.put(pulled(n), n)
        if n >= 5:
            held.remove(pulled(n - 5))
    assert len(held._arrivals) == 5
