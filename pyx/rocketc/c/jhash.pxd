"""jhash.h: Java's String.hashCode."""
from libc.stdint cimport int32_t, uint8_t


cdef extern from "rocketc/jhash.h" nogil:
    int32_t rc_jhash_from(int32_t start, const uint8_t* p, size_t n) noexcept
    int32_t rc_jhash(const uint8_t* p, size_t n) noexcept
