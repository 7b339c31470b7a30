"""All consume queues of a store."""
from libc.stdint cimport int64_t

from rocketc.derived._queue_files cimport ConsumeQueue
from rocketc.derived._queue_loader cimport QueueLoader

cdef class ConsumeQueues(QueueLoader):
    cdef:
        ConsumeQueue** _flushing    # queues that are being flushed; used by flush() only
        int _flushing_room
        readonly bint has_mismatch  # finish() found a queue whose files are not trusted: dispatch the log again
    cdef int flush(self, int64_t least_pages, const char** path) noexcept nogil
    cdef int _take_waiting(self) noexcept nogil
    cdef int _sync_many_idle(self, const char** path) noexcept nogil
    cdef int _flush_waiting(self, int64_t least_pages, const char** path) noexcept nogil
    cdef int _sync_many_names(self, const char** path) noexcept nogil
    cdef int _delete(self, ConsumeQueue* q) except -1
