"""Delayed messages that are due: from the topic of delayed messages into their own queues."""
from libc.stdint cimport int64_t

from rocketc.log._prepared_record cimport PreparedRecord
from rocketc.store._puts cimport Putting
from rocketc.store._raw_records cimport RawGetResult

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
    cdef bint _prepare(self, PreparedRecord* r, RawGetResult found, int row) except -1
