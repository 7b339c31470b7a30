# cython: language_level=3
"""The commit log: where a record goes, and what is written into it there.

A record is laid into the mapped file once, byte by byte where it will stay: no buffer in between, and nothing of it is
computed under the put lock but what only the lock knows (both offsets, the store timestamp, the property CRC).
Source: RocketMQ CommitLog.asyncPutMessage, DefaultAppendMessageCallback
"""
import contextlib
import os

cimport cython
from libc.errno cimport ENAMETOOLONG, ENOMEM
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset, strcpy, strlen
from posix.unistd cimport usleep

from rocketc._status cimport check, check_file
from rocketc.c.atomic cimport rc_add_i64, rc_load_i64, rc_store_i64
from rocketc.c.crc32 cimport rc_body_crc
from rocketc.c.histogram cimport (
    rc_histogram, rc_histogram_add, rc_histogram_below, rc_histogram_count, rc_histogram_max, rc_histogram_percentile,
    rc_histogram_sum,
)
from rocketc.c.layout cimport (
    RC_BLANK_BYTES, RC_FLAG_PREPARED, RC_FLAG_ROLLBACK, RC_FLAG_TRANSACTION_MASK, RC_PROPERTIES_MAX_BYTES,
    RC_TOPIC_V1_MAX_BYTES,
)
from rocketc.c.prefetch cimport LINE_BYTES, rc_prefetch_for_writing
from rocketc.c.service cimport pthread_mutex_lock, pthread_mutex_unlock, rc_clock_ms, rc_clock_ns, rc_service_wake
from rocketc.c.status cimport (
    RC_BODY_TOO_LONG, RC_CLOSED, RC_FAILED, RC_FILE_CUT, RC_MORE, RC_NO_FILE, RC_OK, RC_OUT_OF_ORDER,
    RC_PAGE_CACHE_BUSY, RC_PROPERTIES_TOO_LONG, RC_RECORD_TOO_LONG,
)
from rocketc.c.vm cimport rc_guard
from rocketc.files._allocator cimport (
    allocator_destroy, allocator_follow, allocator_init, allocator_leave, allocator_pool, allocator_reserve,
    allocator_return, allocator_start, allocator_step, allocator_stop, allocator_take,
)
from rocketc.files._append_file cimport FileState, can_flush, file_drop, file_map, file_shutdown
from rocketc.files._file_queue cimport (
    queue_at, queue_commit, queue_last, queue_push, queue_remove, queue_tell, sync_folder_of,
)
from rocketc.files._guard cimport enter_writing, leave as guard_leave
from rocketc.files._mapped_file_queue cimport MappedFileQueue
from rocketc.format._record cimport (
    MessageArgs, crc32, encode_blank, encode_record, message_args_size, properties_size,
)
from rocketc.log._flusher cimport (
    flusher_begin, flusher_checkpoint, flusher_destroy, flusher_fail, flusher_init, flusher_start, flusher_step,
    flusher_stop, flusher_wake,
)
from rocketc.log._positions cimport Position
from rocketc.log._prepared_record cimport (
    APPEND_AT_ONCE, APPEND_IN_ORDER, PreparedRecord, batch_count, batch_size, fitting, is_same_queue, refuse,
)
from rocketc.log._put_locks cimport PutMessageLock
from rocketc.log._queue_offsets cimport QueueOffsets, cq_hash

cdef enum:
    HOLD_RECORDS = 256              # so many records, or so many bytes, go in under one hold of the put lock
    HOLD_BYTES = 256 << 10
    AHEAD_BYTES = 16 << 20          # in front of the writer, whose pages are kept ready,
    LINES_AHEAD_BYTES = 2048        # ... and in a cache
    SYNC_BLOCK_BYTES = 16 << 10     # a sync of one record writes one block,
    ASYNC_BLOCK_BYTES = 64 << 10    # and larger ones are made ready faster (bench/README.md, preparation)
    RECORD_EXTRA = 64 << 10         # a record may be longer than maxMessageSize by this much
    MS = 1000000                    # ns
    HELD_US = 200                   # a put looks so often whether its topic is deleted at last
    LEAST_POWER = 10                # of histograms(): 1 us,
    MOST_POWER = 34                 # ... and 17 s
    PATH_BYTES = 4096
    BUSY_NEVER_MS = 10000000        # RocketMQ: a longer hold is taken for a clock that jumped


cdef inline void fetch_ahead(const uint8_t* p, int64_t size) noexcept nogil:
    """Ask for the cache lines that the next record goes to, if it is as long as this one: who puts one at a time waits
    for memory else, each time."""
    cdef int64_t at = 0
    while at < size and at < LINES_AHEAD_BYTES:
        rc_prefetch_for_writing(p + at)
        at += LINE_BYTES


@cython.no_gc_clear      # its end needs the queue
cdef class CommitLog:
    """The log of one store: its files, its put lock, the threads that make files and flush.

    queue    the files, loaded and recovered
    offsets  next queue offsets
    lock     a PutMessageLock
    config   a StoreConfig
    background  False: no threads; set_clock() tells the time, and step_flush() and step_ahead() do their work
    start() begins the threads, close() ends them; append() is for native callers.
    """

    def __cinit__(
        self, MappedFileQueue queue not None, QueueOffsets offsets not None, PutMessageLock lock not None, config,
        bint background=True,
    ):
        self.queue = queue
        self.q = &queue.q
        self.offsets = offsets
        self.lock = lock
        self.clock = -1
        self._background = background
        self._busy_ms = config.os_page_cache_busy_time_out_mills
        self._create_ns = 5_000_000_000
        self._max_body = config.max_message_size
        self._property_crc = config.enabled_append_prop_crc
        self._light = config.enable_lmq and config.enable_multi_dispatch
        self._wake_flush = config.wake_flush_when_put_message and config.flush == "async"
        self._wake_commit = config.wake_commit_when_put_message and config.transient_store_pool_enable
        check(allocator_init(&self.a, self.q))
        self.flushed_position = Position()
        self.confirmed_position = Position()
        check(flusher_init(&self.fl, self.q, <void*>self.flushed_position, <void*>self.confirmed_position))
        self._ready = True
        self.a.ahead = 0 if config.prepare == "allocate" else min(AHEAD_BYTES, self.q.file_size)
        self.a.block = ASYNC_BLOCK_BYTES
        if config.flush == "sync":
            self.a.block = SYNC_BLOCK_BYTES
        self.a.durable = config.flush == "sync"
        self.a.warm = config.warm_maped_file_enable
        self.a.lock = config.lock_files_in_memory or config.warm_maped_file_enable
        self.a.stepped = not background
        self.a.fail_fast = config.fast_fail_if_no_buffer_in_store_pool
        self.fl.sync = config.flush == "sync"
        self.fl.timed = config.flush_commit_log_timed
        self.fl.interval_ns = config.flush_interval_commit_log * 1_000_000
        self.fl.thorough_ns = config.flush_commit_log_thorough_interval * 1_000_000
        self.fl.least_pages = config.flush_commit_log_least_pages
        self.fl.commit_interval_ns = config.commit_interval_commit_log * 1_000_000
        self.fl.commit_thorough_ns = config.commit_commit_log_thorough_interval * 1_000_000
        self.fl.commit_least_pages = config.commit_commit_log_least_pages
        if config.transient_store_pool_enable:
            check(allocator_pool(&self.a, config.transient_store_pool_size))
            self.fl.allocator = &self.a

    def __dealloc__(self):
        if self._ready:
            if self._running:
                flusher_stop(&self.fl)
            allocator_stop(&self.a)
            self.end_positions()
            flusher_destroy(&self.fl)
            allocator_destroy(&self.a)
        if self._given_up != NULL:
            file_drop(self._given_up)

    def start(
        self, int checkpoint_fd=-1, checkpoint=(0, 0, 0, 0, 0), *, int64_t last_record_end=0, int64_t timestamp=0,
        int64_t queued=-1,
    ):
        """Map the last file and start the threads.

        checkpoint_fd, checkpoint   the checkpoint file, and its numbers
        last_record_end, timestamp  of the log's last record: where it ends, and its store timestamp in ms
        queued                      physical offset before which queues and index are durable; -1: it is not known
        """
        cdef FileState* last = queue_last(self.q)
        cdef int i
        self.last_end = last_record_end
        self.q.store_timestamp = self.q.flushed_timestamp = timestamp
        self.fl.checkpoint_fd = checkpoint_fd
        self.fl.queued = queued
        for i in range(5):
            self.fl.checkpoint[i] = checkpoint[i]
        if last != NULL and last.wrote < self.q.file_size:
            check_file(file_map(last), os.fsdecode(last.path))
            self._last = last
        elif last != NULL:
            self._last = last
        self.flushed_position.at = self.q.flushed
        self.confirmed_position.at = self.q.wrote       # readers may have had all of it
        if self.fl.sync:
            self.flushed_position.mover_asked = &self.fl.asked
            self.flushed_position.mover = &self.fl.service
        with nogil:
            flusher_checkpoint(&self.fl)    # all that there is is durable, and what was there before may have been cut
        if self._background:
            check(allocator_start(&self.a))
            check(flusher_start(&self.fl))
        else:
            flusher_begin(&self.fl, self.clock * MS)
        self._running = True
        allocator_follow(&self.a, last)

    def stop(self):
        """End the threads, flush what is left, write the checkpoint; a file made ahead is deleted.

        Returns 0, or the errno or code of the failure.
        """
        cdef int rc
        if not self._running:
            return 0
        with nogil:
            rc = flusher_stop(&self.fl)
            if rc == RC_OK:
                rc = flusher_checkpoint(&self.fl)
                if rc != RC_OK:
                    flusher_fail(&self.fl, rc, NULL)
            allocator_stop(&self.a)
            self.end_positions()
        if not self._background:
            self.stamp_files(last=True)
        with nogil:
            self._let_go()
        self._running = False
        self._last = NULL
        return rc

    def step_flush(self):
        """Commit, flush and write the checkpoint as far as it is due by the clock; whether anything was."""
        cdef bint did
        with nogil:
            did = flusher_step(&self.fl, self.clock * MS)
        return did

    def step_ahead(self):
        """Make the next file and the next pages ready; whether anything was to do."""
        cdef bint did
        with nogil:
            did = allocator_step(&self.a)
        return did

    def stamp_files(self, *, bint last=False):
        """Give full files the store timestamp of their last record as modification time: cleaning goes by it, and by
        the clock of the store. last: the last file, too. One caller at a time, and nobody deletes files meanwhile."""
        cdef FileState* f
        cdef int64_t timestamp
        cdef bint full, in_row = True
        cdef int i = 0
        while True:
            f = queue_at(self.q, i)
            if f == NULL:
                return
            i += 1
            full = rc_load_i64(&f.wrote) >= <int64_t>f.size
            if f.start < self._stamped or not (full or last):
                continue
            timestamp = f.store_timestamp
            if timestamp > 0:           # else nothing was put into it since the store was opened
                with contextlib.suppress(OSError):
                    os.utime(os.fsdecode(f.path), ns=(timestamp * MS, timestamp * MS))
            in_row = in_row and full and f.buffer == NULL and rc_load_i64(&f.flushed) >= <int64_t>f.size
            if in_row:                  # nobody writes to it any more, nor to those before it
                self._stamped = f.start + <int64_t>f.size

    cdef void _let_go(self) noexcept nogil:
        """Give back the pool's buffers and unmap the files that nobody views; no thread is left that uses them."""
        cdef FileState* f
        cdef int i
        for i in range(self.q.count):
            f = self.q.files[i]
            if f.buffer != NULL:
                allocator_return(&self.a, f.buffer)
                f.buffer = NULL
            file_shutdown(f)

    cdef bint is_busy(self) noexcept nogil:
        """Whether somebody has been appending for too long: the page cache can't keep up with the disk."""
        cdef int64_t since = rc_load_i64(&self._in_lock_since), held
        if since == 0:
            return False
        held = rc_clock_ms() - since
        return self._busy_ms < held < BUSY_NEVER_MS

    cdef int append(self, PreparedRecord* records, int n, int how) noexcept nogil:
        """Put n prepared records into the log, in their order; those of one queue get consecutive queue offsets.

        how  bits of AppendFlags
        What became of each stands in its status; one that is not RC_MORE before is left alone. A record that is
        refused does not keep back those behind it, unless how says so; the records of a batch are stored all or none,
        one behind the other in one file. The put lock is held once for up to 256 records or 256 KiB; the queues stay
        locked for the whole call.
        Returns RC_OK if all are stored, else the first status that is not RC_OK: RC_FAILED, RC_PAGE_CACHE_BUSY,
        RC_NO_FILE, RC_BODY_TOO_LONG, RC_RECORD_TOO_LONG, RC_PROPERTIES_TOO_LONG, RC_OUT_OF_ORDER (not the expected
        queue offset); with APPEND_AT_ONCE also RC_MORE, and then nothing is stored.
        """
        cdef uint64_t stripes
        cdef int64_t total
        cdef int i = 0, count = 0, taken = 0, rc = RC_OK
        if rc_load_i64(&self.fl.failed) != 0:
            return refuse(records, n, RC_FAILED, RC_OK)
        if self.is_busy():
            return refuse(records, n, RC_PAGE_CACHE_BUSY, RC_OK)
        if n == 1 and records.status == RC_MORE:
            records.status = self._measure_one(records)     # most calls: the loops over many would cost them a tenth
            if records.status != RC_OK:
                return records.status
            records.status = RC_MORE
            records.hash = cq_hash(records.args.topic, records.args.topic_len, records.args.queue_id)
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

    cdef int64_t _measure(self, PreparedRecord* records, int n, int how, int* count) noexcept nogil:
        """Set size, CRC and hash of the records that are to be stored, and refuse those beyond a limit.

        count  set to how many records the call is about: of APPEND_IN_ORDER, those before the first that is refused
        Returns the bytes of those that are left.
        """
        cdef PreparedRecord* before = NULL
        cdef PreparedRecord* r
        cdef int64_t total = 0, size, most = self.q.file_size - RC_BLANK_BYTES
        cdef int i = 0, k, rc, batch
        count[0] = n
        while i < n:
            batch = batch_count(records + i, n - i)
            size = 0
            rc = RC_OK if records[i].status == RC_MORE else records[i].status
            for k in range(i, i + batch if rc == RC_OK else i):
                r = &records[k]
                rc = self._measure_one(r) if r.status == RC_MORE else r.status
                if rc != RC_OK:
                    break
                size += r.size
                if before != NULL and is_same_queue(before, r):
                    r.hash = before.hash
                else:
                    r.hash = cq_hash(r.args.topic, r.args.topic_len, r.args.queue_id)
                before = r
            if rc == RC_OK and size > most:
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

    cdef int _measure_one(self, PreparedRecord* r) noexcept nogil:
        """Set size and CRC of one record: RC_OK, or the limit that it is beyond."""
        cdef MessageArgs* d = &r.args
        cdef int64_t size
        d.version = 1 if d.topic_len <= RC_TOPIC_V1_MAX_BYTES else 2
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
        return RC_OK

    cdef uint64_t _lock_queues(self, PreparedRecord* records, int n, int how) noexcept nogil:
        """Lock the queues of all records that are to be stored, and find them. The stripes that are locked, or 0: there
        is nothing to store, or the caller can't wait, or there is no memory, as each status says."""
        cdef PreparedRecord* r
        cdef PreparedRecord* before = NULL
        cdef uint64_t stripes = 0
        cdef int i
        cdef bint held
        for i in range(n):
            if records[i].status == RC_MORE:
                stripes |= self.offsets.stripe_of(records[i].hash)
        while stripes != 0:
            if not self.offsets.lock_stripes(stripes, how & APPEND_AT_ONCE):
                return 0
            held = False
            for i in range(n):
                r = &records[i]
                if r.status != RC_MORE:
                    continue
                if before != NULL and is_same_queue(before, r):
                    r.slot = before.slot
                else:
                    r.slot = self.offsets.slot(r.args.topic, r.args.topic_len, r.args.queue_id, r.hash)
                if r.slot == NULL:
                    self.offsets.unlock_stripes(stripes)
                    refuse(records, n, RC_NO_FILE, ENOMEM)
                    return 0
                before = r
                held = held or r.slot.held
            if not held:
                return stripes
            self.offsets.unlock_stripes(stripes)        # a topic is being deleted
            if how & APPEND_AT_ONCE:
                return 0
            before = NULL
            usleep(HELD_US)
        return 0

    cdef int _append_some(self, PreparedRecord* records, int n, int how, int64_t total, int* taken) noexcept nogil:
        """Put the first of n records into one file under one hold of the put lock.

        total  bytes of all records of the call
        taken  set to how many were looked at; the status of each says what became of it
        Returns RC_OK, or why nothing more can be stored.
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
                if r.status == RC_MORE and self._lay(f, pos, r, now) == RC_OK:
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
        rc_store_i64(&self._in_lock_since, 0)
        self.lock.unlock()
        if rc == RC_FILE_CUT:
            flusher_fail(&self.fl, rc, f.path)
            rc = RC_FAILED
            for k in range(i, taken[0]):
                records[k].status = RC_MORE     # nothing of it is published
        if rc == RC_OK:
            self._wake(f)
        else:
            refuse(records + i, n - i, rc, error)
            taken[0] = n
        return rc

    cdef int _lay(self, FileState* f, int64_t pos, PreparedRecord* r, int64_t now) noexcept nogil:
        """Lay one record down at a position of a file, which has room for it: RC_OK, or RC_OUT_OF_ORDER."""
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
        r.status = encode_record(to + pos, <size_t>r.size, d, crc32)
        if r.status == RC_OK:
            r.end = d.phy_offset + r.size
            if counted:
                r.slot.next_offset += r.messages
        return r.status

    cdef void _wake(self, FileState* f) noexcept nogil:
        """Wake the threads that go on with what was put into f, where they have to be woken."""
        if rc_load_i64(&f.wrote) >= rc_load_i64(&f.wake_at):
            rc_store_i64(&f.wake_at, INT64_MAX)
            rc_service_wake(&self.a.service)
        if not self.fl.sync:
            queue_tell(self.q)
        if self._wake_flush:
            flusher_wake(&self.fl)
        if self._wake_commit and f.buffer != NULL:
            if can_flush(rc_load_i64(&f.wrote), rc_load_i64(&f.committed), <int64_t>f.size, self.fl.commit_least_pages):
                rc_service_wake(&self.fl.committer)

    cdef void _take_lock(self) noexcept nogil:
        cdef int64_t begin
        if self.lock.try_lock():
            return
        begin = rc_clock_ns()
        self.lock.lock()
        rc_store_i64(&self.waits, self.waits + 1)
        rc_histogram_add(&self.lock_time, <unsigned long long>(rc_clock_ns() - begin))

    cdef bint _take_lock_at_once(self, int64_t size) noexcept nogil:
        """Take the put lock if it is free, and if the next `size` bytes of the log are there and ready."""
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

    cdef void _publish(self, FileState* f, int64_t wrote, int64_t timestamp) noexcept nogil:
        """All before `wrote` is whole: readers and the flush may see it.

        The time comes last: whoever reads it, and then `wrote`, flushes all records up to that time.
        """
        f.store_timestamp = timestamp
        rc_store_i64(&f.wrote, wrote)
        rc_store_i64(&self.q.wrote, f.start + wrote)
        rc_store_i64(&self.q.store_timestamp, timestamp)

    cdef int _make_room(self, int64_t size, int* error) noexcept nogil:
        """Let _last be a file with room for `size` bytes and a blank record: roll if it has not. The lock is held."""
        cdef FileState* f = self._last
        cdef int64_t start = 0
        cdef int rc
        if f != NULL:
            if f.wrote + size + RC_BLANK_BYTES <= <int64_t>f.size:
                return RC_OK
            if f.wrote < <int64_t>f.size:
                rc = self._blank()
                if rc != RC_OK:
                    return rc
            start = f.start + <int64_t>f.size
        return self._begin_file(start, error)

    cdef int _begin_file(self, int64_t start, int* error) noexcept nogil:
        """Let _last be a new file, which begins at start, behind all others. The lock is held."""
        cdef FileState* f
        cdef int64_t begin = rc_clock_ns()
        cdef int rc
        rc = allocator_take(&self.a, start, rc_load_i64(&self._create_ns), &f)
        if rc != RC_OK:
            error[0] = rc
            return RC_NO_FILE
        rc = self._commit_before(f)
        if rc == RC_OK:
            rc = queue_push(self.q, f)
        if rc != RC_OK:
            file_shutdown(f)
            file_drop(f)
            error[0] = rc
            return RC_FAILED if self.fl.failed != 0 else RC_NO_FILE
        self._last = f
        rc_store_i64(&self.rolls, self.rolls + 1)
        rc_histogram_add(&self.roll_time, <unsigned long long>(rc_clock_ns() - begin))
        return RC_OK

    cdef int _begin_at(self, int64_t start, int* error) noexcept nogil:
        """Let a log that holds nothing, its first file at most, begin with the one at start. The lock is held."""
        cdef char path[PATH_BYTES]
        cdef FileState* f = self._last
        cdef int rc = RC_OK
        self._last = NULL
        allocator_leave(&self.a)
        if f != NULL:
            while not file_shutdown(f):     # who holds an empty file looks at it, and no more
                usleep(HELD_US)
            rc_add_i64(&f.pointers, 1)      # whoever lists the files looks at it without a lock
            if self._given_up != NULL:
                file_drop(self._given_up)
            self._given_up = f
            if f.buffer != NULL:
                allocator_return(&self.a, f.buffer)
                f.buffer = NULL
            if strlen(f.path) >= PATH_BYTES:
                rc = ENAMETOOLONG
            else:
                strcpy(path, f.path)
                rc = queue_remove(self.q, 0)
            if rc == RC_OK:
                rc = sync_folder_of(path)   # a power cut must not bring it back, with a gap behind it
            if rc != RC_OK:
                flusher_fail(&self.fl, rc, NULL)
                return RC_FAILED
        return self._begin_file(start, error)

    cdef int _commit_before(self, FileState* f) noexcept nogil:
        """A file without a buffer is written through its map: all that stands before it must be in its files by then.

        So readers, and what a crash leaves, see no gap when the pool has run out.
        """
        return RC_OK if f.buffer != NULL else self.commit()

    cdef int commit(self) noexcept nogil:
        """Write what stands in the pool's buffers into the files, where readers see it. RC_OK, or why not: the store
        has failed then."""
        cdef int rc
        if not self.a.pooled:
            return RC_OK
        pthread_mutex_lock(&self.fl.committing)
        rc = queue_commit(self.q)
        pthread_mutex_unlock(&self.fl.committing)
        if rc != RC_OK:
            flusher_fail(&self.fl, rc, NULL)
        return rc

    cdef int _blank(self) noexcept nogil:
        """Fill the rest of the last file with one blank record. A pool's memory is cleared: no old bytes go to disk."""
        cdef rc_guard guard
        cdef FileState* f = self._last
        cdef uint8_t* to = f.base if f.buffer == NULL else f.buffer
        cdef size_t room = f.size - <size_t>f.wrote
        if f.buffer == NULL and f.wrote + RC_BLANK_BYTES > rc_load_i64(&f.ready):
            allocator_reserve(&self.a, f, f.wrote + RC_BLANK_BYTES)
        enter_writing(&guard, f.base, f.size, &f.cut)
        if f.buffer != NULL:
            memset(to + f.wrote, 0, room)
        encode_blank(to + f.wrote, room)
        guard_leave(&guard)
        if f.cut != 0:
            return RC_FILE_CUT
        self._publish(f, <int64_t>f.size, f.store_timestamp)
        return RC_OK

    def set_clock(self, timestamp):
        """Give what is appended next this store timestamp: ms since the epoch, at least 0; None: the time of day.
        Without threads it is the time of all intervals, too."""
        self.clock = -1 if timestamp is None else timestamp

    @property
    def last_record_end(self):
        """Physical offset behind the last record, of this session or before; blank records do not count."""
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
            "put_time": summary(&self.put_time),
            "flush_time": summary(&self.fl.latency),
            "roll_time": summary(&self.roll_time),
            "lock_time": summary(&self.lock_time),
        }

    def histograms(self):
        """{name: ([(2 ** n ns, how many took less)], how many there are, their sum in ns)} of the times of stats()."""
        return {
            "put_time": spread(&self.put_time),
            "flush_time": spread(&self.fl.latency),
            "roll_time": spread(&self.roll_time),
            "lock_time": spread(&self.lock_time),
        }

    @property
    def appending_since(self):
        """Since when a put has held the lock: ms since the epoch; 0 while none does."""
        return rc_load_i64(&self._in_lock_since)

    cdef int confirm(self, int64_t phy_offset) noexcept nogil:
        """All before a physical offset is where it has to be, on the replicas perhaps: move the confirmed position.

        A lower one than before does nothing. Readers that are held below it can go on.
        Returns RC_OK, RC_OUT_OF_ORDER if the log ends before it, RC_CLOSED: nothing is changed then.
        Source: RocketMQ DefaultMessageStore.setConfirmOffset, which takes any offset.
        """
        if rc_load_i64(&self.confirmed_position.ended) != 0:
            return RC_CLOSED
        if phy_offset > rc_load_i64(&self.q.wrote):
            return RC_OUT_OF_ORDER
        self.confirmed_position.advance(phy_offset)
        queue_tell(self.q)
        return RC_OK

    cdef void end_positions(self) noexcept nogil:
        """They do not move any more: whoever waits is let go."""
        self.flushed_position.end()
        self.confirmed_position.end()

    def forget(self):
        """In a forked child: there are no threads to stop and no files to delete."""
        self.a.service.running = self.fl.service.running = self.fl.committer.running = 0
        self.a.ready = NULL
        self.flushed_position.forget()
        self.confirmed_position.forget()
        self._running = self._ready = False     # threads sleep in conditions, in the parent: their end is not ours

    # test hooks

    def roll(self):
        """Fill the last file with a blank record, if it has room for one, and go on in a new one."""
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
        """Disturb the store.

        slow_ns    each flush takes so much longer
        create_ns  so long is a new file waited for
        fail       an errno: the store has failed with it
        busy_ms    somebody has been appending for so long; 0: nobody is
        """
        if name == "slow_ns":
            rc_store_i64(&self.fl.slow_ns, value)
        elif name == "create_ns":
            rc_store_i64(&self._create_ns, value)
        elif name == "fail":
            flusher_fail(&self.fl, value, NULL)
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
    # From the least power on: what is added meanwhile makes none of the counts greater than the next.
    cdef uint64_t power = <uint64_t>1 << LEAST_POWER
    cdef list below = []
    while power <= <uint64_t>1 << MOST_POWER:
        below.append((power, rc_histogram_below(h, power)))
        power *= 2
    return below, rc_histogram_count(h), rc_histogram_sum(h)
