"""The extension of one consume queue: data that does not fit into a unit. The unit holds its address instead."""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from rocketc.files._append_file cimport FileState
from rocketc.files._file_queue cimport FileQueue

# One unit, decoded.
ctypedef struct ExtUnit:
    int64_t tags_code
    int64_t store_timestamp  # ms
    int16_t bit_map_size    # bytes

# One extension. Only the dispatcher writes. Readers load `end` first and read nothing at or after it.
ctypedef struct ExtQueue:
    FileQueue files         # of the kind FILE_SPARSE, or FILE_READ
    FileState* last         # the file that is written to, or NULL
    char* folder
    int64_t end             # offset after the last unit; the end of a full file counts as used
    int64_t loaded          # old end while units are written again, from loading or ext_begin(); 0 after ext_finish()
    int64_t repaired        # units that differed when they were written again, and nonzero bytes after a unit
    int64_t window          # bytes of the next room
    int64_t put_phy_offset  # physical offset of the last record that the queue put; -1: none
    int64_t put_address     # address of its unit


cdef inline bint is_ext_address(int64_t tags_code) noexcept nogil:
    """Return whether the tags code in a unit of the queue is an address. Hashes are never this low."""
    return tags_code <= -2147483649LL


cdef ExtQueue* ext_new(
    const char* above, const uint8_t* topic, int32_t topic_len, int32_t queue_id, int64_t file_size, int kind,
) noexcept nogil
cdef void ext_free(ExtQueue* x) noexcept nogil
cdef int ext_load(ExtQueue* x, int* problems) noexcept nogil
cdef int ext_put(
    ExtQueue* x, int64_t tags_code, int64_t store_timestamp, const uint8_t* bit_map, int16_t bit_map_size,
    int64_t* address,
) noexcept nogil
cdef int ext_get(
    ExtQueue* x, int64_t address, ExtUnit* unit, uint8_t* bit_map, int room,
) noexcept nogil
cdef int ext_truncate_by_max(ExtQueue* x, int64_t address) noexcept nogil
cdef int ext_truncate_by_min(ExtQueue* x, int64_t address, int* deleted) noexcept nogil
cdef int ext_begin(ExtQueue* x, int64_t last, int64_t following) noexcept nogil
cdef int ext_finish(ExtQueue* x) noexcept nogil
cdef int ext_clear(ExtQueue* x) noexcept nogil
cdef int ext_flush(ExtQueue* x, const char** path) noexcept nogil
