"""One file of the index of a running store. Units are added at its end; readers follow chains of units."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketc.c.layout cimport RC_INDEX_HEADER_BYTES, RC_INDEX_SLOT_BYTES

# An index file as the threads of a store share it: one thread adds units, any thread may read.
ctypedef struct MappedIndexFile:
    uint8_t* base           # the whole file; NULL while not mapped
    size_t size             # bytes of the file, by the settings
    int64_t slots
    int64_t units           # room for units, including unit 0, which is never used
    int64_t units_at        # byte of unit 0
    int64_t name            # its creation time as a number of 17 digits; files are in this order
    int64_t holds           # 1 for the IndexFileQueue, 1 for each reader; only the queue unmaps, with its mutex locked
    int64_t count           # number of the next unit; stored last, with release
    int64_t begin_timestamp  # the numbers of the header, as in the map
    int64_t end_timestamp
    int64_t begin_phy
    int64_t end_phy
    int64_t used_slots
    int64_t ready           # bytes before this one have disk space and pages, and may be written
    int64_t dirty           # 1: there are units that are not synced
    bint writable           # how it is mapped
    bint allocated          # header and slots have disk space
    bint foreign            # another process may write it: its header may be older than its slots
    int fd                  # -1: not open; only the file that is written keeps it
    int cut                 # 1 after a page was missing: the file was truncated, or its disk failed
    char path[1]            # the whole path and a NUL

ctypedef struct IndexUnit:
    int32_t key_hash
    int64_t phy_offset
    int32_t time_diff       # seconds after the begin timestamp of the file
    int32_t previous

cdef MappedIndexFile* part_new(const char* path, int64_t name, int64_t slots, int64_t units) noexcept nogil
cdef void part_free(MappedIndexFile* p) noexcept nogil
cdef void part_unmap(MappedIndexFile* p) noexcept nogil
cdef void part_seal(MappedIndexFile* p) noexcept nogil
cdef int part_begin(MappedIndexFile* p, const MappedIndexFile* before) noexcept nogil
cdef int part_create(MappedIndexFile* p, const char* folder, const MappedIndexFile* before) noexcept nogil
cdef int part_map(MappedIndexFile* p, bint writable) noexcept nogil
cdef int part_read_header(MappedIndexFile* p) noexcept nogil
cdef int part_put(MappedIndexFile* p, int32_t key_hash, int64_t phy_offset, int64_t store_timestamp) noexcept nogil
cdef bint part_get(MappedIndexFile* p, int64_t number, IndexUnit* unit) noexcept nogil
cdef bint part_get_some(MappedIndexFile* p, int64_t number, int n, IndexUnit* units) noexcept nogil
cdef int part_search(
    MappedIndexFile* p, int32_t key_hash, int64_t begin, int64_t end, bint java, int64_t* out, int room, int64_t* unit,
    int64_t* damage,
) noexcept nogil
cdef int part_check(MappedIndexFile* p, int64_t* damage) noexcept nogil
cdef int part_sync(MappedIndexFile* p) noexcept nogil
cdef void part_free_rest(MappedIndexFile* p) noexcept nogil
cdef int32_t time_diff(int64_t begin_timestamp, int64_t store_timestamp) noexcept nogil
cdef void unit_times(
    int64_t begin_timestamp, int64_t number, int32_t diff, int64_t* least, int64_t* most,
) noexcept nogil


cdef inline bint part_is_full(const MappedIndexFile* p) noexcept nogil:
    return p.count >= p.units


cdef inline uint8_t* slot_of(const MappedIndexFile* p, int32_t key_hash) noexcept nogil:
    return p.base + RC_INDEX_HEADER_BYTES + RC_INDEX_SLOT_BYTES * (key_hash % <int32_t>p.slots)
