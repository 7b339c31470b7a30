"""One pass over the records of a log file at its opening."""
from libc.stdint cimport int64_t

from rocketc.format._record cimport Record
from rocketc.log._queue_offsets cimport QueueOffsets, QueueSlot
from rocketc.read._walk cimport BLOCK_RECORDS
from rocketc.tables._deleted_topics cimport DeletedTopicOffsets

cdef enum:
    RECENT = 64             # queues whose slot is found without a search


cdef class RecoveryPass:
    cdef readonly:
        QueueOffsets offsets
        long long durable
        long long flushed
        long long believed
        long long records
        long long end               # behind the last record; -1: there was none
        long long durable_end       # behind the last record that is known to be on the disk; -1: there was none
        long long torn              # first record behind durable_end whose end is missing, and where it would end; -1
        long long torn_end
        long long timestamp         # ms, of the last record; 0
        list boundaries             # physical offsets behind a record each, `apart` bytes apart or more
    cdef int64_t _apart
    cdef int64_t _next_boundary
    cdef int64_t _found[BLOCK_RECORDS]      # boundaries in the block at work
    cdef DeletedTopicOffsets gone        # None: no topic was deleted
    cdef QueueSlot* _recent[RECENT]
    cdef int _note(self, const Record* r, int64_t start) noexcept nogil
    cdef int _raise(self, const Record* r, int64_t next_offset, bint tells) noexcept nogil
