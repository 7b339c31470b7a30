"""The files of an index in order. One thread puts keys; any thread may look up keys meanwhile."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketc.c.service cimport pthread_mutex_t
from rocketc.derived._mapped_index_file cimport MappedIndexFile

# The position of a look-up: index_cursor() sets it to the start, find() advances it.
ctypedef struct IndexCursor:
    int64_t file            # name of the file where it continues, or of a newer one; -1: at the end
    int64_t unit            # number of the next unit in the chain; 0: begin at the slot
    bint java               # exactly RocketMQ's rules for times; otherwise no record of the interval is missed
    int64_t last_timestamp  # of the newest file: RocketMQ's indexLastUpdateTimestamp and indexLastUpdatePhyOffset
    int64_t last_phy_offset
    int64_t damage          # for RC_BAD_CHAIN: the damaged byte of `file`
    int error               # for RC_NO_FILE: errno of mapping the file

cdef int32_t key_hash(int32_t java_hash) noexcept nogil     # for put() and find(); java_hash: rc_jhash() of "topic#key"
cdef int record_hashes(
    int32_t topic_hash, const uint8_t* unique_key, int32_t unique_key_len, const uint8_t* keys, int32_t keys_len,
    int32_t* out, int room,
) noexcept nogil
cdef void index_cursor(IndexCursor* cursor, bint java) noexcept nogil

cdef class IndexFileQueue:
    cdef:
        pthread_mutex_t _mutex  # guards _parts, _count, _room, and increments of holds
        MappedIndexFile** _parts      # by name
        int _count
        int _room
        MappedIndexFile* _last        # the file that is written; NULL: none; used by the writer only
        char* _folder           # pointer to _encoded
        int64_t _names          # 1: a file was created and its name is not durable yet
        int64_t _clock          # ms for the names of new files in stores without threads and in tests; or negative
        int64_t _full_timestamp  # ms: end of the newest full file that is durable
        int64_t _unread         # name of the first file that load() rejected; -1: none
        int _lost               # errno of the first failed sync
        int error               # result of the last put
        bint _ready
        bint _closed
        bytes _encoded
    cdef readonly:
        str folder
        long long slots
        long long units
        bint read_only
    cdef int put(self, int32_t key_hash, int64_t phy_offset, int64_t store_timestamp) noexcept nogil
    cdef void prefetch(self, int32_t key_hash) noexcept nogil
    cdef int find(
        self, int32_t key_hash, int64_t begin, int64_t end, int64_t* out, int room, IndexCursor* cursor,
    ) noexcept nogil
    cdef int64_t end_phy(self) noexcept nogil
    cdef int flush_files(self, bint active, int64_t* timestamp) noexcept nogil
    cdef object failure(self, int rc, IndexCursor* cursor)
    cdef int _next_file(self) noexcept nogil
    cdef int _make_file(self, int64_t name, MappedIndexFile* before) noexcept nogil
    cdef MappedIndexFile* _part(self, int i) noexcept nogil
    cdef int _push(self, MappedIndexFile* p) noexcept nogil
    cdef int _find_part(self, int64_t name) noexcept nogil
    cdef MappedIndexFile* _hold(self, int64_t name, bint exact, int* rc) noexcept nogil
    cdef bint _after(self, MappedIndexFile* copy, char* path) noexcept nogil
    cdef int _remove(self, int i) except -1
    cdef bint _take_out(self, int i) noexcept
    cdef int _check_open(self) except -1
