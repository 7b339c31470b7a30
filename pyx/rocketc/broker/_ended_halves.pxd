"""Which half messages are ended: a bit for each."""
from libc.stdint cimport int32_t, int64_t, uint8_t


cdef class EndedHalves:
    cdef:
        dict _pages             # bytearrays of bits, by half queue and offset
        int64_t _number         # of the page that was used last; -1: none
        bytearray _page
    cdef uint8_t* _byte_of(self, int32_t queue_id, int64_t offset, bint is_new) except? NULL
    cpdef int add(self, int32_t queue_id, int64_t offset) except -1
    cpdef bint has(self, int32_t queue_id, int64_t offset) except -1
