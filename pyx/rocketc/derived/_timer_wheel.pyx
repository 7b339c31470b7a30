# cython: language_level=3
"""The timer wheel: for each moment, the first and the last unit of the timer log that is due then.

The file `timerwheel` has a slot of 32 bytes for each moment of 14 days. A moment is one step of the precision, and its
slot is at (time / precision) modulo the number of slots. A slot of another moment counts as unused. The file is sparse,
and a page gets disk space before it is written to.
Source: RocketMQ TimerWheel, Slot.
"""
import os

from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from posix.unistd cimport close as close_file

from rocketc._status cimport check_file
from rocketc.c.bytes cimport rc_get_i32, rc_get_i64, rc_put_i32, rc_put_i64
from rocketc.c.status cimport RC_BAD_ARGUMENT, RC_CLOSED, RC_END, RC_FILE_CUT, RC_OK
from rocketc.c.vm cimport rc_allocate_range, rc_guard, rc_map_random, rc_map_write, rc_sync_map, rc_unmap
from rocketc.files._guard cimport enter_writing, install, leave as guard_leave

from rocketc.errors import ClosedError
from rocketc.files import sparse
from rocketc.files.durable import errors_named, sync_folder
from rocketc.files.regular import open_regular

cdef enum:
    PAGE_BYTES = 4096
    BLANK = -1

SLOTS = 2 * 7 * 86400       # of RocketMQ's file, whatever the precision
SLOT_BYTES = TIMER_SLOT_BYTES


cdef class TimerWheel:
    """Open a timer wheel for writing. A file that is missing, or has another size, becomes an empty one.

    path          str or os.PathLike
    precision_ms  ms of a slot
    slots         number of slots
    Raises StoreIOError, StoreFullError, ValueError.

    >>> import os, tempfile
    >>> wheel = TimerWheel(os.path.join(tempfile.mkdtemp(), "timerwheel"), 1000)
    >>> wheel.add(1_700_000_000_000, 52)
    >>> wheel.slot(1_700_000_000_000), wheel.slot(1_700_000_001_000)
    ((52, 52, 1), None)
    """

    def __cinit__(self, path, int64_t precision_ms, int64_t slots=SLOTS):
        self._fd = -1
        self.path = os.fspath(path)
        if precision_ms <= 0 or not 1 <= slots <= INT32_MAX // TIMER_SLOT_BYTES:
            raise ValueError(f"precision_ms={precision_ms}, slots={slots}: both are from 1 on")
        self._step, self._slots = precision_ms, slots
        self._size = <size_t>(slots * TIMER_SLOT_BYTES)
        self._ready = <uint8_t*>calloc(self._size // PAGE_BYTES + 1, 1)
        if self._ready == NULL:
            raise MemoryError
        install()
        with errors_named(self.path):
            self._fd = open_regular(self.path, os.O_RDWR | os.O_CREAT)
            found = os.fstat(self._fd).st_size
            if found != <int64_t>self._size:
                os.ftruncate(self._fd, 0)
                os.ftruncate(self._fd, self._size)
                os.fsync(self._fd)
                self.is_new = True
        if self.is_new:
            sync_folder(os.path.dirname(self.path) or ".")
        check_file(rc_map_write(self._fd, self._size, &self._base), self.path)
        rc_map_random(self._base, self._size)

    def __dealloc__(self):
        if self._base != NULL:
            rc_unmap(self._base, self._size)
        if self._fd >= 0:
            close_file(self._fd)
        free(self._ready)

    cdef int find(self, int64_t time, TimerSlot* slot) noexcept nogil:
        """Read the slot of a time in ms. Returns RC_OK, RC_END if it is unused, RC_FILE_CUT or RC_CLOSED."""
        cdef rc_guard guard
        cdef const uint8_t* p
        cdef bint used
        slot.time = slot.first = slot.last = BLANK
        slot.count = 0
        if self._base == NULL:
            return RC_CLOSED
        if time < 0:
            return RC_END
        p = self._base + time // self._step % self._slots * TIMER_SLOT_BYTES
        enter_writing(&guard, self._base, self._size, &self._cut)
        used = rc_get_i64(p) == time // self._step and rc_get_i64(p) > 0
        if used:
            slot.time = time // self._step * self._step
            slot.first = rc_get_i64(p + TIMER_SLOT_FIRST_AT)
            slot.last = rc_get_i64(p + TIMER_SLOT_LAST_AT)
            slot.count = rc_get_i32(p + TIMER_SLOT_COUNT_AT)
        guard_leave(&guard)
        if self._cut != 0:
            return RC_FILE_CUT
        return RC_OK if used and slot.last >= 0 else RC_END

    cdef int make_ready(self, int64_t time) noexcept nogil:
        """Allocate disk space for the slot of a time in ms. Returns RC_OK or an errno (the disk is full)."""
        cdef int64_t page = time // self._step % self._slots * TIMER_SLOT_BYTES // PAGE_BYTES
        cdef int rc
        if self._ready[page] != 0:
            return RC_OK
        rc = rc_allocate_range(self._fd, page * PAGE_BYTES, min((page + 1) * PAGE_BYTES, <int64_t>self._size))
        if rc == RC_OK:
            self._ready[page] = 1
        return rc

    cdef int set_slot(self, const TimerSlot* slot) noexcept nogil:
        """Write a slot. Returns RC_OK, an errno (the disk is full), RC_FILE_CUT, RC_CLOSED or RC_BAD_ARGUMENT."""
        cdef rc_guard guard
        cdef uint8_t* p
        cdef int rc
        if self._base == NULL:
            return RC_CLOSED
        if slot.time < self._step:
            return RC_BAD_ARGUMENT
        rc = self.make_ready(slot.time)
        if rc != RC_OK:
            return rc
        p = self._base + slot.time // self._step % self._slots * TIMER_SLOT_BYTES
        enter_writing(&guard, self._base, self._size, &self._cut)
        rc_put_i64(p + TIMER_SLOT_TIME_AT, slot.time // self._step)
        rc_put_i64(p + TIMER_SLOT_FIRST_AT, slot.first)
        rc_put_i64(p + TIMER_SLOT_LAST_AT, slot.last)
        rc_put_i32(p + TIMER_SLOT_COUNT_AT, slot.count)
        rc_put_i32(p + TIMER_SLOT_MAGIC_AT, 0)
        guard_leave(&guard)
        self._is_changed = True
        return RC_OK if self._cut == 0 else RC_FILE_CUT

    cdef int put(self, int64_t time, int64_t pos, int32_t change) noexcept nogil:
        """Add a unit of the timer log to the slot of a time. A unit that the slot already has changes nothing.

        time    ms
        pos     offset of the unit in the timer log
        change  of the count: 1; -1 for a unit that deletes
        Returns the codes of set_slot().
        """
        cdef TimerSlot slot
        cdef int rc = self.find(time, &slot)
        if rc != RC_OK and rc != RC_END:
            return rc
        if rc == RC_OK and slot.last >= pos:
            return RC_OK
        if rc == RC_END:
            slot.time = time
            slot.first = pos
            slot.count = 0
        slot.last = pos
        if INT32_MIN + 1 < slot.count < INT32_MAX:
            slot.count += change
        return self.set_slot(&slot)

    cdef int64_t next_used(self, int64_t time, int64_t stop) noexcept nogil:
        """Return the first time from `time` on, below `stop`, whose slot is used; or `stop`. Both are ms."""
        cdef rc_guard guard
        cdef const uint8_t* p
        cdef int64_t number = time // self._step, end = stop // self._step, i, found, first = INT64_MAX
        cdef bint all_slots = end - number > self._slots
        if self._base == NULL or number < 0:
            return stop
        enter_writing(&guard, self._base, self._size, &self._cut)
        for i in range(number, number + self._slots if all_slots else end):
            p = self._base + i % self._slots * TIMER_SLOT_BYTES
            found = rc_get_i64(p)
            if found < number or found >= end or found <= 0 or rc_get_i64(p + TIMER_SLOT_LAST_AT) < 0:
                continue
            if found % self._slots != i % self._slots:
                continue        # damaged
            first = min(first, found)
            if found == i:
                break           # the moments of the other slots are later
        guard_leave(&guard)
        return first * self._step if first < end else stop

    cdef int64_t free_from(self, int64_t time, int64_t read, int64_t stop) noexcept nogil:
        """Return the first time from `time` on, below `stop`, whose slot no other moment has; or `stop`. All are ms.

        read  the moments before it are over: their slots are free
        """
        cdef rc_guard guard
        cdef int64_t found, number = time // self._step
        if self._base == NULL:
            return time
        enter_writing(&guard, self._base, self._size, &self._cut)
        while time < stop:
            found = rc_get_i64(self._base + number % self._slots * TIMER_SLOT_BYTES)
            if found <= 0 or found == number or found < read // self._step:
                break
            if found % self._slots != number % self._slots:
                break           # damaged
            number += 1
            time += self._step
        guard_leave(&guard)
        return min(time, stop)

    def slot(self, int64_t time):
        """Return (first, last, count) of the slot of a time in ms; None if it is unused."""
        cdef TimerSlot slot
        cdef int rc = self.find(time, &slot)
        if rc == RC_END:
            return None
        self._check(rc)
        return slot.first, slot.last, slot.count

    def add(self, int64_t time, int64_t pos, *, bint deletes=False):
        """Add a unit at an offset of the timer log to the slot of a time in ms. See put() for the units it has."""
        if pos < 0:
            raise ValueError(f"pos={pos}: an offset is not negative")
        self._check(self.put(time, pos, -1 if deletes else 1))

    def set(self, int64_t time, int64_t first, int64_t last, int32_t count):
        """Write the slot of a time in ms."""
        cdef TimerSlot slot
        slot.time, slot.first, slot.last, slot.count = time, first, last, count
        self._check(self.set_slot(&slot))

    def used(self, int64_t since=0):
        """Return [(time, first, last, count)] of the used slots from a time in ms on, in the order of the file.

        Parts of the file that were never written are not read.
        """
        cdef int64_t at = 0, end = 0, number, stop, first = since // self._step
        cdef rc_guard guard
        cdef const uint8_t* p
        cdef list found = []
        self._check_open()
        while True:
            at = sparse.next_data(self._fd, end, <Py_ssize_t>self._size)
            if at >= <int64_t>self._size:
                break
            end = sparse.next_hole(self._fd, at, <Py_ssize_t>self._size)
            at -= at % TIMER_SLOT_BYTES
            stop = min(end, <int64_t>self._size)
            while at + TIMER_SLOT_BYTES <= stop:
                p = self._base + at
                enter_writing(&guard, self._base, self._size, &self._cut)
                number = rc_get_i64(p)
                if (
                    0 < number <= INT64_MAX // self._step and number % self._slots == at // TIMER_SLOT_BYTES
                    and rc_get_i64(p + TIMER_SLOT_LAST_AT) >= 0
                ):
                    if first > 0 and not first // 2 <= number <= 2 * first:
                        self.is_other = True    # the same moment has a number that is many times greater or smaller
                    elif number * self._step >= since:
                        found.append((
                            number * self._step, rc_get_i64(p + TIMER_SLOT_FIRST_AT),
                            rc_get_i64(p + TIMER_SLOT_LAST_AT), rc_get_i32(p + TIMER_SLOT_COUNT_AT),
                        ))
                guard_leave(&guard)
                at += TIMER_SLOT_BYTES
        if self._cut != 0:
            self._check(RC_FILE_CUT)
        return found

    def clear(self, int64_t since, int64_t stop):
        """Clear the used slots of the times from `since` on, below `stop`, in ms."""
        cdef rc_guard guard
        cdef int64_t time = self.next_used(since // self._step * self._step, stop)
        self._check_open()
        while time < stop:
            enter_writing(&guard, self._base, self._size, &self._cut)
            memset(self._base + time // self._step % self._slots * TIMER_SLOT_BYTES, 0, TIMER_SLOT_BYTES)
            guard_leave(&guard)
            self._is_changed = True
            time = self.next_used(time + self._step, stop)
        if self._cut != 0:
            self._check(RC_FILE_CUT)

    def clear_all(self):
        """Make the wheel empty."""
        self._check_open()
        with errors_named(self.path):
            os.ftruncate(self._fd, 0)
            os.ftruncate(self._fd, self._size)
        memset(self._ready, 0, self._size // PAGE_BYTES + 1)
        self._is_changed = True
        self.is_other = False

    def flush(self):
        """Make the slots durable. It may run on another thread."""
        cdef int rc
        self._check_open()
        if not self._is_changed:
            return
        self._is_changed = False
        with nogil:
            rc = rc_sync_map(self._base, 0, self._size)
        if rc != RC_OK:
            self._is_changed = True
        self._check(rc)

    def close(self):
        """Unmap the file, without a flush. A second call does nothing."""
        if self._base != NULL:
            rc_unmap(self._base, self._size)
            self._base = NULL
        if self._fd >= 0:
            close_file(self._fd)
            self._fd = -1

    @property
    def precision_ms(self):
        """The ms of a slot."""
        return self._step

    @property
    def span_ms(self):
        """The ms of all slots."""
        return self._step * self._slots

    cdef int _check_open(self) except -1:
        if self._base == NULL:
            raise ClosedError(f"{self.path} is closed")
        return 0

    cdef int _check(self, int rc) except -1:
        if rc == RC_CLOSED:
            raise ClosedError(f"{self.path} is closed")
        check_file(rc, self.path)
        return 0
