"""Room for the files of new consume queues."""
from libc.stdint cimport int64_t

ctypedef struct QueueRoom:
    const char* folder      # of the consume queues; NULL: room is not checked
    const char* above       # checked while `folder` does not exist
    int64_t file_size       # of the log, in bytes
    int64_t pending         # queues that got their first record and may lack their files
    int64_t error           # ENOSPC or EDQUOT: the last records could not be dispatched; 0: they could
    int64_t failures        # how often that happened

cdef int room_take(QueueRoom* room) noexcept nogil
cdef bint room_is_free(QueueRoom* room) noexcept nogil
cdef void room_made(QueueRoom* room, int64_t queues) noexcept nogil
cdef void room_settle(QueueRoom* room) noexcept nogil
