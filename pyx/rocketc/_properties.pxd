"""properties.h: the properties string of a record."""
from libc.stdint cimport uint8_t, uint16_t


cdef extern from "rocketc/properties.h" nogil:
    ctypedef struct rc_pair:
        uint16_t name_at
        uint16_t name_len
        uint16_t value_at
        uint16_t value_len
    enum:
        RC_PAIRS_MAX
    int rc_split_properties(const uint8_t* p, int n, rc_pair* pairs) noexcept
    int rc_drop_duplicates(const uint8_t* p, rc_pair* pairs, int count, uint16_t* seen) noexcept
    int rc_find_property(const uint8_t* p, int n, const char* name, int name_len, int* value_at) noexcept
