"""histogram.h: latencies in ns, added and read by any thread; zero bytes are an empty histogram."""
from libc.stdint cimport uint32_t, uint64_t


cdef extern from "rocketc/histogram.h" nogil:
    ctypedef struct rc_histogram:
        pass
    enum:
        RC_HISTOGRAM_BUCKETS
    void rc_histogram_add(rc_histogram* h, uint64_t ns) noexcept
    uint64_t rc_histogram_count(const rc_histogram* h) noexcept
    uint64_t rc_histogram_max(const rc_histogram* h) noexcept
    uint64_t rc_histogram_sum(const rc_histogram* h) noexcept
    uint64_t rc_histogram_below(const rc_histogram* h, uint64_t power_of_two) noexcept
    uint64_t rc_histogram_percentile(const rc_histogram* h, double percent) noexcept
    uint32_t rc_size_class(uint32_t size) noexcept
