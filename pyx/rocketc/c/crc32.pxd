"""crc32.h: CRC-32 as zlib computes it, in five implementations."""
from libc.stdint cimport int32_t, uint8_t, uint32_t


cdef extern from "rocketc/crc32.h" nogil:
    enum:
        RC_CRC32_TABLE
        RC_CRC32_PCLMUL
        RC_CRC32_VPCLMUL256
        RC_CRC32_VPCLMUL512
        RC_CRC32_ARM64
        RC_CRC32_WAYS
    ctypedef uint32_t (*rc_crc32_fn)(uint32_t crc, const uint8_t* p, size_t n) noexcept nogil
    rc_crc32_fn rc_crc32_way(int way) noexcept
    int rc_crc32_best() noexcept
    int32_t rc_body_crc(rc_crc32_fn crc32, const uint8_t* p, size_t n) noexcept
