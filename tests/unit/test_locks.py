"""_locks: the three put locks, by the same rules where they share them."""

import pickle
import threading
import time

import pytest

from rocketc import _locks
from rocketc._locks import AdaptiveLock, Contest, PutMessageLock, ReentrantLock, SpinLock

MS = 10**6


@pytest.fixture(params=_locks.LOCKS)
def lock(request):
    return _locks.LOCKS[request.param]()


def in_thread(function, *arguments):
    """What the function returns in another thread."""
    found = []
    thread = threading.Thread(target=lambda: found.append(function(*arguments)))
    thread.start()
    thread.join()
    return found[0]


def wait_until(condition):
    while not condition():
        time.sleep(0.001)


# ---------------------------------------------------------------- every lock
@pytest.mark.parametrize(
    ("name", "kind"), [("spin", SpinLock), ("reentrant", ReentrantLock), ("adaptive", AdaptiveLock)]
)
def test_locks_by_name(name, kind):
    assert _locks.LOCKS[name] is kind


def test_the_base_is_no_lock():
    with pytest.raises(TypeError, match="LOCKS"):
        PutMessageLock()


def test_a_lock_is_not_pickled(lock):
    with pytest.raises(TypeError, match="belongs to its process"):
        pickle.dumps(lock)


def test_one_thread_at_a_time(lock):
    assert _locks.try_lock(lock)
    assert not in_thread(_locks.try_lock, lock)
    _locks.unlock(lock)
    _locks.lock(lock)
    assert not in_thread(_locks.try_lock, lock)
    _locks.unlock(lock)
    assert in_thread(_locks.try_lock, lock)


def test_a_waiter_gets_the_lock_when_it_is_released(lock):
    _locks.lock(lock)
    waiter = threading.Thread(target=_locks.hold, args=(lock, 0))
    waiter.start()
    waiter.join(0.05)
    assert waiter.is_alive()
    _locks.unlock(lock)
    waiter.join()
    assert in_thread(_locks.try_lock, lock)


def test_waiting_and_holding_leave_the_gil_to_others(lock):
    holder = threading.Thread(target=_locks.hold, args=(lock, 50 * MS))
    holder.start()
    wait_until(lambda: not in_thread(_locks.try_lock, lock) or not holder.is_alive())
    waited = []
    waiter = threading.Thread(target=lambda: waited.append(_locks.hold(lock, 0)))
    waiter.start()
    steps = 0
    while waiter.is_alive():
        steps += 1
    holder.join()
    assert steps > 10
    assert waited[0] > 0


@pytest.mark.parametrize("tries", [False, True])
def test_a_contest_counts_right(lock, tries):
    contest = Contest(lock, 2, 10000, watch=True, tries=tries)
    threads = [threading.Thread(target=contest.run, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert contest.wrong == 0
    assert sum(contest.taken) == contest.total
    assert max(contest.passed) < contest.total
    assert contest.ns > 0


# ---------------------------------------------------------------- the spin lock
def test_any_thread_releases_a_spin_lock():
    lock = SpinLock()
    _locks.lock(lock)
    in_thread(_locks.unlock, lock)
    assert _locks.try_lock(lock)


def test_a_spin_lock_is_not_recursive():
    lock = SpinLock()
    _locks.lock(lock)
    assert not _locks.try_lock(lock)


# ---------------------------------------------------------------- the reentrant lock
def test_a_reentrant_lock_counts_how_deep_it_is_held():
    lock = ReentrantLock()
    for depth in range(1, 1001):
        _locks.lock(lock)
        assert _locks.depth(lock) == depth
    for depth in range(999, -1, -1):
        assert not in_thread(_locks.try_lock, lock)
        _locks.unlock(lock)
        assert _locks.depth(lock) == depth
    assert in_thread(_locks.try_lock, lock)


def test_nobody_but_the_holder_releases_a_reentrant_lock():
    lock = ReentrantLock()
    _locks.lock(lock)
    in_thread(_locks.unlock, lock)
    assert _locks.depth(lock) == 1
    assert not in_thread(_locks.try_lock, lock)
    _locks.unlock(lock)
    _locks.unlock(lock)  # one too many
    assert _locks.try_lock(lock)


# ---------------------------------------------------------------- the adaptive lock: tests set its clock
class Clocked:
    """An adaptive lock and its clock."""

    def __init__(self, degree=1000, second=1000):
        self.lock = AdaptiveLock(degree)
        self.second = second
        self.wait(0)

    def wait(self, seconds):
        self.second += seconds
        _locks.set_second(self.lock, self.second)

    @property
    def state(self):
        return _locks.adaptive_state(self.lock)

    def quiet(self, calls=1):
        for _ in range(calls):
            _locks.lock(self.lock)
            _locks.unlock(self.lock)

    def crowded(self, waiters=1):
        """Hold the lock for a second while others wait for it."""
        before = sum(self.state.calls)
        _locks.lock(self.lock)
        threads = [threading.Thread(target=_locks.hold, args=(self.lock, 0)) for _ in range(waiters)]
        for thread in threads:
            thread.start()
        spinning = self.state.kind == "spin"
        wait_until(lambda: sum(self.state.calls) > before + waiters)
        if spinning:
            wait_until(lambda: self.state.retreats[self.second % 2] > 0)
        self.wait(1)
        _locks.unlock(self.lock)
        for thread in threads:
            thread.join()


def test_the_adaptive_lock_as_rocketmq_tests_it():
    clocked = Clocked()
    assert clocked.state.kind == "spin"
    clocked.crowded()
    assert (clocked.state.kind, clocked.state.degree) == ("spin", 2000)
    for _ in range(6):
        clocked.crowded()
    assert clocked.state.kind == "reentrant"
    for _ in range(3):
        clocked.wait(1)
        clocked.quiet()
    assert clocked.state.kind == "spin"
