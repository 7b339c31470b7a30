"""The commit log: where a record goes, and what is written into it there."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketc.c.histogram cimport rc_histogram
from rocketc.files._allocator cimport Allocator
from rocketc.files._append_file cimport FileState
from rocketc.files._file_queue cimport FileQueue
from rocketc.files._mapped_file_queue cimport MappedFileQueue
from rocketc.format._record cimport MessageArgs
from rocketc.log._flusher cimport Flusher
from rocketc.log._put_locks cimport PutMessageLock
from rocketc.log._queue_offsets cimport QueueOffsets

# One record of a call; what the records of a call share stands in its MessageArgs.
ctypedef struct Entry:
    const uint8_t* body
    int32_t body_len
    int32_t flag
    const uint8_t* props    # as stored
    int32_t props_len
    int32_t body_crc        # set by append
    int64_t size            # bytes of the record; set by append

# What became of a call.
ctypedef struct Appended:
    int64_t count           # records that are in the log: the first ones of the call
    int64_t phy_offset      # of the first
    int64_t queue_offset    # of the first
    int64_t store_timestamp  # ms, of the last
    int64_t size            # bytes of all of them
    int64_t end             # physical offset behind the last
    int error               # RC_NO_FILE: the errno

cdef class CommitLog:
    cdef:
        Allocator a
        Flusher fl
        FileQueue* q
        FileState* _last        # the file that is written to; NULL: there is none yet. Guarded by the put lock
        bint _ready             # a and fl are made
        bint _running           # their threads run
        int64_t _clock          # test hook: the store timestamp, if not negative
        int64_t _in_lock_since  # ms; 0 while nobody holds the put lock
        int64_t _busy_ms
        int64_t _create_ns      # how long the next file is waited for
        int64_t _max_body
        bint _property_crc
        bint _wake_flush        # each put wakes the flush
        bint _wake_commit       # ... or the commit, once it has enough pages
        int64_t _last_end       # physical offset behind the last record
        int64_t appended        # records
        int64_t appended_bytes
        int64_t rolls
        int64_t waits           # how often the put lock was not free
        rc_histogram put_time   # of a sample
        rc_histogram roll_time
        rc_histogram lock_time  # of the waits
    cdef readonly:
        MappedFileQueue queue
        QueueOffsets offsets
        PutMessageLock lock
    cdef int append(
        self, MessageArgs* d, Entry* entries, int n, bint whole, int advance, int64_t expected, bint at_once,
        Appended* out,
    ) noexcept nogil
    cdef int _append_some(
        self, MessageArgs* d, Entry* entries, int n, bint whole, int64_t advance, bint at_once, Appended* out,
    ) noexcept nogil
    cdef int _measure(self, MessageArgs* d, Entry* entries, int n, bint whole) noexcept nogil
    cdef int _make_room(self, int64_t size, Appended* out) noexcept nogil
    cdef int _commit_before(self, FileState* f) noexcept nogil
    cdef int _blank(self) noexcept nogil
    cdef void _publish(self, FileState* f, int64_t wrote, int64_t timestamp) noexcept nogil
    cdef void _take_lock(self) noexcept nogil
    cdef bint _take_lock_at_once(self, int64_t size) noexcept nogil
    cdef void _let_go(self) noexcept nogil
    cdef bint is_busy(self) noexcept nogil
