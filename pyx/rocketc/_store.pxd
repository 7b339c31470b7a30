"""MessageStore: a store that is open."""
from rocketc._gets cimport Getting

cdef class MessageStore(Getting):
    cdef object _root       # what belongs to the store beside its log: lock file, abort file, checkpoint
    cdef object _ended      # Event: close() has done all
    cdef object _positions  # weak: the Positions of a Queue's groups; None without one
    cdef object __weakref__
