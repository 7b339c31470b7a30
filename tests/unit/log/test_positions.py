"""Positions for callers in C (tests/native/positions.pyx): which threads are woken, when, and how waiting ends."""

import errno
import os
import random
import threading
import time

import pytest
from support import extension
from support.threads import wait_until

import rocketc
from rocketc.log._positions import PositionDescriptor
from rocketc.store.futures import descriptors

SOON = 30.0


@pytest.fixture(scope="module")
def native():
    return extension.load("positions")


@pytest.fixture
def position(native):
    return native.new_position()


@pytest.fixture
def sync_store(open_store):
    return lambda **how: open_store(flush="sync", mapped_file_size_commit_log=1 << 20, **how)


def started(call, *args):
    """Return the thread and a list that gets the result of the call."""
    got = []
    thread = threading.Thread(target=lambda: got.append(call(*args)))
    thread.start()
    return thread, got


# ---------------------------------------------------------------- subscribers


def test_one_wake_up_when_the_offset_is_reached(native, position):
    one = native.Waiter(position)
    assert native.advance(position, 10) == 10
    assert one.arm(10) == one.arm(3) == native.CODES["ok"]
    assert one.arm(11) == native.CODES["more"]
    assert (one.calls, position.waiting) == (0, 1)
    native.advance(position, 11)
    assert (one.calls, position.waiting) == (1, 0)
    native.advance(position, 20)
    assert one.calls == 1, "the subscriber was not armed again"


def test_a_position_does_not_go_back(native, position):
    one = native.Waiter(position)
    native.advance(position, 10)
    assert native.advance(position, 9) == 10
    assert one.arm(10) == native.CODES["ok"]


def test_arming_again_replaces_the_offset(native, position):
    one = native.Waiter(position)
    for wanted in (50, 20, 30):
        assert one.arm(wanted) == native.CODES["more"]
    assert position.waiting == 1
    native.advance(position, 20)
    assert one.calls == 0
    native.advance(position, 30)
    assert one.calls == 1


def test_disarming(native, position):
    one, other = native.Waiter(position), native.Waiter(position)
    for waiter in (one, other):
        waiter.arm(5)
    one.disarm()
    one.disarm()
    native.advance(position, 5)
    assert (one.calls, other.calls, position.waiting) == (0, 1, 0)


@pytest.mark.parametrize("seed", range(20))
def test_only_reached_subscribers_are_woken(native, position, seed):
    """A random order of arming, arming again, disarming and moving, compared with a dict."""
    random_ = random.Random(seed)
    several = {n: native.Waiter(position) for n in range(12)}
    calls, wanted, at = dict.fromkeys(several, 0), {}, 0
    for _ in range(300):
        n = random_.choice(list(several))
        what = random_.random()
        if what < 0.6:
            offset = at + random_.randint(-3, 30)
            reached = offset <= at
            assert several[n].arm(offset) == native.CODES["ok" if reached else "more"]
            wanted.pop(n, None)
            if not reached:
                wanted[n] = offset
        elif what < 0.7:
            several[n].disarm()
            wanted.pop(n, None)
        elif what < 0.75:
            several[n] = native.Waiter(position)
            calls[n] = 0
            wanted.pop(n, None)
        else:
            at += random_.randint(0, 8)
            native.advance(position, at)
            for one in [one for one, offset in wanted.items() if offset <= at]:
                calls[one] += 1
                del wanted[one]
        assert {n: one.calls for n, one in several.items()} == calls
        assert position.waiting == len(wanted)


def test_a_descriptor(native, position):
    read, write = descriptors()
    events = PositionDescriptor(position, write)
    assert events.arm(5)
    native.advance(position, 4)
    with pytest.raises(BlockingIOError):
        os.read(read, 8)
    native.advance(position, 5)
    assert os.read(read, 8)
    assert not events.arm(5)
    assert events.arm(6)
    events.end()
    native.advance(position, 6)
    with pytest.raises(BlockingIOError):
        os.read(read, 8)
    for fd in {read, write}:
        os.close(fd)


# ---------------------------------------------------------------- threads


def test_waiting(native, position):
    assert native.wait(position, 0) == native.CODES["ok"]
    assert native.wait(position, 5, 10_000_000) == native.CODES["timeout"]
    assert native.wait(position, 5, slice_ns=10_000_000) == native.CODES["more"]
    assert position.waiting == 0
    thread, got = started(native.wait, position, 5)
    wait_until(lambda: position.waiting == 1)
    native.advance(position, 4)
    time.sleep(0.01)
    assert got == []
    native.advance(position, 5)
    thread.join(SOON)
    assert got == [native.CODES["ok"]]


def test_each_thread_is_woken_by_its_own_offset(native, position):
    threads = [started(native.wait, position, n) for n in random.Random(1).sample(range(1, 33), 32)]
    wait_until(lambda: position.waiting == 32)
    native.advance(position, 16)
    wait_until(lambda: sum(len(got) for _, got in threads) == 16)
    assert position.waiting == 16
    native.advance(position, 32)
    for thread, _ in threads:
        thread.join(SOON)
    assert all(got == [native.CODES["ok"]] for _, got in threads)


def test_no_wake_up_is_lost(native, position):
    """Two subscribers and a thread follow a position closely while it moves."""
    several = [started(native.Waiter(position).chase, 1, 3000) for _ in range(2)]
    several.append(started(lambda: [native.wait(position, n, int(SOON * 1e9)) for n in range(1, 3001)][-1]))
    for n in range(1, 3001):
        native.advance(position, n)
        if n % 64 == 0:
            time.sleep(0)
    for thread, _ in several:
        thread.join(SOON)
    assert [got[0] >= 0 for _, got in several[:2]] == [True, True]
    assert several[2][1] == [native.CODES["ok"]]


# ---------------------------------------------------------------- the end


@pytest.mark.parametrize("how", ["end", "fail"])
def test_the_end_wakes_all(native, position, how):
    one, thread = native.Waiter(position), started(native.wait, position, 9)
    native.advance(position, 3)
    one.arm(7)
    wait_until(lambda: position.waiting == 2)
    code = native.CODES["closed"]
    if how == "end":
        native.end(position)
    else:
        code = errno.EIO
        native.fail(position, code)
        native.fail(position, errno.ENOSPC)
    thread[0].join(SOON)
    assert thread[1] == [code]
    assert (one.calls, position.waiting) == (1, 0)
    assert one.arm(7) == native.wait(position, 7) == code
    assert one.arm(3) == native.wait(position, 3) == native.CODES["ok"], "a reached offset succeeds after the end, too"


def test_no_subscriber_after_the_end(native, position):
    native.end(position)
    with pytest.raises(ValueError, match=str(native.CODES["closed"])):
        native.Waiter(position)
    with pytest.raises(ValueError, match="closed"):
        PositionDescriptor(position, 0)


def test_a_forked_child_does_not_wait(native, position):
    one = native.Waiter(position)
    one.arm(5)
    native.forget(position)
    native.advance(position, 9)
    assert one.arm(5) == native.wait(position, 5) == native.CODES["closed"]
    assert one.calls == 0
    del one


# ---------------------------------------------------------------- of a store


def test_the_flushed_position_of_a_store(native, sync_store):
    store = sync_store()
    one = native.Waiter(store.flushed_position)
    thread, got = started(native.wait, store.flushed_position, 3 * 93)
    assert one.arm(93) == native.CODES["more"]
    store.put("t", b"x")
    assert one.calls == 1
    for _ in range(2):
        store.put_async("t", b"x")
    thread.join(SOON)
    assert got == [native.CODES["ok"]]
    assert one.arm(store.flushed_phy_offset) == native.CODES["ok"]
    assert one.arm(store.flushed_phy_offset + 1) == native.CODES["more"]
    store.close()
    assert one.calls == 2
    assert one.arm(1000) == native.CODES["closed"]
    assert one.arm(93) == native.CODES["ok"]


def test_the_last_flush_of_a_store_moves_the_position(native, open_store):
    store = open_store(mapped_file_size_commit_log=1 << 20, flush_interval_commit_log=60_000)
    end = store.put("t", b"x").end
    thread, got = started(native.wait, store.flushed_position, end)
    position = store.flushed_position
    wait_until(lambda: position.waiting == 1)
    store.close()
    thread.join(SOON)
    assert got == [native.CODES["ok"]]


def test_a_store_that_fails_wakes_all(native, sync_store):
    store = sync_store()
    positions = [store.flushed_position, store.confirmed_position]
    several = [native.Waiter(position) for position in positions]
    for one in several:
        assert one.arm(1 << 40) == native.CODES["more"]
    store._hook("fail", errno.EIO)
    assert [one.calls for one in several] == [1, 1]
    assert [one.arm(1 << 40) for one in several] == [errno.EIO] * 2


def test_positions_after_the_end_of_their_store(native, sync_store):
    store = sync_store()
    one = native.Waiter(store.flushed_position)
    one.arm(1 << 40)
    store.close()
    del store
    assert one.calls == 1
    assert one.arm(1 << 40) == native.CODES["closed"]


def test_a_store_at_its_opening(native, sync_store):
    store = sync_store()
    end = store.put("t", b"x").end
    assert (store.confirmed_phy_offset, store.confirmed_position.waiting) == (0, 0)
    store.close()
    store = sync_store()
    for position in (store.flushed_position, store.confirmed_position):
        assert native.Waiter(position).arm(end) == native.CODES["ok"]
    assert store.confirmed_phy_offset == end


def test_a_store_that_is_read_only(sync_store, tmp_path):
    sync_store().put("t", b"x")
    with rocketc.open(tmp_path, read_only=True) as reader:
        assert (reader.flushed_position, reader.confirmed_position) == (None, None)
        assert reader.confirmed_phy_offset == reader.max_phy_offset


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_of_a_store(native, sync_store):
    """In the child no call waits, whatever the state of the mutex, and its subscribers are released."""
    store = sync_store()
    one = native.Waiter(store.flushed_position)
    one.arm(1 << 40)
    pid = os.fork()
    if pid == 0:
        code = one.arm(1 << 41)
        del one
        os._exit(0 if code == native.CODES["closed"] else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert store.flushed_position.waiting == 1
    store.put("t", b"x")
