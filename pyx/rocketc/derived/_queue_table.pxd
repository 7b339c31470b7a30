"""The consume queues of a store by topic and queue id."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from rocketc.c.service cimport pthread_mutex_t
from rocketc.derived._consume_queue_ext cimport ExtQueue
from rocketc.derived._queue_files cimport ConsumeQueue, QueueOpening, QueueShared
from rocketc.format._text_table cimport TextTable

cdef class QueueTable:
    cdef:
        pthread_mutex_t _mutex  # the table and the list
        ConsumeQueue** _buckets
        ConsumeQueue** _all     # in order of creation, including those of deleted topics
        uint32_t _mask
        int _count
        int _room
        ConsumeQueue* _without_folder   # queues whose folders could not be created; used by the dispatcher only
        bint _ready
        QueueShared* _shared    # by all queues
        QueueOpening** _openings     # blocks of OPENINGS each
        int _opening_count
        bint _is_open           # the opening has ended: _openings is empty
        bytes _folder           # of simple queues
        bytes _batch_folder     # of batch queues
        bytes _ext_folder       # of extensions
        const char* _ext_above  # pointer to _ext_folder
        bint _extends           # new simple queues get an extension
        bint _extended          # there are extensions
        int64_t _ext_file_size
        TextTable _batch_topics  # topics whose queues are batch queues
        int64_t _file_size
        int64_t _batch_file_size
        bint read_only
    cdef ConsumeQueue* find(self, const uint8_t* topic, int32_t topic_len, int32_t queue_id) noexcept nogil
    cdef ConsumeQueue* nth(self, int i) noexcept nogil
    cdef ConsumeQueue* next_there(self, int* i) noexcept nogil
    cdef int make(
        self, const uint8_t* topic, int32_t topic_len, int32_t queue_id, bint batch, ConsumeQueue** queue,
    ) noexcept nogil
    cdef ConsumeQueue* _known(self, const uint8_t* topic, int32_t n, int32_t queue_id, uint32_t h) noexcept nogil
    cdef ConsumeQueue* _new(
        self, const uint8_t* topic, int32_t topic_len, int32_t queue_id, bint batch,
    ) noexcept nogil
    cdef ExtQueue* _new_ext(self, const uint8_t* topic, int32_t topic_len, int32_t queue_id) noexcept nogil
    cdef bint _add(self, ConsumeQueue* q) noexcept nogil
    cdef bint _make_room(self) noexcept nogil
    cdef bint _set_opening(self, ConsumeQueue* q) noexcept nogil
    cdef void _end_opening(self) noexcept nogil


cdef tuple key_of(ConsumeQueue* q)
