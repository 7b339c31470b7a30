# cython: language_level=3
"""The body of a batch, and the records of its messages.

Source: RocketMQ MessageDecoder.decodeMessages.
"""
from libc.stdint cimport int32_t
from libc.string cimport memcpy

from rocketc.c.bytes cimport rc_get_i16, rc_get_i32, rc_put_i64
from rocketc.c.layout cimport RC_PROPERTIES_MAX_BYTES, RC_PROPERTY_SEPARATOR
from rocketc.c.text cimport rc_hex

cdef enum:
    HEAD_BYTES = 20             # of a message before its body: size, magic, CRC, flag, size of the body
    FLAG_AT = 12
    BODY_SIZE_AT = 16


cdef int count_batch(const uint8_t* body, size_t n, size_t added, size_t* properties) noexcept nogil:
    """Return the number of messages in the body of a batch; -1 if it is not a batch, or has too long properties.

    added       bytes of properties that each message gets
    properties  set to the room for the properties of all
    """
    cdef size_t at = 0
    cdef int32_t size, own
    cdef int count = 0
    cdef int32_t body_size
    properties[0] = 0
    while at < n:
        if n - at < HEAD_BYTES + 2:
            return -1
        size = rc_get_i32(body + at)
        body_size = rc_get_i32(body + at + BODY_SIZE_AT)
        if size < HEAD_BYTES + 2 or <size_t>size > n - at or not 0 <= body_size <= size - HEAD_BYTES - 2:
            return -1
        own = rc_get_i16(body + at + HEAD_BYTES + body_size)
        if own < 0 or own != size - HEAD_BYTES - 2 - body_size:
            return -1
        if <size_t>own + 1 + added > RC_PROPERTIES_MAX_BYTES:
            return -1
        properties[0] += <size_t>own + 1 + added
        count += 1
        at += <size_t>size
    return count


cdef void fill_batch(
    PreparedRecord* records, int n, const PreparedRecord* like, const uint8_t* body, const uint8_t* added,
    size_t added_size, uint8_t* properties,
) noexcept nogil:
    """Fill the records of a batch that count_batch() has counted; they are appended all or none.

    like        has what all of them share
    added       properties that each one gets
    properties  the room for their properties
    """
    cdef const uint8_t* message = body
    cdef uint8_t* p = properties
    cdef PreparedRecord* r
    cdef int32_t own
    cdef int i
    for i in range(n):
        r = &records[i]
        r[0] = like[0]
        r.args.flag = rc_get_i32(message + FLAG_AT)
        r.args.body = message + HEAD_BYTES
        r.args.body_len = rc_get_i32(message + BODY_SIZE_AT)
        own = rc_get_i16(r.args.body + r.args.body_len)
        r.args.props = p
        memcpy(p, r.args.body + r.args.body_len + 2, <size_t>own)
        p += own
        if own > 0 and p[-1] != RC_PROPERTY_SEPARATOR:
            p[0] = RC_PROPERTY_SEPARATOR
            p += 1
        memcpy(p, added, added_size)
        p += added_size
        r.args.props_len = <int32_t>(p - r.args.props)
        message += rc_get_i32(message)
    if n > 1:
        records.batch = n


cdef uint8_t* put_ids(
    uint8_t* dst, const PreparedRecord* records, int n, const uint8_t* host, size_t host_size,
) noexcept nogil:
    """Write the message ids of records that are stored, with commas between them. Return the place after them.

    host  of the store, in stored form
    """
    cdef uint8_t place[8]
    cdef int i
    for i in range(n):
        if i > 0:
            dst[0] = c","
            dst += 1
        rc_hex(dst, host, host_size)
        rc_put_i64(place, records[i].args.phy_offset)
        rc_hex(dst + 2 * host_size, place, 8)
        dst += 2 * host_size + 16
    return dst
