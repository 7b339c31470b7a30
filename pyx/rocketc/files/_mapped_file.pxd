"""One mapped file, for reading."""
from libc.stdint cimport uint8_t


cdef class MappedFile:
    cdef:
        uint8_t* base           # start of the map; NULL if the file is empty, or after close()
        size_t length           # bytes of the file when it was opened
        int _fd                 # -1 after close()
        int cut                 # 1 if a page was missing: the file became shorter or unreadable
        Py_ssize_t _holds       # readers that use base; they begin and end with the GIL, so it is not atomic
        str _path
    cdef int hold(self) except -1
    cdef void release(self) noexcept
    cdef bint is_shorter(self, size_t size) noexcept nogil
