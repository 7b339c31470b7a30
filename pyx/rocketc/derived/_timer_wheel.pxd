"""The timer wheel: for each moment, the first and the last unit of the timer log that is due then."""
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    TIMER_SLOT_BYTES = 32
    TIMER_SLOT_TIME_AT = 0      # i64, units of the precision
    TIMER_SLOT_FIRST_AT = 8     # i64, offset in the timer log
    TIMER_SLOT_LAST_AT = 16     # i64, the same; each unit has the offset of the one before it
    TIMER_SLOT_COUNT_AT = 24    # i32, messages; a unit that deletes another one counts as -1
    TIMER_SLOT_MAGIC_AT = 28    # i32, 0

# One slot, decoded. An unused one has the time -1.
ctypedef struct TimerSlot:
    int64_t time            # ms
    int64_t first
    int64_t last
    int32_t count


cdef class TimerWheel:
    cdef:
        uint8_t* _base          # the map; NULL after close()
        size_t _size
        int64_t _step           # ms of a slot
        int64_t _slots
        int _fd
        int _cut                # 1 after a page was missing
        uint8_t* _ready         # of each page of 4096 bytes: 1: it has disk space
        bint _is_changed        # since the last flush()
        readonly str path
        readonly bint is_new    # the file did not exist, or had another size
        readonly bint is_other  # used() has found slots of another precision
    cdef int find(self, int64_t time, TimerSlot* slot) noexcept nogil
    cdef int put(self, int64_t time, int64_t pos, int32_t change) noexcept nogil
    cdef int set_slot(self, const TimerSlot* slot) noexcept nogil
    cdef int64_t next_used(self, int64_t time, int64_t stop) noexcept nogil
    cdef int64_t free_from(self, int64_t time, int64_t read, int64_t stop) noexcept nogil
    cdef int make_ready(self, int64_t time) noexcept nogil
    cdef int _check_open(self) except -1
    cdef int _check(self, int rc) except -1
