"""points.h: named points in a write to a map, at which a test can end the process."""


cdef extern from "rocketc/points.h" nogil:
    void rc_point(const char* name) noexcept
