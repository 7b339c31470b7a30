"""The scan of a log file in RocketMQ's recovery."""
from libc.stdint cimport int32_t, int64_t

from rocketc.read._log_bytes cimport LogBytes


cdef class JavaWalk(LogBytes):
    cdef readonly:
        long long end           # physical offset of the end of the last record that RocketMQ accepts
        long long stop          # end of the bytes that RocketMQ rejects there; end if only zeros follow
        bint blank              # a blank record is at end
        str reason              # why RocketMQ rejects the bytes at end, or None
    cdef int64_t _next(self, size_t pos) except -1
    cdef int _run(self, size_t* pos, int32_t* size) noexcept nogil
