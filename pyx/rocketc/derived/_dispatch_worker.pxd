"""Put rows into the queues and the index on a thread of its own, beside the thread that reads the log."""
from libc.stdint cimport int32_t, int64_t

from rocketc.c.service cimport rc_service
from rocketc.derived._key_index cimport KeyIndex
from rocketc.derived._queue_files cimport ConsumeQueue
from rocketc.format._queue_units cimport Unit

cdef enum:
    MOST_HASHES = 16384     # most keys of one record: 32767 bytes of keys and spaces
    BLOCK_ROWS = 2048       # rows that are passed to the thread at once; the caller puts an incomplete block
    BLOCK_HASHES = MOST_HASHES + 2 * BLOCK_ROWS

# One record, decoded; or one of the further queues that the record goes to.
ctypedef struct DispatchRequest:
    ConsumeQueue* q         # NULL: not for a queue
    Unit unit
    int64_t end             # physical offset after the record
    int first_hash          # index of its first key in the hashes of the block
    int hash_count

ctypedef struct DispatchBlock:
    DispatchRequest rows[BLOCK_ROWS]
    int32_t hashes[BLOCK_HASHES]
    int row_count
    int hash_count

cdef class DispatchWorker:
    cdef:
        KeyIndex _index
        bint _whole
        bint _background
        rc_service _thread
        rc_service _done    # used without a thread of its own: the caller waits here for _thread
        DispatchBlock _blocks[2]
        int _turn           # number of the block that is being filled
        int64_t _given      # 1 until the thread has put the other block
        int _rc             # result of the last block; valid when _given is 0, like the next three fields
        bint _ready
        int64_t unqueued    # rows that were refused by their queue
        bint mismatch          # a queue's files disagree with the log
        const char* error_path
    cdef int put(self, const DispatchRequest* row, const int32_t* hashes) noexcept nogil
    cdef int end(self) noexcept nogil
    cdef int _hand_over(self) noexcept nogil
    cdef void _wait(self) noexcept nogil
    cdef void _put_all(self, DispatchBlock* b) noexcept nogil
    cdef int _put_row(self, DispatchRequest* row, const int32_t* hashes) noexcept nogil
    cdef void _run(self) noexcept nogil
