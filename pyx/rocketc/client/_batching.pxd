"""The body of a batch, encoded message by message."""
from libc.stdint cimport int64_t, uint8_t

from rocketc.client._unique_ids cimport UniqueIds


cdef class BatchEncoder:
    cdef:
        UniqueIds _ids
        type _kind              # NewMessage
        Py_ssize_t _body_most   # bytes
        Py_ssize_t _most        # bytes of a batch
        uint8_t* _bytes
        Py_ssize_t _used
        Py_ssize_t _room        # allocated bytes
        list _keys              # of the messages
    cdef readonly:
        object left             # the message that fill() has not taken
    cdef bint _add(self, object message, int64_t now) except -1
    cpdef bint fits(self, Py_ssize_t body_size, Py_ssize_t properties_size)
    cdef uint8_t* _reserve(self, Py_ssize_t n) except NULL
