"""text.h: hex, hosts, and copies of short strings."""
from libc.stdint cimport uint8_t, uint32_t


cdef extern from "rocketc/text.h" nogil:
    enum:
        RC_HOST_TEXT_MAX
        RC_COPY_SLACK
    void rc_copy_slack(uint8_t* dst, const uint8_t* src, size_t n) noexcept
    void rc_copy_short(uint8_t* dst, const uint8_t* src, size_t n, const uint8_t* end) noexcept
    void rc_copy_stream(uint8_t* dst, const uint8_t* src, size_t n) noexcept
    void rc_stream_end() noexcept
    void rc_hex(uint8_t* dst, const uint8_t* src, size_t n) noexcept
    int rc_decimal(uint8_t* dst, uint32_t v) noexcept
    int rc_ipv4_text(uint8_t* dst, const uint8_t* address) noexcept
    int rc_ipv6_text(uint8_t* dst, const uint8_t* address) noexcept
    int rc_host_text(uint8_t* dst, const uint8_t* host, int width) noexcept
