"""One pass over the records of the log when it is opened."""
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
        long long trusted
        long long records
        long long end               # end of the last record; -1: there was none
        long long durable_end       # end of the last record that is known to be durable; -1: there was none
        long long torn              # first record after durable_end whose end is missing; torn_end: its end; -1: none
        long long torn_end
        long long timestamp         # ms, of the last record; 0: there was none
        long long first             # start of the first record; -1: there was none
        long long mark              # physical offset, see mark_time
        long long mark_time         # ms, of the record that ends at `mark`; -1: there was none
        bint odd                    # a record has a damaged queue offset: merge() does not take this pass
        list boundaries             # physical offsets where a record ends, at least `apart` bytes apart
    cdef int64_t _apart
    cdef int64_t _next_boundary
    cdef int64_t _found[BLOCK_RECORDS]      # boundaries in the current block
    cdef DeletedTopicOffsets deleted_topics      # None: no topic was deleted
    cdef QueueSlot* _recent[RECENT]
    cdef int _note(self, const Record* r, int64_t start) noexcept nogil
    cdef int _raise(self, const Record* r, int64_t next_offset, bint may_lower) noexcept nogil
    cdef int _merge_offsets(self, QueueOffsets of, bint may_lower) noexcept nogil
