"""shape.h: properties strings with the same names and lengths as an earlier one."""
from libc.stdint cimport int32_t, uint8_t

from rocketc.c.properties cimport rc_pair


cdef extern from "rocketc/shape.h" nogil:
    ctypedef struct rc_shape:
        int32_t len
        int32_t count
        int32_t keys
        int32_t tags
        rc_pair* pairs
        int32_t names_len
        int32_t* name_ends
        uint8_t* names
    enum:
        RC_SHAPES
        RC_SHAPE_BYTES
        RC_SHAPE_PAIRS
        RC_SHAPE_STEP
    int rc_shape_fits(const rc_shape* s, const uint8_t* p, int n, const uint8_t* end) noexcept
    void rc_shape_keep(rc_shape* s, const uint8_t* p, int n, const rc_pair* pairs, int count, int ascii) noexcept
