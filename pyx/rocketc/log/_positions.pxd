"""Positions in the log that only grow, and the waits for them: the flushed, the confirmed and the written position.

How to wait: call arm() with the physical offset to wait for. arm() adds the subscriber to the list before it checks the
position, so no wake-up is lost. RC_OK means that the offset is reached and no wake-up follows; RC_MORE means that one
wake-up follows. wait() does this for a thread. After a wake-up call arm() again: it returns whether the offset is
reached, or why it never will be.
"""
from libc.stdint cimport int64_t

from rocketc.c.service cimport pthread_cond_t, pthread_mutex_t, rc_service

# Called when the position reaches the offset, when the store fails, and when it is closed. It runs without the GIL on
# the thread that moves the position. It must be short and must not call the Position: let it set a flag or wake a
# thread.
ctypedef void (*WakeUp)(void* argument) noexcept nogil

ctypedef struct PositionSubscriber:
    PositionSubscriber* before      # in the list of armed subscribers, ordered by `wanted`
    PositionSubscriber* after
    int64_t wanted          # physical offset
    int64_t armed           # 1: it is in the list
    int fd                  # an eventfd, or the write end of a pipe; -1: none
    WakeUp wake_up          # or NULL
    void* argument
    pthread_cond_t* cond    # of a thread in wait(), or NULL


cdef class Position:
    cdef:
        int64_t at              # physical offset; it never decreases
        int64_t* source         # where the offset really is, while `at` moves only for waiters; NULL: `at` is exact
        int64_t armed           # number of subscribers and threads that wait
        int64_t failed          # why the store failed: an errno or a code; 0: it has not failed
        int64_t ended           # 1: the store is closed; 2: closed in a forked child, where the mutex may stay locked
        rc_service* mover       # the thread that moves it; without waiters it lets records gather; NULL: none
        int64_t* mover_asked    # 1: the mover has records to flush
        pthread_mutex_t _mutex  # guards the list
        PositionSubscriber* _first
        PositionSubscriber* _last
        bint _ready
    cdef int subscribe(self, int fd, WakeUp wake_up, void* argument, PositionSubscriber** subscriber) noexcept nogil
    cdef int arm(self, PositionSubscriber* s, int64_t wanted) noexcept nogil
    cdef int wait(self, int64_t wanted, int64_t until_ns, int64_t slice_ns) noexcept nogil
    cdef void disarm(self, PositionSubscriber* s) noexcept nogil
    cdef void unsubscribe(self, PositionSubscriber* s) noexcept nogil
    cdef void advance(self, int64_t at) noexcept nogil
    cdef void follow(self) noexcept nogil
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
