"""A table from texts to numbers, searched by bytes without the GIL."""
from libc.stdint cimport int32_t, uint8_t

cdef enum Verdict:
    SKIP = 0
    KEEP = 1
    UNKNOWN = 2             # a topic that Filter.judge() has not decided yet

# A text and its verdict; a slot with p NULL is free.
ctypedef struct Judged:
    uint8_t* p              # n bytes, owned by the table
    int32_t n
    int32_t verdict


cdef class TextTable:
    cdef:
        Judged* _slots      # 2^n of them, at most half in use
        size_t _mask
        size_t count
    cdef Judged* _slot(self, const uint8_t* p, int n) noexcept nogil
    cdef int get(self, const uint8_t* p, int n) noexcept nogil
    cdef int put(self, const uint8_t* p, int n, int verdict) except -1
