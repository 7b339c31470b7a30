# cython: language_level=3
"""Deleted topics, and which of their records are still in the log: for each topic, those before a physical offset."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free

from rocketc.format._text_table cimport TextTable, UNKNOWN

cdef enum:
    FIRST = UNKNOWN + 1     # these numbers are not verdicts


cdef class DeletedTopicOffsets:
    """Maps topics to physical offsets. Earlier records of a topic are not dispatched to a queue."""

    def __cinit__(self, dict ends not None):
        cdef bytes name
        cdef int i
        self._numbers = TextTable()
        self._ends = <int64_t*>calloc(<size_t>len(ends) + 1, sizeof(int64_t))
        if self._ends == NULL:
            raise MemoryError
        for i, (topic, end) in enumerate(ends.items()):
            name = topic.encode("utf-8", "surrogateescape")
            self._numbers.put(<const uint8_t*><const char*>name, <int>len(name), FIRST + i)
            self._ends[i] = end
            self.end = max(self.end, self._ends[i])

    def __dealloc__(self):
        free(self._ends)

    cdef bint has(self, const uint8_t* topic, int32_t topic_len, int64_t phy_offset) noexcept nogil:
        """Return whether a record belongs to a deleted topic."""
        cdef int number
        if phy_offset >= self.end:
            return False
        number = self._numbers.get(topic, topic_len)
        return number >= FIRST and phy_offset < self._ends[number - FIRST]

    def __contains__(self, record):
        """Return whether a record, as (topic, physical offset), belongs to a deleted topic."""
        cdef bytes name = record[0].encode("utf-8", "surrogateescape")
        return self.has(<const uint8_t*><const char*>name, <int32_t>len(name), record[1])
