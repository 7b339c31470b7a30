# cython: language_level=3
"""Units of the three kinds of consume queue files, decoded from blocks of bytes.

Each decoder takes a buffer that begins with a unit, and ignores an incomplete unit at its end. Units of zeros are left
out; a gap in the numbers shows that they are missing. They are space that was never written, or damage if other units
follow.
"""
from libc.stdint cimport INT64_MAX, int16_t, int64_t, uint8_t

from rocketc.c.bytes cimport rc_get_i16, rc_get_i32, rc_get_i64, rc_zero_prefix
from rocketc.c.layout cimport (
    RC_BCQ_COMPACTED_OFFSET_AT, RC_BCQ_RESERVED_AT, RC_BCQ_UNIT_BYTES, RC_CQ_UNIT_BYTES, RC_EXT_BIT_MAP_AT,
    RC_EXT_BIT_MAP_SIZE_AT, RC_EXT_END_SIZE, RC_EXT_MIN_BYTES, RC_EXT_SIZE_AT, RC_EXT_STORE_TIMESTAMP_AT,
    RC_EXT_TAGS_CODE_AT,
)

PRE_BLANK = "pre_blank"     # in place of a fault: filler of a first file, before the queue begins

# Why decode_ext_units() stopped.
EXT_MORE = "more"           # at the end of the buffer, or in an incomplete unit
EXT_END = "end"             # at the mark that the queue continues in the next file
EXT_UNUSED = "unused"       # at space that was never written


cdef object fault_of(const Unit* u):
    """Return the fault of a unit that has a record, or None if is_valid()."""
    if is_valid(u):
        return None
    if u.size <= 0:
        return "bad_size"
    if u.phy_offset < 0 or u.phy_offset > INT64_MAX - u.size:
        return "bad_phy_offset"
    return "bad_batch_size" if u.count <= 0 else "bad_base_offset"


def decode_units(const uint8_t[::1] data not None, int64_t first=0):
    """Decode consume queue units: (number, phy_offset, size, tags_code, fault) of each that is not all zero.

    first  number of the first unit in data; in a file without a hole before it, this is its queue offset
    fault  None, PRE_BLANK, "bad_size" or "bad_phy_offset"
    Source: RocketMQ ConsumeQueue.recover, which ends at the first unit with a fault.
    """
    cdef Py_ssize_t i, count = data.shape[0] // RC_CQ_UNIT_BYTES
    cdef Unit u
    cdef list out = []
    for i in range(count):
        decode_unit(&data[i * RC_CQ_UNIT_BYTES], first + i, RC_CQ_UNIT_BYTES, &u)
        if is_blank(&u) and u.tags_code == 0:
            out.append((first + i, u.phy_offset, u.size, u.tags_code, PRE_BLANK))
        elif u.size != 0 or u.phy_offset != 0 or u.tags_code != 0:
            out.append((first + i, u.phy_offset, u.size, u.tags_code, fault_of(&u)))
    return out


def decode_batch_units(const uint8_t[::1] data not None, int64_t first=0):
    """Decode batch consume queue units, one for each inner batch, without units that are all zero.

    first  number of the first unit in data
    Returns (number, phy_offset, size, tags_code, store_timestamp, base_offset, batch_size, compacted_offset, reserved,
    fault) of each. A fault is "bad_size", "bad_phy_offset", "bad_base_offset", "bad_batch_size" or None.
    Source: RocketMQ BatchConsumeQueue.recover.
    """
    cdef Py_ssize_t i, count = data.shape[0] // RC_BCQ_UNIT_BYTES
    cdef const uint8_t* p
    cdef Unit u
    cdef list out = []
    for i in range(count):
        p = &data[i * RC_BCQ_UNIT_BYTES]
        if rc_zero_prefix(p, RC_BCQ_UNIT_BYTES) == RC_BCQ_UNIT_BYTES:
            continue
        decode_unit(p, first + i, RC_BCQ_UNIT_BYTES, &u)
        out.append((
            first + i, u.phy_offset, u.size, u.tags_code, u.store_timestamp, u.queue_offset, u.count,
            rc_get_i32(p + RC_BCQ_COMPACTED_OFFSET_AT), rc_get_i32(p + RC_BCQ_RESERVED_AT), fault_of(&u),
        ))
    return out


def decode_ext_units(const uint8_t[::1] data not None, int64_t pos=0):
    """Decode the units of an ext file, as far as possible.

    pos  position of data in its file
    Returns the units as (pos, size, tags_code, store_timestamp, bit_map), their total bytes, and why decoding stopped:
    EXT_MORE, EXT_END, EXT_UNUSED, or a fault after which no unit can be found: "bad_size", "bad_bit_map_size".
    Source: RocketMQ ConsumeQueueExt.CqExtUnit.read.
    """
    cdef Py_ssize_t at = 0, room = data.shape[0]
    cdef const uint8_t* p
    cdef int16_t size
    cdef list out = []
    while room - at >= 2:
        p = &data[at]
        size = rc_get_i16(p + RC_EXT_SIZE_AT)
        if size == 0:
            return out, at, EXT_UNUSED
        if size == RC_EXT_END_SIZE:
            return out, at, EXT_END
        if size < RC_EXT_MIN_BYTES:
            return out, at, "bad_size"
        if size > room - at:
            break
        if rc_get_i16(p + RC_EXT_BIT_MAP_SIZE_AT) != size - RC_EXT_MIN_BYTES:
            return out, at, "bad_bit_map_size"
        out.append((
            pos + at, size, rc_get_i64(p + RC_EXT_TAGS_CODE_AT), rc_get_i64(p + RC_EXT_STORE_TIMESTAMP_AT),
            (<const char*>p)[RC_EXT_BIT_MAP_AT:size],
        ))
        at += size
    return out, at, EXT_MORE
