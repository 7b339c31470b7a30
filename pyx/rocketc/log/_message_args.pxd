"""The arguments of a put as append() wants them."""
from libc.stdint cimport int32_t, int64_t

from rocketc.format._record cimport MessageArgs, Slice
from rocketc.log._queue_offsets cimport QueueOffsets

cdef enum:
    PAIRS_MAX = 32          # of a call whose properties are laid into the log without a copy; more go through one

# Pointers lead into Python objects that the caller keeps.
ctypedef struct PutCall:
    MessageArgs d           # its queue id, sys flag, reconsume times and prepared offset are set by the caller, first
    Slice pieces[2 * PAIRS_MAX]
    int advance             # queue offsets that a record takes
    int64_t expected        # the queue offset that it must get, as its properties say; -1: any
    bint unnumbered         # its properties must have queue offsets, and lack them
    bint wait               # the message's own wish (property WAIT)

cdef class MessageArgsEncoder:
    cdef:
        bytes _host         # storeHost of what is put
        list _hosts         # that alone
        str _topic          # the last one that was looked at: most puts are to the same as the one before
        Slice _topic_bytes
        int _version        # of its records
        bint _checked       # the broker's checks of topics are on
        bint _long_topics   # V2 records are allowed
        bint _drop_crc      # a property CRC of the caller's is left out
        bint _multi         # messages go to the light queues that they name, too
    cdef list encode(
        self, PutCall* c, str topic, tags, keys, properties, born_timestamp, born_host, store_host, bint wait,
    )
    cdef int _check_topic(self, str topic) except -1
    cdef int _add_properties(self, PutCall* c, list keep, dict properties, bint tags, bint keys) except -1
    cdef bytes stored(self, properties)
    cdef int _look_at(self, PutCall* c, bytes raw) except -1
    cdef bint lacks_light_offsets(self, bytes raw) except -1
    cdef object with_queue_offsets(self, str topic, int32_t queue_id, properties, QueueOffsets offsets)
    cdef int _inner(self, PutCall* c, str number) except -1

cdef object illegal_message(str text, status=*)             # an IllegalMessageError with its PutStatus
cdef object property_of(bytes raw, const char* name)      # the text of a property in a stored string, or None
cdef int number_of(object text) except? -1          # as Java's Integer.parseInt reads it; 0 for what is none
