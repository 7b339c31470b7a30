"""RocketMQ's own walk over a log file when it recovers a store."""
from libc.stdint cimport int32_t, int64_t

from rocketc.read._log_bytes cimport LogBytes


cdef class JavaWalk(LogBytes):
    cdef readonly:
        long long end           # physical offset behind the last record that RocketMQ takes
        long long stop          # behind what it takes for none there; end if only zeros follow
        bint blank              # a blank record stands at end
        str reason              # why it takes what stands there for no record, or None
    cdef int64_t _next(self, size_t pos) except -1
    cdef int _run(self, size_t* pos, int32_t* size) noexcept nogil
