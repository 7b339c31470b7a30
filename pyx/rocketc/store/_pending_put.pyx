# cython: language_level=3
"""A put that may not be durable yet: the part of PutFuture that is written in Cython."""
from libc.stdint cimport int64_t

from rocketc.c.atomic cimport rc_load_i64
from rocketc.log._commit_log cimport CommitLog
from rocketc.log._put_result cimport PutResult

from rocketc.status import PutStatus

FLUSH_DISK_TIMEOUT = PutStatus.FLUSH_DISK_TIMEOUT


cdef class PendingPut:
    """The base class of PutFuture. It is fast in the most common case: result() is called when the put is durable.

    _put     the PutResult
    _topic   of the message
    _until   end of the wait for the flush, ns of the monotonic clock; 0: result() does not wait
    _waited  method of the derived class: waits for the result, as result() does
    """

    def result(self, timeout=None):
        """Wait until the put is durable, and return its PutResult.

        Raises StoreFailedError, and TimeoutError after timeout seconds.
        """
        if self._until == 0 or rc_load_i64(&self._log.q.flushed) >= self._put.end:
            return self._put
        return self._waited(timeout)


cdef PendingPut new_pending_put(type kind, object store, CommitLog log, PutResult put, str topic, int64_t until):
    """Return a new instance of `kind`, which is PendingPut or a subclass, without calling its __init__().

    log  the commit log of the store
    The other arguments are the fields of PendingPut.
    """
    cdef PendingPut p = <PendingPut>kind.__new__(kind)
    p._store = store
    p._log = log
    p._put = put
    p._topic = topic
    p._until = until
    return p


def mark_timed_out(PutResult put not None):
    """Set the status of a put to FLUSH_DISK_TIMEOUT: it is stored, but was not known to be durable in time.

    Returns False if it had this status.
    """
    if put.status is FLUSH_DISK_TIMEOUT:
        return False
    put.status = FLUSH_DISK_TIMEOUT
    return True
