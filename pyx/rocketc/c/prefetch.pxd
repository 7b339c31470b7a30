"""prefetch.h: prefetching of cache lines."""


cdef extern from "rocketc/prefetch.h" nogil:
    void rc_prefetch(const void* p) noexcept
    void rc_prefetch_for_writing(const void* p) noexcept

cdef enum:
    LINE_BYTES = 64
