"""The arguments of a put from Python as a prepared record."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketc.log._prepared_record cimport PreparedRecord
from rocketc.log._queue_offsets cimport QueueOffsets

cdef enum:
    PROPERTIES_ROOM = 1024  # bytes; longer properties get memory of their own
    HOST_ROOM = 20

ctypedef struct PutCall:
    PreparedRecord record   # the caller first sets its queue id, flags, reconsume times and prepared offset
    bint wait               # what the message asks for (wait_store_ok, property WAIT)
    uint8_t born_host[HOST_ROOM]
    uint8_t store_host[HOST_ROOM]
    uint8_t properties[PROPERTIES_ROOM]

cdef class MessageArgsEncoder:
    cdef:
        bytes host          # the store host, in stored form
        bint checked        # the broker's checks are on
        bint long_topics    # records of version 2 are allowed
        bint multi          # messages also go to the queues that INNER_MULTI_DISPATCH names
        bint _drop_crc      # the log appends its own property CRC
    cdef bytes encode(
        self, PutCall* c, str topic, tags, keys, properties, born_timestamp, born_host, store_host, bint wait,
    )
    cdef void default_hosts(self, PreparedRecord* r) noexcept
    cdef uint8_t* _add_properties(self, PutCall* c, uint8_t* p, dict properties, bint tags, bint keys) except? NULL
    cdef bytes _joined(self, PutCall* c, tags, keys, properties, bint wait)
    cdef bytes stored(self, properties)
    cdef object with_queue_offsets(self, const PreparedRecord* r, QueueOffsets offsets)

cdef bint lacks_light_offsets(const uint8_t* topic, int32_t topic_len, const uint8_t* props, int32_t n) except -1
cdef object illegal_message(str text, status=*)
cdef int64_t message_int(str what, object value, int64_t least, int64_t most) except? -1
cdef bytes message_host(str what, object host)
