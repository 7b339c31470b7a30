"""atomic.h: numbers shared by threads without a lock."""
from libc.stdint cimport int32_t, int64_t, uint8_t


cdef extern from "rocketc/atomic.h" nogil:
    int64_t rc_load_i64(const int64_t* p) noexcept
    void rc_store_i64(int64_t* p, int64_t v) noexcept
    uint8_t rc_load_u8(const uint8_t* p) noexcept
    void rc_store_u8(uint8_t* p, uint8_t v) noexcept
    void* rc_load_pointer(void* const* p) noexcept
    void rc_store_pointer(void** p, void* v) noexcept
    int32_t rc_load_be32(const uint8_t* p) noexcept
    void rc_store_be32(uint8_t* p, int32_t v) noexcept
    int64_t rc_add_i64(int64_t* p, int64_t v) noexcept
    void rc_count_i64(int64_t* p, int64_t v) noexcept
    void rc_raise_i64(int64_t* p, int64_t v) noexcept
    int64_t rc_set_once_i64(int64_t* p, int64_t v) noexcept
    int rc_hold_i64(int64_t* p) noexcept
    void rc_fence_release() noexcept
    void rc_fence_full() noexcept
    void rc_touch_for_writing(uint8_t* p) noexcept
