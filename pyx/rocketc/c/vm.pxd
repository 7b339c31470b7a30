"""vm.h: memory maps of files; functions return 0 or an errno."""
from libc.stdint cimport int64_t, uint8_t


cdef extern from "rocketc/vm.h" nogil:
    ctypedef struct rc_guard:
        pass
    enum:
        RC_LARGE_BYTES
        RC_ZERO_BLOCK_MAX
    int rc_map_read(int fd, size_t len, uint8_t** base) noexcept
    int rc_map_own(size_t len, uint8_t** base) noexcept
    int rc_map_grow(uint8_t** base, size_t len, size_t new_len) noexcept
    int rc_unmap(uint8_t* base, size_t len) noexcept
    void rc_map_sequential(uint8_t* base, size_t len) noexcept
    void rc_map_random(uint8_t* base, size_t len) noexcept
    void rc_map_release(uint8_t* base, size_t start, size_t stop) noexcept
    int rc_write_at(int fd, const uint8_t* p, size_t len, int64_t at) noexcept
    int rc_write_zeros(int fd, size_t start, size_t stop, size_t block) noexcept
    void rc_forget_cache(int fd, size_t start) noexcept
    int rc_allocate(int fd, size_t len) noexcept
    int rc_allocate_range(int fd, int64_t start, int64_t stop) noexcept
    int rc_clear_from(int fd, int64_t pos, int64_t size) noexcept
    int64_t rc_data_end(int fd) noexcept
    int rc_open_file(const char* path, int flags) noexcept
    void rc_free_space(int fd, int64_t start, int64_t stop) noexcept
    void rc_free_unwritten(int fd, int64_t start, int64_t stop) noexcept
    int rc_new_file(const char* folder, const char* path, int* fd) noexcept
    int rc_name_file(int fd, const char* path) noexcept
    int rc_map_write(int fd, size_t len, uint8_t** base) noexcept
    void rc_touch(const uint8_t* p, size_t n) noexcept
    int rc_is_resident(uint8_t* base, size_t start, size_t stop) noexcept
    int rc_populate(uint8_t* base, size_t start, size_t stop) noexcept
    int rc_sync_map(uint8_t* base, size_t start, size_t stop) noexcept
    int rc_sync_file(int fd) noexcept
    int rc_sync_folder(const char* path) noexcept
    int rc_sync_all(const char* path) noexcept
    int rc_map_lock(uint8_t* base, size_t len) noexcept
    void rc_map_unlock(uint8_t* base, size_t len) noexcept
