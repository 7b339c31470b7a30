# cython: language_level=3
"""Topics that were deleted, and which records of theirs are left in the log: those before a physical offset each."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free

from rocketc.format._text_table cimport TextTable, UNKNOWN

cdef enum:
    FIRST = UNKNOWN + 1     # numbers are no verdicts


cdef class DeletedTopicOffsets:
    """From {topic: physical offset}: records of the topic before it make no queue."""

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
        """Whether a record is one that is left over."""
        cdef int number
        if phy_offset >= self.end:
            return False
        number = self._numbers.get(topic, topic_len)
        return number >= FIRST and phy_offset < self._ends[number - FIRST]

    def __contains__(self, record):
        """Whether a record, (topic, physical offset), is one that is left over."""
        cdef bytes name = record[0].encode("utf-8", "surrogateescape")
        return self.has(<const uint8_t*><const char*>name, <int32_t>len(name), record[1])
