"""Units of one consume queue as they are written, at their numbers."""
from libc.stdint cimport int64_t

from rocketc._consume_queue_read cimport ConsumeQueue
from rocketc._queue_units cimport Unit


cdef int write_unit(ConsumeQueue* q, int64_t number, const Unit* u) noexcept nogil
cdef int write_blanks(ConsumeQueue* q, int64_t number, int64_t stop) noexcept nogil
cdef int begin_at(ConsumeQueue* q, int64_t number) noexcept nogil
cdef int drop_files(ConsumeQueue* q) noexcept nogil
