"""The answer of success without fields and body."""
from libc.stdint cimport int32_t


cdef class EmptyAnswer:
    cdef:
        bytes _before_opaque    # the parts of the header
        bytes _after_opaque
    cdef bytes to(self, int32_t opaque)
