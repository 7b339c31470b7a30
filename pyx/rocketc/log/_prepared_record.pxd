"""PreparedRecord: one record to append, filled by C code."""
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memset

from rocketc.c.status cimport RC_MORE
from rocketc.format._record cimport MessageArgs
from rocketc.log._queue_offsets cimport QueueSlot

cdef enum:
    RETRY_MAX_BYTES = 255   # of a retry topic, where the broker's checks are on

# Options of append(), as bits.
cdef enum AppendFlags:
    APPEND_AT_ONCE = 1      # the caller has the GIL: store nothing if anything has to be waited for
    APPEND_IN_ORDER = 2     # after the first refused record, append no further ones

# The content of a record, the options of its put, and its result. Call prepared_init() first. Then set the fields of
# args that the record has: topic, queue_id, body, props (in stored form), flag, sys_flag, born_timestamp, both hosts,
# reconsume_times and prepared_offset, and the lengths. The caller owns the memory of all pointers; append() does not
# keep them. append() sets the other fields of args: version, queue_offset, phy_offset, store_timestamp, body_crc,
# property_crc.
ctypedef struct PreparedRecord:
    MessageArgs args
    int64_t expected        # the queue offset that it must get; -1: any
    int32_t messages        # queue offsets that it takes: 1, or the messages of an inner batch
    int32_t batch           # first record of a batch: how many are stored all or none, in one file; 1: not a batch
    int status              # RC_OK: stored; RC_MORE: not tried; or the reason why it is not stored
    int error               # errno, if status is RC_NO_FILE
    int32_t size            # bytes of the record
    int64_t end             # physical offset of its end
    bint known              # its topic is known: the store does not have to check it
    uint32_t hash           # set by append: of topic and queue id
    QueueSlot* slot         # set by append: the next offset of that queue


cdef inline void prepared_init(PreparedRecord* r) noexcept nogil:
    """Initialize a record without hosts, properties or body. It gets any queue offset and is born when it is stored."""
    memset(r, 0, sizeof(PreparedRecord))
    r.args.born_timestamp = INT64_MIN
    r.expected = r.args.queue_offset = r.args.phy_offset = r.end = -1
    r.messages = r.batch = 1
    r.status = RC_MORE


cdef inline bint is_same_queue(const PreparedRecord* a, const PreparedRecord* b) noexcept nogil:
    """Whether two records certainly go to one queue: their topics are the same memory."""
    return (
        a.args.topic == b.args.topic and a.args.topic_len == b.args.topic_len and a.args.queue_id == b.args.queue_id
    )


cdef inline int batch_count(const PreparedRecord* records, int n) noexcept nogil:
    """How many of n records are stored all or none together with the first."""
    return 1 if records.batch <= 1 else <int>records.batch if records.batch < n else n


cdef int topic_fault(const uint8_t* topic, int32_t n, bint checked, bint long_topics) noexcept nogil
cdef uint32_t initials_of(const uint8_t* props, int32_t n) noexcept nogil
cdef object property_of(const uint8_t* props, int32_t n, const char* name)
cdef int number_of(object text) except? -1
cdef int refuse(PreparedRecord* records, int n, int rc, int error) noexcept nogil
cdef int64_t batch_size(const PreparedRecord* records, int n) noexcept nogil
cdef int fitting(
    const PreparedRecord* records, int n, int64_t room, int most, int64_t enough, int64_t* size,
) noexcept nogil
