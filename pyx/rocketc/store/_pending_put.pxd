"""A put that may not be durable yet."""
from libc.stdint cimport int64_t

from rocketc.log._commit_log cimport CommitLog
from rocketc.log._put_result cimport PutResult

cdef class PendingPut:
    cdef:
        CommitLog _log
        readonly object _store
        readonly PutResult _put
        readonly str _topic
        readonly long long _until   # ns of the monotonic clock; 0: result() does not wait

cdef PendingPut new_pending_put(type kind, object store, CommitLog log, PutResult put, str topic, int64_t until)
