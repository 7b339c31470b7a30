# cython: language_level=3
"""The thread that follows the log and dispatches its records, and the threads that wait for it.

The thread runs without Python. In async mode it dispatches all written records. In sync mode it dispatches only
durable records, so readers never see a message that a power cut could remove. With hold_readers it stops at the
confirmed offset. Another thread makes queues and index durable in intervals. The next opening dispatches the records
again that were not durable in them.
Source: RocketMQ ReputMessageService, FlushConsumeQueueService.
"""
import os

cimport cython
from libc.errno cimport EDQUOT, ENOENT, ENOSPC
from libc.stdint cimport int64_t, uint32_t, uint64_t

from rocketc._status cimport check
from rocketc.c.atomic cimport rc_add_i64, rc_count_i64, rc_fence_full, rc_load_i64, rc_store_i64
from rocketc.c.histogram cimport rc_size_class
from rocketc.c.service cimport (
    pthread_cond_broadcast, pthread_cond_destroy, pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock,
    pthread_mutex_unlock, rc_clock_ns, rc_cond_init, rc_cond_wait, rc_service_destroy, rc_service_init,
    rc_service_start, rc_service_stop, rc_service_wait,
)
from rocketc.c.status cimport RC_BLANK, RC_FILE_CUT, RC_FLUSH_TIMEOUT, RC_MORE, RC_OK, RC_TRUNCATED
from rocketc.c.vm cimport rc_guard
from rocketc.derived._change_feed cimport ChangeFeed
from rocketc.derived._consume_queues cimport ConsumeQueues
from rocketc.derived._dispatch_worker cimport MOST_HASHES
from rocketc.derived._dispatcher cimport Dispatcher, HASHES, ROWS
from rocketc.derived._key_index cimport KeyIndex
from rocketc.files._append_file cimport FileState, file_readable, file_release
from rocketc.files._file_queue cimport queue_hold
from rocketc.files._guard cimport enter_writing, leave as guard_leave
from rocketc.format._record cimport Record, parse_record
from rocketc.log._commit_log cimport CommitLog
from rocketc.log._flusher cimport (
    flusher_checkpoint, flusher_checkpoint_if_far, flusher_flush, flusher_note, is_due,
)
from rocketc.log._put_result cimport failure
from rocketc.log._queue_room cimport room_made, room_settle

cdef enum:
    POLL_NS = 500000                # sleep while messages are put: so short that puts do not have to wake the thread
    BUSY_NS = 20000000              # this long after the last message, the thread sleeps until a put wakes it
    IDLE_NS = 1000000000
    MS = 1000000                    # ns
    RETRY_NS = 500000000            # after an error: the disk may have room again
    SETTLE_NS = 1000000000
    SHORT_NS = 50000000             # for which a flush of the log waits for the dispatcher
    CATCH_UP_NS = 5000000           # after this time, look again whether there is something to wait for
    FEW_QUEUES = 64
    RARELY = 10                     # a flush of everything takes at most this part of the time
    MOST_BEHIND = 134217728         # bytes: with a larger backlog, readers wait for seconds


@cython.no_gc_clear      # __dealloc__ needs the log
cdef class ReputService(Dispatcher):
    """Dispatches new records of the log to consume queues and index.

    queues  loaded
    index   loaded, or None
    config  a StoreConfig
    log     a CommitLog, not started yet
    background  False: there are no threads; set_clock() sets the time, step_dispatch() and step_keep() do their work
    At an opening, start_at(), take() and finish() dispatch the existing log. start() starts the threads.
    """

    def __cinit__(
        self, ConsumeQueues queues not None, KeyIndex index, config, CommitLog log not None, bint background=True,
    ):
        self.log = log
        self.background = background
        self.most_behind = MOST_BEHIND
        self.follows_flush = config.flush == "sync" and not config.read_un_committed
        self.held = config.hold_readers
        self.inside = -1
        self.interval_ns = config.flush_interval_consume_queue * 1_000_000
        self.thorough_ns = config.flush_consume_queue_thorough_interval * 1_000_000
        self.least_pages = config.flush_consume_queue_least_pages
        check(rc_service_init(&self.service))
        check(rc_service_init(&self.keeper))
        check(pthread_mutex_init(&self.working, NULL))
        check(pthread_mutex_init(&self.flushing, NULL))
        check(pthread_mutex_init(&self.progress.mutex, NULL))
        check(rc_cond_init(&self.progress.cond))
        self.feed = ChangeFeed(queues)
        self.feed.stepped = not background
        self._ready = True

    def __dealloc__(self):
        if not self._ready:
            return
        if self._running:
            self.log.q.reader = NULL
            rc_service_stop(&self.service)
            rc_service_stop(&self.keeper)
        pthread_cond_destroy(&self.progress.cond)
        pthread_mutex_destroy(&self.progress.mutex)
        pthread_mutex_destroy(&self.flushing)
        pthread_mutex_destroy(&self.working)
        rc_service_destroy(&self.keeper)
        rc_service_destroy(&self.service)

    # running

    def start(self):
        """Start to follow the log from the end that was passed to finish()."""
        if not self.background:
            self.since = [self.log.clock * MS, self.log.clock * MS]
            self._running = True
            return
        self.log.q.reader = &self.service
        check(rc_service_start(&self.service, run, <void*>self))
        self._running = True
        check(rc_service_start(&self.keeper, run_keeper, <void*>self))

    def set_clock(self, int64_t now):
        """Set the time for store timestamps and names of index files, and without threads for all intervals.

        now  ms since 1970
        """
        self.log.set_clock(now)
        if self.index is not None:
            self.index._clock = now

    def step_dispatch(self):
        """Dispatch all records that may be dispatched. Returns whether there were any; `failure` has the error."""
        cdef int64_t before = rc_load_i64(&self.position)
        cdef int rc = RC_OK
        with nogil:
            while rc == RC_OK:
                rc = self._step()
            self._note()
        return rc_load_i64(&self.position) != before

    def step_keep(self):
        """Make queues and index durable if an interval has ended. Returns whether all of them were."""
        cdef int64_t now = self.log.clock * MS
        cdef bint due = is_due(&self.since[0], now, self.interval_ns)
        cdef bint far = due and self._is_far(rc_load_i64(&self.position))
        cdef bint thorough = is_due(&self.since[1], now, self.thorough_ns) or far
        with nogil:
            if thorough:
                self.flush(0)
                flusher_checkpoint(&self.log.fl)
            elif due:
                self.flush(self.least_pages)
        return thorough

    def stop(self):
        """Dispatch the remaining records, stop the threads, flush and close queues and index. False if that failed.

        The disk space that was allocated ahead of the last units is freed.
        """
        cdef int rc
        cdef bint whole = False
        if not self._running:
            return True
        with nogil:
            self.log.q.reader = NULL
            rc_service_stop(&self.service)
            rc_service_stop(&self.keeper)
            rc_store_i64(&self.held, 0)     # there are no readers any more, and the next opening dispatches all records
            rc = RC_OK
            while rc == RC_OK and rc_load_i64(&self.position) < self._limit():
                rc = self._step()
            if rc == RC_MORE:
                rc = RC_OK
            if rc == RC_OK and rc_load_i64(&self.log.fl.failed) == 0:   # otherwise the next opening rebuilds them
                rc = self.flush(0)
                whole = rc == RC_OK
        if whole:
            self.queues.free_rest()
            if self.index is not None:
                self.index.free_rest()
        self._running = False
        self.queues.close()
        if self.index is not None:
            self.index.close()
        self.error = rc
        return rc == RC_OK and self.position >= self.log.last_record_end

    def forget(self):
        """Disable the service in a forked child: it does not have the threads."""
        self.service.running = self.keeper.running = 0
        self._running = self._ready = False
        self.feed.forget()

    cdef int64_t _limit(self) noexcept nogil:
        """Return the offset up to which the log may be dispatched.

        Source: RocketMQ ReputMessageService, which stops at getConfirmOffset().
        """
        cdef int64_t end = rc_load_i64(&self.log.q.flushed) if self.follows_flush else rc_load_i64(&self.log.q.wrote)
        return end if rc_load_i64(&self.held) == 0 else min(end, rc_load_i64(&self.log.confirmed_position.at))

    cdef bint _has_more(self) noexcept nogil:
        """Whether there is a record that may be dispatched."""
        cdef int64_t limit = self._limit()
        return rc_load_i64(&self.position) < limit and limit != rc_load_i64(&self.inside)

    cdef int _step(self) noexcept nogil:
        """Dispatch some records. Returns RC_OK, RC_MORE if there were none, or an error."""
        cdef int64_t before = rc_load_i64(&self.position)
        cdef int rc = self._advance()
        if rc != RC_OK:
            rc_store_i64(&self.error, rc)
            rc_store_i64(&self.log.room.error, rc if rc == ENOSPC or rc == EDQUOT else 0)
            rc_count_i64(&self.log.room.failures, 1)
        elif self.error != 0:
            rc_store_i64(&self.error, 0)
            rc_store_i64(&self.log.room.error, 0)
        self._notify_progress()
        if rc != RC_OK:
            return rc
        return RC_MORE if before == rc_load_i64(&self.position) else RC_OK

    cdef int _advance(self) noexcept nogil:
        """Dispatch records of one file, and wake the threads that wait for them. Any thread. RC_OK or an error."""
        cdef uint64_t woken
        cdef int rc
        pthread_mutex_lock(&self.working)
        rc = self._walk(self._limit())
        if rc_load_i64(&self.position) >= rc_load_i64(&self.log.last_end):
            room_settle(&self.log.room)
        woken = self.woken
        self.woken = 0
        pthread_mutex_unlock(&self.working)
        self.feed.notify(woken)
        return rc

    cdef int reach(self, int64_t end) noexcept nogil:
        """Dispatch on the calling thread, so that a reader finds all messages put before `end`, a physical offset.

        In sync mode only durable records are dispatched, with hold_readers only confirmed ones. If another thread is
        dispatching, this call waits for it.
        Returns RC_OK if all records that may be dispatched are, RC_MORE to be called again, or why dispatching stopped.
        """
        cdef int64_t before = rc_load_i64(&self.position)
        cdef int rc = <int>rc_load_i64(&self.error)
        if rc != RC_OK or before >= min(end, self._limit()):
            return rc
        rc = self.log.commit()
        if rc == RC_OK:
            rc = self._advance()
            self._notify_progress()
        return RC_MORE if rc == RC_OK and rc_load_i64(&self.position) > before else rc

    cdef int _walk(self, int64_t limit) noexcept nogil:
        """Dispatch the records of one file before `limit`."""
        cdef rc_guard guard
        cdef Record r
        cdef FileState* f
        cdef int64_t at = rc_load_i64(&self.position), pos, stop, readable
        cdef int64_t* size
        cdef int64_t queues = self.queues._count
        cdef int rc = queue_hold(self.log.q, at, &f), found = RC_OK
        if rc != RC_OK:
            return self._skip(at) if rc == ENOENT else rc
        pos = at - f.start
        readable = file_readable(f)
        stop = min(readable, limit - f.start)
        enter_writing(&guard, f.base, f.size, &f.cut)
        while pos < stop and rc == RC_OK and found == RC_OK:
            while pos < stop and self.row_count < ROWS and self.hash_count <= HASHES - MOST_HASHES:
                found = parse_record(f.base + pos, <size_t>(stop - pos), &r)
                if found != RC_OK:
                    break
                rc = self._stage(&r, f.start + pos)
                if rc != RC_OK:
                    break
                pos += r.size
                rc_count_i64(&self.dispatched, 1)
                rc_store_i64(&self.dispatched_bytes, self.dispatched_bytes + r.size)
                size = &self.sizes[rc_size_class(<uint32_t>r.size)]
                rc_store_i64(size, size[0] + 1)
            if rc == RC_OK:
                rc = self._put_rows()
            else:
                self._put_rows()
        guard_leave(&guard)
        self.row_count = self.hash_count = 0
        if rc == RC_OK:
            room_made(&self.log.room, self.queues._count - queues)
        if rc == RC_OK and found == RC_BLANK:
            rc_store_i64(&self.position, f.start + <int64_t>f.size)
        elif rc == RC_OK and found == RC_TRUNCATED and limit - f.start < readable:
            rc_store_i64(&self.inside, limit)
        elif rc == RC_OK and found != RC_OK:
            rc = found
        if f.cut != 0:
            rc = RC_FILE_CUT
            self.error_path = f.path
        file_release(f)
        return rc

    cdef int _skip(self, int64_t at) noexcept nogil:
        """Skip a log file that was deleted before it was dispatched; do nothing if it is not created yet."""
        cdef int64_t first
        pthread_mutex_lock(&self.log.q.mutex)
        first = self.log.q.files[0].start if self.log.q.count > 0 else at
        pthread_mutex_unlock(&self.log.q.mutex)
        if first > at:
            rc_store_i64(&self.position, first)
        return RC_OK

    # waiting threads

    cdef void _notify_progress(self) noexcept nogil:
        """Wake the threads in wait_position()."""
        rc_fence_full()         # either a waiting thread sees the new position, or this thread sees it waiting
        if rc_load_i64(&self.progress.waiting) > 0:
            pthread_mutex_lock(&self.progress.mutex)
            pthread_cond_broadcast(&self.progress.cond)
            pthread_mutex_unlock(&self.progress.mutex)

    cdef int wait_position(self, int64_t position, int64_t until_ns, int64_t slice_ns) noexcept nogil:
        """Wait until the log is dispatched to a physical offset: RC_OK, RC_MORE, RC_FLUSH_TIMEOUT, or an error."""
        cdef int64_t now, slice_end = rc_clock_ns() + slice_ns
        cdef bint ended
        cdef int rc = RC_OK
        if not self.background:
            return self._reach_all(position)
        pthread_mutex_lock(&self.progress.mutex)
        rc_add_i64(&self.progress.waiting, 1)
        rc_fence_full()
        while rc_load_i64(&self.position) < position:
            now = rc_clock_ns()
            if rc_load_i64(&self.error) != 0:
                rc = <int>self.error
                break
            ended = rc_load_i64(&self.feed.ended) != 0
            if now >= until_ns or now >= slice_end or ended:
                rc = RC_MORE if now < until_ns and not ended else RC_FLUSH_TIMEOUT
                break
            rc_cond_wait(&self.progress.cond, &self.progress.mutex, min(until_ns, slice_end) - now)
        rc_add_i64(&self.progress.waiting, -1)
        pthread_mutex_unlock(&self.progress.mutex)
        return rc

    cdef int _reach_all(self, int64_t position) noexcept nogil:
        """Do wait_position() without threads: dispatch on the calling thread."""
        cdef int rc = RC_MORE
        while rc == RC_MORE:
            rc = self.reach(position)
        return RC_FLUSH_TIMEOUT if rc == RC_OK and rc_load_i64(&self.position) < position else rc

    def end_waits(self):
        """End all waits, because the store is being closed. Later waits return at once."""
        self.feed.end()
        pthread_mutex_lock(&self.progress.mutex)
        pthread_cond_broadcast(&self.progress.cond)
        pthread_mutex_unlock(&self.progress.mutex)

    def delete_queues(self, dict ends):
        """Call ConsumeQueues.delete() while nothing is dispatched or flushed. The threads never take the GIL."""
        with nogil:
            pthread_mutex_lock(&self.flushing)      # first: records can be dispatched during this wait
            pthread_mutex_lock(&self.working)
        try:
            return self.queues.delete(ends)
        finally:
            pthread_mutex_unlock(&self.working)
            pthread_mutex_unlock(&self.flushing)

    # durability

    cdef int flush(self, int64_t least_pages) noexcept nogil:
        """Make queues and index durable. If least_pages is 0, all of it is, and the checkpoint says so."""
        cdef int64_t position = rc_load_i64(&self.position), timestamp = rc_load_i64(&self.timestamp)
        # After `position`: "no keys" must be true for all records before it.
        cdef int64_t indexed = self.index.end_phy() + 1 if self.index is not None else -1
        cdef int64_t index_timestamp = 0
        cdef const char* path = NULL
        cdef int rc
        pthread_mutex_lock(&self.flushing)
        rc = self.lost          # the kernel reports a lost page only once
        if rc == RC_OK:
            rc = self.queues.flush(least_pages, &path)
        if rc == RC_OK and least_pages == 0 and self.index is not None:
            rc = self.index.flush_files(True, &index_timestamp)
        if rc == RC_OK and least_pages == 0:
            flusher_note(&self.log.fl, timestamp, position, indexed, index_timestamp)
        if rc != RC_OK and self.lost == RC_OK:
            self.lost = rc
            self.error_path = path
        pthread_mutex_unlock(&self.flushing)
        return rc

    cdef void settle_if_far(self) noexcept nogil:
        """After a flush of the log: make queues and index durable too if recovery would dispatch much of it again.

        With many queues this takes seconds, so it is left to the keeper. An error is kept in `lost`, as by the keeper.
        """
        if self._is_far(self._limit()) and self.queues._count <= FEW_QUEUES:
            self._catch_up(SHORT_NS)
            self.flush(0)
        flusher_checkpoint_if_far(&self.log.fl)

    cdef void _catch_up(self, int64_t most_ns) noexcept nogil:
        """Wait until the records that may be dispatched now are, at most for this time."""
        cdef int64_t limit = self._limit(), until_ns = rc_clock_ns() + most_ns
        while self._has_more() and self.wait_position(limit, until_ns, CATCH_UP_NS) == RC_MORE:
            pass

    def settle(self):
        """Make the log durable, and its units and keys. Returns the physical offset before which all are durable.

        Messages that are put meanwhile, or can't be dispatched within a second, are not included. Raises
        StoreFailedError if the store has failed, StoreIOError, StoreFullError.
        """
        cdef int64_t position = 0
        cdef int rc, failed
        with nogil:
            failed = flusher_flush(&self.log.fl, 0)
            if failed == RC_OK:
                self._catch_up(SETTLE_NS)
                position = rc_load_i64(&self.position)
                rc = self.flush(0)
        if failed != RC_OK:
            raise failure(self.log, os.fsdecode(self.queues._folder))
        if rc != RC_OK:
            raise self.dispatch_error(rc)
        return position

    @property
    def failure(self):
        """The error that stopped dispatching, as an exception, or None."""
        cdef int rc = <int>rc_load_i64(&self.error)
        return self.dispatch_error(rc) if rc != 0 else None

    @property
    def is_far_behind(self):
        """Whether the backlog was more than 128 MiB, and has not been less than half of that since then."""
        return rc_load_i64(&self.is_behind) != 0

    @property
    def behind(self):
        """Bytes of the log that may be dispatched and are not yet."""
        return max(self._limit() - rc_load_i64(&self.position), 0)

    def stats(self):
        """Counters; see MessageStore.stats()."""
        return {
            "dispatched": rc_load_i64(&self.dispatched),
            "dispatched_bytes": rc_load_i64(&self.dispatched_bytes),
            "dispatch_behind_bytes": self.behind,
            "unqueued": self.unqueued_count,
            "queues": len(self.queues),
            "waiting_readers": rc_load_i64(&self.feed.waiting) + rc_load_i64(&self.progress.waiting),
        }

    def sizes_of_records(self):
        """Return a list by i: the number of dispatched records of 2 ** (i - 1) to 2 ** i bytes."""
        cdef int i
        return [rc_load_i64(&self.sizes[i]) for i in range(SIZES)]

    @property
    def dispatched_phy_offset(self):
        """Physical offset before which all records are in queues and index."""
        return rc_load_i64(&self.position)

    cdef bint _is_awaited(self) noexcept nogil:
        """Whether a thread waits for the next records."""
        return self.feed.is_awaited() or rc_load_i64(&self.progress.waiting) > 0

    cdef bint _sleep(self, int64_t since) noexcept nogil:
        """Sleep while there is nothing to dispatch. Returns True if the thread should end.

        since  rc_clock_ns() of the last record
        """
        cdef bint stop
        if not self._is_awaited() and rc_clock_ns() - since < BUSY_NS:
            return rc_service_wait(&self.service, POLL_NS)
        rc_store_i64(&self.log.q.reader_asleep, 1)
        rc_fence_full()         # either this thread sees a new record, or the thread that puts it sees reader_asleep
        # With the transient pool there may be records that are not in the file yet; their commit wakes this thread.
        stop = rc_service_wait(&self.service, (MS if self.log.a.pooled else 0) if self._has_more() else IDLE_NS)
        rc_store_i64(&self.log.q.reader_asleep, 0)
        return stop

    cdef void _run(self) noexcept nogil:
        """Follow the log until the service is stopped and all records are dispatched."""
        cdef int64_t since = rc_clock_ns()
        cdef int rc
        while True:
            rc = self._step()
            self._note()
            if rc == RC_OK:
                since = rc_clock_ns()
            elif rc == RC_MORE:
                if self._sleep(since):
                    return
            elif rc_service_wait(&self.service, RETRY_NS):
                return

    cdef void _note(self) noexcept nogil:
        """Have it logged if dispatching stopped or is far behind, or if that has ended."""
        cdef int64_t behind = self._limit() - rc_load_i64(&self.position), error = rc_load_i64(&self.error)
        cdef int64_t most = rc_load_i64(&self.most_behind)
        if error != self.logged_error:
            self.logged_error = error
            rc_store_i64(&self.log.fl.news, 1)
        if behind > most if self.is_behind == 0 else behind < most // 2:
            rc_store_i64(&self.is_behind, 1 - self.is_behind)
            rc_store_i64(&self.log.fl.news, 1)

    cdef void _keep(self) noexcept nogil:
        """Make queues and index durable in intervals, until the service is stopped."""
        cdef int64_t thorough = rc_clock_ns(), now, took = 0
        while not rc_service_wait(&self.keeper, self.interval_ns):
            now = rc_clock_ns()
            if now - thorough < (RARELY * took if self._is_far(rc_load_i64(&self.position)) else self.thorough_ns):
                self.flush(self.least_pages)
            else:
                thorough = now
                self.flush(0)
                flusher_checkpoint(&self.log.fl)
                took = rc_clock_ns() - now

    cdef bint _is_far(self, int64_t end) noexcept nogil:
        """Whether a large part of the log before `end` is not durable in queues and index."""
        cdef int64_t far = rc_load_i64(&self.log.fl.far)
        return end - max(rc_load_i64(&self.log.fl.queued), <int64_t>0) >= far


cdef void* run(void* argument) noexcept nogil:
    (<ReputService>argument)._run()
    return NULL


cdef void* run_keeper(void* argument) noexcept nogil:
    (<ReputService>argument)._keep()
    return NULL
