"""MessageStore: an open store."""
from rocketc.store._raw cimport RawAccess

cdef class MessageStore(RawAccess):
    cdef object _root       # the StoreRoot or ReadOnlyRoot: lock file, abort file, checkpoint
    cdef object _positions  # weak reference to the GroupOffsets of a Queue; None without a Queue
    cdef object _closer     # id of the thread that runs close()
    cdef int _enter_now(self) except -1
    cdef int _end_writing(self, list errors) except? -1
    cdef object __weakref__
