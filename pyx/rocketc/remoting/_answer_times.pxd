"""A histogram of how long answers took."""
from libc.stdint cimport int64_t

cdef enum:
    BOUNDS_MOST = 9


cdef class AnswerTimes:
    cdef:
        int64_t _counts[BOUNDS_MOST + 1]    # up to each bound, and above
        double _seconds                     # of all
    cpdef void add(self, double seconds, Py_ssize_t count=*) noexcept
