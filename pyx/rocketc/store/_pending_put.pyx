# cython: language_level=3
"""A put that may not be durable yet: the part of PutFuture that needs no Python."""
from libc.stdint cimport int64_t

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

    def result(self, timeout=None):
        """The PutResult, once it is durable. Raises StoreFailedError, and TimeoutError after timeout seconds."""
        if self._until == 0 or rc_load_i64(&self._log.q.flushed) >= self._put.end:
            return self._put
        return self._waited(timeout)


cdef PendingPut new_pending_put(type kind, object store, CommitLog log, PutResult put, int64_t until):
    """An instance of kind, which is PendingPut or derives from it, without a call of its __init__.

    The fields are those of PendingPut; log is the store's.
    """
    cdef PendingPut p = <PendingPut>kind.__new__(kind)
    p._store = store
    p._log = log
    p._put = put
    p._until = until
    return p


def mark_timed_out(PutResult put not None):
    """The message of put is stored, but it was not known to be durable in time."""
    put.status = FLUSH_DISK_TIMEOUT
