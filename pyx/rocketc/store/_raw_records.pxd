"""Records of a queue in the mapped log files: picked and held, but not copied."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketc.c.status cimport RC_OK
from rocketc.c.vm cimport rc_guard
from rocketc.files._append_file cimport FileState, View
from rocketc.files._file_queue cimport FileQueue
from rocketc.store._results cimport QueueIdentity

cdef enum:
    RAW_ROWS = 32               # rows inside RawRecords, without malloc: as many as a broker returns in one get
    RAW_FILES = 4               # files inside RawRecords

# The result of a read of a queue: RocketMQ's GetMessageStatus. The numbers are the indexes in status.GetStatus.
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

# One record, with the fields of its unit.
ctypedef struct RawRecord:
    const uint8_t* at           # `size` bytes in the map of a held file, until raw_release()
    int64_t phy_offset
    int64_t queue_offset        # of its first message, in the queue that was read
    int64_t tags_code           # of the unit, or its extension; in a schedule topic the time of delivery
    int64_t unit                # number of the unit
    int32_t size
    int32_t count               # number of messages; more than 1 in a batch queue
    int32_t file                # index in RawRecords.files

# The result of a read of a queue. The caller owns it: raw_init() first, raw_free() last; it must not be moved in
# between. One thread uses it at a time.
ctypedef struct RawRecords:
    RawRecord* rows             # `count` rows, in the order of the queue
    int count
    int room                    # number of allocated rows
    int64_t messages            # of all rows together
    int64_t bytes               # of all rows together
    int status                  # a GetCode
    int64_t next_offset         # queue offset at which the next read continues
    int64_t min_offset          # queue offset of the queue's first message
    int64_t max_offset          # queue offset after the queue's last message
    int64_t filtered            # number of messages that the filter rejected
    int64_t last_phy            # physical offset of the last record that was read; -1: no record was read
    bint suggest_slave          # that record is so old that it may not be in memory
    RawRecord wrong             # the first damaged record, if any; next_offset is its queue offset
    FileQueue* log
    FileState** files           # the files of the rows; each is held once
    int file_count
    int file_room
    int file                    # index of the file that raw_seek() found last; -1: none
    rc_guard guard
    int guarded                 # index of the file whose map this thread may read, see raw_enter(); -1: none
    RawRecord some_rows[RAW_ROWS]
    FileState* some_files[RAW_FILES]

cdef class RawGetResult:
    cdef:
        RawRecords raw
        Py_ssize_t _exports     # number of buffers of the map that Python objects use
        bint _released
    cdef RecordRun _run(self, int first, int end)

cdef class RecordRun:
    cdef:
        RawGetResult _result    # holds the file
        const uint8_t* _at
        Py_ssize_t _size

cdef inline RawRecord* raw_add(RawRecords* h, int32_t size, int32_t messages) noexcept nogil:
    """Add a row with this size and number of messages; the caller sets the other fields. NULL without memory."""
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
    """Hold the file that covers phy_offset, and set h.file to it. RC_OK, ENOENT, or an error of mapping the file."""
    if h.file >= 0 and h.files[h.file].start <= phy_offset < h.files[h.file].start + h.log.file_size:
        return RC_OK
    return raw_hold(h, phy_offset)


cdef inline FileState* raw_enter(RawRecords* h, int file) noexcept nogil:
    """Guard the map of a held file: this thread may read it until raw_rest() or raw_enter() of another file."""
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
