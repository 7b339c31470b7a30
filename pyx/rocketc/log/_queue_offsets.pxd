"""The next queue offset of each topic and queue id."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from rocketc.c.service cimport pthread_mutex_t
from rocketc.format._record cimport Record

ctypedef struct QueueSlot:
    QueueSlot* next         # next in the same bucket
    int64_t next_offset     # guarded by the stripe's lock
    uint32_t hash
    int32_t queue_id
    int32_t topic_len
    uint8_t held            # puts wait: the topic is being deleted, or the queue is new while hold() is in effect
    uint8_t has_room        # the room for its files was checked; guarded by the stripe's lock
    uint8_t seen            # while the log is opened: it has a record of this queue that says its offset
    uint8_t topic[1]        # topic_len bytes

ctypedef struct Stripe:
    pthread_mutex_t mutex
    QueueSlot** buckets     # their number is a power of two; or NULL
    uint32_t mask
    uint32_t count
    bint holding            # new slots are held

cdef inline uint32_t cq_hash(const uint8_t* topic, int32_t topic_len, int32_t queue_id) noexcept nogil:
    """Hash a queue, 8 bytes at a time. Topics are short, so collisions are not worth an attack."""
    cdef uint64_t golden = 0x9E3779B97F4A7C15ULL    # 2^64 over the golden ratio: spreads neighbors
    cdef uint64_t h = <uint64_t>topic_len * golden ^ <uint32_t>queue_id, word
    cdef int32_t i = 0
    while i + 8 <= topic_len:
        memcpy(&word, topic + i, 8)
        h = (h ^ word) * golden
        h ^= h >> 29
        i += 8
    word = 0
    memcpy(&word, topic + i, <size_t>(topic_len - i))
    h = (h ^ word) * golden
    return <uint32_t>(h >> 32)


cdef class QueueOffsets:
    cdef:
        Stripe* _stripes
        int _stripe_count
    cdef QueueSlot* lock(
        self, const uint8_t* topic, int32_t topic_len, int32_t queue_id, Stripe** stripe,
    ) noexcept nogil
    cdef int _number_of(self, uint32_t h) noexcept nogil
    cdef uint64_t stripe_of(self, uint32_t h) noexcept nogil
    cdef bint lock_stripes(self, uint64_t which, bint at_once) noexcept nogil
    cdef void unlock_stripes(self, uint64_t which) noexcept nogil
    cdef QueueSlot* slot(
        self, const uint8_t* topic, int32_t topic_len, int32_t queue_id, uint32_t h,
    ) noexcept nogil
    cdef uint64_t all_stripes(self) noexcept nogil
    cdef int raise_to(
        self, const uint8_t* topic, int32_t topic_len, int32_t queue_id, int64_t next_offset,
    ) noexcept nogil
    cdef int64_t peek(self, str topic, int32_t queue_id) except -1
    cdef QueueSlot* _add(
        self, Stripe* s, uint32_t h, const uint8_t* topic, int32_t topic_len, int32_t queue_id,
    ) noexcept nogil

cdef int64_t offsets_taken(const Record* r) noexcept nogil
