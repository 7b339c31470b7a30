"""Keys put into the index beside the thread that reads the log."""
from libc.stdint cimport int32_t, int64_t

from rocketc._key_index cimport KeyIndex
from rocketc._service cimport rc_service

cdef enum:
    KEY_ROWS = 4096         # keys that are given to the thread at once; less is put by who has them

# One key of one record.
ctypedef struct KeyRow:
    int64_t phy_offset
    int64_t store_timestamp
    int32_t hashed

cdef class KeyWriter:
    cdef:
        KeyIndex _index
        rc_service _thread
        rc_service _done    # no thread: who waits for the other one waits here
        KeyRow _rows[2][KEY_ROWS]
        int _turn           # which of them is being filled,
        int _count          # ... and how far
        int64_t _given      # rows of the other that the thread has not put yet
        int _rc             # of what the thread did; read once _given is 0
        bint _ready
    cdef int put(self, int32_t hashed, int64_t phy_offset, int64_t store_timestamp) noexcept nogil
    cdef int end(self) noexcept nogil
    cdef int _hand_over(self) noexcept nogil
    cdef void _wait(self) noexcept nogil
    cdef int _put_all(self, const KeyRow* rows, int64_t count) noexcept nogil
    cdef void _run(self) noexcept nogil
