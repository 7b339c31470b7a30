# cython: language_level=3
"""The commit log: where a record goes, and what is written there.

A record is written once, directly into the mapped file, without a buffer in between. Only the values that depend on the
put lock are computed under it: both offsets, the store timestamp and the property CRC.
Source: RocketMQ CommitLog.asyncPutMessage, DefaultAppendMessageCallback
"""

import os

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport ENOMEM
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy
from posix.unistd cimport usleep

from rocketc._status cimport check, check_file
from rocketc.c.atomic cimport rc_count_i64, rc_fence_full, rc_load_i64, rc_store_i64
from rocketc.c.crc32 cimport rc_body_crc
from rocketc.c.histogram cimport (
    rc_histogram, rc_histogram_add, rc_histogram_below, rc_histogram_count, rc_histogram_max, rc_histogram_percentile,
    rc_histogram_sum,
)
from rocketc.c.layout cimport (
    RC_BLANK_BYTES, RC_FLAG_PREPARED, RC_FLAG_ROLLBACK, RC_FLAG_TRANSACTION_MASK, RC_PROPERTIES_MAX_BYTES,
    RC_TOPIC_V1_MAX_BYTES, RC_TOPIC_V2_MAX_BYTES,
)
from rocketc.c.prefetch cimport LINE_BYTES, rc_prefetch_for_writing
from rocketc.c.service cimport pthread_mutex_lock, pthread_mutex_unlock, rc_clock_ms, rc_clock_ns, rc_service_wake
from rocketc.c.status cimport (
    RC_BODY_TOO_LONG, RC_FAILED, RC_FILE_CUT, RC_MORE, RC_NO_FILE, RC_NO_QUEUE_ROOM, RC_OK, RC_OUT_OF_ORDER,
    RC_PAGE_CACHE_BUSY, RC_PROPERTIES_TOO_LONG, RC_RECORD_TOO_LONG, RC_TOPIC_TOO_LONG,
)
from rocketc.c.vm cimport rc_guard
from rocketc.files._allocator cimport allocator_reserve
from rocketc.files._append_file cimport FileState, can_flush
from rocketc.files._file_queue cimport queue_wake_reader
from rocketc.files._guard cimport enter_writing, leave as guard_leave
from rocketc.format._record cimport MessageArgs, crc32, encode_measured, message_args_size, properties_size
from rocketc.log._flusher cimport flusher_fail, flusher_wake
from rocketc.log._log_files cimport LogFiles
from rocketc.log._prepared_record cimport (
    APPEND_AT_ONCE, APPEND_IN_ORDER, PreparedRecord, batch_count, batch_size, fitting, is_same_queue, refuse,
)
from rocketc.log._queue_offsets cimport cq_hash
from rocketc.log._queue_room cimport room_is_free, room_take

cdef enum:
    HOLD_RECORDS = 256              # at most this many records, or bytes, are appended under one hold of the put lock
    HOLD_BYTES = 256 << 10
    LINES_AHEAD_BYTES = 2048        # bytes after the end of the log that are fetched into the cache
    RECORD_EXTRA = 64 << 10         # a record may be longer than maxMessageSize by this much
    HELD_US = 200                   # interval at which a put checks whether its topic is still being deleted
    ROOM_WAITS = 5000               # such intervals, 1 s, until a put does not wait any more for the dispatcher
    LEAST_POWER = 10                # shortest time of histograms(): 1 us
    MOST_POWER = 34                 # longest time: 17 s
    BUSY_NEVER_MS = 10000000        # RocketMQ: a longer hold is taken for a clock that jumped
    MS = 1000000                    # ns

# By WaitedFor.
cdef tuple WAITED = ("the write to the log file", "the next log file", "pages to be prepared", "a commit of the pool")


cdef inline void fetch_ahead(const uint8_t* p, int64_t size) noexcept nogil:
    """Prefetch the cache lines of the next record, assuming it has the size of this one. Without this, a thread that
    puts single records waits for memory each time."""
    cdef int64_t at = 0
    while at < size and at < LINES_AHEAD_BYTES:
        rc_prefetch_for_writing(p + at)
        at += LINE_BYTES


cdef int64_t bytes_of(const PreparedRecord* records, int n) noexcept nogil:
    """Return the total size of the records that are stored, or are still to be."""
    cdef int64_t size = 0
    cdef int i
    for i in range(n):
        if records[i].status == RC_OK or records[i].status == RC_MORE:
            size += records[i].size
    return size


@cython.no_gc_clear      # __dealloc__ needs the queue
cdef class CommitLog(LogFiles):
    """The log of one store: its files, its put lock, and the threads that create files and flush.

    queue    the files, loaded and recovered
    offsets  next queue offsets
    lock     a PutMessageLock
    config   a StoreConfig
    background  False: no threads; set_clock() sets the time, and step_flush() and step_ahead() do the threads' work
    start() starts the threads, stop() ends them; append() is for native callers.
    """

    def __cinit__(self, queue, offsets, lock, config, *_, **__):
        self._busy_ms = config.os_page_cache_busy_time_out_mills
        self._max_body = config.max_message_size
        self._property_crc = config.enabled_append_prop_crc
        self._light = config.enable_lmq and config.enable_multi_dispatch
        if config.wake_flush_when_put_message and config.flush == "async":
            self._wakes |= WAKE_FLUSH
        if config.wake_commit_when_put_message and self.a.pooled:
            self._wakes |= WAKE_COMMIT

    def check_queue_room(self, root):
        """From now on, refuse the first record of a queue if the file system lacks room for the queue's files.

        root  folder of the store
        """
        self._room_above = os.fsencode(root)
        self._room_folder = os.path.join(self._room_above, b"consumequeue")
        self.room.above = self._room_above
        self.room.folder = self._room_folder
        self.room.file_size = self.q.file_size

    cdef bint is_busy(self) noexcept nogil:
        """Whether a thread has been appending for too long: the page cache can't keep up with the disk."""
        cdef int64_t since = rc_load_i64(&self._in_lock_since), held
        if since == 0:
            return False
        held = rc_clock_ms() - since
        return self._busy_ms < held < BUSY_NEVER_MS

    cdef int append(self, PreparedRecord* records, int n, int how) noexcept nogil:
        """Append n prepared records in their order. Records of one queue get consecutive queue offsets.

        how  bits of AppendFlags
        The result of each record is in its status; a record whose status is not RC_MORE is skipped. After a refused
        record the following ones are still appended, unless APPEND_IN_ORDER is set. The records of a batch are stored
        all or none, one after the other in one file. The put lock is held once for up to 256 records or 256 KiB; the
        queues stay locked for the whole call.
        Returns RC_OK if all are stored, otherwise the first status that is not RC_OK.
        Of the store: RC_FAILED, RC_PAGE_CACHE_BUSY, RC_NO_FILE, RC_NO_QUEUE_ROOM.
        Of a record: RC_BODY_TOO_LONG, RC_RECORD_TOO_LONG, RC_PROPERTIES_TOO_LONG, RC_OUT_OF_ORDER (not the expected
        queue offset).
        With APPEND_AT_ONCE also RC_MORE; nothing is stored then.
        """
        cdef uint64_t stripes
        cdef int64_t total
        cdef int i = 0, count = 0, taken = 0, rc = RC_OK
        if rc_load_i64(&self.fl.failed) != 0:
            return refuse(records, n, RC_FAILED, RC_OK)
        if self.is_busy():
            return refuse(records, n, RC_PAGE_CACHE_BUSY, RC_OK)
        if rc_load_i64(&self.room.error) != 0:
            rc = self._await_room(how)
            if rc != RC_OK:
                return rc if rc == RC_MORE else refuse(records, n, rc, RC_OK)
        if n == 1 and records.status == RC_MORE:
            records.status = self._measure_one(records, NULL)  # for one record the loops would cost 10 %
            if records.status != RC_OK:
                return records.status
            records.status = RC_MORE
            total, count = records.size, 1
        else:
            total = self._measure(records, n, how, &count)
        stripes = self._lock_queues(records, count, how)
        if stripes != 0:
            while i < count and rc == RC_OK:
                rc = self._append_some(records + i, count - i, how, total, &taken)
                i += taken
            self.offsets.unlock_stripes(stripes)
        rc = RC_OK
        for i in range(n):
            if records[i].status != RC_OK and (rc == RC_OK or how & APPEND_AT_ONCE and records[i].status == RC_MORE):
                rc = records[i].status
        return rc

    cdef int _await_room(self, int how) noexcept nogil:
        """The last records could not be dispatched for lack of space. If there is space again, have the dispatcher try
        now. Return RC_OK if it continued, RC_MORE if the caller can't wait for it, otherwise RC_NO_QUEUE_ROOM."""
        cdef int64_t failures = rc_load_i64(&self.room.failures)
        cdef int waits = 0
        if not self._background or self.q.reader == NULL or not room_is_free(&self.room):
            return RC_NO_QUEUE_ROOM
        if how & APPEND_AT_ONCE:
            return RC_MORE
        while rc_load_i64(&self.room.error) != 0:
            if rc_load_i64(&self.room.failures) > failures + 1 or waits > ROOM_WAITS:
                return RC_NO_QUEUE_ROOM     # the first one may have been under way before there was space
            rc_service_wake(self.q.reader)
            usleep(HELD_US)
            waits += 1
        return RC_OK

    cdef int64_t _measure(self, PreparedRecord* records, int n, int how, int* count) noexcept nogil:
        """Set size, CRC and hash of the records to store, and refuse the records that exceed a limit.

        count  set to the number of records to handle; with APPEND_IN_ORDER those before the first refused record
        Returns the total size in bytes of the accepted records.
        """
        cdef PreparedRecord* before = NULL
        cdef PreparedRecord* r
        cdef int64_t total = 0, size
        cdef int i = 0, k, rc, batch
        count[0] = n
        while i < n:
            batch = batch_count(records + i, n - i)
            size, rc = 0, RC_OK
            for k in range(i, i + batch):
                r = &records[k]
                rc = r.status
                if rc == RC_MORE:
                    rc = self._measure_one(r, before)
                if rc != RC_OK:
                    break
                size += r.size
                before = r
            if rc == RC_OK and batch > 1 and size > self.q.file_size - RC_BLANK_BYTES:
                rc = RC_RECORD_TOO_LONG
            if rc == RC_OK:
                total += size
            else:
                refuse(records + i, batch, rc, RC_OK)
                if how & APPEND_IN_ORDER:
                    count[0] = i
                    return total
            i += batch
        return total

    cdef int _measure_one(self, PreparedRecord* r, const PreparedRecord* before) noexcept nogil:
        """Set size, CRC and hash of one record. Return RC_OK, or the code of the limit that it exceeds.

        before  a measured record, possibly of the same queue; or NULL
        """
        cdef MessageArgs* d = &r.args
        cdef int64_t size
        d.version = 1
        if d.topic_len > RC_TOPIC_V1_MAX_BYTES:
            d.version = 2
            if d.topic_len > RC_TOPIC_V2_MAX_BYTES:
                return RC_TOPIC_TOO_LONG
        d.property_crc = self._property_crc
        size = message_args_size(d)
        if properties_size(d) > RC_PROPERTIES_MAX_BYTES:
            return RC_PROPERTIES_TOO_LONG
        if d.body_len > self._max_body:
            return RC_BODY_TOO_LONG
        if size > self._max_body + RECORD_EXTRA or size > self.q.file_size - RC_BLANK_BYTES:
            return RC_RECORD_TOO_LONG
        r.size = <int32_t>size
        d.body_crc = rc_body_crc(crc32, d.body, <size_t>d.body_len)
        if before != NULL and is_same_queue(before, r):
            r.hash = before.hash
        else:
            r.hash = cq_hash(d.topic, d.topic_len, d.queue_id)
        return RC_OK

    cdef uint64_t _lock_queues(self, PreparedRecord* records, int n, int how) noexcept nogil:
        """Lock and find the queues of all records to store. Return the locked stripes. Return 0 if there is nothing to
        store, if the caller can't wait, or without memory; the status of each record says which."""
        cdef PreparedRecord* r
        cdef PreparedRecord* before = NULL
        cdef uint64_t stripes = 0
        cdef int i, rc, waits = 0
        cdef bint held
        for i in range(n):
            r = &records[i]
            if r.status == RC_MORE and (before == NULL or before.hash != r.hash):
                stripes |= self.offsets.stripe_of(r.hash)
                before = r
        before = NULL
        while stripes != 0:
            if not self.offsets.lock_stripes(stripes, how & APPEND_AT_ONCE):
                return 0
            held = False
            rc = RC_OK
            for i in range(n):
                r = &records[i]
                if r.status != RC_MORE:
                    continue
                if before != NULL and is_same_queue(before, r):
                    r.slot = before.slot
                    continue
                r.slot = self.offsets.slot(r.args.topic, r.args.topic_len, r.args.queue_id, r.hash)
                if r.slot == NULL:
                    self.offsets.unlock_stripes(stripes)
                    refuse(records, n, RC_NO_FILE, ENOMEM)
                    return 0
                before = r
                held = held or r.slot.held
                if r.slot.next_offset == 0 and r.slot.has_room == 0:
                    rc = room_take(&self.room)
                    if rc != RC_OK:
                        break
                    r.slot.has_room = 1
            if not held and rc == RC_OK:
                return stripes
            self.offsets.unlock_stripes(stripes)        # a topic is being deleted, or the dispatcher is far behind
            if rc == RC_MORE:
                waits += 1
            if rc == RC_NO_QUEUE_ROOM or waits > (ROOM_WAITS if self._background else 0):
                refuse(records, n, RC_NO_QUEUE_ROOM, RC_OK)
                return 0
            if how & APPEND_AT_ONCE:
                return 0
            before = NULL
            usleep(HELD_US)
        return 0

    cdef int _append_some(self, PreparedRecord* records, int n, int how, int64_t total, int* taken) noexcept nogil:
        """Append the first of n records to one file under one hold of the put lock.

        total  bytes of all records of the call
        taken  set to the number of records handled; the status of each is its result
        Returns RC_OK, or the reason why nothing more can be stored.
        """
        cdef rc_guard guard
        cdef PreparedRecord* r
        cdef FileState* f
        cdef int64_t pos, first, room, now, size, last = 0
        cdef int i = 0, k, stored = 0, rc, error = RC_OK
        while i < n and records[i].status != RC_MORE:
            i += 1
        taken[0] = n
        if i == n:
            return RC_OK
        if not how & APPEND_AT_ONCE:
            self._take_lock()
        elif n > HOLD_RECORDS or total > HOLD_BYTES or not self._take_lock_at_once(total):
            return RC_MORE
        now = rc_clock_ms()
        rc_store_i64(&self._in_lock_since, now)
        if self.clock >= 0:
            now = self.clock
        rc = self._make_room(batch_size(records + i, n - i), &error)
        f = self._last
        if rc == RC_OK:
            pos = first = f.wrote
            room = <int64_t>f.size - RC_BLANK_BYTES
            size = records.size
            if n > 1:
                taken[0] = fitting(records, n, room - pos, HOLD_RECORDS, HOLD_BYTES, &size)
            if f.buffer == NULL and pos + size > rc_load_i64(&f.ready):
                allocator_reserve(&self.a, f, pos + size)
            enter_writing(&guard, f.base, f.size, &f.cut)
            for k in range(i, taken[0]):
                r = &records[k]
                if r.status == RC_MORE and self._write_record(f, pos, r, now) == RC_OK:
                    pos += r.size
                    last = r.size
                    stored += 1
            guard_leave(&guard)
            fetch_ahead((f.base if f.buffer == NULL else f.buffer) + pos, min(last, <int64_t>f.size - pos))
            if f.cut != 0:
                rc = RC_FILE_CUT
            elif stored > 0:
                self._publish(f, pos, now)
                rc_store_i64(&self.appended, self.appended + stored)
                rc_store_i64(&self.last_end, f.start + pos)
                rc_store_i64(&self.appended_bytes, self.appended_bytes + pos - first)
        if rc_load_i64(&self._is_held_long) != 0:
            self._note_hold(records[i].args.topic, records[i].args.topic_len, bytes_of(records + i, taken[0] - i))
        rc_store_i64(&self._in_lock_since, 0)
        self.lock.unlock()
        if rc == RC_FILE_CUT:
            flusher_fail(&self.fl, rc, f.path)
            rc = RC_FAILED
            for k in range(i, taken[0]):
                records[k].status = RC_MORE     # none of them is published
        if rc == RC_OK:
            self._wake(f)
        else:
            refuse(records + i, n - i, rc, error)
            taken[0] = n
        return rc

    cdef int _write_record(self, FileState* f, int64_t pos, PreparedRecord* r, int64_t now) noexcept nogil:
        """Write one record at a position of a file, which has room for it. Return RC_OK or RC_OUT_OF_ORDER."""
        cdef uint8_t* to = f.base if f.buffer == NULL else f.buffer
        cdef MessageArgs* d = &r.args
        cdef int64_t transaction = d.sys_flag & RC_FLAG_TRANSACTION_MASK
        cdef bint counted = transaction != RC_FLAG_PREPARED and transaction != RC_FLAG_ROLLBACK
        if r.expected >= 0 and r.expected != r.slot.next_offset:
            r.status = RC_OUT_OF_ORDER
            return RC_OUT_OF_ORDER
        d.queue_offset = r.slot.next_offset if counted else 0
        d.phy_offset = f.start + pos
        d.store_timestamp = now
        if d.born_timestamp == INT64_MIN:       # none was given
            d.born_timestamp = now
        encode_measured(to + pos, r.size, d, crc32)
        r.end = d.phy_offset + r.size
        if counted:
            r.slot.next_offset += r.messages
        r.status = RC_OK
        return RC_OK

    cdef void _wake(self, FileState* f) noexcept nogil:
        """Wake the threads that have work to do after an append to f."""
        if rc_load_i64(&f.wrote) >= rc_load_i64(&f.wake_at):
            rc_store_i64(&f.wake_at, INT64_MAX)
            rc_service_wake(&self.a.service)
        if self.fl.sync:
            rc_fence_full()
        else:
            queue_wake_reader(self.q)       # this is a full fence too
        if rc_load_i64(&self.written_position.armed) != 0:
            self.written_position.advance(rc_load_i64(self.written_position.source))
        if self._wakes == 0:
            return
        if self._wakes & WAKE_FLUSH:
            flusher_wake(&self.fl)
        if self._wakes & WAKE_COMMIT and f.buffer != NULL:
            if can_flush(rc_load_i64(&f.wrote), rc_load_i64(&f.committed), <int64_t>f.size, self.fl.commit_least_pages):
                rc_service_wake(&self.fl.committer)

    cdef int64_t watch_hold(self, int64_t* since, int64_t* until_ns) noexcept nogil:
        """Ask a put that has held the put lock for SLOW_HOLD_MS to note it. A put does not measure its own hold: that
        would cost each put one more reading of the clock.

        since, until_ns  what the caller, one thread, keeps between its calls: the hold it saw last, and when that
                         becomes long; 0 at first
        Returns the ns until the next call, at most SLOW_HOLD_MS. So no longer hold is missed.
        """
        cdef int64_t now = rc_clock_ns(), found = rc_load_i64(&self._in_lock_since), left
        if found != since[0]:
            since[0] = found
            until_ns[0] = now + min(max(SLOW_HOLD_MS - (rc_clock_ms() - found), 0), <int64_t>SLOW_HOLD_MS) * MS
        left = until_ns[0] - now
        if found == 0 or left > SLOW_HOLD_MS * MS:
            return SLOW_HOLD_MS * MS
        if left > 0:
            return left
        until_ns[0] = INT64_MAX
        rc_store_i64(&self._slow_since, found)
        rc_store_i64(&self._is_held_long, 1)
        return SLOW_HOLD_MS * MS

    cdef void _note_hold(self, const uint8_t* topic, int64_t topic_len, int64_t size) noexcept nogil:
        """Count this hold of the put lock if it is the one that watch_hold() found, and keep what is logged about it.
        The lock is held."""
        cdef SlowHold* h = &self._slow_hold
        cdef int64_t since = rc_load_i64(&self._in_lock_since), ms = rc_clock_ms() - since, begin, longest
        rc_store_i64(&self._is_held_long, 0)
        if since != rc_load_i64(&self._slow_since) or ms >= BUSY_NEVER_MS:
            return                      # that one has ended, or the clock was set
        h.ms = max(ms, <int64_t>SLOW_HOLD_MS)
        h.size = size
        h.topic_len = <int>min(topic_len, <int64_t>SHOWN_TOPIC_BYTES)
        memcpy(h.topic, topic, <size_t>h.topic_len)
        h.waited = WAITED_WRITE
        begin = rc_clock_ns() - (h.ms + 1) * MS
        longest = h.ms * MS // 2
        if self._took_file_since >= begin and self._took_file_ns > longest:
            h.waited = WAITED_FILE
        elif self._commit_since >= begin and self._commit_ns > longest:
            h.waited = WAITED_COMMIT
        elif self.a.waited_since >= begin and self.a.waited_ns > longest:
            h.waited = WAITED_PAGES
        rc_count_i64(&self.slow_holds, 1)
        rc_store_i64(&self.fl.news, 1)

    cdef void _take_lock(self) noexcept nogil:
        cdef int64_t begin
        if self.lock.try_lock():
            return
        begin = rc_clock_ns()
        self.lock.lock()
        rc_store_i64(&self.waits, self.waits + 1)
        rc_histogram_add(&self.lock_time, <unsigned long long>(rc_clock_ns() - begin))

    cdef bint _take_lock_at_once(self, int64_t size) noexcept nogil:
        """Take the put lock if it is free and the next `size` bytes of the log are ready. Do not wait for either."""
        cdef FileState* f
        cdef int64_t end
        if not self.lock.try_lock():
            return False
        f = self._last
        if f != NULL:
            end = f.wrote + size
            if end + RC_BLANK_BYTES <= <int64_t>f.size and (f.buffer != NULL or end <= rc_load_i64(&f.ready)):
                return True
        self.lock.unlock()
        return False

    @property
    def last_record_end(self):
        """Physical offset of the end of the last record, of this session or an earlier one, not counting blank
        records."""
        return rc_load_i64(&self.last_end)

    def stats(self):
        """Counters and times of this log; see MessageStore.stats()."""
        return {
            "records": rc_load_i64(&self.appended),
            "bytes": rc_load_i64(&self.appended_bytes),
            "rolls": rc_load_i64(&self.rolls),
            "lock_waits": rc_load_i64(&self.waits),
            "flushes": rc_load_i64(&self.fl.flushes),
            "flushed_bytes": rc_load_i64(&self.fl.flushed_bytes),
            "slow_flushes": rc_load_i64(&self.fl.slow),
            "commits": rc_load_i64(&self.fl.commits),
            "slow_commits": rc_load_i64(&self.fl.slow_commits),
            "slow_holds": rc_load_i64(&self.slow_holds),
            "flush_timeouts": rc_load_i64(&self.fl.timeouts),
            "mlocked_bytes": rc_load_i64(&self.q.locked) + self.a.buffers_locked,
            "mlock_failures": rc_load_i64(&self.a.lock_failures),
            "put_time": summary(&self.put_time),
            "flush_time": summary(&self.fl.latency),
            "roll_time": summary(&self.roll_time),
            "lock_time": summary(&self.lock_time),
        }

    def histograms(self):
        """Map each time of stats() to ([(2 ** n ns, how many took less)], the number of times, their sum in ns)."""
        return {
            "put_time": spread(&self.put_time),
            "flush_time": spread(&self.fl.latency),
            "roll_time": spread(&self.roll_time),
            "lock_time": spread(&self.lock_time),
        }

    def slow_hold(self):
        """Return the last of the slow_holds of stats(), as (ms, bytes, topic, what it waited for)."""
        cdef SlowHold h
        with nogil:
            self.lock.lock()
            h = self._slow_hold
            self.lock.unlock()
        topic = PyBytes_FromStringAndSize(<const char*>h.topic, h.topic_len)
        return h.ms, h.size, topic.decode("utf-8", "replace"), WAITED[h.waited]

    def slow_commit(self):
        """Return the last of the slow_commits of stats(), as (ns, bytes, the physical offset where they end)."""
        cdef int64_t took, size, end
        with nogil:
            pthread_mutex_lock(&self.fl.committing)
            took, size, end = self.fl.slow_commit_ns, self.fl.slow_commit_bytes, self.fl.slow_commit_end
            pthread_mutex_unlock(&self.fl.committing)
        return took, size, end

    def lock_failure(self):
        """Return the errno and the bytes of the first of the mlock_failures of stats(); (0, 0): there was none."""
        return self.a.lock_error, self.a.lock_bytes

    @property
    def appending_since(self):
        """When the put that now holds the lock took it, in ms since the epoch; 0 if the lock is free."""
        return rc_load_i64(&self._in_lock_since)

    # test hooks

    def roll(self):
        """Fill the last file with a blank record, if it has room for one, and start a new file."""
        cdef int rc = RC_OK, error = RC_OK
        with nogil:
            self._take_lock()
            if self._last != NULL and self._last.wrote < <int64_t>self._last.size:
                rc = self._blank()
            if rc == RC_OK:
                rc = self._make_room(RC_BLANK_BYTES, &error)
            self.lock.unlock()
        if rc == RC_NO_FILE:
            check_file(error, "")
        check(rc)

    def hook(self, str name, value):
        """Inject a fault or a delay.

        slow_ns    added to the duration of each flush
        commit_ns  added to the duration of each commit of the pool
        make_ns    added to the creation of each file
        create_ns  the longest wait for a new file
        fail       an errno: the store has failed with it
        far        bytes of the log after which the checkpoint is written early
        busy_ms    pretend that a put has held the lock for this time; 0: that no put holds it
        """
        if name == "slow_ns":
            rc_store_i64(&self.fl.slow_ns, value)
        elif name == "commit_ns":
            rc_store_i64(&self.fl.commit_ns, value)
        elif name == "make_ns":
            rc_store_i64(&self.a.make_ns, value)
        elif name == "create_ns":
            rc_store_i64(&self._create_ns, value)
        elif name == "fail":
            flusher_fail(&self.fl, value, NULL)
        elif name == "far":
            rc_store_i64(&self.fl.far, value)
        elif name == "busy_ms":
            rc_store_i64(&self._in_lock_since, rc_clock_ms() - <int64_t>value if value else 0)
        else:
            raise ValueError(name)


cdef dict summary(rc_histogram* h):
    return {
        "count": rc_histogram_count(h),
        "p50": rc_histogram_percentile(h, 50),
        "p99": rc_histogram_percentile(h, 99),
        "p999": rc_histogram_percentile(h, 99.9),
        "max": rc_histogram_max(h),
        "sum": rc_histogram_sum(h),
    }


cdef tuple spread(rc_histogram* h):
    # Start at the least power: values that are added meanwhile then can't make a count greater than the next one.
    cdef uint64_t power = <uint64_t>1 << LEAST_POWER
    cdef list below = []
    while power <= <uint64_t>1 << MOST_POWER:
        below.append((power, rc_histogram_below(h, power)))
        power *= 2
    return below, rc_histogram_count(h), rc_histogram_sum(h)
