"""Rows put into the queues and the index beside the thread that reads the log."""
from libc.stdint cimport int32_t, int64_t

from rocketc.c.service cimport rc_service
from rocketc.derived._consume_queue_units cimport ConsumeQueue
from rocketc.derived._key_index cimport KeyIndex
from rocketc.format._queue_units cimport Unit

cdef enum:
    MOST_HASHES = 16384     # of one record: 32767 bytes of keys and blanks
    BLOCK_ROWS = 2048       # that are given to the thread at once; less is put by who has them
    BLOCK_HASHES = MOST_HASHES + 2 * BLOCK_ROWS

# One record, or one more queue that it goes to, taken apart.
ctypedef struct DispatchRequest:
    ConsumeQueue* q         # NULL: none
    Unit unit
    int64_t end             # physical offset behind the record
    int first_hash          # its keys in the hashes beside the rows
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
        rc_service _done    # no thread: who waits for the other one waits here
        DispatchBlock _blocks[2]
        int _turn           # which of them is being filled
        int64_t _given      # 1 while the thread has not put the other one
        int _rc             # of what was put last; read once _given is 0, as the next three
        bint _ready
        int64_t unqueued    # rows that no queue could take
        bint doubt          # ... for what a queue's files say can't be
        const char* error_path
    cdef int put(self, const DispatchRequest* row, const int32_t* hashes) noexcept nogil
    cdef int end(self) noexcept nogil
    cdef int _hand_over(self) noexcept nogil
    cdef void _wait(self) noexcept nogil
    cdef void _put_all(self, DispatchBlock* b) noexcept nogil
    cdef int _put_row(self, DispatchRequest* row, const int32_t* hashes) noexcept nogil
    cdef void _run(self) noexcept nogil
