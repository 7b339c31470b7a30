"""Filters of pulls that test the properties of messages, without Python objects."""
from rocketc.format._record cimport Record
from rocketc.format._text_table cimport TextTable
from rocketc.read._sql_filter cimport SqlFilter
from rocketc.store._results cimport TagFilter


cdef class PropertyFilter(TagFilter):
    cdef SqlFilter _sql
    cdef bint passes(self, const Record* r) noexcept nogil


cdef class RetryFilter(TagFilter):
    cdef:
        list _filters           # SqlFilter
        void** _places          # the same, borrowed; free()
        TextTable _topics       # the number of the filter of each topic, plus FIRST
    cdef bint passes(self, const Record* r) noexcept nogil
