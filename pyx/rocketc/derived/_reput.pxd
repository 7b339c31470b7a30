"""The thread that follows the log and dispatches its records, and the threads that wait for it."""
from libc.stdint cimport int64_t

from rocketc.c.service cimport pthread_mutex_t, rc_service
from rocketc.derived._change_feed cimport WakeupSlot
from rocketc.derived._dispatcher cimport Dispatcher
from rocketc.log._commit_log cimport CommitLog

cdef enum:
    SIZES = 33

cdef class ReputService(Dispatcher):
    cdef:
        rc_service service
        rc_service keeper       # the thread that makes queues and index durable
        pthread_mutex_t working     # locked while records are dispatched
        pthread_mutex_t flushing    # locked while queues and index are made durable
        WakeupSlot progress           # threads that wait until the log is dispatched to a position
        int64_t dispatched      # number of records
        int64_t dispatched_bytes
        int64_t sizes[SIZES]    # counts of dispatched records by size: sizes[i] for 2 ** (i - 1) < size <= 2 ** i bytes
        int64_t error           # why dispatching has stopped: an errno or a code; 0: it has not
        int64_t logged_error    # the error that was last logged
        int64_t most_behind     # bytes; a larger backlog is logged
        int64_t is_behind       # 1 after the backlog was logged
        int lost                # first failure to make queues or index durable
        bint follows_flush      # only durable records are dispatched
        int64_t held            # 1: only confirmed records are dispatched
        int64_t inside          # a _limit() inside the next record, so that it can't be dispatched; -1: there is none
        int64_t interval_ns     # of the keeper
        int64_t thorough_ns
        int64_t least_pages
        int64_t since[2]        # ns of the clock, without threads: start of the keeper's two intervals
        bint _ready
        bint _running
    cdef readonly:
        CommitLog log
    cdef int64_t _limit(self) noexcept nogil
    cdef bint _has_more(self) noexcept nogil
    cdef int _step(self) noexcept nogil
    cdef int _walk(self, int64_t limit) noexcept nogil
    cdef int _skip(self, int64_t at) noexcept nogil
    cdef int _advance(self) noexcept nogil
    cdef int reach(self, int64_t end) noexcept nogil
    cdef void _notify_progress(self) noexcept nogil
    cdef bint _is_awaited(self) noexcept nogil
    cdef bint _sleep(self, int64_t since) noexcept nogil
    cdef void _run(self) noexcept nogil
    cdef void _note(self) noexcept nogil
    cdef void _keep(self) noexcept nogil
    cdef bint _is_far(self, int64_t end) noexcept nogil
    cdef void settle_if_far(self) noexcept nogil
    cdef void _catch_up(self, int64_t most_ns) noexcept nogil
    cdef int wait_position(self, int64_t position, int64_t until_ns, int64_t slice_ns) noexcept nogil
    cdef int _reach_all(self, int64_t position) noexcept nogil
    cdef int flush(self, int64_t least_pages) noexcept nogil
