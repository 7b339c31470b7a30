"""MessageStore: a store that is open."""
from rocketc.store._raw cimport RawAccess

cdef class MessageStore(RawAccess):
    cdef object _root       # what belongs to the store beside its log: lock file, abort file, checkpoint
    cdef object _positions  # weak: the GroupOffsets of a Queue; None without one
    cdef object _closer     # the thread that is in close()
    cdef int _enter_now(self) except -1
    cdef int _end_writing(self, list errors) except? -1
    cdef object __weakref__
