# cython: language_level=3
"""Positions of the log that only grow, and who waits for them: up to where it is durable, up to where it is confirmed.

A Position keeps who waits in a list ordered by the offset that is wanted. A move looks at the first one only, and takes
those from the front whose offset is reached: who waits for more costs a move nothing, and is not woken. An offset is
mostly wanted in the order in which records are appended, so a new one goes to the end of the list, or close to it.
Source: RocketMQ GroupCommitService and GroupTransferService, which keep a request for each message.
"""
cimport cython
from libc.errno cimport ENOMEM
from libc.stdint cimport INT64_MAX, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from posix.unistd cimport write as write_file

from rocketc._status cimport check
from rocketc.c.atomic cimport rc_load_i64, rc_store_i64
from rocketc.c.service cimport (
    pthread_cond_destroy, pthread_cond_signal, pthread_cond_t, pthread_mutex_destroy, pthread_mutex_init,
    pthread_mutex_lock, pthread_mutex_unlock, rc_clock_ns, rc_cond_init, rc_cond_wait, rc_service_wake,
)
from rocketc.c.status cimport RC_CLOSED, RC_FLUSH_TIMEOUT, RC_MORE, RC_OK

cdef enum:
    CLOSED = 1
    FORKED = 2


cdef class Position:
    """A physical offset that only grows. Any number of threads and subscribers wait for it.

    A CommitLog has two: `flushed_position` (all before it is durable) and `confirmed_position`. The functions without
    the GIL return RC_OK or a code. A subscriber's owner keeps a reference to the Position until unsubscribe().
    """

    def __cinit__(self):
        check(pthread_mutex_init(&self._mutex, NULL))
        self._ready = True

    def __dealloc__(self):
        if self._ready and self.ended != FORKED:
            pthread_mutex_destroy(&self._mutex)

    # who waits

    cdef int subscribe(self, int fd, WakeUp wake_up, void* argument, PositionSubscriber** subscriber) noexcept nogil:
        """Make a subscriber. It waits for nothing before arm().

        fd          gets 8 bytes for each wake-up: an eventfd, or a pipe that does not block; the caller's; -1: none
        wake_up     called for each wake-up with argument; or NULL
        subscriber  set; to be given back with unsubscribe()
        Returns RC_OK, ENOMEM, RC_CLOSED.
        """
        cdef PositionSubscriber* s
        if rc_load_i64(&self.ended) != 0:
            return RC_CLOSED
        s = <PositionSubscriber*>calloc(1, sizeof(PositionSubscriber))
        if s == NULL:
            return ENOMEM
        s.fd = fd
        s.wake_up = wake_up
        s.argument = argument
        subscriber[0] = s
        return RC_OK

    cdef int arm(self, PositionSubscriber* s, int64_t wanted) noexcept nogil:
        """Ask for one wake-up, when the position is at or behind `wanted`. It replaces what was asked for before.

        Returns RC_OK: it is there already, and no wake-up comes; RC_MORE: one comes; RC_CLOSED, or why the store has
        failed: it will never be there.
        """
        cdef int rc
        if rc_load_i64(&self.ended) == FORKED:
            return self._state(wanted)
        pthread_mutex_lock(&self._mutex)
        if s.armed != 0:
            self._remove(s)
        rc = self._state(wanted)
        if rc == RC_MORE:
            s.wanted = wanted
            self._insert(s)
            if self._first == s and self.mover != NULL and rc_load_i64(self.mover_asked) != 0:
                rc_service_wake(self.mover)
        pthread_mutex_unlock(&self._mutex)
        return rc

    cdef int wait(self, int64_t wanted, int64_t until_ns, int64_t slice_ns) noexcept nogil:
        """Wait until the position is at or behind `wanted`: any number of threads, each woken when its own is reached.

        It flushes nothing: what flusher_wait() does in the caller's thread, the flusher's own thread does later.
        until_ns  by rc_clock_ns()
        slice_ns  how long at most; the caller looks after signals, and calls it again
        Returns RC_OK, RC_MORE after slice_ns, RC_FLUSH_TIMEOUT at until_ns, RC_CLOSED, or why the store has failed.
        """
        cdef PositionSubscriber s
        cdef pthread_cond_t cond
        cdef int64_t now, slice_end
        cdef int rc = self._state(wanted)
        if rc != RC_MORE:
            return rc
        rc = rc_cond_init(&cond)
        if rc != RC_OK:
            return rc
        slice_end = rc_clock_ns() + slice_ns
        memset(&s, 0, sizeof(s))
        s.fd = -1
        s.cond = &cond
        rc = self.arm(&s, wanted)
        if rc == RC_MORE:
            pthread_mutex_lock(&self._mutex)
            while s.armed != 0:
                now = rc_clock_ns()
                if now >= until_ns or now >= slice_end:
                    self._remove(&s)
                    break
                rc_cond_wait(&cond, &self._mutex, min(until_ns, slice_end) - now)
            pthread_mutex_unlock(&self._mutex)
            rc = self._state(wanted)
            if rc == RC_MORE and rc_clock_ns() >= until_ns:
                rc = RC_FLUSH_TIMEOUT
        pthread_cond_destroy(&cond)
        return rc

    cdef void disarm(self, PositionSubscriber* s) noexcept nogil:
        """Ask for no wake-up any more. Behind this none comes, and nothing is written to its descriptor."""
        if rc_load_i64(&self.ended) == FORKED:
            return
        pthread_mutex_lock(&self._mutex)
        if s.armed != 0:
            self._remove(s)
        pthread_mutex_unlock(&self._mutex)

    cdef void unsubscribe(self, PositionSubscriber* s) noexcept nogil:
        """Give a subscriber back, also after the end of the store. Nobody is in a call with it, or comes later."""
        self.disarm(s)
        free(s)

    # who moves it

    cdef void advance(self, int64_t at) noexcept nogil:
        """Move the position, and wake those whose offset is reached. It does not go back: a lower one does nothing."""
        if rc_load_i64(&self.ended) == FORKED:
            return
        pthread_mutex_lock(&self._mutex)
        if at > self.at:
            rc_store_i64(&self.at, at)
            self._wake(at)
        pthread_mutex_unlock(&self._mutex)

    cdef void fail(self, int rc) noexcept nogil:
        """The store has failed, for good: wake all. The first reason counts."""
        if rc_load_i64(&self.ended) == FORKED:
            return
        pthread_mutex_lock(&self._mutex)
        if self.failed == 0:
            rc_store_i64(&self.failed, rc)
        self._wake(INT64_MAX)
        pthread_mutex_unlock(&self._mutex)

    cdef void end(self) noexcept nogil:
        """The store is closed, and the position does not move any more: wake all."""
        if rc_load_i64(&self.ended) == FORKED:
            return
        pthread_mutex_lock(&self._mutex)
        rc_store_i64(&self.ended, CLOSED)
        self.mover = NULL
        self._wake(INT64_MAX)
        pthread_mutex_unlock(&self._mutex)

    cdef void forget(self) noexcept nogil:
        """In a forked child: nobody moves it, and the mutex may be held by a thread that is not there."""
        rc_store_i64(&self.ended, FORKED)
        self.mover = NULL

    # inside

    cdef int _state(self, int64_t wanted) noexcept nogil:
        """RC_OK if an offset is reached, RC_MORE if it is not yet, or why it never will be."""
        if rc_load_i64(&self.at) >= wanted:
            return RC_OK
        if rc_load_i64(&self.failed) != 0:
            return <int>rc_load_i64(&self.failed)
        return RC_CLOSED if rc_load_i64(&self.ended) != 0 else RC_MORE

    cdef void _insert(self, PositionSubscriber* s) noexcept nogil:
        """Put a subscriber behind those that want as much or less; the mutex is held."""
        cdef PositionSubscriber* before = self._last
        while before != NULL and before.wanted > s.wanted:
            before = before.before
        s.before = before
        s.after = self._first if before == NULL else before.after
        if before == NULL:
            self._first = s
        else:
            before.after = s
        if s.after == NULL:
            self._last = s
        else:
            s.after.before = s
        s.armed = 1
        rc_store_i64(&self.armed, self.armed + 1)

    cdef void _remove(self, PositionSubscriber* s) noexcept nogil:
        """Take an armed subscriber out of the list; the mutex is held."""
        if s.before == NULL:
            self._first = s.after
        else:
            s.before.after = s.after
        if s.after == NULL:
            self._last = s.before
        else:
            s.after.before = s.before
        s.before = s.after = NULL
        s.armed = 0
        rc_store_i64(&self.armed, self.armed - 1)

    cdef void _wake(self, int64_t upto) noexcept nogil:
        """Wake those who want no more than `upto`, least first; the mutex is held."""
        cdef int64_t one = 1
        cdef PositionSubscriber* s
        while self._first != NULL and self._first.wanted <= upto:
            s = self._first
            self._remove(s)
            if s.cond != NULL:
                pthread_cond_signal(s.cond)
                continue                    # it is on the stack of a thread, which waits for the mutex
            if s.fd >= 0:
                write_file(s.fd, &one, sizeof(one))     # a pipe that is full tells as well
            if s.wake_up != NULL:
                s.wake_up(s.argument)

    @property
    def waiting(self):
        """Subscribers that are armed, and threads in wait()."""
        return rc_load_i64(&self.armed)


@cython.no_gc_clear      # its end needs the position
cdef class PositionDescriptor:
    """A subscriber for Python: a descriptor gets 8 bytes when a position is reached.

    position  of a store that is open for writing
    fd        an eventfd, or a pipe's end that does not block; the caller's, who calls end() before closing it
    Raises ValueError if the store is closed.
    """

    def __cinit__(self, Position position not None, int fd):
        cdef int rc = position.subscribe(fd, NULL, NULL, &self._subscriber)
        if rc == RC_CLOSED:
            raise ValueError("the store is closed: its positions do not move")
        check(rc)
        self._position = position

    def __dealloc__(self):
        if self._position is not None:
            self._position.unsubscribe(self._subscriber)

    def arm(self, int64_t wanted):
        """Ask for one wake-up at a physical offset: True, or False if none comes: it is reached, or never will be."""
        return self._position.arm(self._subscriber, wanted) == RC_MORE

    def end(self):
        """Nothing is written to the descriptor any more. To be called again does no harm."""
        self._position.disarm(self._subscriber)
