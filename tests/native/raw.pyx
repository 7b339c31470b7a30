# cython: language_level=3
"""An extension outside of the package that copies a log through pointers, without a Python object for a block."""
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport INT64_MAX, int64_t, uint8_t

from rocketc.c.atomic cimport rc_load_i64
from rocketc.c.bytes cimport rc_put_i64
from rocketc.c.layout cimport RC_BLANK_BYTES, RC_MSG_PHYSICAL_OFFSET_AT, RC_MSG_QUEUE_OFFSET_AT
from rocketc.c.status cimport RC_OK
from rocketc.files._file_queue cimport FileQueue
from rocketc.log._commit_log cimport CommitLog
from rocketc.log._raw_log cimport RawAppended, RawBytes, raw_append, raw_read, raw_release
from rocketc.store._store cimport MessageStore


def copy(MessageStore master not None, MessageStore replica not None, int64_t start, int64_t max_bytes=65536):
    """Copy a log up to its master's end; return (code, physical offset reached)."""
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
    """The result of raw_read(): (code, bytes)."""
    cdef RawBytes raw
    cdef int rc = raw_read(store.log.q, phy_offset, limit, max_bytes, whole, &raw)
    found = raw.data[:raw.size] if rc == RC_OK and raw.size > 0 else b""
    raw_release(&raw)
    raw_release(&raw)       # a second release does nothing
    return rc, found


def append(MessageStore store not None, int64_t phy_offset, bytes data not None):
    """The result of raw_append(): (code, end, records, at)."""
    cdef RawAppended out
    cdef CommitLog log = store.log
    cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(data)
    cdef int64_t size = len(data)
    cdef int rc
    with nogil:
        rc = raw_append(log, phy_offset, p, size, &out)
    return rc, out.end, out.records, out.at


def append_often(MessageStore store not None, bytes record not None, int64_t times):
    """Append a record at the end of the log, unless another append is first, this number of times; count the successes.

    All records of the log have the same length and the same queue, so the queue offset follows from the physical
    offset.
    """
    cdef RawAppended out
    cdef CommitLog log = store.log
    cdef bytearray changed = bytearray(record)
    cdef uint8_t* p = <uint8_t*>PyByteArray_AS_STRING(changed)
    cdef int64_t size = len(record), file_size = log.q.file_size, at, done = 0
    cdef int64_t each = (file_size - RC_BLANK_BYTES) // size
    with nogil:
        while times > 0:
            times -= 1
            at = rc_load_i64(&log.q.wrote)
            if at % file_size + size + RC_BLANK_BYTES <= file_size:
                rc_put_i64(p + RC_MSG_PHYSICAL_OFFSET_AT, at)
                rc_put_i64(p + RC_MSG_QUEUE_OFFSET_AT, at // file_size * each + at % file_size // size)
                done += raw_append(log, at, p, size, &out) == RC_OK
    return done


def offsets_of(MessageStore store not None):
    """The QueueOffsets of a store."""
    return store.log.offsets
