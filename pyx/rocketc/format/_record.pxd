"""Message records of the commit log: sizes, decoding, checks, encoding."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketc.c.bytes cimport rc_get_i16, rc_get_i32, rc_get_i64
from rocketc.c.crc32 cimport rc_body_crc, rc_crc32_fn
from rocketc.c.layout cimport (
    RC_BLANK_BYTES, RC_FLAG_BORN_HOST_V6, RC_FLAG_INNER_BATCH, RC_FLAG_NEED_UNWRAP, RC_FLAG_STORE_HOST_V6,
    RC_HOST_V4_BYTES, RC_HOST_V6_EXTRA, RC_MAGIC_BLANK, RC_MAGIC_V1, RC_MAGIC_V2, RC_MSG_BODY_CRC_AT, RC_MSG_BODY_PAST,
    RC_MSG_BORN_HOST_AT, RC_MSG_FLAG_AT, RC_MSG_MAGIC_AT, RC_MSG_MIN_BYTES, RC_MSG_PHYSICAL_OFFSET_AT,
    RC_MSG_QUEUE_OFFSET_AT, RC_MSG_STORE_HOST_PAST, RC_MSG_SYS_FLAG_AT, RC_MSG_TOTAL_SIZE_AT,
    RC_PROPERTIES_LENGTH_BYTES, RC_PROPERTY_SEPARATOR, RC_PROP_CRC_BYTES,
)
from rocketc.c.status cimport (
    RC_BAD_BODY_CRC, RC_BAD_BODY_LENGTH, RC_BAD_LENGTH, RC_BAD_MAGIC, RC_BAD_PHYSICAL_OFFSET, RC_BAD_PROPERTIES_LENGTH,
    RC_BAD_PROPERTY_CRC, RC_BAD_SIZE, RC_BAD_TOPIC_LENGTH, RC_BLANK, RC_END, RC_OK, RC_TRUNCATED,
)

cdef enum Crc:
    CRC_NONE = 0
    CRC_BODY = 1        # BODYCRC
    CRC_FULL = 2        # BODYCRC, and the property CRC if a record has one

# One decoded record: positions, and the fields that filters need. The pointers lead into memory that the caller owns.
ctypedef struct Record:
    const uint8_t* at       # first byte
    const uint8_t* tail     # STORETIMESTAMP: the first field after the born host
    const uint8_t* body     # body_len bytes as stored, or decompressed ones in their place
    const uint8_t* topic    # topic_len bytes
    const uint8_t* props    # props_len bytes
    int64_t queue_offset
    int64_t phy_offset      # as stored
    int32_t size            # bytes of the whole record; also set for RC_BLANK and from RC_BAD_BODY_CRC on
    int32_t body_len
    int32_t topic_len
    int32_t props_len
    int32_t flag
    int32_t sys_flag
    int32_t broker          # which of the names of a scan: set by who reads answers of brokers, and not by parse_record

# Text of a property: a name or a value.
ctypedef struct Slice:
    const uint8_t* at
    int32_t len

# The input of encode_record. Numbers are as on disk; the caller owns the memory of all pointers, which are not kept.
ctypedef struct MessageArgs:
    int version             # 1 or 2
    int32_t queue_id
    int32_t flag
    int64_t queue_offset
    int64_t phy_offset
    int32_t sys_flag        # its V6 bits agree with the lengths of both hosts
    int64_t born_timestamp  # ms
    const uint8_t* born_host    # 8 or 20 bytes: address, port
    int64_t store_timestamp     # ms
    const uint8_t* store_host
    int32_t reconsume_times
    int64_t prepared_offset
    const uint8_t* body
    int32_t body_len
    int32_t body_crc
    const uint8_t* topic
    int32_t topic_len
    const uint8_t* props    # the stored properties, without the property CRC
    int32_t props_len
    bint property_crc       # adds 20 bytes, and a separator before them if props does not end in one


cdef inline int born_host_len(int32_t sys_flag) noexcept nogil:
    cdef int width = RC_HOST_V4_BYTES
    if sys_flag & RC_FLAG_BORN_HOST_V6:
        width += RC_HOST_V6_EXTRA
    return width


cdef inline int store_host_len(int32_t sys_flag) noexcept nogil:
    cdef int width = RC_HOST_V4_BYTES
    if sys_flag & RC_FLAG_STORE_HOST_V6:
        width += RC_HOST_V6_EXTRA
    return width


cdef inline int properties_size(const MessageArgs* d) noexcept nogil:
    """Size in bytes of the properties that encode_record writes for d; may exceed the limit of a record."""
    if not d.property_crc:
        return d.props_len
    return d.props_len + lacks_separator(d) + RC_PROP_CRC_BYTES


cdef inline bint lacks_separator(const MessageArgs* d) noexcept nogil:
    return d.props_len > 0 and d.props[d.props_len - 1] != RC_PROPERTY_SEPARATOR


cdef inline int64_t message_args_size(const MessageArgs* d) noexcept nogil:
    """Size in bytes of the record that encode_record writes for d; may exceed the limit of a record."""
    return (
        <int64_t>RC_MSG_BORN_HOST_AT + born_host_len(d.sys_flag) + RC_MSG_STORE_HOST_PAST + store_host_len(d.sys_flag)
        + RC_MSG_BODY_PAST + d.body_len + d.version + d.topic_len + RC_PROPERTIES_LENGTH_BYTES + properties_size(d)
    )


cdef inline bint is_to_unwrap(const Record* r) noexcept nogil:
    """Whether RocketMQ's clients unwrap a record: two flags say that it is a batch, and to unwrap it."""
    cdef int32_t both = RC_FLAG_NEED_UNWRAP | RC_FLAG_INNER_BATCH
    return r.sys_flag & both == both


cdef inline int parse_record(const uint8_t* src, size_t room, Record* r) noexcept nogil:
    """Find the parts of the record at src, without checking a CRC or the content of the body.

    src   room bytes up to the end of the file or buffer, any alignment; r points into them
    Returns RC_OK, RC_BLANK (r.size is what the record says, unchecked), RC_END (zeros), or the fault of the lengths.
    Source: CommitLog.checkMessageAndReturnSize, MessageDecoder.decode.
    """
    cdef int32_t magic, size, rest
    cdef int head, topic_bytes
    if room < RC_BLANK_BYTES:
        return RC_TRUNCATED
    size = rc_get_i32(src + RC_MSG_TOTAL_SIZE_AT)
    magic = rc_get_i32(src + RC_MSG_MAGIC_AT)
    r.at = src
    r.size = size
    if magic != RC_MAGIC_V1 and magic != RC_MAGIC_V2:
        if size == 0 and magic == 0:
            return RC_END
        if size < RC_BLANK_BYTES:
            return RC_BAD_SIZE
        return RC_BLANK if magic == RC_MAGIC_BLANK else RC_BAD_MAGIC
    if size < RC_MSG_MIN_BYTES:
        return RC_BAD_SIZE
    if <size_t>size > room:
        return RC_TRUNCATED
    r.flag = rc_get_i32(src + RC_MSG_FLAG_AT)
    r.queue_offset = rc_get_i64(src + RC_MSG_QUEUE_OFFSET_AT)
    r.phy_offset = rc_get_i64(src + RC_MSG_PHYSICAL_OFFSET_AT)
    r.sys_flag = rc_get_i32(src + RC_MSG_SYS_FLAG_AT)
    head = RC_MSG_BORN_HOST_AT + born_host_len(r.sys_flag)
    r.tail = src + head
    head += RC_MSG_STORE_HOST_PAST + store_host_len(r.sys_flag) + RC_MSG_BODY_PAST
    topic_bytes = 1 if magic == RC_MAGIC_V1 else 2

    rest = size - head - topic_bytes - RC_PROPERTIES_LENGTH_BYTES
    if rest < 0:
        return RC_BAD_BODY_LENGTH
    r.body = src + head
    r.body_len = rc_get_i32(src + head - 4)
    if r.body_len < 0 or r.body_len > rest:
        return RC_BAD_BODY_LENGTH
    rest -= r.body_len
    r.topic = r.body + r.body_len + topic_bytes
    if topic_bytes == 1:
        r.topic_len = <signed char>r.topic[-1]
    else:
        r.topic_len = rc_get_i16(r.topic - 2)
    if r.topic_len < 0 or r.topic_len > rest:
        return RC_BAD_TOPIC_LENGTH
    rest -= r.topic_len
    r.props = r.topic + r.topic_len + RC_PROPERTIES_LENGTH_BYTES
    r.props_len = rc_get_i16(r.props - 2)
    if r.props_len < 0 or r.props_len > rest:
        return RC_BAD_PROPERTIES_LENGTH
    return RC_OK if r.props_len == rest else RC_BAD_LENGTH


cdef inline bint may_have_property_crc(const Record* r) noexcept nogil:
    """A fast check of one byte: False means that has_property_crc() is False, which is so for most records."""
    return r.props_len >= RC_PROP_CRC_BYTES and r.props[r.props_len - RC_PROP_CRC_BYTES] == c"_"


cdef inline int verify_record(const Record* r, int crc, rc_crc32_fn crc32, int64_t phy_offset) noexcept nogil:
    """Check a parsed record's CRC, as far as requested, and its stored physical offset.

    crc         a Crc
    phy_offset  the actual physical offset of the record
    Returns RC_OK, RC_BAD_BODY_CRC, RC_BAD_PROPERTY_CRC or RC_BAD_PHYSICAL_OFFSET, in this order.
    """
    if crc != CRC_NONE:
        if r.body_len > 0 and rc_body_crc(crc32, r.body, <size_t>r.body_len) != rc_get_i32(r.at + RC_MSG_BODY_CRC_AT):
            return RC_BAD_BODY_CRC
        if crc == CRC_FULL and may_have_property_crc(r) and not property_crc_holds(r, crc32):
            return RC_BAD_PROPERTY_CRC
    return RC_OK if r.phy_offset == phy_offset else RC_BAD_PHYSICAL_OFFSET


cdef bint has_property_crc(const Record* r) noexcept nogil
cdef bint property_crc_holds(const Record* r, rc_crc32_fn crc32) noexcept nogil
cdef int parse_entry(const uint8_t* src, size_t room, Record* r) noexcept nogil
cdef int encode_record(uint8_t* dst, size_t room, const MessageArgs* d, rc_crc32_fn crc32) noexcept nogil
cdef void encode_measured(uint8_t* dst, int64_t size, const MessageArgs* d, rc_crc32_fn crc32) noexcept nogil
cdef int encode_blank(uint8_t* dst, size_t room) noexcept nogil
cdef rc_crc32_fn crc32                      # the fastest implementation on this processor
