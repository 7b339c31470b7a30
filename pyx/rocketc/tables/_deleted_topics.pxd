"""Topics that were deleted, and which records of theirs are left in the log."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketc.format._text_table cimport TextTable

cdef class DeletedTopicOffsets:
    cdef:
        TextTable _numbers      # of each topic, its place in _ends
        int64_t* _ends
        int64_t end             # physical offset: from there on no record is left over
    cdef bint has(self, const uint8_t* topic, int32_t topic_len, int64_t phy_offset) noexcept nogil
