"""MessageStore: a store that is open."""
from rocketc._dispatch cimport Dispatcher
from rocketc._puts cimport Putting

cdef class MessageStore(Putting):
    cdef Dispatcher dispatcher  # None if read-only
    cdef object _root       # what belongs to the store beside its log: lock file, abort file, checkpoint
    cdef object _ended      # Event: close() has done all
    cdef object __weakref__
