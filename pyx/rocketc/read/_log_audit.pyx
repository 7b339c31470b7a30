# cython: language_level=3
"""Collect the data that verify needs from a file's records, beyond their checks, without Python objects per record.

Messages of one queue have consecutive queue offsets. So a queue is stored as runs: [first, behind) and the physical
offset of the run's first record. An intact file has one run per queue.
"""
cimport cython
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy

from rocketc.c.bytes cimport rc_get_i32, rc_get_i64
from rocketc.c.layout cimport (
    RC_FLAG_INNER_BATCH, RC_FLAG_PREPARED, RC_FLAG_ROLLBACK, RC_FLAG_TRANSACTION_MASK, RC_MSG_QUEUE_ID_AT,
    RC_PROPERTY_INNER_NUM,
)
from rocketc.c.properties cimport rc_find_property
from rocketc.c.status cimport RC_MORE, RC_OK
from rocketc.c.vm cimport rc_guard
from rocketc.format._record cimport Record
from rocketc.format._text_table cimport TextTable, UNKNOWN
from rocketc.read._walk cimport BLOCK_RECORDS, Walker

cdef enum:
    # These limit the memory that a malicious file can use.
    QUEUES_MAX = 1 << 21
    GAPS_MAX = 1 << 20          # runs that are not the first of their queue: errors


cdef int32_t inner_count(const Record* r) noexcept nogil:
    """Return the number of queue offsets of an inner batch: the property INNER_NUM, or 1 if that is not an i16."""
    cdef int at = 0, i, n = rc_find_property(r.props, r.props_len, RC_PROPERTY_INNER_NUM, &at)
    cdef int32_t count = 0
    for i in range(at, at + n):
        if not c"0" <= r.props[i] <= c"9" or count > 3276:
            return 1
        count = 10 * count + r.props[i] - c"0"
    return count if 0 < count <= 32767 else 1


@cython.final
cdef class Audit:
    """Audits all records of a walker.

    walker      with a filter that selects everything; only the audit may use it from now on
    queues_max  number of queues, and of topics, whose queue offsets are kept
    gaps_max    number of runs that are kept besides the first one of each queue
    """

    def __cinit__(self, Walker walker not None, *, int64_t queues_max=QUEUES_MAX, int64_t gaps_max=GAPS_MAX):
        self.walker = walker
        self._numbers = TextTable()
        self._topics = []
        self._queues_max = queues_max
        self._gaps_max = gaps_max
        self.first_offset = self.last_offset = self.backwards_at = -1
        self._topic_len = -1
        self._grow_slots(1 << 10)

    def __dealloc__(self):
        free(self._slots)
        free(self._runs)

    def step(self):
        """Read some thousand more records; return False if there are no more."""
        cdef int _
        for _ in range(STEP_BLOCKS):
            if not self.next():
                return False
        return True

    cdef bint next(self) except -1:
        """Read the walker's next block; return False if there are no more."""
        cdef Walker w = self.walker
        cdef int done, rc
        cdef bint cut
        while w.next_block():
            done = 0
            rc = RC_MORE
            while rc == RC_MORE:
                with nogil:
                    rc = self._copy(w, &done)
                    cut = w.is_cut()
                if cut:
                    break
                if rc == RC_MORE:
                    self._add_topic(w, &w._block[done])
            if cut:
                w.cut_in_block(0)
                continue
            if 2 * (self._run_count + w._count) > <int64_t>self._mask:
                self._grow_slots(2 * (self._mask + 1))
            if self._run_count + w._count > self._run_room:
                self._grow_runs()
            with nogil:
                self._enter(w._count)
            return True
        return False

    def runs(self):
        """Return (topic, queue id, first queue offset, last one + 1, physical offset) of each run, in log order."""
        cdef int64_t i
        cdef Run* run
        out = []
        for i in range(self._run_count):
            run = &self._runs[i]
            out.append((self._topics[run.topic], run.queue_id, run.first, run.behind, run.phy_offset))
        return out

    cdef int _copy(self, Walker w, int* done) noexcept nogil:
        """Copy the block's records from the map, from `done` on; return RC_MORE if the topic at `done` is new."""
        cdef rc_guard guard
        cdef const Record* r
        cdef Seen* seen
        cdef int i, number, rc = RC_OK
        cdef int32_t kind
        w.enter(&guard)
        for i in range(done[0], w._count):
            r = &w._block[i]
            number = self._number_of(r)
            if number == UNKNOWN and not self._topics_full:
                done[0] = i
                rc = RC_MORE
                break
            seen = &self._seen[i]
            kind = r.sys_flag & RC_FLAG_TRANSACTION_MASK
            seen.topic = number - UNKNOWN - 1       # -1 if there was no room for the topic
            if kind == RC_FLAG_PREPARED or kind == RC_FLAG_ROLLBACK:
                seen.topic = -1
            seen.queue_id = rc_get_i32(r.at + RC_MSG_QUEUE_ID_AT)
            seen.queue_offset = r.queue_offset
            seen.count = inner_count(r) if r.sys_flag & RC_FLAG_INNER_BATCH else 1
            seen.phy_offset = r.phy_offset
            seen.timestamp = rc_get_i64(r.tail)
        w.leave(&guard)
        return rc

    cdef int _number_of(self, const Record* r) noexcept nogil:
        """Return the number of the record's topic in _numbers. Most records have the topic of the record before."""
        cdef int number
        if r.topic_len == self._topic_len and memcmp(r.topic, self._topic, <size_t>r.topic_len) == 0:
            return self._number
        number = self._numbers.get(r.topic, r.topic_len)
        self._topic_len = -1
        if number != UNKNOWN and r.topic_len <= TOPIC_KEPT:
            memcpy(self._topic, r.topic, <size_t>r.topic_len)
            self._topic_len = r.topic_len
            self._number = number
        return number

    cdef int _add_topic(self, Walker w, const Record* r) except -1:
        """Assign a number to the record's topic, if there is room."""
        cdef rc_guard guard
        cdef int number = UNKNOWN + 1 + <int>len(self._topics)
        if len(self._topics) >= self._queues_max:
            self.overflowed = self._topics_full = True
            return 0
        w.enter(&guard)
        try:
            topic = (<bytes>r.topic[:r.topic_len]).decode("utf-8", "replace")
            self._numbers.put(r.topic, r.topic_len, number)
        finally:
            w.leave(&guard)
        self._topics.append(topic)
        return 0

    cdef void _enter(self, int count) noexcept nogil:
        cdef const Seen* seen
        cdef uint64_t step      # timestamps in a malicious file are any 64 bits
        cdef int i
        for i in range(count):
            seen = &self._seen[i]
            if self.records == 0:
                self.first_offset = seen.phy_offset
                self.first_timestamp = seen.timestamp
            elif seen.timestamp < self.last_timestamp:
                if self.backwards == 0:
                    self.backwards_at = seen.phy_offset
                self.backwards += 1
                step = <uint64_t>self.last_timestamp - <uint64_t>seen.timestamp
                self.backwards_ms = max(self.backwards_ms, step)
            self.records += 1
            self.messages += seen.count
            self.last_offset = seen.phy_offset
            self.last_timestamp = seen.timestamp
            if seen.topic >= 0:
                self._enter_queue(seen)

    cdef void _enter_queue(self, const Seen* seen) noexcept nogil:
        """Extend the latest run of the record's queue, or start a new run."""
        cdef uint64_t queue = <uint64_t>seen.topic << 32 | <uint32_t>seen.queue_id
        cdef Slot* slot = self._slot(queue)
        cdef int64_t behind = INT64_MAX
        cdef Run* run
        if seen.queue_offset < INT64_MAX - seen.count:
            behind = seen.queue_offset + seen.count
        if slot.run >= 0 and self._runs[slot.run].behind == seen.queue_offset:
            self._runs[slot.run].behind = behind
            return
        if slot.run < 0:
            if self._queue_count >= self._queues_max:
                self.overflowed = True
                return
            self._queue_count += 1
        elif self._run_count - self._queue_count >= self._gaps_max:
            self.overflowed = True
            return
        run = &self._runs[self._run_count]
        run.topic = seen.topic
        run.queue_id = seen.queue_id
        run.first = seen.queue_offset
        run.behind = behind
        run.phy_offset = seen.phy_offset
        slot.queue = queue
        slot.run = self._run_count
        self._run_count += 1

    cdef Slot* _slot(self, uint64_t queue) noexcept nogil:
        cdef uint64_t i = queue * <uint64_t>0x9E3779B97F4A7C15 >> 32 & self._mask
        while self._slots[i].run >= 0 and self._slots[i].queue != queue:
            i = i + 1 & self._mask
        return &self._slots[i]

    cdef int _grow_slots(self, uint64_t room) except -1:
        """Create a larger table with the same queues. Every queue has a run, so the number of runs shows when."""
        cdef Slot* old = self._slots
        cdef uint64_t i, had = self._mask + 1 if old != NULL else 0
        self._slots = <Slot*>calloc(room, sizeof(Slot))
        if self._slots == NULL:
            self._slots = old
            raise MemoryError
        self._mask = room - 1
        for i in range(room):
            self._slots[i].run = -1
        for i in range(had):
            if old[i].run >= 0:
                self._slot(old[i].queue)[0] = old[i]
        free(old)
        return 0

    cdef int _grow_runs(self) except -1:
        cdef int64_t room = 2 * self._run_room + 2 * BLOCK_RECORDS
        cdef void* p = realloc(self._runs, <size_t>room * sizeof(Run))
        if p == NULL:
            raise MemoryError
        self._runs = <Run*>p
        self._run_room = room
        return 0
