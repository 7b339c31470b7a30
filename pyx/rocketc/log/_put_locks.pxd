"""The lock that guards the end of the commit log: three kinds behind one interface."""
from libc.stdint cimport int64_t, uintptr_t

from rocketc.c.lock cimport rc_reentrant, rc_spin


cdef class PutMessageLock:
    """What a store calls; each kind derives from it; see lock.h for the memory order.

    Taken without the GIL, or with it by try_lock(), which waits for nobody. It is never held
    while taking the GIL, raising, syncing or taking another lock.
    """
    cdef bint try_lock(self) noexcept nogil
    cdef void lock(self) noexcept nogil
    cdef void unlock(self) noexcept nogil       # by the holder; what else happens, each kind says


cdef class SpinLock(PutMessageLock):
    cdef rc_spin _lock


cdef class ReentrantLock(PutMessageLock):
    cdef rc_reentrant _lock


cdef enum:
    SLOT_THREADS = 128          # a power of two


cdef struct Slot:               # one second out of two; every field is atomic, and relaxed
    int64_t count               # calls of lock() since the slot was looked at, less one: -1 is none
    int64_t retreats            # how often a waiter gave its core away
    int64_t threads             # different ones among the callers; those beyond SLOT_THREADS are not told apart
    uintptr_t seen[SLOT_THREADS]    # a hash set of them; 0 is free


cdef class AdaptiveLock(PutMessageLock):
    cdef:
        rc_spin _spin
        rc_reentrant _mutex
        int64_t _sleeping       # 1 while the mutex is in use, 0 while the spin lock is; changed by the holder only
        int64_t _degree         # looks at the held spin lock before a waiter retreats; the holder's to change
        int64_t _critical       # calls a second times threads, when the mutex was taken into use; the holder's
        int64_t _second         # what the clock says, for tests; -1 is to ask the clock
        Slot[2] _slots          # of even and of odd seconds
    cdef int64_t _now(self) noexcept nogil
    cdef void _arrive(self) noexcept nogil
    cdef void _retreat(self) noexcept nogil
    cdef void _release(self, bint swapping) noexcept nogil
    cdef bint _swap_wanted(self, Slot* slot) noexcept nogil
