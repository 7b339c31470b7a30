"""Putting: the side of a store that takes messages."""
from libc.stdint cimport int32_t, int64_t

from rocketc.log._bodies cimport Bodies
from rocketc.log._commit_log cimport CommitLog, Entry
from rocketc.log._message_args cimport MessageArgsEncoder, PutCall
from rocketc.log._put_result cimport PutResult

cdef class Putting:
    cdef:
        MessageArgsEncoder _encoder
        CommitLog log       # None if read-only
        object _future      # the class of what put_async returns
        object _loop_waiters    # the class of _waiters
        object _waiters     # of aput, made when it is called first
        int64_t _calls      # all that are under way
        int64_t _main_calls  # of the main thread, which alone runs handlers of signals, and uses this alone
        int64_t _puts
        int64_t _refused    # puts that raised
        int64_t _timeout_ns
        unsigned long _generation   # of the process that opened it
        bint _sync
        bint _slave         # it takes what its master sends, nobody else's
        bint _closing
        bint _full          # a disk is too full, says the cleaner
        object _maintenance   # None if read-only
        object _tell        # a function that tells the log of the library what the threads have met
        object _numbering   # a lock: who puts messages with queue offsets in their properties
        set _known          # topics that were met; None: there is no table of them
        readonly str path
        readonly object config
        readonly bint closed
    cdef public object _finisher    # of put_async, made when somebody wants to be called back
    cdef bint _is_ours(self) noexcept
    cdef int _meet(self, str topic) except -1
    cdef int _enter(self) except -1
    cdef int _enter_reading(self) except -1
    cdef bint _is_inside(self) noexcept
    cdef int _tell_news(self) except -1
    cdef void _leave(self) noexcept
    cdef PutResult _put(
        self, str topic, body, tags, keys, properties, int32_t queue_id, int32_t flag, int32_t sys_flag, born_timestamp,
        born_host, store_host, int32_t reconsume_times, int64_t prepared, bint wait_store_ok, bint wait,
        int64_t expected=*,
    )
    cdef PutResult _put_numbered(
        self, str topic, body, tags, keys, properties, int32_t queue_id, int32_t flag, int32_t sys_flag, born_timestamp,
        born_host, store_host, int32_t reconsume_times, int64_t prepared, bint wait_store_ok, bint wait,
    )
    cdef PutResult _append(self, PutCall* c, list keep, str topic, Entry* entries, int n, bint whole, bint wait)
    cdef PutResult _put_bodies(self, PutCall* c, list keep, str topic, Bodies bodies, int32_t flag)
    cdef PutResult _put_rows(self, PutCall* c, list keep, str topic, list rows, bint whole)
    cdef object _status_of(self, int rc)
    cdef object _wait(self, int64_t end, int64_t until)
