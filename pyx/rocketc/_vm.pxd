"""vm.h: memory maps of files; 0 or an errno."""
from libc.stdint cimport uint8_t


cdef extern from "rocketc/vm.h" nogil:
    ctypedef struct rc_guard:
        pass
    enum:
        RC_LARGE_BYTES
    int rc_map_read(int fd, size_t len, uint8_t** base) noexcept
    int rc_map_own(size_t len, uint8_t** base) noexcept
    int rc_map_grow(uint8_t** base, size_t len, size_t new_len) noexcept
    int rc_unmap(uint8_t* base, size_t len) noexcept
    void rc_map_sequential(uint8_t* base, size_t len) noexcept
    void rc_map_random(uint8_t* base, size_t len) noexcept
    void rc_map_let_go(uint8_t* base, size_t start, size_t stop) noexcept
