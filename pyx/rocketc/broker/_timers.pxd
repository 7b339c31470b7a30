"""Timed messages: from the timer topic into the wheel, and out of it when they are due."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketc.broker._deliveries cimport Deliveries
from rocketc.derived._timer_log cimport TimerLog, TimerUnit
from rocketc.derived._timer_wheel cimport TimerWheel
from rocketc.format._record cimport Record
from rocketc.log._prepared_record cimport PreparedRecord
from rocketc.store._gets cimport Getting
from rocketc.store._raw_records cimport RawRecords

# One unit of the slot that is being delivered.
ctypedef struct Waiting:
    int64_t phy_offset
    int64_t time                # ms, when it came into the wheel
    int32_t size
    int32_t magic


cdef class Timers:
    cdef:
        Getting _store
        Deliveries _deliver
        bytes _topic                # the timer topic
        bytes _out, _enqueue, _dequeue, _rolls, _deletes    # names of properties
        PreparedRecord* _records
        uint8_t* _arena             # properties of one append
        size_t _arena_room
        size_t _arena_used
        RawRecords _held            # the files of the log that deliveries read
        bint _has_held
        Waiting* _waiting           # of one slot, the newest first
        int64_t _waiting_count
        int64_t _waiting_room
        int64_t _slot               # ms, of the slot that is being delivered; -1: none
        int64_t _chain              # the next unit to read of its chain; -1: all were read
        int32_t _slot_count
        int64_t _write              # ms: now, rounded down to the precision
        set _deleted                # of bytes: topic+key of the messages that units of the slot take back
        bytes _counted              # topic of the last entry of counts
        int64_t _count
        dict _counts                # topic: change of its messages since they were taken
    cdef readonly:
        TimerWheel wheel
        TimerLog log
        long long step              # ms: the precision
        long long roll_ms
        long long read_time         # ms: the first moment whose slot may still have to be delivered
        long long last_due          # ms: no later slot is used; -1: none is
        long long pending           # messages in slots from read_time on
        long long enqueued          # units
        long long delivered         # messages, those that were rolled included
        long long rolled
        long long recalled
    cdef public:
        long long queue_offset      # of the next message of the timer topic
        long long skipped
        long long repeated_until    # queue offset: messages before it that are due before repeated_read_time are done
        long long repeated_read_time
    cdef int64_t _time_of(self, const Record* r) noexcept
    cdef int _note(self, const uint8_t* topic, int32_t n, int64_t change) except -1
    cdef int _add(self, const Record* r, int64_t out, int64_t write) except -1
    cdef const uint8_t* _topic_of(self, const Record* r, int32_t* n) noexcept
    cdef int _stamp(self, PreparedRecord* r, int64_t enqueued, int64_t now, bint roll) except -1
    cdef int _append(self, int n) except? -1
    cdef int _read_chain(self, int64_t most) except -1
    cdef bint _rolls_on(self, const Waiting* w, const Record* r) noexcept
    cdef bint _find_record(self, const Waiting* w, Record* r) except -1
    cdef int _keep(self, const TimerUnit* u) except -1
    cdef int _deliver_some(self, int64_t now) except? -1
    cdef int _room(self, size_t n) except -1
