"""Numbers that a caller gives. Each error names the argument, the value and the allowed range."""
from cpython.long cimport PyLong_CheckExact
from libc.stdint cimport int64_t

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object value, int* overflow) noexcept     # for an int

cdef int64_t checked_int(str what, object value, int64_t least, int64_t most, type error=*) except? -1
cdef int64_t checked_until(str what, object seconds) except -1      # seconds from now, as a time of rc_clock_ns()
cpdef str shown(object value)       # its text in a message


cdef inline bint is_int_in(object value, int64_t least, int64_t most, int64_t* n) noexcept:
    """Set n to the value, if it is of type int itself and from least to most. Otherwise return False.

    checked_int() accepts more types, and raises.
    """
    cdef int overflow = 0
    if not PyLong_CheckExact(value):
        return False
    n[0] = PyLong_AsLongLongAndOverflow(value, &overflow)
    return overflow == 0 and least <= n[0] <= most
