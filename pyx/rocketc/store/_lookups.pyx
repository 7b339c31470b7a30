# cython: language_level=3
"""Look-ups: find messages by key, id and time.

The index has only hashes of keys, and times in seconds. So each record that it names is read and compared, and messages
with another key or time are left out.
Source: RocketMQ DefaultMessageStore.queryMessage, lookMessageByOffset, ConsumeQueue.getOffsetInQueueByTime
"""
cimport cython
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.errno cimport ENOENT
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t
from libc.stdlib cimport qsort
from libc.string cimport memchr, memcmp

from rocketc._arguments cimport checked_int
from rocketc._status cimport error_of, reason_of
from rocketc.c.atomic cimport rc_load_i64
from rocketc.c.bytes cimport rc_get_i32, rc_get_i64
from rocketc.c.jhash cimport rc_jhash, rc_jhash_from
from rocketc.c.layout cimport (
    RC_MSG_MIN_BYTES, RC_MSG_STORE_TIMESTAMP_PAST, RC_MSG_TOTAL_SIZE_AT, RC_PROPERTY_KEYS, RC_PROPERTY_SEPARATOR,
    RC_PROPERTY_UNIQUE_KEY,
)
from rocketc.c.properties cimport rc_value_at
from rocketc.c.status cimport RC_BAD_UNIT, RC_END, RC_FILE_CUT, RC_MORE, RC_OK
from rocketc.c.vm cimport rc_is_resident
from rocketc.derived._consume_queue_units cimport cq_min_offset, cq_read, cq_unit_of
from rocketc.derived._index_file_queue cimport index_cursor, key_hash
from rocketc.derived._key_index cimport KeyIndex
from rocketc.derived._queue_files cimport ConsumeQueue
from rocketc.derived._queue_loader cimport check_queue
from rocketc.files._append_file cimport FileState, file_readable
from rocketc.format._queue_units cimport Unit, is_blank, is_valid
from rocketc.format._record cimport Record, parse_record
from rocketc.log._queue_offsets cimport QueueOffsets
from rocketc.read._filter cimport ms_of
from rocketc.read._opened_records cimport add_messages
from rocketc.store._queue_reader cimport QueueReader, find_queue
from rocketc.store._raw_records cimport RawRecords, raw_free, raw_init, raw_seek
from rocketc.store._results cimport (
    Cursor, PickedRecord, PickedRecords, READ_BODY_CRC, READ_LOOSE, READ_PLAIN, READ_WHOLE, ReadResult, attach_copy,
    copy_record, cursor_enter, cursor_init, cursor_leave, cursor_rest, cursor_seek, fetch, files_of, picked_add,
    read_copies, read_flags,
)
from rocketc.store._times cimport LOWER, NEAREST, UPPER, by_time, file_by_change, file_by_time, time_of

from rocketc.format import ids

cdef enum:
    HITS = 64               # most units of the index per search; also RocketMQ's limit for a query
    NEAR_BYTES = 262144     # as many as a broker returns in one get
    SOME_BYTES = 4096       # records up to this total size are copied to the stack, without the GIL

cdef dict BOUNDARIES = {"lower": LOWER, "upper": UPPER, "nearest": NEAREST}


@cython.no_gc
@cython.final
cdef class QueryResult(ReadResult):
    """The messages that a query() found, in the order of the log.

    index_last_update_timestamp, index_last_update_phy_offset
                   of the newest key in the index, as RocketMQ returns them to its clients; 0 if no key was found
    """

    def __repr__(self):
        return f"<QueryResult, {self._picked.count} records>"


cdef int by_phy_offset(const void* one, const void* other) noexcept nogil:
    cdef int64_t a = (<const PickedRecord*>one).phy_offset, b = (<const PickedRecord*>other).phy_offset
    return (a > b) - (a < b)


cdef bint is_listed(const uint8_t* p, const uint8_t* end, const KeyQuery* w) noexcept nogil:
    """Return True if the key is in the value of KEYS, where single blanks separate the keys."""
    cdef const uint8_t* blank
    while p < end:
        blank = <const uint8_t*>memchr(p, c" ", <size_t>(end - p))
        if blank == NULL:
            blank = end
        if blank - p == w.key_len and memcmp(p, w.key, <size_t>w.key_len) == 0:
            return True
        p = blank + 1
    return False


cdef bint has_key(const Record* r, const KeyQuery* w) noexcept nogil:
    """Return True if a record has the key: as its UNIQ_KEY, or in its KEYS."""
    cdef const uint8_t* p = r.props
    cdef const uint8_t* end = p + r.props_len
    cdef const uint8_t* stop
    cdef bint unique = False, listed = False
    cdef int at
    if r.topic_len != w.topic_len or memcmp(r.topic, w.topic, <size_t>w.topic_len) != 0:
        return False
    while p < end:                      # one pass for both properties; the last pair of a name counts
        stop = <const uint8_t*>memchr(p, RC_PROPERTY_SEPARATOR, <size_t>(end - p))
        if stop == NULL:
            stop = end
        at = rc_value_at(p, <int>(stop - p), RC_PROPERTY_UNIQUE_KEY)
        if at > 0:
            unique = stop - p - at == w.key_len and memcmp(p + at, w.key, <size_t>w.key_len) == 0
        elif not w.unique:
            at = rc_value_at(p, <int>(stop - p), RC_PROPERTY_KEYS)
            if at > 0:
                listed = is_listed(p + at, stop, w)
        p = stop + 1
    return unique or listed


cdef int prepare_query(
    KeyQuery* w, object max_count, object begin, object end, bint exact_keys, str crc, bint decompress, bint unwrap,
) except -1:
    """Check the arguments of query() and store them in w. Raises TypeError, ValueError."""
    w.unique = False
    w.how = read_flags(crc, decompress, unwrap, False, exact_keys, False)
    w.max_count = checked_int("max_count", max_count, 1, INT64_MAX)
    w.begin = INT64_MIN if begin is None else ms_of("begin", begin, INT64_MIN)
    w.end = INT64_MAX if end is None else ms_of("end", end, INT64_MAX)
    return 0


@cython.final
cdef class Lookups:
    """Finds messages by key, id and time.

    reader   of the same store
    index    None: the store does not have an index, and no key is found
    offsets  the next queue offsets; None: the store is open for reading only
    """

    def __cinit__(self, QueueReader reader not None, KeyIndex index=None, QueueOffsets offsets=None):
        self.reader = reader
        self.index = index
        self.offsets = offsets

    # by physical offset and id

    def message(self, phy_offset, *, str crc not None="body", bint decompress=True):
        """See MessageStore.message()."""
        cdef int64_t at = checked_int("phy_offset", phy_offset, INT64_MIN, INT64_MAX)
        return self.record(at, read_flags(crc, decompress, False, False, True, False))

    cdef object record(self, int64_t phy_offset, int how):
        cdef ReadResult answer = ReadResult.__new__(ReadResult)
        cdef PickedRecords* h = &answer._picked
        cdef Cursor c
        cdef list out = []
        cdef int rc
        cursor_init(&c, &self.reader.log.q)
        if phy_offset < 0:
            return None
        if phy_offset >= rc_load_i64(&c.log.wrote) and self.reader.queues.read_only:
            self.reader.log.refresh()   # another process writes it
        try:
            with nogil:
                rc = record_size(&c, phy_offset, h)
            if rc == RC_OK and h.count == 1:
                rc = read_copies(&c, answer, NULL, how)
        finally:
            cursor_leave(&c)
        if rc == RC_MORE or (rc == RC_OK and h.count == 0):
            return None
        file = self.reader.paths.at(phy_offset)
        if rc != RC_OK:
            if rc > 0 or rc == RC_FILE_CUT or (how & ~READ_WHOLE and reason_of(rc).endswith("_crc")):
                raise error_of(rc, file, phy_offset, "crc='none' returns it unchecked")
            return None
        add_messages(out, &h.rows[0].r, answer._buffer, file, how & READ_PLAIN, None, INT64_MIN)
        return out[0]

    def message_by_id(self, str msg_id not None, topic=None):
        """See MessageStore.message_by_id()."""
        cdef KeyQuery w
        cdef QueryResult found
        try:
            phy_offset = ids.decode_offset_id(msg_id).phy_offset
        except ValueError:
            if topic is None:
                raise
        else:
            m = self.record(phy_offset, READ_BODY_CRC | READ_WHOLE)
            if m is not None and m.msg_id == msg_id.upper():
                return m
        if topic is None:
            return None
        w.unique = True
        w.max_count = 1
        w.begin = INT64_MIN
        w.end = INT64_MAX
        w.how = READ_BODY_CRC
        found = self.answer(topic, msg_id, &w)
        return found[len(found) - 1] if len(found) > 0 else None

    # by key

    def query(
        self, str topic not None, str key not None, *, max_count=64, begin=None, end=None, bint exact_keys=True,
        str crc not None="body", bint decompress=True, bint unwrap=True,
    ):
        """See MessageStore.query()."""
        cdef KeyQuery w
        prepare_query(&w, max_count, begin, end, exact_keys, crc, decompress, unwrap)
        return self.answer(topic, key, &w)

    cdef QueryResult answer(self, str topic, str key, KeyQuery* w):
        """Execute a query that prepare_query() has filled in; this function sets topic, key and hash of w."""
        cdef QueryResult answer = QueryResult.__new__(QueryResult)
        cdef PickedRecords* h = &answer._picked
        cdef Cursor c
        cdef uint8_t some[SOME_BYTES]
        cdef Py_ssize_t n = 0
        cdef int rc
        cdef int32_t hash
        cdef bint copied
        answer._buffer = b""
        if self.index is None:
            return answer
        w.topic = <const uint8_t*>PyUnicode_AsUTF8AndSize(topic, &n)
        w.topic_len = <int32_t>min(n, INT32_MAX)
        hash = rc_jhash(w.topic, <size_t>n)
        w.key = <const uint8_t*>PyUnicode_AsUTF8AndSize(key, &n)
        w.key_len = <int32_t>min(n, INT32_MAX)
        w.hash = key_hash(rc_jhash_from(<int32_t>(31 * <int64_t>hash + c"#"), w.key, <size_t>n))
        w.last_timestamp = w.last_phy_offset = 0
        if self.index.read_only:
            self.index.refresh()
            self.reader.log.refresh()
        cursor_init(&c, &self.reader.log.q)
        try:
            while True:
                with nogil:
                    rc = self._collect(w, h, &c)
                    copied = rc == RC_OK and h.bytes <= SOME_BYTES     # memory for more is allocated with the GIL
                    if copied:
                        rc = copy_record(&c, h, some, NULL, w.how)
                        if rc != RC_OK and rc != RC_MORE:
                            w.damaged = h.rows[h.count].phy_offset
                if w.failed != 0:
                    raise self.index.failure(w.failed, &w.cursor)
                if copied and h.count > 0:
                    attach_copy(answer, some)
                elif rc == RC_OK and h.count > 0:
                    rc = read_copies(&c, answer, NULL, w.how)
                    if rc != RC_OK and rc != RC_MORE:
                        w.damaged = h.rows[h.count].phy_offset
                if rc == RC_BAD_UNIT and self.index.read_only and w.damaged >= rc_load_i64(&c.log.wrote):
                    cursor_leave(&c)
                    self.reader.log.refresh()       # the shared index may refer to log files that are new
                    if w.damaged < rc_load_i64(&c.log.wrote):
                        continue
                if rc != RC_MORE:
                    break
        finally:
            cursor_leave(&c)
        if rc != RC_OK:
            advice = f"the index has key {key!r} of topic {topic!r} there; `rocketc rebuild` rebuilds it from the log"
            raise error_of(rc, self.reader.paths.at(w.damaged), w.damaged, advice)
        answer.index_last_update_timestamp = w.last_timestamp
        answer.index_last_update_phy_offset = w.last_phy_offset
        if h.count > 0:
            answer._how = w.how
            answer._offset = INT64_MIN
            answer._file_size = c.log.file_size
            answer._paths = files_of(self.reader.paths, h)
        return answer

    cdef int _collect(self, KeyQuery* w, PickedRecords* h, Cursor* c) noexcept nogil:
        """Search the index, and pick the records that match.

        Returns RC_OK, RC_END if the search failed with w.failed, or the fault of the record at w.damaged.
        """
        cdef int64_t hits[HITS]
        cdef bint loose = w.how & READ_LOOSE
        cdef int64_t most = min(w.max_count, HITS) if loose else w.max_count
        cdef int n = HITS, i, rc
        h.count = 0
        h.bytes = 0
        w.failed = 0
        index_cursor(&w.cursor, loose)
        while n == HITS and h.count < most:
            n = <int>min(most, HITS) if loose else HITS
            n = self.index.find(w.hash, max(w.begin, 0) if loose else w.begin, w.end, hits, n, &w.cursor)
            if n < 0:
                w.failed = n
                return RC_END
            if n > 0:
                w.last_timestamp = w.cursor.last_timestamp
                w.last_phy_offset = w.cursor.last_phy_offset
            for i in range(n):
                if h.count >= most:
                    break
                w.damaged = hits[i]
                rc = self._look(w, hits[i], h, c)
                if rc != RC_OK:
                    return rc
        cursor_rest(c)
        if h.count > 1:
            qsort(h.rows, <size_t>h.count, sizeof(PickedRecord), by_phy_offset)
        return RC_OK

    cdef int _look(self, KeyQuery* w, int64_t phy_offset, PickedRecords* h, Cursor* c) noexcept nogil:
        """Pick a record that the index names, if it matches and its file was not deleted."""
        cdef Record r
        cdef int64_t at, when
        cdef bint loose = w.how & READ_LOOSE
        cdef int rc
        if not loose and h.count > 0 and h.rows[h.count - 1].phy_offset == phy_offset:
            return RC_OK                # the record has two keys with the same hash, or was dispatched twice
        rc = cursor_seek(c, phy_offset)
        if rc == ENOENT and phy_offset < rc_load_i64(&c.log.wrote):
            return RC_OK                # its file was deleted
        if rc != RC_OK:
            return RC_BAD_UNIT if rc == ENOENT else rc
        at = phy_offset - c.file.start
        if at + RC_MSG_MIN_BYTES > file_readable(c.file):
            return RC_BAD_UNIT
        cursor_enter(c)
        fetch(c.file.base + at, file_readable(c.file) - at)
        rc = parse_record(c.file.base + at, <size_t>(file_readable(c.file) - at), &r)
        if rc == RC_OK:
            when = rc_get_i64(r.tail + RC_MSG_STORE_TIMESTAMP_PAST)
            if not loose and (when < w.begin or when > w.end or not has_key(&r, w)):
                rc = RC_OK if r.phy_offset == phy_offset else RC_BAD_UNIT
            else:
                rc = picked_add(h, phy_offset, r.size, -1)
        if c.file.cut != 0:
            return RC_FILE_CUT
        return rc if rc == RC_OK or rc > 0 or rc <= -10 else RC_BAD_UNIT

    # by queue offset and time

    def min_offset(self, str topic not None, queue_id=0):
        """See MessageStore.min_offset()."""
        cdef ConsumeQueue* q = find_queue(
            self.reader.queues, topic, <int32_t>checked_int("queue_id", queue_id, INT32_MIN, INT32_MAX)
        )
        cdef int64_t offset = 0
        if q != NULL:
            check_queue(q, cq_min_offset(q, &offset))
        return offset

    def max_offset(self, str topic not None, queue_id=0, *, bint committed=True):
        """See MessageStore.max_offset()."""
        cdef int32_t id = <int32_t>checked_int("queue_id", queue_id, INT32_MIN, INT32_MAX)
        cdef ConsumeQueue* q = find_queue(self.reader.queues, topic, id)
        cdef int64_t offset = rc_load_i64(&q.max_offset) if q != NULL else 0
        if not committed and self.offsets is not None:
            offset = max(offset, self.offsets.next_offset(topic, id))
        return offset

    cdef ConsumeQueue* _unit(self, str topic, object queue_id, object offset, Unit* u) except? NULL:
        """Read the unit of a message into u, and return its queue; NULL if the message does not exist, or was lost."""
        cdef int32_t id = <int32_t>checked_int("queue_id", queue_id, INT32_MIN, INT32_MAX)
        cdef ConsumeQueue* q = self.reader.queue(topic, id)
        cdef int64_t at = checked_int("offset", offset, INT64_MIN, INT64_MAX), unit
        cdef int rc, got = 0
        if q == NULL:
            return NULL
        with nogil:
            rc = cq_unit_of(q, at, &unit)
            if rc == RC_OK and unit >= 0:
                rc = cq_read(q, unit, 1, u, &got)
        check_queue(q, rc)
        if got == 0 or is_blank(u) or not is_valid(u) or at >= u.queue_offset + u.count:
            return NULL
        return q

    def phy_offset_of(self, str topic not None, queue_id, offset):
        """See MessageStore.phy_offset_of()."""
        cdef Unit u
        return u.phy_offset if self._unit(topic, queue_id, offset, &u) != NULL else -1

    def in_memory(self, str topic not None, queue_id, offset):
        """See MessageStore.in_memory()."""
        cdef Unit u
        cdef RawRecords h
        cdef FileState* f
        cdef int64_t at, end, stop
        cdef bint found = True
        if self._unit(topic, queue_id, offset, &u) == NULL:
            return True
        raw_init(&h)
        h.log = &self.reader.log.q
        at = u.phy_offset
        end = at + NEAR_BYTES
        with nogil:
            while found and at < end and raw_seek(&h, at) == RC_OK:     # the next records may be in the next file
                f = h.files[h.file]
                stop = min(end, f.start + file_readable(f))
                if at < stop:
                    found = rc_is_resident(f.base, <size_t>(at - f.start), <size_t>(stop - f.start))
                at = f.start + h.log.file_size
            raw_free(&h)
        return found

    def store_time(self, str topic not None, queue_id, offset):
        """See MessageStore.store_time()."""
        cdef Unit u
        cdef Cursor c
        cdef int64_t when = -1
        cdef int rc
        if self._unit(topic, queue_id, offset, &u) == NULL:
            return -1
        cursor_init(&c, &self.reader.log.q)
        with nogil:
            rc = time_of(&u, &c, &when)
            cursor_leave(&c)
        if rc != RC_OK:
            raise error_of(rc, self.reader.paths.at(u.phy_offset))
        return when

    def offset_by_time(self, str topic not None, queue_id, timestamp, str boundary not None="lower"):
        """See MessageStore.offset_by_time()."""
        cdef int32_t id = <int32_t>checked_int("queue_id", queue_id, INT32_MIN, INT32_MAX)
        cdef ConsumeQueue* q
        cdef Cursor c
        cdef int64_t when = ms_of("timestamp", timestamp, INT64_MIN), file = -1, found = 0, least = 0
        cdef int way, rc
        if timestamp is None:
            raise TypeError("timestamp: expected int (ms since the epoch) or datetime, got NoneType")
        if boundary not in BOUNDARIES:
            raise ValueError(f"boundary is {boundary!r}; allowed are {', '.join(map(repr, BOUNDARIES))}")
        way = BOUNDARIES[boundary]
        q = self.reader.queue(topic, id)
        if q == NULL or rc_load_i64(&q.units) == 0:
            return 0
        cursor_init(&c, &self.reader.log.q)
        with nogil:
            rc = file_by_change(q, when, &file) if way == NEAREST else file_by_time(q, when, way, &c, &file)
            if rc == RC_OK and file >= 0:
                rc = by_time(q, when, way, file, &c, &found)
            cursor_leave(&c)
            if rc == RC_OK:
                rc = cq_min_offset(q, &least)
        check_queue(q, rc)
        if way == NEAREST:
            return found
        return min(max(found, least), rc_load_i64(&q.max_offset))


cdef int record_size(Cursor* c, int64_t phy_offset, PickedRecords* h) noexcept nogil:
    """Pick the record that begins at a physical offset, with the size in its first field.

    Returns RC_OK, also if no record can begin there; or an error of mapping the file.
    """
    cdef int64_t at, room
    cdef int32_t size
    cdef int rc = cursor_seek(c, phy_offset)
    if rc != RC_OK:
        return RC_OK if rc == ENOENT else rc
    at = phy_offset - c.file.start
    room = file_readable(c.file) - at
    if room < RC_MSG_MIN_BYTES:
        return RC_OK
    cursor_enter(c)
    size = rc_get_i32(c.file.base + at + RC_MSG_TOTAL_SIZE_AT)
    cursor_rest(c)
    if c.file.cut != 0:
        return RC_FILE_CUT
    return picked_add(h, phy_offset, size, -1) if RC_MSG_MIN_BYTES <= size <= room else RC_OK
