"""Positions of the log that only grow, and who waits for them: up to where it is durable, up to where it is confirmed.

How to wait: arm() with the physical offset that is wanted. It looks at the position itself, after the subscriber can be
seen by who moves it, so no wake-up is lost: RC_OK means that the position is there and no wake-up comes, RC_MORE that
one wake-up comes. wait() does it for a thread. After a wake-up, arm() again: it says whether the offset is reached, or
why it never will be.
"""
from libc.stdint cimport int64_t

from rocketc.c.service cimport pthread_cond_t, pthread_mutex_t, rc_service

# Called when the position is at or behind the offset that was wanted, when the store has failed, or when it is closed:
# on the thread that moves the position, without the GIL. It must be short, and must not call the Position: it sets a
# flag, or wakes a thread.
ctypedef void (*WakeUp)(void* argument) noexcept nogil

ctypedef struct PositionSubscriber:
    PositionSubscriber* before      # in the list of those that are armed, by `wanted`
    PositionSubscriber* after
    int64_t wanted          # physical offset
    int64_t armed           # 1: it is in the list
    int fd                  # an eventfd, or a pipe's end to write to; -1: none
    WakeUp wake_up          # or NULL
    void* argument
    pthread_cond_t* cond    # of a thread in wait(), or NULL


cdef class Position:
    cdef:
        int64_t at              # physical offset; it never goes back
        int64_t armed           # subscribers and threads that wait
        int64_t failed          # why the store failed: an errno or a code; 0: it did not
        int64_t ended           # 1: the store is closed; 2: so it is in a forked child, where the mutex may stay held
        rc_service* mover       # the thread that moves it, which lets records gather while nobody waits; NULL: none
        int64_t* mover_asked    # 1: there are records for it
        pthread_mutex_t _mutex  # all of the list
        PositionSubscriber* _first
        PositionSubscriber* _last
        bint _ready
    cdef int subscribe(self, int fd, WakeUp wake_up, void* argument, PositionSubscriber** subscriber) noexcept nogil
    cdef int arm(self, PositionSubscriber* s, int64_t wanted) noexcept nogil
    cdef int wait(self, int64_t wanted, int64_t until_ns, int64_t slice_ns) noexcept nogil
    cdef void disarm(self, PositionSubscriber* s) noexcept nogil
    cdef void unsubscribe(self, PositionSubscriber* s) noexcept nogil
    cdef void advance(self, int64_t at) noexcept nogil
    cdef void fail(self, int rc) noexcept nogil
    cdef void end(self) noexcept nogil
    cdef void forget(self) noexcept nogil
    cdef int _state(self, int64_t wanted) noexcept nogil
    cdef void _insert(self, PositionSubscriber* s) noexcept nogil
    cdef void _remove(self, PositionSubscriber* s) noexcept nogil
    cdef void _wake(self, int64_t upto) noexcept nogil


cdef class PositionDescriptor:
    cdef:
        Position _position
        PositionSubscriber* _subscriber
