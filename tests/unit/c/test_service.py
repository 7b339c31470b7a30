"""service.h: a thread that sleeps, wakes and stops; waiting on a condition."""

import ctypes
import threading
import time

import pytest
from support.native import native

RUN = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
SECOND = 10**9


@pytest.fixture
def service():
    memory = ctypes.create_string_buffer(512)
    assert native.rc_service_init(memory) == 0
    yield memory
    native.rc_service_destroy(memory)


def test_clocks_run():
    before = native.rc_clock_ns()
    assert abs(native.rc_clock_ms() - time.time() * 1000) < 5000
    time.sleep(0.01)
    assert native.rc_clock_ns() - before >= SECOND // 100


def test_a_wake_up_before_the_wait_counts_once(service):
    native.rc_service_wake(service)
    native.rc_service_wake(service)
    before = native.rc_clock_ns()
    assert native.rc_service_wait(service, 10 * SECOND) == 0
    assert native.rc_clock_ns() - before < 5 * SECOND
    assert native.rc_service_wait(service, SECOND // 100) == 0
    assert native.rc_clock_ns() - before >= SECOND // 100


def test_the_thread_runs_until_it_is_stopped(service):
    seen = []

    @RUN
    def run(argument):
        while not native.rc_service_wait(service, 10 * SECOND):
            seen.append(threading.get_ident())
        return None

    assert native.rc_service_start(service, ctypes.cast(run, ctypes.c_void_p), None) == 0
    native.rc_service_wake(service)
    deadline = time.monotonic() + 10
    while not seen and time.monotonic() < deadline:
        time.sleep(0.001)
    native.rc_service_stop(service)
    assert seen
    assert seen[0] != threading.get_ident()
    native.rc_service_stop(service)  # no effect the second time


def test_a_wait_on_a_condition_ends_in_time():
    libc = ctypes.CDLL(None)
    mutex, cond = ctypes.create_string_buffer(128), ctypes.create_string_buffer(128)
    assert native.rc_cond_init(cond) == 0
    libc.pthread_mutex_lock(mutex)
    before = native.rc_clock_ns()
    native.rc_cond_wait(cond, mutex, SECOND // 50)
    assert SECOND // 50 <= native.rc_clock_ns() - before < 5 * SECOND
    libc.pthread_mutex_unlock(mutex)
