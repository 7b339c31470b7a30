"""A put that may not be durable yet."""
from rocketc.log._commit_log cimport CommitLog
from rocketc.log._put_result cimport PutResult

cdef class PendingPut:
    cdef:
        CommitLog _log
        readonly object _store
        readonly PutResult _put
        readonly long long _until
