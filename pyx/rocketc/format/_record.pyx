# cython: language_level=3
"""Message records of the commit log: sizes, decoding, checks, encoding.

The parser is inline in _record.pxd, for loops over millions of records. This file has the encoder, and the functions
that are called less often.
"""
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from rocketc.c.atomic cimport rc_fence_release
from rocketc.c.bytes cimport rc_get_i16, rc_get_i32, rc_put_i16, rc_put_i32, rc_put_i64
from rocketc.c.crc32 cimport rc_body_crc, rc_crc32_best, rc_crc32_fn, rc_crc32_way
from rocketc.c.layout cimport (
    RC_BLANK_BYTES, RC_ENTRY_BODY_AT, RC_ENTRY_BODY_LENGTH_AT, RC_ENTRY_FLAG_AT, RC_ENTRY_MIN_BYTES,
    RC_ENTRY_TOTAL_SIZE_AT, RC_MAGIC_BLANK, RC_MAGIC_V1, RC_MAGIC_V2, RC_MSG_BODY_CRC_AT, RC_MSG_BODY_LENGTH_PAST,
    RC_MSG_BODY_PAST, RC_MSG_BORN_HOST_AT, RC_MSG_BORN_TIMESTAMP_AT, RC_MSG_FLAG_AT, RC_MSG_MAGIC_AT,
    RC_MSG_PHYSICAL_OFFSET_AT, RC_MSG_PREPARED_OFFSET_PAST, RC_MSG_QUEUE_ID_AT, RC_MSG_QUEUE_OFFSET_AT,
    RC_MSG_RECONSUME_TIMES_PAST, RC_MSG_STORE_HOST_PAST, RC_MSG_STORE_TIMESTAMP_PAST, RC_MSG_SYS_FLAG_AT,
    RC_MSG_TOTAL_SIZE_AT, RC_NAME_VALUE_SEPARATOR, RC_PROPERTIES_LENGTH_BYTES, RC_PROPERTIES_MAX_BYTES,
    RC_PROPERTY_SEPARATOR, RC_PROP_CRC_BYTES, RC_PROP_CRC_DIGITS, RC_PROPERTY_CRC32, RC_PROP_CRC_NAME_BYTES,
    RC_TOPIC_V1_MAX_BYTES, RC_TOPIC_V2_MAX_BYTES,
)
from rocketc.c.points cimport rc_point
from rocketc.c.status cimport (
    RC_BAD_ARGUMENT, RC_BAD_INNER_BATCH, RC_NO_ROOM, RC_OK, RC_PROPERTIES_TOO_LONG, RC_TOPIC_TOO_LONG,
)


cdef int _best = rc_crc32_best()
crc32 = rc_crc32_way(_best)


cdef bint has_property_crc(const Record* r) noexcept nogil:
    """Whether the last property is a property CRC of 20 bytes. A property of that name elsewhere belongs to the user.

    Source: MessageDecoder.checkMessage..., property __CRC32# of 5.2 and later.
    """
    cdef int at = r.props_len - RC_PROP_CRC_BYTES
    if at < 0 or (at > 0 and r.props[at - 1] != RC_PROPERTY_SEPARATOR):
        return False
    return (
        memcmp(r.props + at, RC_PROPERTY_CRC32, RC_PROP_CRC_NAME_BYTES) == 0
        and r.props[at + RC_PROP_CRC_NAME_BYTES] == RC_NAME_VALUE_SEPARATOR
    )


cdef bint property_crc_holds(const Record* r, rc_crc32_fn crc32) noexcept nogil:
    """Whether the property CRC of a record is correct, or missing.

    Its ten digits have the least significant one first. It covers all bytes of the record before it.
    """
    cdef int i
    cdef int64_t stored_crc = 0
    cdef const uint8_t* digits = r.props + r.props_len - RC_PROP_CRC_DIGITS - 1
    if not has_property_crc(r):
        return True
    if digits[RC_PROP_CRC_DIGITS] != RC_PROPERTY_SEPARATOR:
        return False
    for i in range(RC_PROP_CRC_DIGITS - 1, -1, -1):
        if digits[i] < c"0" or digits[i] > c"9":
            return False
        stored_crc = 10 * stored_crc + (digits[i] - c"0")
    return stored_crc == rc_body_crc(crc32, r.at, <size_t>(r.size - RC_PROP_CRC_BYTES))


cdef int parse_entry(const uint8_t* src, size_t room, Record* r) noexcept nogil:
    """Parse one entry of a client batch or of an inner batch's body: flag, body, properties and size.

    src   room bytes up to the end of the batch; r points into them; the other fields of r are not changed
    Returns RC_OK or RC_BAD_INNER_BATCH.
    Source: MessageDecoder.decodeMessage(ByteBuffer).
    """
    cdef int32_t size, rest
    if room < RC_ENTRY_MIN_BYTES:
        return RC_BAD_INNER_BATCH
    size = rc_get_i32(src + RC_ENTRY_TOTAL_SIZE_AT)
    if size < RC_ENTRY_MIN_BYTES or <size_t>size > room:
        return RC_BAD_INNER_BATCH
    rest = size - RC_ENTRY_MIN_BYTES
    r.flag = rc_get_i32(src + RC_ENTRY_FLAG_AT)
    r.body = src + RC_ENTRY_BODY_AT
    r.body_len = rc_get_i32(src + RC_ENTRY_BODY_LENGTH_AT)
    if r.body_len < 0 or r.body_len > rest:
        return RC_BAD_INNER_BATCH
    rest -= r.body_len
    r.props = r.body + r.body_len + RC_PROPERTIES_LENGTH_BYTES
    r.props_len = rc_get_i16(r.props - 2)
    if r.props_len != rest:
        return RC_BAD_INNER_BATCH
    r.size = size
    return RC_OK


cdef int encode_record(uint8_t* dst, size_t room, const MessageArgs* d, rc_crc32_fn crc32) noexcept nogil:
    """Write d as one record. The first 8 bytes come last: a reader of shared memory that sees them sees the whole
    record.

    dst   room bytes, writable, any alignment; not kept
    Returns RC_OK; RC_TOPIC_TOO_LONG, RC_PROPERTIES_TOO_LONG, RC_BAD_ARGUMENT (longer than 2 GiB) or RC_NO_ROOM, and
    then nothing is written.
    Source: MessageExtEncoder.encode, CommitLog.DefaultAppendMessageCallback.
    """
    cdef int64_t size = message_args_size(d)
    if d.topic_len > (RC_TOPIC_V1_MAX_BYTES if d.version == 1 else RC_TOPIC_V2_MAX_BYTES):
        return RC_TOPIC_TOO_LONG
    if properties_size(d) > RC_PROPERTIES_MAX_BYTES:
        return RC_PROPERTIES_TOO_LONG
    if size > INT32_MAX:
        return RC_BAD_ARGUMENT
    if <size_t>size > room:
        return RC_NO_ROOM
    encode_measured(dst, size, d, crc32)
    return RC_OK


cdef void encode_measured(uint8_t* dst, int64_t size, const MessageArgs* d, rc_crc32_fn crc32) noexcept nogil:
    """Do encode_record() for a record within all limits, whose size message_args_size() has returned."""
    cdef uint8_t* p = dst
    cdef int i, width
    cdef uint32_t value
    cdef uint8_t head[RC_BLANK_BYTES]       # size and magic
    rc_put_i32(p + RC_MSG_BODY_CRC_AT, d.body_crc)
    rc_put_i32(p + RC_MSG_QUEUE_ID_AT, d.queue_id)
    rc_put_i32(p + RC_MSG_FLAG_AT, d.flag)
    rc_put_i64(p + RC_MSG_QUEUE_OFFSET_AT, d.queue_offset)
    rc_put_i64(p + RC_MSG_PHYSICAL_OFFSET_AT, d.phy_offset)
    rc_put_i32(p + RC_MSG_SYS_FLAG_AT, d.sys_flag)
    rc_put_i64(p + RC_MSG_BORN_TIMESTAMP_AT, d.born_timestamp)
    p += RC_MSG_BORN_HOST_AT
    width = born_host_len(d.sys_flag)
    memcpy(p, d.born_host, <size_t>width)
    p += width
    rc_put_i64(p + RC_MSG_STORE_TIMESTAMP_PAST, d.store_timestamp)
    p += RC_MSG_STORE_HOST_PAST
    width = store_host_len(d.sys_flag)
    memcpy(p, d.store_host, <size_t>width)
    p += width
    rc_put_i32(p + RC_MSG_RECONSUME_TIMES_PAST, d.reconsume_times)
    rc_put_i64(p + RC_MSG_PREPARED_OFFSET_PAST, d.prepared_offset)
    rc_put_i32(p + RC_MSG_BODY_LENGTH_PAST, d.body_len)
    rc_point(b"record: numbers")
    p += RC_MSG_BODY_PAST
    if d.body_len > 0:                  # the address of an empty body may be NULL
        memcpy(p, d.body, <size_t>d.body_len)
    rc_point(b"record: body")
    p += d.body_len
    if d.version == 1:
        p[0] = <uint8_t>d.topic_len
    else:
        rc_put_i16(p, <short>d.topic_len)
    p += d.version
    memcpy(p, d.topic, <size_t>d.topic_len)
    p += d.topic_len
    rc_put_i16(p, <short>properties_size(d))
    rc_point(b"record: topic")
    p += RC_PROPERTIES_LENGTH_BYTES
    if d.props_len > 0:
        memcpy(p, d.props, <size_t>d.props_len)
    p += d.props_len
    if d.property_crc:
        if lacks_separator(d):
            p[0] = RC_PROPERTY_SEPARATOR
            p += 1
        encode_head(head, size, d.version)
        value = crc32(crc32(0, head, sizeof(head)), dst + sizeof(head), <size_t>size - sizeof(head) - RC_PROP_CRC_BYTES)
        value &= 0x7FFFFFFF
        memcpy(p, RC_PROPERTY_CRC32, RC_PROP_CRC_NAME_BYTES)
        p[RC_PROP_CRC_NAME_BYTES] = RC_NAME_VALUE_SEPARATOR
        p += RC_PROP_CRC_NAME_BYTES + 1
        for i in range(RC_PROP_CRC_DIGITS):
            p[i] = <uint8_t>(c"0" + value % 10)
            value //= 10
        p[RC_PROP_CRC_DIGITS] = RC_PROPERTY_SEPARATOR
    rc_point(b"record: all but size and magic")
    rc_fence_release()
    encode_head(dst, size, d.version)


cdef inline void encode_head(uint8_t* dst, int64_t size, int version) noexcept nogil:
    rc_put_i32(dst + RC_MSG_MAGIC_AT, RC_MAGIC_V1 if version == 1 else RC_MAGIC_V2)
    rc_point(b"record: magic")
    rc_put_i32(dst + RC_MSG_TOTAL_SIZE_AT, <int32_t>size)


cdef int encode_blank(uint8_t* dst, size_t room) noexcept nogil:
    """Fill the rest of a mapped file with one blank record.

    dst   room bytes, writable, any alignment; not kept; only the first 8 are written
    room  bytes left in the file, at least RC_BLANK_BYTES
    Returns RC_OK, or RC_NO_ROOM (nothing is written).
    Source: CommitLog.doAppend, END_OF_FILE branch.
    """
    if room < RC_BLANK_BYTES:
        return RC_NO_ROOM
    if room > INT32_MAX:
        return RC_BAD_ARGUMENT
    rc_put_i32(dst + RC_MSG_TOTAL_SIZE_AT, <int32_t>room)
    rc_point(b"blank: size")
    rc_put_i32(dst + RC_MSG_MAGIC_AT, RC_MAGIC_BLANK)
    return RC_OK
