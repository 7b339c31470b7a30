"""Reading messages of a queue: get() and get_raw()."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketc.derived._consume_queues cimport ConsumeQueues
from rocketc.derived._queue_files cimport ConsumeQueue
from rocketc.files._mapped_file_queue cimport MappedFileQueue
from rocketc.format._queue_units cimport Unit, is_light
from rocketc.store._raw_records cimport RawGetResult, RawRecord, RawRecords
from rocketc.store._results cimport LogPaths, QueueIdentity, ReadResult, TagFilter

cdef enum:
    MAX_COUNT = 32              # default number of messages of one get()
    TRANSFER_BYTES = 128 << 20  # default of max_bytes

# The arguments of a read of a queue. The caller owns all pointers, and keeps them valid during the call.
ctypedef struct GetRequest:
    QueueIdentity of            # topic and queue id; lmq: is_light() of the topic
    int64_t offset              # queue offset to begin at
    int64_t max_count           # most messages
    int64_t max_bytes           # of all records together; the first record is returned whatever its size
    int flags                   # ReadFlags: READ_LOOSE, READ_BROKER, READ_CODES; others are for get()

cdef inline void request_init(
    GetRequest* a, const uint8_t* topic, int32_t topic_len, int32_t queue_id, int64_t offset,
) noexcept nogil:
    """Set a request for 32 messages, RocketMQ's default. The caller may change max_count, max_bytes and flags."""
    a.of.topic = topic
    a.of.topic_len = topic_len
    a.of.queue_id = queue_id
    a.of.lmq = is_light(topic, topic_len)
    a.offset = offset
    a.max_count = MAX_COUNT
    a.max_bytes = TRANSFER_BYTES
    a.flags = 0


cdef class GetResult(ReadResult):
    cdef readonly:
        object status
        long long next_offset
        long long min_offset
        long long max_offset
        long long filter_message_count
        bint suggest_pulling_from_slave

cdef class QueueReader:
    cdef:
        int64_t _memory         # this many bytes at the end of the log count as in memory
        int64_t _scan_bytes     # most bytes of units that a filter reads
        int _travel             # most consume queue files that a get with broker limits reads
        int64_t _limits[4]      # most bytes and messages: in memory, on disk
        bint _keep_offset       # True: do not correct offsets, as on a slave
        dict _filters
        LogPaths paths
    cdef readonly:
        MappedFileQueue log
        ConsumeQueues queues
    cdef ConsumeQueue* queue(self, str topic, int32_t queue_id) except? NULL
    cdef GetResult read(
        self, str topic, object queue_id, object offset, object max_count, object tags, object max_bytes, int how,
    )
    cdef RawGetResult raw(
        self, str topic, object queue_id, object offset, object max_count, object tags, object max_bytes, int how,
    )
    cdef int get_records(self, const GetRequest* a, TagFilter tags, RawRecords* h) except -1 nogil
    cdef bint skip_unwanted(self, GetRequest* a, TagFilter tags, RawRecords* h) noexcept nogil
    cdef bytes _prepare(
        self, GetRequest* a, str topic, object queue_id, object offset, object max_count, object max_bytes, int how,
    )
    cdef int _pick(self, const GetRequest* a, ConsumeQueue* q, TagFilter tags, RawRecords* h) noexcept nogil
    cdef int _walk(self, const GetRequest* a, ConsumeQueue* q, TagFilter tags, RawRecords* h) noexcept nogil
    cdef int _look(
        self, const GetRequest* a, const Unit* u, int64_t unit, TagFilter tags, bint text, RawRecords* h,
        int64_t* removed, int64_t* work,
    ) noexcept nogil
    cdef int64_t _corrected(self, int64_t old, int64_t offset) noexcept nogil
    cdef int64_t _rolled(self, ConsumeQueue* q, int64_t unit, int64_t most) noexcept nogil
    cdef bint _is_full(self, const GetRequest* a, const RawRecords* h, const Unit* u) noexcept nogil
    cdef TagFilter _filter_of(self, object tags)
    cdef int _fail(self, int rc, ConsumeQueue* q, const RawRecord* wrong) except -1

cdef ConsumeQueue* find_queue(ConsumeQueues queues, str topic, int32_t queue_id) except? NULL
