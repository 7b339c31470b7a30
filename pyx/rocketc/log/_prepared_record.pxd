"""PreparedRecord: one record for the log, filled from C."""
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memset

from rocketc.c.status cimport RC_MORE
from rocketc.format._record cimport MessageArgs
from rocketc.log._queue_offsets cimport QueueSlot

cdef enum:
    RETRY_MAX_BYTES = 255   # of a retry topic, where the broker's checks are on

# How append() goes on: bits.
cdef enum AppendFlags:
    APPEND_AT_ONCE = 1      # the caller has the GIL: if anything has to be waited for, nothing is stored
    APPEND_IN_ORDER = 2     # behind the first record that is refused, none is taken

# What a record says, what is asked of the log, and what became of it. prepared_init() comes first; then the caller sets
# the fields of args that a record has: topic, queue_id, body, props (in stored form), flag, sys_flag, born_timestamp,
# both hosts, reconsume_times and prepared_offset, each with its length where there is one. Pointers are the caller's,
# and are not kept. The other fields of args are set by append: version, queue_offset, phy_offset, store_timestamp,
# body_crc, property_crc.
ctypedef struct PreparedRecord:
    MessageArgs args
    int64_t expected        # the queue offset that it must get; -1: any
    int32_t messages        # queue offsets that it takes: 1, or the messages of an inner batch
    int32_t batch           # of the first of a batch: how many are stored all or none, in one file; 1: it is alone
    int status              # RC_OK: it is in the log; RC_MORE: not tried; or why it is not
    int error               # errno, if status is RC_NO_FILE
    int32_t size            # bytes of the record
    int64_t end             # physical offset behind it
    bint known              # its topic was met before: the store need not look
    uint32_t hash           # append's own: of topic and queue id,
    QueueSlot* slot         # ... and the next offset of that queue


cdef inline void prepared_init(PreparedRecord* r) noexcept nogil:
    """A record without content: no hosts, properties or body, any queue offset, born when it is stored."""
    memset(r, 0, sizeof(PreparedRecord))
    r.args.born_timestamp = INT64_MIN
    r.expected = r.args.queue_offset = r.args.phy_offset = r.end = -1
    r.messages = r.batch = 1
    r.status = RC_MORE


cdef inline bint is_same_queue(const PreparedRecord* a, const PreparedRecord* b) noexcept nogil:
    """Whether two records surely go to one queue: their topics are the same memory."""
    return (
        a.args.topic == b.args.topic and a.args.topic_len == b.args.topic_len and a.args.queue_id == b.args.queue_id
    )


cdef inline int batch_count(const PreparedRecord* records, int n) noexcept nogil:
    """How many of n records are put all or none with the first."""
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
