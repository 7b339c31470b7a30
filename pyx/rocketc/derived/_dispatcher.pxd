"""From the records of a log to the consume queues and the index."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from rocketc.derived._change_feed cimport ChangeFeed
from rocketc.derived._consume_queue_units cimport ConsumeQueue
from rocketc.derived._consume_queues cimport ConsumeQueues
from rocketc.derived._dispatch_worker cimport DispatchRequest, DispatchWorker, MOST_HASHES
from rocketc.derived._key_index cimport KeyIndex
from rocketc.format._queue_units cimport Unit
from rocketc.format._record cimport Record, Slice
from rocketc.read._walk cimport Walker
from rocketc.tables._deleted_topics cimport DeletedTopicOffsets

cdef enum:
    ROWS = 64               # records that are taken apart before the first is dispatched: its slot is in the cache then
    HASHES = 20000          # of their keys; one record has MOST_HASHES at most
    RECENT_QUEUES = 64      # the queues of the last records are found without the table
    DELAY_LEVELS = 64

# What a properties string says that dispatching needs; a length of 0 or less: nothing.
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
        int64_t position        # physical offset: all before it is dispatched
        int64_t timestamp       # ms, of the last record dispatched
        int64_t unqueued_count  # records that no queue could take: a topic that is no name, a number that is a lie
        const char* error_path  # what failed last
        int64_t partial_phy     # the record whose first keys, partial_keys of them, are in the index already
        int partial_keys
        ChangeFeed feed         # None: nobody waits for what is dispatched
        uint64_t woken          # wakeup slots of the queues that got messages
        int64_t queues_from     # records before it are in the queues,
        int64_t index_from      # ... and in the index
        bint whole              # the log is walked from its first record on, or live
        bint catching_up        # what the files have is compared,
        DispatchWorker writer        # ... and written by a thread of its own; None: neither
        bint background         # threads may be started
        bint doubt              # the queues' files say what can't be
        DeletedTopicOffsets gone         # topics whose old records make no queue
        bint multi              # messages go to the queues that INNER_MULTI_DISPATCH names, too
    cdef readonly:
        ConsumeQueues queues
        KeyIndex index          # None: there is none
    cdef int _stage(self, const Record* r, int64_t start) noexcept nogil
    cdef ConsumeQueue* _queue_of(
        self, const uint8_t* topic, int32_t topic_len, int32_t queue_id, bint batch, int* rc,
    ) noexcept nogil
    cdef int _stage_more(self, DispatchProperties* w, Unit unit, int64_t end) noexcept nogil
    cdef int64_t _tags_code(self, const Record* r, DispatchProperties* w, int64_t timestamp) noexcept nogil
    cdef int _take_block(self, Walker walker) noexcept nogil
    cdef int _put_rows(self) noexcept nogil
    cdef int _put_keys(self, DispatchRequest* row) noexcept nogil
    cdef bint _end_rows(self, int rc) except -1
    cdef object dispatch_error(self, int rc)
