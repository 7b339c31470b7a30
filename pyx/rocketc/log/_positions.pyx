# cython: language_level=3
"""Positions in the log that only grow, and the waits for them: the flushed, the confirmed and the written position.

A Position keeps its waiting subscribers in a list, ordered by the offset that each waits for. A move checks the front
of the list only, and removes the subscribers whose offset is reached. So subscribers that wait for a higher offset cost
a move nothing and are not woken. Most subscribers wait for offsets in the order in which records are appended, so a new
one is inserted at or near the end of the list.
Source: RocketMQ GroupCommitService and GroupTransferService, which keep a request for each message.
"""
cimport cython
from libc.errno cimport ENOMEM
from libc.stdint cimport INT64_MAX, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from posix.unistd cimport write as write_file

from rocketc._status cimport check
from rocketc.c.atomic cimport rc_fence_full, rc_load_i64, rc_store_i64
from rocketc.c.service cimport (
    pthread_cond_destroy, pthread_cond_signal, pthread_cond_t, pthread_mutex_destroy, pthread_mutex_init,
    pthread_mutex_lock, pthread_mutex_unlock, rc_clock_ns, rc_cond_init, rc_cond_wait, rc_service_wake,
)
from rocketc.c.status cimport RC_CLOSED, RC_FLUSH_TIMEOUT, RC_MORE, RC_OK

cdef enum:
    CLOSED = 1
    FORKED = 2


cdef class Position:
    """A physical offset that only grows. Any number of threads and subscribers can wait for it.

    A CommitLog has three: `flushed_position` (all bytes before it are durable), `confirmed_position`, and
    `written_position` (all bytes before it can be read). A put moves the last one only while there are waiters, so that
    it costs other puts nothing; its `source` is exact. The functions that run without the GIL return RC_OK or a code.
    The owner of a subscriber keeps a reference to the Position until unsubscribe().
    """

    def __cinit__(self):
        check(pthread_mutex_init(&self._mutex, NULL))
        self._ready = True

    def __dealloc__(self):
        if self._ready and self.ended != FORKED:
            pthread_mutex_destroy(&self._mutex)

    # for waiting threads and subscribers

    cdef int subscribe(self, int fd, WakeUp wake_up, void* argument, PositionSubscriber** subscriber) noexcept nogil:
        """Create a subscriber. It waits for nothing until arm() is called.

        fd          8 bytes are written to it for each wake-up: an eventfd, or a nonblocking pipe; owned by the caller;
                    -1: none
        wake_up     called with argument for each wake-up; or NULL
        subscriber  set; free it with unsubscribe()
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
        """Ask for one wake-up when the position reaches `wanted`. This replaces an earlier request of the subscriber.

        Returns RC_OK: the offset is already reached, and no wake-up follows; RC_MORE: a wake-up follows; RC_CLOSED, or
        the reason why the store has failed: the offset will never be reached.
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
            if self.source != NULL:
                rc_fence_full()             # the mover stores the source, then looks for waiters
                rc = self._state(wanted)
                if rc != RC_MORE:
                    self._remove(s)
            if self._first == s and self.mover != NULL and rc_load_i64(self.mover_asked) != 0:
                rc_service_wake(self.mover)
        pthread_mutex_unlock(&self._mutex)
        return rc

    cdef int wait(self, int64_t wanted, int64_t until_ns, int64_t slice_ns) noexcept nogil:
        """Wait until the position reaches `wanted`. Any number of threads may wait; each is woken at its own offset.

        This call does not flush: the flusher's own thread does, unlike in flusher_wait(), where the calling thread may.
        until_ns  by rc_clock_ns()
        slice_ns  the longest wait of one call; the caller then handles signals and calls again
        Returns RC_OK, RC_MORE after slice_ns, RC_FLUSH_TIMEOUT at until_ns, RC_CLOSED, or the reason why the store
        failed.
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
        """Cancel the wake-up. After this call none follows, and nothing is written to the subscriber's descriptor."""
        if rc_load_i64(&self.ended) == FORKED:
            return
        pthread_mutex_lock(&self._mutex)
        if s.armed != 0:
            self._remove(s)
        pthread_mutex_unlock(&self._mutex)

    cdef void unsubscribe(self, PositionSubscriber* s) noexcept nogil:
        """Free a subscriber, also after the store was closed. No other thread may use it in or after this call."""
        self.disarm(s)
        free(s)

    # for the thread that moves the position

    cdef void advance(self, int64_t at) noexcept nogil:
        """Move the position forward, and wake the waiters whose offset is reached. A lower offset does nothing."""
        if rc_load_i64(&self.ended) == FORKED:
            return
        pthread_mutex_lock(&self._mutex)
        if at > self.at:
            rc_store_i64(&self.at, at)
            self._wake(at)
        pthread_mutex_unlock(&self._mutex)

    cdef void follow(self) noexcept nogil:
        """Move the position forward to its source, if there are waiters. The caller has stored the source."""
        rc_fence_full()
        if rc_load_i64(&self.armed) != 0:
            self.advance(rc_load_i64(self.source))

    cdef void fail(self, int rc) noexcept nogil:
        """Record that the store has failed permanently, and wake all waiters. The first reason is kept."""
        if rc_load_i64(&self.ended) == FORKED:
            return
        pthread_mutex_lock(&self._mutex)
        if self.failed == 0:
            rc_store_i64(&self.failed, rc)
        self._wake(INT64_MAX)
        pthread_mutex_unlock(&self._mutex)

    cdef void end(self) noexcept nogil:
        """Record that the store is closed, and wake all waiters. The position does not move any more."""
        if rc_load_i64(&self.ended) == FORKED:
            return
        pthread_mutex_lock(&self._mutex)
        rc_store_i64(&self.ended, CLOSED)
        self.mover = NULL
        self._wake(INT64_MAX)
        pthread_mutex_unlock(&self._mutex)

    cdef void forget(self) noexcept nogil:
        """In a forked child: no thread moves the position, and a thread of the parent may hold the mutex."""
        rc_store_i64(&self.ended, FORKED)
        self.mover = NULL

    # internal

    cdef int _state(self, int64_t wanted) noexcept nogil:
        """Return RC_OK if an offset is reached, RC_MORE if it is not reached yet, or why it never will be."""
        if rc_load_i64(&self.at if self.source == NULL else self.source) >= wanted:
            return RC_OK
        if rc_load_i64(&self.failed) != 0:
            return <int>rc_load_i64(&self.failed)
        return RC_CLOSED if rc_load_i64(&self.ended) != 0 else RC_MORE

    cdef void _insert(self, PositionSubscriber* s) noexcept nogil:
        """Insert a subscriber after those that wait for the same offset or a lower one. The mutex is held."""
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
        """Remove an armed subscriber from the list. The mutex is held."""
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
        """Wake the subscribers that wait for `upto` or less, lowest offset first. The mutex is held."""
        cdef int64_t one = 1
        cdef PositionSubscriber* s
        while self._first != NULL and self._first.wanted <= upto:
            s = self._first
            self._remove(s)
            if s.cond != NULL:
                pthread_cond_signal(s.cond)
                continue                    # it is on the stack of a thread, which waits for the mutex
            if s.fd >= 0:
                write_file(s.fd, &one, sizeof(one))     # a full pipe wakes its reader as well
            if s.wake_up != NULL:
                s.wake_up(s.argument)

    @property
    def waiting(self):
        """The number of armed subscribers and of threads in wait()."""
        return rc_load_i64(&self.armed)


@cython.no_gc_clear      # __dealloc__ needs the position
cdef class PositionDescriptor:
    """A subscriber for Python: 8 bytes are written to a descriptor when a position reaches an offset.

    position  of a store that is open for writing
    fd        an eventfd, or the write end of a nonblocking pipe; owned by the caller, which calls end() before it
              closes the descriptor
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
        """Ask for one wake-up at a physical offset. Return False if the offset is reached or will never be reached."""
        return self._position.arm(self._subscriber, wanted) == RC_MORE

    def end(self):
        """Stop writing to the descriptor. Further calls do nothing."""
        self._position.disarm(self._subscriber)
