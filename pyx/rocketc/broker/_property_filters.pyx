# cython: language_level=3
"""Filters of pulls that test the properties of messages, without Python objects.

A read of a queue calls them for each record that it looks at, without the GIL. The messages of an inner batch pass or
fail together, by the properties of the batch.
Source: RocketMQ ExpressionMessageFilter, ExpressionForRetryMessageFilter.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdlib cimport calloc, free

from rocketc.c.layout cimport RC_PROPERTY_RETRY_TOPIC
from rocketc.c.properties cimport rc_find_property
from rocketc.format._record cimport Record
from rocketc.format._text_table cimport UNKNOWN, TextTable
from rocketc.read._sql_filter cimport SqlFilter, sql_matches
from rocketc.store._results cimport TagFilter

cdef enum:
    FIRST = UNKNOWN + 1         # number of the first filter in a TextTable


cdef class PropertyFilter(TagFilter):
    """Selects the messages that match an SQL92 filter. property_filter() makes it."""

    def __init__(self, tags, codes=()):
        raise TypeError("call property_filter()")

    cdef bint passes(self, const Record* r) noexcept nogil:
        return sql_matches(&self._sql.program, <const char*>r.props, <size_t>r.props_len)


cdef class RetryFilter(TagFilter):
    """Selects messages of a retry topic by the filter of the topic that each was sent to. retry_filter() makes it."""

    def __init__(self, tags, codes=()):
        raise TypeError("call retry_filter()")

    def __dealloc__(self):
        free(self._places)

    cdef bint passes(self, const Record* r) noexcept nogil:
        cdef int at = 0, number, n = rc_find_property(r.props, r.props_len, RC_PROPERTY_RETRY_TOPIC, &at)
        if n < 0:
            return True
        number = self._topics.get(r.props + at, n)
        if number < FIRST:
            return True
        return sql_matches(
            &(<SqlFilter>self._places[number - FIRST]).program, <const char*>r.props, <size_t>r.props_len
        )


def property_filter(SqlFilter sql not None):
    """Return the filter of a pull for an SQL92 filter.

    >>> from rocketc.read.sql import compile_sql
    >>> type(property_filter(compile_sql("price > 10"))).__name__
    'PropertyFilter'
    """
    cdef PropertyFilter made = PropertyFilter.__new__(PropertyFilter, ())
    made._sql = sql
    made.by_record = True
    made.weight = sql.program.step_count
    return made


def retry_filter(dict filters not None):
    """Return the filter of a pull for a retry topic.

    filters  SqlFilter by topic. Messages of other topics pass, and those that do not say their topic

    >>> type(retry_filter({})).__name__
    'RetryFilter'
    """
    cdef RetryFilter made = RetryFilter.__new__(RetryFilter, ())
    cdef SqlFilter one
    cdef bytes name
    cdef int i = 0
    made.by_record = True
    made._filters = list(filters.values())
    made._topics = TextTable()
    made._places = <void**>calloc(<size_t>len(filters) + 1, sizeof(void*))
    if made._places == NULL:
        raise MemoryError
    for topic, one in filters.items():
        name = topic.encode("utf-8", "surrogatepass")
        made._topics.put(<const unsigned char*>PyBytes_AS_STRING(name), <int>PyBytes_GET_SIZE(name), FIRST + i)
        made._places[i] = <void*>one
        made.weight = max(made.weight, one.program.step_count)
        i += 1
    return made
