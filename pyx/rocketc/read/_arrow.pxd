"""Batches and streams of the Arrow C interfaces."""
from rocketc.read._column_buffers cimport BatchBuffers, Selection


cdef class Batch:
    cdef BatchBuffers* buffers

cdef Batch batch_of(BatchBuffers* rows)
cdef int select(object columns, Selection* out) except -1
