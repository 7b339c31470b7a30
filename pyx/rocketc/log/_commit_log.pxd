"""The commit log: where a record goes, and what is written there."""
from libc.stdint cimport int64_t, uint8_t, uint64_t

from rocketc.c.histogram cimport rc_histogram
from rocketc.files._append_file cimport FileState
from rocketc.log._log_files cimport LogFiles
from rocketc.log._prepared_record cimport PreparedRecord
from rocketc.log._queue_room cimport QueueRoom

# Threads that each put wakes, besides the allocator and the dispatcher: bits.
cdef enum Wakes:
    WAKE_FLUSH = 1
    WAKE_COMMIT = 2             # once there are enough pages

cdef enum:
    SLOW_HOLD_MS = 500          # a longer hold of the put lock is counted and logged, as in RocketMQ
    SHOWN_TOPIC_BYTES = 128

# What a put that held the put lock for long was waiting for.
cdef enum WaitedFor:
    WAITED_WRITE = 0
    WAITED_FILE = 1
    WAITED_PAGES = 2
    WAITED_COMMIT = 3

ctypedef struct SlowHold:
    int64_t ms
    int64_t size                # bytes of the records that were to be appended
    int waited                  # a WaitedFor
    int topic_len
    uint8_t topic[SHOWN_TOPIC_BYTES]    # of the first record; the beginning of a longer one

cdef class CommitLog(LogFiles):
    cdef:
        int64_t _in_lock_since  # ms; 0 while the put lock is free
        int64_t _busy_ms
        int64_t _max_body
        bint _property_crc
        bint _light             # messages also go to the queues that INNER_MULTI_DISPATCH names
        int _wakes              # bits of Wakes; never changed
        int64_t _is_held_long   # 1: a put has held the put lock for SLOW_HOLD_MS, and is asked to note it
        int64_t _slow_since     # its _in_lock_since
        int64_t slow_holds      # how many times the put lock was held for longer than SLOW_HOLD_MS
        SlowHold _slow_hold     # the last of them. Guarded by the put lock
        int64_t appended        # records
        int64_t appended_bytes
        QueueRoom room          # for the files of new consume queues
        bytes _room_folder
        bytes _room_above
        int64_t waits           # how many times the put lock was not free
        list watched_paths      # of bytes, of a LockWatch: fl.failed_path may point to one
        rc_histogram put_time   # of a sample
        rc_histogram lock_time  # of the waits
    cdef int append(self, PreparedRecord* records, int n, int how) noexcept nogil
    cdef int _await_room(self, int how) noexcept nogil
    cdef int64_t _measure(self, PreparedRecord* records, int n, int how, int* count) noexcept nogil
    cdef int _measure_one(self, PreparedRecord* r, const PreparedRecord* before) noexcept nogil
    cdef uint64_t _lock_queues(self, PreparedRecord* records, int n, int how) noexcept nogil
    cdef int _append_some(self, PreparedRecord* records, int n, int how, int64_t total, int* taken) noexcept nogil
    cdef int _write_record(self, FileState* f, int64_t pos, PreparedRecord* r, int64_t now) noexcept nogil
    cdef void _wake(self, FileState* f) noexcept nogil
    cdef void _note_hold(self, const uint8_t* topic, int64_t topic_len, int64_t size) noexcept nogil
    cdef int64_t watch_hold(self, int64_t* since, int64_t* until_ns) noexcept nogil
    cdef void _take_lock(self) noexcept nogil
    cdef bint _take_lock_at_once(self, int64_t size) noexcept nogil
    cdef bint is_busy(self) noexcept nogil
