"""Batches and streams by the Arrow C interfaces."""
from rocketc._rows cimport Rows, Selection


cdef class Batch:
    cdef Rows* _rows

cdef Batch batch_of(Rows* rows)
cdef int select(object columns, Selection* out) except -1
