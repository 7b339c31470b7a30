"""The unique ids of messages."""
from libc.stdint cimport int64_t, uint8_t

cdef enum:
    ID_MOST = 56                # characters of an id: 32 with an IPv4 address

cdef class UniqueIds:
    cdef:
        object _clock
        bytes _before           # the ids begin with it
        int64_t _month          # its first ms, since 1970
        int64_t _next_month     # the first ms after it
        int64_t _last           # ms of the last id
        int64_t _count          # ids of this ms before the last one
        uint8_t _head[ID_MOST]  # of all ids of this ms
        readonly Py_ssize_t size        # characters of an id
    cdef int64_t now(self) except -1
    cdef int put(self, int64_t now, uint8_t* dst) except -1
    cdef int _begin(self, int64_t ms) except -1
