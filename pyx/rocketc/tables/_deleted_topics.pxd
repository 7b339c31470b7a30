"""Deleted topics, and which of their records are still in the log."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketc.format._text_table cimport TextTable

cdef class DeletedTopicOffsets:
    cdef:
        TextTable _numbers      # of each topic: its index in _ends
        int64_t* _ends
        int64_t end             # physical offset: records from here on are not of deleted topics
    cdef bint has(self, const uint8_t* topic, int32_t topic_len, int64_t phy_offset) noexcept nogil
