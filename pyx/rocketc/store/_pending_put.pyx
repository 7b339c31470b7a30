# cython: language_level=3
"""A put that may not be durable yet: the part of PutFuture that needs no Python."""
from rocketc.c.atomic cimport rc_load_i64
from rocketc.log._commit_log cimport CommitLog
from rocketc.log._put_result cimport PutResult

from rocketc.status import PutStatus

FLUSH_DISK_TIMEOUT = PutStatus.FLUSH_DISK_TIMEOUT


cdef class PendingPut:
    """What a PutFuture is without Python: most of them are only asked for a result that is there.

    _put     the PutResult
    _until   ns of the monotonic clock after which waiting has taken too long; 0: there is nothing to wait for
    _waited  of who inherits: waits, as result() does
    """

    def __init__(self, store, CommitLog log not None, PutResult put not None, long long until):
        self._store = store
        self._log = log
        self._put = put
        self._until = until

    def result(self, timeout=None):
        """The PutResult, once it is durable. Raises StoreFailedError, and TimeoutError after timeout seconds."""
        if self._until == 0 or rc_load_i64(&self._log.q.flushed) >= self._put.end:
            return self._put
        return self._waited(timeout)


def mark_timed_out(PutResult put not None):
    """The message of put is stored, but it was not known to be durable in time."""
    put.status = FLUSH_DISK_TIMEOUT
