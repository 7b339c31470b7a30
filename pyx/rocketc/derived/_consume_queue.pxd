"""Write one consume queue: the records of a topic and queue id in the order of their queue offsets."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketc.derived._queue_files cimport ConsumeQueue, QueueOpening, QueueShared
from rocketc.format._queue_units cimport Unit


cdef ConsumeQueue* cq_new(
    QueueShared* shared, const uint8_t* topic, int32_t topic_len, int32_t queue_id, int32_t unit_bytes,
    int64_t file_size,
) noexcept nogil
cdef void opening_init(QueueOpening* o) noexcept nogil
cdef void cq_free(ConsumeQueue* q) noexcept nogil
cdef bint is_fit(const uint8_t* topic, int32_t n) noexcept nogil
cdef int correct_min(ConsumeQueue* q, int64_t min_phy_offset) noexcept nogil
cdef int cq_measure(ConsumeQueue* q) noexcept nogil
cdef int cq_begin(ConsumeQueue* q, int64_t phy_offset) noexcept nogil
cdef int cq_finish(ConsumeQueue* q, const int64_t* damage, int damage_count) noexcept nogil
cdef int cq_put(ConsumeQueue* q, const Unit* u, bint whole, bint opening) noexcept nogil
cdef bint is_of_another(ConsumeQueue* q, const Unit* u) noexcept nogil
cdef int cq_flush(ConsumeQueue* q, int64_t least_pages, const char** path) noexcept nogil
cdef int cq_delete_expired(ConsumeQueue* q, int64_t min_phy_offset, int* deleted) noexcept nogil
