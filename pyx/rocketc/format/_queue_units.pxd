"""Units of consume queue files in the format of the files, for simple queues and batch queues."""
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcmp, strlen

from rocketc.c.bytes cimport rc_get_i16, rc_get_i32, rc_get_i64, rc_put_i16, rc_put_i32, rc_put_i64
from rocketc.c.layout cimport (
    RC_BCQ_BASE_OFFSET_AT, RC_BCQ_BATCH_SIZE_AT, RC_BCQ_COMPACTED_OFFSET_AT, RC_BCQ_PHY_OFFSET_AT, RC_BCQ_RESERVED_AT,
    RC_BCQ_SIZE_AT, RC_BCQ_STORE_TIMESTAMP_AT, RC_BCQ_TAGS_CODE_AT, RC_CQ_PHY_OFFSET_AT, RC_CQ_PRE_BLANK_SIZE,
    RC_CQ_SIZE_AT, RC_CQ_TAGS_CODE_AT, RC_CQ_UNIT_BYTES, RC_LMQ_PREFIX, RC_RETRY_PREFIX, RC_SCHEDULE_TOPIC,
    RC_SYSTEM_PREFIX,
)

# A unit, decoded or to be written.
ctypedef struct Unit:
    int64_t phy_offset      # of the record
    int64_t tags_code       # as stored: a hash, a delivery time in ms, or an address in the ext files
    int64_t queue_offset    # of the message, or of the first message of the inner batch
    int64_t store_timestamp  # ms; only in batch queues, 0 in others
    int32_t size            # bytes of the record
    int32_t count           # messages: 1, or those of the inner batch


cdef inline bint is_schedule_topic(const uint8_t* topic, int32_t n) noexcept nogil:
    """Whether units of a topic contain a delivery time in place of a tags hash.

    Source: RocketMQ CommitLog.
    """
    return n == <int32_t>strlen(RC_SCHEDULE_TOPIC) and memcmp(topic, RC_SCHEDULE_TOPIC, strlen(RC_SCHEDULE_TOPIC)) == 0


cdef inline bint is_light(const uint8_t* topic, int64_t n) noexcept nogil:
    """Whether a topic is a light queue, named by messages of others (INNER_MULTI_DISPATCH), without an extension."""
    return n > <int64_t>strlen(RC_LMQ_PREFIX) and memcmp(topic, RC_LMQ_PREFIX, strlen(RC_LMQ_PREFIX)) == 0


cdef inline bint begins_with(const uint8_t* topic, int64_t n, const char* prefix) noexcept nogil:
    return n >= <int64_t>strlen(prefix) and memcmp(topic, prefix, strlen(prefix)) == 0


cdef inline bint has_light_queues(const uint8_t* topic, int32_t n) noexcept nogil:
    """Whether messages of a topic also go to the light queues that INNER_MULTI_DISPATCH names.

    Source: RocketMQ 5.3.3 MultiDispatchUtils. In 4.9.7 those of all topics do.
    """
    return not (
        begins_with(topic, n, RC_RETRY_PREFIX) or begins_with(topic, n, RC_SYSTEM_PREFIX) or is_schedule_topic(topic, n)
    )


cdef inline void encode_unit(uint8_t* p, const Unit* u, int32_t unit_bytes) noexcept nogil:
    """Write a unit in the format of the files. unit_bytes gives the kind of the queue, and the room at p."""
    if unit_bytes == RC_CQ_UNIT_BYTES:
        rc_put_i64(p + RC_CQ_PHY_OFFSET_AT, u.phy_offset)
        rc_put_i32(p + RC_CQ_SIZE_AT, u.size)
        rc_put_i64(p + RC_CQ_TAGS_CODE_AT, u.tags_code)
    else:
        rc_put_i64(p + RC_BCQ_PHY_OFFSET_AT, u.phy_offset)
        rc_put_i32(p + RC_BCQ_SIZE_AT, u.size)
        rc_put_i64(p + RC_BCQ_TAGS_CODE_AT, u.tags_code)
        rc_put_i64(p + RC_BCQ_STORE_TIMESTAMP_AT, u.store_timestamp)
        rc_put_i64(p + RC_BCQ_BASE_OFFSET_AT, u.queue_offset)
        rc_put_i16(p + RC_BCQ_BATCH_SIZE_AT, <int16_t>u.count)
        rc_put_i32(p + RC_BCQ_COMPACTED_OFFSET_AT, -1)
        rc_put_i32(p + RC_BCQ_RESERVED_AT, 0)


cdef inline void decode_unit(const uint8_t* p, int64_t number, int32_t unit_bytes, Unit* u) noexcept nogil:
    """Decode the unit with a number, without checks; call is_valid() to check it."""
    if unit_bytes == RC_CQ_UNIT_BYTES:
        u.phy_offset = rc_get_i64(p + RC_CQ_PHY_OFFSET_AT)
        u.size = rc_get_i32(p + RC_CQ_SIZE_AT)
        u.tags_code = rc_get_i64(p + RC_CQ_TAGS_CODE_AT)
        u.store_timestamp = 0
        u.queue_offset = number
        u.count = 1
    else:
        u.phy_offset = rc_get_i64(p + RC_BCQ_PHY_OFFSET_AT)
        u.size = rc_get_i32(p + RC_BCQ_SIZE_AT)
        u.tags_code = rc_get_i64(p + RC_BCQ_TAGS_CODE_AT)
        u.store_timestamp = rc_get_i64(p + RC_BCQ_STORE_TIMESTAMP_AT)
        u.queue_offset = rc_get_i64(p + RC_BCQ_BASE_OFFSET_AT)
        u.count = rc_get_i16(p + RC_BCQ_BATCH_SIZE_AT)


cdef inline bint is_blank(const Unit* u) noexcept nogil:
    """Whether a unit is a filler: before the beginning of a queue, or in place of a lost record."""
    return u.size == RC_CQ_PRE_BLANK_SIZE and u.phy_offset == 0


cdef inline bint is_valid(const Unit* u) noexcept nogil:
    """Whether a unit is plausible. Source: the rule by which RocketMQ's recovery ends."""
    if u.size <= 0 or u.phy_offset < 0 or u.phy_offset > INT64_MAX - u.size:
        return False
    return u.count > 0 and 0 <= u.queue_offset <= INT64_MAX - u.count
