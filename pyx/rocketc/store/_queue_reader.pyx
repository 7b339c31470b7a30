# cython: language_level=3
"""Reading messages of a queue: get() and get_raw().

One call without the GIL reads the units of a consume queue, filters them and picks the records. For get_raw() the heads
of the records are compared with the units, and nothing is copied. For get() the records are copied and checked
(_record_copies); the messages refer to that copy, and decode an attribute when it is read.
Source: RocketMQ DefaultMessageStore.getMessage
"""
import os

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.errno cimport ENOENT, ENOMEM
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t

from rocketc._arguments cimport checked_int
from rocketc._status cimport error_of, reason_of
from rocketc.c.atomic cimport rc_load_i64
from rocketc.c.layout cimport RC_BCQ_UNIT_BYTES, RC_CQ_UNIT_BYTES, RC_MSG_MIN_BYTES
from rocketc.c.status cimport RC_BAD_BODY_CRC, RC_BAD_PROPERTY_CRC, RC_BAD_UNIT, RC_END, RC_FILE_CUT, RC_OK
from rocketc.derived._consume_queue_units cimport cq_min_offset, cq_read, cq_tags_code, cq_unit_of
from rocketc.derived._consume_queues cimport ConsumeQueues
from rocketc.derived._queue_files cimport ConsumeQueue, count_given
from rocketc.derived._queue_loader cimport name_of
from rocketc.files._append_file cimport FileState, file_readable
from rocketc.files._mapped_file_queue cimport MappedFileQueue
from rocketc.format._queue_units cimport Unit, is_blank, is_schedule_topic, is_valid
from rocketc.format._record cimport Record, parse_record
from rocketc.store._raw_records cimport (
    GET_FOUND, GET_MESSAGE_WAS_REMOVING, GET_NO_MATCHED_MESSAGE, GET_OFFSET_FOUND_NULL, GET_OFFSET_OVERFLOW_BADLY,
    GET_OFFSET_OVERFLOW_ONE, GET_OFFSET_TOO_SMALL, RawGetResult, RawRecord, RawRecords, raw_add, raw_check, raw_clear,
    raw_enter, raw_free, raw_init, raw_release, raw_reserve, raw_rest, raw_seek,
)
from rocketc.store._record_copies cimport copy_around_bodies, copy_records
from rocketc.store._results cimport (
    LogPaths, READ_BROKER, READ_CODES, READ_LOOSE, READ_VIEWS, ReadResult, TagFilter, fetch, files_of, read_flags,
)

from rocketc.errors import CorruptUnitError
from rocketc.status import GetStatus

cdef enum:
    MEMORY_BYTES = 0        # indexes of QueueReader._limits
    MEMORY_COUNT = 1
    DISK_BYTES = 2
    DISK_COUNT = 3
    CHUNK = 64              # units read at once
    AHEAD = 4               # units after this one, whose record is fetched into the cache
    ROWS_AT_ONCE = 4096     # most rows that are allocated before the first record is found
    FILTERS_KEPT = 256
    WORK_MOST = 1 << 25     # steps of a filter times bytes of properties, of one read: 0.1 s in the worst case
    READS_MOST = 4          # of skip_unwanted()

cdef int64_t LEAST_TRANSFER_BYTES = 100             # smallest max_bytes that a broker accepts
cdef int64_t MEMORY_UNKNOWN = <int64_t>24 << 30
cdef tuple STATUS = tuple(GetStatus)


cdef inline void fetch_later(const RawRecords* h, const Unit* u) noexcept nogil:
    """Prefetch a record that is checked soon, if it is in the same file."""
    cdef int64_t at
    if h.file >= 0:
        at = u.phy_offset - h.files[h.file].start
        if 0 <= at < h.log.file_size - u.size and u.size > 0:
            fetch(h.files[h.file].base + at, u.size)


cdef ConsumeQueue* find_queue(ConsumeQueues queues, str topic, int32_t queue_id) except? NULL:
    """Return a queue, or NULL. In a store that another process writes, its new units are loaded first."""
    cdef Py_ssize_t n = 0
    cdef const char* name = NULL
    if not queues.read_only:
        try:
            name = PyUnicode_AsUTF8AndSize(topic, &n)
        except UnicodeEncodeError:      # a folder whose name is not UTF-8
            return queues.look(topic, queue_id)
        if n > INT32_MAX:
            return NULL
        return queues.find(<const uint8_t*>name, <int32_t>n, queue_id)
    return queues.look(topic, queue_id)


@cython.no_gc
@cython.final
cdef class GetResult(ReadResult):
    """The result of get(): a sequence of messages, and the status of the read.

    status                GetStatus
    next_offset           queue offset at which the next get() continues
    min_offset, max_offset  of the queue: the offset of its first message, and the offset after its last one
    filter_message_count  number of messages that the filter rejected
    suggest_pulling_from_slave  True: the last message read is so old that it may not be in memory
    Messages are created when they are first used. They share one copy of their records.
    """

    @property
    def queue_offsets(self):
        """Queue offset of each record in the queue that was read. In a light queue the messages have other offsets."""
        cdef int i
        return [self._picked.rows[i].queue_offset for i in range(self._picked.count)]

    def release(self):
        """Release the files of the views. Raises BufferError while a memoryview of them is in use.

        >>> import tempfile, rocketc
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 16) as store:
        ...     _ = store.put("orders", b"hi")
        ...     found = store.get("orders", 0, 0, views=True, wait=1)
        ...     found.release()
        """
        for view in self._views or ():
            view.release()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.release()

    def __repr__(self):
        return f"<GetResult {self.status.name}, {self._picked.count} records, next_offset={self.next_offset}>"


@cython.final
cdef class QueueReader:
    """Reads messages of the log through its consume queues.

    log, queues  of the store, which must stay open during each call
    config       StoreConfig with the limits of a broker and of a filter
    """

    def __cinit__(self, MappedFileQueue log not None, ConsumeQueues queues not None, config):
        try:
            memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError):
            memory = 0
        if memory <= 0:
            memory = MEMORY_UNKNOWN
        self.log = log
        self.queues = queues
        self._memory = memory * config.access_message_in_memory_max_ratio // 100
        self._scan_bytes = config.max_filter_message_size
        self._travel = config.travel_cq_file_num_when_get_message
        self._limits[MEMORY_BYTES] = config.max_transfer_bytes_on_message_in_memory
        self._limits[MEMORY_COUNT] = config.max_transfer_count_on_message_in_memory
        self._limits[DISK_BYTES] = config.max_transfer_bytes_on_message_in_disk
        self._limits[DISK_COUNT] = config.max_transfer_count_on_message_in_disk
        self._keep_offset = config.broker_role == "SLAVE" and not config.offset_check_in_slave
        self._filters = {}
        self.paths = LogPaths(log)

    def get(
        self, str topic not None, queue_id=0, offset=0, max_count=32, *, tags=None, max_bytes=None, bint views=False,
        bint exact_tags=True, bint broker_limits=False, str crc not None="body", bint decompress=True, bint unwrap=True,
    ):
        """See MessageStore.get(); without `wait`."""
        cdef int how = read_flags(crc, decompress, unwrap, views, exact_tags, broker_limits)
        return self.read(topic, queue_id, offset, max_count, tags, max_bytes, how)

    def get_raw(
        self, str topic not None, queue_id=0, offset=0, max_count=32, *, tags=None, max_bytes=None,
        bint exact_tags=True, bint broker_limits=False,
    ):
        """See MessageStore.get_raw()."""
        cdef int how = read_flags("none", True, True, False, exact_tags, broker_limits)
        return self.raw(topic, queue_id, offset, max_count, tags, max_bytes, how)

    cdef ConsumeQueue* queue(self, str topic, int32_t queue_id) except? NULL:
        """Call find_queue(), and map new log files if messages of the queue are in them."""
        cdef ConsumeQueue* q = find_queue(self.queues, topic, queue_id)
        if q != NULL and rc_load_i64(&q.max_phy_offset) > rc_load_i64(&self.log.q.wrote):
            self.log.refresh()          # another process writes it
        return q

    cdef bytes _prepare(
        self, GetRequest* a, str topic, object queue_id, object offset, object max_count, object max_bytes, int how,
    ):
        """Check the arguments of a get and store them in `a`.

        how  ReadFlags
        `a` is valid while the caller keeps the topic and the result. Raises TypeError, ValueError.
        """
        cdef bytes name = None
        cdef const char* text
        cdef Py_ssize_t n = 0
        cdef int32_t id = <int32_t>checked_int("queue_id", queue_id, INT32_MIN, INT32_MAX)
        cdef int64_t at = checked_int("offset", offset, INT64_MIN, INT64_MAX)
        try:
            text = PyUnicode_AsUTF8AndSize(topic, &n)
        except UnicodeEncodeError:      # a folder whose name is not UTF-8
            name = topic.encode("utf-8", "surrogateescape")
            text = PyBytes_AS_STRING(name)
            n = len(name)
        request_init(a, <const uint8_t*>text, <int32_t>min(n, INT32_MAX), id, at)
        a.max_count = checked_int("max_count", max_count, 0 if how & READ_BROKER else 1, INT32_MAX)
        if max_bytes is not None:
            a.max_bytes = checked_int("max_bytes", max_bytes, 1, INT64_MAX)
        a.flags = how
        return name

    cdef GetResult read(
        self, str topic, object queue_id, object offset, object max_count, object tags, object max_bytes, int how,
    ):
        """Execute get(); `how` has the bits of ReadFlags."""
        cdef GetRequest a
        cdef RawRecords h
        cdef ConsumeQueue* q
        cdef GetResult result = GetResult.__new__(GetResult)
        cdef TagFilter filter = self._filter_of(tags)
        cdef bytes _name = self._prepare(&a, topic, queue_id, offset, max_count, max_bytes, how)
        cdef int rc
        raw_init(&h)
        try:
            q = self.queue(topic, a.of.queue_id)
            with nogil:
                rc = self._pick(&a, q, filter, &h)
            if rc == RC_OK and h.count > 0:
                if how & READ_VIEWS:
                    rc = copy_around_bodies(result, &h, &a.of, how)
                else:
                    rc = copy_records(result, &h, &a.of, how)
            if h.count > 0:
                count_given(q, h.messages, h.bytes)     # messages before a damaged one are returned first
            elif rc != RC_OK:
                self._fail(rc, q, &h.wrong)
        finally:
            raw_free(&h)
        result.status = STATUS[h.status]
        result.next_offset = h.next_offset
        result.min_offset = h.min_offset
        result.max_offset = h.max_offset
        result.filter_message_count = h.filtered
        result.suggest_pulling_from_slave = h.suggest_slave
        result._how = how
        if h.count > 0:
            result._tags = filter
            result._offset = a.offset
            result._file_size = self.log.q.file_size
            result._paths = files_of(self.paths, &result._picked)
        else:
            result._buffer = b""
        return result

    cdef RawGetResult raw(
        self, str topic, object queue_id, object offset, object max_count, object tags, object max_bytes, int how,
    ):
        """Execute get_raw(); `how` has the bits of ReadFlags."""
        cdef GetRequest a
        cdef RawGetResult result = RawGetResult.__new__(RawGetResult)
        cdef TagFilter filter = self._filter_of(tags)
        cdef bytes _name = self._prepare(&a, topic, queue_id, offset, max_count, max_bytes, how | READ_CODES)
        with nogil:
            self.get_records(&a, filter, &result.raw)
        return result

    cdef int get_records(self, const GetRequest* a, TagFilter tags, RawRecords* h) except -1 nogil:
        """Pick the records of a request, and hold their files; nothing is copied.

        tags  None: all
        h     initialized by raw_init(); files of an earlier call are released first. It gets the result, and holds the
              files of its rows until raw_release()
        The head of each record is compared with its unit, see raw_check(); topic, body and CRCs are not checked. Call
        it with or without the GIL. It takes the GIL only to raise, and for a store that another process writes.
        Raises CorruptUnitError, CorruptRecordError or StoreIOError if the first record is damaged. Records before a
        damaged one are returned first; h.next_offset is then its queue offset. Raises MemoryError.
        Source: RocketMQ DefaultMessageStore.getMessage.
        """
        cdef ConsumeQueue* q
        cdef int rc
        raw_release(h)
        if self.queues.read_only:
            with gil:
                topic = (<const char*>a.of.topic)[:a.of.topic_len].decode("utf-8", "surrogateescape")
                q = self.queue(topic, a.of.queue_id)
        else:
            q = self.queues.find(a.of.topic, a.of.topic_len, a.of.queue_id)
        rc = self._pick(a, q, tags, h)
        if rc == RC_OK and h.count > 0:
            rc = raw_check(h, &a.of)
        if h.count > 0:
            count_given(q, h.messages, h.bytes)
        elif rc != RC_OK:
            with gil:
                self._fail(rc, q, &h.wrong)
        return 0

    cdef bint skip_unwanted(self, GetRequest* a, TagFilter tags, RawRecords* h) noexcept nogil:
        """Move a.offset over the messages that do not pass a filter, up to the end of a queue that this process writes.

        Returns whether it stopped before the end: at a message that passes, after READS_MOST reads, or where
        get_records() has to say what there is.
        """
        cdef ConsumeQueue* q = self.queues.find(a.of.topic, a.of.topic_len, a.of.queue_id)
        cdef bint found = False
        cdef int rc, reads = 0
        a.max_count = 1
        while not found:
            rc = self._pick(a, q, tags, h)
            if h.status == GET_OFFSET_OVERFLOW_ONE:
                break
            reads += 1
            found = rc != RC_OK or h.status != GET_NO_MATCHED_MESSAGE or h.next_offset <= a.offset
            if not found:
                a.offset = h.next_offset
                found = reads == READS_MOST
        raw_release(h)
        return found

    cdef int _pick(self, const GetRequest* a, ConsumeQueue* q, TagFilter tags, RawRecords* h) noexcept nogil:
        """Pick the records and set h.status. Returns RC_OK, or the fault of the first record, which is h.wrong then."""
        cdef int rc = RC_OK
        raw_clear(h)
        h.log = &self.log.q
        h.next_offset = a.offset
        if q != NULL:
            h.max_offset = rc_load_i64(&q.units)        # loaded before all that the writer stores before it
            if q.unit_bytes != RC_CQ_UNIT_BYTES:
                h.max_offset = rc_load_i64(&q.max_offset)
            rc = cq_min_offset(q, &h.min_offset)
            if rc != RC_OK:
                return rc
        if h.max_offset == 0:
            h.next_offset = self._corrected(a.offset, 0)
        elif a.offset < h.min_offset:
            h.status = GET_OFFSET_TOO_SMALL
            h.next_offset = self._corrected(a.offset, h.min_offset)
        elif a.offset == h.max_offset:
            h.status = GET_OFFSET_OVERFLOW_ONE
        elif a.offset > h.max_offset:
            h.status = GET_OFFSET_OVERFLOW_BADLY
            h.next_offset = self._corrected(a.offset, h.max_offset)
        else:
            rc = self._walk(a, q, tags, h)
            raw_rest(h)
            if h.count > 0:
                h.status = GET_FOUND
                rc = RC_OK
            h.suggest_slave = h.last_phy >= 0 and rc_load_i64(&h.log.wrote) - h.last_phy > self._memory
        return rc

    cdef int64_t _corrected(self, int64_t old, int64_t offset) noexcept nogil:
        return old if self._keep_offset else offset

    cdef bint _is_full(self, const GetRequest* a, const RawRecords* h, const Unit* u) noexcept nogil:
        """Return True if one more record would exceed a limit of the request. The first record always fits."""
        cdef int64_t most = a.max_bytes
        cdef int at
        if h.count == 0:
            return False
        if a.flags & READ_BROKER:
            most = max(min(most, TRANSFER_BYTES), LEAST_TRANSFER_BYTES)
        if h.messages + u.count > a.max_count or h.bytes + u.size > most or h.bytes >= most:
            return True
        if not a.flags & READ_BROKER:
            return False
        at = DISK_BYTES if rc_load_i64(&self.log.q.wrote) - u.phy_offset > self._memory else MEMORY_BYTES
        return h.bytes + u.size > self._limits[at] or h.messages > self._limits[at + 1] - 1

    cdef int _walk(self, const GetRequest* a, ConsumeQueue* q, TagFilter tags, RawRecords* h) noexcept nogil:
        """Read the units from a.offset on, add the picked records to h, and set h.next_offset after the last unit.

        Returns RC_OK, or the fault of the unit at h.next_offset, which is h.wrong then.
        """
        cdef Unit units[CHUNK]
        cdef Unit* u
        cdef int64_t limit = max(self._scan_bytes, a.max_count * RC_CQ_UNIT_BYTES), scanned = 0, unit, removed = -1
        cdef int64_t work = 0
        cdef int64_t units_in_file = q.file_size // q.unit_bytes, file_number
        cdef bint text = tags is not None and (tags.by_record or not a.flags & READ_LOOSE)
        cdef bint code = tags is not None and not tags.by_record and not (text and (
            q.unit_bytes == RC_BCQ_UNIT_BYTES           # the messages of a batch have the tags
            or is_schedule_topic(a.of.topic, a.of.topic_len)    # its units have delivery times, not tags codes
        ))
        cdef int files = 1, i, got = 0, rc = cq_unit_of(q, a.offset, &unit)
        h.status = GET_NO_MATCHED_MESSAGE
        if rc != RC_OK or unit < 0:
            return rc
        file_number = unit // units_in_file
        # Allocate the rows in advance, so that they are not copied when more records are added.
        raw_reserve(h, min(min(a.max_count, h.max_offset - a.offset), <int64_t>ROWS_AT_ONCE))
        while h.next_offset < h.max_offset:
            if unit // units_in_file != file_number and a.flags & READ_BROKER:
                if h.count > 0 or files >= self._travel:
                    return RC_OK
                files += 1
                file_number = unit // units_in_file
            # without a filter, the messages that fit are the next ones
            rc = cq_read(q, unit, CHUNK if text or code else <int>min(CHUNK, a.max_count - h.messages + 1), units, &got)
            if rc != RC_OK:
                return rc
            if got == 0:
                if h.count == 0:
                    h.status = GET_OFFSET_FOUND_NULL
                    h.next_offset = self._corrected(h.next_offset, self._rolled(q, unit, h.max_offset))
                return RC_OK
            for i in range(got):
                u = &units[i]
                if scanned >= limit or work >= WORK_MOST or h.next_offset >= h.max_offset:
                    return RC_OK
                if u.queue_offset + u.count <= a.offset:
                    continue                            # in a batch queue with a gap
                if is_blank(u):                         # its size field is not used
                    scanned += q.unit_bytes
                    h.next_offset = u.queue_offset + u.count
                    if h.count == 0:
                        h.status = GET_MESSAGE_WAS_REMOVING
                    continue
                if self._is_full(a, h, u):
                    return RC_OK
                rc = RC_OK
                if (code or a.flags & READ_CODES) and q.ext != NULL:
                    rc = cq_tags_code(q, u, &u.tags_code)
                    if rc == RC_END:                    # not in the extension: the record has the tags
                        rc = RC_OK
                if rc == RC_OK and not is_valid(u):
                    rc = RC_BAD_UNIT
                if rc == RC_OK and u.phy_offset >= removed:
                    if not code or tags.fits(u.tags_code):
                        if text and i + AHEAD < got:
                            fetch_later(h, &units[i + AHEAD])
                        rc = self._look(a, u, unit + i, tags, text, h, &removed, &work)
                    else:
                        h.filtered += u.count
                        if h.count == 0:
                            h.status = GET_NO_MATCHED_MESSAGE
                if rc != RC_OK:
                    h.wrong.phy_offset = u.phy_offset
                    h.wrong.size = u.size if u.size != 0 else 1
                    h.wrong.queue_offset = u.queue_offset
                    h.wrong.unit = unit + i
                    return rc
                scanned += q.unit_bytes
                h.last_phy = u.phy_offset
                h.next_offset = u.queue_offset + u.count
            unit += got
        return RC_OK

    cdef int _look(
        self, const GetRequest* a, const Unit* u, int64_t unit, TagFilter tags, bint text, RawRecords* h,
        int64_t* removed, int64_t* work,
    ) noexcept nogil:
        """Pick the record of a unit, if it exists and passes the filter. Returns RC_OK or the fault of the record."""
        cdef Record r
        cdef RawRecord* row
        cdef FileState* f
        cdef const uint8_t* p
        cdef int64_t at, size = h.log.file_size
        cdef int rc = raw_seek(h, u.phy_offset)
        if rc == ENOENT and u.phy_offset < rc_load_i64(&h.log.wrote):
            removed[0] = u.phy_offset - u.phy_offset % size + size
            if h.count == 0:
                h.status = GET_MESSAGE_WAS_REMOVING
            return RC_OK
        if rc != RC_OK:
            return RC_BAD_UNIT if rc == ENOENT else rc
        f = h.files[h.file]
        at = u.phy_offset - f.start
        if at + u.size > file_readable(f):
            return RC_BAD_UNIT
        p = f.base + at
        if text:
            raw_enter(h, h.file)
            rc = parse_record(p, <size_t>u.size, &r)
            if f.cut != 0:
                return RC_FILE_CUT
            if rc != RC_OK:
                return rc if rc <= -10 else RC_BAD_UNIT
            work[0] += tags.weight * r.props_len
            if not tags.passes(&r):
                h.filtered += u.count
                return RC_OK
        fetch(p, RC_MSG_MIN_BYTES)      # raw_check() or the copy reads there next
        row = raw_add(h, u.size, u.count)
        if row == NULL:
            return ENOMEM
        row.at = p
        row.phy_offset = u.phy_offset
        row.queue_offset = u.queue_offset
        row.tags_code = u.tags_code
        row.unit = unit
        row.file = h.file
        return RC_OK

    cdef int64_t _rolled(self, ConsumeQueue* q, int64_t unit, int64_t most) noexcept nogil:
        """Return the queue offset of the first unit in the file after the file of a unit."""
        cdef int64_t per_file = q.file_size // q.unit_bytes
        cdef int64_t next = unit + per_file - unit % per_file
        cdef Unit u
        cdef int got = 0
        if q.unit_bytes == RC_CQ_UNIT_BYTES:
            return next
        return u.queue_offset if cq_read(q, next, 1, &u, &got) == RC_OK and got == 1 else most

    cdef TagFilter _filter_of(self, object tags):
        cdef PyObject* known
        if tags is None:
            return None
        if isinstance(tags, str):
            known = PyDict_GetItem(self._filters, tags)
            if known != NULL:
                return <TagFilter><object>known
            if tags == "" or tags == "*":
                return None
            if len(self._filters) >= FILTERS_KEPT:
                self._filters.clear()
            return self._filters.setdefault(tags, TagFilter(tags))
        if isinstance(tags, TagFilter):
            return tags
        tags = list(tags)
        return None if "*" in tags else TagFilter(tags)

    cdef int _fail(self, int rc, ConsumeQueue* q, const RawRecord* wrong) except -1:
        """Raise the error for a damaged record, or for the unit that names it."""
        cdef int64_t pos
        if rc == ENOMEM:
            raise MemoryError
        if rc == RC_BAD_BODY_CRC or rc == RC_BAD_PROPERTY_CRC:
            raise error_of(rc, self.paths.at(wrong.phy_offset), wrong.phy_offset, "crc='none' returns it unchecked")
        if rc > 0 or rc == RC_FILE_CUT:
            raise error_of(rc, self.paths.at(wrong.phy_offset) if wrong.size != 0 else name_of(q))
        pos = wrong.unit * q.unit_bytes
        path = os.path.join(name_of(q), f"{pos - pos % q.file_size:020d}")
        raise CorruptUnitError(
            path, pos % q.file_size, reason_of(rc),
            f"the unit of queue offset {wrong.queue_offset} names {wrong.size} bytes at physical offset "
            f"{wrong.phy_offset}, but its record is not there; `rocketc rebuild` rebuilds the queue from the log, "
            "`rocketc verify` checks the log"
        )

    def _set_memory(self, int64_t size):
        """Test hook: set how many bytes at the end of the log count as in memory."""
        self._memory = size
