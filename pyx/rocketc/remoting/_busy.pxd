"""Requests that have waited for too long, and the answers to them."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketc.remoting._frames cimport Frame

cdef bint outline_of(const Frame* frame, int32_t* code, int32_t* opaque, int32_t* flag) noexcept nogil

cdef class BusyAnswers:
    cdef:
        object _patience
        int32_t _code           # of the last request
        double _allowed         # seconds that requests with this code may wait
        bytes _before           # the parts of an answer around the number of its request
        bytes _after
        uint8_t* _answers
        size_t _size
        size_t _room
    cdef readonly int64_t refused       # requests
    cdef bint refuse(self, int32_t code, int32_t opaque, bint is_oneway, double waited) except -1
    cdef int add(self, int32_t opaque) except -1
    cdef bytes take(self)
