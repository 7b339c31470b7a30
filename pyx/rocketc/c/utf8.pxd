"""utf8.h: check UTF-8, and replace invalid bytes as Java does."""
from libc.stdint cimport uint8_t


cdef extern from "rocketc/utf8.h" nogil:
    int rc_is_ascii(const uint8_t* p, size_t n) noexcept
    int rc_utf8_valid(const uint8_t* p, size_t n) noexcept
    size_t rc_utf8_repair(uint8_t* dst, const uint8_t* src, size_t n) noexcept
