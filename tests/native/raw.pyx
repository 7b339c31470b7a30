# cython: language_level=3
"""A caller from outside of the package: it copies a log by pointers, and makes no Python object of a block."""
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport INT64_MAX, int64_t, uint8_t
from posix.unistd cimport usleep

from rocketc.c.status cimport RC_OK
from rocketc.files._file_queue cimport FileQueue
from rocketc.log._commit_log cimport CommitLog
from rocketc.log._raw_log cimport RawAppended, RawBytes, raw_append, raw_read, raw_release
from rocketc.store._store cimport MessageStore


def copy(MessageStore master not None, MessageStore replica not None, int64_t start, int64_t max_bytes=65536):
    """Bring a replica up to its master's end; (code, the physical offset that it came to)."""
    cdef CommitLog log = replica.log
    cdef FileQueue* q = master.log.q
    cdef RawBytes raw
    cdef RawAppended out
    cdef int rc = RC_OK
    out.end = start
    with nogil:
        while rc == RC_OK:
            rc = raw_read(q, out.end, INT64_MAX, max_bytes, True, &raw)
            if rc != RC_OK or raw.size == 0:
                break
            rc = raw_append(log, out.end, raw.data, raw.size, &out)
            raw_release(&raw)
    return rc, out.end


def read(MessageStore store not None, int64_t phy_offset, int64_t limit, int64_t max_bytes, bint whole):
    """(code, bytes), as raw_read() has them."""
    cdef RawBytes raw
    cdef int rc = raw_read(store.log.q, phy_offset, limit, max_bytes, whole, &raw)
    found = raw.data[:raw.size] if rc == RC_OK and raw.size > 0 else b""
    raw_release(&raw)
    raw_release(&raw)       # does nothing
    return rc, found


def append(MessageStore store not None, int64_t phy_offset, bytes data not None):
    """(code, end, records, at), as raw_append() has them."""
    cdef RawAppended out
    cdef CommitLog log = store.log
    cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(data)
    cdef int64_t size = len(data)
    cdef int rc
    with nogil:
        rc = raw_append(log, phy_offset, p, size, &out)
    return rc, out.end, out.records, out.at


def offsets_of(MessageStore store not None):
    """The QueueOffsets of a store."""
    return store.log.offsets


def keep_put_lock(MessageStore store not None, unsigned int us):
    """Nobody appends for so long."""
    cdef CommitLog log = store.log
    with nogil:
        log.lock.lock()
        usleep(us)
        log.lock.unlock()
