"""All consume queues of a store."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from rocketc._consume_queue cimport ConsumeQueue
from rocketc._consume_queue_ext cimport ExtQueue
from rocketc._filter cimport TextTable
from rocketc._queue_folders cimport QueueFolder, QueueFolders
from rocketc._service cimport pthread_mutex_t

cdef class ConsumeQueues:
    cdef:
        pthread_mutex_t _mutex  # the table and the list
        ConsumeQueue** _buckets
        ConsumeQueue** _all     # in the order in which they came
        uint32_t _mask
        int _count
        int _room
        ConsumeQueue* _unmade   # those whose folders could not be made; the dispatcher's
        bint _ready
        bytes _folder           # of simple queues,
        bytes _batch_folder     # of batch queues,
        const char* _above[2]   # and pointers to both
        bytes _ext_folder       # of extensions, and a pointer to it
        const char* _ext_above
        bint _extends           # simple queues that are made get one
        bint _extended          # there are some
        int64_t _ext_file_size
        TextTable _batch_topics  # topics whose queues are batch queues
        int64_t _file_size
        int64_t _batch_file_size
        bint _read_only
        object _refreshing      # a lock: one thread at a time looks what another process has written
        int64_t min_phy_offset  # of the log; kept only where another process writes
        readonly list amiss     # what was wrong with the files: text
        readonly bint in_doubt  # finish() found a queue whose files are not believed: the log is to be taken once more
    cdef ConsumeQueue* find(self, const uint8_t* topic, int32_t topic_len, int32_t queue_id) noexcept nogil
    cdef ConsumeQueue* _nth(self, int i) noexcept nogil
    cdef ConsumeQueue* look(self, str topic, int32_t queue_id) except? NULL
    cdef ConsumeQueue* _look_around(self, bytes name, int32_t queue_id) except? NULL
    cdef int make(
        self, const uint8_t* topic, int32_t topic_len, int32_t queue_id, bint batch, ConsumeQueue** queue,
    ) noexcept nogil
    cdef int flush(self, int64_t least_pages, const char** path) noexcept nogil
    cdef ConsumeQueue* _known(self, const uint8_t* topic, int32_t n, int32_t queue_id, uint32_t h) noexcept nogil
    cdef ConsumeQueue* _new(
        self, const uint8_t* topic, int32_t topic_len, int32_t queue_id, bint batch,
    ) noexcept nogil
    cdef ExtQueue* _new_ext(self, const uint8_t* topic, int32_t topic_len, int32_t queue_id) noexcept nogil
    cdef int _load_ext(self, ConsumeQueue* q, str folder) except -1
    cdef bint _add(self, ConsumeQueue* q) noexcept nogil
    cdef bint _make_room(self) noexcept nogil
    cdef int _load_queues(self, QueueFolders found) except -1
    cdef int _load_queue(self, bytes topic, int32_t queue_id, bint batch, QueueFolder* folder) except -1
    cdef int _load_one(self, bytes topic, int32_t queue_id) except -1
    cdef int _refresh(self, ConsumeQueue* q) except -1
