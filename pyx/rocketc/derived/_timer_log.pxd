"""The timer log: a unit for each message that waits for its time."""
from libc.stdint cimport int32_t, int64_t

from rocketc.files._append_file cimport FileState
from rocketc.files._file_queue cimport FileQueue

cdef enum:
    TIMER_UNIT_BYTES = 52
    TIMER_UNIT_SIZE_AT = 0          # i32, 52
    TIMER_UNIT_PREVIOUS_AT = 4      # i64, offset of the previous unit of the slot; -1: it is the first one
    TIMER_UNIT_MAGIC_AT = 12        # i32, bits of TimerMagic
    TIMER_UNIT_TIME_AT = 16         # i64, ms, when it was written, rounded down to the precision
    TIMER_UNIT_DELAY_AT = 24        # i32, ms from then to the time of its slot
    TIMER_UNIT_PHY_OFFSET_AT = 28   # i64, of the message in the timer topic
    TIMER_UNIT_RECORD_SIZE_AT = 36  # i32, bytes of the message
    TIMER_UNIT_TOPIC_HASH_AT = 40   # i32, of the topic that gets the message
    TIMER_UNIT_RESERVED_AT = 44     # i64, 0
    TIMER_BLANK_BYTES = 16          # i32 bytes left in the file, i64 0, i32 magic of a blank record

cdef enum TimerMagic:
    TIMER_NORMAL = 1
    TIMER_ROLL = 2                  # its time is farther away than its slot: it is put into the topic again
    TIMER_DELETE = 4                # it takes another message back

ctypedef struct TimerUnit:
    int64_t previous
    int64_t time                    # ms
    int64_t phy_offset
    int32_t magic
    int32_t delay                   # ms
    int32_t size                    # of the message's record
    int32_t topic_hash


cdef class TimerLog:
    cdef:
        FileQueue _files
        char* _folder
        bytes _folder_name
        bytes _above                # the folder that has the folder
        FileState* _last            # the file that is written to, or NULL
        FileState* _read            # the file that was read last, held; or NULL
        int64_t _window             # bytes of the next room
        readonly str folder
        readonly long long end      # offset after the last unit
    cdef int append(self, const TimerUnit* unit, int64_t* pos) noexcept nogil
    cdef int find(self, int64_t pos, TimerUnit* unit) noexcept nogil
    cdef void rest(self) noexcept nogil
    cdef int64_t last_before(self, int64_t pos) except -2
    cdef int _take_up(self) noexcept nogil
    cdef int _room(self, int64_t at, int64_t stop) noexcept nogil
    cdef int _hold(self, int64_t pos) noexcept nogil
