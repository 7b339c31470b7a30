"""Collect the data that verify needs from a file's records, without Python objects per record."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from rocketc.format._record cimport Record
from rocketc.format._text_table cimport TextTable
from rocketc.read._walk cimport BLOCK_RECORDS, Walker

cdef enum:
    STEP_BLOCKS = 64            # blocks that one step() reads: up to 16,384 records
    TOPIC_KEPT = 256            # bytes of a topic that is compared before all topics are searched

# A record, copied from the map. topic is -1 if the record is in no queue.
ctypedef struct Seen:
    int32_t topic               # its number
    int32_t queue_id
    int64_t queue_offset
    int64_t count               # messages: more than one in an inner batch
    int64_t phy_offset
    int64_t timestamp           # ms

ctypedef struct Run:
    int32_t topic
    int32_t queue_id
    int64_t first
    int64_t behind
    int64_t phy_offset          # of the record that begins it

# The latest run of a queue; run is -1 in a free slot.
ctypedef struct Slot:
    uint64_t queue              # topic and queue id
    int64_t run


cdef class Audit:
    cdef:
        Walker walker
        TextTable _numbers      # topic -> its number, shifted so that it differs from UNKNOWN
        list _topics
        bint _topics_full
        uint8_t _topic[TOPIC_KEPT]  # of the last record
        int32_t _topic_len      # -1: it was too long
        int _number             # the number of this topic
        Slot* _slots            # 2^n slots, at most half of them used
        uint64_t _mask
        Run* _runs
        int64_t _run_count
        int64_t _queue_count    # queues with a run
        int64_t _queues_max
        int64_t _gaps_max       # of the other runs
        int64_t _run_room
        Seen _seen[BLOCK_RECORDS]
    cdef readonly:
        int64_t records
        int64_t messages        # counts each message of an inner batch
        int64_t first_offset    # physical offsets of the first and last record; -1 without records
        int64_t last_offset
        int64_t first_timestamp     # ms; 0 without records
        int64_t last_timestamp
        int64_t backwards       # records with an earlier store timestamp than the record before
        int64_t backwards_at    # physical offset of the first of them, or -1
        uint64_t backwards_ms   # the largest such step
        bint overflowed         # too many topics or runs: not all queue offsets were checked
    cdef bint next(self) except -1
    cdef int _copy(self, Walker w, int* done) noexcept nogil
    cdef int _number_of(self, const Record* r) noexcept nogil
    cdef int _add_topic(self, Walker w, const Record* r) except -1
    cdef void _enter(self, int count) noexcept nogil
    cdef void _enter_queue(self, const Seen* seen) noexcept nogil
    cdef Slot* _slot(self, uint64_t queue) noexcept nogil
    cdef int _grow_slots(self, uint64_t room) except -1
    cdef int _grow_runs(self) except -1
