# cython: language_level=3
"""Records that get another place in the log: what depends on the place is made right in their bytes."""
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp

from rocketc._bytes cimport rc_put_i64
from rocketc._crc32 cimport rc_body_crc
from rocketc._layout cimport (
    RC_BLANK_BYTES,
    RC_MSG_PHYSICAL_OFFSET_AT,
    RC_NAME_VALUE_SEPARATOR,
    RC_PROP_CRC_BYTES,
    RC_PROP_CRC_DIGITS,
    RC_PROP_CRC_NAME,
    RC_PROP_CRC_NAME_BYTES,
    RC_PROPERTY_SEPARATOR,
)
from rocketc._record cimport Record, crc32, parse_record
from rocketc._status cimport RC_BLANK, RC_OK, RC_TRUNCATED


cdef void move_record(uint8_t* p, const Record* r, int64_t phy_offset) noexcept nogil:
    """Let the record at p say that it lies at phy_offset; its property CRC, if it has one, follows."""
    cdef int at = r.props_len - RC_PROP_CRC_BYTES, i
    cdef int64_t value
    cdef uint8_t* digits
    rc_put_i64(p + RC_MSG_PHYSICAL_OFFSET_AT, phy_offset)
    if at < 0 or (at > 0 and r.props[at - 1] != RC_PROPERTY_SEPARATOR):
        return
    if memcmp(r.props + at, RC_PROP_CRC_NAME, RC_PROP_CRC_NAME_BYTES) != 0:
        return
    digits = p + r.size - RC_PROP_CRC_DIGITS - 1
    if digits[-1] != RC_NAME_VALUE_SEPARATOR or digits[RC_PROP_CRC_DIGITS] != RC_PROPERTY_SEPARATOR:
        return
    value = rc_body_crc(crc32, p, <size_t>(r.size - RC_PROP_CRC_BYTES))
    for i in range(RC_PROP_CRC_DIGITS):
        digits[i] = <uint8_t>(c"0" + value % 10)
        value //= 10


def move_records(uint8_t[::1] data not None, int64_t phy_offset, size_t room):
    """Give the whole records at the start of `data`, one behind the other, the places from phy_offset on.

    data        writable; the records in it have been checked
    room        bytes left there in the file
    Returns (bytes of the records that fit, why the next one is not among them): "more" if it is not whole in data,
    "full" if the file has no room for it and the blank record behind it, "blank", or "damage".

    >>> import rocketc
    >>> data = bytearray(rocketc.encode("t", b"a") + rocketc.encode("t", b"b", phy_offset=93))
    >>> move_records(data, 4096, 4096)
    (186, 'more')
    >>> [m.phy_offset for m in rocketc.decode(data, 4096)]
    [4096, 4189]
    """
    cdef Record r
    cdef size_t pos = 0, n = <size_t>data.shape[0], size
    cdef uint8_t* p
    cdef int rc = RC_TRUNCATED
    cdef bint full = False
    if n > 0:
        p = &data[0]
        with nogil:
            while pos < n:
                rc = parse_record(p + pos, n - pos, &r)
                if rc != RC_OK:
                    break
                size = <size_t>r.size
                if size + RC_BLANK_BYTES > room - pos:
                    full = True
                    break
                move_record(p + pos, &r, phy_offset + <int64_t>pos)
                pos += size
                rc = RC_TRUNCATED
    if full:
        return pos, "full"
    return pos, "more" if rc == RC_TRUNCATED else "blank" if rc == RC_BLANK else "damage"
