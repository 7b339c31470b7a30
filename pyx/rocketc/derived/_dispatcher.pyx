# cython: language_level=3
"""Dispatch the records of a log to the consume queues and the index.

Up to 64 records are decoded into rows before the first one is dispatched. Meanwhile the index slots that they need are
prefetched into the cache.
Source: RocketMQ CommitLogDispatcher.
"""
import os
import re

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memset

from rocketc._status cimport check, error_of
from rocketc.c.atomic cimport rc_load_u8, rc_store_i64
from rocketc.c.bytes cimport rc_get_i32, rc_get_i64
from rocketc.c.jhash cimport rc_jhash, rc_jhash_from
from rocketc.c.layout cimport (
    RC_FLAG_INNER_BATCH, RC_FLAG_PREPARED, RC_FLAG_ROLLBACK, RC_FLAG_TRANSACTION_MASK, RC_MSG_QUEUE_ID_AT,
    RC_MSG_STORE_TIMESTAMP_PAST, RC_PROPERTY_DELAY, RC_PROPERTY_INNER_BASE, RC_PROPERTY_INNER_MULTI_DISPATCH,
    RC_PROPERTY_INNER_MULTI_QUEUE_OFFSET, RC_PROPERTY_INNER_NUM, RC_PROPERTY_KEYS, RC_PROPERTY_TAGS,
    RC_PROPERTY_UNIQUE_KEY,
)
from rocketc.c.properties cimport rc_separators, rc_value_at
from rocketc.c.status cimport RC_BAD_CHAIN, RC_OK, RC_OUT_OF_ORDER, RC_UNFIT_TOPIC
from rocketc.c.vm cimport rc_guard
from rocketc.derived._change_feed cimport WAKEUP_SLOTS
from rocketc.derived._consume_queue cimport cq_put
from rocketc.derived._consume_queue_units cimport cq_read_loaded, is_named
from rocketc.derived._consume_queues cimport ConsumeQueues
from rocketc.derived._index_file_queue cimport record_hashes
from rocketc.derived._key_index cimport KeyIndex
from rocketc.derived._queue_files cimport ConsumeQueue, failed_folder
from rocketc.files._guard cimport install
from rocketc.format._queue_units cimport Unit, has_light_queues, is_light, is_schedule_topic
from rocketc.format._record cimport Record, Slice
from rocketc.log._queue_offsets cimport cq_hash
from rocketc.read._walk cimport Walker, phy_offset_of, record_at, record_count
from rocketc.tables._deleted_topics cimport DeletedTopicOffsets

cdef extern from *:
    int rc_low_bit "__builtin_ctzll"(uint64_t bits) noexcept nogil

cdef int64_t UNKNOWN_DELAY_MS = 1000


cdef inline void take(Slice* value, const char* name, const uint8_t* piece, int n) noexcept nogil:
    """Set a value if this property has the given name."""
    cdef int at = rc_value_at(piece, n, name)
    if at > 0:
        value.at = piece + at
        value.len = n - at


cdef inline void read_property(const uint8_t* p, int size, DispatchProperties* w) noexcept nogil:
    """Read one property, if dispatching needs it."""
    cdef uint8_t first = p[0]
    if first == RC_PROPERTY_TAGS[0]:
        take(&w.tags, RC_PROPERTY_TAGS, p, size)
    elif first == RC_PROPERTY_KEYS[0]:
        take(&w.keys, RC_PROPERTY_KEYS, p, size)
    elif first == RC_PROPERTY_UNIQUE_KEY[0]:
        take(&w.unique_key, RC_PROPERTY_UNIQUE_KEY, p, size)
    elif first == RC_PROPERTY_DELAY[0]:
        take(&w.delay, RC_PROPERTY_DELAY, p, size)
    elif first == RC_PROPERTY_INNER_NUM[0]:
        take(&w.inner_num, RC_PROPERTY_INNER_NUM, p, size)
        take(&w.inner_base, RC_PROPERTY_INNER_BASE, p, size)
        take(&w.multi_queues, RC_PROPERTY_INNER_MULTI_DISPATCH, p, size)
        take(&w.multi_offsets, RC_PROPERTY_INNER_MULTI_QUEUE_OFFSET, p, size)


cdef void find_properties(const uint8_t* p, int32_t n, DispatchProperties* w) noexcept nogil:
    """Find the properties of a record that dispatching needs. Of several values, the last one counts."""
    cdef int base, start = 0, stop
    cdef uint64_t ends
    w.tags.len = w.keys.len = w.unique_key.len = w.delay.len = 0    # cheaper than a memset() of so few bytes
    w.inner_num.len = w.inner_base.len = w.multi_queues.len = w.multi_offsets.len = 0
    for base in range(0, n, 64):
        ends = rc_separators(p, n, base)
        while ends != 0:
            stop = base + rc_low_bit(ends)
            ends &= ends - 1
            read_property(p + start, stop - start, w)
            start = stop + 1
    if start < n:
        read_property(p + start, n - start, w)


cdef int64_t number(const uint8_t* p, int n) noexcept nogil:
    """Return a decimal number of at most 18 digits, or -1 if the text is not one."""
    cdef int64_t v = 0
    cdef int i
    if not 0 < n <= 18:
        return -1
    for i in range(n):
        if not c"0" <= p[i] <= c"9":
            return -1
        v = 10 * v + (p[i] - c"0")
    return v


cdef int put_row(Dispatcher d, DispatchRequest* row) noexcept nogil:
    """Put one row into its queue, and its keys into the index."""
    cdef ConsumeQueue* q = row.q
    cdef int rc
    if q != NULL:
        rc = cq_put(q, &row.unit, d.whole, False)
        if rc == RC_OUT_OF_ORDER:
            d.unqueued_count += 1
            d.mismatch = True
        elif rc != RC_OK:
            d.error_path = failed_folder(q)
            return rc
        d.woken |= <uint64_t>1 << (q.hash % WAKEUP_SLOTS)
    return d._put_keys(row) if row.hash_count > 0 else RC_OK


def delays_of(str levels not None):
    """Return the ms of each delay level of messageDelayLevel, such as "1s 5s 1m 2h 1d". Raises ValueError.

    >>> delays_of("1s 1m")
    [1000, 60000]
    """
    cdef list found = []
    for text in levels.split():
        if not re.fullmatch(r"\d{1,9}[smhd]", text, re.ASCII):
            raise ValueError(f"message_delay_level: {text!r} is not a time such as 10s, 5m, 2h or 1d")
        found.append(int(text[:-1]) * {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}[text[-1]])
    if len(found) > DELAY_LEVELS:
        raise ValueError(f"message_delay_level: {len(found)} levels; at most {DELAY_LEVELS} are allowed")
    return found


@cython.no_gc_clear      # the rows point into the queues
cdef class Dispatcher:
    """Dispatches the records of a walker to consume queues and index.

    queues  loaded
    index   loaded, or None
    config  a StoreConfig
    Call start_at(), take() for each file of the log, then finish().
    """

    def __cinit__(self, ConsumeQueues queues not None, KeyIndex index, config, *_, **__):
        cdef int i
        self.background = True
        self.queues = queues
        self.index = index
        self.partial_phy = -1
        self.deleted_topics = DeletedTopicOffsets({})
        self.multi = config.enable_lmq and config.enable_multi_dispatch
        for i, delay in enumerate(delays_of(config.message_delay_level)):
            self.delays[i] = delay
            self.delay_count = i + 1
        install()

    # one record

    cdef ConsumeQueue* _queue_of(
        self, const uint8_t* topic, int32_t topic_len, int32_t queue_id, bint batch, int* rc,
    ) noexcept nogil:
        """Return the queue of a record, created if it is new; or NULL, and set rc. Recent queues are cached."""
        cdef uint32_t h = cq_hash(topic, topic_len, queue_id)
        cdef ConsumeQueue* q = self.recent[h % RECENT_QUEUES]
        rc[0] = RC_OK
        if q != NULL and is_named(q, topic, topic_len, queue_id, h) and rc_load_u8(&q.dead) == 0:
            return q
        q = NULL
        rc[0] = self.queues.make(topic, topic_len, queue_id, batch, &q)
        if rc[0] != RC_OK:
            self.error_path = NULL
            if q != NULL:
                self.error_path = failed_folder(q)
            return NULL
        self.recent[h % RECENT_QUEUES] = q
        return q

    cdef int64_t _tags_code(self, const Record* r, DispatchProperties* w, int64_t timestamp) noexcept nogil:
        """Return the tags code of a unit; the delivery time of a delayed message. Source: RocketMQ CommitLog."""
        cdef int64_t level
        if w.delay.len > 0 and is_schedule_topic(r.topic, r.topic_len):
            level = number(w.delay.at, w.delay.len)
            if level > 0:
                if self.delay_count == 0:
                    return timestamp + UNKNOWN_DELAY_MS
                return timestamp + self.delays[min(level, <int64_t>self.delay_count) - 1]
        return rc_jhash(w.tags.at, <size_t>w.tags.len) if w.tags.len > 0 else 0

    cdef int _stage(self, const Record* r, int64_t start) noexcept nogil:
        """Decode a record into the next row or rows; returns RC_OK or an errno."""
        cdef DispatchProperties w
        cdef DispatchRequest* row = &self.rows[self.row_count]
        cdef int32_t transaction = r.sys_flag & RC_FLAG_TRANSACTION_MASK
        cdef bint batch = r.sys_flag & RC_FLAG_INNER_BATCH, deleted = False
        cdef int64_t timestamp = rc_get_i64(r.tail + RC_MSG_STORE_TIMESTAMP_PAST), n
        cdef int rc = RC_OK, count
        find_properties(r.props, r.props_len, &w)
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
            deleted = start < self.deleted_topics.end and self.deleted_topics.has(r.topic, r.topic_len, start)
            if not deleted:
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
                if not self.catching_up:
                    self.index.prefetch(self.hashes[row.first_hash])
        self.row_count += 1
        if self.multi and w.multi_queues.len > 0 and (row.q != NULL or deleted):
            return self._stage_more(&w, row.unit, row.end, has_light_queues(r.topic, r.topic_len))
        return RC_OK

    cdef bint _has_unit(self, const uint8_t* topic, int32_t n, int64_t number, int64_t phy_offset) noexcept nogil:
        """Whether a light queue has the unit of a record that RocketMQ 4 writes and RocketMQ 5 does not.

        Such a unit stays when the queues are compared with the log. It is not written again.
        """
        cdef Unit unit
        cdef int got = 0
        cdef ConsumeQueue* q = self.queues.find(topic, n, 0) if self.catching_up else NULL
        if q == NULL or cq_read_loaded(q, number, &unit, &got) != RC_OK:
            return False
        return got == 1 and unit.phy_offset == phy_offset

    cdef int _stage_more(self, DispatchProperties* w, Unit unit, int64_t end, bint every) noexcept nogil:
        """Add a row for each light queue in INNER_MULTI_DISPATCH, with its queue offset.

        every  False: only where _has_unit()
        """
        cdef const uint8_t* name = w.multi_queues.at
        cdef const uint8_t* name_end = name + w.multi_queues.len
        cdef const uint8_t* offset = w.multi_offsets.at
        cdef const uint8_t* offset_end = offset + w.multi_offsets.len
        cdef const uint8_t* stop
        cdef const uint8_t* offset_stop
        cdef DispatchRequest* row
        cdef int rc
        while name < name_end and offset < offset_end:
            stop = <const uint8_t*>memchr(name, c",", <size_t>(name_end - name))
            stop = name_end if stop == NULL else stop
            offset_stop = <const uint8_t*>memchr(offset, c",", <size_t>(offset_end - offset))
            offset_stop = offset_end if offset_stop == NULL else offset_stop
            if (
                is_light(name, stop - name) and number(offset, <int>(offset_stop - offset)) >= 0
                and not self.deleted_topics.has(name, <int32_t>(stop - name), unit.phy_offset)
                and (
                    every or self._has_unit(
                        name, <int32_t>(stop - name), number(offset, <int>(offset_stop - offset)), unit.phy_offset,
                    )
                )
            ):
                self.rows[self.row_count - 1].end = unit.phy_offset     # a record is dispatched when its last row is
                if self.row_count == ROWS:
                    rc = self._put_rows()
                    if rc != RC_OK:
                        return rc
                row = &self.rows[self.row_count]
                row.q = self._queue_of(name, <int32_t>(stop - name), 0, False, &rc)
                if rc != RC_OK and rc != RC_UNFIT_TOPIC:
                    return rc
                row.unit = unit
                row.unit.queue_offset = number(offset, <int>(offset_stop - offset))
                row.end = end
                row.first_hash = row.hash_count = 0
                self.row_count += 1
            name = stop + 1
            offset = offset_stop + 1
        return RC_OK

    cdef int _put_rows(self) noexcept nogil:
        """Dispatch the staged rows. Returns RC_OK or the error of the first row that failed; earlier rows are done."""
        cdef DispatchRequest* row
        cdef int done = 0, rc = RC_OK
        while done < self.row_count:
            row = &self.rows[done]
            rc = self.writer.put(row, &self.hashes[row.first_hash]) if self.catching_up else put_row(self, row)
            if rc != RC_OK:
                break
            done += 1
        if self.feed is not None and not self.catching_up:      # before `position` is updated
            self.feed.add(self.rows, <int>min(done + 1, self.row_count))     # the failed row too: its unit may exist
        if done > 0:
            row = &self.rows[done - 1]
            rc_store_i64(&self.timestamp, row.unit.store_timestamp)
            rc_store_i64(&self.position, row.end)
        self.row_count = self.hash_count = 0
        return rc

    cdef int _put_keys(self, DispatchRequest* row) noexcept nogil:
        cdef int i, rc = RC_OK
        cdef int first = self.partial_keys if row.unit.phy_offset == self.partial_phy else 0
        for i in range(first, row.hash_count):
            rc = self.index.put(self.hashes[row.first_hash + i], row.unit.phy_offset, row.unit.store_timestamp)
            if rc != RC_OK:
                self.partial_phy = row.unit.phy_offset
                self.partial_keys = i
                self.error_path = self.index._folder
                return rc
        self.partial_phy = row.unit.phy_offset      # so the keys are not put again if another row of the record fails
        self.partial_keys = row.hash_count
        return RC_OK

    # at an opening

    def start_at(self, int64_t queues_from, int64_t index_from, *, bint whole):
        """Set the positions from which take() dispatches.

        queues_from  physical offset: units of records before it are trusted
        index_from   the same for the index; its units of later records are compared
        whole        queues_from is the first record of the log
        """
        self.queues.begin(queues_from)
        self.queues_from = queues_from
        self.index_from = index_from
        self.whole = whole
        self.catching_up = True
        self.writer = DispatchWorker(self.index, whole, self.background)
        self.mismatch = False
        self.unqueued_count = 0
        self.partial_phy = -1
        memset(self.recent, 0, sizeof(self.recent))
        if self.index is not None:
            check(self.index.start_checking(index_from))

    def leave_out(self, DeletedTopicOffsets topics not None):
        """Dispatch the old records of these topics to the index only."""
        self.deleted_topics = topics

    def take(self, Walker walker not None):
        """Dispatch the records of a walker. Returns False if the index is damaged: repair it, then start again.

        Raises StoreIOError, StoreFullError, and the errors of the walker.
        """
        cdef int rc = RC_OK
        while walker.next_block():
            with nogil:
                rc = self._take_block(walker)
            if rc != RC_OK:
                break
            walker.cut_in_block(0)
        return self._end_rows(rc)

    cdef int _take_block(self, Walker walker) noexcept nogil:
        """Dispatch the records of a walker's block; returns RC_OK or the error of the first record that failed."""
        cdef rc_guard guard
        cdef const Record* r
        cdef int i, rc = RC_OK
        walker.enter(&guard)
        for i in range(record_count(walker)):
            if self.row_count == ROWS or self.hash_count > HASHES - MOST_HASHES:
                rc = self._put_rows()
            if rc == RC_OK:
                r = record_at(walker, i)
                rc = self._stage(r, phy_offset_of(walker, r))
            if rc != RC_OK:
                break
        if rc == RC_OK:
            rc = self._put_rows()
        walker.leave(&guard)
        self.row_count = self.hash_count = 0
        return rc

    cdef bint _end_rows(self, int rc) except -1:
        """Wait until all rows are in queues and index. An error of these rows takes precedence over rc."""
        cdef int writer_rc
        if self.catching_up:
            with nogil:
                writer_rc = self.writer.end()
            self.unqueued_count += self.writer.unqueued
            self.writer.unqueued = 0
            self.mismatch = self.mismatch or self.writer.mismatch
            if writer_rc != RC_OK:
                rc = writer_rc
                self.error_path = self.writer.error_path
        if rc == RC_BAD_CHAIN:
            return False
        if rc != RC_OK:
            raise self.dispatch_error(rc)
        return True

    def finish(self, int64_t position, int64_t min_phy_offset, damage=()):
        """End the dispatch of the log at `position`. Returns the repairs of queues; None if the index is damaged.

        damage  (start, stop) of each damaged range of the log: its messages keep their queue offsets
        """
        if self.catching_up and self.index is not None and self.index.stop_checking() != RC_OK:
            return None
        self.catching_up = False
        self.writer = None
        self.whole = True
        self.queues_from = self.index_from = 0
        self.position = position
        return self.queues.finish(min_phy_offset, damage)

    @property
    def unqueued(self):
        """Number of records that no queue accepted: unfit topic, or impossible queue offset."""
        return self.unqueued_count

    @property
    def has_mismatch(self):
        """Whether the files of the queues disagree with the log, so that the whole log should be dispatched again."""
        return self.mismatch

    cdef object dispatch_error(self, int rc):
        """Return the exception for an error of dispatching."""
        return error_of(rc, os.fsdecode(self.error_path if self.error_path != NULL else self.queues._folder))
