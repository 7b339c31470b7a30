"""Texts and numbers of a message that a program sends: the values that are not left to Packer, and their bytes."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLongAndOverflow
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    TEXT_MOST = 2048            # bytes of tags or keys
    NUMBER_BYTES = 20           # of a number in decimal

cdef inline uint8_t* put_bytes(uint8_t* dst, bytes text) noexcept:
    memcpy(dst, PyBytes_AS_STRING(text), <size_t>PyBytes_GET_SIZE(text))
    return dst + PyBytes_GET_SIZE(text)


cdef inline uint8_t* put_number(uint8_t* dst, int64_t number) noexcept nogil:
    """Write a number in decimal: NUMBER_BYTES at most. Return the place after it."""
    cdef uint8_t digits[NUMBER_BYTES]
    cdef int n = NUMBER_BYTES
    cdef uint64_t rest = <uint64_t>number
    if number < 0:
        dst[0] = c"-"
        dst += 1
        rest = 0 - rest
    while True:
        n -= 1
        digits[n] = <uint8_t>(c"0" + rest % 10)
        rest //= 10
        if rest == 0:
            break
    memcpy(dst, digits + n, <size_t>(NUMBER_BYTES - n))
    return dst + (NUMBER_BYTES - n)


cdef inline bint int32_of(object value, int32_t* number) noexcept:
    """Get the value of an int, and return True; False: it needs more than 32 bits."""
    cdef int overflow = 0
    cdef long found = PyLong_AsLongAndOverflow(value, &overflow)
    number[0] = <int32_t>found
    return overflow == 0 and INT32_MIN <= found <= INT32_MAX


cdef const uint8_t* property_of(object text, Py_ssize_t* size) noexcept
