"""The row of files of an index: one thread puts, any may look up meanwhile."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketc.c.service cimport pthread_mutex_t
from rocketc.derived._mapped_index_file cimport MappedIndexFile

# Where a look-up is: index_cursor() begins one, find() moves it on.
ctypedef struct IndexCursor:
    int64_t file            # name of the file it goes on in, or of a newer one; -1: at the end
    int64_t unit            # ... at this unit of the chain; 0: at its slot
    bint java               # RocketMQ's rules for times, exactly; else no record of the interval is missed
    int64_t last_timestamp  # of the newest file: RocketMQ's indexLastUpdateTimestamp and indexLastUpdatePhyOffset
    int64_t last_phy_offset
    int64_t damage          # RC_BAD_CHAIN: the byte of `file` that is wrong
    int error               # RC_NO_FILE: why a file can't be mapped

cdef int32_t key_hash(int32_t java_hash) noexcept nogil     # of "topic#key", by rc_jhash -> what put and find take
cdef int record_hashes(
    int32_t topic_hash, const uint8_t* unique_key, int32_t unique_key_len, const uint8_t* keys, int32_t keys_len,
    int32_t* out, int room,
) noexcept nogil
cdef void index_cursor(IndexCursor* cursor, bint java) noexcept nogil

cdef class IndexFileQueue:
    cdef:
        pthread_mutex_t _mutex  # _parts, _count, _room, and who may take a hold
        MappedIndexFile** _parts      # by name
        int _count
        int _room
        MappedIndexFile* _last        # the file that is written to; NULL: there is none. Of the writer
        char* _folder           # of _encoded
        int64_t _names          # 1: a file was made whose name is not durable yet
        int64_t _clock          # names new files, if not negative: ms, of a store without threads, and of tests
        int64_t _full_timestamp  # ms: end of the newest full file that is durable
        int64_t _unread         # name of the first file that load() did not take; -1: none
        int _lost               # errno of the first sync that failed
        int error               # of the last put: RC_OK or what it returned
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
