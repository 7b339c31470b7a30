"""Records of a queue where they lie in the map: picked, held, not copied."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketc.c.status cimport RC_OK
from rocketc.c.vm cimport rc_guard
from rocketc.files._append_file cimport FileState, View
from rocketc.files._file_queue cimport FileQueue
from rocketc.store._results cimport QueueIdentity

cdef enum:
    RAW_ROWS = 32               # that need no memory of their own: as many as a broker hands out
    RAW_FILES = 4

# How a read of a queue ended: RocketMQ's GetMessageStatus. The numbers are the places in status.GetStatus.
cdef enum GetCode:
    GET_FOUND = 0
    GET_NO_MATCHED_MESSAGE = 1
    GET_MESSAGE_WAS_REMOVING = 2
    GET_OFFSET_FOUND_NULL = 3
    GET_OFFSET_OVERFLOW_BADLY = 4
    GET_OFFSET_OVERFLOW_ONE = 5
    GET_OFFSET_TOO_SMALL = 6
    GET_NO_MATCHED_LOGIC_QUEUE = 7
    GET_NO_MESSAGE_IN_QUEUE = 8

# One record, and what its unit says of it.
ctypedef struct RawRecord:
    const uint8_t* at           # `size` bytes in the map of a held file, until raw_release()
    int64_t phy_offset
    int64_t queue_offset        # of its first message, in the queue that was asked
    int64_t tags_code           # of the unit, or its extension; in a schedule topic the time of delivery
    int64_t unit                # number of the unit
    int32_t size
    int32_t count               # messages: more than 1 in a batch queue
    int32_t file                # its place in RawRecords.files

# What a read of a queue found. The caller owns it: raw_init() first, raw_free() last; it must not be moved between
# them. One thread uses it at a time.
ctypedef struct RawRecords:
    RawRecord* rows             # `count` of them, in the order of the queue
    int count
    int room
    int64_t messages            # of all rows together
    int64_t bytes
    int status                  # a GetCode
    int64_t next_offset         # queue offset to go on at
    int64_t min_offset          # of the queue: of its first message,
    int64_t max_offset          # ... and behind its last one
    int64_t filtered            # messages that were looked at and that the filter did not let pass
    int64_t last_phy            # physical offset of the last record that was looked at; -1: none
    bint suggest_slave          # that one is so far back that it may not be in memory any more
    RawRecord wrong             # the first record that is damaged, if any: next_offset is its queue offset
    FileQueue* log
    FileState** files           # held, each once, and kept in memory
    int file_count
    int file_room
    int file                    # the one that was sought last
    rc_guard guard
    int guarded                 # the file whose map this thread may touch, see raw_enter(); -1: none
    RawRecord some_rows[RAW_ROWS]
    FileState* some_files[RAW_FILES]

cdef class RawGetResult:
    cdef:
        RawRecords raw
        Py_ssize_t _exports     # buffers that Python objects have of the map
        bint _released
    cdef RecordRun _run(self, int first, int end)

cdef class RecordRun:
    cdef:
        RawGetResult _result    # holds the file
        const uint8_t* _at
        Py_ssize_t _size

cdef inline RawRecord* raw_add(RawRecords* h, int32_t size, int32_t messages) noexcept nogil:
    """One record more, for the caller to fill in: its size and messages are. NULL without memory."""
    cdef RawRecord* row
    if h.count == h.room and raw_reserve(h, <int64_t>2 * h.room) != RC_OK:
        return NULL
    row = &h.rows[h.count]
    row.size = size
    row.count = messages
    h.count += 1
    h.messages += messages
    h.bytes += size
    return row


cdef inline int raw_seek(RawRecords* h, int64_t phy_offset) noexcept nogil:
    """Let h.file be the file that covers phy_offset, held: RC_OK, ENOENT, or what mapping it said."""
    if h.file >= 0 and h.files[h.file].start <= phy_offset < h.files[h.file].start + h.log.file_size:
        return RC_OK
    return raw_hold(h, phy_offset)


cdef inline FileState* raw_enter(RawRecords* h, int file) noexcept nogil:
    """From here on this thread may touch the map of a held file, until raw_rest() or another one is entered."""
    if h.guarded != file:
        raw_guard(h, file)
    return h.files[file]


cdef void raw_init(RawRecords* h) noexcept nogil
cdef void raw_clear(RawRecords* h) noexcept nogil
cdef void raw_release(RawRecords* h) noexcept nogil
cdef void raw_free(RawRecords* h) noexcept nogil
cdef int raw_reserve(RawRecords* h, int64_t room) noexcept nogil
cdef int raw_hold(RawRecords* h, int64_t phy_offset) noexcept nogil
cdef void raw_guard(RawRecords* h, int file) noexcept nogil
cdef void raw_rest(RawRecords* h) noexcept nogil
cdef void raw_cut_back(RawRecords* h, int count) noexcept nogil
cdef int raw_check(RawRecords* h, const QueueIdentity* of) noexcept nogil
cdef View raw_view(const RawRecords* h, int row, int64_t skip, int64_t size)
cdef int raw_run_end(const RawRecords* h, int first) noexcept nogil
