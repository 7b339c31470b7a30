"""Dispatch the records of a log to the consume queues and the index."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from rocketc.derived._change_feed cimport ChangeFeed
from rocketc.derived._consume_queues cimport ConsumeQueues
from rocketc.derived._dispatch_worker cimport DispatchRequest, DispatchWorker, MOST_HASHES
from rocketc.derived._key_index cimport KeyIndex
from rocketc.derived._queue_files cimport ConsumeQueue
from rocketc.format._queue_units cimport Unit
from rocketc.format._record cimport Record, Slice
from rocketc.read._walk cimport Walker
from rocketc.tables._deleted_topics cimport DeletedTopicOffsets

cdef enum:
    ROWS = 64               # records that are decoded before the first is dispatched: prefetches their index slots
    HASHES = 20000          # of their keys; a record has up to MOST_HASHES
    RECENT_QUEUES = 64      # cache of the queues of the last records
    DELAY_LEVELS = 64

# The values of a property string that dispatching needs; a length of 0 or less: missing.
ctypedef struct DispatchProperties:
    Slice tags
    Slice keys
    Slice unique_key
    Slice delay
    Slice inner_num
    Slice inner_base
    Slice multi_queues
    Slice multi_offsets

cdef class Dispatcher:
    cdef:
        DispatchRequest rows[ROWS]
        int32_t hashes[HASHES]
        int row_count
        int hash_count
        ConsumeQueue* recent[RECENT_QUEUES]
        int64_t delays[DELAY_LEVELS]    # ms of each delay level; level n is at n - 1
        int delay_count
        int64_t position        # physical offset: all records before it are dispatched
        int64_t timestamp       # ms, of the last dispatched record
        int64_t unqueued_count  # records that no queue accepted: unfit topic, or impossible queue offset
        const char* error_path  # file or folder of the last error
        int64_t partial_phy     # record of which the first partial_keys keys are in the index already
        int partial_keys
        ChangeFeed feed         # None: there are no subscribers
        uint64_t woken          # wake-up slots of the queues that received messages
        int64_t queues_from     # physical offset: records before it are in the queues
        int64_t index_from      # physical offset: records before it are in the index
        bint whole              # the log is dispatched from its first record, or live
        bint catching_up        # existing units are compared with the log, and `writer` writes
        DispatchWorker writer        # writes on its own thread; None: the dispatching thread writes
        bint background         # threads are allowed
        bint mismatch           # the files of the queues disagree with the log
        DeletedTopicOffsets deleted_topics  # deleted topics, whose old records do not go to a queue
        bint multi              # messages also go to the queues in INNER_MULTI_DISPATCH
    cdef readonly:
        ConsumeQueues queues
        KeyIndex index          # None: the store does not have one
    cdef int _stage(self, const Record* r, int64_t start) noexcept nogil
    cdef ConsumeQueue* _queue_of(
        self, const uint8_t* topic, int32_t topic_len, int32_t queue_id, bint batch, int* rc,
    ) noexcept nogil
    cdef bint _has_unit(self, const uint8_t* topic, int32_t n, int64_t number, int64_t phy_offset) noexcept nogil
    cdef int _stage_more(self, DispatchProperties* w, Unit unit, int64_t end, bint every) noexcept nogil
    cdef int64_t _tags_code(self, const Record* r, DispatchProperties* w, int64_t timestamp) noexcept nogil
    cdef int _take_block(self, Walker walker) noexcept nogil
    cdef int _put_rows(self) noexcept nogil
    cdef int _put_keys(self, DispatchRequest* row) noexcept nogil
    cdef bint _end_rows(self, int rc) except -1
    cdef object dispatch_error(self, int rc)
