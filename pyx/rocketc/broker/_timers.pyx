# cython: language_level=3
"""Timed messages: from the timer topic into the wheel, and out of it when they are due.

A timed message waits in the timer topic. enqueue() reads it there once. It appends a unit to the timer log, and links
the unit to the slot of its time. When the time has passed, dequeue() follows the units of the slot. It reads the
messages from the log, and appends them to their own queues. A message that is due after the roll window is put into the
timer topic again, for another round. Neither call needs a Python object for each message, and each does a bounded part
of the work.
Source: RocketMQ TimerMessageStore, observed on 5.3.3.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport ENOENT
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy

from rocketc._status cimport check, check_file
from rocketc.broker._deliveries cimport RECORDS_MAX, Deliveries, is_final, number_in
from rocketc.c.jhash cimport rc_jhash
from rocketc.c.layout cimport RC_PROPERTIES_MAX_BYTES, RC_PROPERTY_UNIQUE_KEY
from rocketc.c.properties cimport rc_find_property
from rocketc.c.status cimport (
    RC_BODY_TOO_LONG, RC_END, RC_FILE_CUT, RC_OK, RC_PROPERTIES_TOO_LONG, RC_RECORD_TOO_LONG,
)
from rocketc.c.vm cimport rc_touch
from rocketc.derived._timer_log cimport TIMER_DELETE, TIMER_NORMAL, TIMER_ROLL, TimerLog, TimerUnit
from rocketc.derived._timer_wheel cimport TimerSlot, TimerWheel
from rocketc.files._append_file cimport FileState, file_readable
from rocketc.format._record cimport Record, parse_record
from rocketc.log._prepared_record cimport APPEND_IN_ORDER, PreparedRecord
from rocketc.log._put_result cimport put_status
from rocketc.store._gets cimport Getting
from rocketc.store._raw_records cimport (
    RawGetResult, raw_clear, raw_enter, raw_free, raw_init, raw_release, raw_rest, raw_seek,
)

from typing import NamedTuple

from rocketc.errors import ClosedError
from rocketc.status import PutStatus

cdef enum:
    CHAIN_MAX = 32768           # units that one call follows
    DELETE_COST = 16            # units that take as long to follow as one that deletes
    STAMP_BYTES = 160           # of the properties that a delivery adds, without their names
    ARENA_BYTES = 1 << 20
    TOUCHED_MAX = 8 * RECORDS_MAX
    KEPT_MAX = 1 << 16          # units for which memory is kept between two slots
    RECALLED = 1 << 30          # in the magic of a Waiting: the message was taken back

ENQUEUED_AT_ONCE = INT64_MAX    # the time of a message that was due before it came into the wheel, as in RocketMQ


class Enqueued(NamedTuple):
    """What became of the first messages of a read.

    row     index in the read of the first message that is still to be put into the wheel
    status  PUT_OK, or the reason why the store refused a message that was due at once
    waits   True: the wheel has a place for the next message only after earlier ones were delivered
    """

    row: int
    status: PutStatus
    waits: bool


class Dequeued(NamedTuple):
    """What a call did.

    is_done  nothing is due any more
    status   PUT_OK, or the reason why the store refused a message
    """

    is_done: bool
    status: PutStatus


cdef class Timers:
    """The timed messages of a store.

    store    open for writing
    deliver  makes the records of deliveries
    wheel, log  their files
    names    of the timer topic, and of the properties TIMER_OUT_MS, TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS,
             TIMER_ROLL_TIMES and TIMER_DEL_UNIQKEY
    roll_slots  slots of the roll window
    read_time, queue_offset  where to begin
    One thread uses it at a time, and only touch() may run on another thread than the event loop's.
    """

    def __cinit__(self):
        raw_init(&self._held)
        self._slot = self._chain = -1
        self._records = <PreparedRecord*>malloc(RECORDS_MAX * sizeof(PreparedRecord))
        self._arena = <uint8_t*>malloc(ARENA_BYTES)
        self._arena_room = ARENA_BYTES
        if self._records == NULL or self._arena == NULL:
            raise MemoryError

    def __dealloc__(self):
        raw_free(&self._held)
        free(self._records)
        free(self._arena)
        free(self._waiting)

    def __init__(
        self, Getting store not None, Deliveries deliver not None, TimerWheel wheel not None, TimerLog log not None,
        names, int64_t roll_slots, int64_t read_time, int64_t queue_offset,
    ):
        self._store, self._deliver, self.wheel, self.log = store, deliver, wheel, log
        self._topic, self._out, self._enqueue, self._dequeue, self._rolls, self._deletes = (
            name.encode() for name in names
        )
        self.step = wheel.precision_ms
        self.roll_ms = roll_slots * self.step
        self.read_time = read_time // self.step * self.step
        self.queue_offset = queue_offset
        self.last_due = -1
        self._deleted, self._counts = set(), {}

    # into the wheel

    def enqueue(self, RawGetResult found not None, int row, int64_t now, bint is_behind=False):
        """Put messages of a read into the wheel, from a row on; return Enqueued. `queue_offset` follows.

        found  of the timer topic; the messages of one file are read
        now    ms
        is_behind  put messages that are due since `read_time` into the wheel, too: what deletes one may follow
        Messages whose time is over are delivered with one append. Those without a time or a topic are skipped and
        counted. Raises StoreIOError, StoreFullError, the errors of MessageStore.put(), and ClosedError after a release;
        what was done before is done.
        """
        cdef FileState* f
        cdef Record r
        cdef int64_t out, write = self.read_time
        cdef int first, n = 0, rc, at = 0, start = row, done
        cdef int rows[RECORDS_MAX]
        cdef bint waits = False
        if not is_behind or self._slot >= 0:
            write = max(now - now % self.step, write)
        if not 0 <= row < found.raw.count:
            return Enqueued(row, PutStatus.PUT_OK, False)
        if found.raw.file_count == 0:
            raise ClosedError("these records were released")
        self._arena_used = 0
        first = found.raw.rows[row].file
        f = raw_enter(&found.raw, first)
        try:
            while row < found.raw.count and row - start < RECORDS_MAX and found.raw.rows[row].file == first:
                rc = parse_record(found.raw.rows[row].at, <size_t>found.raw.rows[row].size, &r)
                if f.cut != 0:
                    check(RC_FILE_CUT)
                out = self._time_of(&r) if rc == RC_OK else -1
                if out < 0:
                    self.skipped += 1
                elif out < write:
                    if (
                        found.raw.rows[row].queue_offset >= self.repeated_until or out >= self.repeated_read_time
                    ) and rc_find_property(r.props, r.props_len, PyBytes_AS_STRING(self._deletes), &at) <= 0:
                        if self._arena_used + <size_t>r.props_len + STAMP_BYTES > self._arena_room and n > 0:
                            break
                        if self._deliver.prepare(
                            &self._records[n], r.at, found.raw.rows[row].size, found.raw.rows[row].phy_offset
                        ):
                            self._stamp(&self._records[n], INT64_MAX, now, False)
                            rows[n] = row
                            n += 1
                        else:
                            self.skipped += 1
                elif n > 0:
                    break
                elif not self._add(&r, out, write):
                    waits = True
                    break
                row += 1
                if n == 0:
                    self.queue_offset = found.raw.rows[row - 1].queue_offset + 1
            if n > 0:
                done = self._append(n)
                if done < n:
                    row = rows[done]
                    self.queue_offset = found.raw.rows[row].queue_offset
                    return Enqueued(row, put_status(self._records[done].status), False)
                self.queue_offset = found.raw.rows[row - 1].queue_offset + 1
        finally:
            raw_rest(&found.raw)
        return Enqueued(row, PutStatus.PUT_OK, waits)

    cdef int64_t _time_of(self, const Record* r) noexcept:
        """Return the time of a message in ms; -1 if it lacks one, or a topic."""
        cdef int at = 0, n = rc_find_property(r.props, r.props_len, PyBytes_AS_STRING(self._out), &at)
        cdef int64_t out = number_in(r.props + at, n)
        cdef int32_t topic_len = 0
        if n <= 0 or self._topic_of(r, &topic_len) == NULL:
            return -1
        return out

    cdef const uint8_t* _topic_of(self, const Record* r, int32_t* n) noexcept:
        """Return the topic that gets a message, and its length; NULL without one."""
        cdef int at = 0
        n[0] = rc_find_property(r.props, r.props_len, PyBytes_AS_STRING(self._deliver._real_topic), &at)
        return r.props + at if n[0] > 0 else NULL

    cdef int _note(self, const uint8_t* topic, int32_t n, int64_t change) except -1:
        """Count a message of a topic for take_counts()."""
        if self._counted is None or n != PyBytes_GET_SIZE(self._counted) or memcmp(
            topic, PyBytes_AS_STRING(self._counted), <size_t>n
        ) != 0:
            self._flush_count()
            self._counted = PyBytes_FromStringAndSize(<const char*>topic, n)
        self._count += change
        return 0

    def _flush_count(self):
        if self._counted is not None:
            name = self._counted.decode("utf-8", "replace")
            self._counts[name] = self._counts.get(name, 0) + self._count
        self._counted, self._count = None, 0

    def take_counts(self):
        """Return {topic: change of its waiting messages} since the last call: the changes of config/timermetrics.

        What deletes a message does not count. In RocketMQ it counts as -1, and so do its rounds.
        """
        self._flush_count()
        found, self._counts = self._counts, {}
        return found

    cdef int _add(self, const Record* r, int64_t out, int64_t write) except -1:
        """Put a message into the wheel. Returns 0 if its slot is free only after earlier ones are delivered."""
        cdef TimerUnit unit
        cdef TimerSlot slot
        cdef int64_t due = out, pos = 0, stop = min(self.read_time + self.wheel.span_ms, write + INT32_MAX), slot_due
        cdef int32_t topic_len = 0
        cdef const uint8_t* topic = self._topic_of(r, &topic_len)
        cdef int at = 0, rc, change
        unit.magic = TIMER_NORMAL
        if out - write >= self.roll_ms:
            unit.magic |= TIMER_ROLL
            if out - write - self.roll_ms < self.roll_ms // self.step // 3 * self.step:
                due = write + self.roll_ms // self.step // 2 * self.step    # enough time is left for the next round
            else:
                due = write + self.roll_ms
        if rc_find_property(r.props, r.props_len, PyBytes_AS_STRING(self._deletes), &at) > 0:
            unit.magic |= TIMER_DELETE
        slot_due = self.wheel.free_from(due, self.read_time, stop)
        if slot_due >= stop:
            return 0
        if slot_due != due:             # after the clock was set back, another moment may have the place of this one
            unit.magic |= TIMER_ROLL
            due = slot_due
        rc = self.wheel.find(due, &slot)
        if rc != RC_OK and rc != RC_END:
            check_file(rc, self.wheel.path)
        check_file(self.wheel.make_ready(due), self.wheel.path)     # a unit in the log is in its slot too
        unit.previous = slot.last if rc == RC_OK and slot.last < self.log.end else -1
        unit.time = write
        unit.delay = <int32_t>(due - write)
        unit.phy_offset = r.phy_offset
        unit.size = r.size
        unit.topic_hash = rc_jhash(topic, <size_t>topic_len)
        check_file(self.log.append(&unit, &pos), self.log.folder)
        change = -1 if unit.magic & TIMER_DELETE else 1
        check_file(self.wheel.put(due, pos, change), self.wheel.path)
        self.enqueued += 1
        self.pending += change
        self.last_due = max(self.last_due, due // self.step * self.step)
        if change > 0:
            self._note(topic, topic_len, 1)
        return 1

    # out of the wheel

    def dequeue(self, int64_t now):
        """Deliver some messages whose time has passed; return Dequeued. `read_time` follows.

        now  ms
        A slot is due one step of the precision after its time. Units and messages that are damaged, and messages that
        can't be delivered, are skipped and counted. Raises StoreIOError, StoreFullError and the errors of
        MessageStore.put(); it is tried again then.
        """
        cdef int64_t write = now - now % self.step, next
        cdef TimerSlot slot
        cdef int rc
        self._write = write
        if self._slot < 0:
            if self.read_time > self.last_due:
                self.read_time = max(self.read_time, write)
            if self.read_time >= write:
                return Dequeued(True, PutStatus.PUT_OK)
            next = self.wheel.next_used(self.read_time, write)
            self.read_time = next
            if next >= write:
                return Dequeued(True, PutStatus.PUT_OK)
            rc = self.wheel.find(next, &slot)
            if rc == RC_END:
                self.read_time += self.step
                return Dequeued(False, PutStatus.PUT_OK)
            check_file(rc, self.wheel.path)
            self._slot, self._chain, self._slot_count = next, slot.last, slot.count
            self._waiting_count = 0
            self._deleted.clear()
        if self._chain >= 0:
            self._read_chain(CHAIN_MAX)
            return Dequeued(False, PutStatus.PUT_OK)
        rc = self._deliver_some(now)
        if rc != RC_OK:
            return Dequeued(False, put_status(rc))
        if self._waiting_count == 0:
            self.pending -= self._slot_count
            self.read_time = self._slot + self.step
            self._slot = -1
            self._release()
            if self._waiting_room > KEPT_MAX:
                free(self._waiting)
                self._waiting, self._waiting_room = NULL, 0
        return Dequeued(False, PutStatus.PUT_OK)

    def _release(self):
        """Release the files of the log."""
        raw_release(&self._held)
        raw_clear(&self._held)

    cdef int _read_chain(self, int64_t most) except -1:
        """Follow some units of the slot's chain."""
        cdef TimerUnit unit
        cdef int64_t left = most
        cdef int rc
        while left > 0 and self._chain >= 0:
            rc = self.log.find(self._chain, &unit)
            if rc == RC_END or (rc == RC_OK and (unit.time + unit.delay) // self.step * self.step != self._slot):
                self.skipped += 1       # its file was deleted with its messages, or the chain is damaged
                self._chain = -1
                break
            if rc != RC_OK:
                self.log.rest()
                check_file(rc, self.log.folder)
            left -= DELETE_COST if unit.magic & TIMER_DELETE else 1
            self._keep(&unit)
            self._chain = unit.previous
        self.log.rest()
        return 0

    cdef int _keep(self, const TimerUnit* u) except -1:
        """Add a unit of the slot to those that wait for their delivery; remember which message it takes back."""
        cdef Waiting* grown
        cdef Waiting* w
        cdef Record r
        cdef int at = 0, n
        if self._waiting_count == self._waiting_room:
            grown = <Waiting*>realloc(self._waiting, <size_t>(2 * self._waiting_room + 64) * sizeof(Waiting))
            if grown == NULL:
                raise MemoryError
            self._waiting, self._waiting_room = grown, 2 * self._waiting_room + 64
        w = &self._waiting[self._waiting_count]
        w.phy_offset, w.time, w.size, w.magic = u.phy_offset, u.time, u.size, u.magic
        if u.magic & TIMER_DELETE:
            try:
                if self._find_record(w, &r):
                    if self._rolls_on(w, &r):
                        self._waiting_count += 1
                        return 0
                    n = rc_find_property(r.props, r.props_len, PyBytes_AS_STRING(self._deletes), &at)
                    if n > 0:
                        self._deleted.add(PyBytes_FromStringAndSize(<const char*>r.props + at, n))
                else:
                    self.skipped += 1
            finally:
                raw_rest(&self._held)
            return 0
        self._waiting_count += 1
        return 0

    cdef bint _rolls_on(self, const Waiting* w, const Record* r) noexcept:
        """Whether a message is to be put into the timer topic again: it is not due, by its own properties.

        It was rolled, or its unit in the timer log is damaged.
        """
        return self._time_of(r) >= self._write

    cdef bint _find_record(self, const Waiting* w, Record* r) except -1:
        """Read the message of a unit from the log; return whether it is there. Its file stays held and guarded."""
        cdef FileState* f
        cdef int64_t at
        cdef int rc
        self._held.log = &self._store.reader.log.q
        rc = raw_seek(&self._held, w.phy_offset)
        if rc == ENOENT:
            return False
        check_file(rc, self._store.path)
        f = self._held.files[self._held.file]
        at = w.phy_offset - f.start
        if at + w.size > file_readable(f):
            return False
        raw_enter(&self._held, self._held.file)
        rc = parse_record(f.base + at, <size_t>w.size, r)
        if f.cut != 0:
            check(RC_FILE_CUT)
        return (
            rc == RC_OK and r.size == w.size and r.phy_offset == w.phy_offset
            and r.topic_len == PyBytes_GET_SIZE(self._topic)
            and memcmp(r.topic, PyBytes_AS_STRING(self._topic), <size_t>r.topic_len) == 0
        )

    def touch(self):
        """Read the pages of the next messages, so that their delivery does not wait for the disk. On any thread."""
        cdef int64_t i = self._waiting_count - 1, last = max(self._waiting_count - TOUCHED_MAX, 0), at
        cdef FileState* f
        if self._chain >= 0 or self._slot < 0:
            return
        self._held.log = &self._store.reader.log.q
        with nogil:
            while i >= last:
                if raw_seek(&self._held, self._waiting[i].phy_offset) == RC_OK:
                    f = raw_enter(&self._held, self._held.file)
                    at = self._waiting[i].phy_offset - f.start
                    if at + self._waiting[i].size <= file_readable(f):
                        rc_touch(f.base + at, <size_t>self._waiting[i].size)
                i -= 1
            raw_rest(&self._held)

    @property
    def to_deliver(self):
        """Number of messages of the slot that is being delivered; 0 while its chain is read."""
        return self._waiting_count if self._chain < 0 and self._slot >= 0 else 0

    cdef int _deliver_some(self, int64_t now) except? -1:
        """Append some messages of the slot, the oldest first, of one file. Returns RC_OK, or why one was refused."""
        cdef Record r
        cdef Waiting* w
        cdef int64_t i = self._waiting_count - 1
        cdef int n = 0, done, file = -1, at = 0, size
        cdef bint rolls
        cdef int32_t topic_len = 0
        cdef int64_t places[RECORDS_MAX]
        cdef const uint8_t* topic
        self._arena_used = 0
        try:
            while i >= 0 and n < RECORDS_MAX and self._waiting_count - i <= CHAIN_MAX:
                w = &self._waiting[i]
                if w.magic & RECALLED:
                    i -= 1
                    continue
                if not self._find_record(w, &r):
                    self.skipped += 1
                    i -= 1
                    continue
                if file >= 0 and self._held.file != file:
                    break           # the guard protects the map of one file
                if n > 0 and self._arena_used + <size_t>r.props_len + STAMP_BYTES > self._arena_room:
                    break
                file = self._held.file
                rolls = self._rolls_on(w, &r)
                topic = self._topic_of(&r, &topic_len)
                if topic != NULL and self._deleted and not rolls:
                    size = rc_find_property(r.props, r.props_len, RC_PROPERTY_UNIQUE_KEY, &at)
                    if size > 0 and (
                        topic[:topic_len] + b"+" + (r.props + at)[:size]
                    ) in self._deleted:
                        w.magic |= RECALLED     # it comes again here if the store refuses one before it
                        self.recalled += 1
                        self._note(topic, topic_len, -1)
                        i -= 1
                        continue
                if topic == NULL or not self._deliver.prepare(&self._records[n], r.at, w.size, w.phy_offset):
                    self.skipped += 1
                    i -= 1
                    continue
                if rolls:
                    self._records[n].args.topic = <const uint8_t*>PyBytes_AS_STRING(self._topic)
                    self._records[n].args.topic_len = <int32_t>PyBytes_GET_SIZE(self._topic)
                    self._records[n].args.queue_id = 0
                self._stamp(&self._records[n], w.time, now, rolls)
                places[n] = i
                n += 1
                i -= 1
            if n == 0:
                self._waiting_count = i + 1
                return RC_OK
            done = self._append(n)
            for size in range(done):
                w = &self._waiting[places[size]]
                if self._find_record(w, &r):
                    self.rolled += 1 if self._rolls_on(w, &r) else 0
                    topic = self._topic_of(&r, &topic_len)
                    if topic != NULL and not w.magic & TIMER_DELETE:
                        self._note(topic, topic_len, -1)
            if done < n:
                self._waiting_count = places[done] + 1
                return self._records[done].status
            self._waiting_count = i + 1
        finally:
            raw_rest(&self._held)
        return RC_OK

    cdef int _room(self, size_t n) except -1:
        """Make room for n bytes in the arena. Its content may move only while it is empty."""
        cdef uint8_t* grown
        if self._arena_used + n > self._arena_room:
            grown = <uint8_t*>realloc(self._arena, self._arena_used + n)
            if grown == NULL:
                raise MemoryError
            self._arena, self._arena_room = grown, self._arena_used + n
        return 0

    cdef int _stamp(self, PreparedRecord* r, int64_t enqueued, int64_t now, bint roll) except -1:
        """Replace the properties of a delivery with the same and TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS; TIMER_ROLL_TIMES.

        Properties that would become too long stay as they are: the message is delivered without these.
        """
        cdef const uint8_t* p = r.args.props
        cdef const uint8_t* end = p + r.args.props_len
        cdef const uint8_t* stop
        cdef uint8_t* to
        cdef uint8_t* start
        cdef int64_t rolls = 0
        cdef int at = 0, n
        self._room(<size_t>r.args.props_len + STAMP_BYTES)
        to = start = self._arena + self._arena_used
        if roll:
            n = rc_find_property(p, r.args.props_len, PyBytes_AS_STRING(self._rolls), &at)
            rolls = max(number_in(p + at, n), 0) + 1
        while p < end:
            stop = <const uint8_t*>memchr(p, 2, <size_t>(end - p))
            if stop == NULL:
                stop = end
            if stop > p and not (
                has_name(p, stop, self._enqueue) or has_name(p, stop, self._dequeue)
                or (roll and has_name(p, stop, self._rolls))
            ):
                memcpy(to, p, <size_t>(stop - p))
                to += stop - p
                to[0] = 2
                to += 1
            p = stop + 1
        to = put_property(to, self._enqueue, enqueued)
        to = put_property(to, self._dequeue, now)
        if roll:
            to = put_property(to, self._rolls, rolls)
        if to - start <= RC_PROPERTIES_MAX_BYTES:
            r.args.props = start
            r.args.props_len = <int32_t>(to - start)
            self._arena_used += <size_t>(to - start)
        return 0

    cdef int _append(self, int n) except? -1:
        """Append records in their order. Returns how many are done: stored, or skipped because they never can be."""
        cdef int i, rc, done = 0
        while done < n:
            self._store.append(&self._records[done], n - done, APPEND_IN_ORDER)
            for i in range(done, n):
                rc = self._records[i].status
                if rc == RC_OK:
                    self.delivered += 1
                elif is_final(rc) or rc in (RC_BODY_TOO_LONG, RC_RECORD_TOO_LONG, RC_PROPERTIES_TOO_LONG):
                    self.skipped += 1
                else:
                    return i
                done = i + 1
                if rc != RC_OK:
                    break
        return done

    # recovery, clock

    def rewind(self, int64_t time):
        """Continue at an earlier time, because the clock was set back. The slots from there on were delivered.

        time  ms; the delivered messages are durable
        """
        time = max(time // self.step * self.step, self.step)
        if time < self.read_time:
            self._slot = self._chain = -1
            self._waiting_count = 0
            self._release()
            self.wheel.clear(time, self.read_time)
            self.read_time = time

    def apply(self, int64_t pos):
        """Link the units of the log from an offset on to their slots, unless these have them. Slots before read_time
        are not changed. Raises StoreIOError, StoreFullError."""
        cdef TimerUnit unit
        cdef int64_t at = self.log.next(pos)
        cdef int rc
        while at < self.log.end:
            rc = self.log.find(at, &unit)
            if rc != RC_OK and rc != RC_END:
                self.log.rest()
                check_file(rc, self.log.folder)
            if rc == RC_OK and unit.time + unit.delay >= self.read_time:
                check_file(
                    self.wheel.put(unit.time + unit.delay, at, -1 if unit.magic & TIMER_DELETE else 1), self.wheel.path
                )
            at = self.log.next(at + 1)
        self.log.rest()

    def check_slots(self):
        """Count the messages of the slots from read_time on; return whether each slot ends with a unit of its own."""
        cdef TimerUnit unit
        cdef int rc
        cdef bint right = True
        self.pending, self.last_due = 0, -1
        for time, _first, last, count in self.wheel.used(self.read_time):
            rc = self.log.find(last, &unit)
            if rc != RC_OK and rc != RC_END:
                self.log.rest()
                check_file(rc, self.log.folder)
            if rc == RC_END or (unit.time + unit.delay) // self.step * self.step != time:
                right = False
            self.pending += count
            self.last_due = max(self.last_due, time)
        self.log.rest()
        return right

    def offset_of(self, int64_t pos):
        """Return the queue offset of the message of the unit at an offset; -1 if the unit or the message is missing."""
        cdef TimerUnit unit
        cdef Waiting w
        cdef Record r
        cdef int rc = self.log.find(pos, &unit)
        cdef int64_t found = -1
        self.log.rest()
        if rc == RC_END:
            return -1
        check_file(rc, self.log.folder)
        w.phy_offset, w.size, w.magic, w.time = unit.phy_offset, unit.size, unit.magic, unit.time
        try:
            if self._find_record(&w, &r):
                found = r.queue_offset
        finally:
            raw_rest(&self._held)
            self._release()
        return found


cdef inline bint has_name(const uint8_t* p, const uint8_t* stop, bytes name) noexcept:
    """Whether a property begins with a name."""
    cdef Py_ssize_t n = PyBytes_GET_SIZE(name)
    return stop - p > n and p[n] == 1 and memcmp(p, PyBytes_AS_STRING(name), <size_t>n) == 0


cdef inline uint8_t* put_property(uint8_t* to, bytes name, int64_t number) noexcept:
    """Write a property with a number, and return its end."""
    return to + snprintf(
        <char*>to, 64, b"%s\x01%lld\x02", <const char*>PyBytes_AS_STRING(name), <long long>number
    )
