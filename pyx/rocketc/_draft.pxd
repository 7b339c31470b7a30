"""The arguments of a put as append() wants them."""
from libc.stdint cimport int32_t, int64_t

from rocketc._queue_offsets cimport QueueOffsets
from rocketc._record cimport Draft, Piece

cdef enum:
    PAIRS_MAX = 32          # of a call whose properties are laid into the log without a copy; more go through one

# Pointers lead into Python objects that the caller keeps.
ctypedef struct Call:
    Draft d                 # its queue id, sys flag, reconsume times and prepared offset are the caller's to set, first
    Piece pieces[2 * PAIRS_MAX]
    int advance             # queue offsets that a record takes
    int64_t expected        # the queue offset that it must get, as its properties say; -1: any
    bint unnumbered         # its properties must have queue offsets, and lack them
    bint wait               # the message's own wish (property WAIT)

cdef class Drafter:
    cdef:
        bytes _host         # storeHost of what is put
        list _hosts         # that alone
        str _topic          # the last one that was looked at: most puts are to the same as the one before
        Piece _topic_bytes
        int _version        # of its records
        bint _checked       # the broker's checks of topics are on
        bint _long_topics   # V2 records are allowed
        bint _drop_crc      # a property CRC of the caller's is left out
        bint _multi         # messages go to the light queues that they name, too
    cdef list draft(
        self, Call* c, str topic, tags, keys, properties, born_timestamp, born_host, store_host, bint wait,
    )
    cdef int _check_topic(self, str topic) except -1
    cdef int _add_properties(self, Call* c, list keep, dict properties, bint tags, bint keys) except -1
    cdef bytes _stored(self, properties)
    cdef int _look_at(self, Call* c, bytes raw) except -1
    cdef bint _lacks_light_offsets(self, bytes raw) except -1
    cdef object numbered(self, str topic, int32_t queue_id, properties, QueueOffsets offsets)
    cdef int _inner(self, Call* c, str number) except -1

cdef object illegal(str text, status=*)             # an IllegalMessageError with its PutStatus
cdef object property_of(bytes raw, bytes name)      # the text of a property in a stored string, or None
cdef int number_of(object text) except? -1          # as Java's Integer.parseInt reads it; 0 for what is none
