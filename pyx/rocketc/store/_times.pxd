"""Queue offsets by time: find a message of a queue by its store timestamp."""
from libc.stdint cimport int64_t

from rocketc.derived._queue_files cimport ConsumeQueue
from rocketc.format._queue_units cimport Unit
from rocketc.store._results cimport Cursor

cdef enum Boundary:
    LOWER = 0                   # the first message of a time or later
    UPPER = 1                   # the last message of a time or earlier
    NEAREST = 2                 # the closer one of both: RocketMQ 4

cdef int time_of(const Unit* u, Cursor* c, int64_t* when) noexcept nogil
cdef int file_by_time(ConsumeQueue* q, int64_t when, int boundary, Cursor* c, int64_t* file) noexcept nogil
cdef int file_by_change(ConsumeQueue* q, int64_t when, int64_t* file) noexcept nogil
cdef int by_time(
    ConsumeQueue* q, int64_t when, int boundary, int64_t file, Cursor* c, int64_t* found,
) noexcept nogil
