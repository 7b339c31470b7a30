"""Requests that have waited for too long, and the answers to them."""
from libc.stdint cimport int32_t, uint8_t

from rocketc.remoting._frames cimport Frame

cdef bint outline_of(const Frame* frame, int32_t* code, int32_t* opaque, int32_t* flag) noexcept nogil

cdef class BusyAnswers:
    cdef:
        bytes _before           # the parts of an answer around the number of its request
        bytes _after
        uint8_t* _answers
        size_t _size
        size_t _room
    cdef int add(self, int32_t opaque) except -1
    cdef bytes take(self)
