"""Numbers that a caller gives. Each error names the argument, the value and the allowed range."""
from libc.stdint cimport int64_t

cdef int64_t checked_int(str what, object value, int64_t least, int64_t most, type error=*) except? -1
cdef int64_t checked_until(str what, object seconds) except -1      # seconds from now, as a time of rc_clock_ns()
cpdef str shown(object value)       # its text in a message
