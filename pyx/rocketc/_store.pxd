"""MessageStore: put, flush, close."""
from libc.stdint cimport int32_t, int64_t

from rocketc._bodies cimport Bodies
from rocketc._commit_log cimport Appended, CommitLog, Entry
from rocketc._draft cimport Call, Drafter

cdef class PutResult:
    cdef:
        bytes _host         # 8 or 20 bytes
        readonly object status
        readonly long long phy_offset
        readonly long long queue_offset
        readonly long long store_timestamp
        readonly long long size
        readonly long long count
        readonly long long end

cdef class MessageStore:
    cdef:
        Drafter _drafter
        CommitLog log       # None if read-only
        object _root        # what belongs to the store beside its log: lock file, abort file, checkpoint
        object _future      # the class of what put_async returns
        object _loop_waiters    # the class of _waiters
        object _waiters     # of aput, made when it is called first
        int64_t _calls      # puts and flushes that are under way
        int64_t _puts
        int64_t _timeout_ns
        unsigned long _generation
        bint _sync
        bint _slave         # it takes what its master sends, nobody else's
        bint _closing
        readonly str path
        readonly object config
        readonly bint closed
    cdef public object _finisher    # of put_async, made when somebody wants to be called back
    cdef object __weakref__
    cdef int _enter(self) except -1
    cdef void _leave(self) noexcept
    cdef PutResult _put(
        self, str topic, body, tags, keys, properties, int32_t queue_id, int32_t flag, int32_t sys_flag, born_timestamp,
        born_host, store_host, int32_t reconsume_times, int64_t prepared, bint wait_store_ok, bint wait,
    )
    cdef PutResult _append(self, Call* c, list keep, str topic, Entry* entries, int n, bint whole, bint wait)
    cdef PutResult _put_bodies(self, Call* c, list keep, str topic, Bodies bodies, int32_t flag)
    cdef PutResult _put_rows(self, Call* c, list keep, str topic, list rows, bint whole)
    cdef object _status_of(self, int rc)
    cdef object _wait(self, int64_t end, int64_t until)
    cdef object _error(self, int rc, const Appended* out, str topic, const Entry* entries, int n)
    cdef object _failure(self)
