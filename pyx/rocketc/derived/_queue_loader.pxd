"""Find consume queues on the disk."""
from libc.stdint cimport int32_t, int64_t

from rocketc.derived._queue_files cimport ConsumeQueue
from rocketc.derived._queue_table cimport QueueTable
from rocketc.files._queue_folders cimport QueueFolder, QueueFolders

cdef class QueueLoader(QueueTable):
    cdef:
        object _refreshing      # a lock: one thread at a time reads what another process has written
        int64_t min_phy_offset  # of the log; set only if another process writes
        readonly list errors     # what was wrong with the files: text
    cdef int _sync_begun(self) except -1
    cdef void _set_names(self, int64_t folders) noexcept nogil
    cdef ConsumeQueue* look(self, str topic, int32_t queue_id) except? NULL
    cdef ConsumeQueue* _look_around(self, bytes name, int32_t queue_id) except? NULL
    cdef int _load_ext(self, ConsumeQueue* q) except -1
    cdef int _load_queues(self, QueueFolders found) except -1
    cdef int _load_queue(self, bytes topic, int32_t queue_id, bint batch, QueueFolder* folder) except -1
    cdef int _load_one(self, bytes topic, int32_t queue_id) except -1
    cdef bint _is_replaced(self, ConsumeQueue* q) except -1
    cdef int _refresh(self, ConsumeQueue* q) except -1

cdef str name_of(ConsumeQueue* q)
cdef int check_queue(ConsumeQueue* q, int rc) except -1
