"""Delayed messages that are due: from the topic of delayed messages into their own queues."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketc.log._prepared_record cimport PreparedRecord
from rocketc.store._puts cimport Putting

cdef enum:
    RECORDS_MAX = 512           # records of one append


cdef class Deliveries:
    cdef:
        Putting _store
        bytes _real_topic       # names of properties
        bytes _real_queue
        bytes _discarded        # a topic
        PreparedRecord* _records
    cdef readonly int64_t delivered     # messages
    cdef public int64_t skipped
    cdef bint prepare(self, PreparedRecord* r, const uint8_t* raw, int32_t size, int64_t phy_offset) except -1


cdef bint is_final(int rc) noexcept nogil
cdef int64_t number_in(const uint8_t* p, int n) noexcept nogil
