"""bytes.h: big-endian numbers at any address."""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t


cdef extern from "rocketc/bytes.h" nogil:
    int16_t rc_get_i16(const uint8_t* p) noexcept
    int32_t rc_get_i32(const uint8_t* p) noexcept
    int64_t rc_get_i64(const uint8_t* p) noexcept
    void rc_put_i16(uint8_t* p, int16_t v) noexcept
    void rc_put_i32(uint8_t* p, int32_t v) noexcept
    void rc_put_i64(uint8_t* p, int64_t v) noexcept
    size_t rc_zero_prefix(const uint8_t* p, size_t n) noexcept
    size_t rc_trim_zeros(const uint8_t* p, size_t n) noexcept
    size_t rc_find_either(const uint8_t* p, size_t n, uint8_t a, uint8_t b) noexcept
