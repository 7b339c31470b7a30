"""One consume queue in memory. Any thread may read its units; only the dispatcher writes them."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from rocketc.derived._queue_files cimport ConsumeQueue
from rocketc.format._queue_units cimport Unit

cdef enum:
    UNITS_AT_ONCE = 64      # most units that one cq_read() returns

cdef inline bint is_named(
    const ConsumeQueue* q, const uint8_t* topic, int32_t topic_len, int32_t queue_id, uint32_t h,
) noexcept nogil:
    """Return whether a queue has this topic, queue id and hash h, which is cq_hash() of both."""
    return (
        q.hash == h and q.queue_id == queue_id and q.topic_len == topic_len
        and memcmp(q.topic, topic, <size_t>topic_len) == 0
    )


cdef int cq_read(ConsumeQueue* q, int64_t unit, int n, Unit* out, int* got) noexcept nogil
cdef int cq_read_loaded(ConsumeQueue* q, int64_t unit, Unit* out, int* got) noexcept nogil
cdef int cq_tags_code(ConsumeQueue* q, const Unit* u, int64_t* tags_code) noexcept nogil
cdef int cq_unit_of(ConsumeQueue* q, int64_t queue_offset, int64_t* unit) noexcept nogil
cdef int cq_min_offset(ConsumeQueue* q, int64_t* offset) noexcept nogil
cdef int next_real(ConsumeQueue* q, int64_t* number, int64_t stop, Unit* u) noexcept nogil
cdef int units_before(ConsumeQueue* q, int64_t phy_offset, int64_t low, int64_t* units) noexcept nogil
cdef int last_of(ConsumeQueue* q, int64_t units, Unit* u) noexcept nogil
cdef int write_unit(ConsumeQueue* q, int64_t number, const Unit* u) noexcept nogil
cdef int write_blanks(ConsumeQueue* q, int64_t number, int64_t stop) noexcept nogil
cdef int begin_at(ConsumeQueue* q, int64_t number) noexcept nogil
cdef int drop_files(ConsumeQueue* q) noexcept nogil
