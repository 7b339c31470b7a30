"""How long the bytes of a stream have waited to be read."""
from libc.stdint cimport int64_t

cdef enum:
    MARKS = 16

# Use it on one thread. Positions count the bytes of the stream from its beginning; times are those of the event loop.
cdef class Backlog:
    cdef:
        int64_t _ends[MARKS]    # ascending
        double _times[MARKS]    # ascending: the bytes before _ends[i] had arrived by _times[i]
        int _count
        double _step            # seconds between two marks, at least
    cpdef int note(self, int64_t end, double now) except -1
    cpdef double since(self, int64_t position) except *
