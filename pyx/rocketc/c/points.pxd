"""points.h: named points inside a write into a map, where a test can end the process."""


cdef extern from "rocketc/points.h" nogil:
    void rc_point(const char* name) noexcept
