"""The lock that guards the end of the commit log: three kinds with one interface."""
from libc.stdint cimport int64_t, uintptr_t

from rocketc.c.lock cimport rc_reentrant, rc_spin


cdef class PutMessageLock:
    """The interface that a store uses and each kind implements; lock.h describes the memory order.

    Take it without the GIL, or with the GIL by try_lock(), which does not wait. It is never held
    while a thread takes the GIL, raises, syncs or takes another lock.
    """
    cdef bint try_lock(self) noexcept nogil
    cdef void lock(self) noexcept nogil
    cdef void unlock(self) noexcept nogil       # by the holder; each kind says what happens otherwise


cdef class SpinLock(PutMessageLock):
    cdef rc_spin _lock


cdef class ReentrantLock(PutMessageLock):
    cdef rc_reentrant _lock


cdef enum:
    SLOT_THREADS = 128          # a power of two


cdef struct Slot:               # of even or of odd seconds; every field is atomic, with relaxed order
    int64_t count               # calls of lock() since the last evaluation, minus 1: -1 means none
    int64_t retreats            # how many times a waiter yielded its core
    int64_t threads             # number of different calling threads; those beyond SLOT_THREADS are not counted
    uintptr_t seen[SLOT_THREADS]    # a hash set of them; 0 is free


cdef class AdaptiveLock(PutMessageLock):
    cdef:
        rc_spin _spin
        rc_reentrant _mutex
        int64_t _sleeping       # 1 while the mutex is in use, 0 while the spin lock is; changed by the holder only
        int64_t _degree         # checks of the held spin lock before a waiter retreats; only the holder changes it
        int64_t _critical       # calls a second times threads, at the switch to the mutex; changed by the holder only
        int64_t _second         # the current second, for tests; -1: use the clock
        Slot[2] _slots          # of even and of odd seconds
    cdef int64_t _now(self) noexcept nogil
    cdef void _arrive(self) noexcept nogil
    cdef void _retreat(self) noexcept nogil
    cdef void _release(self, bint swapping) noexcept nogil
    cdef bint _swap_wanted(self, Slot* slot) noexcept nogil
