"""The bodies of put_many as prepared records, some at a time."""
from libc.stdint cimport int64_t, uint8_t

from rocketc.log._prepared_record cimport PreparedRecord


cdef int check_body(body, str name, Py_ssize_t number=*) except -1      # TypeError unless it is bytes-like
cdef int check_iterable(items, str name, str of) except -1              # TypeError for one text or one body


cdef class Bodies:
    cdef:
        tuple _items            # or None: the bodies are an Arrow array
        object _capsules        # they own the array
        const uint8_t* _valid   # a bit for each value; NULL: there are no nulls
        const uint8_t* _values
        const void* _offsets    # int32 or int64
        bint _wide
        int64_t _first          # index of the first body in the array's values
        Py_buffer* _views       # of those items of the last fill() that are not bytes
        int _viewed
        readonly Py_ssize_t count
    cdef int _take_array(self, tuple capsules) except -1
    cdef int fill(self, Py_ssize_t start, int n, PreparedRecord* records) except -1
    cdef int _fill_views(self, Py_ssize_t start, int n, PreparedRecord* records) except -1
    cdef void _fill_arrow(self, int64_t start, int n, PreparedRecord* records) noexcept
    cdef void release(self) noexcept
