"""From the log to the consume queues and the index, and to those who wait for messages."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from rocketc._commit_log cimport CommitLog
from rocketc._consume_queue cimport ConsumeQueue, Unit
from rocketc._consume_queues cimport ConsumeQueues
from rocketc._key_index cimport KeyIndex
from rocketc._record cimport Piece, Record
from rocketc._service cimport pthread_cond_t, pthread_mutex_t, rc_service

cdef enum:
    ROWS = 64               # records that are taken apart before the first is dispatched: its slot is in the cache then
    HASHES = 20000          # of their keys; one record has 16384 at most
    BELLS = 64              # queues share them
    DELAY_LEVELS = 64

# One record, or one more queue that it goes to, taken apart.
ctypedef struct Row:
    ConsumeQueue* q         # NULL: none
    Unit unit
    int64_t end             # physical offset behind the record
    int first_hash          # its keys in the dispatcher's hashes
    int hash_count

# What a properties string says that dispatching needs; a length of 0 or less: nothing.
ctypedef struct Wanted:
    Piece tags
    Piece keys
    Piece unique_key
    Piece delay
    Piece inner_num
    Piece inner_base
    Piece multi_queues
    Piece multi_offsets

# Who waits for messages of some queues.
ctypedef struct Bell:
    pthread_mutex_t mutex
    pthread_cond_t cond
    int64_t waiting         # how many

cdef class Dispatcher:
    cdef:
        rc_service service
        rc_service keeper       # the thread that flushes what was dispatched
        pthread_mutex_t flushing    # of queues and index
        Bell bells[BELLS]
        Bell progress           # who waits for all of the log
        Row rows[ROWS]
        int32_t hashes[HASHES]
        int row_count
        int hash_count
        ConsumeQueue* recent[BELLS]
        int64_t delays[DELAY_LEVELS]    # ms of each delay level; level n is at n - 1
        int delay_count
        int64_t position        # physical offset: all before it is dispatched
        int64_t timestamp       # ms, of the last record dispatched
        int64_t waiting         # readers who wait for messages, of all bells
        int64_t notify_fd       # an eventfd, told of new messages once it is armed; -1: none
        int64_t armed
        int64_t dispatched      # records
        int64_t unqueued_count  # records that no queue could take: a topic that is no name, a number that is a lie
        int64_t error           # why it stands still: an errno or a code; 0: it does not
        const char* error_path
        int lost                # the first failure to make queues or index durable
        int64_t partial_phy     # a record whose keys are only partly in the index, after an error
        int partial_keys
        uint64_t touched        # bells of the queues that got messages
        int64_t queues_from     # records before it are in the queues,
        int64_t index_from      # ... and in the index
        bint whole              # the log is walked from its first record on, or live
        bint checking           # the index compares
        bint doubt              # the queues' files say what can't be
        bint follows_flush      # only what is durable is dispatched
        bint multi              # messages go to the queues that INNER_MULTI_DISPATCH names, too
        int64_t interval_ns     # of the keeper
        int64_t thorough_ns
        int64_t least_pages
        bint _ready
        bint _running
        bint _ending            # nobody may wait any more
    cdef readonly:
        CommitLog log
        ConsumeQueues queues
        KeyIndex index          # None: there is none
    cdef int _stage(self, const Record* r, int64_t start) noexcept nogil
    cdef ConsumeQueue* _queue_of(
        self, const uint8_t* topic, int32_t topic_len, int32_t queue_id, bint batch, int* rc,
    ) noexcept nogil
    cdef int _stage_more(self, Wanted* w, const Unit* unit, int64_t end) noexcept nogil
    cdef int64_t _tags_code(self, const Record* r, Wanted* w, int64_t timestamp) noexcept nogil
    cdef int _put_rows(self) noexcept nogil
    cdef int _put_keys(self, Row* row) noexcept nogil
    cdef int64_t _limit(self) noexcept nogil
    cdef int _step(self) noexcept nogil
    cdef int _walk(self, int64_t limit) noexcept nogil
    cdef void _ring(self) noexcept nogil
    cdef bint _nap(self, int64_t since) noexcept nogil
    cdef void _run(self) noexcept nogil
    cdef void _keep(self) noexcept nogil
    cdef int _skip(self, int64_t at) noexcept nogil
    cdef object _failure(self, int rc)
    cdef int wait(
        self, const uint8_t* topic, int32_t topic_len, int32_t queue_id, int64_t offset, int64_t until_ns,
        int64_t slice_ns,
    ) noexcept nogil
    cdef int wait_position(self, int64_t position, int64_t until_ns, int64_t slice_ns) noexcept nogil
    cdef int flush(self, int64_t least_pages) noexcept nogil
