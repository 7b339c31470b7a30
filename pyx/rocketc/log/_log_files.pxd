"""The files of the commit log while it is written: their threads, room for the next record, the end of the log."""
from libc.stdint cimport int64_t

from rocketc.c.histogram cimport rc_histogram
from rocketc.files._allocator cimport Allocator
from rocketc.files._append_file cimport FileState
from rocketc.files._file_queue cimport FileQueue
from rocketc.files._mapped_file_queue cimport MappedFileQueue
from rocketc.log._flusher cimport Flusher
from rocketc.log._positions cimport Position
from rocketc.log._put_locks cimport PutMessageLock
from rocketc.log._queue_offsets cimport QueueOffsets

cdef class LogFiles:
    cdef:
        Allocator a
        Flusher fl
        FileQueue* q
        FileState* _last        # the file that is written to; NULL: none yet. Guarded by the put lock
        FileState* _given_up    # an empty first file that was deleted; NULL: none
        bint _ready             # a and fl are initialized
        bint _running           # their threads run
        bint _background        # False: no threads; step_flush() and step_ahead() do their work
        int64_t clock           # fixed store timestamp if not negative: in a store without threads, and in tests
        int64_t _stamped        # all files before it have the time of their last record; without threads only
        int64_t _create_ns      # longest wait for the next file
        int64_t last_end        # physical offset of the end of the last record
        int64_t rolls
        # The last wait under the put lock, which guards them: rc_clock_ns() of its begin, and its length
        int64_t _took_file_since, _took_file_ns     # for the next file
        int64_t _commit_since, _commit_ns           # for a commit of the pool, before a file without a buffer
        rc_histogram roll_time
    cdef readonly:
        MappedFileQueue queue
        QueueOffsets offsets
        PutMessageLock lock
        Position flushed_position       # all bytes before it are durable
        Position confirmed_position     # all bytes before it are confirmed, see confirm()
        Position written_position       # all bytes before it can be read; it moves while there are waiters
    cdef int _make_room(self, int64_t size, int* error) noexcept nogil
    cdef int _fill(self, int* error) noexcept nogil
    cdef int _begin_file(self, int64_t start, int* error) noexcept nogil
    cdef int _begin_at(self, int64_t start, int* error) noexcept nogil
    cdef int _commit_before(self, FileState* f) noexcept nogil
    cdef int commit(self) noexcept nogil
    cdef int confirm(self, int64_t phy_offset) noexcept nogil
    cdef void end_positions(self) noexcept nogil
    cdef int _blank(self) noexcept nogil
    cdef void _publish(self, FileState* f, int64_t wrote, int64_t timestamp) noexcept nogil
    cdef void _release_files(self) noexcept nogil
