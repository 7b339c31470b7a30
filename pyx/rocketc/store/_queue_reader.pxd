"""Reading by queue: get()."""
from libc.stdint cimport int32_t, int64_t

from rocketc.derived._consume_queue_units cimport ConsumeQueue
from rocketc.derived._consume_queues cimport ConsumeQueues
from rocketc.files._mapped_file_queue cimport MappedFileQueue
from rocketc.format._queue_units cimport Unit
from rocketc.store._results cimport Cursor, LogPaths, PickedRecord, PickedRecords, QueueIdentity, ReadResult, TagFilter

# What get() was asked, and what it says.
ctypedef struct Asked:
    QueueIdentity of
    int64_t offset
    int64_t max_count
    int64_t max_bytes
    int how
    int status                  # a GetStatus
    int64_t next
    int64_t min
    int64_t max
    int64_t filtered            # messages that the filter let not pass
    int64_t last_phy            # of the last unit considered, -1: none
    PickedRecord wrong                 # what was damaged

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
        int64_t _memory         # bytes of the log's end that count as in memory
        int64_t _scan_bytes
        int _travel
        int64_t _limits[4]      # bytes and messages in memory, on disk
        bint _keep_offset       # a slave corrects no offsets
        dict _filters
        LogPaths paths
    cdef readonly:
        MappedFileQueue log
        ConsumeQueues queues
    cdef ConsumeQueue* queue(self, str topic, int32_t queue_id) except? NULL
    cdef GetResult read(
        self, str topic, object queue_id, object offset, object max_count, object tags, object max_bytes, int how,
    )
    cdef int _pick(self, Asked* a, ConsumeQueue* q, TagFilter tags, PickedRecords* h, Cursor* c) noexcept nogil
    cdef int _walk(self, Asked* a, ConsumeQueue* q, TagFilter tags, PickedRecords* h, Cursor* c) noexcept nogil
    cdef int _look(
        self, Asked* a, const Unit* u, int64_t unit, TagFilter tags, bint text, PickedRecords* h, Cursor* c,
        int64_t* removed,
    ) noexcept nogil
    cdef int64_t _corrected(self, int64_t old, int64_t offset) noexcept nogil
    cdef int64_t _rolled(self, ConsumeQueue* q, int64_t unit, int64_t most) noexcept nogil
    cdef bint _is_full(self, const Asked* a, const PickedRecords* h, const Unit* u) noexcept nogil
    cdef TagFilter _filter_of(self, object tags)
    cdef int _fail(self, int rc, ConsumeQueue* q, const PickedRecord* t) except -1

cdef ConsumeQueue* find_queue(ConsumeQueues queues, str topic, int32_t queue_id) except? NULL
