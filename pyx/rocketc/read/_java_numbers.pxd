"""Numbers from texts by Java's rules. Each function returns False, and sets nothing, for a text that Java refuses."""
from libc.stdint cimport int64_t, uint8_t


cdef bint java_int(const uint8_t* p, size_t n, int64_t* out) noexcept nogil        # Integer.parseInt
cdef bint java_long(const uint8_t* p, size_t n, int64_t* out) noexcept nogil       # Long.parseLong
cdef bint java_double(const uint8_t* p, size_t n, double* out) noexcept nogil      # Double.parseDouble
cdef int java_compare(double a, double b) noexcept nogil    # Double.compare; NaN is the largest, -0.0 < 0.0
