# cython: language_level=3
"""The files of the commit log while it is written: their threads, room for the next record, the end of the log.

_commit_log.pyx writes the records.
"""
import contextlib
import os

cimport cython
from libc.errno cimport ENAMETOOLONG
from libc.stdint cimport INT64_MAX, int64_t, uint8_t
from libc.string cimport memset, strcpy, strlen
from posix.unistd cimport usleep

from rocketc._status cimport check, check_file
from rocketc.c.atomic cimport rc_add_i64, rc_load_i64, rc_store_i64
from rocketc.c.histogram cimport rc_histogram_add
from rocketc.c.layout cimport RC_BLANK_BYTES
from rocketc.c.service cimport rc_clock_ns
from rocketc.c.status cimport RC_CLOSED, RC_FAILED, RC_FILE_CUT, RC_NO_FILE, RC_OK, RC_OUT_OF_ORDER
from rocketc.c.vm cimport rc_guard
from rocketc.files._allocator cimport (
    allocator_destroy, allocator_follow, allocator_init, allocator_leave, allocator_pool, allocator_reserve,
    allocator_return, allocator_start, allocator_step, allocator_stop, allocator_take,
)
from rocketc.files._append_file cimport (
    FileState, RC_OS_PAGE_BYTES, file_drop, file_fill, file_free_rest, file_map, file_shutdown,
)
from rocketc.files._file_queue cimport (
    queue_at, queue_last, queue_push, queue_remove, queue_unlock, queue_wake_reader, sync_folder_of,
)
from rocketc.files._guard cimport enter_writing, leave as guard_leave
from rocketc.files._mapped_file_queue cimport MappedFileQueue
from rocketc.format._record cimport encode_blank
from rocketc.log._flusher cimport (
    flusher_begin, flusher_checkpoint, flusher_commit, flusher_destroy, flusher_fail, flusher_init, flusher_start,
    flusher_step, flusher_stop,
)
from rocketc.log._positions cimport Position
from rocketc.log._put_locks cimport PutMessageLock
from rocketc.log._queue_offsets cimport QueueOffsets

cdef enum:
    AHEAD_BYTES = 16 << 20          # ahead of the writer, whose pages are kept ready
    SYNC_BLOCK_BYTES = 16 << 10     # a sync of one record writes one block
    ASYNC_BLOCK_BYTES = 64 << 10    # larger blocks are faster to prepare (bench/README.md, preparation)
    MS = 1000000                    # ns
    HELD_US = 200                   # interval at which an empty file is checked for holders
    PATH_BYTES = 4096


@cython.no_gc_clear      # __dealloc__ needs the queue
cdef class LogFiles:
    """The part of a CommitLog that manages its files; takes the arguments of CommitLog."""

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
        self._create_ns = 5_000_000_000
        check(allocator_init(&self.a, self.q))
        self.flushed_position = Position()
        self.confirmed_position = Position()
        self.written_position = Position()
        self.written_position.source = &self.q.wrote
        check(flusher_init(&self.fl, self.q, <void*>self.flushed_position, <void*>self.confirmed_position))
        self._ready = True
        self.a.ahead = 0 if config.prepare == "allocate" else min(AHEAD_BYTES, self.q.file_size)
        self.a.block = ASYNC_BLOCK_BYTES
        if config.flush == "sync":
            self.a.block = SYNC_BLOCK_BYTES
        if config.prepare == "populate":
            self.a.block = 0
        self.a.durable = config.flush == "sync"
        self.a.warm = config.warm_maped_file_enable
        self.a.warm_bytes = config.flush_least_pages_when_warm_maped_file * RC_OS_PAGE_BYTES
        self.a.lock = config.lock_files_in_memory or config.warm_maped_file_enable
        self.a.news = &self.fl.news
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
        if config.has_store_pool:
            check(allocator_pool(&self.a, config.transient_store_pool_size))
            self.fl.allocator = &self.a
            self.fl.written = <void*>self.written_position
            self.written_position.source = &self.fl.committed

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
        int64_t queued=-1, int64_t indexed=-1,
    ):
        """Map the last file and start the threads.

        checkpoint_fd, checkpoint   the checkpoint file and its fields
        last_record_end, timestamp  of the last record of the log: its end, and its store timestamp in ms
        queued                      physical offset up to which queues and index are durable; -1: unknown
        indexed                     one more than that of the last record with a key; 0: there is none; -1: unknown
        """
        cdef FileState* last = queue_last(self.q)
        cdef int i
        self.last_end = last_record_end
        self.q.store_timestamp = self.q.flushed_timestamp = timestamp
        self.fl.checkpoint_fd = checkpoint_fd
        self.fl.queued = queued
        self.fl.indexed = indexed
        for i in range(5):
            self.fl.checkpoint[i] = checkpoint[i]
        if last != NULL and last.wrote < self.q.file_size:
            check_file(file_map(last), os.fsdecode(last.path))
            self._last = last
        elif last != NULL:
            self._last = last
        self.flushed_position.at = self.q.flushed
        self.confirmed_position.at = self.q.wrote       # readers may have read up to here
        self.fl.committed = self.q.wrote
        if self.fl.sync:
            self.flushed_position.mover_asked = &self.fl.asked
            self.flushed_position.mover = &self.fl.service
        with nogil:
            flusher_checkpoint(&self.fl)    # all bytes are durable here, and older bytes may have been cut off
        if self._background:
            check(allocator_start(&self.a))
            check(flusher_start(&self.fl))
        else:
            flusher_begin(&self.fl, self.clock * MS)
        self._running = True
        if last == NULL or last.holes == 0:
            allocator_follow(&self.a, last)

    def stop(self):
        """End the threads, flush the rest, write the checkpoint, and delete a file that was made ahead.

        Free the disk space after the last record, unless the flush failed.
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
            if rc == RC_OK and self._last != NULL and self._last.fd >= 0:
                file_free_rest(self._last, self._last.wrote)
        if not self._background:
            self.stamp_files(last=True)
        with nogil:
            self._release_files()
        self._running = False
        self._last = NULL
        return rc

    def step_flush(self):
        """Commit, flush and write the checkpoint if they are due by the clock. Return whether anything was done."""
        cdef bint did
        with nogil:
            did = flusher_step(&self.fl, self.clock * MS)
        return did

    def step_ahead(self):
        """Make the next file and the next pages ready. Return whether there was anything to do."""
        cdef bint did
        with nogil:
            did = allocator_step(&self.a)
        return did

    def stamp_files(self, *, bint last=False):
        """Set the modification time of full files to the store timestamp of their last record. Cleaning compares it
        with the clock of the store.

        last  stamp the last file too
        One caller at a time, and no other thread may delete files meanwhile.
        """
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
            if timestamp > 0:           # 0: nothing was put into it since the store was opened
                with contextlib.suppress(OSError):
                    os.utime(os.fsdecode(f.path), ns=(timestamp * MS, timestamp * MS))
            in_row = in_row and full and f.buffer == NULL and rc_load_i64(&f.flushed) >= <int64_t>f.size
            if in_row:                  # neither it nor an earlier file is written to any more
                self._stamped = f.start + <int64_t>f.size

    cdef void _release_files(self) noexcept nogil:
        """Return the pool's buffers, unlock the files, and unmap those without views. No thread may use them any
        more."""
        cdef FileState* f
        cdef int i
        queue_unlock(self.q, 0, INT64_MAX)      # views may keep the maps
        for i in range(self.q.count):
            f = self.q.files[i]
            if f.buffer != NULL:
                allocator_return(&self.a, f.buffer)
                f.buffer = NULL
            file_shutdown(f)

    cdef void _publish(self, FileState* f, int64_t wrote, int64_t timestamp) noexcept nogil:
        """Publish the whole records before `wrote` to readers and to the flush.

        The time is stored last: a thread that reads it and then `wrote` flushes all records up to that time.
        """
        f.store_timestamp = timestamp
        rc_store_i64(&f.wrote, wrote)
        rc_store_i64(&self.q.wrote, f.start + wrote)
        rc_store_i64(&self.q.store_timestamp, timestamp)

    cdef int _make_room(self, int64_t size, int* error) noexcept nogil:
        """Make sure that _last has room for `size` bytes and a blank record; roll if not. The lock is held."""
        cdef FileState* f = self._last
        cdef int64_t start = 0
        cdef int rc
        if f != NULL:
            if f.holes != 0 and self._fill(error) != RC_OK:
                return RC_NO_FILE
            if f.wrote + size + RC_BLANK_BYTES <= <int64_t>f.size:
                return RC_OK
            if f.wrote < <int64_t>f.size:
                rc = self._blank()
                if rc != RC_OK:
                    return rc
            start = f.start + <int64_t>f.size
        return self._begin_file(start, error)

    cdef int _fill(self, int* error) noexcept nogil:
        """Allocate disk space for the last file, which was opened on a full disk. The lock is held."""
        error[0] = file_fill(self._last)
        if error[0] != RC_OK:
            return RC_NO_FILE
        allocator_follow(&self.a, self._last)
        return RC_OK

    cdef int _begin_file(self, int64_t start, int* error) noexcept nogil:
        """Start a new file at start, after all others, and make it _last. The lock is held."""
        cdef FileState* f
        cdef int64_t begin = rc_clock_ns()
        cdef int rc
        rc = allocator_take(&self.a, start, rc_load_i64(&self._create_ns), &f)
        self._took_file_since = begin
        self._took_file_ns = rc_clock_ns() - begin
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
        """Move the beginning of a log without records to start; it has one file at most. The lock is held."""
        cdef char path[PATH_BYTES]
        cdef FileState* f = self._last
        cdef int rc = RC_OK
        self._last = NULL
        allocator_leave(&self.a)
        if f != NULL:
            while not file_shutdown(f):     # readers that hold an empty file only read it
                usleep(HELD_US)
            rc_add_i64(&f.pointers, 1)      # other threads list the files without a lock
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
                rc = sync_folder_of(path)   # after a power cut the file must not be back, before a gap
            if rc != RC_OK:
                flusher_fail(&self.fl, rc, NULL)
                return RC_FAILED
        return self._begin_file(start, error)

    cdef int _commit_before(self, FileState* f) noexcept nogil:
        """Before a file without a buffer is written through its map, write the buffers of all earlier files.

        So neither readers nor a recovery see a gap when the pool has run out of buffers.
        """
        cdef int rc
        if f.buffer != NULL or not self.a.pooled:
            return RC_OK
        self._commit_since = rc_clock_ns()
        rc = self.commit()
        self._commit_ns = rc_clock_ns() - self._commit_since
        return rc

    cdef int commit(self) noexcept nogil:
        """Write the pool's buffers into the files, where readers see the records. Return RC_OK, or the reason why the
        store has failed."""
        return flusher_commit(&self.fl) if self.a.pooled else RC_OK

    cdef int _blank(self) noexcept nogil:
        """Fill the rest of the last file with a blank record. Clear it in the pool, so that no old bytes are stored."""
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

    cdef int confirm(self, int64_t phy_offset) noexcept nogil:
        """Confirm all bytes before a physical offset (for example when replicas have them). Held readers can continue.

        An offset below the confirmed position does nothing.
        Returns RC_OK; RC_OUT_OF_ORDER if the log ends before the offset, or RC_CLOSED, and then nothing is changed.
        Source: RocketMQ DefaultMessageStore.setConfirmOffset, which takes any offset.
        """
        if rc_load_i64(&self.confirmed_position.ended) != 0:
            return RC_CLOSED
        if phy_offset > rc_load_i64(&self.q.wrote):
            return RC_OUT_OF_ORDER
        self.confirmed_position.advance(phy_offset)
        queue_wake_reader(self.q)
        return RC_OK

    cdef void end_positions(self) noexcept nogil:
        """End the positions: they do not move any more, and their waiters are woken."""
        self.flushed_position.end()
        self.confirmed_position.end()
        self.written_position.end()

    def set_clock(self, timestamp):
        """Set the store timestamp of the next records: ms since the epoch, at least 0; None: the current time.
        In a store without threads it is also the time of all intervals."""
        self.clock = -1 if timestamp is None else timestamp

    def forget(self):
        """In a forked child: drop the threads and files of the parent without stopping or deleting them."""
        self.a.service.running = self.fl.service.running = self.fl.committer.running = 0
        self.a.ready = NULL
        self.flushed_position.forget()
        self.confirmed_position.forget()
        self.written_position.forget()
        self._running = self._ready = False     # the threads and the conditions they wait on are the parent's
