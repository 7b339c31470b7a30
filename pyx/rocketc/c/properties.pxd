"""properties.h: the properties string of a record."""
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint64_t


cdef extern from "rocketc/properties.h" nogil:
    ctypedef struct rc_pair:
        int32_t name
        int32_t name_end
        int32_t value
        int32_t value_end
    enum:
        RC_PAIR_MIN_BYTES
        RC_PAIRS_MAX
        RC_PAIRS_SEEN
    uint64_t rc_separators(const uint8_t* p, int n, int start) noexcept
    int rc_split_properties(const uint8_t* p, int n, const uint8_t* end, rc_pair* pairs) noexcept
    int rc_drop_duplicates(const uint8_t* p, rc_pair* pairs, int count, uint16_t* seen) noexcept
    int rc_value_at(const uint8_t* p, int n, const char* name) noexcept
    int rc_find_property(const uint8_t* p, int n, const char* name, int* value_at) noexcept
