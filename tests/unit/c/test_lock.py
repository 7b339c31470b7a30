"""lock.h: which threads get a lock, which do not, and which may release it."""

import ctypes
import errno
import threading
import time

import pytest
from support.native import native
from support.threads import in_thread, wait_until

pytestmark = pytest.mark.promise(7)

SIZE = 256  # bytes, more than any of the structures


@pytest.fixture
def spin():
    return (ctypes.c_int32 * 2)()  # rc_spin: held, promised


@pytest.fixture
def reentrant():
    lock = ctypes.create_string_buffer(b"\xff" * SIZE, SIZE)
    native.rc_reentrant_init(lock)
    return lock


def seconds_of_core(lock, unlock, it):
    """Return the CPU seconds of a waiting thread in half a second."""
    used = []

    def wait():
        began = time.thread_time()
        lock(it)
        used.append(time.thread_time() - began)
        unlock(it)

    lock(it)
    waiter = threading.Thread(target=wait)
    waiter.start()
    time.sleep(0.5)
    unlock(it)
    waiter.join()
    return used[0]


# ---------------------------------------------------------------- spin lock
def test_a_spin_lock_is_taken_once(spin):
    assert native.rc_spin_try_lock(spin) == 1
    assert native.rc_spin_try_lock(spin) == 0
    assert in_thread(native.rc_spin_try_lock, spin) == 0
    native.rc_spin_unlock(spin)
    native.rc_spin_lock(spin)
    assert native.rc_spin_try_lock(spin) == 0


def test_any_thread_releases_a_spin_lock(spin):
    native.rc_spin_lock(spin)
    in_thread(native.rc_spin_unlock, spin)
    assert native.rc_spin_try_lock(spin) == 1


def test_releasing_a_free_spin_lock_does_nothing(spin):
    native.rc_spin_unlock(spin)
    assert native.rc_spin_try_lock(spin) == 1
    assert native.rc_spin_try_lock(spin) == 0


def test_a_spinner_gets_the_lock_when_it_is_released(spin):
    native.rc_spin_lock(spin)
    waiter = threading.Thread(target=native.rc_spin_lock, args=(spin,))
    waiter.start()
    wait_until(lambda: spin[1])  # it has requested a promise
    assert waiter.is_alive()
    native.rc_spin_unlock(spin)
    waiter.join()
    assert list(spin) == [1, 0], "held, and the promise is fulfilled"


def test_a_spinner_requests_a_promise_before_it_yields(spin):
    native.rc_spin_lock(spin)
    wait = (ctypes.c_int32 * 2)()  # rc_spin_wait: yields, promised
    assert native.rc_spin_turn(spin, wait, 3, 1) == 0
    assert (list(wait), list(spin)) == ([0, 1], [1, 1])
    assert native.rc_spin_turn(spin, wait, 3, 1) == 0
    assert (list(wait), list(spin)) == ([1, 1], [1, 1])


def test_new_threads_do_not_take_a_promised_lock(spin):
    native.rc_spin_lock(spin)
    wait, other = (ctypes.c_int32 * 2)(), (ctypes.c_int32 * 2)()
    native.rc_spin_turn(spin, wait, 1, 1)
    native.rc_spin_turn(spin, other, 1, 1)
    assert (list(wait), list(other)) == ([0, 1], [1, 0]), "one promise at a time"
    native.rc_spin_unlock(spin)
    assert native.rc_spin_try_lock(spin) == 0
    assert native.rc_spin_turn(spin, other, 1, 1) == 0
    assert native.rc_spin_turn(spin, wait, 1, 1) == 1
    native.rc_spin_unlock(spin)
    assert native.rc_spin_turn(spin, other, 1, 1) == 1, "the promise is fulfilled, the next one is possible"
    native.rc_spin_unlock(spin)
    assert native.rc_spin_try_lock(spin) == 1


@pytest.mark.measure
def test_a_spinner_uses_little_cpu(spin):
    assert seconds_of_core(native.rc_spin_lock, native.rc_spin_unlock, spin) < 0.25


def test_a_pause_is_short():
    native.rc_spin_pause()


# ---------------------------------------------------------------- reentrant lock
@pytest.mark.measure
def test_a_sleeper_uses_no_cpu(reentrant):
    assert seconds_of_core(native.rc_reentrant_lock, native.rc_reentrant_unlock, reentrant) < 0.1


def test_threads_have_different_ids():
    assert native.rc_this_thread() == native.rc_this_thread() != 0
    assert in_thread(native.rc_this_thread) != native.rc_this_thread()


def test_a_reentrant_lock_is_taken_again_by_its_holder_only(reentrant):
    native.rc_reentrant_lock(reentrant)
    native.rc_reentrant_lock(reentrant)
    assert native.rc_reentrant_try_lock(reentrant) == 1
    assert native.rc_reentrant_depth(reentrant) == 3
    assert in_thread(native.rc_reentrant_depth, reentrant) == 0
    assert in_thread(native.rc_reentrant_try_lock, reentrant) == 0


def test_a_reentrant_lock_is_free_when_released_as_often_as_taken(reentrant):
    for _ in range(3):
        native.rc_reentrant_lock(reentrant)
    for depth in (2, 1, 0):
        assert in_thread(native.rc_reentrant_try_lock, reentrant) == 0
        assert native.rc_reentrant_unlock(reentrant) == 0
        assert native.rc_reentrant_depth(reentrant) == depth
    assert in_thread(native.rc_reentrant_try_lock, reentrant) == 1


def test_only_the_holder_releases_a_reentrant_lock(reentrant):
    assert native.rc_reentrant_unlock(reentrant) == errno.EPERM, "free"
    native.rc_reentrant_lock(reentrant)
    assert in_thread(native.rc_reentrant_unlock, reentrant) == errno.EPERM
    assert native.rc_reentrant_depth(reentrant) == 1
    assert native.rc_reentrant_unlock(reentrant) == 0
    assert native.rc_reentrant_unlock(reentrant) == errno.EPERM


@pytest.mark.parametrize("waiters", [1, 4])
@pytest.mark.parametrize("ns", [0, 2 * native.RC_MUTEX_PATIENCE_NS])
def test_sleepers_are_woken_one_after_the_other(reentrant, waiters, ns):
    got = []

    def wait():
        native.rc_reentrant_lock(reentrant)
        got.append(native.rc_reentrant_depth(reentrant))
        time.sleep(ns / 1e9)  # long: other threads request a promise
        native.rc_reentrant_unlock(reentrant)

    native.rc_reentrant_lock(reentrant)
    threads = [threading.Thread(target=wait) for _ in range(waiters)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)  # enough time for them to fall asleep
    assert got == []
    native.rc_reentrant_unlock(reentrant)
    for thread in threads:
        thread.join()
    assert got == [1] * waiters
    assert native.rc_reentrant_try_lock(reentrant) == 1
