"""json.h: pieces of JSON text."""
from libc.stdint cimport int64_t, uint8_t


cdef extern from "rocketc/json.h" nogil:
    enum:
        RC_JSON_GROWTH
        RC_JSON_I64_MAX
    size_t rc_json_char(uint8_t* dst, uint8_t c) noexcept
    size_t rc_json_text(uint8_t* dst, const uint8_t* src, size_t n) noexcept
    size_t rc_json_base64(uint8_t* dst, const uint8_t* src, size_t n) noexcept
    size_t rc_json_i64(uint8_t* dst, int64_t v) noexcept
