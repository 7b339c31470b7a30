"""How many calls there were, and how long they took."""

cdef enum:
    BOUNDS_MOST = 16

cdef class Times:
    cdef readonly:
        tuple bounds            # ms, ascending
        list counts             # calls of each bound, and of what is above
    cdef public:
        double total            # ms
    cdef:
        double _bounds[BOUNDS_MOST]
        int _size               # bounds
    cdef int put(self, double ms, Py_ssize_t count) except -1
