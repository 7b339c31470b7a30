"""_put_locks: the three put locks. Tests of common rules run on each of them."""

import pickle
import threading
import time

import pytest
from support.threads import in_thread, wait_until

from rocketc.log import _put_locks
from rocketc.log._put_locks import AdaptiveLock, Contest, PutMessageLock, ReentrantLock, SpinLock

MS = 10**6


@pytest.fixture(params=_put_locks.LOCKS)
def lock(request):
    return _put_locks.LOCKS[request.param]()


def is_free(lock):
    """Whether the lock is free, as seen from another thread: a thread can always take its own reentrant lock."""

    def probe():
        if taken := _put_locks.try_lock(lock):
            _put_locks.unlock(lock)
        return taken

    return in_thread(probe)


# ---------------------------------------------------------------- every lock
@pytest.mark.parametrize(
    ("name", "kind"), [("spin", SpinLock), ("reentrant", ReentrantLock), ("adaptive", AdaptiveLock)]
)
def test_locks_by_name(name, kind):
    assert _put_locks.LOCKS[name] is kind


def test_the_base_class_is_not_a_lock():
    with pytest.raises(TypeError, match="LOCKS"):
        PutMessageLock()


def test_a_lock_is_not_pickled(lock):
    with pytest.raises(TypeError, match="belongs to its process"):
        pickle.dumps(lock)


def test_one_thread_at_a_time(lock):
    assert _put_locks.try_lock(lock)
    assert not is_free(lock)
    _put_locks.unlock(lock)
    _put_locks.lock(lock)
    assert not is_free(lock)
    _put_locks.unlock(lock)
    assert is_free(lock)


def test_a_waiter_gets_the_lock_when_it_is_released(lock):
    _put_locks.lock(lock)
    waiter = threading.Thread(target=_put_locks.hold, args=(lock, 0))
    waiter.start()
    waiter.join(0.05)
    assert waiter.is_alive()
    _put_locks.unlock(lock)
    waiter.join()
    assert is_free(lock)


def test_waiting_and_holding_do_not_keep_the_gil(lock):
    holder = threading.Thread(target=_put_locks.hold, args=(lock, 50 * MS))
    holder.start()
    wait_until(lambda: not is_free(lock) or not holder.is_alive())
    waited = []
    waiter = threading.Thread(target=lambda: waited.append(_put_locks.hold(lock, 0)))
    waiter.start()
    steps = 0
    while waiter.is_alive():
        steps += 1
    holder.join()
    assert steps > 10
    assert waited[0] > 0


@pytest.mark.parametrize("tries", [False, True])
def test_contending_threads_count_correctly(lock, tries):
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
    _put_locks.lock(lock)
    in_thread(_put_locks.unlock, lock)
    assert _put_locks.try_lock(lock)


def test_a_spin_lock_is_not_recursive():
    lock = SpinLock()
    _put_locks.lock(lock)
    assert not _put_locks.try_lock(lock)


# ---------------------------------------------------------------- the reentrant lock
def test_a_reentrant_lock_counts_how_deep_it_is_held():
    lock = ReentrantLock()
    for depth in range(1, 1001):
        _put_locks.lock(lock)
        assert _put_locks.depth(lock) == depth
    for depth in range(999, -1, -1):
        assert not is_free(lock)
        _put_locks.unlock(lock)
        assert _put_locks.depth(lock) == depth
    assert is_free(lock)


def test_only_the_holder_releases_a_reentrant_lock():
    lock = ReentrantLock()
    _put_locks.lock(lock)
    in_thread(_put_locks.unlock, lock)
    assert _put_locks.depth(lock) == 1
    assert not is_free(lock)
    _put_locks.unlock(lock)
    _put_locks.unlock(lock)  # one too many
    assert _put_locks.try_lock(lock)


# ---------------------------------------------------------------- the adaptive lock: with a simulated clock
class Clocked:
    """An adaptive lock and its simulated clock."""

    def __init__(self, degree=1000, second=1000):
        self.lock = AdaptiveLock(degree)
        self.second = second
        self.wait(0)

    def wait(self, seconds):
        self.second += seconds
        _put_locks.set_second(self.lock, self.second)

    @property
    def state(self):
        return _put_locks.adaptive_state(self.lock)

    def after(self, calls, threads, retreats):
        """Return the state after a release that finds such a second before it."""
        _put_locks.set_slot(self.lock, self.second, calls=calls, threads=threads, retreats=retreats)
        self.wait(1)
        self.quiet()
        return self.state

    def quiet(self, calls=1):
        for _ in range(calls):
            _put_locks.lock(self.lock)
            _put_locks.unlock(self.lock)

    def crowded(self, waiters=1):
        """Hold the lock for a second while other threads wait for it."""
        before = sum(self.state.calls)
        _put_locks.lock(self.lock)
        threads = [threading.Thread(target=_put_locks.hold, args=(self.lock, 0)) for _ in range(waiters)]
        for thread in threads:
            thread.start()
        spinning = self.state.kind == "spin"
        wait_until(lambda: sum(self.state.calls) > before + waiters)
        if spinning:
            wait_until(lambda: self.state.retreats[self.second % 2] > 0)
        self.wait(1)
        _put_locks.unlock(self.lock)
        for thread in threads:
            thread.join()


def test_the_adaptive_lock_as_in_rocketmqs_test():
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


def test_the_adaptive_lock_is_a_spin_lock_at_first():
    state = _put_locks.adaptive_state(AdaptiveLock())
    assert state == ("spin", 1000, 0, (0, 0), (0, 0), (0, 0))
    assert _put_locks.adaptive_state(AdaptiveLock(optimal_degree=3)).degree == 3


@pytest.mark.parametrize("degree", [0, -1, 2**31])
def test_wrong_optimal_degrees(degree):
    with pytest.raises(ValueError, match=f"1 to 2147483647, not {degree}"):
        AdaptiveLock(degree)


def test_the_adaptive_lock_reads_the_clock():
    lock = AdaptiveLock()
    before = int(time.time()) - 1  # the clock of the lock may tick a little later
    _put_locks.lock(lock)
    assert sum(_put_locks.adaptive_state(lock).calls) == 1
    seconds = range(before, int(time.time()) + 1)
    assert _put_locks.adaptive_state(lock).calls.index(1) in {second % 2 for second in seconds}


def test_calls_and_their_threads_are_counted_per_second():
    clocked = Clocked(second=1000)
    clocked.quiet(3)
    barrier = threading.Barrier(3)  # all alive at the same time: an ended thread's id may be used again
    in_two = [threading.Thread(target=lambda: (barrier.wait(), clocked.quiet(), barrier.wait())) for _ in range(2)]
    for thread in in_two:
        thread.start()
    barrier.wait()
    barrier.wait()
    for thread in in_two:
        thread.join()
    assert (clocked.state.calls, clocked.state.threads) == ((5, 0), (3, 0))
    clocked.wait(1)
    _put_locks.lock(clocked.lock)
    assert (clocked.state.calls, clocked.state.threads) == ((5, 1), (3, 1))


def test_a_release_empties_the_slot_of_the_other_second():
    clocked = Clocked(second=1000)
    clocked.quiet(5)
    assert clocked.state.calls == (5, 0)
    clocked.wait(1)
    clocked.quiet()
    assert (clocked.state.calls, clocked.state.threads) == ((0, 1), (0, 1))
    clocked.wait(2)  # the same slot again: it continues to count
    clocked.quiet()
    assert clocked.state.calls == (0, 2)


def test_only_a_try_that_takes_the_lock_counts():
    clocked = Clocked(second=1000)
    assert _put_locks.try_lock(clocked.lock)
    assert not in_thread(_put_locks.try_lock, clocked.lock)
    assert (clocked.state.calls, clocked.state.threads) == ((1, 0), (1, 0))


def test_more_threads_than_a_slot_distinguishes():
    clocked = Clocked(second=1000)
    many, ready, done = 200, threading.Barrier(201), threading.Barrier(201)
    threads = [threading.Thread(target=lambda: (ready.wait(), clocked.quiet(), done.wait())) for _ in range(many)]
    for thread in threads:
        thread.start()
    ready.wait()
    done.wait()
    for thread in threads:
        thread.join()
    assert (clocked.state.calls[0], clocked.state.threads[0]) == (200, 128)


def test_a_waiter_that_yields_has_retreated():
    clocked = Clocked(degree=1, second=1000)
    _put_locks.lock(clocked.lock)
    waiter = threading.Thread(target=_put_locks.hold, args=(clocked.lock, 0))
    waiter.start()
    wait_until(lambda: clocked.state.retreats[0] > 10)
    clocked.wait(1)
    wait_until(lambda: clocked.state.retreats[1] > 10)
    _put_locks.unlock(clocked.lock)
    waiter.join()
    assert clocked.state.retreats[0] == 0, "the counter is reset with its second"


@pytest.mark.parametrize(
    ("degree", "raised"),
    [(1, 2), (1000, 2000), (4000, 8000), (5000, 10000), (5001, 6001), (8000, 9000), (9000, 10000), (9500, 10000)],
)
def test_the_degree_is_doubled_then_raised_by_1000_up_to_10000(degree, raised):
    assert Clocked(degree).after(calls=100, threads=2, retreats=1)[:2] == ("spin", raised)


@pytest.mark.parametrize(("calls", "degree"), [(320, 8000), (321, 4000)])
def test_a_retreat_in_320_calls_raises_the_degree(calls, degree):
    assert Clocked(4000).after(calls=calls, threads=2, retreats=1).degree == degree


@pytest.mark.parametrize(("calls", "degree"), [(1279, 4000), (1280, 3000)])
def test_a_retreat_in_1280_calls_lowers_the_degree(calls, degree):
    assert Clocked(4000).after(calls=calls, threads=2, retreats=1).degree == degree


def test_no_retreat_lowers_the_degree():
    assert Clocked(4000).after(calls=1, threads=1, retreats=0).degree == 3000


@pytest.mark.parametrize(("degree", "lowered"), [(2000, 1000), (1999, 1999), (1000, 1000)])
def test_the_degree_is_not_lowered_from_below_2000(degree, lowered):
    assert Clocked(degree).after(calls=10, threads=1, retreats=0).degree == lowered


def test_a_second_without_calls_changes_nothing():
    assert Clocked(4000).after(calls=0, threads=0, retreats=7)[:2] == ("spin", 4000)


@pytest.mark.parametrize("degree", [10000, 12000])
def test_the_mutex_takes_over_when_the_degree_cannot_be_raised(degree):
    state = Clocked(degree).after(calls=320, threads=6, retreats=1)
    assert (state.kind, state.degree, state.critical) == ("reentrant", degree, 320 * 6)


@pytest.mark.parametrize(
    ("calls", "threads", "kind", "degree"),
    [(100, 8, "spin", 9000), (80, 10, "spin", 9000), (801, 1, "reentrant", 10000), (1, 801, "reentrant", 10000)],
)
def test_the_spin_lock_returns_at_8_tenths_of_the_critical_load(calls, threads, kind, degree):
    clocked = Clocked(10000)
    assert clocked.after(calls=100, threads=10, retreats=1)[:3] == ("reentrant", 10000, 1000)
    assert clocked.after(calls=calls, threads=threads, retreats=0)[:2] == (kind, degree)


def test_a_waiter_continues_with_the_lock_that_is_in_use():
    """It waits for the spin lock, which is replaced by the mutex and back in the meantime."""
    clocked = Clocked(10000)
    for kind, calls in (("reentrant", 10), ("spin", 1)):
        _put_locks.lock(clocked.lock)
        waiter = threading.Thread(target=_put_locks.hold, args=(clocked.lock, 0))
        waiter.start()
        waiter.join(0.02)
        assert waiter.is_alive()
        _put_locks.set_slot(clocked.lock, clocked.second, calls=calls, threads=1, retreats=1)
        clocked.wait(1)
        _put_locks.unlock(clocked.lock)
        waiter.join()
        assert clocked.state.kind == kind
        assert is_free(clocked.lock)


def test_the_mutex_of_an_adaptive_lock_belongs_to_its_holder():
    lock = AdaptiveLock()
    _put_locks.swap_now(lock)
    assert _put_locks.adaptive_state(lock).kind == "reentrant"
    _put_locks.lock(lock)
    in_thread(_put_locks.unlock, lock)
    assert not is_free(lock)
    _put_locks.lock(lock)  # this class does not promise anything here, but nothing may break
    _put_locks.unlock(lock)
    assert not is_free(lock)
    _put_locks.unlock(lock)
    assert is_free(lock)
