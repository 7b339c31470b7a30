# cython: language_level=3
"""From the log to the consume queues and the index, and to those who wait for messages.

One thread without Python follows the log: in async mode up to what is written, in sync mode up to what is durable, so
that nobody sees a message that a power cut can take back. Records are taken apart in rows of up to 64, and only then
dispatched: by that time the index slots that they need are in the cache. Another thread makes queues and index durable
now and then; what it has not, the next opening takes from the log.
Source: RocketMQ ReputMessageService, CommitLogDispatcher, FlushConsumeQueueService; store.md 5.4, 6.1.
"""
import os
import re

cimport cython
from libc.errno cimport ENOENT
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memset
from posix.unistd cimport write as write_file

from rocketc._append_file cimport FileState, file_readable, file_release
from rocketc._atomic cimport rc_add_i64, rc_count_i64, rc_fence_full, rc_load_i64, rc_store_i64
from rocketc._bytes cimport rc_get_i32, rc_get_i64
from rocketc._commit_log cimport CommitLog
from rocketc._consume_queue cimport ConsumeQueue, Unit, cq_hash, cq_put
from rocketc._consume_queues cimport ConsumeQueues
from rocketc._flusher cimport flusher_checkpoint, flusher_note
from rocketc._guard cimport enter_writing, install
from rocketc._guard cimport leave as guard_leave
from rocketc._jhash cimport rc_jhash, rc_jhash_from
from rocketc._index_row cimport record_hashes
from rocketc._key_index cimport KeyIndex
from rocketc._layout cimport (
    RC_FLAG_INNER_BATCH,
    RC_FLAG_PREPARED,
    RC_FLAG_ROLLBACK,
    RC_FLAG_TRANSACTION_MASK,
    RC_MSG_QUEUE_ID_AT,
    RC_MSG_STORE_TIMESTAMP_PAST,
)
from rocketc._mapped_file_queue cimport queue_hold
from rocketc._record cimport Piece, Record, parse_record
from rocketc._service cimport (
    pthread_cond_broadcast,
    pthread_cond_destroy,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    rc_clock_ns,
    rc_cond_init,
    rc_cond_wait,
    rc_service_destroy,
    rc_service_init,
    rc_service_start,
    rc_service_stop,
    rc_service_wait,
)
from rocketc._status cimport (
    RC_BAD_CHAIN,
    RC_BLANK,
    RC_FILE_CUT,
    RC_FLUSH_TIMEOUT,
    RC_MORE,
    RC_OK,
    RC_OUT_OF_ORDER,
    RC_UNFIT_TOPIC,
    check,
    io_error,
)
from rocketc._vm cimport rc_guard
from rocketc._walk cimport Walker

cdef enum:
    POLL_NS = 500000                # how long it naps while messages come; nobody has to wake it then
    BUSY_NS = 20000000              # so long after the last message it sleeps until it is woken
    IDLE_NS = 1000000000
    RETRY_NS = 500000000            # after an error: the disk may have room again
    MOST_HASHES = 16384             # of one record: 32767 bytes of keys and blanks

cdef int64_t UNKNOWN_DELAY_MS = 1000
cdef char* SCHEDULE_TOPIC = b"SCHEDULE_TOPIC_XXXX"


cdef inline bint is_name(const uint8_t* piece, int n, const char* name, int name_len) noexcept nogil:
    """Whether a piece of a properties string is a value of this name; name_len counts the separator behind it."""
    return n > name_len and memcmp(piece, name, <size_t>name_len) == 0


cdef inline void take(Piece* out, const uint8_t* piece, int n, int name_len) noexcept nogil:
    out.at = piece + name_len
    out.len = n - name_len


cdef void look_for(const uint8_t* p, int32_t n, Wanted* w) noexcept nogil:
    """Find what dispatching needs; the last of several values counts."""
    cdef const uint8_t* end = p + n
    cdef const uint8_t* stop
    cdef int size
    cdef uint8_t first
    memset(w, 0, sizeof(Wanted))
    while p < end:
        stop = <const uint8_t*>memchr(p, 2, <size_t>(end - p))
        if stop == NULL:
            stop = end
        size = <int>(stop - p)
        first = p[0]
        if first == c"T" and is_name(p, size, b"TAGS\1", 5):
            take(&w.tags, p, size, 5)
        elif first == c"K" and is_name(p, size, b"KEYS\1", 5):
            take(&w.keys, p, size, 5)
        elif first == c"U" and is_name(p, size, b"UNIQ_KEY\1", 9):
            take(&w.unique_key, p, size, 9)
        elif first == c"D" and is_name(p, size, b"DELAY\1", 6):
            take(&w.delay, p, size, 6)
        elif first == c"I":
            if is_name(p, size, b"INNER_NUM\1", 10):
                take(&w.inner_num, p, size, 10)
            elif is_name(p, size, b"INNER_BASE\1", 11):
                take(&w.inner_base, p, size, 11)
            elif is_name(p, size, b"INNER_MULTI_DISPATCH\1", 21):
                take(&w.multi_queues, p, size, 21)
            elif is_name(p, size, b"INNER_MULTI_QUEUE_OFFSET\1", 25):
                take(&w.multi_offsets, p, size, 25)
        p = stop + 1


cdef int64_t number(const uint8_t* p, int n) noexcept nogil:
    """A decimal number of at most 18 digits; -1 if the text is none."""
    cdef int64_t v = 0
    cdef int i
    if not 0 < n <= 18:
        return -1
    for i in range(n):
        if not c"0" <= p[i] <= c"9":
            return -1
        v = 10 * v + (p[i] - c"0")
    return v


def delays_of(str levels not None):
    """ms of each delay level: "1s 5s 1m 2h 1d" as messageDelayLevel has them. Raises ValueError.

    >>> delays_of("1s 1m")
    [1000, 60000]
    """
    cdef list found = []
    for text in levels.split():
        if not re.fullmatch(r"\d{1,9}[smhd]", text, re.ASCII):
            raise ValueError(f"message_delay_level: {text!r} is no time such as 10s, 5m, 2h or 1d")
        found.append(int(text[:-1]) * {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}[text[-1]])
    if len(found) > DELAY_LEVELS:
        raise ValueError(f"message_delay_level: {len(found)} levels; at most {DELAY_LEVELS}")
    return found


@cython.no_gc_clear      # its end needs the log
cdef class Dispatcher:
    """Builds consume queues and index behind the log.

    log     a CommitLog, not started yet
    queues  loaded
    index   loaded, or None
    config  a StoreConfig
    start_at() and take() bring queues and index up to the log at an opening; start() begins the threads.
    """

    def __cinit__(self, CommitLog log not None, ConsumeQueues queues not None, KeyIndex index, config):
        cdef int i
        self.log = log
        self.queues = queues
        self.index = index
        self.notify_fd = -1
        self.partial_phy = -1
        self.follows_flush = config.flush == "sync" and not config.read_un_committed
        self.multi = config.enable_lmq and config.enable_multi_dispatch
        self.interval_ns = config.flush_interval_consume_queue * 1_000_000
        self.thorough_ns = config.flush_consume_queue_thorough_interval * 1_000_000
        self.least_pages = config.flush_consume_queue_least_pages
        for i, delay in enumerate(delays_of(config.message_delay_level)):
            self.delays[i] = delay
            self.delay_count = i + 1
        install()
        check(rc_service_init(&self.service))
        check(rc_service_init(&self.keeper))
        check(pthread_mutex_init(&self.flushing, NULL))
        check(pthread_mutex_init(&self.progress.mutex, NULL))
        check(rc_cond_init(&self.progress.cond))
        for i in range(BELLS):
            check(pthread_mutex_init(&self.bells[i].mutex, NULL))
            check(rc_cond_init(&self.bells[i].cond))
        self._ready = True

    def __dealloc__(self):
        cdef int i
        if not self._ready:
            return
        if self._running:
            self.log.q.reader = NULL
            rc_service_stop(&self.service)
            rc_service_stop(&self.keeper)
        for i in range(BELLS):
            pthread_cond_destroy(&self.bells[i].cond)
            pthread_mutex_destroy(&self.bells[i].mutex)
        pthread_cond_destroy(&self.progress.cond)
        pthread_mutex_destroy(&self.progress.mutex)
        pthread_mutex_destroy(&self.flushing)
        rc_service_destroy(&self.keeper)
        rc_service_destroy(&self.service)

    # one record

    cdef ConsumeQueue* _queue_of(
        self, const uint8_t* topic, int32_t topic_len, int32_t queue_id, bint batch, int* rc,
    ) noexcept nogil:
        """The queue of a record, made if it is new; NULL, and why. Most records go where one of the last ones went."""
        cdef uint32_t h = cq_hash(topic, topic_len, queue_id)
        cdef ConsumeQueue* q = self.recent[h % BELLS]
        rc[0] = RC_OK
        if (
            q != NULL and q.hash == h and q.queue_id == queue_id and q.topic_len == topic_len
            and rc_load_i64(&q.dead) == 0 and memcmp(q.topic, topic, <size_t>topic_len) == 0
        ):
            return q
        rc[0] = self.queues.make(topic, topic_len, queue_id, batch, &q)
        if rc[0] != RC_OK:
            return NULL
        self.recent[h % BELLS] = q
        return q

    cdef int64_t _tags_code(self, const Record* r, Wanted* w, int64_t timestamp) noexcept nogil:
        """What a unit says of the tags; of a delayed message, when it is due. Source: store.md 2.9."""
        cdef int64_t level
        if w.delay.len > 0 and r.topic_len == 19 and memcmp(r.topic, SCHEDULE_TOPIC, 19) == 0:
            level = number(w.delay.at, w.delay.len)
            if level > 0:
                if self.delay_count == 0:
                    return timestamp + UNKNOWN_DELAY_MS
                return timestamp + self.delays[min(level, <int64_t>self.delay_count) - 1]
        return rc_jhash(w.tags.at, <size_t>w.tags.len) if w.tags.len > 0 else 0

    cdef int _stage(self, const Record* r, int64_t start) noexcept nogil:
        """Take a record apart into the next row, or rows: RC_OK or an errno."""
        cdef Wanted w
        cdef Row* row = &self.rows[self.row_count]
        cdef int32_t transaction = r.sys_flag & RC_FLAG_TRANSACTION_MASK
        cdef bint batch = r.sys_flag & RC_FLAG_INNER_BATCH
        cdef int64_t timestamp = rc_get_i64(r.tail + RC_MSG_STORE_TIMESTAMP_PAST), n
        cdef int rc = RC_OK, count
        look_for(r.props, r.props_len, &w)
        row.q = NULL
        row.end = start + r.size
        row.first_hash = self.hash_count
        row.hash_count = 0
        row.unit.phy_offset = start
        row.unit.size = r.size
        row.unit.queue_offset = r.queue_offset
        row.unit.count = 1
        row.unit.store_timestamp = timestamp
        row.unit.tags_code = self._tags_code(r, &w, timestamp)
        if transaction != RC_FLAG_PREPARED and transaction != RC_FLAG_ROLLBACK and start >= self.queues_from:
            if batch and w.inner_num.len > 0 and w.inner_base.len > 0:
                n = number(w.inner_num.at, w.inner_num.len)
                if 0 < n < 32768 and number(w.inner_base.at, w.inner_base.len) >= 0:
                    row.unit.count = <int32_t>n
                    row.unit.queue_offset = number(w.inner_base.at, w.inner_base.len)
            row.q = self._queue_of(r.topic, r.topic_len, rc_get_i32(r.at + RC_MSG_QUEUE_ID_AT), batch, &rc)
            if rc == RC_UNFIT_TOPIC:
                self.unqueued_count += 1
            elif rc != RC_OK:
                return rc
        if self.index is not None and transaction != RC_FLAG_ROLLBACK and start >= self.index_from:
            count = record_hashes(
                row.q.key_hash if row.q != NULL else rc_jhash_from(rc_jhash(r.topic, <size_t>r.topic_len), b"#", 1),
                w.unique_key.at, w.unique_key.len, w.keys.at, w.keys.len,
                &self.hashes[self.hash_count], HASHES - self.hash_count,
            )
            if count > 0:
                row.hash_count = count
                self.hash_count += count
                self.index.prefetch(self.hashes[row.first_hash])
        self.row_count += 1
        if self.multi and w.multi_queues.len > 0 and row.q != NULL:
            return self._stage_more(&w, &row.unit, row.end)
        return RC_OK

    cdef int _stage_more(self, Wanted* w, const Unit* unit, int64_t end) noexcept nogil:
        """A row for each light queue that INNER_MULTI_DISPATCH names, with its offset."""
        cdef const uint8_t* name = w.multi_queues.at
        cdef const uint8_t* name_end = name + w.multi_queues.len
        cdef const uint8_t* offset = w.multi_offsets.at
        cdef const uint8_t* offset_end = offset + w.multi_offsets.len
        cdef const uint8_t* stop
        cdef const uint8_t* offset_stop
        cdef Row* row
        cdef int rc
        while name < name_end and offset < offset_end:
            stop = <const uint8_t*>memchr(name, c",", <size_t>(name_end - name))
            stop = name_end if stop == NULL else stop
            offset_stop = <const uint8_t*>memchr(offset, c",", <size_t>(offset_end - offset))
            offset_stop = offset_end if offset_stop == NULL else offset_stop
            if stop - name > 5 and memcmp(name, b"%LMQ%", 5) == 0 and number(offset, <int>(offset_stop - offset)) >= 0:
                if self.row_count == ROWS:
                    rc = self._put_rows()
                    if rc != RC_OK:
                        return rc
                row = &self.rows[self.row_count]
                row.q = self._queue_of(name, <int32_t>(stop - name), 0, False, &rc)
                if rc != RC_OK and rc != RC_UNFIT_TOPIC:
                    return rc
                row.unit = unit[0]
                row.unit.queue_offset = number(offset, <int>(offset_stop - offset))
                row.end = end
                row.first_hash = row.hash_count = 0
                self.row_count += 1
            name = stop + 1
            offset = offset_stop + 1
        return RC_OK

    cdef int _put_rows(self) noexcept nogil:
        """Dispatch the rows that are staged: RC_OK, or what the first that failed met; those before it are done."""
        cdef Row* row
        cdef ConsumeQueue* q
        cdef int i, rc = RC_OK
        for i in range(self.row_count):
            row = &self.rows[i]
            q = row.q
            if q != NULL:
                rc = cq_put(q, &row.unit, self.whole)
                if rc == RC_OUT_OF_ORDER:
                    self.unqueued_count += 1
                    self.doubt = True
                elif rc != RC_OK:
                    self.error_path = q.folder
                    break
                self.touched |= <uint64_t>1 << (q.hash % BELLS)
            rc = self._put_keys(row) if row.hash_count > 0 else RC_OK
            if rc != RC_OK:
                break
            rc_store_i64(&self.timestamp, row.unit.store_timestamp)
            rc_store_i64(&self.position, row.end)
        self.row_count = self.hash_count = 0
        return rc

    cdef int _put_keys(self, Row* row) noexcept nogil:
        cdef int i, rc = RC_OK
        cdef int first = self.partial_keys if row.unit.phy_offset == self.partial_phy else 0
        for i in range(first, row.hash_count):
            if self.checking:
                rc = self.index.check_put(
                    self.hashes[row.first_hash + i], row.unit.phy_offset, row.unit.store_timestamp,
                )
            else:
                rc = self.index.put(self.hashes[row.first_hash + i], row.unit.phy_offset, row.unit.store_timestamp)
            if rc != RC_OK:
                self.partial_phy = row.unit.phy_offset
                self.partial_keys = i
                self.error_path = self.index._folder
                return rc
        return RC_OK

    # at an opening

    def start_at(self, int64_t queues_from, int64_t index_from, *, bint whole):
        """Say from where take() dispatches.

        queues_from  physical offset: what the queues say of records before it is believed
        index_from   the same for the index; what it has of those behind is compared
        whole        queues_from is the first record of the log
        """
        self.queues.begin(queues_from)
        self.queues_from = queues_from
        self.index_from = index_from
        self.whole = whole
        self.checking = self.index is not None
        self.doubt = False
        self.unqueued_count = 0
        self.partial_phy = -1
        memset(self.recent, 0, sizeof(self.recent))
        if self.checking:
            check(self.index.start_checking(index_from))

    def take(self, Walker walker not None):
        """Dispatch what a walker finds. False if the index is in doubt: repair it, and start again.

        Raises StoreIOError, StoreFullError, and as the walker does.
        """
        cdef rc_guard guard
        cdef int i, rc = RC_OK
        while walker.next_block():
            with nogil:
                walker.enter(&guard)
                for i in range(walker._count):
                    if self.row_count == ROWS or self.hash_count > HASHES - MOST_HASHES:
                        rc = self._put_rows()
                    if rc == RC_OK:
                        rc = self._stage(&walker._block[i], walker.base + (walker._block[i].at - walker._buf))
                    if rc != RC_OK:
                        break
                if rc == RC_OK:
                    rc = self._put_rows()
                walker.leave(&guard)
                self.row_count = self.hash_count = 0
            if rc == RC_BAD_CHAIN:
                return False
            if rc != RC_OK:
                raise self._failure(rc)
            walker.cut_in_block(0)
        return True

    def finish(self, int64_t position, int64_t min_phy_offset):
        """The log was taken to its end, `position`: what was mended in the queues; None if the index is in doubt."""
        if self.checking and self.index.stop_checking() != RC_OK:
            return None
        self.checking = False
        self.whole = True
        self.queues_from = self.index_from = 0
        self.position = position
        return self.queues.finish(min_phy_offset)

    @property
    def unqueued(self):
        """Records that no queue could take: a topic that is no name of a folder, a queue offset that can't be true."""
        return self.unqueued_count

    @property
    def in_doubt(self):
        """Whether the queues' files say what can't be, so that the log should be taken from its first record on."""
        return self.doubt

    # running

    def start(self):
        """Begin to follow the log, from where finish() was told it ends."""
        self.log.q.reader = &self.service
        check(rc_service_start(&self.service, run, <void*>self))
        self._running = True
        check(rc_service_start(&self.keeper, run_keeper, <void*>self))

    def stop(self):
        """Dispatch what is left, end the threads, make all durable, close queues and index; False if that failed."""
        cdef int rc
        if not self._running:
            return True
        with nogil:
            self.log.q.reader = NULL
            rc_service_stop(&self.service)
            rc_service_stop(&self.keeper)
            rc = RC_OK
            while rc == RC_OK and rc_load_i64(&self.position) < self._limit():
                rc = self._step()
            self._ring()
            if rc == RC_MORE:
                rc = RC_OK
            if rc == RC_OK and rc_load_i64(&self.log.fl.failed) == 0:   # else the next opening builds them anew
                rc = self.flush(0)
        self._running = False
        self.queues.close()
        if self.index is not None:
            self.index.close()
        self.error = rc
        return rc == RC_OK and self.position >= self.log.last_record_end

    def forget(self):
        """In a forked child: there is no thread to stop."""
        self.service.running = self.keeper.running = 0
        self._running = self._ready = False

    cdef int64_t _limit(self) noexcept nogil:
        """How far the log may be dispatched."""
        return rc_load_i64(&self.log.q.flushed) if self.follows_flush else rc_load_i64(&self.log.q.wrote)

    cdef int _step(self) noexcept nogil:
        """Dispatch some of what there is: RC_OK, RC_MORE if nothing could be done, or why not."""
        cdef int64_t before = rc_load_i64(&self.position)
        cdef int rc = self._walk(self._limit())
        if rc != RC_OK:
            rc_store_i64(&self.error, rc)
            return rc
        if self.error != 0:
            rc_store_i64(&self.error, 0)
        return RC_MORE if before == rc_load_i64(&self.position) else RC_OK

    cdef int _walk(self, int64_t limit) noexcept nogil:
        """Dispatch one file's records before `limit`."""
        cdef rc_guard guard
        cdef Record r
        cdef FileState* f
        cdef int64_t at = rc_load_i64(&self.position), pos, stop
        cdef int rc = queue_hold(self.log.q, at, &f), found = RC_OK
        if rc != RC_OK:
            return self._skip(at) if rc == ENOENT else rc
        pos = at - f.start
        stop = min(file_readable(f), limit - f.start)
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
            if rc == RC_OK:
                rc = self._put_rows()
            else:
                self._put_rows()
        guard_leave(&guard)
        self.row_count = self.hash_count = 0
        if rc == RC_OK and found == RC_BLANK:
            rc_store_i64(&self.position, f.start + <int64_t>f.size)
        elif rc == RC_OK and found != RC_OK:
            rc = found
        if f.cut != 0:
            rc = RC_FILE_CUT
            self.error_path = f.path
        file_release(f)
        return rc

    cdef int _skip(self, int64_t at) noexcept nogil:
        """The file at a position is not there: deleted before it was dispatched, or not made yet."""
        cdef int64_t first
        pthread_mutex_lock(&self.log.q.mutex)
        first = self.log.q.files[0].start if self.log.q.count > 0 else at
        pthread_mutex_unlock(&self.log.q.mutex)
        if first > at:
            rc_store_i64(&self.position, first)
        return RC_OK

    # who waits

    cdef void _ring(self) noexcept nogil:
        """Tell those who wait for what was dispatched."""
        cdef int64_t one = 1
        cdef int i
        rc_fence_full()         # what was stored is seen by who begins to wait, or he is seen here
        if rc_load_i64(&self.waiting) > 0:
            for i in range(BELLS):
                if self.touched >> i & 1 and rc_load_i64(&self.bells[i].waiting) > 0:
                    pthread_mutex_lock(&self.bells[i].mutex)
                    pthread_cond_broadcast(&self.bells[i].cond)
                    pthread_mutex_unlock(&self.bells[i].mutex)
        if rc_load_i64(&self.progress.waiting) > 0:
            pthread_mutex_lock(&self.progress.mutex)
            pthread_cond_broadcast(&self.progress.cond)
            pthread_mutex_unlock(&self.progress.mutex)
        if self.touched != 0 and self.notify_fd >= 0 and rc_load_i64(&self.armed) != 0:
            rc_store_i64(&self.armed, 0)
            write_file(<int>self.notify_fd, &one, sizeof(one))
        self.touched = 0

    cdef int wait(
        self, const uint8_t* topic, int32_t topic_len, int32_t queue_id, int64_t offset, int64_t until_ns,
        int64_t slice_ns,
    ) noexcept nogil:
        """Wait until a queue has a message at an offset or behind: RC_OK, RC_MORE after slice_ns, RC_FLUSH_TIMEOUT."""
        cdef Bell* bell = &self.bells[cq_hash(topic, topic_len, queue_id) % BELLS]
        cdef ConsumeQueue* q = NULL
        cdef int64_t now, slice_end = rc_clock_ns() + slice_ns
        cdef int rc = RC_OK
        rc_add_i64(&self.waiting, 1)
        pthread_mutex_lock(&bell.mutex)
        rc_add_i64(&bell.waiting, 1)
        rc_fence_full()
        while True:
            if q == NULL:
                q = self.queues.find(topic, topic_len, queue_id)
            if q != NULL and rc_load_i64(&q.max_offset) > offset and rc_load_i64(&q.units) > 0:
                break
            now = rc_clock_ns()
            if now >= until_ns or now >= slice_end or self._ending:
                rc = RC_MORE if now < until_ns and not self._ending else RC_FLUSH_TIMEOUT
                break
            rc_cond_wait(&bell.cond, &bell.mutex, min(until_ns, slice_end) - now)
        rc_add_i64(&bell.waiting, -1)
        pthread_mutex_unlock(&bell.mutex)
        rc_add_i64(&self.waiting, -1)
        return rc

    cdef int wait_position(self, int64_t position, int64_t until_ns, int64_t slice_ns) noexcept nogil:
        """Wait until all before a physical offset is dispatched: RC_OK, RC_MORE, RC_FLUSH_TIMEOUT, or why it is not."""
        cdef int64_t now, slice_end = rc_clock_ns() + slice_ns
        cdef int rc = RC_OK
        rc_add_i64(&self.waiting, 1)
        pthread_mutex_lock(&self.progress.mutex)
        rc_add_i64(&self.progress.waiting, 1)
        rc_fence_full()
        while rc_load_i64(&self.position) < position:
            now = rc_clock_ns()
            if rc_load_i64(&self.error) != 0:
                rc = <int>self.error
                break
            if now >= until_ns or now >= slice_end or self._ending:
                rc = RC_MORE if now < until_ns and not self._ending else RC_FLUSH_TIMEOUT
                break
            rc_cond_wait(&self.progress.cond, &self.progress.mutex, min(until_ns, slice_end) - now)
        rc_add_i64(&self.progress.waiting, -1)
        pthread_mutex_unlock(&self.progress.mutex)
        rc_add_i64(&self.waiting, -1)
        return rc

    def end_waits(self):
        """The store is being closed: whoever waits is let go, and nobody waits from here on."""
        cdef int i
        self._ending = True
        for i in range(BELLS):
            pthread_mutex_lock(&self.bells[i].mutex)
            pthread_cond_broadcast(&self.bells[i].cond)
            pthread_mutex_unlock(&self.bells[i].mutex)
        pthread_mutex_lock(&self.progress.mutex)
        pthread_cond_broadcast(&self.progress.cond)
        pthread_mutex_unlock(&self.progress.mutex)

    def notify(self, int fd):
        """Write to fd, an eventfd, when there are new messages, once for each arm(); -1: no more."""
        self.notify_fd = fd

    def arm(self):
        """Tell of the next new messages; who is to be told looks once more behind this call, and then sleeps."""
        rc_store_i64(&self.armed, 1)
        rc_fence_full()

    # durability

    cdef int flush(self, int64_t least_pages) noexcept nogil:
        """Make queues and index durable, and say so in the checkpoint if all of it is (least_pages 0)."""
        cdef int64_t timestamp = rc_load_i64(&self.timestamp), index_timestamp = 0
        cdef const char* path = NULL
        cdef int rc
        pthread_mutex_lock(&self.flushing)
        rc = self.lost          # the kernel tells of a lost page only once
        if rc == RC_OK:
            rc = self.queues.flush(least_pages, &path)
        if rc == RC_OK and least_pages == 0 and self.index is not None:
            rc = self.index.flush_files(True, &index_timestamp)
        if rc == RC_OK and least_pages == 0:
            flusher_note(&self.log.fl, 1, timestamp)
            if index_timestamp > 0:
                flusher_note(&self.log.fl, 2, index_timestamp)
        if rc != RC_OK and self.lost == RC_OK:
            self.lost = rc
            self.error_path = path
        pthread_mutex_unlock(&self.flushing)
        return rc

    cdef object _failure(self, int rc):
        """The exception for what dispatching met."""
        path = os.fsdecode(self.error_path) if self.error_path != NULL else ""
        if rc > 0 or rc == RC_FILE_CUT:
            return io_error(rc, path)
        try:
            check(rc)
        except Exception as error:
            return error

    @property
    def failure(self):
        """Why it stands still, as an exception; None if it does not."""
        cdef int rc = <int>rc_load_i64(&self.error)
        return self._failure(rc) if rc != 0 else None

    @property
    def behind(self):
        """Bytes of the log that may be dispatched and are not yet."""
        return max(self._limit() - rc_load_i64(&self.position), 0)

    def stats(self):
        """Counters; see MessageStore.stats()."""
        return {
            "dispatched": rc_load_i64(&self.dispatched),
            "dispatch_behind_bytes": self.behind,
            "unqueued": self.unqueued_count,
            "queues": len(self.queues),
        }

    cdef bint _nap(self, int64_t since) noexcept nogil:
        """Nothing is there to be dispatched; True if the thread should end. since: rc_clock_ns() of the last record."""
        cdef bint stop
        if rc_load_i64(&self.waiting) == 0 and rc_clock_ns() - since < BUSY_NS:
            return rc_service_wait(&self.service, POLL_NS)
        rc_store_i64(&self.log.q.reader_asleep, 1)
        rc_fence_full()         # a record that came before is seen here, or who puts it sees that we sleep
        stop = rc_service_wait(&self.service, IDLE_NS if rc_load_i64(&self.position) >= self._limit() else 0)
        rc_store_i64(&self.log.q.reader_asleep, 0)
        return stop

    cdef void _run(self) noexcept nogil:
        """Follow the log until the service is stopped and nothing is left."""
        cdef int64_t since = rc_clock_ns()
        cdef int rc
        while True:
            rc = self._step()
            self._ring()
            if rc == RC_OK:
                since = rc_clock_ns()
            elif rc == RC_MORE:
                if self._nap(since):
                    return
            elif rc_service_wait(&self.service, RETRY_NS):
                return

    cdef void _keep(self) noexcept nogil:
        """Make queues and index durable now and then, until the service is stopped."""
        cdef int64_t thorough = rc_clock_ns(), now
        while not rc_service_wait(&self.keeper, self.interval_ns):
            now = rc_clock_ns()
            if now - thorough < self.thorough_ns:
                self.flush(self.least_pages)
            else:
                thorough = now
                self.flush(0)
                flusher_checkpoint(&self.log.fl)


cdef void* run(void* argument) noexcept nogil:
    (<Dispatcher>argument)._run()
    return NULL


cdef void* run_keeper(void* argument) noexcept nogil:
    (<Dispatcher>argument)._keep()
    return NULL
