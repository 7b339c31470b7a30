"""Select the records of a scan by their bytes."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketc.format._record cimport Record
from rocketc.format._text_table cimport TextTable
from rocketc.read._sql_filter cimport SqlFilter

# Queue offsets [begin, end) that pass in a queue. The entries of a topic are adjacent.
ctypedef struct Offsets:
    int64_t begin
    int64_t end
    int32_t queue_id
    bint others             # for all queues without an entry before this one
    bint last               # last entry of its topic


cdef class Filter:
    cdef:
        TextTable _topics   # None: every topic
        TextTable _tags     # None: all
        TextTable _keys     # None: all
        SqlFilter _sql      # None: all
        list _names         # the topics given by name
        list _patterns      # re.Pattern, matched with topics that are not in _topics yet
        bint _ask           # there are patterns
        int32_t* _queues    # sorted
        int _queue_count    # -1: every queue
        TextTable _ranged   # topic -> FIRST_RANGE + where its Offsets begin; None: all queue offsets
        Offsets* _offsets
        int64_t _begin      # ms; store timestamp, inclusive
        int64_t _end        # exclusive
        bint _unwrap        # inner batches are split
        bint _all           # nothing is filtered
    cdef int verdict(self, const Record* r) noexcept nogil
    cdef bint _has_key(self, const Record* r) noexcept nogil
    cdef bint _has_offset(self, const Record* r) noexcept nogil
    cdef int _take_offsets(self, dict offsets) except -1
    cdef int verdict_of_content(self, const Record* r) noexcept nogil
    cdef int judge(self, const Record* r) except -1


cdef int64_t ms_of(str what, object when, int64_t default) except? -1   # int or aware datetime -> ms; None: default
