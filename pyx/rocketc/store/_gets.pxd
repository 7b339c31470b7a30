"""Getting: the part of a store that returns messages."""
from libc.stdint cimport int64_t

from rocketc.derived._reput cimport ReputService
from rocketc.store._lookups cimport Lookups
from rocketc.store._puts cimport Putting
from rocketc.store._queue_reader cimport GetRequest, QueueReader
from rocketc.store._raw_records cimport RawRecords
from rocketc.store._results cimport TagFilter

cdef class Getting(Putting):
    cdef:
        ReputService dispatcher   # None if read-only
        QueueReader reader
        Lookups lookups
        object _followers       # of follow() and subscribe(), created by their first call; None before
        object _followers_class
    cdef int _look_around(self) except -1
    cdef int _reach(self, int64_t end) except -1
    cdef int get_records(self, const GetRequest* a, TagFilter tags, RawRecords* h) except -1
    cdef int64_t skip_unwanted(self, GetRequest* a, TagFilter tags, RawRecords* h) except? -2
    cdef bint _wait_for_more(
        self, str topic, int queue_id, int64_t offset, int64_t since, int64_t until,
    ) except -1
