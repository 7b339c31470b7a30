"""Frames of the remoting protocol, cut out of a stream of bytes."""
from libc.stdint cimport uint8_t, uint32_t

cdef enum:
    FRAME_MAX = 16 << 20        # bytes of a frame after its length; more is refused
    HEADER_MAX = 256 << 10      # bytes of the header of a request: 32767 escaped characters of properties, and the rest
    FORM_JSON = 0
    FORM_ROCKETMQ = 1           # the binary form of a header

# One frame. Its pointers are valid until the next feed().
ctypedef struct Frame:
    const uint8_t* header
    const uint8_t* body
    uint32_t header_size        # bytes
    uint32_t body_size
    uint8_t form                # of the header: FORM_JSON or FORM_ROCKETMQ

cdef int cut_frame(const uint8_t* p, size_t left, uint32_t header_most, Frame* frame) noexcept nogil

cdef class FrameDecoder:
    cdef:
        uint8_t* _own           # the memory of this object, while _bytes is that of a caller
        bint _is_lent
        uint32_t _header_most   # bytes
        uint8_t* _bytes         # the bytes from _at to _end are fed and not decoded yet
        size_t _at
        size_t _end
        size_t _room            # allocated bytes
    cdef readonly:
        bint is_corrupt         # a size was impossible: nothing more is decoded
    cdef bint lend(self, const uint8_t* src, size_t n) noexcept
    cdef int keep(self) except -1
    cdef int feed(self, const uint8_t* src, size_t n) except -1
    cdef int next(self, Frame* frame) noexcept nogil
    cdef void put_back(self, const Frame* frame) noexcept
    cdef bint has_frame(self) noexcept
    cdef bint has_more_than(self, int count) noexcept
    cdef bint is_empty(self) noexcept
    cdef size_t left(self) noexcept
