# cython: language_level=3
"""Numbers that a caller gives: checked against the range that is allowed.

Cython's own conversion to an int32_t or an int64_t raises an OverflowError that does not say which argument is wrong.
"""
from operator import index

from libc.stdint cimport INT64_MAX, int64_t

from rocketc.c.service cimport rc_clock_ns

cdef enum:
    SHOWN_BITS = 128            # longer numbers are not written out in a message

cdef double LONGEST_SECONDS = 1e9       # 31 years


cpdef str shown(object value):
    """The text of a value in a message; Python refuses to write out an int of more than 4300 digits."""
    if isinstance(value, int) and value.bit_length() > SHOWN_BITS:
        return f"a number of {value.bit_length()} bits"
    return repr(value)


cdef int64_t checked_int(str what, object value, int64_t least, int64_t most, type error=ValueError) except? -1:
    """Return an int argument. Raises TypeError, or `error` with the allowed range."""
    cdef int overflow = 0
    cdef int64_t n
    if is_int_in(value, least, most, &n):
        return n
    try:
        value = index(value)
    except TypeError:
        raise TypeError(f"{what}: expected int, got {type(value).__name__}") from None
    n = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow != 0 or n < least or n > most:
        raise error(f"{what} is {shown(value)}; allowed are {least} to {most}")
    return n


cdef double checked_double(str what, object seconds) except? -1:
    """Return a number of seconds. Raises TypeError, or ValueError for NaN."""
    cdef double value
    if isinstance(seconds, (str, bytes, bytearray)):    # float() reads texts
        raise TypeError(f"{what}: expected a number of seconds, got {type(seconds).__name__}")
    try:
        value = float(seconds)
    except OverflowError:
        return LONGEST_SECONDS if seconds > 0 else -LONGEST_SECONDS
    except (TypeError, ValueError):
        raise TypeError(f"{what}: expected a number of seconds, got {type(seconds).__name__}") from None
    if value != value:
        raise ValueError(f"{what} is {value}; it must be a number of seconds")
    return min(max(value, -LONGEST_SECONDS), LONGEST_SECONDS)


cdef int64_t checked_until(str what, object seconds) except -1:
    """Return when a wait of this many seconds ends, by rc_clock_ns(): INT64_MAX for None, now for less than 0.

    Raises TypeError, ValueError.
    """
    if seconds is None:
        return INT64_MAX
    return rc_clock_ns() + <int64_t>(max(checked_double(what, seconds), 0.0) * 1e9)


def whole_number(str what not None, value, int64_t least, int64_t most):
    """Return an int argument. Raises TypeError, or ValueError with the allowed range.

    >>> whole_number("jobs", 2, 1, 64)
    2
    >>> whole_number("jobs", 0, 1, 64)
    Traceback (most recent call last):
    ValueError: jobs is 0; allowed are 1 to 64
    """
    return checked_int(what, value, least, most)


def seconds_of(str what not None, value, *, least=None):
    """Return a number of seconds as a float of at most 1e9. Raises TypeError; ValueError for NaN, or for less than
    `least`.

    >>> seconds_of("timeout", 5), seconds_of("timeout", float("inf"))
    (5.0, 1000000000.0)
    >>> seconds_of("timeout", -1, least=0)
    Traceback (most recent call last):
    ValueError: timeout is -1; it must be at least 0
    """
    cdef double seconds = checked_double(what, value)
    if least is not None and seconds < least:
        raise ValueError(f"{what} is {shown(value)}; it must be at least {least}")
    return seconds
